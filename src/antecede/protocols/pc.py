"""PC-broadcast: flooding (see `flooding`) on links that open and close during a run, and with newcomers.

Paper 002 floods an overlay that only loses links, and calls more than that an open problem. Nédelec, Molli
and Mostéfaoui (2018) solve it: a new link is not used before it is *safe*. The link x → y is safe if
everything that x has delivered has arrived at y, or is on that link ahead of whatever x sends from now on.
Over safe FIFO links causes travel ahead of their effects, so nothing is held back, and a message carries
nothing but its identity.

When x opens a link to y, it buffers for y what it delivers from now on, and floods a ping over its safe
links. A member that receives this ping for the first time forwards it over its own safe links. On each of
them the ping travels behind everything that x had delivered when it sent the ping; that is the meaning of
safe. So when the ping arrives at y, all of that has arrived too. y replies with a pong over the new link; x
sends the buffer over it, and the link is safe. A link counts from its opening: a ping sent before it closed
proves nothing after it is open again. The two directions are independent. As long as x has delivered nothing,
its links are safe from the start.

Differences from the printed version:
- A pong counts only if its ping was sent since the buffer was started. A buffer that exceeds its bound is
  discarded, started anew and followed by another ping; the pong of an earlier ping says nothing of what was
  discarded.
- A ping may be lost with a link that closes, so x repeats it after a timeout. The buffer stays: a later ping
  proves everything that an earlier one does, so the pong of either will do, however slow the links are.
- The guard "more than one neighbour" reads "has delivered something".
- A newcomer sends a hello on its first link, and its contact replies with a snapshot of what it has
  received: the messages that the newcomer will never get. Both directions are safe from there. Without it,
  a message that the contact had before would arrive by another link after its effects. What arrives before
  the snapshot is buffered and received after it; then the newcomer sends pings for links that were opened
  before.
- A lost ping leaves a permanent gap in its source's numbers, so only the most recent ones are remembered.
  An older ping is not forwarded, and its source repeats it.

Links must be reliable and FIFO; what is in flight on a link that closes is lost. A member must retain a
safe link over which its pings can travel: a leaf opens its new link before it closes the old one, and a
member that has lost all links must rejoin as a newcomer, with a rank that nobody had.

A message costs what it does in flooding: nearly every link, some twice; time O(log n) a delivery. Opening a
link costs a ping over every safe link (about n log2 n packets of 4 to 12 bytes on a hypercube), a pong, and
at most a second copy of what is delivered in one trip through the group. Memory O(n), and up to
`max_buffered` messages for each link that is not safe yet; a snapshot is O(n) bytes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, ClassVar, Self

import msgspec

from antecede.causality import BitWindow, MessageId
from antecede.overlay.shapes import SHAPES
from antecede.protocols.base import (
    NO_EFFECTS,
    Effects,
    Layout,
    LocalError,
    Packet,
    RemoteError,
    Send,
    Waiting,
)
from antecede.protocols.flooding import Flooding, FloodPacket
from antecede.protocols.limits import MAX_BUFFERED_MESSAGES, MAX_RECENT_PINGS, PONG_TIMEOUT


class Ping(Packet, frozen=True, array_like=True, tag=11):
    """Ping `number` of `source`: has everything sent before it arrived at `target`?"""

    source: int
    target: int
    number: int


class Pong(Packet, frozen=True, array_like=True, tag=12):
    """The reply to the ping with this number: it has."""

    number: int


class Hello(Packet, frozen=True, array_like=True, tag=13):
    """A newcomer asks its contact for a snapshot."""


class Snapshot(Packet, frozen=True, array_like=True, tag=14):
    """What the sender has received from each origin, including its own messages, as encoded `BitWindow`s."""

    received: dict[int, bytes]


EarlyPacket = FloodPacket | Ping | Pong | Hello
"""Packets that may reach a newcomer before its snapshot."""


class OverlayLayout(Layout, frozen=True, forbid_unknown_fields=True):
    """The links that are open from the start."""

    overlay: str = "hypercube"

    @classmethod
    def default(cls, size: int) -> Self:
        return cls()

    @classmethod
    def random(cls, size: int, pick: Callable[[int], int]) -> Self:
        return cls(list(SHAPES)[pick(len(SHAPES))])

    def validate(self, size: int) -> None:
        if self.overlay not in SHAPES:
            raise LocalError(f"overlay: there is no '{self.overlay}'; there are {', '.join(SHAPES)}")

    def sites(self, size: int) -> list[int]:
        """Each member is at a site of its own."""
        return list(range(size))

    def neighbours(self, size: int) -> list[tuple[int, ...]]:
        """The neighbours of each of `size` members.

        >>> OverlayLayout("line").neighbours(3), OverlayLayout("ring").neighbours(2)
        ([(1,), (0, 2), (1,)], [(1,), (0,)])
        >>> OverlayLayout("star").neighbours(3)
        [(1, 2), (0,), (0,)]
        """
        self.validate(size)
        return SHAPES[self.overlay](size)


class UnsafeLink(msgspec.Struct):
    """An open link that is not safe yet."""

    first_ping: int
    """The first ping sent since the buffer was started."""
    ping_due: int
    """When to repeat the ping."""
    buffer: list[FloodPacket] = msgspec.field(default_factory=list)


class Pc(Flooding):
    name: ClassVar[str] = "pc"
    kernel: ClassVar[str] = "pc"
    summary: ClassVar[str] = "its identity; FIFO links that open and close preserve the order"
    control: ClassVar[str] = "none; a ping over every link and a pong when a link opens"
    packets: ClassVar[Any] = FloodPacket | Ping | Pong | Hello | Snapshot
    buffering: ClassVar[str] = "never; copies for a new link are buffered until it is safe"
    membership: ClassVar[str] = "links open and close, newcomers join"
    layout: ClassVar[Any] = OverlayLayout
    dynamic_links: ClassVar[bool] = True

    max_buffered: ClassVar[int] = MAX_BUFFERED_MESSAGES
    """The most messages buffered for one link, or by a newcomer, before it is safe."""
    pong_timeout: ClassVar[int] = PONG_TIMEOUT
    """How long to wait for a pong before the ping is repeated, in nanoseconds."""
    max_recent_pings: ClassVar[int] = MAX_RECENT_PINGS
    """How many of a source's latest pings are remembered."""

    # `neighbours` are the safe links: at the start all that are open, because nothing was delivered.
    unsafe_links: dict[int, UnsafeLink] = msgspec.field(default_factory=dict)
    pings_sent: int = 0
    pings_received: dict[int, BitWindow] = msgspec.field(default_factory=dict)
    is_wake_pending: bool = False
    is_joining: bool = False
    contact: int | None = None
    early: list[tuple[int, EarlyPacket]] = msgspec.field(default_factory=list)
    """What a newcomer received before its snapshot, with the link."""

    @classmethod
    def with_layout(cls, size: int, layout: OverlayLayout) -> list[Self]:
        return cls.on_overlay(layout.neighbours(size))

    @classmethod
    def newcomer(cls, me: int, size: int) -> Self:
        """A member without links, which joins a running group over the first link that is opened to it.

        Nobody may have sent anything as `me` before.
        """
        return cls(me, size, (), is_joining=True)

    def broadcast(self, payload: bytes, now: int, group: str | None = None) -> Effects:
        if self.is_joining:
            raise LocalError("a newcomer cannot broadcast before it has its contact's snapshot")
        self.sent += 1
        packet = FloodPacket(payload, self.me, self.sent)
        sends = self._send_over_safe_links(packet, self.me)
        pings = self._buffer_for_unsafe_links(packet, self.me, now)
        return Effects(sends + pings, message=MessageId(self.me, self.sent))

    def receive(self, link: int, packet: Packet, now: int) -> Effects:
        if isinstance(packet, Snapshot):
            return self._receive_snapshot(link, packet, now)
        if self.is_joining:
            return self._receive_early(link, packet)
        if isinstance(packet, Ping):
            return self._receive_ping(link, packet)
        if isinstance(packet, Pong):
            return self._receive_pong(link, packet)
        if isinstance(packet, Hello):
            return self._receive_hello(link)
        ready = len(self.ready)
        effects = super().receive(link, packet, now)
        if len(self.ready) == ready:
            return effects
        # The ping for a restarted buffer must travel behind the message: hence this order.
        return Effects(effects.sends + self._buffer_for_unsafe_links(self.ready[-1], link, now))

    def _send_over_safe_links(self, packet: Packet, but: int) -> tuple[Send, ...]:
        to = tuple(peer for peer in self.neighbours if peer != but)
        return (Send(to, packet),) if to else ()

    # Opening a link.

    def link_opened(self, link: int, now: int) -> Effects:
        if link == self.me or not 0 <= link < self.size or self._is_open(link):
            raise LocalError(f"no link from peer {self.me} to {link} can be opened now")
        if not (self.is_joining or self.sent or self.received):
            self.neighbours += (link,)
            return NO_EFFECTS
        sends = self._start_buffer(link, now) + self._send_hello()
        if self.is_wake_pending:
            return Effects(sends)
        self.is_wake_pending = True
        return Effects(sends, wake_at=now + self.pong_timeout)

    def _is_open(self, link: int) -> bool:
        return link in self.neighbours or link in self.unsafe_links

    def _start_buffer(self, link: int, now: int) -> tuple[Send, ...]:
        """Buffer for a link from now on, and ask whether everything before has arrived."""
        self.unsafe_links[link] = UnsafeLink(self.pings_sent + 1, now + self.pong_timeout)
        return self._send_ping(link)

    def _buffer_for_unsafe_links(self, packet: FloodPacket, source: int, now: int) -> tuple[Send, ...]:
        """Buffer a message for the links that are not safe yet, except the one that it came from."""
        pings: tuple[Send, ...] = ()
        for link, unsafe in self.unsafe_links.items():
            if link != source:
                unsafe.buffer.append(packet)
                if len(unsafe.buffer) > self.max_buffered:
                    pings += self._start_buffer(link, now)
        return pings

    def _send_ping(self, link: int) -> tuple[Send, ...]:
        self.pings_sent += 1
        return self._send_over_safe_links(Ping(self.me, link, self.pings_sent), self.me)

    def _receive_ping(self, link: int, ping: Ping) -> Effects:
        peers = range(self.size)
        if ping.source not in peers or ping.target not in peers or ping.number < 1:
            raise RemoteError(f"not a ping between two of the {self.size} peers")
        if ping.source == self.me:
            if ping.number > self.pings_sent:
                raise RemoteError("a ping of this peer that it has not sent")
            return NO_EFFECTS
        if not self._is_new(ping):
            return NO_EFFECTS
        if ping.target != self.me:
            return Effects(self._send_over_safe_links(ping, link))
        if not self._is_open(ping.source):
            return NO_EFFECTS  # Closed in the meantime.
        return Effects((Send((ping.source,), Pong(ping.number)),))

    def _is_new(self, ping: Ping) -> bool:
        received = self.pings_received.get(ping.source, BitWindow())
        base = max(received.base, ping.number - self.max_recent_pings)
        recent = BitWindow(base, received.bits >> base - received.base)
        self.pings_received[ping.source] = recent
        return recent.add(ping.number)

    def _receive_pong(self, link: int, pong: Pong) -> Effects:
        if not 1 <= pong.number <= self.pings_sent:
            raise RemoteError("a pong for a ping that was not sent")
        if link not in self.unsafe_links or pong.number < self.unsafe_links[link].first_ping:
            return NO_EFFECTS  # Safe already, or for an earlier buffer.
        return Effects(tuple(Send((link,), packet) for packet in self._mark_safe(link)))

    def _mark_safe(self, link: int) -> list[FloodPacket]:
        """The link is safe from now on. Returns the packets buffered for it."""
        self.neighbours += (link,)
        return self.unsafe_links.pop(link).buffer

    def wake(self, now: int) -> Effects:
        """Repeat the pings without a pong in time; one pending wake-up serves all links."""
        sends: tuple[Send, ...] = ()
        for link, unsafe in self.unsafe_links.items():
            if unsafe.ping_due <= now:
                unsafe.ping_due = now + self.pong_timeout
                sends += self._send_ping(link)
        self.is_wake_pending = bool(self.unsafe_links)
        return Effects(
            sends, wake_at=min((link.ping_due for link in self.unsafe_links.values()), default=None)
        )

    def link_closed(self, link: int, now: int) -> Effects:
        if not self._is_open(link):
            raise LocalError(f"no link from peer {self.me} to {link} is open")
        self.neighbours = tuple(peer for peer in self.neighbours if peer != link)
        self.unsafe_links.pop(link, None)
        if self.contact == link:
            self.contact = None
        return Effects(self._send_hello())

    # Newcomers.

    def _send_hello(self) -> tuple[Send, ...]:
        """A newcomer without a contact chooses the first open link."""
        if not self.is_joining or self.contact is not None or not self.unsafe_links:
            return ()
        self.contact = next(iter(self.unsafe_links))
        return (Send((self.contact,), Hello()),)

    def _receive_hello(self, link: int) -> Effects:
        if not self._is_open(link):
            raise RemoteError("a newcomer's hello over a link that is not open")
        if link in self.unsafe_links:
            self._mark_safe(link)  # The snapshot contains what was buffered.
        received = {origin: window.to_bytes() for origin, window in self.received.items()}
        if self.sent:
            received[self.me] = BitWindow(self.sent).to_bytes()
        return Effects((Send((link,), Snapshot(received)),))

    def _receive_early(self, link: int, packet: Packet) -> Effects:
        """Buffer what a newcomer receives from peers whose link to it is safe before it has its snapshot."""
        if not isinstance(packet, EarlyPacket):
            raise RemoteError(f"{self.name} has no packets of type {type(packet).__name__}")
        if len(self.early) >= self.max_buffered:
            raise RemoteError("too many packets before the snapshot")
        self.early.append((link, packet))
        return NO_EFFECTS

    def _receive_snapshot(self, link: int, snapshot: Snapshot, now: int) -> Effects:
        if link != self.contact:
            raise RemoteError("a snapshot that was not asked for")
        self.received = self._decode_snapshot(snapshot)
        self.is_joining, self.contact = False, None
        self._mark_safe(link)  # The contact has everything in its own snapshot.
        sends = [send for unsafe in self.unsafe_links for send in self._send_ping(unsafe)]
        early, self.early = self.early, []
        for source, packet in early:
            with contextlib.suppress(RemoteError):  # The contact is not to blame.
                sends += self.receive(source, packet, now).sends
        return Effects(tuple(sends))

    def _decode_snapshot(self, snapshot: Snapshot) -> dict[int, BitWindow]:
        if not snapshot.received.keys() <= set(range(self.size)) - {self.me}:
            raise RemoteError("a snapshot with messages that nobody can have sent")
        try:
            return {origin: BitWindow.from_bytes(data) for origin, data in snapshot.received.items()}
        except ValueError as error:
            raise RemoteError(f"a snapshot is damaged: {error}") from error

    def waiting(self) -> list[Waiting]:
        """What a newcomer received before its snapshot; otherwise nothing is ever held."""
        return [Waiting(message, None) for _, packet in self.early for message in packet.message_ids()]
