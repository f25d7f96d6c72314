"""A group's members as an application sees them: the view, and its changes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec

from antecede.live.messages import MessageId


class ViewMember(msgspec.Struct, frozen=True):
    """A member of the group, as seen by one of them."""

    label: str
    """The label of its incarnation: `ana` for a founder, `dana~1f2e3d4c` for a member that has joined."""
    name: str
    at: str
    """Where it listens, as far as that is known; empty if it does not listen."""
    connected: bool
    """Whether it is connected now; always true for the observing member itself."""
    suspected: float | None = None
    """Since when it is suspected, in seconds since 1970."""
    since: float | None = None
    """Since when it is a member, as seen here, in seconds since 1970; None for members from the start."""


class View(msgspec.Struct, frozen=True):
    """The members by their labels. Views are not agreed on: each follows from its own member's deliveries."""

    members: dict[str, ViewMember]
    removing: tuple[str, ...] = ()
    """Members whose removal is under way."""
    start: dict[str, int] = {}
    """For a member that has joined later: by origin, the sequence number of the last message that is not
    delivered to it, because the message is in its snapshot or no longer retained."""

    @property
    def names(self) -> list[str]:
        return sorted(member.name for member in self.members.values())

    def __contains__(self, name: str) -> bool:
        return any(name in (label, member.name) for label, member in self.members.items())

    def __iter__(self) -> Iterator[ViewMember]:
        return iter(self.members.values())

    def __len__(self) -> int:
        return len(self.members)

    def __str__(self) -> str:
        """
        >>> here = ViewMember("ana", "ana", ":7000", connected=True)
        >>> print(View({"ana": here, "bo": ViewMember("bo", "bo", "", connected=False)}, removing=("bo",)))
        ana, bo (not connected, being removed)
        """
        return ", ".join(map(self._describe, self.members.values()))

    def _describe(self, member: ViewMember) -> str:
        states = []
        if member.suspected is not None:
            states.append("suspected")
        elif not member.connected:
            states.append("not connected")
        if member.label in self.removing:
            states.append("being removed")
        return f"{member.label} ({', '.join(states)})" if states else member.label


ChangeKind = Literal[
    "joined", "returned", "left", "removing", "removed", "suspected", "trusted", "parked", "unparked"
]


class MemberChange(msgspec.Struct, frozen=True):
    """A change of a member."""

    kind: ChangeKind
    label: str
    name: str
    by: str = ""
    """The label of the member whose message changed the view; empty if none did, as for suspicions."""
    message: MessageId | None = None
    """That message; for `removed`, the last message of the removed member that is delivered."""
    text: str = ""
    """Further details of the cause."""
    time: float = 0.0
    """When it was observed here, in seconds since 1970."""


def describe_change(change: MemberChange) -> str:
    """A change as a line in the log.

    >>> describe_change(MemberChange("removing", "bo", "bo", by="ana"))
    'bo is being removed by ana'
    >>> describe_change(MemberChange("left", "bo", "bo", by="bo"))
    'bo left'
    """
    what = "is being removed" if change.kind == "removing" else str(change.kind)
    why = f" by {change.by}" if change.by not in ("", change.label) else ""
    if change.kind in ("joined", "returned"):
        why = f", admitted{why}" if why else ""
    if change.kind in ("removed", "suspected", "trusted", "parked", "unparked"):
        what = f"is {what}"
    return f"{change.label} {what}{': ' + change.text if change.text else why}"
