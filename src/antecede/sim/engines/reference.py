"""The reference engine: the world drives protocol objects, one event at a time. It runs every scenario."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from antecede.errors import ProtocolError
from antecede.protocols import catalog
from antecede.protocols.own_class import WrongResultError
from antecede.sim import build
from antecede.sim.kernels.contract import ObserverFeed, Progress
from antecede.sim.metrics import Meter, Metrics
from antecede.sim.probes import Probe
from antecede.sim.scenario import Scenario
from antecede.sim.world import World
from antecede.units import SECOND
from antecede.user_classes import what_was_raised

Drive = Callable[[World], None]

_EVENTS_PER_REPORT = 20_000
"""Events between two calls of `progress`."""


def run(
    scenario: Scenario,
    observers: ObserverFeed,
    progress: Progress | None,
    probes: Sequence[Probe] = (),
    sample_times: Sequence[int] | None = None,
    drive: Drive | None = None,
) -> Metrics:
    """Run a scenario. Exceptions in user-defined code become a `ProtocolError` with their location.

    `probes` measure in addition to the scenario's own; all sample at `sample_times`, if given. `drive`, if
    given, advances the world to its end.
    """
    try:
        return _run(scenario, observers, progress, probes, sample_times, drive)
    except WrongResultError as error:
        raise ProtocolError(f"protocol {scenario.protocol}: {error}") from error
    except ProtocolError:
        raise
    except (Exception, SystemExit) as error:
        own = [] if scenario.protocol in catalog.PROTOCOLS else [f"protocol {scenario.protocol}"]
        own += build.user_class_names(scenario)
        if not own or isinstance(error, MemoryError):
            raise
        raise ProtocolError(f"{' or '.join(own)} raised {what_was_raised(error)}") from error


def _run(
    scenario: Scenario,
    observers: ObserverFeed,
    progress: Progress | None,
    added: Sequence[Probe],
    sample_times: Sequence[int] | None,
    drive: Drive | None,
) -> Metrics:
    members = scenario.members()
    meter = Meter()
    probes = [*build.build_probes(scenario), *added]
    world = scenario.world(members, [meter, observers] if observers else [meter], probes, sample_times)
    if drive is not None:
        drive(world)
    elif progress is None:
        world.run()
    else:
        until = max(1, round(scenario.seconds * SECOND))
        while all(world.step() for _ in range(_EVENTS_PER_REPORT)):
            progress(min(1.0, world.now / until))
    measured = world.network.figures(world.now) | world.figures()
    for probe in probes:
        measured |= probe.figures()
    return meter.metrics(world.packets, world.control_bytes, world.count_stuck(), world.now, measured)
