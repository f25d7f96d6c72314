"""Inspection of one group of a process in several: what is held there, perhaps for a message of another
group."""

from __future__ import annotations

import time
from typing import cast

from antecede import causality
from antecede.live.changing.inspection import ChangingInspection
from antecede.live.messages import HeldMessage, MessageId
from antecede.live.overlapping.group_core import GroupCore
from antecede.membership.multigroup import ChangingMultigroup
from antecede.membership.state import Phase
from antecede.protocols.base import Waiting


class GroupInspection(ChangingInspection):
    """One group. Messages that its group has delivered and that the application could receive now do not
    count as held."""

    _core: GroupCore

    @property
    def _member(self) -> ChangingMultigroup:
        return cast("ChangingMultigroup", self._core.member)

    def count_held(self) -> int:
        return super().count_held() + (len(self._member.held) if self._core.phase == Phase.MEMBER else 0)

    def waits(self) -> list[Waiting]:
        held = self._member.held
        return [each for each in super().waits() if each.cause is not None or each.message not in held]

    def describe(self, wait: Waiting) -> HeldMessage:
        lacking = self._member.lacks_elsewhere(wait.message)
        if lacking is None:
            return super().describe(wait)
        group, stream, cause = lacking
        there = self._core.node.groups[group]
        holders = (
            GroupInspection(there)._holders(causality.MessageId(stream, cause.seq))
            if there.is_started
            else []
        )
        since = self._held_since.setdefault(wait.message, time.time())
        return HeldMessage(
            self._id(wait.message),
            MessageId(there.labels[stream], cause.seq),
            since,
            tuple(there.labels[each] for each in holders),
            group,
        )
