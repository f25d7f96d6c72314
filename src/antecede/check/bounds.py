"""How much of a group's behaviour is explored."""

from __future__ import annotations

from typing import Any

import msgspec

from antecede.errors import InputError
from antecede.protocols.base import Layout, LocalError, Protocol

_MAX_MESSAGES = 24


def counted(count: int, what: str) -> str:
    """A number of things.

    >>> counted(1, "message"), counted(2, "crash")
    ('1 message', '2 crashes')
    """
    plural = "es" if what.endswith(("sh", "ss")) else "s"
    return f"{count} {what}" if count == 1 else f"{count} {what}{plural}"


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """The size of a group, what its members broadcast, and how many faults may happen in one schedule."""

    peers: int = 3
    messages: int = 1
    """Messages broadcast by each peer."""
    total: int | None = None
    """Messages broadcast by all peers together; by default no bound of its own."""
    senders: tuple[int, ...] | None = None
    """The members that broadcast; by default all."""
    losses: int = 0
    """Packets that are lost. Then messages may remain undelivered, and only deliveries are judged."""
    duplicates: int = 0
    """Packets that arrive twice."""
    crashes: int = 0
    """Processes that crash and restart from their saved state."""
    link_changes: int = 0
    """Links that open or close, for protocols that allow it."""
    wakes: int = 2
    """Timers that fire, for protocols that need no bounds on delays."""
    longest_delay: int = 1
    """The longest delay within a site, in time steps, for protocols that need bounds on delays."""
    clocks: tuple[int, ...] = ()
    """How far each member's clock is ahead, for the same protocols; by default all clocks agree."""
    groups: dict[str, tuple[int, ...]] | None = None
    """Overlapping groups, for protocols that have them."""
    layout: dict[str, Any] | None = None
    """How members are arranged, for protocols with roles."""
    claims: bool = True
    """Whether the named dependencies of messages and the reasons for holding them are judged too."""

    def __post_init__(self) -> None:
        if self.peers < 1 or self.messages < 1:
            raise InputError("check: at least one peer and one message from each")
        if self.total is None and self.peers * self.messages > _MAX_MESSAGES:
            raise InputError(
                f"check: {self.peers} peers with {self.messages} messages each are more than "
                f"{_MAX_MESSAGES} messages, far beyond what can be explored"
            )
        for name, members in (self.groups or {}).items():
            if not members or not 0 <= min(members) <= max(members) < self.peers:
                shown = ", ".join(map(str, members)) or "nobody"
                raise InputError(f"check: groups: {name} names {shown}; members are 0 to {self.peers - 1}")
        if self.clocks and len(self.clocks) != self.peers:
            raise InputError(f"check: clocks: {len(self.clocks)} of them for {self.peers} peers")

    def in_words(self) -> str:
        """What is explored, for people: "3 members, 1 message each, no faults"."""
        faults = {
            "lost packet": self.losses,
            "duplicated packet": self.duplicates,
            "crash": self.crashes,
            "link change": self.link_changes,
        }
        arranged = [
            f"{name} {msgspec.json.encode(value).decode()}"
            for name, value in (("layout", self.layout), ("groups", self.groups))
            if value is not None
        ]
        allowed = [counted(count, what) for what, count in faults.items() if count]
        size = [counted(self.peers, "member"), f"{counted(self.messages, 'message')} each"]
        return ", ".join([*size, *arranged, " and ".join(allowed) or "no faults"])

    def may_send(self, member: int) -> bool:
        """Whether a member broadcasts."""
        return self.senders is None or member in self.senders

    def clock(self, member: int) -> int:
        """How far a member's clock is ahead."""
        return self.clocks[member] if self.clocks else 0

    def members(self, kind: type[Protocol]) -> list[Protocol]:
        """All members of the group, in their initial state."""
        protocol: Any = kind
        if self.groups is not None:
            if not kind.overlapping_groups:
                raise InputError(f"check: groups: {kind.name} has one group of all peers")
            return list(protocol.with_groups(self.groups, self.peers))
        layout = self.resolved_layout(kind)
        return list(
            protocol.group(self.peers) if layout is None else protocol.with_layout(self.peers, layout)
        )

    def resolved_layout(self, kind: type[Protocol]) -> Layout | None:
        """The layout, with bounds of time; None if the protocol has none."""
        if kind.layout is None:
            if self.layout is not None:
                raise InputError(f"check: layout: {kind.name} has none")
            return None
        try:
            layout: Layout = (
                kind.layout.default(self.peers)
                if self.layout is None
                else msgspec.convert(self.layout, kind.layout)
            )
            layout.validate(self.peers)
        except (msgspec.ValidationError, LocalError) as error:
            raise InputError(f"check: layout: {error}") from error
        skew = max(self.clocks, default=0) - min(self.clocks, default=0)
        return layout.with_bounds(self.longest_delay, skew)

    def audiences(self) -> list[tuple[str | None, tuple[int, ...]]]:
        """The name and the members of each group."""
        if self.groups is None:
            return [(None, tuple(range(self.peers)))]
        return list(self.groups.items())
