"""Explains a run's waits: what was held where, for how long, and for which cause.

It holds the whole run and its causal order in memory, so it is for runs small enough for a person to inspect.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from antecede.causality import CausalOrder, Execution, Kind, MessageId, Step
from antecede.errors import InputError
from antecede.trace.bad_rows import BadRows
from antecede.trace.reader import natural_order, read_run
from antecede.trace.schema import shown_message

_KINDS = {"send": Kind.SEND, "deliver": Kind.DELIVER}


class Wait(msgspec.Struct, frozen=True):
    """A message that was held at a process, and the cause whose delivery released it; nanoseconds."""

    process: str
    message: str
    cause: str | None
    arrived: int
    delivered: int


class DeliveryAtProcess(msgspec.Struct, frozen=True):
    """When one process received and delivered a message, and how long it was held in between.

    Where the log has no times, these are None.
    """

    process: str
    arrived: int | None
    delivered: int | None
    index: int | None
    """The position of the delivery among the process's events, from 1; None if there is none."""
    held_ns: int | None
    held_for: str | None
    before_cause: str | None = None
    """A cause that the process delivered only later: this delivery is a causal violation."""


class Explanation(msgspec.Struct, frozen=True):
    """One message: when it was sent, its immediate causes, and its delivery at every process."""

    message: str
    sent: int | None
    """None if the log has no times."""
    causes: list[str]
    deliveries: list[DeliveryAtProcess]


def explain_message(
    trace: Path | str, message: str, run: str | None = None, bad: BadRows | None = None
) -> Explanation:
    """Where a message (its own id, or ORIGIN:SEQ) of a trace was held, for how long, and for which cause.

    A trace of several runs needs `run`. `bad` counts the rows of each file.
    """
    return RunEvents(read_run(Path(trace), run, bad)).explain(message)


class RunEvents:
    """One run's rows by process, and their causal order."""

    def __init__(self, events: Sequence[dict[str, Any]]) -> None:
        self.processes: dict[str, list[dict[str, Any]]] = {}
        for row in sorted(events, key=lambda row: row["index"]):
            self.processes.setdefault(row["process"], []).append(row)
        ranks = {process: rank for rank, process in enumerate(self.processes)}
        self._ids: dict[str, MessageId] = {}
        histories: list[list[Step]] = []
        for rows in self.processes.values():
            histories.append([])
            for row in rows:
                if row["kind"] in _KINDS:
                    rank = ranks.setdefault(row["origin"], len(ranks))
                    self._ids[shown_message(row)] = message = MessageId(rank, row["seq"])
                    histories[-1].append(Step(_KINDS[row["kind"]], message))
        # In tables without times, the time column is a copy of the index.
        self.has_times = any(row["time"] != row["index"] for row in events)
        self._order = CausalOrder(Execution(histories))
        self._names = {message: name for name, message in self._ids.items()}

    def happened_before(self, earlier: str, later: str) -> bool:
        """Whether one message happened before another; always false for orphans."""
        first, second = self._ids[earlier], self._ids[later]
        both_sent = first in self._order.position and second in self._order.position
        return both_sent and self._order.happened_before(first, second)

    def waits(self) -> list[Wait]:
        """Every wait in the run, longest first.

        A message is released by the last of its causes to be delivered while it waits.
        """
        waits = [wait for process in self.processes for wait in self._waits_at(process)]
        return sorted(waits, key=lambda wait: (wait.arrived - wait.delivered, wait.process))

    def _waits_at(self, process: str) -> list[Wait]:
        waits = []
        arrived: dict[str, int] = {}
        delivered: list[str] = []
        delivered_on_arrival: dict[str, int] = {}
        for row in self.processes[process]:
            message = shown_message(row)
            if row["kind"] == "receive":
                arrived.setdefault(message, row["time"])
                delivered_on_arrival.setdefault(message, len(delivered))
            elif row["kind"] == "deliver":
                if row["time"] > arrived.get(message, row["time"]):
                    meanwhile = reversed(delivered[delivered_on_arrival[message] :])
                    causes = (other for other in meanwhile if self.happened_before(other, message))
                    waits.append(Wait(process, message, next(causes, None), arrived[message], row["time"]))
                delivered.append(message)
        return waits

    def explain(self, message: str) -> Explanation:
        """One message's immediate causes, and where it was held, for how long, and for which cause."""
        sends = [
            row
            for rows in self.processes.values()
            for row in rows
            if row["kind"] == "send" and shown_message(row) == message
        ]
        if not sends:
            raise InputError(
                f"no process sends {message}; write a message as the log does, or without ids as ORIGIN:SEQ"
            )
        causes = self._immediate_causes(message)
        origin = sends[0]["process"]
        others = sorted((each for each in self.processes if each != origin), key=natural_order)
        deliveries = [self._explain_at(each, message) for each in others]
        return Explanation(message, sends[0]["time"] if self.has_times else None, causes, deliveries)

    def _late_cause(self, process: str, message: str) -> str | None:
        """A cause of a message that a process delivered only after it, an immediate cause if there is one."""
        steps = [
            shown_message(row)
            for row in self.processes[process]
            if row["kind"] == "deliver" or (row["kind"] == "send" and row["origin"] == process)
        ]
        if message not in steps:
            return None
        place = steps.index(message)
        had = set(steps[:place])
        late = [
            other for other in steps[place + 1 :] if other not in had and self.happened_before(other, message)
        ]
        immediate = self._immediate_causes(message)
        return next((cause for cause in late if cause in immediate), late[0] if late else None)

    def _immediate_causes(self, message: str) -> list[str]:
        return [self._names[cause] for cause in self._order.immediate_dependencies(self._ids[message])]

    def _explain_at(self, process: str, message: str) -> DeliveryAtProcess:
        times: dict[str, int] = {}
        index = None
        for place, row in enumerate(self.processes[process], start=1):
            if shown_message(row) == message:
                if row["kind"] == "deliver" and index is None:
                    index = place
                if self.has_times:
                    times.setdefault(row["kind"], row["time"])
        wait = next((wait for wait in self._waits_at(process) if wait.message == message), None)
        return DeliveryAtProcess(
            process=process,
            arrived=times.get("receive"),
            delivered=times.get("deliver"),
            index=index,
            held_ns=None if not self.has_times else wait.delivered - wait.arrived if wait else 0,
            held_for=wait.cause if wait else None,
            before_cause=self._late_cause(process, message),
        )
