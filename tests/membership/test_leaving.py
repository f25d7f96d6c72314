"""Leavers can go, whatever has happened to the members they wait for."""

from __future__ import annotations

from antecede.check.changing.world import ChangingWorld
from antecede.membership.catalog import ChangingMbcp
from antecede.membership.state import Phase


def _let_all_arrive(world: ChangingWorld, *addresses: int) -> None:
    moved = True
    while moved:
        moved = False
        for link in sorted(world.open_links()):
            if set(link) <= set(addresses):
                moved |= world.apply(("transmit", *link))
        for address in addresses:
            while world.apply(("deliver", address, -1)):
                moved = True


def test_a_leaver_can_go_when_the_member_it_waits_for_has_left_and_is_forgotten() -> None:
    """p3, whom p2 has admitted, leaves without having heard that p2 has left. By the time p2 asks again, the
    others have forgotten both."""
    world = ChangingWorld(ChangingMbcp, 2, 4)
    everybody = (0, 1, 2, 3)
    for newcomer, contact in ((2, 1), (3, 2)):
        world.apply(("join", newcomer, contact))
        _let_all_arrive(world, *everybody)
        for address in everybody:
            world.apply(("report", address, -1))
        _let_all_arrive(world, *everybody)
    world.apply(("leave", 2, -1))
    world.apply(("leave", 3, -1))
    _let_all_arrive(world, 0, 1, 2)
    for _ in range(6):
        for address in (0, 1, 3):
            world.apply(("report", address, -1))
        _let_all_arrive(world, 0, 1, 3)
    assert world.members[0].order.delivered.keys() == {0, 1}
    phases = [world.members[2].phase]
    world.apply(("report", 2, -1))
    _let_all_arrive(world, *everybody)
    assert [*phases, world.members[2].phase] == [Phase.LEAVING, Phase.ENDED]


def test_a_leaver_can_go_when_a_newcomer_it_never_met_has_left_and_is_forgotten() -> None:
    """p3 is admitted while p2 leaves, and p2 hears of it from p0 alone. Nothing passes between them, and p3
    leaves too. By the time p2 asks again, the others have forgotten both."""
    world = ChangingWorld(ChangingMbcp, 3, 4)
    world.apply(("join", 3, 0))
    _let_all_arrive(world, 0, 3)
    world.apply(("leave", 2, -1))
    for _ in range(3):
        _let_all_arrive(world, 0, 1, 2)
        _let_all_arrive(world, 0, 1, 3)
        for address in (0, 1, 3):
            world.apply(("report", address, -1))
    assert world.members[2].awaiting - world.members[2].ended == {world.members[3].stream}
    world.apply(("leave", 3, -1))
    for _ in range(6):
        _let_all_arrive(world, 0, 1, 3)
        for address in (0, 1, 3):
            world.apply(("report", address, -1))
    assert world.members[0].order.delivered.keys() == {0, 1}
    phases = [world.members[2].phase]
    for _ in range(2):
        world.apply(("report", 2, -1))
        _let_all_arrive(world, 0, 1, 2)
    assert [*phases, world.members[2].phase] == [Phase.LEAVING, Phase.ENDED]
