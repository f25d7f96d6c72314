"""What the demo runs: five systems and three live processes.

Two of the systems have sizes at which compiled engines help; at the sizes of the others, the reference engine
takes no longer than compiling their kernels on a new machine would.
"""

from __future__ import annotations

from typing import Any

import msgspec

from antecede.live.trial.cluster import TrialPlan
from antecede.sim.scenario import Scenario, scenario


class DemoSystem(msgspec.Struct, frozen=True):
    """A system of one of the papers."""

    paper: str
    title: str
    setting: Scenario


class DemoPlan(msgspec.Struct, frozen=True):
    """The systems, the live trial, and the number of files in which the shuffled stream arrives."""

    systems: list[DemoSystem]
    live: TrialPlan
    files: int = 3

    @property
    def flat(self) -> DemoSystem:
        """The system whose messages become the stream, and in whose trace a fault is planted."""
        return next(each for each in self.systems if each.setting.protocol == "mbcp")


def _system(paper: str, title: str, protocol: str, **fields: Any) -> DemoSystem:
    common = {"seed": 7, "payload": 50, "workload": "poisson", "delay": "normal:0-50ms"}
    return DemoSystem(paper, title, scenario(protocol=protocol, **common | fields))


def _systems(
    flat: int, phones: int, hypercube: int, site: int, trees: int, seconds: float
) -> list[DemoSystem]:
    sites = {"subgroups": [f"rt:{site}", f"lt:{site}", f"vt:{site}"]}
    return [
        _system(
            "000", "phones behind super peers", "freescale", peers=3 * phones,
            layout={"inside": [phones, phones]}, rate=8, seconds=seconds,
        ),
        _system("001", "immediate dependencies", "mbcp", peers=flat, rate=10, seconds=seconds),
        _system("002", "flooding a hypercube", "flooding", peers=hypercube, rate=8, seconds=seconds),
        _system(
            "003", "sites with clocks of their own", "hcg", peers=3 * site, layout=sites, rate=4,
            seconds=seconds, delay="normal:1-50ms", local_delay="0-5ms",
        ),
        _system("004", "trees with aggregation", "vcube-agg", peers=trees, rate=4, seconds=seconds),
    ]  # fmt: skip


PLAN = DemoPlan(
    _systems(flat=160, phones=20, hypercube=128, site=16, trees=64, seconds=5.0),
    TrialPlan(size=3, messages=240, seconds=6.0, delay="1ms-40ms", kill_every=4.0, seed=7),
)
SMALL = DemoPlan(
    _systems(flat=8, phones=3, hypercube=8, site=2, trees=8, seconds=1.5),
    TrialPlan(size=3, messages=60, seconds=3.0, delay="1ms-20ms", kill_every=2.0, seed=7),
    files=2,
)
"""A small plan for tests."""
