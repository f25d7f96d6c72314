"""The links of a live member without I/O: which frames to send, and what arriving frames mean.

A link outlives its connections. Packets are numbered; the receiver acknowledges those that it has made
durable; a new connection resumes where the receiver was. To the protocol, a broken connection, or a partner
that was killed and came back with its store, is merely a slow link.

`connections.py` moves the frames of a `PartnerLink` over sockets, and a simulation moves them through its own
network. Times are seconds of a monotonic clock; `now` in nanoseconds is the core's.

The work that a partner can cause here is bounded. Replies to repair requests are sent one at a time, composed
when the connection can take them, after a pause that grows with the work of the last reply. The number of
packets in a frame is limited, and a repair is accepted only from the partner that was asked. Packets of an
origin that exceeds its quota are dropped, and the partner is paused until there is room. All other frames
still pass, so a paused link can supply what the messages wait for. Evidence is sent only where it is
relevant, and a limited number of a partner's statements per second is verified.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from antecede.live.core import Core
from antecede.live.events import (
    AckReceived,
    CertificateLearned,
    Life,
    PacketReceived,
    ProgressReceived,
    RepairReceived,
)
from antecede.live.repair import REPEAT_PAUSE
from antecede.live.seals import EquivocationError
from antecede.live.stability import Divergence, OverQuotaError
from antecede.live.transport.frames import (
    Ack,
    Certificates,
    Evidence,
    Frame,
    Greeting,
    Heartbeat,
    Nack,
    Packets,
    Pause,
    Progress,
    Refusal,
    RefusedError,
    RepairReply,
    RepairRequest,
)
from antecede.live.transport.outbox import ForkError
from antecede.live.versions import greatest_shared
from antecede.protocols.base import RemoteError, Span

MAX_CERTIFICATES_EACH = 16
HEARTBEAT_SECONDS = 3.0
SILENCE_SECONDS = 12.0
"""A partner that is silent for this long is considered lost, unless the driver sets another time-out."""
RESEND_SECONDS = 2.0
"""Packets that are not acknowledged within this time are sent again."""
_FRAME_BYTES = 1 << 16
MAX_FRAME_PACKETS = 4_096
_REPLY_PAUSE_SECONDS = 0.005
_REPLY_BYTES_PER_SECOND = 10e6
_REPLY_MESSAGES_PER_SECOND = 100e3
_MAX_OUTSTANDING = 4
"""How many repair requests to one partner may be outstanding."""
_REPORTS_EACH_TURN, _LONGEST_REST = 400, 5
"""Above this many reports of all to all, a partner receives one in every second turn, down to every fifth."""
_EVIDENCE_PER_SECOND, _EVIDENCE_AT_ONCE = 50.0, 512.0
"""How many statements, or equivalent work, are verified per second for one partner; further evidence is
ignored."""


class PartnerLink:
    """One partner, connected or not."""

    def __init__(self, core: Core, peer: int, counts: Counter[str]) -> None:
        self.peer, self._core, self._counts = peer, core, counts
        self._box = core.outboxes[peer]
        self.is_open = False
        self._by_lesser_name = False
        """Whether the side with the lesser name has called."""
        self.version = 0
        """The wire version that this connection uses (`live/versions.py`)."""
        self._life: Life | None = None
        """The life from which the partner has greeted."""
        self.sent_at = self.heard_at = 0.0
        self.heartbeat_seconds, self.silence_seconds = HEARTBEAT_SECONDS, SILENCE_SECONDS
        self._reset(0, 0.0)
        self._may_reply_at = float("-inf")
        self.shows_certificates = True
        """Whether the partner verifies signatures; phones of dynamic groups do not."""
        self.ack_seconds = 0.0
        """The minimum interval between two acks, far less than the one after which packets are sent again."""
        self._evidence_room, self._evidence_at = _EVIDENCE_AT_ONCE, 0.0
        self._handlers: dict[type, Callable[[Any, float, int], None]] = {
            Packets: self._on_packets,
            Ack: self._on_ack,
            Nack: self._on_nack,
            Pause: self._on_pause,
            Progress: self._on_progress,
            RepairRequest: self._on_repair_request,
            RepairReply: self._on_repair_reply,
            Refusal: self._on_refusal,
            Heartbeat: self._on_heartbeat,
            Certificates: self._on_certificates,
            Evidence: self._on_evidence,
        }

    def take(self, kind: type, handler: Callable[[Any, float, int], None]) -> None:
        """Accept frames of another kind, which are refused otherwise."""
        self._handlers[kind] = handler

    def _reset(self, sent: int, now: float) -> None:
        self._sent, self._moved_at = sent, now
        self._acked_before = self._box.acked
        self._ack_sent, self._ack_sent_at = 0, float("-inf")
        self._resend_after: int | None = None
        self._control: list[Frame] = []
        self._lacks = False
        """Whether packets were lost on the way: a `Nack` is due."""
        self.full_of: int | None = None
        """An origin that exceeds its quota here: until there is room, no packets are accepted."""
        self.full_since = now
        self._is_paused = False
        """Whether the partner accepts no packets."""
        self.reported: dict[int, list[int]] = {}
        """The matrix clock as last reported to this partner."""
        self._requests: dict[int, list[Span]] = {}
        """By the number of the request, the messages that were requested from the partner."""
        self._last_request = 0
        self.asked_at = 0
        """When missing causes were last requested from it, by the core's clock."""
        self.shown: dict[int, Divergence] = {}
        """By origin, where this partner differs and was sent what the origin has signed."""
        self.proven: set[int] = set()
        """Origins whose proof of equivocation was sent."""
        self._requested: RepairRequest | None = None
        """The partner's pending repair request."""
        self._unanswered_since: float | None = None

    def silence_after_packets(self, now: float) -> float:
        """For how many seconds nothing was received, although packets await acknowledgement."""
        return 0.0 if self._unanswered_since is None else now - self._unanswered_since

    def is_replaced_by(self, greeting: Greeting, by_lesser_name: bool) -> bool:
        """Whether a new connection replaces the one that is open.

        If both sides have called each other at once, both keep the call by the lesser name. But a later life
        of the partner is always served: its earlier one has ended, or runs on a copy of the store and learns
        of this when it calls again.
        """
        return by_lesser_name or not self._by_lesser_name or greeting.lineage[-1] != self._life

    def open(self, greeting: Greeting, now: float, by_lesser_name: bool = True) -> None:
        """A connection is established: the partner's greeting was accepted, and says where to resume."""
        self._by_lesser_name, self._life = by_lesser_name, greeting.lineage[-1]
        self.version = greatest_shared(self._core.wire_versions, greeting.spoken) or 0
        received = max(greeting.received, self._box.acked)
        if greeting.received == received:
            self._core.step(AckReceived(self.peer, received, greeting.chain))
        self._reset(received, now)
        self.is_open = True
        self._core.stability.connected.add(self.peer)
        self._certified = 0
        self.sent_at = self.heard_at = now

    def close(self) -> None:
        self.is_open = False
        self._core.stability.connected.discard(self.peer)

    # Sending

    def send(self, frame: Frame) -> None:
        """Send a frame other than packets and acks."""
        self._control.append(frame)

    def ask(self, spans: list[Span]) -> None:
        """Request missing messages from the partner."""
        if len(self._requests) == _MAX_OUTSTANDING:
            del self._requests[min(self._requests)]
        self._last_request += 1
        self._requests[self._last_request] = spans
        self.send(RepairRequest(self._last_request, spans))

    @property
    def awaits_reply(self) -> bool:
        return bool(self._requests)

    def take_frames(self, now: float) -> list[Frame]:
        """The frames to send next; empty if there are none."""
        core, box = self._core, self._box
        frames, self._control = self._new_certificates() + self._control, []
        if self.full_of is not None and core.stability.has_room_again(self.full_of):
            self.full_of, self._lacks = None, True
        if self._lacks:
            self._lacks = False
            frames.append(Nack(core.received[self.peer]))
        durable = core.durably_received[self.peer]
        if durable > self._ack_sent and now - self._ack_sent_at >= self.ack_seconds:
            self._ack_sent, self._ack_sent_at = durable, now
            frames.append(Ack(durable, core.durable_chain[self.peer]))
        if self._requested is not None and now >= self._may_reply_at:
            frames.append(self._reply(self._requested, now))
            self._requested = None
        self._rewind(now)
        if box.last > self._sent and not self._is_paused:
            bodies = box.after(self._sent, _FRAME_BYTES, MAX_FRAME_PACKETS)
            frames.append(Packets(self._sent + 1, bodies, box.chain[self._sent]))
            self._counts["packets"] += len(bodies)
            self._sent += len(bodies)
            self._unanswered_since = now if self._unanswered_since is None else self._unanswered_since
        if frames:
            self.sent_at = now
        return frames

    def _reply(self, request: RepairRequest, now: float) -> RepairReply:
        bodies = self._core.repair.reply(request.spans)
        size = sum(map(len, bodies)) / _REPLY_BYTES_PER_SECOND
        work = sum(last - first + 1 for _, first, last in request.spans) / _REPLY_MESSAGES_PER_SECOND
        self._may_reply_at = now + max(_REPLY_PAUSE_SECONDS, size, work)
        return RepairReply(request.number, bodies)

    @property
    def _has_certificates(self) -> bool:
        signatures = self._core.signatures
        return signatures is not None and len(signatures.certificates) != self._certified

    def _new_certificates(self) -> list[Frame]:
        """Certificates that the partner may not know: they precede the messages signed with them."""
        signatures = self._core.signatures
        if signatures is None or not self._has_certificates:
            return []
        new, self._certified = signatures.certificates[self._certified :], len(signatures.certificates)
        return [Certificates(list(filter(None, new)))] if self.shows_certificates else []

    def _rewind(self, now: float) -> None:
        """Go back to lost packets: the partner has requested them, or has not acknowledged any for a
        while."""
        box = self._box
        if self._resend_after is not None:
            self._counts["resent"] += max(0, self._sent - self._resend_after)
            self._sent, self._resend_after = min(self._sent, self._resend_after), None
        if box.acked > self._acked_before or self._sent <= box.acked or self._is_paused:
            self._acked_before, self._moved_at = box.acked, now
        elif now - self._moved_at > RESEND_SECONDS:
            self._counts["resent"] += self._sent - box.acked
            self._sent, self._moved_at = box.acked, now
        self._sent = max(self._sent, box.acked)

    def tick(self, now: float) -> str | None:
        """Called periodically: send a heartbeat if nothing else was sent; returns why the connection must
        end, if it must."""
        if self.peer in self._core.equivocators:
            return "it has signed different messages under the same ids"
        if now - self.heard_at > self.silence_seconds:
            return "it was silent for too long"
        if now - self.sent_at > self.heartbeat_seconds:
            self.send(Heartbeat())
        return None

    @property
    def has_unacked(self) -> bool:
        """Whether packets, or a reply to a repair request, may have to be sent without further notice."""
        return bool(self._box.packets) or self._requested is not None

    @property
    def has_work(self) -> bool:
        """Whether there may be frames to send now that time has passed."""
        owes_ack = self._core.durably_received[self.peer] > self._ack_sent
        is_amiss = self._lacks or self.full_of is not None
        return bool(self._control) or owes_ack or is_amiss or self.has_unacked or self._has_certificates

    # Receiving

    def hear(self, now: float) -> None:
        """Something has arrived."""
        self.heard_at, self._unanswered_since = now, None

    def receive(self, frame: Frame, now: float, time: int) -> None:
        """A frame has arrived; `time` is the core's. A `RemoteError` ends the connection."""
        self.hear(now)
        if self.peer in self._core.equivocators:
            raise RemoteError("it has signed different messages under the same ids")
        handler = self._handlers.get(type(frame))
        if handler is None:
            raise RemoteError(f"it sends a {type(frame).__name__} after the handshake")
        handler(frame, now, time)

    def _on_packets(self, frame: Packets, now: float, time: int) -> None:
        core, peer = self._core, self.peer
        if len(frame.bodies) > MAX_FRAME_PACKETS:
            raise RemoteError(f"a frame of {len(frame.bodies)} packets; {MAX_FRAME_PACKETS} at most")
        if self.full_of is not None:
            return  # they were sent before the partner received the pause
        received = core.received[peer]
        if frame.first > received + 1:
            self._lacks = True
            return
        if frame.first == received + 1 and frame.previous != core.received_chain[peer]:
            raise ForkError(
                f"its packets up to {received} are not those that it sent before: "
                "one of the two has an older store than before; restore the latest one"
            )
        for number, body in enumerate(frame.bodies, frame.first):
            try:
                core.step(PacketReceived(peer, number, body, time))
            except OverQuotaError as error:
                self.full_of, self.full_since = error.origin, now
                self.send(Pause())
                return

    def _on_ack(self, frame: Ack, now: float, time: int) -> None:
        self._core.step(AckReceived(self.peer, frame.number, frame.chain))

    def _on_pause(self, frame: Pause, now: float, time: int) -> None:
        self._is_paused = True

    def _on_nack(self, frame: Nack, now: float, time: int) -> None:
        self._is_paused = False
        if not self._box.acked <= frame.number:
            return  # an ack has overtaken it
        if frame.number > self._box.last:
            raise RemoteError(f"it has packet {frame.number}, and only {self._box.last} were sent")
        self._resend_after = frame.number

    def _on_progress(self, frame: Progress, now: float, time: int) -> None:
        self._core.step(ProgressReceived(self.peer, frame.rows))

    def _on_repair_request(self, frame: RepairRequest, now: float, time: int) -> None:
        self._core.repair.validate(frame.spans)
        self._requested = frame  # it repeats everything that is still missing, so only the latest is answered

    def _on_repair_reply(self, frame: RepairReply, now: float, time: int) -> None:
        if frame.number > self._last_request:
            raise RemoteError("it sends a repair that nobody has asked for")
        wanted = self._requests.pop(frame.number, None)
        if wanted is None:
            return  # too late: others were asked since
        if len(frame.bodies) > MAX_FRAME_PACKETS:
            raise RemoteError(f"a repair of {len(frame.bodies)} packets; {MAX_FRAME_PACKETS} at most")
        for body in frame.bodies:
            self._core.step(RepairReceived(self.peer, body, time, wanted))

    def _on_certificates(self, frame: Certificates, now: float, time: int) -> None:
        # A few per member: they are renewed, and earlier signatures must still be verified.
        if len(frame.certificates) > MAX_CERTIFICATES_EACH * self._core.size:
            raise RemoteError(f"{len(frame.certificates)} certificates for {self._core.size} members")
        if self._core.signatures is not None:
            self._core.signatures.check_partner(self.peer, frame.certificates)
        for certificate in frame.certificates:
            # Ignore one that is invalid here, such as an old one in the partner's store.
            with contextlib.suppress(RemoteError):
                self._core.step(CertificateLearned(certificate, time))

    def _on_evidence(self, frame: Evidence, now: float, time: int) -> None:
        core = self._core
        if core.statements is None or not 0 <= frame.origin < core.size:
            raise RemoteError("it sends evidence that nobody can verify")
        room = self._evidence_room + max(0.0, now - self._evidence_at) * _EVIDENCE_PER_SECOND
        self._evidence_room, self._evidence_at = min(room, _EVIDENCE_AT_ONCE), now
        if len(frame.statements) > self._evidence_room:
            return
        try:
            # Packets that are read for comparison count as well, so the budget may become negative.
            self._evidence_room -= core.statements.examine(frame.origin, frame.statements)
        except EquivocationError as error:
            core.receiver.report_equivocation(error, time)

    def _on_heartbeat(self, frame: Heartbeat, now: float, time: int) -> None:
        """Nothing to do: its arrival was recorded."""

    def _on_refusal(self, frame: Refusal, now: float, time: int) -> None:
        # The caller greets first, so it is the last to detect a mismatch.
        raise RefusedError(frame.reason)


class Links:
    """All links of one member."""

    def __init__(self, core: Core, counts: Counter[str]) -> None:
        self._core = core
        self.by_peer = {peer: PartnerLink(core, peer, counts) for peer in core.partners}
        self._turn = 0

    def open_links(self) -> Iterable[PartnerLink]:
        return [link for link in self.by_peer.values() if link.is_open]

    def report(self, link: PartnerLink) -> None:
        """Report changes in the matrix clock to a partner."""
        if rows := self._core.stability.changes_since(link.peer, link.reported, self._turn):
            link.send(Progress(rows))

    def ask_for_held(self, link: PartnerLink, now: int) -> list[Span]:
        """Something has arrived from a partner: request the missing causes of its messages from it at once,
        if they cannot arrive otherwise because their origin is not connected. Returns what was requested."""
        closed = {peer for peer, each in self.by_peer.items() if not each.is_open}
        if not closed or (link.awaits_reply and now - link.asked_at < REPEAT_PAUSE):
            return []
        spans = self._core.repair.request_held(self._core.last_awaited, now, link.peer, closed)
        if spans:
            link.ask(spans)
            link.asked_at = now
        return spans

    def gossip(self, now: int, patience: int) -> tuple[int, list[Span]] | None:
        """Report progress to all partners, and request messages that have been missing for `patience` from
        one of them. Returns that partner and the request."""
        core = self._core
        core.repair.skip_stable(core.protocol, core.outboxes.values())
        self._turn += 1
        rest = min(_LONGEST_REST, max(1, core.size * core.size // _REPORTS_EACH_TURN))
        for link in self.open_links():
            if (link.peer + self._turn) % rest == 0:
                self.report(link)
        self._show_evidence()
        request = core.repair.request(now, patience, [link.peer for link in self.open_links()])
        if request is not None:
            helper, spans = request
            self.by_peer[helper].ask(spans)
        return request

    def _show_evidence(self) -> None:
        """Send what an origin has signed to partners that have something else of it, and proof of its
        equivocation to all.

        If two members that differ are not connected, some two connected members on the path between them
        differ, and do so.
        """
        core = self._core
        if core.statements is None:
            return
        for (member, origin), divergence in core.stability.divergences.items():
            link = self.by_peer.get(member)
            if link is None or not link.is_open or origin in core.equivocators:
                continue
            before = link.shown.get(origin)
            if divergence != before:
                link.shown[origin] = divergence
                statements = core.statements.evidence(divergence, is_first=before is None)
                if statements:
                    link.send(Evidence(origin, statements))
        for link in self.open_links():
            for origin in core.equivocators.keys() - link.proven:
                link.proven.add(origin)
                link.send(Evidence(origin, core.equivocators[origin]))
