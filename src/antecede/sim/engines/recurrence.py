"""The recurrence engine: computes delivery times of flat protocols message by message, without events.

For delays that do not depend on the protocol. It has no events to show, so no observers.
"""

from __future__ import annotations

from antecede.sim.engines import compiled
from antecede.sim.kernels.contract import ObserverFeed, Progress, Unsupported
from antecede.sim.metrics import Metrics
from antecede.sim.scenario import Scenario


def supports(scenario: Scenario, observed: bool) -> Unsupported | None:
    """Why the engine cannot run a scenario; None if it can."""
    if observed and compiled.has_kernel(scenario, "recurrence"):
        return Unsupported("traces and observers need single events, and this engine computes none")
    return compiled.supports(scenario, "recurrence")


def run(scenario: Scenario, observers: ObserverFeed, progress: Progress | None) -> Metrics:
    return compiled.kernel(scenario, "recurrence").run(scenario, observers, progress)
