"""Records of messages: their states, and that there are never too many."""

from bruit.scoring.deliveries import Deliveries, Delivery

A, B, C = b"A", b"B", b"C"


def test_who_sent_a_message_meanwhile_is_told_when_it_proves_valid_and_only_then() -> None:
    deliveries = Deliveries(ttl=120.0)
    deliveries.record(b"m", 0.0)
    for peer in (B, A, C, B):
        assert deliveries.copy(b"m", peer, 0.0) is None
    assert list(deliveries.valid(b"m", A, 1.0)) == [B, C]
    assert list(deliveries.valid(b"m", A, 2.0)) == []


def test_all_who_sent_a_message_are_told_once_when_it_proves_invalid() -> None:
    deliveries = Deliveries(ttl=120.0)
    for peer in (B, A):
        deliveries.copy(b"m", peer, 0.0)
    assert list(deliveries.invalid(b"m", A, 1.0)) == [A, B]
    assert list(deliveries.invalid(b"m", A, 2.0)) == []


def test_a_verdict_is_final() -> None:
    deliveries = Deliveries(ttl=120.0)
    deliveries.let_go(b"m", Delivery.THROTTLED, 0.0)
    deliveries.valid(b"m", A, 1.0)
    assert deliveries.record(b"m", 1.0).state is Delivery.THROTTLED
    deliveries.valid(b"n", A, 1.0)
    deliveries.let_go(b"n", Delivery.IGNORED, 2.0)
    deliveries.invalid(b"n", A, 2.0)
    assert deliveries.record(b"n", 2.0).state is Delivery.VALID


def test_the_oldest_records_make_room_for_new_ones() -> None:
    deliveries = Deliveries(ttl=120.0, limit=3)
    for message_id in (b"1", b"2", b"3"):
        deliveries.invalid(message_id, A, 0.0)
    deliveries.record(b"1", 0.0)  # there already
    assert len(deliveries) == 3
    deliveries.record(b"4", 0.0)
    assert len(deliveries) == 3
    assert deliveries.record(b"2", 0.0).state is Delivery.INVALID
    assert deliveries.record(b"1", 0.0).state is Delivery.UNKNOWN


def test_a_sweep_drops_what_has_expired_and_nothing_else() -> None:
    deliveries = Deliveries(ttl=100.0)
    for second in range(0, 200, 10):
        deliveries.record(str(second).encode(), second)
    deliveries.sweep(200.0)
    assert len(deliveries) == 10  # of second 100 and later; 100 s after it is not too long
    deliveries.sweep(259.9)
    assert len(deliveries) == 4
