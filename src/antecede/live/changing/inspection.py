"""What a member of a dynamic group reports about its state when it is inspected."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Protocol as Interface

from antecede import causality
from antecede.live.inspection import DeliveredUpTo, Inspection
from antecede.live.messages import HeldMessage, MessageId
from antecede.membership.member import ChangingMember
from antecede.membership.state import Phase
from antecede.protocols.base import Waiting

_MANY_HELD = 1_000
"""Above this many held messages, the time since each is held is not recorded."""


class InspectedMember(Interface):
    """The member under inspection, and the names of the others."""

    @property
    def member(self) -> ChangingMember: ...
    @property
    def phase(self) -> Phase: ...
    @property
    def me(self) -> int:
        """Its stream."""

    @property
    def labels(self) -> Mapping[int, str]:
        """By stream."""


class ChangingInspection(Inspection):
    def __init__(self, core: InspectedMember, clock: Callable[[], float] = time.time) -> None:
        self._core, self._clock = core, clock
        self._held_since: dict[causality.MessageId, float] = {}

    # What is held

    def count_held(self) -> int:
        core = self._core
        return core.member.order.count_held() if core.phase == Phase.MEMBER else 0

    def held_seconds(self) -> float:
        return self._clock() - min(self._held_since.values()) if self._held_since else 0.0

    def note_held(self) -> None:
        """Record which messages are held, a few times a second: hold times are accurate to one tick."""
        count = self.count_held()
        if not count:
            self._held_since.clear()
        elif count <= _MANY_HELD:
            now, before = self._clock(), self._held_since
            messages = [wait.message for wait in self._core.member.waiting()]
            self._held_since = {each: before.get(each, now) for each in messages}

    def waits(self) -> list[Waiting]:
        return self._core.member.waiting() if self._core.phase == Phase.MEMBER else []

    def describe(self, wait: Waiting) -> HeldMessage:
        since = self._held_since.setdefault(wait.message, self._clock())
        if wait.cause is None:
            return HeldMessage(self._id(wait.message), None, since, ())
        holders = tuple(self._core.labels[each] for each in self._holders(wait.cause))
        return HeldMessage(self._id(wait.message), self._id(wait.cause), since, holders)

    def _holders(self, cause: causality.MessageId) -> list[int]:
        """The other members that may have a message."""
        member = self._core.member
        return [
            each
            for each in sorted(member.addresses)
            if each != self._core.me and (each == cause.origin or member.progress.has_delivered(each, *cause))
        ]

    def _id(self, message: causality.MessageId) -> MessageId:
        return MessageId(self._core.labels[message.origin], message.seq)

    # Progress

    def delivered(self) -> dict[int, int]:
        core = self._core
        if core.phase not in (Phase.MEMBER, Phase.LEAVING):
            return {}
        return dict(core.member.order.delivered)

    def progress(self) -> list[DeliveredUpTo]:
        core, found = self._core, []
        for stream, delivered in sorted(self.delivered().items()):
            unstable = core.member.unstable.get(stream)
            stable = min(delivered, min(unstable) - 1) if unstable else delivered
            received = max(delivered, core.member.order.received_up_to(stream))
            found.append(DeliveredUpTo(core.labels[stream], received, delivered, stable))
        return found

    def behind_by(self) -> dict[str, int]:
        core, mine = self._core, self.delivered()
        if not mine:
            return {}
        found = {}
        for other in core.member.addresses.keys() - {core.me}:
            (known,) = core.member.progress.of([other])
            found[core.labels[other]] = sum(
                max(0, count - known.delivered.get(stream, 0))
                for stream, count in mine.items()
                if stream != other
            )
        return found


class PhoneInspection(ChangingInspection):
    """A phone holds no messages, and knows no other member's progress."""

    def count_held(self) -> int:
        return 0

    def waits(self) -> list[Waiting]:
        return []

    def progress(self) -> list[DeliveredUpTo]:
        return []

    def behind_by(self) -> dict[str, int]:
        return {}
