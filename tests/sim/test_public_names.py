"""The public module `antecede.sim`."""

from __future__ import annotations

import subprocess
import sys

import antecede.sim


def test_every_public_name_is_there() -> None:
    for name in antecede.sim.__all__:
        assert getattr(antecede.sim, name) is not None
    assert dir(antecede.sim) == sorted(antecede.sim.__all__)
    assert callable(antecede.sim.scenario)
    assert callable(antecede.sim.verify)


def test_importing_it_is_cheap() -> None:
    heavy = {"numba", "numpy", "pyarrow", "pandas", "pyspark"}
    script = (
        "import sys; from antecede.sim import scenario, simulate; "
        "simulate(scenario(protocol='mbcp', peers=2, seconds=0.1)); "
        f"sys.exit(bool({heavy} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_a_world_can_be_built_by_hand() -> None:
    """As the module's docstring says: members, a network, a workload."""
    from antecede.sim import DirectNetwork, Poisson, World, parse_delay, scenario
    from antecede.units import SECOND

    members = scenario(protocol="mbcp", peers=3).members()
    network = DirectNetwork(1, parse_delay("1-20ms"), fifo=False)
    world = World(members, network, Poisson(1, SECOND // 10), [], until=SECOND)
    world.run()
    assert world.packets > 0
    assert not any(member.waiting() for member in members)
