"""Four hundred sybils behave for two minutes, then all drop everything at once.

Every honest node has four of them for each honest peer; the paper's configuration comes to
two. Routers graft opportunistically, every 10 heartbeats, where the median is below 1; it is
10 there, with scores sixty times as high. (cold-boot-covert-flash-oppgraft)

P3 is no help against peers with a past: after 90 s of service their counters stand at 22
(median) to 89, and take minutes to decay to the 10 that are asked of them. What works is
P2: that of the few who still deliver soon exceeds that of the many who did, so that they
stay in the mesh and others like them are grafted.
"""

from msgspec.structs import replace

from tests.attacks.arena import BOOT, V1_0, V1_1, Arena, Defences, Outcome
from tests.attacks.sybils import until

FLASH = 120.0  # seconds
END = 270.0  # seconds
RECOVERY = 120.0  # seconds from the flash at most


def staged(defences: Defences) -> Arena:
    arena = Arena(replace(defences, opportunistic=True))
    arena.add_sybils(400, arena.honest, connections=20, at=BOOT, forwards=until(FLASH))
    arena.run(END)
    return arena


def attacked(defences: Defences) -> Outcome:
    return staged(defences).outcome(since=FLASH)


def test_a_mesh_that_turns_bad_at_once_loses_nothing_and_recovers() -> None:
    arena = staged(V1_1)
    during = arena.outcome(since=FLASH)
    assert during.holds, f"{during}"
    recovered = arena.recovery(since=FLASH)
    assert recovered <= FLASH + RECOVERY, f"the mesh carries messages again from {recovered} s on"
    after = arena.outcome(since=recovered)
    assert after.holds, f"{after}"


def test_with_none_of_the_defences_of_v1_1_it_stays_bad() -> None:
    arena = staged(V1_0)
    during = arena.outcome(since=FLASH)
    assert not during.holds, f"{during}"
    recovered = arena.recovery(since=FLASH)
    assert recovered == END, f"the mesh carries messages again from {recovered} s on"
