"""The main job in small: three protocols at several sizes, simulated, audited and drawn."""

from __future__ import annotations

from antecede.sim.grid import expand
from antecede.sim.scenario import Scenario, scenario

TITLE = "What does it cost to keep messages in causal order?"


def grid() -> list[Scenario]:
    """The study: plain vector clocks, compressed ones, and immediate dependencies."""
    return expand(
        {"seconds": 2.0, "rate": 5.0, "delay": "1-200ms", "workload": "poisson"},
        {
            "protocol": ["timestamp", "timestamp-diff", "mbcp"],
            "peers": [4, 8, 16, 32, 64],
            "seed": [1, 2],
        },
    )


def story() -> Scenario:
    """A run small enough to draw, in which a message overtakes its cause."""
    return scenario(
        protocol="mbcp",
        peers=4,
        seconds=0.6,
        workload="poisson",
        rate=2.0,
        delay="30-500ms",
        seed=225,
        most_messages=5,
    )
