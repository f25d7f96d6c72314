"""Overlapping groups: with one group it is mbcp, and each tempting simplification breaks it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antecede.audit.core import judge_files
from antecede.causality import MessageId, judge
from antecede.errors import InputError
from antecede.protocols.base import LocalError, Packet, RemoteError
from antecede.protocols.flat import DependencyPacket
from antecede.protocols.mbcp import Mbcp
from antecede.protocols.multigroup import GroupPacket, Multigroup
from antecede.sim.record import simulate_to
from antecede.sim.scenario import scenario
from antecede.sim.verify import Histories, VerifyReport, random_scenario, verify
from antecede.sim.world import World
from antecede.trace.reader import trace_files
from printed_protocols import multigroup as printed
from smallest_run import assert_passed


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=40))
def test_multigroup_with_one_group_names_the_same_causes_as_mbcp(script: list[tuple[int, int]]) -> None:
    """Each step: a peer receives the next packet from another; from itself, it broadcasts."""
    many, flat = Multigroup.group(4), Mbcp.group(4)
    links: dict[tuple[int, int], list[tuple[GroupPacket, DependencyPacket]]] = {}
    for peer, other in script:
        if peer == other:
            one = many[peer].broadcast(b"", 0).sends[0].packet
            two = flat[peer].broadcast(b"", 0).sends[0].packet
            assert isinstance(one, GroupPacket)
            assert isinstance(two, DependencyPacket)
            assert {(sender, seq) for sender, _, seq in one.causes} == set(two.causes.items())
            for to in range(4):
                links.setdefault((peer, to), []).append((one, two))
        elif waiting := links.get((other, peer)):
            one, two = waiting.pop(0)
            many[peer].receive(other, one, 0)
            flat[peer].receive(other, two, 0)
            while (delivery := many[peer].deliver(0)) is not None:
                same = flat[peer].deliver(0)
                assert same is not None
                assert (same.message, same.payload) == (delivery.message, delivery.payload)
            assert flat[peer].deliver(0) is None


def final(protocol: str, runs: int) -> VerifyReport:
    found = VerifyReport(protocol)
    for found in verify(protocol, runs, seed=7):
        if found.failed:
            break
    return found


@pytest.mark.parametrize(
    "broken",
    [
        printed.ForgetsAllOnSend,
        printed.ForgetsWhateverIsNamed,
        printed.LeavesItsOwnOut,
        printed.ForgetsOnOverlap,
        printed.NamesOnlyWhatMeets,
    ],
)
def test_each_tempting_simplification_breaks(broken: type[Multigroup]) -> None:
    found = final(f"{printed.__name__}:{broken.__name__}", 3000)
    assert found.violations > 0
    assert_passed(final("multigroup", 300))


def test_the_counter_example_of_forgetting_on_send() -> None:
    """a = {1, 2, 3}, c = {1, 3}: p3 sends m0 to a; p1 sends m1 to c and m2 to a; p2 gets m2 first."""
    p = printed.ForgetsAllOnSend.with_groups({"a": (0, 1, 2), "c": (0, 2)}, 3)
    m0 = p[2].broadcast(b"", 0, "a").sends[0].packet
    p[0].receive(2, m0, 0)
    p[0].deliver(0)
    p[0].broadcast(b"", 0, "c")
    m2 = p[0].broadcast(b"", 0, "a").sends[0].packet
    p[1].receive(0, m2, 0)
    assert p[1].deliver(0) is not None
    right = Multigroup.with_groups({"a": (0, 1, 2), "c": (0, 2)}, 3)
    right[0].receive(2, right[2].broadcast(b"", 0, "a").sends[0].packet, 0)
    right[0].deliver(0)
    right[0].broadcast(b"", 0, "c")
    right[1].receive(0, right[0].broadcast(b"", 0, "a").sends[0].packet, 0)
    assert right[1].deliver(0) is None


def test_a_trace_of_overlapping_groups_is_judged_by_group_membership(tmp_path: Path) -> None:
    given_groups = {"red": (0, 1, 2), "blue": (2, 3), "alone": (4,)}
    made = scenario(protocol="multigroup", peers=5, groups=given_groups, seconds=1, delay="1-300ms")
    metrics = simulate_to(tmp_path, made).metrics
    (judged,) = judge_files(tmp_path, trace_files(tmp_path))
    assert judged.verdict.clean
    assert judged.verdict.deliveries == metrics.deliveries < 4 * metrics.messages


def test_only_protocols_with_overlapping_groups_accept_groups() -> None:
    with pytest.raises(InputError, match="mbcp has one group"):
        scenario(protocol="mbcp", peers=3, groups={"a": (0, 1)})
    with pytest.raises(InputError, match="a must name peers"):
        scenario(protocol="multigroup", peers=3, groups={"a": (0, 7)})


def named_and_needed(run: int) -> tuple[int, int]:
    """How many messages the packets of a run name, and how many they need to by the paper's relation.

    m has to be named by m' if it happened before and nothing between them goes to either's group; the
    sender's previous message to the same group is implied.
    """
    made = random_scenario("multigroup", 11, run)
    members: list[Any] = made.members()
    histories = Histories(made)
    world = made.world(members, [histories])
    packets: dict[MessageId, GroupPacket] = {}

    def watched(source: int, to: Sequence[int], packet: Packet) -> None:
        assert isinstance(packet, GroupPacket)
        packets[packet.message_ids()[0]] = packet
        World.transmit(world, source, to, packet)

    world.transmit = watched  # type: ignore[method-assign]
    world.run()
    assert all(member.undelivered == set() for member in members)
    order = judge(histories.execution()).order
    before = {
        message: [other for other in packets if order.happened_before(other, message)] for message in packets
    }
    named = needed = 0
    for message, packet in packets.items():
        theirs = {MessageId(sender, seq) for sender, _, seq in packet.causes}
        wanted = {
            other
            for other in before[message]
            if not any(
                packets[between].group in (packets[other].group, packet.group) and other in before[between]
                for between in before[message]
            )
        }
        wanted = {m for m in wanted if (m.origin, packets[m].group) != (message.origin, packet.group)}
        assert wanted <= theirs
        named += len(theirs)
        needed += len(wanted)
    return named, needed


def test_messages_name_hardly_more_than_the_relation_requires() -> None:
    counts = [named_and_needed(run) for run in range(60)]
    named, needed = (sum(part) for part in zip(*counts, strict=True))
    assert needed <= named <= 1.05 * needed


def test_packets_and_broadcasts_of_other_groups_are_refused() -> None:
    one, two, three = Multigroup.with_groups({"a": (0, 1), "b": (1, 2)}, 3)
    for member, group in ((one, "b"), (one, "c"), (two, None)):
        with pytest.raises(LocalError):
            member.broadcast(b"", 0, group)
    assert two.broadcast(b"", 0, "b").sends[0].to == (2,)
    for wrong in (GroupPacket(b"", 1, 1, 0, 0, []), GroupPacket(b"", 1, 1, 2, 0, [])):
        with pytest.raises(RemoteError):
            three.receive(1, wrong, 0)


def test_an_unknown_group_is_a_local_error_even_if_there_is_only_one() -> None:
    member, _ = Multigroup.with_groups({"a": (0, 1)}, 2)
    assert member.broadcast(b"", 0).message == MessageId(0, 1)
    assert member.broadcast(b"", 0, "a").message == MessageId(0, 2)
    with pytest.raises(LocalError, match="no group b"):
        member.broadcast(b"", 0, "b")
