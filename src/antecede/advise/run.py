"""Advises on a trace wherever it is stored: in this process if it is small, on Spark otherwise."""

from __future__ import annotations

from pathlib import Path

from antecede.advise import Advice, Request, advise_dependencies, advise_run
from antecede.audit.core import members_by_run, split_runs
from antecede.audit.run import Progress, events_on_spark, local_path
from antecede.engine_choice import wants_spark
from antecede.errors import InputError
from antecede.trace.bad_rows import BadRows
from antecede.trace.dependencies import dependency_file, read_dependencies
from antecede.trace.reader import check_files, estimate_rows, read_metas, read_table, trace_files


def advise_path(
    path: str,
    request: Request,
    engine: str = "auto",
    master: str | None = None,
    progress: Progress = lambda *_: None,
    bad: BadRows | None = None,
) -> tuple[list[Advice], str]:
    """Advice on every run of a trace, or on a table of dependencies, and the engine that computed it.

    `bad` counts bad rows of a table of dependencies; without it they raise an error.
    """
    local = local_path(path, engine)
    if local is not None:
        table = dependency_file(local)
        if table is not None:
            progress("reading", 0, 0)
            return [advise_dependencies(read_dependencies(table, bad), request, progress)], "local"
        files = trace_files(local)
        check_files(files)
        if not wants_spark(engine, master, lambda: estimate_rows(files)):
            return _advise_here(local, files, request, progress, bad), "local"
    with events_on_spark(path, local, "advising", master, progress, bad or BadRows(path)) as (
        events,
        members,
    ):
        from antecede.advise.on_spark import advice_by_run

        return list(advice_by_run(events, members, request)), "spark"


def _advise_here(
    local: Path, files: list[Path], request: Request, progress: Progress, bad: BadRows | None
) -> list[Advice]:
    progress("reading", 0, 0)
    members = members_by_run(read_metas(local))
    advice = []
    for run, rows in split_runs(read_table(files, bad)):
        try:
            advice.append(advise_run(run, rows, members.get(run, {}), request, progress))
        except InputError as error:
            raise InputError(f"{local}, {error}") from error
    return advice


def parse_names(text: str | None) -> tuple[str, ...] | None:
    """Comma-separated names, or the path of a file with one name a line."""
    if text is None:
        return None
    file = Path(text)
    try:
        parts = file.read_text(encoding="utf-8").splitlines() if file.is_file() else text.split(",")
    except UnicodeDecodeError as error:
        raise InputError(f"{file} is not text in UTF-8: {error.reason}") from error
    names = tuple(dict.fromkeys(name.strip() for name in parts if name.strip()))
    if not names:
        raise InputError(f"'{text}' names nobody; write names with commas between them, or a file of them")
    return names
