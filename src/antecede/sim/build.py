"""Builds the parts of a run from the fields of a scenario: its network, workload, overlay and probes.

A part is named by a word, by a table with its parameters, or as `module:Class` (`user_classes`). Tables are
written as text in a scenario, except for networks, which have types of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from antecede import user_classes
from antecede.errors import InputError
from antecede.overlay.graph_file import file_digest, read_graph
from antecede.overlay.random_graph import random_graph
from antecede.overlay.shapes import SHAPES, Neighbours, Overlay, validated_neighbours
from antecede.sim import counter_rng
from antecede.sim.changes import is_group_fault
from antecede.sim.network import (
    DirectNetwork,
    GraphModel,
    Network,
    NodesModel,
    RelayedModel,
    RoutedModel,
    Uniform,
    UserNetwork,
    checked_figures,
    parse_delay,
)
from antecede.sim.network.faults import parse_fault
from antecede.sim.probes import PROBES, Probe
from antecede.sim.workload import (
    Once,
    OncePerWindow,
    Periodic,
    Poisson,
    RandomIntervals,
    Rounds,
    Scheduled,
    UserWorkload,
    Workload,
)
from antecede.units import SECOND, parse_duration
from antecede.user_classes import names_user_class, parse_spec

if TYPE_CHECKING:
    from antecede.sim.scenario import Scenario

WORKLOADS = ("periodic", "poisson", "drawn", "once", "starts", "rounds", "windows", "given")
NETWORKS = ("relayed", "routed", "nodes", "graph")
OVERLAYS = (*SHAPES, "random", "graph")
_IN_TABLES = ("delay", "local_delay", "interval", "workload", "overlay")


def written_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a scenario with tables of parts as text, and text of networks as tables."""
    written = dict(fields)
    for name in _IN_TABLES:
        if name in written:
            written[name] = _as_text(written[name], name)
    if isinstance(probes := written.get("probes"), list | tuple):
        written["probes"] = [_as_text(probe, "probes") for probe in probes]
    for name in ("seconds", "warmup"):
        if isinstance(value := written.get(name), str):
            try:
                written[name] = parse_duration(value, "s") / SECOND
            except InputError as error:
                raise InputError(f"scenario: {name}: {error}") from error
    if isinstance(churn := written.get("churn"), str):
        written["churn"] = [churn]
    if (network := written.get("network")) is not None:
        written["network"] = _as_network(network)
    return written


def _as_text(value: Any, field: str) -> Any:
    """A table `{class = "mine:Bursty", mean = "20ms"}`, or with `model` for a built-in part, as text."""
    if not isinstance(value, Mapping):
        return value
    parameters = dict(value)
    name = parameters.pop("class", None) or parameters.pop("model", None)
    if not isinstance(name, str):
        raise InputError(f'scenario: {field}: a table needs a class, as in {{class = "module:Class", ...}}')
    try:
        return user_classes.write_spec(name, parameters)
    except TypeError as error:
        raise InputError(f"scenario: {field}: {error}") from error


def _as_network(value: Any) -> Any:
    """A built-in network as a table, a user-defined one as text."""
    if isinstance(value, Mapping) and "class" in value:
        return _as_text(value, "network")
    if isinstance(value, str) and not names_user_class(value):
        spec = parse_spec(value)
        value = {"model": spec.name, **spec.parameters}
    if not isinstance(value, Mapping):
        return value
    if value.get("model") not in NETWORKS:
        unknown, known = value.get("model", ""), ", ".join(NETWORKS)
        own = "or your own as module:Class"
        raise InputError(f"scenario: network: there is no model '{unknown}'; there are {known}, {own}")
    if value["model"] == "graph" and not value.get("file"):
        raise InputError("scenario: network: graph needs a file: graph,file=NAME")
    return {name: _as_text(item, name) for name, item in value.items()}


def written_model(network: RoutedModel | NodesModel | RelayedModel | GraphModel) -> tuple[str, str]:
    """The text with which a user begins to write a built-in network, and its field for delays."""
    if isinstance(network, GraphModel):
        return f"graph,file={network.file}", "delay"
    if isinstance(network, NodesModel):
        return "nodes", "propagation"
    return ("routed" if isinstance(network, RoutedModel) else f"relayed,behind={network.behind}"), "delay"


def user_class_names(scenario: Scenario) -> list[str]:
    """The user-defined classes that a scenario names, besides its protocol."""
    network: Any = scenario.network
    texts = [scenario.delay, scenario.local_delay, scenario.interval, scenario.workload, scenario.overlay]
    texts += [*scenario.probes, network if isinstance(network, str) else None]
    texts += [getattr(network, name, None) for name in ("delay", "propagation")]
    return [parse_spec(text).name for text in texts if text and names_user_class(text)]


def file_digests(scenario: Scenario) -> list[str]:
    """Digests of the files that a scenario names."""
    files = [scenario.network.file] if isinstance(scenario.network, GraphModel) else []
    if (file := overlay_file(scenario.overlay)) is not None:
        files.append(file)
    return [file_digest(user_classes.user_file(name)) for name in files]


def overlay_file(overlay: str | None) -> str | None:
    """The file of an overlay, if it is read from one."""
    spec = parse_spec(overlay or "")
    return str(spec.parameters.get("file", "")) if spec.name == "graph" else None


def count_nodes(network: GraphModel) -> int:
    """The number of nodes of a network in a file: peers, and nodes that only forward."""
    return len(read_graph(user_classes.user_file(network.file), network.unit).names)


# Parts.


def build_network(scenario: Scenario) -> Network:
    if isinstance(scenario.network, str):
        return UserNetwork(scenario.network, scenario.peers, scenario.seed)
    if scenario.network is not None:
        return scenario.network.build(scenario.peers, scenario.seed)
    fifo = scenario.protocol_class().links.fifo if scenario.fifo is None else scenario.fifo
    faults = [parse_fault(fault) for fault in scenario.faults if not is_group_fault(fault)]
    delay = parse_delay(scenario.delay)
    layout = scenario.resolved_layout()
    if scenario.local_delay is None or layout is None:
        return DirectNetwork(scenario.seed, delay, fifo, faults)
    local = parse_delay(scenario.local_delay)
    return DirectNetwork(scenario.seed, delay, fifo, faults, local, layout.sites(scenario.peers))


def build_workload(scenario: Scenario) -> Workload:
    seed, reply = scenario.seed, scenario.reply
    interval = max(1, round(SECOND / scenario.rate))
    jitter = round(interval * scenario.jitter)
    match scenario.workload:
        case "periodic":
            return Periodic(seed, interval, jitter, reply)
        case "poisson":
            return Poisson(seed, interval, reply)
        case "drawn":
            return RandomIntervals(seed, parse_delay(scenario.interval or "70-90ms"), reply)
        case "once":
            return Once(seed, Uniform(0, max(0, round(scenario.seconds * SECOND) - 1)), reply)
        case "starts":
            return Once(seed, parse_delay(scenario.interval or "0-1s"), reply)
        case "rounds":
            return Rounds(seed, interval, scenario.burst or 1, reply)
        case "windows":
            return OncePerWindow(seed, interval, jitter, reply)
        case "given":
            return Scheduled(seed, scenario.sends or (), reply)
    return UserWorkload(scenario.workload, seed, reply)


def build_overlay(text: str, size: int, seed: int) -> Neighbours:
    """The neighbours of each peer."""
    if names_user_class(text):
        own = user_classes.create(text, Overlay, "overlay")  # type: ignore[type-abstract]
        try:
            links = list(own.links(size, seed))
        except (Exception, SystemExit) as error:
            raise InputError(f"overlay {text}: {user_classes.what_was_raised(error)}") from error
        return validated_neighbours(size, links, f"overlay {text}")
    name, parameters = parse_spec(text)
    known = {"random": {"degree"}, "graph": {"file"}}.get(name, set())
    if name not in OVERLAYS:
        raise InputError(f"there is no overlay '{name}'; there are {', '.join(OVERLAYS)}, or module:Class")
    if unknown := sorted(parameters.keys() - known):
        raise InputError(f"overlay {name} has no '{unknown[0]}'; {_parameters_of(known)}")
    if name == "random":
        degree = parameters.get("degree", 4)
        if not isinstance(degree, int | float) or not 0 <= degree <= size:
            raise InputError(f"overlay {text}: degree is the mean number of neighbours, from 0 to {size}")
        graph = random_graph(size, degree, counter_rng.Draws(seed, counter_rng.OVERLAY))
        return [tuple(peers) for peers in graph]
    if name == "graph":
        return _overlay_from_file(text, size)
    return SHAPES[name](size)


def _parameters_of(known: set[str]) -> str:
    return f"it takes {', '.join(sorted(known))}" if known else "it takes no parameters"


def _overlay_from_file(text: str, size: int) -> Neighbours:
    file = overlay_file(text)
    if not file:
        raise InputError("overlay graph needs a file: graph,file=NAME")
    graph = read_graph(user_classes.user_file(file), unit="ms")
    if len(graph.names) != size:
        raise InputError(f"overlay {file} has {len(graph.names)} nodes, one for each peer; set peers to that")
    return graph.neighbours


class _UserProbe(Probe):
    """Validates the figures of a user-defined probe; everything else is the probe's own."""

    def __init__(self, text: str, since: int) -> None:
        super().__init__(since)
        own = user_classes.create(text, Probe, "probe", since=since)
        self._text, self._own = text, own
        for name in ("send", "receive", "deliver", "transmit", "sample"):
            setattr(self, name, getattr(own, name))

    def figures(self) -> dict[str, float]:
        return checked_figures(f"probe {self._text}", self._own.figures())


def build_probes(scenario: Scenario) -> list[Probe]:
    since = round(scenario.warmup * SECOND)
    return [PROBES[name](since) if name in PROBES else _UserProbe(name, since) for name in scenario.probes]


def check_parts(scenario: Scenario) -> None:
    """Create user-defined parts, and parts in files, so that a mistake is found before a run."""
    try:
        if isinstance(scenario.network, str | GraphModel):
            build_network(scenario)
        if scenario.workload not in WORKLOADS:
            build_workload(scenario)
        if scenario.overlay is not None:
            build_overlay(scenario.overlay, scenario.peers, scenario.seed)
        build_probes(scenario)
    except (InputError, msgspec.ValidationError) as error:
        raise InputError(f"scenario: {error}") from error
