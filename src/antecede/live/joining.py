"""How a group is joined: by keywords or `Settings`, with `async with` or `await`."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Required, TypedDict, Unpack, overload

from antecede.errors import InputError
from antecede.live.group import Group
from antecede.live.settings import FaultInjection, Member, Settings


class JoinOptions(TypedDict, total=False):
    """The keywords of `join`; docs/live.md says more of each."""

    me: Required[str]
    peers: Sequence[str | Member]
    protocol: str
    behind: str | None
    listen: str | None
    web: str | None
    web_origins: Sequence[str]
    store: str | Path | None
    sync: bool
    trace: str | Path | None
    own: bool
    limit: int
    metrics: str | None
    keys: str | Path | None
    secret: str | Path | None
    sign: bool
    insecure: bool
    plain: bool
    """Deprecated: the former name of `insecure`."""
    faults: FaultInjection | None


@overload
def join(group: Settings) -> Joining: ...


@overload
def join(group: str, **options: Unpack[JoinOptions]) -> Joining: ...


def join(group: str | Settings, **options: Any) -> Joining:
    """A member of a live group: `async with join(...) as group`, or `group = await join(...)`.

    `group` is its name, and the keywords say how to take part; or it is a `Settings` that says everything.
    """
    if isinstance(group, Settings):
        if options:
            raise InputError(f"{next(iter(options))}: a Settings says everything; change it there")
        return Joining(group)
    return Joining(Settings.create(group=group, **options))


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
