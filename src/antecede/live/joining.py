"""How a group is joined: by keywords, and by `async with` or `await`."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, TypedDict, Unpack

from antecede.live.group import Group
from antecede.live.settings import Member, Rough, Settings


class Options(TypedDict, total=False):
    """What `join` takes; docs/live.md says more of each."""

    me: str
    peers: Sequence[str | Member]
    protocol: str
    behind: str | None
    listen: str | None
    web: str | None
    store: str | Path | None
    sync: bool
    trace: str | Path | None
    limit: int
    metrics: str | None
    keys: str | Path | None
    secret: str | Path | None
    plain: bool
    rough: Rough | None


def join(group: str, **options: Unpack[Options]) -> Joining:
    """A member of the live group called `group`: `async with join(...) as group`, or `await join(...)`."""
    return Joining(Settings.of(group=group, **options))


class Joining:
    """A group that is about to be joined."""

    def __init__(self, settings: Settings) -> None:
        self._group = Group(settings)

    def __await__(self) -> Generator[Any, None, Group]:
        return self._start().__await__()

    async def _start(self) -> Group:
        await self._group._start()
        return self._group

    async def __aenter__(self) -> Group:
        return await self._start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._group.__aexit__(kind, error, trace)
