"""A protocol may set several timers, which fire before and after a restart."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import msgspec

from antecede.live.core import Core
from antecede.live.events import TimerFired
from antecede.live.recovery import restore
from antecede.live.store.disk import FileDisk
from antecede.live.store.journal import Journal
from antecede.protocols.base import NO_EFFECTS, Effects
from antecede.protocols.mbcp import Mbcp


class Alarm(Mbcp):
    """Sets a timer as many nanoseconds after a broadcast as its body says."""

    name: ClassVar[str] = "alarm"
    woken: list[int] = msgspec.field(default_factory=list)

    def broadcast_all(self, payloads: list[bytes], now: int) -> Effects:
        effects = super().broadcast_all(payloads, now)
        return Effects(effects.sends, now + len(payloads[0]), effects.message)

    def wake(self, now: int) -> Effects:
        self.woken.append(now)
        return NO_EFFECTS


def ask(core: Core, times: list[int]) -> None:
    for time in times:
        core.broadcast(b"x" * time, 0)
        core.ready()


def test_the_earlier_of_two_timers_does_not_cancel_the_later() -> None:
    core = Core(Alarm(0, 2), durable=False)
    ask(core, [500, 200])
    first, second = core.timers
    assert first < second
    core.step(TimerFired(first))
    assert core.timers == [second]
    assert not core.has_timer_due(second - 1)
    core.step(TimerFired(second))
    assert isinstance(core.protocol, Alarm)
    assert core.protocol.woken == [first, second]


def test_timers_survive_a_restart(tmp_path: Path) -> None:
    core = Core(Alarm(0, 2))
    with Journal(FileDisk(tmp_path / "store"), {}) as journal:
        restore(core, journal)
        ask(core, [500, 200])
        journal.write([], core.ready(checkpoint=True).checkpoint)
    with Journal(FileDisk(tmp_path / "store"), {}) as journal:
        again = Core(Alarm(0, 2))
        restore(again, journal)
        assert again.timers == core.timers
        assert len(again.timers) == 2
