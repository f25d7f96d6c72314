"""How a group is joined: by keywords or `Settings`, with `async with` or `await`."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Required, TypedDict, Unpack, overload

from antecede.errors import InputError
from antecede.live.changing.group import DynamicGroup, Restore
from antecede.live.changing.phone_group import PhoneGroup
from antecede.live.changing.sponsor import Snapshot
from antecede.live.fixed_group import FixedGroup
from antecede.live.group import Group
from antecede.live.setting_names import refuse_unknown
from antecede.live.settings import FaultInjection, Member, Settings
from antecede.live.subgroups.group import SubgroupMember
from antecede.live.subgroups.settings import LIVE as WITH_SUBGROUPS
from antecede.live.subgroups.settings import Subgroup
from antecede.protocols.base import LocalError


class JoinOptions(TypedDict, total=False):
    """The keywords of `join`; docs/live.md says more of each."""

    me: Required[str]
    peers: Sequence[str | Member]
    founders: Sequence[str | Member]
    contact: str | Sequence[str | Member]
    super_peers: Sequence[str | Member]
    protocol: str
    behind: str | None
    subgroups: Mapping[str, str | Subgroup]
    listen: str | None
    advertise: str | None
    web: str | None
    web_origins: Sequence[str]
    store: str | Path | None
    sync: bool
    trace: str | Path | None
    own: bool
    limit: int | str
    park: int | str
    remove_after: str | None
    heartbeat: str | None
    suspect_after: str | None
    forget_after: str
    history: str | None
    retain: str | None
    metrics: str | None
    otel: bool
    console_token: str | Path | None
    keys: str | Path | None
    secret: str | Path | None
    sign: bool
    encrypt: bool
    relay: bool
    insecure: bool
    plain: bool
    """Deprecated: the former name of `insecure`."""
    faults: FaultInjection | None
    snapshot: Snapshot | None
    restore: Restore | None


@overload
def join(group: Settings, *, snapshot: Snapshot | None = None, restore: Restore | None = None) -> Joining: ...


@overload
def join(group: str, **options: Unpack[JoinOptions]) -> Joining: ...


def join(
    group: str | Settings,
    *,
    snapshot: Snapshot | None = None,
    restore: Restore | None = None,
    **options: Any,
) -> Joining:
    """A member of a live group: `async with join(...) as group`, or `group = await join(...)`.

    `group` is its name, and the keywords say how to take part; or it is a complete `Settings`. With `peers`,
    the list of members is fixed. With `founders`, the first members, or a `contact`, membership is dynamic:
    `snapshot` is called for the application's state when a newcomer joins here, between two messages, and
    `restore` with such a state before this member's first message. With `super_peers` this process is a phone
    of such a group, behind one of them.
    """
    if isinstance(group, Settings):
        if options:
            raise InputError(f"{next(iter(options))}: a Settings says everything; change it there")
        return Joining(group, snapshot, restore)
    refuse_unknown(options, JoinOptions.__annotations__, "join: ")
    return Joining(Settings.create(group=group, **options), snapshot, restore)


_HOW = "write `async with antecede.join(...) as group` or `group = await antecede.join(...)`"


class Joining:
    """A group that is not joined yet."""

    def __init__(
        self, settings: Settings, snapshot: Snapshot | None = None, restore: Restore | None = None
    ) -> None:
        self._group: Group
        for what, hook in (("snapshot", snapshot), ("restore", restore)):
            if hook is not None and not callable(hook):
                raise InputError(f"{what}: it must be a function, and is of type {type(hook).__name__}")
        if settings.super_peers:
            if snapshot is not None:
                raise InputError("snapshot: nobody joins at a phone")
            self._group = PhoneGroup(settings, restore)
        elif settings.is_changing:
            self._group = DynamicGroup(settings, snapshot, restore)
        elif snapshot is not None or restore is not None:
            raise InputError("snapshot, restore: they are for groups with founders or a contact")
        elif settings.protocol in WITH_SUBGROUPS:
            self._group = SubgroupMember(settings)
        else:
            self._group = FixedGroup(settings)

    if not TYPE_CHECKING:  # a type checker says it by itself

        def __getattr__(self, name):
            raise AttributeError(f"{name}: the group is not joined yet; {_HOW}")

        def __enter__(self):
            raise LocalError(f"`with` does not join a group; {_HOW}")

        def __exit__(self, *_): ...

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
