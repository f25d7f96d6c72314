"""What an application sees of a group that changes: who is in it, and what has changed."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from typing import Literal, Self

import msgspec

_MAX_CHANGES = 1_000
"""Changes that wait for a listener."""


class ViewMember(msgspec.Struct, frozen=True):
    """A member of the group, as seen by one of them."""

    label: str
    """Which incarnation it is: `ana` of a founder, `dana~1f2e3d4c` of a member that has joined."""
    name: str
    at: str
    """Where it listens, as far as that is known; empty if it does not."""
    connected: bool
    """Whether there is a connection to it now; always, for the one that looks."""
    suspected: float | None = None
    """Since when it seems to be down, in seconds since 1970."""


class View(msgspec.Struct, frozen=True):
    """The members by their labels. Views are not agreed on: each follows from what its member has
    delivered."""

    members: dict[str, ViewMember]
    removing: tuple[str, ...] = ()
    """Members whose removal is under way."""

    @property
    def names(self) -> list[str]:
        return sorted(member.name for member in self.members.values())

    def __contains__(self, name: str) -> bool:
        return any(name in (label, member.name) for label, member in self.members.items())

    def __iter__(self) -> Iterator[ViewMember]:
        return iter(self.members.values())

    def __len__(self) -> int:
        return len(self.members)


class MemberChange(msgspec.Struct, frozen=True):
    """Something has changed about a member."""

    kind: Literal["joined", "left", "removing", "removed", "suspected", "trusted"]
    label: str
    name: str
    by: str = ""
    """The label of the member whose message changed the view; empty for suspicions."""
    time: float = 0.0


class Changes:
    """One listener's queue. Nobody may be listening, so the oldest of many are dropped."""

    def __init__(self) -> None:
        self._queue: deque[MemberChange] = deque(maxlen=_MAX_CHANGES)
        self._more = asyncio.Event()
        self._has_ended = False

    def put(self, change: MemberChange) -> None:
        self._queue.append(change)
        self._more.set()

    def end(self) -> None:
        self._has_ended = True
        self._more.set()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> MemberChange:
        while not self._queue:
            if self._has_ended:
                raise StopAsyncIteration
            self._more.clear()
            await self._more.wait()
        return self._queue.popleft()
