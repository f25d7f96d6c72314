"""Live members that are killed at any moment: exactly once, in causal order, and nothing is kept for ever."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from core_group import HANDING_ON, LIVE, Group, roster
from hypothesis import given, note, settings
from hypothesis import strategies as st

from antecede.causality import Kind, MessageId
from antecede.live.settings import Roster

stories = st.binary(min_size=360, max_size=1200)
"""Three bytes for each thing that happens: what, to whom, and how."""


@st.composite
def rosters(draw: st.DrawFn, protocol: str) -> Roster:
    size = draw(st.integers(2, 7))
    return roster(protocol, size, draw(st.integers(0, 3**8)), draw(st.sampled_from([1, 3, 32])))


@contextmanager
def group_of(members: Roster) -> Iterator[Group]:
    with tempfile.TemporaryDirectory() as folder:
        group = Group(members, Path(folder))
        try:
            yield group
        finally:
            group.close()


WHAT = (
    "nothing", "say", "say", "say", "say a lot", "carry", "carry", "carry", "carry one", "carry one",
    "take", "take", "take", "take all", "finish", "begin", "begin", "write", "end", "flush", "flush all",
    "spread", "spread", "confirm", "gossip", "gossip", "tell", "cut", "connect", "connect all", "kill",
    "revive", "recover", "recover",
)  # fmt: skip


def happen(group: Group, story: bytes, deaths: bool = True) -> None:
    """Run a story."""
    ways = group.ways()
    for what, who, how in zip(*[iter(story)] * 3, strict=False):
        group.now += 1
        peer = group.peers[who % len(group.peers)]
        source, to = ways[(who * 7 + how) % len(ways)]
        connected = (source, to) in group.at
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
        elif kind == "confirm" and connected:
            group.confirm(source, to)
        elif kind == "gossip" and connected:
            group.gossip(source, to)
        elif not peer.alive or kind in ("nothing", "carry", "carry one", "confirm", "gossip"):
            continue
        elif kind == "say":
            for _ in range(1 + how % 3):
                group.say(peer.rank)
        elif kind == "say a lot":
            group.say(peer.rank, padding=5 * how)
        elif kind == "take":
            peer.take(group.now)
        elif kind == "take all":
            while peer.take(group.now):
                pass
        elif kind == "finish":
            peer.finish()
        elif kind == "begin":
            peer.begin_batch(whole=how % 2 == 0)
        elif kind == "write":
            peer.write_batch()
        elif kind == "end":
            peer.end_batch()
        elif kind == "flush":
            peer.flush(whole=how % 3 == 0)
        elif kind == "flush all":
            for each in group.peers:
                if each.alive:
                    each.flush(whole=how % 5 == 0)
        elif kind in ("spread", "tell"):
            for way in group.at:
                if way[0] == peer.rank and kind == "tell":
                    group.gossip(*way)
                elif way[0] == peer.rank:
                    group.carry(*way)
        elif kind == "recover":
            for patience in (how % 4, 0):
                group.recover(peer.rank, patience)
        elif kind == "kill" and deaths:
            group.kill(peer.rank, sudden=how % 2 == 0)
        note(f"{group.now} {kind} {peer.rank} {(source, to)} {how}")


protocols = pytest.mark.parametrize("protocol", LIVE)


@protocols
@settings(max_examples=25)
@given(data=st.data(), story=stories)
def test_what_was_written_comes_once_in_causal_order_whoever_is_killed_when(
    protocol: str, data: st.DataObject, story: bytes
) -> None:
    with group_of(data.draw(rosters(protocol))) as group:
        happen(group, story)
        group.settle()
        judgement = group.judged()
        assert judgement.verdict.missing == 0
        for peer in group.peers:
            assert peer.core.protocol.waiting() == []
            assert peer.shown == [did.message for did in peer.did if did.kind is Kind.DELIVER]
            assert not peer.core.hand
        kept_nothing(group)
        traced(group)


def kept_nothing(group: Group) -> None:
    """When everybody has everything, and everybody knows it."""
    for peer in group.peers:
        peer.flush(whole=True)
        core = peer.core
        assert core.progress.unstable_bytes == 0
        assert not any(core.progress.kept)
        assert not any(box.packets for box in core.outboxes.values())
        for table in (peer.journal.rows(), peer.journal.packets()):
            assert list(table) == []
        assert all(row == core.progress.known[peer.rank] for row in core.progress.known)
        assert core.progress.behind() == []


def traced(group: Group) -> None:
    """The trace in the journals says what happened, crashes or not."""
    for peer in group.peers:
        kinds = {"send": Kind.SEND, "deliver": Kind.DELIVER}
        steps = [
            (kinds[event.kind], MessageId(event.origin, event.seq))
            for event in peer.events()
            if event.kind in kinds
        ]
        assert steps == [(did.kind, did.message) for did in peer.did]


@pytest.mark.parametrize("protocol", HANDING_ON)
@settings(max_examples=25)
@given(data=st.data(), story=stories, victims=st.sets(st.integers(0, 6), min_size=1, max_size=2))
def test_whatever_a_live_member_has_all_live_members_get_though_its_sender_is_gone(
    protocol: str, data: st.DataObject, story: bytes, victims: set[int]
) -> None:
    with group_of(data.draw(rosters(protocol))) as group:
        happen(group, story)
        gone = frozenset(victim % len(group.peers) for victim in victims)
        group.settle(gone)
        for together in components(group, gone):
            had = [{did.message for did in group.peers[rank].did} for rank in together]
            for rank, mine in zip(together, had, strict=True):
                assert mine == set().union(*had), f"member {rank} lacks some"
        for rank in gone:
            group.peers[rank].revive()
        group.judged()


def components(group: Group, gone: frozenset[int]) -> list[list[int]]:
    """The live members, those together that can reach each other: behind a dead super peer one is alone."""
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
