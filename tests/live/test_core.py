"""Live members killed at any moment deliver exactly once, in causal order, and retain nothing for ever."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from core_group import LIVE, WITH_REPAIR, Group, roster
from hypothesis import given, note, settings
from hypothesis import strategies as st

from antecede.causality import Kind, MessageId
from antecede.live.settings import Roster
from antecede.live.trace_rows import DELIVER, RECEIVE, SEND
from antecede.trace import schema

stories = st.binary(min_size=360, max_size=1200)
"""Three bytes for each thing that happens: what, to whom, and how."""


@st.composite
def rosters(draw: st.DrawFn, protocol: str) -> Roster:
    size = draw(st.integers(2, 7))
    return roster(protocol, size, draw(st.integers(0, 3**8)), draw(st.sampled_from([1, 3, 32])))


@contextmanager
def group_of(members: Roster, signed: bool = False) -> Iterator[Group]:
    with tempfile.TemporaryDirectory() as folder:
        group = Group(members, Path(folder), own=True, sync=True, signed=signed)
        try:
            yield group
        finally:
            group.close()


WHAT = (
    "nothing", "broadcast", "broadcast", "broadcast", "broadcast a lot", "carry", "carry", "carry",
    "carry one", "carry one",
    "take", "take", "take", "take all", "ack delivery", "nack", "park", "unpark", "ready", "ready",
    "persist", "advance", "flush",
    "flush all", "spread", "spread", "ack", "gossip", "gossip", "report", "cut", "connect", "connect all",
    "kill", "revive", "repair", "repair",
)  # fmt: skip


def happen(group: Group, story: bytes, deaths: bool = True) -> None:
    """Run a story."""
    ways = group.ways()
    for what, who, how in zip(*[iter(story)] * 3, strict=False):
        group.now += 1
        group.fire()
        peer = group.peers[who % len(group.peers)]
        source, to = ways[(who * 7 + how) % len(ways)]
        connected = (source, to) in group.sent
        kind = WHAT[what % len(WHAT)]
        if kind == "revive":
            for dead in group.peers:
                if not dead.alive:
                    dead.revive()
        elif kind == "connect all":
            group.connect_all()
        elif kind == "connect":
            group.connect(source, to)
        elif kind == "cut":
            group.cut(source, to)
        elif kind.startswith("carry") and connected:
            group.carry(source, to, 1 if kind == "carry one" else 1_000)
        elif kind == "ack" and connected:
            group.ack(source, to)
        elif kind == "gossip" and connected:
            group.gossip(source, to)
        elif not peer.alive or kind in ("nothing", "carry", "carry one", "ack", "gossip"):
            continue
        elif kind == "broadcast":
            for _ in range(1 + how % 3):
                group.broadcast(peer.rank)
        elif kind == "broadcast a lot":
            group.broadcast(peer.rank, padding=5 * how)
        elif kind == "take":
            peer.take(group.now)
        elif kind == "take all":
            while peer.take(group.now):
                pass
        elif kind == "ack delivery":
            peer.ack()
        elif kind == "nack":
            peer.nack()
        elif kind == "park":
            peer.park(group.now)
        elif kind == "unpark":
            peer.unpark(group.now)
        elif kind == "ready":
            peer.take_ready(checkpoint=how % 2 == 0)
        elif kind == "persist":
            peer.persist()
        elif kind == "advance":
            peer.advance()
        elif kind == "flush":
            peer.flush(checkpoint=how % 3 == 0)
        elif kind == "flush all":
            for each in group.peers:
                if each.alive:
                    each.flush(checkpoint=how % 5 == 0)
        elif kind in ("spread", "report"):
            for way in group.sent:
                if way[0] == peer.rank and kind == "report":
                    group.gossip(*way)
                elif way[0] == peer.rank:
                    group.carry(*way)
        elif kind == "repair":
            for patience in (how % 4, 0):
                group.repair(peer.rank, patience)
        elif kind == "kill" and deaths:
            group.kill(peer.rank, sudden=how % 2 == 0, power=how // 3 if how % 3 == 0 else None)
        note(f"{group.now} {kind} {peer.rank} {(source, to)} {how}")


protocols = pytest.mark.parametrize("protocol", LIVE)


@protocols
@settings(max_examples=25)
@given(data=st.data(), story=stories)
def test_durable_messages_are_delivered_once_in_causal_order_despite_any_kills(
    protocol: str, data: st.DataObject, story: bytes
) -> None:
    with group_of(data.draw(rosters(protocol)), data.draw(st.booleans())) as group:
        happen(group, story)
        group.settle()
        judgement = group.judged()
        assert judgement.verdict.missing == 0
        for peer in group.peers:
            assert peer.core.protocol.waiting() == []
            assert peer.seen == [action.message for action in peer.actions if action.kind is Kind.DELIVER]
            assert not peer.core.application.unacked
            came_back = [message for message in peer.seen if message.origin == peer.rank]
            assert came_back == [a.message for a in peer.actions if a.kind is Kind.SEND and a.own]
        nothing_is_retained(group)
        check_trace(group)


def nothing_is_retained(group: Group) -> None:
    """Once every member has every message and knows that all others do."""
    for peer in group.peers:
        peer.flush(checkpoint=True)
        core = peer.core
        assert core.stability.unstable_bytes == 0
        assert not any(core.stability.unstable)
        assert not any(box.packets for box in core.outboxes.values())
        for table in (peer.journal.records(), peer.journal.packets()):
            assert list(table) == []
        assert all(row == core.stability.matrix_clock[peer.rank] for row in core.stability.matrix_clock)
        assert core.stability.lagging() == []


def test_trace_row_kinds_match_the_schema() -> None:
    assert (SEND, RECEIVE, DELIVER) == (schema.SEND, schema.RECEIVE, schema.DELIVER)


def check_trace(group: Group) -> None:
    """The trace in the journals is accurate despite crashes."""
    for peer in group.peers:
        kinds = {SEND: Kind.SEND, DELIVER: Kind.DELIVER}
        steps = [
            (kinds[row.kind], MessageId(row.origin, row.seq)) for row in peer.trace() if row.kind in kinds
        ]
        assert steps == [(action.kind, action.message) for action in peer.history()]


@pytest.mark.parametrize("protocol", WITH_REPAIR)
@settings(max_examples=25)
@given(data=st.data(), story=stories, victims=st.sets(st.integers(0, 6), min_size=1, max_size=2))
def test_a_message_delivered_by_one_live_member_is_delivered_by_all(
    protocol: str, data: st.DataObject, story: bytes, victims: set[int]
) -> None:
    with group_of(data.draw(rosters(protocol)), data.draw(st.booleans())) as group:
        happen(group, story)
        gone = frozenset(victim % len(group.peers) for victim in victims)
        group.settle(gone)
        for together in components(group, gone):
            had = [{action.message for action in group.peers[rank].actions} for rank in together]
            for rank, mine in zip(together, had, strict=True):
                assert mine == set().union(*had), f"member {rank} lacks some"
        for rank in gone:
            group.peers[rank].revive()
        group.judged()


def components(group: Group, gone: frozenset[int]) -> list[list[int]]:
    """The live members, grouped by reachability: behind a dead super peer a member is alone."""
    left = {peer.rank for peer in group.peers} - gone
    found = []
    while left:
        together = [left.pop()]
        for rank in together:
            near = left & set(group.peers[rank].core.partners)
            left -= near
            together += sorted(near)
        found.append(together)
    return found
