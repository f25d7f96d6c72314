"""Leaving a trace of a simulated run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from antecede.order import MessageId
from antecede.sim.engines import Progress, simulate
from antecede.sim.metrics import Metrics
from antecede.sim.scenario import GROUP, Scenario
from antecede.sim.world import Observer
from antecede.trace.schema import Meta
from antecede.trace.writer import TraceWriter

_COLUMNS = (
    "run", "group", "process", "index", "kind", "origin", "seq", "time",
    "control_bytes", "payload_bytes", "link",
)  # fmt: skip


class Recorder:
    """Turns what the world shows into rows of events."""

    def __init__(self, scenario: Scenario, writer: TraceWriter) -> None:
        self._run = scenario.key()
        self._names = scenario.names()
        self._payload = scenario.payload
        self._index = [0] * scenario.peers
        self._groups: dict[MessageId, str] = {}
        self._grouped = scenario.groups is not None
        self._append = writer.append

    def _row(
        self, process: int, kind: str, message: MessageId, time: int,
        control: int | None = None, payload: int | None = None, link: str | None = None,
    ) -> None:  # fmt: skip
        index = self._index[process]
        self._index[process] = index + 1
        origin = self._names[message.origin]
        group = self._groups.get(message, GROUP)
        self._append((
            self._run, group, self._names[process], index, kind, origin, message.seq, time,
            control, payload, link,
        ))  # fmt: skip

    def send(
        self, process: int, message: MessageId, time: int, control: int, paper: int, group: str | None
    ) -> None:
        if self._grouped and group is not None:
            self._groups[message] = group
        self._row(process, "send", message, time, control, self._payload)

    def receive(self, process: int, link: int, message: MessageId, time: int) -> None:
        self._row(process, "receive", message, time, link=self._names[link])

    def deliver(self, process: int, message: MessageId, time: int) -> None:
        self._row(process, "deliver", message, time)


def simulate_to(
    folder: str | Path,
    scenario: Scenario,
    observers: Sequence[Observer] = (),
    progress: Progress | None = None,
) -> Metrics:
    """Run a scenario, showing it to `observers`, and write its trace into `folder`."""
    names = scenario.names()
    meta = Meta(
        run=scenario.key(),
        groups={group: [names[peer] for peer in members] for group, members in scenario.audiences().items()},
        protocol=scenario.protocol,
        seed=scenario.seed,
        parameters=msgspec.to_builtins(scenario),
    )
    with TraceWriter(folder, meta, _COLUMNS) as writer:
        return simulate(scenario, [Recorder(scenario, writer), *observers], progress=progress)
