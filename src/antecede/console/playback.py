"""Plays a simulated run in the console, at the pace of the run's own clock, so that a person can watch it.

The console does not change the run: the world advances event by event, each at its time, and the page reads
state between two events. The run begins when the page is first opened. Times on the page are simulated times,
whatever the speed, counted from the time of day at which the command was started.
"""

from __future__ import annotations

import threading
import time
from typing import Any

from antecede.console.run_notes import RunNotes
from antecede.console.simulated import SimulatedGroup
from antecede.console.sources import MemberSource, Question
from antecede.errors import InputError
from antecede.live.operations.state import MemberReport
from antecede.sim.changes import Attach
from antecede.sim.scenario import Scenario
from antecede.sim.world import World
from antecede.units import SECOND

_TURN = 0.02
"""Seconds after which viewers get their turn if events are due without a pause."""
_BREAK = 0.001


class Playback:
    """One run. `notes` observes it, `prepare` receives its world, and `play` advances that to the end. The
    other methods are for the threads that serve viewers."""

    def __init__(self, scenario: Scenario, speed: float) -> None:
        if scenario.is_changing and any(isinstance(each, Attach) for each in scenario.changes()):
            raise InputError(
                "--console shows no groups with phones that change; antecede explore shows a trace"
            )
        self.notes = RunNotes(scenario.peer_names(), self._seconds)
        self._scenario, self._speed = scenario, speed
        self._epoch = time.time()
        self._lock = threading.Lock()
        """Held while events happen, and while the state of members is read."""
        self._has_begun = threading.Event()
        self._began = 0.0
        self._world: World | None = None
        self._group: SimulatedGroup | None = None
        self._sources: dict[int, _SimulatedSource] = {}
        self._reports: dict[int, MemberReport] = {}
        self._looked_at = self._epoch

    def prepare(self, world: World) -> None:
        self._world = world
        self._group = SimulatedGroup(self._scenario, world, self.notes)

    def play(self, world: World) -> None:
        self._has_begun.wait()
        self._began = time.monotonic()
        while (due := world.next_time) is not None:
            pause = self._began + due / SECOND / self._speed - time.monotonic()
            time.sleep(max(pause, _BREAK))
            end = time.monotonic() + _TURN
            with self._lock:
                while due is not None and due <= self._elapsed() and time.monotonic() < end:
                    world.step()
                    due = world.next_time

    # For the threads that serve viewers.

    def clock(self) -> float:
        """When the state of members was last read."""
        return self._looked_at

    def sources(self) -> list[MemberSource]:
        """The members that are present. The state of each is read now, so that a picture shows one moment."""
        self._has_begun.set()
        if self._group is None:
            return []
        with self._lock:
            self._looked_at = self._seconds(self._now())
            present = self._group.present()
            self._reports = {
                address: self._group.report(address, self._looked_at)
                for address in present
                if not self._group.is_down(address)
            }
        for address in present:
            if address not in self._sources:
                self._sources[address] = _SimulatedSource(self, address, self._group.name(address))
        return [self._sources[address] for address in present]

    def answer(self, address: int, question: Question) -> Any:
        if question == "state":
            if address not in self._reports:
                raise InputError("it has crashed")
            return self._reports[address]
        assert self._group is not None  # noqa: S101
        with self._lock:
            return self._group.messages(address)

    # Time

    def _elapsed(self) -> float:
        """How far the run should have advanced, in nanoseconds."""
        return (time.monotonic() - self._began) * self._speed * SECOND if self._began else 0.0

    def _now(self) -> float:
        """How far the run has advanced: a time between the last event and the next."""
        assert self._world is not None  # noqa: S101
        due = self._world.next_time
        return self._world.now if due is None else max(self._world.now, min(self._elapsed(), due))

    def _seconds(self, now: float) -> float:
        return self._epoch + now / SECOND


class _SimulatedSource:
    """A member of a run that is being played."""

    def __init__(self, playback: Playback, address: int, name: str) -> None:
        self.name, self._playback, self._address = name, playback, address

    async def ask(self, question: Question) -> Any:
        return self._playback.answer(self._address, question)
