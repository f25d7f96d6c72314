"""Newcomers do not wait for links to all members: their sponsor forwards its deliveries."""

from __future__ import annotations

from antecede.check.changing.world import ChangingWorld
from antecede.membership.catalog import ChangingMbcp


def _pass(world: ChangingWorld, *links: tuple[int, int]) -> None:
    """Let everything arrive on these links, one after the other, and be delivered."""
    for link in links:
        while world.apply(("transmit", *link)):
            pass
        while world.apply(("deliver", link[1], -1)):
            pass


def test_a_newcomer_delivers_messages_of_members_that_do_not_know_it_yet() -> None:
    """p0 has admitted p3. Messages that p1 and p2 broadcast before they know of it reach p3 through p0,
    causes first, and are delivered once although both send them again once they know p3."""
    world = ChangingWorld(ChangingMbcp, 3, 4)
    world.apply(("forward", 0, -1))
    world.apply(("join", 3, 0))
    _pass(world, (3, 0))
    world.apply(("broadcast", 1, -1))
    _pass(world, (1, 2))
    world.apply(("broadcast", 2, -1))
    _pass(world, (1, 0), (2, 0), (0, 3))
    member = world.members[3]
    assert {stream: member.order.delivered[stream] for stream in (1, 2)} == {1: 1, 2: 1}
    _pass(world, (0, 1), (0, 2), (1, 3), (2, 3))
    assert {stream: member.order.delivered[stream] for stream in (1, 2)} == {1: 1, 2: 1}


def test_a_sponsor_does_not_forward_messages_sent_to_the_newcomer_directly() -> None:
    world = ChangingWorld(ChangingMbcp, 3, 4)
    world.apply(("forward", 0, -1))
    world.apply(("join", 3, 0))
    _pass(world, (3, 0))
    _pass(world, (0, 1), (0, 2))
    world.apply(("report", 1, -1))
    world.apply(("broadcast", 1, -1))
    _pass(world, (0, 3), (1, 0), (0, 3))
    assert world.members[3].order.delivered[1] == 0
    _pass(world, (1, 3))
    assert world.members[3].order.delivered[1] == 1
