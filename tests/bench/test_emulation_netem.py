"""What the kernel would be told where it has netem: the commands, not their effect."""

from bench.emulation.netem import downlink, uplink
from bench.emulation.regions import Layout

LAYOUT = Layout(
    up=(5e6, 100e6, 5e6),
    down=(4e6, 100e6, 4e6),
    delay=((0.0, 0.07, 0.11), (0.07, 0.0, 0.06), (0.12, 0.06, 0.0)),
)
ADDRESSES = ["10.0.0.1", "10.0.0.2", "10.0.0.3"]


def commands(node: int, loss: float) -> list[str]:
    return [" ".join(each) for each in downlink(node, ADDRESSES, LAYOUT, loss, 0.2, 1)]


def test_the_uplink_has_its_rate_and_a_queue_of_that_time() -> None:
    assert " ".join(uplink("wire", 5e6, 0.2)).startswith(
        "tc qdisc add dev wire root tbf rate 5000000bit"
    )
    assert uplink("wire", 5e6, 0.2)[-2:] == ["limit", "125000"]


def test_each_other_node_has_its_delay_to_this_one() -> None:
    found = commands(0, 0.001)
    delays = [each.partition("delay ")[2].split()[0] for each in found if "netem" in each]
    assert delays == ["70ms", "120ms"]
    sources = [each.split()[-3] for each in found if "match ip src" in each]
    assert sources == ["10.0.0.2/32", "10.0.0.3/32"]


def test_loss_is_in_per_cent_and_seeded() -> None:
    netem = [each for each in commands(0, 0.001) if "netem" in each]
    assert all("loss random 0.1% seed" in each for each in netem)


def test_all_sources_share_the_downlink() -> None:
    found = commands(0, 0.0)
    assert "classid 1:1 htb rate 4000000bit" in found[1]
    classes = [each for each in found if "parent 1:1 classid" in each]
    assert len(classes) == 2
    assert all("ceil 4000000bit" in each for each in classes)
