"""The core of a process in several groups, driven by hand, with its store and without."""

from __future__ import annotations

import pytest
from driven_nodes import World

from antecede.membership.state import Phase


def send_all(world: World, *groups: str) -> None:
    while world.transmit_all(*groups):
        for each in world.nodes.values():
            each.commit()


def test_a_message_caused_by_one_in_another_group_is_delivered_after_it() -> None:
    """x and z share two groups, y is in one of them. The message to b arrives first and is held."""
    world = World({"a": "xyz", "b": "xz"})
    x, y, z = (world.nodes[each] for each in "xyz")
    x.broadcast("a")
    x.broadcast("b")
    x.commit()
    send_all(world, "b")
    assert not z.read()
    send_all(world, "a")
    z.read_all()
    assert [each[0] for each in (*z.given["a"], *z.given["b"])] == ["a", "b"]
    y.read_all()
    assert y.given == {"a": [("a", 0, 1)]}
    world.settle()
    assert world.judge() == []


def test_a_process_outside_the_cause_s_group_does_not_wait_for_it() -> None:
    world = World({"a": "xy", "b": "xz"})
    x, z = world.nodes["x"], world.nodes["z"]
    x.broadcast("a")
    x.broadcast("b")
    x.commit()
    send_all(world, "b")
    assert z.read()
    world.settle()
    assert world.judge() == []


def test_a_restart_restores_the_whole_state() -> None:
    world = World({"a": "xyz", "b": "xz", "c": "yz"})
    for group in "abcabc":
        for each in world.nodes.values():
            if each.phase(group) == Phase.MEMBER:
                each.broadcast(group)
        world.settle()
    for each in world.nodes.values():
        before, after = each.node, each.restarted().node
        assert after.application.cursor == before.application.cursor
        for group, core in before.groups.items():
            assert after.groups[group].received == core.received
            assert after.groups[group].member.order == core.member.order
            for link, box in core.outboxes.items():
                assert after.groups[group].outboxes[link].chain[box.last] == box.chain[box.last]
    world.settle()
    assert world.judge() == []


def play(world: World, steps: int, kills: bool, changes: bool) -> None:
    draw = world.random
    groups = sorted(world.founders)
    for _ in range(steps):
        each, group = draw.choice(list(world.nodes.values())), draw.choice(groups)
        what = draw.random()
        if what < 0.15 and each.phase(group) == Phase.MEMBER:
            each.broadcast(group)
        elif what < 0.35:
            each.read()
        elif what < 0.5:
            each.commit(checkpoint=draw.random() < 0.05)
        elif what < 0.9:
            links = world.links()
            for _ in range(6):
                chosen = draw.choice(links)
                if chosen[2] in chosen[0].core(chosen[1]).links:
                    world.transmit(*chosen)
        elif what < 0.93:
            each.report()
        elif what < 0.95 and kills:
            each.kill()
        elif changes:
            other = draw.choice(list(world.nodes.values()))
            members = [one for one in world.nodes.values() if one.phase(group) == Phase.MEMBER]
            if what < 0.965:
                each.rejoin()
            elif what < 0.985:
                each.join(group, other)
            elif what < 0.993 and len(members) > 2 and not world.counts["removed in " + group]:
                world.counts["left " + group] += each.leave(group)
            elif len(members) > 3 and not world.counts["removed in " + group] + world.counts["left " + group]:
                world.counts["removed in " + group] += each.remove(
                    group, other
                )  # groups in which a majority is left
        world.counts["steps"] += 1


@pytest.mark.parametrize("seed", range(6))
def test_founders_killed_at_any_moment_keep_causal_order(seed: int) -> None:
    world = World({"a": "xyz", "b": "xz", "c": "yzw", "d": "wx"}, seed)
    play(world, 400, kills=True, changes=False)
    world.settle()
    assert world.judge() == []


@pytest.mark.parametrize("seed", range(8))
def test_members_that_join_leave_and_are_killed_keep_causal_order(seed: int) -> None:
    world = World({"a": "vwxyz", "b": "xzvw", "c": "vyzw"}, seed)
    world.node("u")
    play(world, 800, kills=True, changes=True)
    world.settle()
    assert world.judge() == []
