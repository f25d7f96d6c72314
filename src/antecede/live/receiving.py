"""Incoming data of a core: partners' packets, repairs, certificates and proofs.

Everything is verified before the protocol sees it (`validation.py`, `seals.py`, quotas of `stability.py`), so
a `RemoteError` leaves the member as it was. Time O(messages in the packet).
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from antecede.causality import MessageId
from antecede.live.events import CertificateLearned, Equivocated, PacketReceived, RepairReceived
from antecede.live.seals import EquivocationError, RevokedKeyError
from antecede.live.transport.outbox import chain, is_skipped, skip
from antecede.live.validation import check_asked_for, check_author, decode_packet
from antecede.protocols.base import NO_EFFECTS, Packet, RemoteError, Span

if TYPE_CHECKING:
    from antecede.live.core import Core


class Receiver:
    """The receiving side of one core."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def on_packet(self, event: PacketReceived) -> None:
        core, link, number, data, now = self._core, event.link, event.number, event.data, event.time
        before = core.received[link]
        if number != before + 1:
            if number <= before:
                return  # a duplicate
            raise RemoteError(f"packet {number} came after packet {before}")
        value = chain(core.received_chain[link], data)
        if is_skipped(data):
            core.log(event)
            core.received[link], core.received_chain[link] = number, value
            return
        packet, spans = decode_packet(core.protocol, core.stability, data)
        check_author(core.stability, link, spans)
        if not core.is_replaying:  # then it was accepted, and what was delivered since is not counted yet
            for origin, _, _ in spans:
                core.stability.check_quota(origin)
        try:
            self._verify_seals(link, packet, spans, now)
        except RevokedKeyError:
            if any(origin == link for origin, _, _ in spans):
                raise
            # The partner has accepted it before it could know. Record the packet without its messages.
            core.step(PacketReceived(link, number, skip(value), now))
            return
        effects = core.protocol.receive(link, packet, now)
        if core.is_durable:
            core.log(event)
            if not spans:
                core.defer_unblocked()
        core.received[link], core.received_chain[link] = number, value
        for span in spans:
            core.retain(span, data, data, now, link)
        if effects is not NO_EFFECTS:
            core.carry_out(effects)

    def on_repair(self, event: RepairReceived) -> None:
        core = self._core
        packet, spans = decode_packet(core.protocol, core.stability, event.data)
        check_asked_for(spans, event.wanted)
        takes_repair = core.stability.takes_repair
        if not core.is_replaying and not all(takes_repair(origin, first) for origin, first, _ in spans):
            return  # not the fault of whom it was asked; it is asked for again when there is room
        with contextlib.suppress(RevokedKeyError):  # nor is that
            self._verify_seals(event.link, packet, spans, event.time)
            self._accept_repair(event, packet, spans)

    def _accept_repair(self, event: RepairReceived, packet: Packet, spans: tuple[Span, ...]) -> None:
        core = self._core
        missing = [
            MessageId(origin, seq)
            for origin, first, last in spans
            for seq in range(first, last + 1)
            if seq not in core.stability.received[origin]
        ]
        parts = core.protocol.on_repair(packet) if missing else []
        if not parts:
            return
        core.log(event)
        for link, part in parts:
            effects = core.protocol.receive(link, part, event.time)
            for span in part.spans():
                core.retain(span, event.data, event.data, event.time, link)
            core.carry_out(effects)
        core.repaired += [(message, event.link) for message in missing]

    # Signatures

    def _verify_seals(self, link: int, packet: Packet, spans: tuple[Span, ...], now: int) -> None:
        core = self._core
        if core.statements is None:
            return
        for error in core.statements.verify(packet, spans, core.is_replaying):
            # Members that have seen only this copy rightly accept it, so it is accepted here.
            self.report_equivocation(error, now)
            if link == error.origin:
                raise error

    def report_equivocation(self, error: EquivocationError, now: int) -> None:
        """Remember the proof permanently."""
        if error.origin not in self._core.equivocators:
            self._core.step(Equivocated(error.origin, list(error.statements), now))

    def on_equivocated(self, event: Equivocated) -> None:
        self._core.log(event)
        self._core.equivocators[event.origin] = event.statements

    def on_certificate(self, event: CertificateLearned) -> None:
        core = self._core
        if core.signatures is None:
            return
        if core.signatures.learn(event.certificate, trusted=core.is_replaying):
            core.log(event)
