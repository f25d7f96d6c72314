"""The contract between engines and compiled kernels.

A protocol class names its kernel (`Protocol.kernel`): a package `sim/kernels/<kernel>`. The package says
which engines it has a module for (`ENGINES`) and roughly how many packets a delivery takes
(`packets_per_delivery`), without importing numba. The module of an engine,
`sim/kernels/<kernel>/<engine>.py`, is a `Kernel`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from antecede.causality import MessageId

if TYPE_CHECKING:
    import numpy as np

    from antecede.sim.metrics import Metrics
    from antecede.sim.scenario import Scenario
    from antecede.sim.world import Observer

Progress = Callable[[float], None]
"""Called at intervals with the completed share of a run."""

SENT, RECEIVED, DELIVERED = range(3)
"""Kinds of event rows."""


@dataclass(frozen=True, slots=True)
class Unsupported:
    """A kernel cannot run a scenario."""

    reason: str


class CapacityExceeded(Exception):  # noqa: N818
    """More is in flight than a kernel has arrays for. The run has to be restarted on another engine."""


class Kernel(Protocol):
    """A compiled twin of a protocol on one engine; a module with these two functions."""

    def supports(self, scenario: Scenario) -> Unsupported | None:
        """Why the kernel cannot run a scenario; None if it can."""

    def run(self, scenario: Scenario, observers: ObserverFeed, progress: Progress | None) -> Metrics:
        """Run a scenario. Raises `CapacityExceeded` if its arrays turn out to be too small."""


@runtime_checkable
class RowObserver(Protocol):
    """An observer that takes many events at once."""

    def take_rows(self, rows: np.ndarray) -> None:
        """One row per event: kind, process, origin, seq, time, link and control bytes."""


class ObserverFeed:
    """Shows observers every event of a run exactly once, even if the run is started over.

    All engines and all attempts produce the same events in the same order. So after `start_over`, observers
    are shown an attempt only from the first event that they have not seen. To the reference engine the feed
    is itself an `Observer`; kernels pass it rows.
    """

    def __init__(self, observers: Sequence[Observer]) -> None:
        self._by_row = [observer for observer in observers if isinstance(observer, RowObserver)]
        self._by_event = [observer for observer in observers if not isinstance(observer, RowObserver)]
        self._observers = observers
        self._shown = 0
        self._position = 0

    def __bool__(self) -> bool:
        return bool(self._observers)

    def start_over(self) -> None:
        """The next event is again the first of the run."""
        self._position = 0

    def show_rows(self, rows: np.ndarray) -> None:
        """The next events of an attempt, as rows (see `RowObserver.take_rows`)."""
        new = rows[max(0, self._shown - self._position) :]
        self._position += len(rows)
        self._shown = max(self._shown, self._position)
        if not len(new):
            return
        for observer in self._by_row:
            observer.take_rows(new)
        for kind, process, origin, seq, time, link, control in new.tolist() if self._by_event else ():
            message = MessageId(origin, seq)
            for event_observer in self._by_event:
                if kind == SENT:
                    # What a message costs as the paper counts is in the metrics; no observer uses it.
                    event_observer.send(process, message, time, control, 0, None)
                elif kind == RECEIVED:
                    event_observer.receive(process, link, message, time)
                else:
                    event_observer.deliver(process, message, time)

    def send(
        self, process: int, message: MessageId, time: int, control: int, paper: int, group: str | None
    ) -> None:
        if self._is_new():
            for observer in self._observers:
                observer.send(process, message, time, control, paper, group)

    def receive(self, process: int, link: int, message: MessageId, time: int) -> None:
        if self._is_new():
            for observer in self._observers:
                observer.receive(process, link, message, time)

    def deliver(self, process: int, message: MessageId, time: int) -> None:
        if self._is_new():
            for observer in self._observers:
                observer.deliver(process, message, time)

    def change(self, process: int, kind: str, member: int, message: MessageId, time: int) -> None:
        """A process has seen a change of its group; only for observers that have such a method."""
        if self._is_new():
            for observer in self._observers:
                if (show := getattr(observer, "change", None)) is not None:
                    show(process, kind, member, message, time)

    def take_snapshot(self, sponsor: int, process: int) -> None:
        """As `change`."""
        if self._is_new():
            for observer in self._observers:
                if (show := getattr(observer, "take_snapshot", None)) is not None:
                    show(sponsor, process)

    def place(self, address: int, process: int, group: str) -> None:
        """As `change`: a process has one more address, for a group, if groups overlap."""
        if self._is_new():
            for observer in self._observers:
                if (show := getattr(observer, "place", None)) is not None:
                    show(address, process, group)

    def start(self, process: int, time: int) -> None:
        """As `change`, for observers of snapshots."""
        if self._is_new():
            for observer in self._observers:
                if (show := getattr(observer, "start", None)) is not None:
                    show(process, time)

    def _is_new(self) -> bool:
        self._position += 1
        if self._position <= self._shown:
            return False
        self._shown = self._position
        return True
