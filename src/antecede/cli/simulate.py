"""antecede simulate: one run of one protocol."""

from __future__ import annotations

import contextlib
import json
import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from antecede.cli import show
from antecede.cli.options import Json, Seed, folder
from antecede.errors import InputError, require

if TYPE_CHECKING:
    from rich.text import Text

    from antecede.sim.engines import Engine, Result
    from antecede.sim.scenario import Scenario
    from antecede.sim.world import World


@dataclass(frozen=True, kw_only=True)
class ScenarioOptions:
    """The options that describe a scenario; the page Sweeps of the documentation explains each.

    `--delay`, `--network`, `--overlay`, `--workload` and `--probe` take a name with parameters behind it
    (`routed,multicast=true`), JSON, or a class of the user's own (`mine:Bursty,mean=20ms`).
    """

    protocol: Annotated[
        str, typer.Option(help="A protocol's name, or your own as module:Class or exec:COMMAND.")
    ] = "mbcp"
    peers: Annotated[int, typer.Option(help="Members of the group.")] = 10
    seconds: Annotated[
        float, typer.Option(help="How long members send, as 20s or 20; packets in flight then still arrive.")
    ] = 2.0
    seed: Seed = 1
    workload: Annotated[
        str,
        typer.Option(help="periodic, poisson, drawn, once, rounds, windows or module:Class."),
    ] = "periodic"
    senders: Annotated[int | None, typer.Option(help="Members that send, spread evenly; by default all.")] = (
        None
    )
    rate: Annotated[float, typer.Option(help="Messages per second from each sender.")] = 10.0
    jitter: Annotated[
        float, typer.Option(help="Largest delay of a periodic send, as a share of the interval.")
    ] = 0.5
    reply: Annotated[float, typer.Option(help="Share of deliveries that a member answers at once.")] = 0.0
    delay: Annotated[
        str | None,
        typer.Option(
            help="Of direct links, by default 1-100ms (uniform): 20ms, normal:0-50ms, wild:1us-1s, exp:20ms, "
            "lognormal:20ms,0.5, pareto:5ms,1.5 or module:Class. A --network has delays of its own."
        ),
    ] = None
    network: Annotated[
        str | None,
        typer.Option(
            help="What packets travel over, which decides when they arrive: by default a direct link between "
            "every two members; or graph,file=NAME (then ,delay=20ms for links to which the file gives "
            "none), routed, nodes, relayed or module:Class."
        ),
    ] = None
    overlay: Annotated[
        str | None,
        typer.Option(
            help="Which members send to each other, over the network, in flooding and pc: hypercube, ring, "
            "line, star, random,degree=4, "
            "graph,file=NAME or module:Class."
        ),
    ] = None
    probe: Annotated[
        list[str] | None,
        typer.Option(help="Measure more: costs, queues, immediate, ... or module:Class. May be repeated."),
    ] = None
    warmup: Annotated[float, typer.Option(help="Time before probes measure, as 20s or 20.")] = 0.0
    interval: Annotated[
        str | None, typer.Option(help="For the workload drawn: intervals, written like --delay.")
    ] = None
    burst: Annotated[
        int | None, typer.Option(help="For the workload rounds: messages that a member sends at once.")
    ] = None
    fifo: Annotated[
        bool | None, typer.Option(help="Whether links are FIFO; by default what the protocol requires.")
    ] = None
    fault: Annotated[
        list[str] | None,
        typer.Option(
            help="Of packets: spike:1-2s:300ms, duplicate:1%:50ms, reorder:10%:200ms or loss:1%. Of "
            "processes: crash:1s:3, crash:1-2s:3 (with a restart), suspect:1-2s:3 or partition:1-2s:0,1,2. "
            "May be repeated."
        ),
    ] = None
    payload: Annotated[int, typer.Option(help="Payload bytes per message.")] = 100
    most_messages: Annotated[int | None, typer.Option(help="Stop sending after this many messages.")] = None
    layout: Annotated[
        str | None,
        typer.Option(
            metavar="JSON",
            help="Roles and arrangement of members: "
            """for freescale '{"inside": \\[3, 2]}', for hcg '{"subgroups": \\["rt:3", "vt:2"]}', """
            """for pc '{"overlay": "ring"}'.""",
        ),
    ] = None
    groups: Annotated[
        str | None,
        typer.Option(
            metavar="JSON",
            help="""Overlapping groups, for multigroup: '{"a": \\[0, 1, 2], "b": \\[2, 3]}'.""",
        ),
    ] = None
    local_delay: Annotated[
        str | None, typer.Option(help="Delay between members of one site of the layout.")
    ] = None
    skew: Annotated[str | None, typer.Option(help="Largest clock skew, as in 5ms.")] = None
    churn: Annotated[
        list[str] | None,
        typer.Option(
            help="Members join and leave: poisson:2 (changes per second), poisson:2:10% (of departures "
            "crash), join:1s, leave:1s:3 or remove:1s:3. With --groups also join:1s:a (group a), join:1s:a:3 "
            "(process 3), leave:1s:3:a or remove:1s:3:a. Of freescale, hcg and basic also phones: phones:5 "
            "(at the start), attach:1s:2 (at super peer 2), detach:1s:7, move:1s:7:2 or roam:2 (changes per "
            "second). May be repeated. A number: links of pc that open or close per second."
        ),
    ] = None
    detector: Annotated[
        str | None,
        typer.Option(
            help="The failure detector of a group that changes: adaptive, vcube (log2 n tests a round) or "
            "none. Times follow it, with commas: report=100ms, remove=2s and, for vcube, test=1s."
        ),
    ] = None

    def scenario(self) -> Scenario:
        """Validate the options as a scenario."""
        from antecede.sim.scenario import scenario

        self._check_workload_uses("burst", ("rounds",))
        self._check_workload_uses("interval", ("drawn", "starts"))
        delay = {} if self.delay is None else {"delay": _part("delay", self.delay)}
        return scenario(
            protocol=self.protocol, peers=self.peers, seconds=self.seconds, seed=self.seed,
            workload=_part("workload", self.workload), rate=self.rate, jitter=self.jitter, reply=self.reply,
            **delay, network=_part("network", self.network),
            overlay=_part("overlay", self.overlay), interval=_part("interval", self.interval),
            probes=[_part("probe", probe) for probe in self.probe or ()], warmup=self.warmup,
            burst=self.burst,
            fifo=self.fifo, faults=tuple(self.fault or ()), payload=self.payload,
            most_messages=self.most_messages, layout=_parse_json("layout", self.layout),
            groups=_parse_json("groups", self.groups), local_delay=_part("local_delay", self.local_delay),
            skew=self.skew,
            churn=_churn(self.churn), detector=self.detector, senders=self.senders,
        )  # fmt: skip

    def _check_workload_uses(self, option: str, workloads: Sequence[str]) -> None:
        """Refuse an option that would have no effect."""
        value = getattr(self, option)
        if value is None or self.workload in workloads:
            return
        if ":" in self.workload:
            remedy = f"pass it to the class: --workload {self.workload.partition(',')[0]},{option}={value}"
        else:
            remedy = f"add --workload {workloads[0]}, or leave --{option} out"
        raise InputError(
            f"--{option} is for the workload {' or '.join(workloads)}, not for {self.workload}; {remedy}"
        )


@dataclass(frozen=True, kw_only=True)
class PlayOptions:
    """Whether a user watches the run."""

    console: Annotated[
        bool,
        typer.Option(
            "--console", help="Play the run on a page, at the pace of its own clock, on the reference engine."
        ),
    ] = False
    console_speed: Annotated[
        float | None,
        typer.Option(
            min=0.001,
            max=1000,
            metavar="FACTOR",
            help="For --console: 0.1 is ten times slower than its clock.",
        ),
    ] = None

    def speed(self) -> float | None:
        """The playback speed; None if the run is not played."""
        if self.console_speed is not None and not self.console:
            raise typer.BadParameter("--console-speed is for --console")
        return (self.console_speed or 1.0) if self.console else None


def simulate(
    options: ScenarioOptions,
    playing: PlayOptions,
    out: Annotated[
        Path | None, typer.Option(parser=folder, metavar="FOLDER", help="Write the trace to this folder.")
    ] = None,
    metrics_only: Annotated[bool, typer.Option("--metrics-only", help="Write no trace.")] = False,
    sample: Annotated[
        int, typer.Option(min=1, help="Trace one in this many of each sender's messages, for large runs.")
    ] = 1,
    part_rows: Annotated[
        int, typer.Option(min=1, help="Rows per file of the trace; with fewer, readers can follow sooner.")
    ] = 1_048_576,
    engine: Annotated[
        str,
        typer.Option(help="reference, event or recurrence (compiled); auto picks the fastest that fits."),
    ] = "auto",
    as_json: Json = False,
) -> None:
    """Simulate one group and print the cost of its messages; with --out, write a trace.

    The same options give the same trace, byte for byte, on every machine. --console does not change the
    run. The run begins when the page is opened, and the page stays until Ctrl-C.
    """
    from antecede.sim import engines

    if metrics_only and out is not None:
        raise InputError(
            "--metrics-only writes no trace, so --out would have no effect; leave one of them out"
        )
    scenario = options.scenario()
    trace = out
    wanted = engines.parse_engine(engine)
    speed = playing.speed()
    if trace is not None:
        require("antecede.trace", "sim")
    if speed is not None:
        _play(scenario, wanted, speed, trace, sample, part_rows, as_json)
        return
    with show.progress() as update:

        def progress(share: float) -> None:
            update("simulating", round(100 * share), 100)

        start = time.process_time()
        if trace is None:
            result = engines.simulate(scenario, engine=wanted, progress=progress)
        else:
            from antecede.sim.record import simulate_to

            result = simulate_to(
                trace, scenario, engine=wanted, progress=progress, sample=sample, part_rows=part_rows
            )
        cpu_seconds = time.process_time() - start
    _print(scenario, result, cpu_seconds, trace, as_json)


def _play(
    scenario: Scenario,
    engine: Engine,
    speed: float,
    trace: Path | None,
    sample: int,
    part_rows: int,
    as_json: bool,
) -> None:
    """Run a scenario in the console, and show its final state until Ctrl-C."""
    from antecede.cli.console import serving, wait_for_interrupt
    from antecede.console.playback import Playback
    from antecede.sim import engines
    from antecede.sim.record import simulate_to

    if engine not in ("auto", "reference"):
        raise typer.BadParameter(f"--console is for the reference engine alone, not for {engine}")
    playback = Playback(scenario, speed)
    with contextlib.ExitStack() as stack:

        def drive(world: World) -> None:
            playback.prepare(world)
            stack.enter_context(serving(playback.sources, clock=playback.clock))
            playback.play(world)

        start = time.thread_time()
        if trace is None:
            result = engines.simulate(scenario, [playback.notes], "reference", drive=drive)
        else:
            result = simulate_to(
                trace, scenario, [playback.notes], engine="reference", sample=sample, part_rows=part_rows,
                drive=drive,
            )  # fmt: skip
        result = result._replace(reason="a run is played on it")
        _print(scenario, result, time.thread_time() - start, trace, as_json)
        sys.stdout.flush()
        with contextlib.suppress(KeyboardInterrupt):
            wait_for_interrupt()


def _print(scenario: Scenario, result: Result, cpu_seconds: float, trace: Path | None, as_json: bool) -> None:
    if as_json:
        _print_json(scenario, result, cpu_seconds, trace)
    else:
        _print_metrics(scenario, result, cpu_seconds)
        if trace:
            show.line(f"Trace: {trace}")
        judged = f"antecede audit {shlex.quote(str(trace or 'TRACE'))} judges it"
        show.note(f"Not audited: {judged}." if trace else f"Not audited: with --out TRACE, {judged}.")


def _churn(texts: list[str] | None) -> object:
    """Membership changes, or the rate at which links change."""
    if texts is not None and len(texts) == 1:
        try:
            return float(texts[0])
        except ValueError:
            pass
    return texts or None


def _part(option: str, text: str | None) -> object:
    """A part of a run as `scenario` takes it: as text, or as a table if it is written in JSON."""
    return _parse_json(option, text) if text is not None and text.lstrip().startswith("{") else text


def _parse_json(option: str, text: str | None) -> object:
    try:
        return None if text is None else json.loads(text)
    except ValueError as error:
        raise typer.BadParameter(f"--{option}: not JSON: {error}") from error


def _deliveries_per_second(result: Result, cpu_seconds: float) -> float:
    return result.metrics.deliveries / cpu_seconds if cpu_seconds else 0.0


def _print_json(scenario: Scenario, result: Result, cpu_seconds: float, trace: Path | None) -> None:
    timing = {
        "engine": result.engine,
        "engine_reason": result.reason,
        "cpu_seconds": cpu_seconds,
        "deliveries_per_second": _deliveries_per_second(result, cpu_seconds),
        "trace": str(trace) if trace else None,
    }
    show.json({"run": scenario.key(), "scenario": scenario, **msgspec.to_builtins(result.metrics), **timing})


_LONG = 1.0
"""Seconds of CPU time from which a run's speed is that of the engine, rather than of loading it."""
_ENGINES = {"reference": "in Python", "event": "compiled", "recurrence": "compiled"}
_WITH_RATE = ("periodic", "poisson", "rounds")
_MEASURED = {
    "fragments": "fragments sent over links",
    "sent_bytes": "bytes of packets sent",
    "hops": "hops of all fragments",
    "longest_link_queue": "longest queue of a link, in fragments",
    "longest_link_queue_at": "node with that link, from 0",
    "mean_link_queue": "mean queue of a link, in fragments",
    "queued_mean_ns": "mean wait in a node's queue, in ns",
}
"""Labels of network measurements; those of probes have the names in docs/results.md."""


def _setting(scenario: Scenario) -> list[list[str | Text]]:
    """When members send, and what packets take on direct links."""
    rate = f", {scenario.rate:g} messages a second from each sender"
    rows: list[list[str | Text]] = [
        ["sending", scenario.workload + (rate if scenario.workload in _WITH_RATE else "")]
    ]
    if scenario.network is None:
        rows.append(["delay of links", scenario.delay])
    return rows


def _nodes(nodes: int, peers: int) -> str:
    others = nodes - peers
    forwarding = f", and {others} that only {'forwards' if others == 1 else 'forward'}" if others else ""
    return f"{nodes:,}: {peers:,} peers{forwarding}"


def _print_metrics(scenario: Scenario, result: Result, cpu_seconds: float) -> None:
    from antecede.sim.build import count_nodes
    from antecede.sim.network import GraphModel
    from antecede.units import count_of, format_duration

    metrics = result.metrics
    held_share = metrics.held / metrics.deliveries if metrics.deliveries else 0.0
    hold, latency, slowest = (
        format_duration(nanoseconds)
        for nanoseconds in (metrics.hold_mean_ns, metrics.latency_mean_ns, metrics.latency_max_ns)
    )
    rows: list[list[str | Text]] = [
        *_setting(scenario),
        ["messages", f"{metrics.messages:,}"],
        ["deliveries", f"{metrics.deliveries:,}"],
        [
            "control bytes per message",
            f"{metrics.control_bytes_mean:.1f} on the wire, at most {metrics.control_bytes_max:,}",
        ],
        ["", f"{metrics.paper_bytes_mean:.1f} {_as_its_paper_counts(scenario.protocol)}"],
        [
            "held for a cause",
            f"{metrics.held:,} deliveries ({held_share:.1%}), {hold} on average",
        ],
        [
            "from send to delivery",
            f"{latency} on average, at most {slowest}",
        ],
        [
            show.styled("still held at the end", "bold red") if metrics.stuck else "still held at the end",
            f"{metrics.stuck:,}",
        ],
        ["engine", f"{result.engine} ({_ENGINES[result.engine]}): {result.reason}"],
    ]
    if cpu_seconds >= _LONG:
        speed = _deliveries_per_second(result, cpu_seconds)
        rows.append(["speed", f"{speed:,.0f} deliveries per CPU second"])
    if isinstance(scenario.network, GraphModel):
        rows.append(["nodes of the network", _nodes(count_nodes(scenario.network), scenario.peers)])
    # Those of changes are many, and most kinds of changes do not happen in a run.
    is_left_out = scenario.has_changes and 0 in metrics.measured.values()
    for name, value in metrics.measured.items():
        if value or not is_left_out:
            rows.append([_MEASURED.get(name, name), _figure(value)])
    peers = count_of(scenario.peers, "peer")
    title = f"{scenario.protocol}, {peers}, {scenario.seconds:g} s, seed {scenario.seed}"
    show.table(title, ["", ""], rows, left=2)
    if is_left_out:
        show.note("Measurements that are 0 are left out; --json has them all.")


def _as_its_paper_counts(protocol: str) -> str:
    from antecede.protocols.catalog import PROTOCOLS

    return "by the rules of its paper" if protocol in PROTOCOLS else "as its paper_bytes() counts"


def _figure(value: float) -> str:
    """A measurement: whole if it is, or large; otherwise with three digits.

    >>> _figure(3.0), _figure(12345.6), _figure(0.12345)
    ('3', '12,346', '0.123')
    """
    return f"{value:,.0f}" if float(value).is_integer() or abs(value) >= 100 else f"{value:.3g}"
