"""A changing group whose members detect failures by VCube's tests.

In each round a member tests the first unsuspected member of each of its clusters, at most log2 n others, and
learns of the rest from their answers. It also tests the suspected members before these, to notice when they
return. Progress reports then play no part in failure detection, and may be rare.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from antecede.membership.failure_detection import Diagnosis, VCubeDetector
from antecede.membership.member import ChangingMember
from antecede.membership.packets import Stream
from antecede.membership.state import Phase
from antecede.protocols.base import Packet
from antecede.sim import counter_rng
from antecede.sim.changing_world import ChangingGroupWorld
from antecede.sim.world import TEST
from antecede.units import SECOND

_EXPECTED = SECOND // 10
"""How long an answer is expected to take, before any has arrived."""
_ROUND = -1
"""The source of events that begin a round. Other sources are time-outs of tests."""


class VCubeTest(Packet, frozen=True, array_like=True, tag=60):
    """Asks whether the receiver is alive."""

    metric_name: ClassVar[str] = "test"

    sent: int


class VCubeAnswer(Packet, frozen=True, array_like=True, tag=61):
    """A positive answer, with the number of state changes of each member that the sender knows of."""

    metric_name: ClassVar[str] = "test_answer"

    sent: int
    """When the test was sent."""
    events: dict[Stream, int]


class DiagnosingWorld(ChangingGroupWorld):
    """One run of such a group."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._tests: dict[int, VCubeDetector] = {}
        self._awaited: dict[tuple[int, int], int] = {}
        """By tester and address: when the unanswered test was sent."""
        super().__init__(*arguments, **options)
        self._handlers += (self._on_test,)

    def _begin_reports(self, address: int) -> None:
        super()._begin_reports(address)
        bits = counter_rng.key(self.seed, counter_rng.PHASE, address, 2)
        self._schedule(self.now + counter_rng.between(bits, 0, self._interval), TEST, address, _ROUND, 0)

    def suspected_by(self, address: int) -> Mapping[Stream, int]:
        tests = self._tests.get(address)
        return {} if tests is None else tests.suspected

    @property
    def _interval(self) -> int:
        return self._settings.test or SECOND

    def _on_test(self, peer: int, source: int, sent: int) -> None:
        """A round of tests begins, or the answer to a test is overdue."""
        member = self.members[peer]
        if source != _ROUND:
            if self._awaited.get((peer, source)) == sent and member.is_member:
                del self._awaited[peer, source]
                stream = self.members[source].stream
                self._follow(member, self._tests[peer].on_timeout(stream, self.now))
        elif member.is_member and not self._is_over():
            self._begin_round(member)
            self._schedule(self.now + self._interval, TEST, peer, _ROUND, 0)

    def _begin_round(self, member: ChangingMember) -> None:
        me = member.me
        tests = self._tests.setdefault(me, VCubeDetector(member.stream, _EXPECTED))
        tests.watch(member.view)
        self._remove_suspected(member, tests.suspected)
        for stream in tests.targets():
            address = member.addresses.get(stream)
            if address is not None and (me, address) not in self._awaited:
                self._awaited[me, address] = self.now
                self._schedule(self.now + tests.timeout(stream), TEST, me, address, self.now)
                self.transmit(me, (address,), VCubeTest(self.now))

    def _on_arrival(self, peer: int, source: int, packet: Packet) -> None:
        member = self.members[peer]
        if isinstance(packet, VCubeTest):
            tests = self._tests.get(peer)
            if member.phase in (Phase.MEMBER, Phase.LEAVING):
                self.transmit(peer, (source,), VCubeAnswer(packet.sent, tests.answer() if tests else {}))
        elif isinstance(packet, VCubeAnswer):
            if self._awaited.get((peer, source)) == packet.sent:
                del self._awaited[peer, source]
            stream = self.members[source].stream
            if member.is_member and peer in self._tests:
                took = self.now - packet.sent
                self._follow(member, self._tests[peer].on_answer(stream, packet.events, took, self.now))
        else:
            super()._on_arrival(peer, source, packet)

    def _follow(self, member: ChangingMember, diagnosis: Diagnosis) -> None:
        for stream in diagnosis.suspected:
            if stream in member.addresses:
                self._suspect(member, stream)
        for stream in diagnosis.trusted:
            self._apply(member.me, member.trust(stream, self._clock(member.me)))

    def _hear(self, member: ChangingMember, source: int, packet: Packet) -> None:
        """Only answers prove that a member is alive."""

    def _detect(self, member: ChangingMember) -> None:
        """Failures are detected in rounds of tests, not with reports."""
