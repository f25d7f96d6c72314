"""Plants a fault in a copy of a trace by exchanging two deliveries, and checks that the audit finds it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from antecede.audit.core import Finding
from antecede.audit.diagram import diagram
from antecede.audit.run import audit_and_excerpt
from antecede.demo.stream import StreamedRow
from antecede.errors import InputError
from antecede.sweep.run import Progress
from antecede.trace.reader import read_metas, read_trace
from antecede.trace.writer import TraceWriter


class PlantedFault(msgspec.Struct, frozen=True):
    """A process that seems to have delivered an effect before its cause."""

    process: str
    cause: str
    effect: str


class FoundFault(msgspec.Struct, frozen=True):
    """What was planted and what the audit found."""

    planted: PlantedFault
    deliveries: int
    violations: int
    finding: Finding | None
    engine: str
    picture: str
    """The violation drawn, as SVG; empty if there is none."""
    about: str
    """What the horizontal axis of the picture means."""
    seconds: float = 0.0

    @property
    def wrong(self) -> str:
        """What differs from the expected result; empty if the audit found what was planted and nothing
        else."""
        found = self.finding
        if found is None:
            return "the audit did not find the planted fault"
        if self.violations > 1:
            return f"the audit found {self.violations:,} violations where one was planted"
        same = PlantedFault(found.process, found.cause, found.effect) == self.planted
        return "" if same else f"the audit found another fault than the planted one: {found.text}"


def plant(trace: Path, rows: Sequence[StreamedRow], folder: Path) -> PlantedFault:
    """Copy a trace with two neighbouring deliveries exchanged, of which one is the other's cause.

    `rows` are its messages with their causes.
    """
    table = read_trace(trace).sort_by([("process", "ascending"), ("index", "ascending")])
    causes = {row.message: set(row.causes) for row in rows}
    first, fault = _neighbours(table, causes)
    places = np.arange(table.num_rows)
    places[[first, first + 1]] = first + 1, first
    exchanged = table.take(pa.array(places))
    for name in ("index", "time"):  # The rows change places; the process's clock does not.
        place = table.schema.get_field_index(name)
        exchanged = exchanged.set_column(place, table.schema.field(name), table.column(name))
    (meta,) = read_metas(trace)
    with TraceWriter(folder, meta, tuple(table.column_names)) as writer:
        writer.extend(exchanged)
    return fault


def _neighbours(table: pa.Table, causes: dict[str, set[str]]) -> tuple[int, PlantedFault]:
    """The position of a delivery that is directly followed, at its process, by the delivery of one of its
    effects.

    The effect had been sent by then, so the process could have received it. Of several, the pair with the
    longest time between them, which is the most visible.
    """
    processes, kinds = table.column("process"), table.column("kind")
    seqs = table.column("seq").cast(pa.string())
    names = pc.binary_join_element_wise(table.column("origin"), seqs, ":").to_pylist()
    origins = table.column("origin")
    different = pc.not_equal(origins[:-1], origins[1:]).to_numpy()  # Otherwise sender order would break too.
    deliveries = pc.equal(kinds, "deliver").to_numpy()
    same = pc.equal(processes[:-1], processes[1:]).to_numpy()
    times = table.column("time").to_numpy()
    sends = np.flatnonzero(pc.equal(kinds, "send"))
    sent = {names[place]: times[place] for place in sends}
    chosen = -1
    for place in np.flatnonzero(deliveries[:-1] & deliveries[1:] & same & different):
        effect = names[place + 1]
        possible = names[place] in causes[effect] and sent[effect] < times[place]
        if possible and (chosen < 0 or times[place + 1] - times[place] > times[chosen + 1] - times[chosen]):
            chosen = int(place)
    if chosen < 0:
        raise InputError("no delivery of the run is directly followed by that of its effect")
    return chosen, PlantedFault(processes[chosen].as_py(), names[chosen], names[chosen + 1])


def find_fault(planted: PlantedFault, trace: Path, progress: Progress) -> FoundFault:
    """Audit a trace on Spark, and draw the worst violation."""
    result, excerpts = audit_and_excerpt(
        str(trace), "spark", 3, None, lambda findings: range(min(1, len(findings))), progress
    )
    finding = result.findings[0] if result.findings else None
    picture, about = "", ""
    if finding is not None:
        picture, about = diagram(excerpts[0], finding.text)
    verdict = result.verdict
    return FoundFault(
        planted, verdict.deliveries, verdict.causal_violations, finding, result.engine, picture, about
    )
