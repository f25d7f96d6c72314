"""Super peers of several levels, judged on random executions, and the rules without which they fail."""

from __future__ import annotations

import importlib
import json
import random
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from antecede.causality.bit_window import OffsetBitmap
from antecede.errors import InputError
from antecede.protocols.base import Packet, RemoteError, Send
from antecede.protocols.freescale.hierarchy import (
    Hierarchy,
    HierarchyLayout,
    InnerSuperPeer,
    LowerPeer,
    UpperSuperPeer,
)
from antecede.protocols.freescale.packets import (
    DownlinkPacket,
    FollowingPacket,
    NumberAssignment,
    PassedUpPacket,
)
from antecede.sim import scenario
from antecede.sim.engines import simulate
from antecede.sim.verify import VerifyReport, verify

_RUNS = 60
NAME = "antecede.protocols.freescale.hierarchy:Hierarchy"


class _ForgetsTheChain(InnerSuperPeer):
    """A message from above follows only those from below that it names, not those passed up before."""

    def _send_inside(self, down: DownlinkPacket) -> Iterator[Send]:
        if isinstance(down, FollowingPacket):
            row = OffsetBitmap.from_numbers({*down.causes.numbers(), down.follows})
            down = DownlinkPacket(down.payload, down.origin, down.seq, down.number, down.sender_previous, row)
        yield from super()._send_inside(down)


class _ReportsTooMuch(InnerSuperPeer):
    """Received messages count as delivered by every member below."""

    def _never_named(self) -> int:
        super()._never_named()
        return self.up.delivered.base


class ForgetsTheChain(Hierarchy):
    inner_peer = _ForgetsTheChain
    peer: LowerPeer | UpperSuperPeer | _ForgetsTheChain


class ReportsTooMuch(Hierarchy):
    inner_peer = _ReportsTooMuch
    peer: LowerPeer | UpperSuperPeer | _ReportsTooMuch


def report(name: str, runs: int) -> VerifyReport:
    *_, last = verify(name, runs, 1)
    return last


def test_random_executions_are_in_causal_order() -> None:
    found = report(NAME, _RUNS)
    assert (found.failed, found.violations, found.stuck, found.missing) == (0, 0, 0, 0), found.failures
    assert found.deliveries > 100 * _RUNS


@pytest.mark.parametrize("run", [450, 569, 651])
def test_members_below_may_lack_messages_from_below(run: int) -> None:
    """An inner super peer reported its own messages as delivered by everybody below it."""
    *_, last = verify(NAME, 1, 7, None, run)
    assert last.failed == 0, last.failures


@pytest.mark.parametrize("name", ["ForgetsTheChain", "ReportsTooMuch"])
def test_verify_finds_each_broken_hierarchy(name: str) -> None:
    assert report(f"{__name__}:{name}", 120).failed > 0


def test_control_information_depends_only_on_the_sender_s_level() -> None:
    """With one super peer on the highest level, nothing is sent across, however many groups lie below it."""
    layout = {"above": HierarchyLayout.regular(1, 3, 3).above}
    result = simulate(
        scenario(protocol=NAME, peers=40, layout=layout, seconds=0.5, rate=2, probes=("costs",)),
        engine="reference",
    )
    assert "across_packets" not in result.metrics.measured
    assert result.metrics.deliveries == 39 * result.metrics.messages
    assert result.metrics.stuck == 0


@pytest.mark.parametrize(
    ("above", "reason"),
    [
        ([-1, 0], "it has 2 ranks, and the group 3"),
        ([-1, 2, 0], "a peer's super peer has a lower rank"),
        ([-1, 0, -1], "the lowest ranks are the super peers of the highest level"),
    ],
)
def test_an_invalid_hierarchy_layout_is_refused(above: list[int], reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        scenario(protocol=NAME, peers=3, layout={"above": above}).resolved_layout()


def test_hierarchy_packets_no_correct_peer_sends_are_refused() -> None:
    members = Hierarchy.group(7)
    sent = members[3].broadcast(b"x", 0).sends[0]
    (up,) = [each for each in members[1].receive(3, sent.packet, 0).sends if each.to == (0,)]
    assert isinstance(up.packet, PassedUpPacket)
    for hostile, reason in (
        (msgspec.structs.replace(up.packet, origin=2), "message 1 of peer 2 from internal peer 1"),
        (msgspec.structs.replace(up.packet, place=0), "from internal peer 1"),
        (msgspec.structs.replace(up.packet, delivered_up_to=1), "numbers that were not assigned"),
    ):
        with pytest.raises(RemoteError, match=reason):
            members[0].receive(1, hostile, 0)
    down = FollowingPacket(b"x", 2, 1, 1, 0, up.packet.causes, 1)
    with pytest.raises(RemoteError, match="follows all up to 1"):
        members[1].receive(0, down, 0)
    with pytest.raises(RemoteError, match="of peer 3, which is below this one"):
        members[1].receive(0, DownlinkPacket(b"x", 3, 1, 1, 0, up.packet.causes), 0)
    with pytest.raises(RemoteError, match="has not sent"):
        members[1].receive(0, NumberAssignment(5, 1), 0)


def test_peers_continue_from_their_saved_states() -> None:
    members = Hierarchy.group(7)
    packets = [(4, send) for send in members[4].broadcast(b"x", 0).sends]
    while packets:
        source, send = packets.pop(0)
        for to in send.to:
            members[to] = Hierarchy.restore(members[to].save())
            packets += [(to, each) for each in members[to].receive(source, send.packet, 0).sends]
    for rank, member in enumerate(members):
        delivery = member.deliver(0)
        assert (delivery and (*delivery.message, delivery.payload)) == (None if rank == 4 else (4, 1, b"x"))


@pytest.mark.parametrize("seed", range(40))
def test_a_state_can_be_saved_at_any_moment(seed: int) -> None:
    """Links that reorder, and applications that are slow: all that may be held is there at some time."""
    chance = random.Random(seed)
    size = chance.randrange(3, 9)
    members = Hierarchy.with_layout(size, HierarchyLayout.random(size, chance.randrange))
    under_way: list[tuple[int, int, Packet]] = []
    for _ in range(300):
        rank, what = chance.randrange(size), chance.random()
        sends: tuple[Send, ...] = ()
        if what < 0.3:
            sends = members[rank].broadcast(b"x", 0).sends
        elif what < 0.8 and under_way:
            source, rank, packet = under_way.pop(chance.randrange(len(under_way)))
            sends = members[rank].receive(source, Hierarchy.decode(Hierarchy.encode(packet)), 0).sends
        else:
            members[rank].deliver(0)
        under_way += [(rank, to, send.packet) for send in sends for to in send.to]
        restored = Hierarchy.restore(members[rank].save())
        assert restored == members[rank]
        members[rank] = restored


def test_the_page_matches_the_stored_measurements(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks" / "hierarchy"))
    overhead = importlib.import_module("overhead")
    page = overhead.PAGE.read_text(encoding="utf-8")
    assert overhead.with_tables(page, json.loads((overhead.HERE / "results.json").read_text())) == page
