"""How a group that changes is joined: with `async with`, or `await`."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from types import TracebackType
from typing import Any

from antecede.errors import InputError
from antecede.live.changing.group import ChangingLiveGroup, Restore, Snapshot
from antecede.live.settings import Settings


class JoiningChanging:
    """A group that is about to be joined: `async with`, or `await`."""

    def __init__(self, group: ChangingLiveGroup) -> None:
        self._group = group

    def __await__(self) -> Generator[Any, None, ChangingLiveGroup]:
        return self._begin().__await__()

    async def _begin(self) -> ChangingLiveGroup:
        await self._group._start()
        return self._group

    async def __aenter__(self) -> ChangingLiveGroup:
        return await self._begin()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._group.aclose()


def join_changing(
    group: str,
    *,
    founders: Sequence[str] = (),
    contact: str | Sequence[str] = (),
    snapshot: Snapshot | None = None,
    restore: Restore | None = None,
    **options: Any,
) -> JoiningChanging:
    """A member of a live group whose members come and go; the options are those of `antecede.join`."""
    contacts = [contact] if isinstance(contact, str) else list(contact)
    settings = Settings.create(group=group, **options)
    if settings.peers:
        raise InputError("peers: a group that changes has founders, or a contact")
    return JoiningChanging(ChangingLiveGroup(settings, list(founders), contacts, snapshot, restore))
