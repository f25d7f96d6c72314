"""A protocol with timers: members must keep them, though no protocol asks for any where links are fixed.

Each broadcast asks to be woken a while later. Whoever is woken although nothing is due, or is not woken at
all, has lost or mixed up its timers: in a crash, by a clock that was set, or beside other timers.
"""

from __future__ import annotations

from typing import ClassVar

import msgspec

from antecede.protocols.base import NO_EFFECTS, Effects
from antecede.protocols.mbcp import Mbcp
from vopr.judge import ViolationError
from vopr.network import MILLISECOND


class AlarmedMbcp(Mbcp):
    name: ClassVar[str] = "mbcp"
    due: list[int] = msgspec.field(default_factory=list)

    def broadcast_all(self, payloads: list[bytes], now: int) -> Effects:
        effects = super().broadcast_all(payloads, now)
        assert effects.message is not None
        self.due.append(now + (30 + 60 * (effects.message.seq % 7)) * MILLISECOND)
        return Effects(effects.sends, self.due[-1], effects.message)

    def wake(self, now: int) -> Effects:
        if not any(time <= now for time in self.due):
            raise ViolationError(f"member {self.me} is woken at {now}, and has asked for {self.due}")
        self.due = [time for time in self.due if time > now]
        return NO_EFFECTS
