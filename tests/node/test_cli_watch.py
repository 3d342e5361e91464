"""What `bruit run` leaves out of its log, so that peers cannot fill the disk."""

from bruit.node.cli.watch import MAX_RECORDS, Tally


def test_an_interval_in_which_nothing_happened_has_no_summary() -> None:
    assert Tally().take() is None


def test_records_of_a_kind_are_limited_and_the_rest_counted_for_each_kind() -> None:
    tally = Tally()
    admitted = [tally.admit("rejected") for _ in range(MAX_RECORDS + 7)]
    assert admitted == [True] * MAX_RECORDS + [False] * 7
    assert tally.admit("delivered")
    assert tally.take() == {
        "delivered": 1,
        "rejected": MAX_RECORDS + 7,
        "dropped": {},
        "left_out": {"rejected": 7},
    }


def test_the_next_interval_starts_afresh() -> None:
    tally = Tally()
    for _ in range(MAX_RECORDS + 1):
        tally.admit("delivered")
    tally.take()
    assert tally.take() is None
    assert tally.admit("delivered")


def test_drops_are_counted_by_reason() -> None:
    tally = Tally()
    for reason in ("duplicate", "send queue full", "duplicate"):
        tally.drop(reason)
    summary = tally.take()
    assert summary is not None
    assert summary["dropped"] == {"duplicate": 2, "send queue full": 1}


def test_reports_that_came_too_fast_are_left_out_by_number() -> None:
    tally = Tally()
    tally.lose(12)
    tally.lose(3)
    summary = tally.take()
    assert summary is not None
    assert summary["left_out"] == {"reports": 15}
