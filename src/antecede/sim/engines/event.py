"""The event engine: compiled twins of protocols, one event at a time.

Equal to the reference event for event, and one to two orders of magnitude faster; `tests/sim` compares them
on random scenarios.
"""

from __future__ import annotations

from antecede.sim.engines import compiled
from antecede.sim.kernels.contract import ObserverFeed, Progress, Unsupported
from antecede.sim.metrics import Metrics
from antecede.sim.scenario import Scenario


def supports(scenario: Scenario, observed: bool) -> Unsupported | None:
    """Why the engine cannot run a scenario; None if it can."""
    del observed  # It shows every event.
    return compiled.supports(scenario, "event")


def run(scenario: Scenario, observers: ObserverFeed, progress: Progress | None) -> Metrics:
    return compiled.kernel(scenario, "event").run(scenario, observers, progress)
