"""Which engine runs a scenario.

- reference: the world drives protocol objects, one event at a time. It defines what is true, and does all.
- event: compiled twins of protocols, one event at a time too.
- recurrence: compiled, without events, for flat protocols with delays that do not depend on the protocol.

All give the same figures and show observers the same events, so the choice is a matter of time alone: the
fastest that can do the scenario, but the reference where a run is so short that loading compiled code would
take longer.
"""

from __future__ import annotations

import importlib.util
import traceback
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Literal, cast, get_args

from antecede.errors import InputError, ProtocolError
from antecede.protocols import catalog
from antecede.sim.metrics import Meter, Metrics
from antecede.sim.probes import PROBES
from antecede.sim.routed import RoutedModel
from antecede.sim.scenario import Scenario
from antecede.sim.world import Observer
from antecede.units import SECOND

Engine = Literal["auto", "reference", "event", "recurrence"]
Progress = Callable[[float], None]
"""Told which share of a run is done, now and then."""

_EVENT = {
    "flooding": "flooding",
    "pc": "pc",
    "freescale": "freescale",
    "hcg": "hcg",
    "basic": "hcg",
    "vcube": "vcube",
    "vcube-agg": "vcube",
    "timestamp": "flat",
    "timestamp-diff": "flat",
    "mbcp": "flat",
    "depseq": "flat",
}
"""Protocols with an event kernel, and its module."""
_RECURRENCE = ("timestamp", "timestamp-diff", "mbcp", "depseq")
_SHORT = {"recurrence": 300_000, "event": 1_000_000}
"""Packets that the reference does while code is being loaded, or on a new machine compiled."""
_TINY = 20_000
"""Packets of a run that is not worth it even if code is loaded already."""
_HOPS, _ACKS = 20, 10
"""How many packets a delivery takes where they are routed, and where members of a subgroup acknowledge."""
_STEPS = 20_000


def named(text: str) -> Engine:
    """An engine by its name, as a user writes it."""
    engines = get_args(Engine)
    if text not in engines:
        raise InputError(f"there is no engine '{text}'; there are {', '.join(engines)}")
    return cast(Engine, text)


def choose(
    given: Scenario, observed: bool, engine: Engine = "auto", long: bool = False
) -> tuple[Engine, str]:
    """The engine for a run, and why. An engine that was asked for and cannot do it is an `InputError`.

    A `long` run is worth compiled code, whatever it looks like.
    """
    if engine == "reference":
        return engine, "it was asked for"
    if engine == "auto":
        why = ""
        faster: tuple[Engine, ...] = ("recurrence", "event") if given.protocol in _RECURRENCE else ("event",)
        for fitting in faster:
            if not long and _packets(given) < _SHORT[fitting]:
                return "reference", "the run is short"
            why = _unfit(given, observed, fitting)
            if not why:
                return fitting, "the fastest that can do it"
        return "reference", why
    unfit = _unfit(given, observed, engine)
    if unfit:
        raise InputError(f"the {engine} engine cannot do this run: {unfit}; take reference, or auto")
    return engine, "it was asked for"


def _packets(given: Scenario) -> float:
    """About how many a run will send."""
    each = {
        "hcg": _ACKS,
        "basic": _ACKS,
        "flooding": given.peers.bit_length(),
        "pc": given.peers.bit_length(),
    }
    hops = _HOPS if isinstance(given.network, RoutedModel) else each.get(given.protocol, 1)
    return given.messages_expected() * given.peers * hops


def _unfit(given: Scenario, observed: bool, engine: Engine) -> str:
    """Why a compiled engine cannot do a run; nothing if it can."""
    if importlib.util.find_spec("numba") is None:
        return "numba is not installed (pip install 'antecede[sim]')"
    if not (given.protocol in _RECURRENCE if engine == "recurrence" else _event_kernel(given)):
        return f"{given.protocol} has no compiled twin there"
    if engine == "recurrence" and observed:
        return "its events are to be seen one by one"
    if given.sends is not None:
        return "its sends are given one by one"
    if any(text.startswith("quantiles:") for text in _delays(given)):
        return "its delays are given by quantiles"
    unfit: str = _kernel(given, engine).unfit(given)
    return unfit


def _delays(given: Scenario) -> list[str]:
    """All distributions that a run draws from."""
    network = [getattr(given.network, name, None) for name in ("delay", "propagation")]
    return [text for text in (given.delay, given.local_delay, given.interval, *network) if text]


def _event_kernel(given: Scenario) -> str:
    """The module that does a protocol's events. A class that is none of ours may name one that does just what
    it does, but for itself alone: those made from it may do anything."""
    twin: str = vars(given.protocol_class()).get("twin", "")
    return _EVENT.get(given.protocol) or twin.partition(" ")[0]


def _kernel(given: Scenario, engine: Engine) -> ModuleType:
    name = "flat.by_recurrence" if engine == "recurrence" else f"{_event_kernel(given)}.kernel"
    return import_module(f"antecede.sim.kernels.{name}")


def compile_for(scenarios: Sequence[Scenario], observed: bool = False) -> list[bool]:
    """Compile what these will need, so that those who run them do not all do so; which of them are `long`.

    Compiled code is loaded once for all runs of a kind, so many short ones are worth it too.
    """
    packets: dict[tuple[str, type], float] = {}
    for given in scenarios:
        kind = (given.protocol, type(given.network))
        packets[kind] = packets.get(kind, 0) + _packets(given)
    many = {kind for kind, count in packets.items() if count >= max(_SHORT.values())}
    long = [(given.protocol, type(given.network)) in many and _packets(given) >= _TINY for given in scenarios]
    wanted: dict[tuple[Engine, str, type], Scenario] = {}
    for given, worth_it in zip(scenarios, long, strict=True):
        engine, _ = choose(given, observed, long=worth_it)
        wanted.setdefault((engine, given.protocol, type(given.network)), given)
    for (engine, protocol, _), given in wanted.items():
        if engine != "reference":
            small = Scenario(protocol, peers=3, seconds=0.01, network=given.network, probes=given.probes)
            simulate(small, engine=engine)
    return long


def simulate(
    given: Scenario,
    observers: Sequence[Observer] = (),
    engine: Engine = "auto",
    progress: Progress | None = None,
    long: bool = False,
) -> Metrics:
    """Run a scenario, showing it to `observers`; for `long` see `choose`."""
    chosen, _ = choose(given, bool(observers), engine, long)
    if chosen != "reference":
        from antecede.sim.kernels.runtime.events import Full

        try:
            metrics: Metrics = _kernel(given, chosen).run(given, observers, progress)
        except Full:
            if engine != "auto":
                raise InputError(f"more is under way than the {engine} engine has room for") from None
        else:
            return metrics
    try:
        return _refer(given, observers, progress)
    except (Exception, SystemExit) as error:
        if given.protocol in catalog.PROTOCOLS or isinstance(error, MemoryError):
            raise
        where = traceback.extract_tb(error.__traceback__)[-1]
        raise ProtocolError(
            f"protocol {given.protocol} raised {type(error).__name__}: {error} "
            f"({Path(where.filename).name}, line {where.lineno})"
        ) from error


def _refer(given: Scenario, observers: Sequence[Observer], progress: Progress | None) -> Metrics:
    members = given.members()
    meter = Meter(given.peers)
    probes = [PROBES[name](round(given.warmup * SECOND)) for name in given.probes]
    world = given.world(members, [meter, *observers], probes)
    if progress is None:
        world.run()
    else:
        until = max(1, round(given.seconds * SECOND))
        while all(world.step() for _ in range(_STEPS)):
            progress(min(1.0, world.now / until))
    stuck = sum(len(member.waiting()) for member in members)
    measured = world.network.figures(world.now)
    for probe in probes:
        measured |= probe.figures()
    return meter.metrics(world.packets, world.control_bytes, stuck, world.now, measured)
