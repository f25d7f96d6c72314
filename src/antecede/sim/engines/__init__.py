"""Engines run scenarios: `simulate`, and the choice of the engine.

- `reference`: the world drives protocol objects, one event at a time. It defines the truth and runs
everything.
- `event`: compiled twins of protocols, one event at a time too.
- `recurrence`: compiled, without events, for flat protocols with delays that do not depend on the protocol.

All give the same metrics and show observers the same events, so the choice is a matter of time alone. It is
made once, by `choose`: the fastest engine that supports the scenario, but the reference where a run is so
short that loading compiled code would take longer. `simulate` and `run` return what was chosen and why in a
`Result`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, cast, get_args

from antecede.errors import InputError
from antecede.sim.engines import compiled, event, recurrence, reference
from antecede.sim.engines.reference import Drive
from antecede.sim.kernels.contract import CapacityExceeded, ObserverFeed, Progress, Unsupported
from antecede.sim.metrics import Metrics
from antecede.sim.network import RoutedModel
from antecede.sim.scenario import Scenario
from antecede.sim.scenario_detector import parse_detector
from antecede.sim.world import Observer
from antecede.units import SECOND

__all__ = [
    "Choice",
    "Drive",
    "Engine",
    "Progress",
    "Result",
    "choose",
    "parse_engine",
    "precompile",
    "run",
    "simulate",
]

Engine = Literal["auto", "reference", "event", "recurrence"]

_COMPILED = {"recurrence": recurrence, "event": event}
"""Compiled engines, the fastest first."""
_SHORT = {"recurrence": 300_000, "event": 1_000_000}
"""Packets that the reference processes in the time of loading compiled code, or of compiling it on a new
machine."""
_TINY = 20_000
"""Packets of a run that is not worth a compiled engine even if its code is already loaded."""
_HOPS = 20
"""Packets per delivery where packets are routed."""


class Choice(NamedTuple):
    """The engine for a run, and why it was chosen."""

    engine: Engine
    reason: str
    requested: bool
    """The user requested this engine, so another one must not replace it."""


class Result(NamedTuple):
    """A finished run: its metrics, the engine that ran it and why it was that one."""

    metrics: Metrics
    engine: Engine
    reason: str


def simulate(
    scenario: Scenario,
    observers: Sequence[Observer] = (),
    engine: Engine = "auto",
    progress: Progress | None = None,
    long: bool = False,
    drive: Drive | None = None,
) -> Result:
    """Choose an engine and run a scenario, showing every event to `observers`; for `long` see `choose`, for
    `drive` see `run`."""
    return run(choose(scenario, bool(observers), engine, long), scenario, observers, progress, drive)


def choose(scenario: Scenario, observed: bool, engine: Engine = "auto", long: bool = False) -> Choice:
    """The engine for a run. Asking for an engine that cannot run the scenario is an `InputError`.

    A `long` run is worth compiled code, however few packets it seems to have.
    """
    if engine == "reference":
        return Choice(engine, "it was asked for", requested=True)
    if engine != "auto":
        unsupported = _COMPILED[engine].supports(scenario, observed)
        if unsupported is not None:
            raise InputError(
                f"the {engine} engine cannot run this scenario: {unsupported.reason}; use reference or auto"
            )
        return Choice(engine, "it was asked for", requested=True)
    unsupported = Unsupported(f"{scenario.protocol} has no compiled version")
    if scenario.has_changes:
        unsupported = compiled.supports(scenario, "event") or unsupported
    for name in _COMPILED:
        if not compiled.has_kernel(scenario, name):
            continue
        if not long and _packets(scenario) < _SHORT[name]:
            return Choice("reference", "the run is short", requested=False)
        unsupported = _COMPILED[name].supports(scenario, observed)
        if unsupported is None:
            return Choice(cast(Engine, name), "the fastest that can do it", requested=False)
    return Choice("reference", unsupported.reason, requested=False)


def run(
    choice: Choice,
    scenario: Scenario,
    observers: Sequence[Observer] = (),
    progress: Progress | None = None,
    drive: Drive | None = None,
) -> Result:
    """Run a scenario on the engine of `choice`. If that is the reference, `drive` may move its world on.

    If its kernel runs out of capacity, the reference runs the scenario instead, and `Result.reason` says so;
    unless the user asked for that engine, which is then an `InputError`.
    """
    feed = ObserverFeed(observers)
    if choice.engine == "reference":
        return Result(reference.run(scenario, feed, progress, drive=drive), choice.engine, choice.reason)
    try:
        metrics = _COMPILED[choice.engine].run(scenario, feed, progress)
    except CapacityExceeded:
        full = f"more is in flight than the {choice.engine} engine has capacity for"
        if choice.requested:
            raise InputError(f"{full}; use reference or auto") from None
        feed.start_over()
        return Result(reference.run(scenario, feed, progress), "reference", full)
    return Result(metrics, choice.engine, choice.reason)


def parse_engine(text: str) -> Engine:
    """An engine by its name, as a user writes it."""
    engines = get_args(Engine)
    if text not in engines:
        raise InputError(f"there is no engine '{text}'; there are {', '.join(engines)}")
    return cast(Engine, text)


def precompile(scenarios: Sequence[Scenario], observed: bool = False) -> list[bool]:
    """Compile what scenarios need before worker processes do so in parallel. Returns which of them are
    `long`.

    Compiled code is loaded once for all runs of a kind, so it is worthwhile for many short runs too.
    """
    packets: dict[tuple[str, type], float] = {}
    for scenario in scenarios:
        kind = (scenario.protocol, type(scenario.network))
        packets[kind] = packets.get(kind, 0) + _packets(scenario)
    many = {kind for kind, count in packets.items() if count >= max(_SHORT.values())}
    long = [
        (scenario.protocol, type(scenario.network)) in many and _packets(scenario) >= _TINY
        for scenario in scenarios
    ]
    wanted: dict[tuple[Engine, str, type, bool], Scenario] = {}
    for scenario, worth_it in zip(scenarios, long, strict=True):
        engine = choose(scenario, observed, long=worth_it).engine
        kind_of_run = engine, scenario.protocol, type(scenario.network), scenario.is_changing
        wanted.setdefault(kind_of_run, scenario)
    for (engine, protocol, _, is_changing), scenario in wanted.items():
        if engine != "reference":
            small = Scenario(
                protocol,
                peers=3,
                seconds=0.01,
                network=scenario.network,
                probes=scenario.probes,
                detector="adaptive" if is_changing else None,
            )
            simulate(small, engine=engine)
    return long


def _packets(scenario: Scenario) -> float:
    """The approximate number of packets that a run sends."""
    hops = _HOPS if isinstance(scenario.network, RoutedModel) else compiled.packets_per_delivery(scenario)
    packets = scenario.expected_messages() * scenario.peers * hops
    if scenario.is_changing:
        reports = scenario.seconds * SECOND / parse_detector(scenario.detector).report
        packets += reports * scenario.peers**2
    return packets
