"""Writing the trace of a simulated run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from antecede.sim import engines
from antecede.sim.engines import Drive, Engine, Progress, Result
from antecede.sim.overlap_record import OverlapRecorder, founding_members
from antecede.sim.recorder import BATCH, COLUMNS, Recorder
from antecede.sim.scenario import Scenario
from antecede.sim.world import Observer
from antecede.trace.schema import Members, Meta
from antecede.trace.writer import PART_ROWS, TraceWriter


def simulate_to(
    folder: str | Path,
    scenario: Scenario,
    observers: Sequence[Observer] = (),
    progress: Progress | None = None,
    engine: Engine = "auto",
    long: bool = False,
    receives: bool = True,
    sample: int = 1,
    part_rows: int = PART_ROWS,
    drive: Drive | None = None,
) -> Result:
    """Run a scenario, showing every event to `observers`, and write its trace into `folder`.

    Without `receives` the trace has only sends and deliveries, which is all that an audit needs. With a
    `sample` of n it has every n-th message of each sender, with all its events. Parts of `part_rows` rows
    become visible to readers as they are completed. `drive` may move the reference engine's world on.
    """
    choice = engines.choose(scenario, True, engine, long)
    overlaps = scenario.has_overlapping_changes
    columns = COLUMNS + ("member",) * scenario.is_changing + ("of_process",) * overlaps
    meta = Meta(
        run=scenario.key(),
        groups=dict(founding_members(scenario) if overlaps else _members(scenario)),
        protocol=scenario.protocol,
        seed=scenario.seed,
        parameters=msgspec.to_builtins(scenario) | ({"sample": sample} if sample > 1 else {}),
    )
    with TraceWriter(folder, meta, columns, part_rows=part_rows) as writer:
        kind = OverlapRecorder if overlaps else Recorder
        recorder = kind(scenario, writer, receives, sample, min(BATCH, part_rows))
        result = engines.run(choice, scenario, [recorder, *observers], progress, drive)
        recorder.flush()
        return result


def _members(scenario: Scenario) -> Members:
    names = scenario.peer_names()
    return {group: [names[peer] for peer in members] for group, members in scenario.audiences().items()}
