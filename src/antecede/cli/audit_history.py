"""antecede audit on a history of transactions: which levels of consistency it satisfies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from antecede.cli import show
from antecede.errors import InputError
from antecede.units import count_of

if TYPE_CHECKING:
    from antecede.cli.source_input import InputOptions
    from antecede.trace.bad_rows import BadRows
    from antecede.transactions import ConsistencyVerdict, History, LevelViolation

DEFAULT_LEVEL = "CC"

LevelName = Annotated[
    str | None,
    typer.Option(
        "--level",
        metavar="LEVEL",
        help="For transaction histories: the required level, RC, RA, CC, CM or CCv. By default all "
        "are reported, and CC is required.",
    ),
]


def history_at(path: str, columns: Sequence[str] | None, preset: str | None, level: str | None) -> bool:
    """Whether there is a history of transactions at a path: by --preset, or by its content."""
    from antecede.transactions.formats import PRESETS, recognise_path

    if preset in PRESETS:
        if columns:
            raise InputError(f"--map is for tables of events, and --preset {preset} is a format of histories")
        return True
    found = not columns and preset is None and "://" not in path and recognise_path(Path(path)) is not None
    if level is not None and not found:
        raise InputError(
            f"--level is for histories of transactions, which {path} is not; "
            "see Transaction histories in the documentation"
        )
    return found


def audit_history(
    path: str,
    reading: InputOptions,
    level: str | None,
    html: Path | None,
    engine: str,
    limit: int,
    as_json: bool,
) -> None:
    """Judge a history and print the verdict; exit code 1 if it does not satisfy the level demanded."""
    from antecede.trace.bad_rows import BadRows
    from antecede.transactions import read_history
    from antecede.transactions.formats import history_files

    if html is not None:
        raise InputError("--html draws deliveries of messages, which a history of transactions does not have")
    if reading.run_per_file:
        raise InputError("--run-per-file is for logs with deliveries; a history of transactions is one run")
    if engine == "spark":
        raise InputError("histories of transactions are judged in this process; leave out --engine spark")
    bad = BadRows(path)
    files = history_files(Path(path))
    bad.reads(files)
    with show.progress() as progress:
        progress("reading", 0, 0)
        history = read_history(path, reading.preset, reading.max_bytes)
    bad.unit = "operation" if history.records is None else "record"
    for file, operations in zip(files, operations_of_files(history, len(files)), strict=True):
        bad.count(file, operations if history.records is None else history.records)
    for number in history.records_left_out:
        bad.leave_out("records of no client, such as Jepsen's nemesis", 1, f"record {number}")
    judge_history(history, bad, level, limit, as_json)


def operations_of_files(history: History, files: int) -> list[int]:
    """How many operations each file has: all of them the only one, otherwise a file is a session."""
    if files == 1:
        return [history.operations]
    counts = [0] * files
    for session, file in enumerate(history.session_ids.tolist()):
        begin, end = history.session_start[session : session + 2]
        counts[file] = int(history.operation_start[end] - history.operation_start[begin])
    return counts


def judge_history(history: History, bad: BadRows, level: str | None, limit: int, as_json: bool) -> None:
    """Judge a history that has been read, whose rows `bad` has counted, and print the verdict.

    At most `limit` reads that no level allows are listed.
    """
    from antecede.jit import reported_compilation
    from antecede.trace.lineage import lineage
    from antecede.transactions import LEVELS, check
    from antecede.transactions.levels import level_named

    demanded = level_named(level or DEFAULT_LEVEL)
    with show.progress() as progress:
        report = partial(_report, progress)
        report(False)
        with reported_compilation(report):
            verdict = check(history, LEVELS if level is None else [demanded], limit)
    if as_json:
        document = {"trace": bad.source, "demanded": demanded, "clean": verdict.levels[demanded].ok}
        show.json(document | {"verdict": verdict, "lineage": lineage(bad, 1, "local")})
    else:
        _print(verdict, demanded)
        show.lineage(lineage(bad, 1, "local"))
    if not verdict.levels[demanded].ok:
        raise typer.Exit(1)


def _report(progress: Callable[[str, int, int], None], compiling: bool) -> None:
    """Say what takes the time: on a new machine half a minute of it is compilation."""
    progress("judging: compiling, once" if compiling else "judging", 0, 0)


def _print(verdict: ConsistencyVerdict, demanded: str) -> None:
    aborted = f", {verdict.aborted:,} of them aborted," if verdict.aborted else ""
    transactions = count_of(verdict.transactions, "transaction")
    show.line(
        f"{count_of(verdict.operations, 'operation')} of {transactions}{aborted} "
        f"in {count_of(verdict.sessions, 'session')} on {count_of(verdict.keys, 'key')}"
    )
    rows: list[list[str | Text]] = []
    for short, level in verdict.levels.items():
        answer = show.styled("yes", "green") if level.ok else show.styled("no", "red")
        pattern = level.violation.pattern if level.violation else ""
        rows.append([short, level.name, answer, pattern])
    show.table(None, ["level", "", "satisfied", ""], rows, left=4)
    if verdict.faults:
        for pattern, count in verdict.faults.items():
            show.line(f"{pattern}: {count:,}")
        for violation in verdict.fault_examples:
            _print_violation("every level", violation)
        return
    shown: dict[tuple[str, ...], list[str]] = {}
    for short, level in verdict.levels.items():
        if level.violation:
            shown.setdefault((level.violation.text, *level.violation.because), []).append(short)
    for names in sorted(shown.values(), key=lambda names: demanded not in names):
        found = verdict.levels[names[0]].violation
        if found:
            _print_violation(", ".join(names), found)


def _print_violation(levels: str, violation: LevelViolation) -> None:
    show.line(f"• not {levels}: {violation.text}" if levels != "every level" else f"• {violation.text}")
    for sentence in violation.because:
        show.line(f"    {sentence}")
    for transaction in violation.transactions:
        operations = ", ".join(transaction.operations)
        show.line(show.styled(f"    {transaction.name} (session {transaction.session}): {operations}", "dim"))
