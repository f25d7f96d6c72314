"""Membership changes in a trial of overlapping groups, one at a time, so that the other members are a quorum:
the next one begins when all members have forgotten those removed, and know that every admission is stable.

A process leaves one of its groups and rejoins it, is removed from one although it is alive and returns, is
stopped (SIGSTOP) so that the others suspect it, or loses its disk and rejoins with nothing but its name.
"""

from __future__ import annotations

import random
import time
from collections import Counter

from antecede.live.trial.ring_processes import RingProcess

_WEIGHTS = {"leave": 4, "remove": 2, "stop": 1, "lose": 1}
_STOP_SECONDS = 3.0
_UNSEEN_SECONDS = 15.0
"""How long a removed member may take to return; the member that was to remove it may have been killed."""


class RingChanges:
    def __init__(self, processes: list[RingProcess], rate: float, rng: random.Random) -> None:
        self._processes, self._rate, self._random = processes, rate, rng
        self._at = time.monotonic()
        self.steps: Counter[str] = Counter()
        self._stopped: tuple[RingProcess, float] | None = None
        self._returning: tuple[RingProcess, str, int, float] | None = None
        """The removed process and its group, how often it had restored a state there, and the deadline for
        its return."""

    @property
    def is_changing(self) -> bool:
        return self._stopped is not None or self._returning is not None

    def explain(self) -> str:
        absent = [process.name for process in self._processes if not process.is_present]
        return f"; {', '.join(absent)} not in all groups" if absent else ""

    async def look(self, now: float, may_begin: bool) -> None:
        """Begin the next change if it is due, or finish the current one."""
        if self._rate == 0 or self._is_waiting(now) or not may_begin or now < self._at:
            return
        if not all(process.is_present and process.is_stable for process in self._processes):
            return
        self._at = now + self._random.expovariate(self._rate)
        kind = self._random.choices(list(_WEIGHTS), list(_WEIGHTS.values()))[0]
        self.steps[kind] += 1
        process = self._random.choice(self._processes)
        group = self._random.choice(process.groups)
        match kind:
            case "leave":
                process.command("leave", group)
            case "remove":
                others = [each for each in self._processes if group in each.groups and each is not process]
                before = process.application.restored[group]
                self._returning = process, group, before, now + _UNSEEN_SECONDS
                self._random.choice(others).command("remove", group, process.name)
            case "stop":
                process.stop(True)
                self._stopped = process, now + self._random.uniform(0.5, _STOP_SECONDS)
            case _:
                await process.kill()
                process.disk += 1
                await process.start()

    def _is_waiting(self, now: float) -> bool:
        if self._stopped is not None:
            process, until = self._stopped
            if now < until:
                return True
            process.stop(False)
            self._stopped = None
        if self._returning is not None:
            process, group, before, until = self._returning
            if process.application.restored[group] == before and now < until:
                return True
            self._returning = None
        return False
