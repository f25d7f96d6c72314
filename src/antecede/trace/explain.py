"""What waited where, for how long and for what: read off one run's events, as rows.

It holds the whole run and its causal order in memory, so it is for runs that a person looks at.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from antecede.causality import CausalOrder, Execution, Kind, MessageId, Step
from antecede.errors import InputError

_KINDS = {"send": Kind.SEND, "deliver": Kind.DELIVER}


class Wait(msgspec.Struct, frozen=True):
    """A message that waited at a process, and the delivery that released it; nanoseconds."""

    process: str
    message: str
    cause: str | None
    arrived: int
    delivered: int


class DeliveryAtProcess(msgspec.Struct, frozen=True):
    """What became of a message at one process."""

    process: str
    arrived: int | None
    delivered: int | None
    held_ns: int
    held_for: str | None


class Explanation(msgspec.Struct, frozen=True):
    """One message: when it was sent, what it depends on, and what became of it everywhere."""

    message: str
    sent: int
    causes: list[str]
    deliveries: list[DeliveryAtProcess]


class RunEvents:
    """One run's rows, by process, with the causal order that they make."""

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
                    self._ids[message_id(row)] = message = MessageId(rank, row["seq"])
                    histories[-1].append(Step(_KINDS[row["kind"]], message))
        self._order = CausalOrder(Execution(histories))
        self._names = {message: name for name, message in self._ids.items()}

    def happened_before(self, earlier: str, later: str) -> bool:
        one, other = self._ids[earlier], self._ids[later]
        known = one in self._order.position and other in self._order.position
        return known and self._order.happened_before(one, other)

    def waits(self) -> list[Wait]:
        """Every wait in the run, longest first.

        What released a message is the last of its causes to be delivered while it waited.
        """
        found = [wait for process in self.processes for wait in self._waits_at(process)]
        return sorted(found, key=lambda wait: (wait.arrived - wait.delivered, wait.process))

    def _waits_at(self, process: str) -> list[Wait]:
        found = []
        arrived: dict[str, int] = {}
        delivered: list[str] = []
        had: dict[str, int] = {}
        for row in self.processes[process]:
            message = message_id(row)
            if row["kind"] == "receive":
                arrived.setdefault(message, row["time"])
                had.setdefault(message, len(delivered))
            elif row["kind"] == "deliver":
                if row["time"] > arrived.get(message, row["time"]):
                    meanwhile = reversed(delivered[had[message] :])
                    cause = next((each for each in meanwhile if self.happened_before(each, message)), None)
                    found.append(Wait(process, message, cause, arrived[message], row["time"]))
                delivered.append(message)
        return found

    def explain(self, message: str) -> Explanation:
        """One message's immediate causes, and where it was held, for how long, and for which cause."""
        rows = [row for those in self.processes.values() for row in those if message_id(row) == message]
        sent = next((row["time"] for row in rows if row["kind"] == "send"), None)
        if sent is None:
            raise InputError(f"no process sends {message}; write a message as ORIGIN:SEQ")
        causes = [self._names[cause] for cause in self._order.immediate_dependencies(self._ids[message])]
        origin = message.rpartition(":")[0]
        others = sorted(process for process in self.processes if process != origin)
        deliveries = [self._explain_at(process, message) for process in others]
        return Explanation(message, sent, causes, deliveries)

    def _explain_at(self, process: str, message: str) -> DeliveryAtProcess:
        times: dict[str, int] = {}
        for row in self.processes[process]:
            if message_id(row) == message:
                times.setdefault(row["kind"], row["time"])
        wait = next((wait for wait in self._waits_at(process) if wait.message == message), None)
        return DeliveryAtProcess(
            process=process,
            arrived=times.get("receive"),
            delivered=times.get("deliver"),
            held_ns=wait.delivered - wait.arrived if wait else 0,
            held_for=wait.cause if wait else None,
        )


def message_id(row: dict[str, Any]) -> str:
    """A row's message as people write it."""
    return f"{row['origin']}:{row['seq']}"
