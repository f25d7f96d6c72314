"""verify catches broken protocols; each copy here lacks one thing that it needs."""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec
import pytest

from antecede.causality import MessageId
from antecede.check.failing_run import smallest_failure
from antecede.protocols.base import (
    NO_EFFECTS,
    Delivery,
    Effects,
    LinkRequirements,
    Packet,
    Protocol,
    Send,
    Waiting,
)
from antecede.protocols.flat import DependencyPacket, FlatPacket, StampedPacket, UnmetDependencies
from antecede.protocols.mbcp import Mbcp
from antecede.sim import scenario, simulate
from antecede.sim.verify import VerifyReport, random_scenario, verify, verify_parallel


class MbcpThatNeverDelivers(Mbcp):
    name: ClassVar[str] = "mbcp that waits for ever"

    def _accept(self, packet: FlatPacket, unmet: UnmetDependencies) -> bool:
        return super()._accept(packet, [MessageId(packet.origin, packet.seq), *unmet])


class MbcpThatRepeats(Mbcp):
    name: ClassVar[str] = "mbcp that delivers some messages twice"

    def on_delivered(self, packet: StampedPacket) -> None:
        super().on_delivered(packet)
        if packet.seq % 3 == 0 and packet.payload:
            self.holdback.ready.insert(0, DependencyPacket(b"", packet.origin, packet.seq, {}))


def report(protocol: str, runs: int = 150) -> VerifyReport:
    outcome = VerifyReport(protocol)
    for outcome in verify(protocol, runs, seed=1):  # noqa: B007
        pass
    return outcome


@pytest.mark.parametrize("protocol", ["timestamp", "timestamp-diff", "mbcp"])
def test_built_in_protocols_pass(protocol: str) -> None:
    outcome = report(protocol)
    assert outcome.passed
    assert outcome.failures == []
    assert outcome.deliveries > 10_000
    assert outcome.largest_group == 12


@pytest.mark.parametrize(
    "broken",
    ["TimestampWithoutDependencies", "MbcpWithoutDependencies", "TimestampWithoutFifo", "MbcpWithoutFifo"],
)
def test_a_missing_check_is_caught_and_explained(broken: str) -> None:
    outcome = report(f"broken_protocols:{broken}")
    assert outcome.violations > 0
    assert not outcome.passed
    assert "before its cause" in outcome.failures[0].reason


def test_a_protocol_with_stuck_messages_is_caught() -> None:
    outcome = report(f"{__name__}:MbcpThatNeverDelivers", runs=20)
    assert outcome.stuck > 0
    assert outcome.missing > 0
    assert not outcome.passed


def test_a_protocol_that_delivers_twice_is_caught() -> None:
    outcome = report(f"{__name__}:MbcpThatRepeats", runs=50)
    assert outcome.duplicates > 0
    assert not outcome.passed


def test_without_the_omitted_step_order_holds_and_control_information_grows() -> None:
    printed, ours = report("printed_protocols.mbcp:MbcpAsPrinted"), report("mbcp")
    assert printed.passed
    assert printed.deliveries == ours.deliveries
    assert printed.control_bytes_mean > ours.control_bytes_mean


def test_several_processes_give_the_same_report() -> None:
    for protocol in ("mbcp", "broken_protocols:MbcpWithoutFifo"):
        together = VerifyReport(protocol)
        for together in verify_parallel(2, protocol, 250, seed=1):  # noqa: B007
            pass
        alone = report(protocol, 250)
        assert together.control_bytes_mean == pytest.approx(alone.control_bytes_mean)
        alone.control_bytes_mean = together.control_bytes_mean
        assert together == alone


def test_a_failure_replays_from_its_seed_and_run() -> None:
    name = "broken_protocols:MbcpWithoutFifo"
    failure = report(name, runs=30).failures[0]
    assert random_scenario(name, 1, failure.run) == failure.scenario


class MbcpThatRaises(Mbcp):
    name: ClassVar[str] = "mbcp that raises now and then"

    def on_delivered(self, packet: StampedPacket) -> None:
        if packet.seq == 3:
            raise SystemExit(0)
        super().on_delivered(packet)


def test_a_protocol_that_raises_fails_with_the_line() -> None:
    outcome = report(f"{__name__}:MbcpThatRaises", runs=20)
    assert outcome.raised > 0
    assert not outcome.passed
    assert "raised SystemExit: 0 (test_verify.py, line" in outcome.failures[0].reason


class MbcpThatInvents(Mbcp):
    name: ClassVar[str] = "mbcp that delivers what nobody sent"

    def on_delivered(self, packet: StampedPacket) -> None:
        super().on_delivered(packet)
        if packet.seq == 2:
            self.holdback.ready.append(DependencyPacket(b"", packet.origin, 1_000, {}))


def test_a_protocol_that_invents_messages_is_caught() -> None:
    assert report(f"{__name__}:MbcpThatInvents", runs=20).violations > 0


class MbcpThatStopsTime(Mbcp):
    name: ClassVar[str] = "mbcp that asks to be woken at once, again and again"

    def wake(self, now: int) -> Effects:
        return Effects(wake_at=now)

    def broadcast(self, payload: bytes, now: int, group: str | None = None) -> Effects:
        effects = super().broadcast(payload, now, group)
        return Effects(effects.sends, now + 1, effects.message)


def test_a_protocol_that_stops_time_is_caught() -> None:
    assert "time would stand still" in report(f"{__name__}:MbcpThatStopsTime", runs=3).failures[0].reason


class MbcpWithHeartbeat(Mbcp):
    """Right, and never at rest."""

    name: ClassVar[str] = "mbcp with a heartbeat"

    def wake(self, now: int) -> Effects:
        return Effects(wake_at=now + 100_000_000)

    def broadcast(self, payload: bytes, now: int, group: str | None = None) -> Effects:
        effects = super().broadcast(payload, now, group)
        return Effects(effects.sends, now, effects.message)


def test_a_run_ends_although_the_protocol_keeps_sending_heartbeats() -> None:
    assert report(f"{__name__}:MbcpWithHeartbeat", runs=5).passed


class MbcpToNobody(Mbcp):
    name: ClassVar[str] = "mbcp that sends to a peer that is not there"

    def broadcast(self, payload: bytes, now: int, group: str | None = None) -> Effects:
        effects = super().broadcast(payload, now, group)
        return Effects((*effects.sends, Send((-1,), self.stamp(1, b""))), None, effects.message)


def test_a_protocol_that_sends_to_nobody_is_caught() -> None:
    assert "but peers are 0 to" in report(f"{__name__}:MbcpToNobody", runs=3).failures[0].reason


class SharedClock(Packet, frozen=True, array_like=True):
    payload: bytes
    origin: int
    clock: list[int]

    def message_ids(self) -> tuple[MessageId, ...]:
        return (MessageId(self.origin, self.clock[self.origin]),)


class SharingClocks(Protocol):
    """Vector clocks, whose packets hold the sender's own list."""

    name: ClassVar[str] = "sharing clocks"
    summary: ClassVar[str] = ""
    control: ClassVar[str] = ""
    links: ClassVar[LinkRequirements] = LinkRequirements(fifo=False)
    packets: ClassVar[Any] = SharedClock

    clock: list[int] = msgspec.field(default_factory=list)
    held: list[SharedClock] = msgspec.field(default_factory=list)

    def __post_init__(self) -> None:
        self.clock = self.clock or [0] * self.size

    def broadcast(self, payload: bytes, now: int, group: str | None = None) -> Effects:
        self.clock[self.me] += 1
        packet = SharedClock(payload, self.me, self.clock)
        return Effects((Send(self.partners(), packet),), message=packet.message_ids()[0])

    def receive(self, link: int, packet: Packet, now: int) -> Effects:
        assert isinstance(packet, SharedClock)
        if packet.clock[packet.origin] > self.clock[packet.origin] and packet not in self.held:
            self.held.append(packet)
        return NO_EFFECTS

    def deliver(self, now: int) -> Delivery | None:
        for packet in self.held:
            if self.cause(packet) is None:
                self.held.remove(packet)
                self.clock[packet.origin] += 1
                return Delivery(packet.message_ids()[0], packet.payload)
        return None

    def cause(self, packet: SharedClock) -> MessageId | None:
        for peer, count in enumerate(packet.clock):
            needed = count - (peer == packet.origin)
            if needed > self.clock[peer]:
                return MessageId(peer, needed)
        return None

    def waiting(self) -> list[Waiting]:
        return [Waiting(packet.message_ids()[0], self.cause(packet)) for packet in self.held]

    def paper_bytes(self, packet: Packet) -> int:
        return 4 * self.size


def test_members_share_no_objects() -> None:
    """A packet arrives as it was sent, whatever its sender changes later: as in `check`."""
    name = f"{__name__}:SharingClocks"
    result = simulate(scenario(protocol=name, peers=4, seconds=1, delay="1-300ms"))
    assert result.metrics.deliveries == 3 * result.metrics.messages > 0
    outcome = report(name, runs=30)
    assert outcome.passed, outcome.failures[0].reason
    assert smallest_failure(random_scenario(name, 1, 0)) is None
