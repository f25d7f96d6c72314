"""The simulator: protocols driven in a deterministic world. Equal scenarios leave the same trace everywhere.

    from antecede.sim import scenario, simulate

    result = simulate(scenario(protocol="mbcp", peers=20, seconds=5, delay="1-100ms"))
    print(result.metrics.control_bytes_mean, result.engine, result.reason)

`simulate` runs a `Scenario` and returns its `Result`; `simulate_to` also writes the trace; `verify` judges a
protocol on random executions. A `World` can be built by hand from members, a `Network` and a `Workload`, to
test your own code against a simulated network. Scenarios can also name your own subclasses of `Delay`,
`Network`, `Workload`, `Probe` and `antecede.overlay.Overlay`, as `module:Class`.

Importing this module needs no extra. Compiled engines are loaded when a run is worth it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from antecede.sim.engines import Result, simulate
from antecede.sim.metrics import Metrics
from antecede.sim.network import (
    Arrival,
    Delay,
    DirectNetwork,
    GraphModel,
    Network,
    NodesModel,
    RelayedModel,
    RoutedModel,
    parse_delay,
)
from antecede.sim.network.faults import Fault, parse_fault
from antecede.sim.probes import Probe
from antecede.sim.scenario import Scenario, scenario
from antecede.sim.verify import VerifyReport, verify
from antecede.sim.workload import Periodic, Poisson, Scheduled, Workload
from antecede.sim.world import LinkChange, Observer, World

if TYPE_CHECKING:
    from antecede.sim.record import simulate_to

__all__ = [
    "Arrival",
    "Delay",
    "DirectNetwork",
    "Fault",
    "GraphModel",
    "LinkChange",
    "Metrics",
    "Network",
    "NodesModel",
    "Observer",
    "Periodic",
    "Poisson",
    "Probe",
    "RelayedModel",
    "Result",
    "RoutedModel",
    "Scenario",
    "Scheduled",
    "VerifyReport",
    "Workload",
    "World",
    "parse_delay",
    "parse_fault",
    "scenario",
    "simulate",
    "simulate_to",
    "verify",
]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name == "simulate_to":  # Imports numpy and pyarrow.
            from antecede.sim.record import simulate_to

            return simulate_to
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
