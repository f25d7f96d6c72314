"""antecede check: every schedule of a small group."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from antecede.cli import show
from antecede.cli.options import Json, check_writable, folder
from antecede.errors import InputError

if TYPE_CHECKING:
    from antecede.check.bounds import Bounds
    from antecede.check.changing.explore import ChangeBounds
    from antecede.check.changing.replay import ReplayedChange
    from antecede.check.changing.run import ChangingCheckReport
    from antecede.check.replay import ReplayedStep
    from antecede.check.run import CheckReport
    from antecede.check.schedule import ShownCounterExample


def _json_object(text: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise typer.BadParameter(f"not a JSON object: {error}") from error


_CHANGES = ("joins", "leaves", "removals", "failures", "reports")
_MOST = 8
_ONLY_CHANGING = (*_CHANGES, "total")


@dataclass
class BoundOptions:
    """How much is explored."""

    def __post_init__(self) -> None:
        for option, given in (("peers", self.peers), ("messages", self.messages)):
            if given is not None and given > _MOST:
                raise InputError(
                    f"check: --{option} {given} is far beyond what can be explored; give at most {_MOST}, or "
                    "let antecede verify draw random runs of larger groups"
                )

    peers: Annotated[
        int | None,
        typer.Option(min=1, show_default=False, help="Members of the group: 3, if not given; at most 8."),
    ] = None
    messages: Annotated[
        int | None,
        typer.Option(
            min=1, show_default=False, help="Messages that each broadcasts: 1, if not given; at most 8."
        ),
    ] = None
    losses: Annotated[int, typer.Option(min=0, max=9, help="Packets that may be lost.")] = 0
    duplicates: Annotated[int, typer.Option(min=0, max=9, help="Packets that may arrive twice.")] = 0
    crashes: Annotated[
        int,
        typer.Option(min=0, max=9, help="Times that a process may crash and restart from its saved state."),
    ] = 0
    link_changes: Annotated[
        int, typer.Option(min=0, max=9, help="Links that may open or close, for protocols that allow it.")
    ] = 0
    joins: Annotated[int, typer.Option(min=0, max=3, help="Processes that may join the group.")] = 0
    leaves: Annotated[int, typer.Option(min=0, max=3, help="Members that may leave.")] = 0
    removals: Annotated[
        int, typer.Option(min=0, max=3, help="Times that a member may remove another, rightly or not.")
    ] = 0
    failures: Annotated[int, typer.Option(min=0, max=3, help="Members that may fail for good.")] = 0
    reports: Annotated[
        int, typer.Option(min=0, max=9, help="Reports of progress, in addition to those at the end.")
    ] = 0
    total: Annotated[
        int | None,
        typer.Option(min=0, max=60, help="Messages of all members together, in groups that change."),
    ] = None
    layout: Annotated[
        Any,
        typer.Option(parser=_json_object, metavar="JSON", help="How members are arranged, as in simulate."),
    ] = None
    groups: Annotated[
        Any, typer.Option(parser=_json_object, metavar="JSON", help="Overlapping groups, as in simulate.")
    ] = None

    def bounds(self) -> list[Bounds]:
        """What is explored: as given; or three members with a message each, and two with two messages each,
        without which an error in the order of one member's messages would not be found."""
        is_given = self.peers or self.messages or self.layout or self.groups
        return [self._bounds(3, 1)] if is_given else [self._bounds(3, 1), self._bounds(2, 2)]

    def _bounds(self, peers: int, messages: int) -> Bounds:
        from antecede.check.bounds import Bounds

        if self.total is not None:
            raise InputError(
                "check: --total is for groups that change; name --joins, --leaves or another change"
            )

        fields = {name: value for name, value in asdict(self).items() if name not in _ONLY_CHANGING}
        fields |= {"peers": self.peers or peers, "messages": self.messages or messages}
        try:
            return msgspec.convert(fields, Bounds)
        except msgspec.ValidationError as error:
            raise InputError(f"check: {error}") from error

    @property
    def has_changes(self) -> bool:
        """Whether members come and go."""
        return any(getattr(self, name) for name in _CHANGES)

    def change_bounds(self) -> ChangeBounds:
        from antecede.check.changing.explore import ChangeBounds

        faults = ("losses", "duplicates", "crashes", "link_changes", "layout", "groups")
        if given := [name for name in faults if getattr(self, name)]:
            option = f"--{given[0].replace('_', '-')}"
            raise InputError(
                f"check: {option} is for groups that do not change; links lose nothing in others"
            )
        return ChangeBounds(
            self.peers or 3,
            self.messages or 1,
            total=self.total,
            joins=self.joins,
            leaves=self.leaves,
            removals=self.removals,
            crashes=self.failures,
            reports=self.reports,
        )


def check(
    bounded: BoundOptions,
    protocol: Annotated[
        str | None,
        typer.Argument(help="A protocol's name, all, or your own as module:Class or exec:COMMAND."),
    ] = None,
    max_states: Annotated[int, typer.Option(min=1, help="Stop after this many states.")] = 10_000_000,
    reduce: Annotated[
        bool, typer.Option("--reduce/--no-reduce", help="Leave out equivalent schedules.")
    ] = True,
    out: Annotated[
        Path | None,
        typer.Option(parser=folder, metavar="FOLDER", help="Write counter-examples: schedule and diagram."),
    ] = None,
    replay: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Play the schedule of a counter-example step by step.")
    ] = None,
    master: Annotated[
        str | None,
        typer.Option(
            help="Explore on a Spark cluster (spark://…, yarn); the explored states are saved in --out."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Check a protocol in every schedule of a small group.

    Explores all orders in which members broadcast, packets arrive, messages are delivered and faults happen.
    Without --peers, --messages, --layout and --groups, explores two groups: 3 members that broadcast 1
    message each, and 2 members that broadcast 2 messages each. A verdict covers what the line above it says
    and nothing larger.

    Passes (exit code 0) if every message is delivered exactly once, in causal order, none stays held, every
    held message waits for one that happened before it, and the protocol does what it declares, such as to
    name exactly the immediate causes (carries_immediate_dependencies). If not, prints the smallest schedule
    that fails. depth: steps of the longest schedule; ends: states in which nothing more can happen; process
    states: of single processes.

    With --joins, --leaves, --removals or --failures, members come and go, as the page Groups that
    change of the documentation explains.
    """
    if replay is not None:
        _replay(replay, as_json)
        return
    if out is not None:
        check_writable(out)
    if protocol is None:
        raise InputError("name a protocol, all, or a schedule with --replay")
    if not bounded.has_changes:
        # A cluster's folder holds a single exploration.
        groups = bounded.bounds()[: None if master is None else 1]
        _report(_explore(protocol, groups, max_states, reduce, out, master), as_json)
    elif master is not None:
        raise InputError("check: --master is for groups that do not change")
    else:
        _report(_explore_changing(protocol, bounded.change_bounds(), max_states, reduce, out), as_json)


def _report(explorations: Iterator[Iterator[CheckReport | ChangingCheckReport]], as_json: bool) -> None:
    """Explore, and print the verdicts; exit with 1 if one is that a protocol fails."""
    reports, not_written = _run(explorations)
    passed = all(report.passed for report in reports)
    if as_json:
        show.json({"passed": passed, "protocols": reports})
    else:
        _print(reports)
    if not_written is not None:
        raise not_written
    if not passed:
        raise typer.Exit(1)


def _run(
    explorations: Iterator[Iterator[CheckReport | ChangingCheckReport]],
) -> tuple[list[CheckReport | ChangingCheckReport], OSError | None]:
    """The reports, and the error if a counter-example could not be written: the reports are shown even
    then."""
    reports: list[CheckReport | ChangingCheckReport] = []
    with show.progress() as progress:
        for exploration in explorations:
            report = None
            try:
                for report in exploration:
                    progress(f"checking {report.protocol}: depth {report.depth}", report.states, 0)
            except OSError as error:
                return ([*reports, report] if report is not None else reports), error
            if report is not None:
                reports.append(report)
    return reports, None


def _explore(
    protocol: str,
    groups: Sequence[Bounds],
    max_states: int,
    reduce: bool,
    out: Path | None,
    master: str | None,
) -> Iterator[Iterator[CheckReport]]:
    from antecede.check.run import check as run_check
    from antecede.protocols.catalog import PROTOCOLS, find_protocol

    kinds = {name: find_protocol(name) for name in (PROTOCOLS if protocol == "all" else [protocol])}
    failed = set()

    def explore(name: str, bounds: Bounds) -> Iterator[CheckReport]:
        for report in run_check(kinds[name], name, bounds, max_states, reduce, reduce, out, master):
            yield report
            if not report.passed:
                failed.add(name)

    for bounds in groups:
        for name in kinds:
            if name not in failed:
                yield explore(name, bounds)


def _explore_changing(
    protocol: str, bounds: ChangeBounds, max_states: int, reduce: bool, out: Path | None
) -> Iterator[Iterator[ChangingCheckReport]]:
    from antecede.check.changing.run import check_changing, find_changing
    from antecede.membership.catalog import CHANGING

    for name in CHANGING if protocol == "all" else [protocol]:
        yield check_changing(find_changing(name), name, bounds, max_states, out, reduce)


def _print(reports: Sequence[CheckReport | ChangingCheckReport]) -> None:
    for bounds in dict.fromkeys(report.bounds.in_words() for report in reports):
        _print_verdicts(bounds, [report for report in reports if report.bounds.in_words() == bounds])
    used: dict[str, list[str]] = {}
    for report in reports:
        if names := ", ".join(getattr(report, "reductions", ())):
            used.setdefault(names, []).append(report.protocol)
    several = len({report.protocol for report in reports}) > 1
    for names, protocols in used.items():
        where = f" of {', '.join(dict.fromkeys(protocols))}" if several else ""
        show.line(f"Equivalent schedules{where} were left out ({names}); --no-reduce explores them too.")
    for report in reports:
        if not report.passed:
            _print_failure(report)
        elif getattr(report, "assumes_symmetry", False):
            show.line(
                f"Assuming symmetric = True, as {report.protocol} declares: at most 3 members with 1 message "
                "each, and 2 members with 2 messages each, were explored without relying on it."
            )


def _print_verdicts(bounds: str, reports: Sequence[CheckReport | ChangingCheckReport]) -> None:
    header = ["protocol", "verdict", "states", "transitions", "depth", "ends", "process states", "CPU s"]
    rows = [
        [
            report.protocol,
            _verdict(report),
            f"{report.states:,}",
            f"{report.transitions:,}",
            f"{report.depth}",
            f"{report.ends:,}",
            f"{report.process_states:,}",
            f"{report.cpu_seconds:.1f}",
        ]
        for report in reports
    ]
    show.line(show.styled(bounds, "bold"))
    show.table(None, header, rows, left=2)


def _verdict(report: CheckReport | ChangingCheckReport) -> str:
    if not report.passed:
        return "fails"
    return "holds" if report.complete else "holds so far"


def _print_failure(report: CheckReport | ChangingCheckReport) -> None:
    if report.counter_example is None:
        show.line(f"{report.protocol} fails. {report.violation}")
    else:
        print_counter_example(report.protocol, report.counter_example, report.files)


def print_counter_example(protocol: str, found: ShownCounterExample, files: Sequence[str]) -> None:
    """A run that fails, in columns, and what was written of it."""
    from antecede.check.run import describe

    show.line()
    for line in (*describe(protocol, found), *files):
        show.line(line)


def _replay(path: Path, as_json: bool) -> None:
    from antecede.check.changing.replay import read_changes, replay_changes
    from antecede.check.changing.run import find_changing
    from antecede.check.replay import read_schedule, replay

    if (saved := read_changes(path)) is not None:
        _show_replay(replay_changes(find_changing(saved.protocol), saved), as_json)
    else:
        _show_replay(replay(read_schedule(path)), as_json)


def _show_replay(steps: Iterator[ReplayedStep | ReplayedChange], as_json: bool) -> None:
    """Print each step as it is replayed, so that a step that is no longer possible is seen after those before
    it."""
    from antecede.check.replay import ImpossibleStepError

    played: list[ReplayedStep | ReplayedChange] = []
    impossible = ""
    try:
        for number, step in enumerate(steps, 1):
            played.append(step)
            if not as_json:
                where = f"{step.shown.process} " if step.shown.process else ""
                show.line(f"{number:4}  {where}{step.shown.text}")
                for held in step.held:
                    show.note(f"      {held}")
    except ImpossibleStepError as error:
        impossible = str(error)
    violation = played[-1].violation if played and not impossible else None
    if as_json:
        show.json({"passed": violation is None, "steps": played, "impossible": impossible or None})
    elif impossible:
        show.line(f"This schedule can no longer happen: {impossible}.")
    elif violation is None:
        show.line("Nothing is wrong at its end.")
    else:
        show.line(f"p{violation[0]}: {violation.text}")
    if violation is not None:
        raise typer.Exit(1)
