"""The reference engine: the world drives protocol objects, one event at a time. It runs every scenario."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from pathlib import Path

from antecede.errors import ProtocolError
from antecede.protocols import catalog
from antecede.sim.kernels.contract import ObserverFeed, Progress
from antecede.sim.metrics import Meter, Metrics
from antecede.sim.probes import PROBES, Probe
from antecede.sim.scenario import Scenario
from antecede.units import SECOND

_EVENTS_PER_REPORT = 20_000
"""Events between two calls of `progress`."""


def run(
    scenario: Scenario,
    observers: ObserverFeed,
    progress: Progress | None,
    probes: Sequence[Probe] = (),
    sample_times: Sequence[int] | None = None,
) -> Metrics:
    """Run a scenario. What a user's own protocol raises becomes a `ProtocolError` that says where.

    `probes` measure beside the scenario's own; all sample at `sample_times`, if given.
    """
    try:
        return _run(scenario, observers, progress, probes, sample_times)
    except (Exception, SystemExit) as error:
        if scenario.protocol in catalog.PROTOCOLS or isinstance(error, MemoryError):
            raise
        where = traceback.extract_tb(error.__traceback__)[-1]
        raise ProtocolError(
            f"protocol {scenario.protocol} raised {type(error).__name__}: {error} "
            f"({Path(where.filename).name}, line {where.lineno})"
        ) from error


def _run(
    scenario: Scenario,
    observers: ObserverFeed,
    progress: Progress | None,
    added: Sequence[Probe],
    sample_times: Sequence[int] | None,
) -> Metrics:
    members = scenario.members()
    meter = Meter(scenario.peers)
    probes = [PROBES[name](round(scenario.warmup * SECOND)) for name in scenario.probes]
    probes += added
    world = scenario.world(members, [meter, observers] if observers else [meter], probes, sample_times)
    if progress is None:
        world.run()
    else:
        until = max(1, round(scenario.seconds * SECOND))
        while all(world.step() for _ in range(_EVENTS_PER_REPORT)):
            progress(min(1.0, world.now / until))
    stuck = sum(len(member.waiting()) for member in members)
    measured = world.network.figures(world.now)
    for probe in probes:
        measured |= probe.figures()
    return meter.metrics(world.packets, world.control_bytes, stuck, world.now, measured)
