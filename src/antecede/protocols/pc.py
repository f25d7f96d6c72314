"""PC-broadcast: flooding (see `flooding`) for links that open and close in mid-run, and for newcomers.

Paper 002 floods an overlay that only ever loses links and calls more than that an open problem. Nédelec,
Molli and Mostéfaoui (2018) solve it: a new link is not used before it is *safe*. The link x → y is safe if
whatever x has delivered has come to y, or lies ahead on that link of whatever x sends from now on. Over safe
FIFO links causes travel ahead of their effects, so nothing is held back and a message carries nothing but
its identity.

x opens a link to y: it keeps what it delivers from now on in a buffer for y, and floods a ping over its safe
links. Whoever sees that ping for the first time passes it on over its own safe links. On each of them the
ping runs behind all that x had delivered when it sent it, because that is what safe means; so when the ping
comes to y, so has all of that. y answers with a pong over the new link; x sends the buffer over it, and the
link is safe. A link counts from its opening: what was asked before it closed proves nothing once it is open
again. Each direction stands for itself. While x has delivered nothing, its links are safe from the start.

What differs from the printed version, and why:
- A pong counts only if its ping was sent since the buffer was begun. A buffer that outgrows its bound is
  begun anew and asks again; the pong of the ping before that says nothing of what was thrown away.
- A ping may be lost with a link that closes, so after a while x asks again. The buffer stays: a later ping
  proves all that an earlier one does, so the pong of either will do, however slow the links are.
- The guard "more than one neighbour" reads "has delivered something".
- A newcomer says hello on its first link, and its contact answers with a snapshot of what it has received:
  what the newcomer is never going to get. Both directions are safe from there. Without it, a message that
  the contact had before would come by another link after its effects. What comes before the snapshot is
  kept and taken after it; for the links that were opened before it, the newcomer asks then.
- A ping that was lost leaves a gap in its source's numbers for ever, so of those only the most recent are
  remembered; one that is older is not passed on, and its source asks again.

Links must be reliable and FIFO; what is under way on a link that closes is lost. A member must be left with
a safe link by which its pings can travel: a leaf makes its new link before it breaks the old one, and a
member that has lost all links must come back as a newcomer, under a rank that nobody had.

A message costs what it does in flooding: nearly every link, some twice; time O(log n) a delivery. Opening a
link costs a ping over every safe link (about n log2 n packets of 4 to 12 bytes on a hypercube), a pong, and
what is delivered in one journey through the group, sent once more at most. Memory O(n), and for each link
that is not safe yet up to `most_buffered` messages; a snapshot is O(n) bytes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, Self

import msgspec

from antecede.causality import BitWindow, MessageId
from antecede.overlay.hypercube import hypercube
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
    """The `number`-th question of `source`: has what came before this come to `target`?"""

    source: int
    target: int
    number: int


class Pong(Packet, frozen=True, array_like=True, tag=12):
    """It has, for the ping of this number."""

    number: int


class Hello(Packet, frozen=True, array_like=True, tag=13):
    """A newcomer asks its contact for a snapshot."""


class Snapshot(Packet, frozen=True, array_like=True, tag=14):
    """What the sender has received from each origin, its own messages included, as `BitWindow`s."""

    received: dict[int, bytes]


EarlyPacket = FloodPacket | Ping | Pong | Hello
"""What may come to a newcomer before its snapshot does."""


def _joined(size: int, pairs: Iterable[tuple[int, int]]) -> list[tuple[int, ...]]:
    neighbours: list[set[int]] = [set() for _ in range(size)]
    for one, other in pairs:
        if one != other:
            neighbours[one].add(other)
            neighbours[other].add(one)
    return [tuple(sorted(those)) for those in neighbours]


_SHAPES: dict[str, Callable[[int], list[tuple[int, ...]]]] = {
    "hypercube": hypercube,
    "ring": lambda size: _joined(size, ((peer, (peer + 1) % size) for peer in range(size))),
    "line": lambda size: _joined(size, ((peer - 1, peer) for peer in range(1, size))),
    "star": lambda size: _joined(size, ((0, peer) for peer in range(1, size))),
}


class OverlayLayout(Layout, frozen=True, forbid_unknown_fields=True):
    """The links that are open from the start."""

    overlay: str = "hypercube"

    @classmethod
    def default(cls, size: int) -> Self:
        return cls()

    @classmethod
    def random(cls, size: int, pick: Callable[[int], int]) -> Self:
        return cls(list(_SHAPES)[pick(len(_SHAPES))])

    def validate(self, size: int) -> None:
        if self.overlay not in _SHAPES:
            raise LocalError(f"overlay: there is no '{self.overlay}'; there are {', '.join(_SHAPES)}")

    def sites(self, size: int) -> list[int]:
        """Each member is at a site of its own."""
        return list(range(size))

    def joins(self, size: int) -> list[tuple[int, ...]]:
        """The neighbours of each of `size` members.

        >>> OverlayLayout("line").joins(3), OverlayLayout("star").joins(3), OverlayLayout("ring").joins(2)
        ([(1,), (0, 2), (1,)], [(1, 2), (0,), (0,)], [(1,), (0,)])
        """
        self.validate(size)
        return _SHAPES[self.overlay](size)


class UnsafeLink(msgspec.Struct):
    """An open link that is not safe yet."""

    since: int
    """The first ping since the buffer was begun."""
    due: int
    """When to ask again."""
    buffer: list[FloodPacket] = msgspec.field(default_factory=list)


class Pc(Flooding):
    name: ClassVar[str] = "pc"
    kernel: ClassVar[str] = "pc"
    summary: ClassVar[str] = "its identity; FIFO links that come and go keep the order"
    control: ClassVar[str] = "none; a ping over every link and a pong when a link opens"
    packets: ClassVar[Any] = FloodPacket | Ping | Pong | Hello | Snapshot
    buffering: ClassVar[str] = "never; copies for a new link are kept until it is safe"
    membership: ClassVar[str] = "links open and close, newcomers join"
    layout: ClassVar[Any] = OverlayLayout
    dynamic_links: ClassVar[bool] = True

    most_buffered: ClassVar[int] = MAX_BUFFERED_MESSAGES
    """How many messages are kept for one link, or by a newcomer, before it is safe."""
    patience: ClassVar[int] = PONG_TIMEOUT
    """How long to wait for a pong before asking again, in nanoseconds."""
    recent_pings: ClassVar[int] = MAX_RECENT_PINGS
    """How many of a source's last pings are told apart."""

    # `neighbours` are the safe links: at the start all that are open, because nothing was delivered.
    openings: dict[int, UnsafeLink] = msgspec.field(default_factory=dict)
    pings: int = 0
    pinged: dict[int, BitWindow] = msgspec.field(default_factory=dict)
    wake_asked: bool = False
    joining: bool = False
    contact: int | None = None
    early: list[tuple[int, EarlyPacket]] = msgspec.field(default_factory=list)

    @classmethod
    def with_layout(cls, size: int, layout: OverlayLayout) -> list[Self]:
        return cls.on_overlay(layout.joins(size))

    @classmethod
    def newcomer(cls, me: int, size: int) -> Self:
        """A member that starts alone and joins a running group by the first link that is opened for it.

        Nobody may have sent anything as `me` before.
        """
        return cls(me, size, (), joining=True)

    def broadcast(self, payload: bytes, now: int, group: str | None = None) -> Effects:
        if self.joining:
            raise LocalError("a newcomer sends nothing before it has its contact's snapshot")
        self.sent += 1
        packet = FloodPacket(payload, self.me, self.sent)
        sends = self._over_safe_links(packet, self.me) + self._keep(packet, self.me, now)
        return Effects(sends, message=MessageId(self.me, self.sent))

    def receive(self, link: int, packet: Packet, now: int) -> Effects:
        if isinstance(packet, Snapshot):
            return self._join(link, packet, now)
        if self.joining:
            return self._hold(link, packet)
        if isinstance(packet, Ping):
            return self._pass_on(link, packet)
        if isinstance(packet, Pong):
            return self._answered(link, packet)
        if isinstance(packet, Hello):
            return self._welcome(link)
        received = len(self.ready)
        effects = super().receive(link, packet, now)
        if len(self.ready) == received:
            return effects
        # A ping for a buffer that is begun anew must run behind the message: hence in this order.
        return Effects(effects.sends + self._keep(self.ready[-1], link, now))

    def _over_safe_links(self, packet: Packet, but: int) -> tuple[Send, ...]:
        to = tuple(peer for peer in self.neighbours if peer != but)
        return (Send(to, packet),) if to else ()

    def _keep(self, packet: FloodPacket, source: int, now: int) -> tuple[Send, ...]:
        """Buffer a message for the links that are not safe yet, but not for the `source` it came from."""
        pings: tuple[Send, ...] = ()
        for link, opening in self.openings.items():
            if link != source:
                opening.buffer.append(packet)
                if len(opening.buffer) > self.most_buffered:
                    pings += self._begin(link, now)
        return pings

    def _begin(self, link: int, now: int) -> tuple[Send, ...]:
        """Keep what comes from now on, and ask whether all that was before has come."""
        self.openings[link] = UnsafeLink(self.pings + 1, now + self.patience)
        return self._ask(link)

    def _ask(self, link: int) -> tuple[Send, ...]:
        self.pings += 1
        return self._over_safe_links(Ping(self.me, link, self.pings), self.me)

    def _pass_on(self, link: int, ping: Ping) -> Effects:
        peers = range(self.size)
        if ping.source not in peers or ping.target not in peers or ping.number < 1:
            raise RemoteError(f"not a ping between two of the {self.size} peers")
        if ping.source == self.me:
            if ping.number > self.pings:
                raise RemoteError("a ping of this peer that it has not sent")
            return NO_EFFECTS
        if not self._is_new(ping):
            return NO_EFFECTS
        if ping.target != self.me:
            return Effects(self._over_safe_links(ping, link))
        if not self._is_open(ping.source):
            return NO_EFFECTS  # closed in the meantime
        return Effects((Send((ping.source,), Pong(ping.number)),))

    def _is_new(self, ping: Ping) -> bool:
        seen = self.pinged.get(ping.source, BitWindow())
        base = max(seen.base, ping.number - self.recent_pings)
        self.pinged[ping.source] = seen = BitWindow(base, seen.bits >> base - seen.base)
        return seen.add(ping.number)

    def _is_open(self, link: int) -> bool:
        return link in self.neighbours or link in self.openings

    def _answered(self, link: int, pong: Pong) -> Effects:
        if not 1 <= pong.number <= self.pings:
            raise RemoteError("an answer to a ping that was not sent")
        if link not in self.openings or pong.number < self.openings[link].since:
            return NO_EFFECTS  # safe already, or of an earlier buffer
        return Effects(tuple(Send((link,), packet) for packet in self._settle(link)))

    def _settle(self, link: int) -> list[FloodPacket]:
        """The link is safe from now on; what was kept for it."""
        self.neighbours += (link,)
        return self.openings.pop(link).buffer

    def _welcome(self, link: int) -> Effects:
        if not self._is_open(link):
            raise RemoteError("a newcomer says hello over a link that is not open")
        if link in self.openings:
            self._settle(link)  # what was kept is in the snapshot
        received = {origin: window.to_bytes() for origin, window in self.received.items()}
        if self.sent:
            received[self.me] = BitWindow(self.sent).to_bytes()
        return Effects((Send((link,), Snapshot(received)),))

    def _hold(self, link: int, packet: Packet) -> Effects:
        """Keep what comes to a newcomer from those that could use their link to it at once."""
        if not isinstance(packet, EarlyPacket):
            raise RemoteError(f"{self.name} has no packet {type(packet).__name__}")
        if len(self.early) >= self.most_buffered:
            raise RemoteError("too much comes before the snapshot")
        self.early.append((link, packet))
        return NO_EFFECTS

    def _join(self, link: int, snapshot: Snapshot, now: int) -> Effects:
        if link != self.contact:
            raise RemoteError("a snapshot that was not asked for")
        self.received = self._windows(snapshot)
        self.joining, self.contact = False, None
        self._settle(link)  # the contact has all that is in its own snapshot
        sends = [send for opened in self.openings for send in self._ask(opened)]
        early, self.early = self.early, []
        for source, packet in early:
            with contextlib.suppress(RemoteError):  # it is not the contact's fault
                sends += self.receive(source, packet, now).sends
        return Effects(tuple(sends))

    def _windows(self, snapshot: Snapshot) -> dict[int, BitWindow]:
        if not snapshot.received.keys() <= set(range(self.size)) - {self.me}:
            raise RemoteError("a snapshot of messages that nobody can have sent")
        try:
            return {origin: BitWindow.from_bytes(data) for origin, data in snapshot.received.items()}
        except ValueError as error:
            raise RemoteError(f"a snapshot is damaged: {error}") from error

    def link_opened(self, link: int, now: int) -> Effects:
        if link == self.me or not 0 <= link < self.size or self._is_open(link):
            raise LocalError(f"no link from peer {self.me} to {link} can be opened now")
        if not (self.joining or self.sent or self.received):
            self.neighbours += (link,)
            return NO_EFFECTS
        sends = self._begin(link, now) + self._greet()
        if self.wake_asked:
            return Effects(sends)
        self.wake_asked = True
        return Effects(sends, wake_at=now + self.patience)

    def _greet(self) -> tuple[Send, ...]:
        """A newcomer without a contact takes the first link that is open."""
        if not self.joining or self.contact is not None or not self.openings:
            return ()
        self.contact = next(iter(self.openings))
        return (Send((self.contact,), Hello()),)

    def link_closed(self, link: int, now: int) -> Effects:
        if not self._is_open(link):
            raise LocalError(f"no link from peer {self.me} to {link} is open")
        self.neighbours = tuple(peer for peer in self.neighbours if peer != link)
        self.openings.pop(link, None)
        if self.contact == link:
            self.contact = None
        return Effects(self._greet())

    def wake(self, now: int) -> Effects:
        """Ask again where no pong has come; one call at a time is enough for all links."""
        sends: tuple[Send, ...] = ()
        for link, opening in self.openings.items():
            if opening.due <= now:
                opening.due = now + self.patience
                sends += self._ask(link)
        self.wake_asked = bool(self.openings)
        return Effects(sends, wake_at=min((each.due for each in self.openings.values()), default=None))

    def waiting(self) -> list[Waiting]:
        """What a newcomer keeps until its snapshot has come; otherwise nothing is ever held."""
        return [Waiting(message, None) for _, packet in self.early for message in packet.message_ids()]
