"""What a member reports to `antecede console`: which messages it holds and why, its links, the view, its
progress, and recent changes. A snapshot is taken on request, and its size is bounded whatever the member
holds; it does not contain bodies."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import msgspec

from antecede.causality import MessageId
from antecede.live.inspection import DeliveredUpTo, Inspection
from antecede.live.operations.recent import RecentMessage, RecentMessages
from antecede.live.view import ViewMember
from antecede.protocols.base import Waiting

if TYPE_CHECKING:
    from antecede.live.group import Group

VERSION = 1
_MAX_LISTED = 200
"""Maximum number of held messages that are listed."""
_MAX_LOOKED_AT = 20_000
"""Above this many held messages, a member reports only their number."""
_MAX_TEXT = 300
_SHOWN_MESSAGES = 60
"""Maximum number of messages in a snapshot; a request for messages returns all that are recorded."""


class HeldEntry(msgspec.Struct, frozen=True):
    """A held message. Messages are identified as `origin:number`."""

    id: str
    since: float
    """In seconds since 1970, like all times here."""


class Missing(msgspec.Struct, frozen=True):
    """A message that others are held for."""

    cause: str | None
    """None if the protocol knows it only by another member's number for it."""
    holders: list[str]
    """The members that may have it, as far as this one knows."""
    count: int
    """How many messages are held for it; not all need be in `held`."""
    held: list[HeldEntry]


class Happened(msgspec.Struct, frozen=True):
    """A change of a member, an event of the group, or a problem, as one member saw it."""

    kind: str
    about: str
    """The label of the member concerned."""
    text: str
    time: float
    by: str = ""
    message: str | None = None
    """For changes: the label of the member, and the message, that changed the view."""


class MemberReport(msgspec.Struct, frozen=True, kw_only=True):
    """A snapshot of one member."""

    version: int
    opened: float
    group: str
    protocol: str
    me: str
    state: str
    changes_members: bool
    """Whether membership is dynamic."""
    members: list[ViewMember]
    removing: list[str]
    partners: list[str]
    connected: list[str]
    timeouts: dict[str, float]
    broadcast: int
    delivered: int
    """Messages delivered to the application, including its own if it receives those."""
    for_application: int
    """Delivered messages that the application has not acknowledged."""
    held: int
    held_seconds: float
    missing: list[Missing]
    progress: list[DeliveredUpTo]
    behind: dict[str, int]
    """By member, how many messages delivered here it is not known to have delivered."""
    unstable_bytes: int
    limit: int
    problems: list[Happened]
    changes: list[Happened]
    notices: list[Happened]
    messages: list[RecentMessage]
    time: float
    """When the report was made."""
    knows_stability: bool = True
    """Whether members report their progress to each other. Fixed groups in the simulator do not."""


class MemberMessages(msgspec.Struct, frozen=True):
    """The last messages of one member."""

    me: str
    messages: list[RecentMessage]


def state(group: Group) -> MemberReport:
    unstable_bytes, view, queue = group.unstable_bytes, group.view, group._core.application
    inspection, observers = group._inspection, group._observers
    return MemberReport(
        version=VERSION,
        opened=group._opened_at,
        group=group.settings.group,
        protocol=group.settings.protocol,
        me=group.me,
        state=group.state,
        changes_members=group.settings.is_changing,
        members=list(view),
        removing=list(view.removing),
        partners=list(group.partners),
        connected=list(group.connected),
        timeouts=group.suspicion_timeouts(),
        broadcast=group._core.broadcasts,
        delivered=queue.delivered,
        for_application=len(queue.unacked),
        held=group.held,
        held_seconds=inspection.held_seconds(),
        missing=missing(inspection),
        progress=inspection.progress(),
        behind=inspection.behind_by(),
        unstable_bytes=unstable_bytes,
        limit=group.settings.limit,
        problems=[_happened(each.kind, each.member, each.text, each.since) for each in group.problems()],
        changes=[
            _happened(each.kind, each.label, each.text, each.time, each.by, each.message)
            for each in observers.changes
        ],
        notices=[_happened(each.kind, each.member, each.text, each.time) for each in observers.notices],
        messages=messages(group, _SHOWN_MESSAGES).messages,
        time=time.time(),
    )


def messages(group: Group, most: int = _MAX_LOOKED_AT) -> MemberMessages:
    """The last messages delivered here, with their immediate dependencies; recording starts with the first
    request."""
    observers = group._observers
    if observers.recent is None:
        observers.recent = RecentMessages()
    return MemberMessages(group.me, observers.recent.ask(most))


def missing(inspection: Inspection) -> list[Missing]:
    """What a member's held messages wait for."""
    if not 0 < inspection.count_held() <= _MAX_LOOKED_AT:
        return []
    by_cause: dict[MessageId | None, list[Waiting]] = {}
    for wait in inspection.waits():
        by_cause.setdefault(wait.cause, []).append(wait)
    found: list[Missing] = []
    left = _MAX_LISTED
    for waits in list(by_cause.values())[:_MAX_LISTED]:
        # List at least one message per cause, and more as long as there is room.
        listed = waits[: max(1, left - (len(by_cause) - len(found)))]
        left -= len(listed)
        held = [inspection.describe(wait) for wait in listed]
        cause = held[0].cause
        found.append(
            Missing(
                None if cause is None else str(cause),
                list(held[0].holders),
                len(waits),
                [HeldEntry(str(each.id), each.since) for each in held],
            )
        )
    return found


def _happened(kind: str, about: str, text: str, when: float, by: str = "", message: Any = None) -> Happened:
    """Reasons come from other members, and may be long."""
    return Happened(kind, about, text[:_MAX_TEXT], when, by, None if message is None else str(message))
