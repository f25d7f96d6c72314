"""antecede: the commands."""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from pathlib import Path
from typing import Annotated, Literal, NoReturn

import typer
from rich.markup import escape

from antecede import __version__
from antecede.cli import foreign, live, show, views
from antecede.cli.advise import advise
from antecede.cli.options import Columns, Json, Master, Strict
from antecede.cli.options import folder as _folder
from antecede.cli.order import held, order
from antecede.errors import AntecedeError

app = typer.Typer(
    name="antecede",
    help="Keeps a group's messages in cause-and-effect order: live, in simulation, after the fact on Spark.",
    epilog="Start with: antecede demo. What prints results takes --json. "
    "Exit codes: 0 fine, 1 violations or failed runs, 2 bad input.",
    add_completion=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)

Seed = Annotated[
    int,
    typer.Option(
        min=0, max=2**64 - 1, help="Decides everything that is random; the same seed replays the same run."
    ),
]


def _parsed(option: str, text: str | None) -> object:
    try:
        return None if text is None else json.loads(text)
    except ValueError as error:
        raise typer.BadParameter(f"--{option}: this is no JSON: {error}") from error


@app.callback(invoke_without_command=True)
def _alone(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if context.invoked_subcommand is None and not version:
        print(context.get_help())
    if version:
        print(f"antecede {__version__}")
        raise typer.Exit()


@app.command()
def demo(
    out: Annotated[
        Path, typer.Option(parser=_folder, metavar="FOLDER", help="Where runs, tables and the report go.")
    ] = Path("antecede-demo"),
    master: Master = None,
    as_json: Json = False,
) -> None:
    """Reproduce five papers in small on an embedded Spark: simulate, audit every trace, score, draw.

    The same as reproduce --quick. Run again, it goes on where it was: finished runs are not made twice.
    """
    _reproduce([], "quick", out, None, master, as_json)


@app.command()
def reproduce(
    papers: Annotated[
        list[str] | None,
        typer.Argument(metavar="PAPER", help="000, 001, 002, 003, 004; by default all."),
    ] = None,
    full: Annotated[
        bool, typer.Option("--full/--quick", help="The papers' own sizes (hours), or small ones (minutes).")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(parser=_folder, metavar="FOLDER", help="Where runs, tables and the report go."),
    ] = None,
    markdown: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the scoreboard there too, as Markdown.")
    ] = None,
    finished: Annotated[
        bool, typer.Option("--finished", help="Run nothing: score and draw what is finished in the folder.")
    ] = False,
    master: Master = None,
    as_json: Json = False,
) -> None:
    """Re-run the papers' experiments, redraw their figures, put every published number beside ours.

    Run again, it goes on where it was. Exit code 1 if a run failed or an audit found anything.
    """
    folder = out or Path("antecede-full" if full else "antecede-demo")
    _reproduce(papers or [], "full" if full else "quick", folder, markdown, master, as_json, finished)


def _reproduce(
    papers: list[str],
    scale: Literal["quick", "full"],
    out: Path,
    markdown: Path | None,
    master: str | None,
    as_json: bool,
    finished: bool = False,
) -> None:
    _need("antecede.spark", "spark")
    from antecede.cli.doctor import machine
    from antecede.papers import reproduce as study
    from antecede.papers.scoreboard import markdown as as_markdown
    from antecede.sweep.run import REPORT

    with show.progress() as progress:
        found, outcome = study.reproduce(out, papers, scale, master, finished, progress)
    if markdown is not None:
        markdown.write_text(as_markdown(found, machine()), encoding="utf-8")
    views.reproduction(found, outcome, out / REPORT, as_json)
    raise typer.Exit(0 if outcome.fine else 1)


@app.command()
def simulate(
    protocol: Annotated[str, typer.Option(help="A protocol's name, or your own as module:Class.")] = "mbcp",
    peers: Annotated[int, typer.Option(help="How many members the group has.")] = 10,
    seconds: Annotated[
        float, typer.Option(help="How long they send; what is under way then still arrives.")
    ] = 2.0,
    seed: Seed = 1,
    workload: Annotated[
        str,
        typer.Option(help="periodic, poisson, once, rounds or windows; docs/sweeps.md explains them."),
    ] = "periodic",
    senders: Annotated[
        int | None, typer.Option(help="How many peers send, spread over all; by default all do.")
    ] = None,
    rate: Annotated[float, typer.Option(help="Messages a second from each peer.")] = 10.0,
    jitter: Annotated[
        float, typer.Option(help="How late periodic sends may be, as a share of the interval.")
    ] = 0.5,
    reply: Annotated[float, typer.Option(help="The share of deliveries that a peer answers at once.")] = 0.0,
    delay: Annotated[
        str, typer.Option(help="20ms, 1-100ms (uniform), normal:0-50ms, wild:1us-1s.")
    ] = "1-100ms",
    fifo: Annotated[
        bool | None, typer.Option(help="Whether links keep order; by default what the protocol needs.")
    ] = None,
    fault: Annotated[
        list[str] | None,
        typer.Option(
            help="spike:1-2s:300ms, duplicate:1%:50ms, reorder:10%:200ms or loss:1%; may be repeated."
        ),
    ] = None,
    payload: Annotated[int, typer.Option(help="Bytes of payload a message.")] = 100,
    most_messages: Annotated[int | None, typer.Option(help="Stop sending after so many in all.")] = None,
    layout: Annotated[
        str | None,
        typer.Option(
            metavar="JSON",
            help="How members are arranged, where they are not all alike: "
            """for freescale '{"inside": \\[3, 2]}', for hcg '{"subgroups": \\["rt:3", "vt:2"]}', """
            """for pc '{"overlay": "ring"}'.""",
        ),
    ] = None,
    groups: Annotated[
        str | None,
        typer.Option(
            metavar="JSON",
            help="""Overlapping groups, for multigroup: '{"a": \\[0, 1, 2], "b": \\[2, 3]}'.""",
        ),
    ] = None,
    local_delay: Annotated[
        str | None, typer.Option(help="The delay between members of one site of the layout.")
    ] = None,
    skew: Annotated[str | None, typer.Option(help="How far ahead clocks may be, as in 5ms.")] = None,
    churn: Annotated[
        float | None, typer.Option(help="How many links a second open or close, for protocols that take it.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(parser=_folder, metavar="FOLDER", help="Write the trace into this folder.")
    ] = None,
    metrics_only: Annotated[bool, typer.Option("--metrics-only", help="Write no trace.")] = False,
    sample: Annotated[
        int, typer.Option(min=1, help="Trace one in so many of each sender's messages, for large runs.")
    ] = 1,
    part_rows: Annotated[
        int, typer.Option(min=1, help="Rows in each file of the trace: fewer for whoever reads meanwhile.")
    ] = 1_048_576,
    engine: Annotated[
        str,
        typer.Option(help="reference, event or recurrence (compiled); auto takes the fastest that can."),
    ] = "auto",
    as_json: Json = False,
) -> None:
    """Simulate one group and print what its messages cost; with --out, leave a trace.

    The same options give the same trace, byte for byte, on every machine.
    """
    from antecede.sim import engines
    from antecede.sim import scenario as scenarios

    given = scenarios.scenario(
        protocol=protocol, peers=peers, seconds=seconds, seed=seed, workload=workload, rate=rate,
        jitter=jitter, reply=reply, delay=delay, fifo=fifo, faults=tuple(fault or ()), payload=payload,
        most_messages=most_messages, layout=_parsed("layout", layout), groups=_parsed("groups", groups),
        local_delay=local_delay, skew=skew, churn=churn, senders=senders,
    )  # fmt: skip
    trace = None if metrics_only else out
    wanted = engines.named(engine)
    if trace is not None:
        _need("antecede.trace", "sim")
    with show.progress() as update:

        def progress(share: float) -> None:
            update("simulating", round(100 * share), 100)

        start = time.process_time()
        if trace is None:
            result = engines.simulate(given, engine=wanted, progress=progress)
        else:
            from antecede.sim.record import simulate_to

            result = simulate_to(
                trace, given, engine=wanted, progress=progress, sample=sample, part_rows=part_rows
            )
        spent = time.process_time() - start
    views.run(given, result.metrics, spent, (result.engine, result.reason), trace, as_json)


@app.command()
def sweep(
    grid: Annotated[Path, typer.Argument(help="A TOML file with \\[run] and \\[grid]; see docs/sweeps.md.")],
    out: Annotated[
        Path, typer.Option(parser=_folder, metavar="FOLDER", help="Where runs, tables and the report go.")
    ] = Path("antecede-sweep"),
    metrics_only: Annotated[
        bool, typer.Option("--metrics-only", help="Write no traces, so audit none.")
    ] = False,
    master: Master = None,
    as_json: Json = False,
) -> None:
    """Simulate every combination of a grid as Spark tasks, audit the traces, write a report.

    Run again, it goes on where it was. A run that fails is reported; the others finish.
    """
    from antecede.sweep.grid import read_grid

    scenarios = read_grid(grid)
    _need("antecede.spark", "spark")
    from antecede.sweep.run import run_study, write_report

    with show.progress() as progress:
        traced = (lambda _: False) if metrics_only else (lambda _: True)
        outcome = run_study(out, scenarios, master=master, traced=traced, progress=progress)
    views.study(
        outcome, write_report(out, f"Sweep of {grid.name}", failed=outcome.failed), str(grid), as_json
    )
    raise typer.Exit(0 if outcome.fine else 1)


@app.command()
def audit(
    trace: Annotated[
        str,
        typer.Argument(help="A trace folder, a .parquet, .jsonl or .csv file, or a URL that Spark reads."),
    ],
    columns: Columns = None,
    strict: Strict = False,
    html: Annotated[
        Path | None,
        typer.Option(
            parser=_folder, metavar="PAGE", help="Write a page too: the counts, and each violation drawn."
        ),
    ] = None,
    violation: Annotated[
        int | None,
        typer.Option(min=1, help="Which violation stands first on the page; by default the worst."),
    ] = None,
    engine: Annotated[str, typer.Option(help="auto, local (in this process) or spark.")] = "auto",
    limit: Annotated[
        int, typer.Option(min=0, max=100_000, help="How many violations to write out; all are counted.")
    ] = 10,
    master: Master = None,
    as_json: Json = False,
) -> None:
    """Was anything delivered before its cause? Exit code 0 if not, 1 if so, 2 if it cannot be told.

    Small local traces are judged in this process; larger ones, and URLs, on Spark. The answer is the same.

    Tables with other columns: antecede audit log.csv --map process=host,index=idx,message=msg
    """
    _need("antecede.trace", "sim")
    from antecede.audit.page import audit_to_page, check_page
    from antecede.audit.run import audit_path
    from antecede.trace.bad_rows import BadRows
    from antecede.trace.foreign.mapped_trace import mapped_trace, refuse_without_deliveries

    if html is None and violation is not None:
        raise typer.BadParameter("--violation is for --html, the page that it is drawn on")
    if html is not None:
        check_page(html)
    bad = BadRows(trace, strict)
    with show.progress() as progress, mapped_trace(trace, columns or [], progress, bad) as ours:
        if html is None:
            outcome = audit_path(ours, engine, limit, master, progress)
            refuse_without_deliveries(ours, outcome.verdict, bad)
        else:
            outcome = audit_to_page(html, trace, ours, engine, limit, master, violation, progress, bad)
    views.audit(trace, outcome, as_json, html, bad)
    if not outcome.verdict.clean:
        raise typer.Exit(1)


@app.command()
def graph(
    trace: Annotated[
        str,
        typer.Argument(
            help="A trace as for audit; or a table of dependencies (node, process, parents): .csv, .parquet "
            "or a folder with dependencies.parquet."
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(parser=_folder, metavar="FOLDER", help="Write edges.parquet and summary.json there."),
    ] = None,
    columns: Columns = None,
    strict: Strict = False,
    exact_width: Annotated[
        int, typer.Option(min=0, help="Find the largest antichain of runs with fewer messages than this.")
    ] = 50_000,
    engine: Annotated[str, typer.Option(help="auto, local (in this process) or spark.")] = "auto",
    master: Master = None,
    as_json: Json = False,
) -> None:
    """What depends on what immediately: the edges, and how many, how deep, how wide; see docs/graph.md."""
    _need("antecede.trace", "sim")
    from antecede.graph.run import graph_path
    from antecede.trace.bad_rows import BadRows
    from antecede.trace.foreign.mapped_trace import mapped_trace

    bad = BadRows(trace, strict)
    with show.progress() as progress, mapped_trace(trace, columns or [], progress, bad) as ours:
        found, chosen = graph_path(ours, out, engine, master, progress, exact_width, bad)
    views.graph(trace, found, chosen, out, as_json, bad)


app.command()(advise)
app.command()(order)
app.command()(held)
app.command()(live.node)
app.command()(live.chat)
app.command()(live.cluster)
app.command()(live.keys)
app.command()(live.load)


@app.command()
def verify(
    protocol: Annotated[str, typer.Argument(help="A protocol's name, all, or your own as module:Class.")],
    runs: Annotated[int, typer.Option(min=1, help="How many random executions.")] = 1000,
    seed: Seed = 1,
    peers: Annotated[
        int | None, typer.Option(min=1, max=1000, help="The size of every group; by default 1 to 12.")
    ] = None,
    only: Annotated[int | None, typer.Option(min=0, help="Replay this one run of the seed instead.")] = None,
    export: Annotated[
        Path | None,
        typer.Option(parser=_folder, metavar="FOLDER", help="Write every run's trace there too."),
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, max=1024, help="On how many processes; by default one a core.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Judge a protocol on random small executions with wild delays, by the oracle.

    Passes (exit code 0) if every message is delivered exactly once, in causal order, and none stays held.
    """
    from antecede.protocols.catalog import PROTOCOLS, find
    from antecede.sim.verify import verify as judge
    from antecede.sim.verify import verify_on

    if export:
        _need("antecede.trace", "sim")
    names = list(PROTOCOLS) if protocol == "all" else [protocol]
    for name in names:
        find(name)
    reports = []
    jobs = jobs or os.cpu_count() or 1
    with show.progress() as progress:
        for name in names:
            folder = export / name.replace(":", ".") if export else None
            if only is not None:
                found = judge(name, 1, seed, peers, only, folder)
            elif jobs == 1 or runs <= 100:
                found = judge(name, runs, seed, peers, export=folder)
            else:
                found = verify_on(jobs, name, runs, seed, peers, folder)
            for report in found:
                progress(f"judging {report.protocol}", report.runs, runs)
            reports.append(report)
    views.verification(reports, seed, as_json)
    if not all(report.passed for report in reports):
        raise typer.Exit(1)


@app.command()
def protocols(as_json: Json = False) -> None:
    """List the protocols: what a message carries, and what each needs of its links."""
    from antecede.protocols.catalog import PROTOCOLS

    views.protocols(list(PROTOCOLS.values()), as_json)


@app.command()
def explain(
    trace: Annotated[Path, typer.Argument(help="A trace: a folder or a file, small enough to look at.")],
    message: Annotated[str, typer.Option(help="The message, as ORIGIN:SEQ.")],
    run: Annotated[str | None, typer.Option(help="Which run, if the trace has several.")] = None,
    as_json: Json = False,
) -> None:
    """Show for one message its immediate causes, where it was held, for how long, and for which cause."""
    _need("antecede.trace", "sim")
    from antecede.trace.explain import RunEvents
    from antecede.trace.reader import read_run

    views.explanation(RunEvents(read_run(trace, run)).explain(message), as_json)


app.command("import")(foreign.import_)
app.command("export")(foreign.export)


@app.command()
def report(
    folder: Annotated[
        Path, typer.Argument(parser=_folder, metavar="FOLDER", help="The folder of a sweep or of the demo.")
    ],
    title: Annotated[str, typer.Option(help="The heading of the report.")] = "A sweep of causal protocols",
    as_json: Json = False,
) -> None:
    """Write the HTML report of a finished sweep: one file, nothing to fetch."""
    _need("antecede.spark", "spark")
    from antecede.sweep.run import write_report

    path = write_report(folder, title)
    if as_json:
        show.json({"report": str(path)})
    else:
        show.out.print(f"Report: {path}", soft_wrap=True)


@app.command()
def doctor(as_json: Json = False) -> None:
    """Show what was found on this machine: Python, Java, Spark, a browser, and the versions of each."""
    from antecede.cli.doctor import examine

    found = examine()
    if as_json:
        show.json([{"what": f.what, "found": f.found, "detail": f.detail} for f in found])
        return
    for each in found:
        mark = "[green]✓[/]" if each.found else "[yellow]–[/]"
        line = f"{each.what:<10} {each.detail}"
        show.out.print(f"{mark} {escape(line)}", soft_wrap=True)


def _need(room: str, extra: str) -> None:
    """Import a room that an extra brings, or say which."""
    from antecede.errors import require

    require(room, extra)


def _fail(message: str) -> NoReturn:
    one_line = " ".join("".join(c if c.isprintable() else " " for c in message).split())
    print(f"error: {one_line}", file=sys.stderr)
    sys.exit(2)


# Typer brings its own copy of Click; this is whatever that copy's base of usage errors is.
_USAGE_ERROR: type[typer.BadParameter] = next(
    kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException"
)


def main() -> None:
    """The entry point: every error that a person can mend is one line and exit code 2."""
    sys.path.append(str(Path.cwd()))  # where protocols of the user's own lie; ours come first
    try:
        code = app(standalone_mode=False)
    except AntecedeError as error:
        _fail(str(error))
    except _USAGE_ERROR as error:
        _fail(error.format_message())
    except (OSError, MemoryError) as error:
        _fail(f"{type(error).__name__}: {error}")
    except KeyboardInterrupt:
        code = 130
    except Exception as error:
        if os.environ.get("ANTECEDE_DEBUG"):
            raise
        where = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{Path(where.filename).name}, line {where.lineno}"
        _fail(f"internal: {type(error).__name__}: {error} ({place}); ANTECEDE_DEBUG=1 shows all of it")
    if code == 130:
        print("stopped; what is finished is kept", file=sys.stderr)
    sys.exit(code or 0)
