"""Advice on a trace wherever it lies: in this process if it is small, on Spark otherwise."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from antecede.advise import Advice, Request, advise_dependencies, advise_run
from antecede.audit.core import members_by_run
from antecede.audit.run import Progress, events_on_spark, local_path, wants_spark
from antecede.errors import InputError
from antecede.trace.dependencies import dependency_file, read_dependencies
from antecede.trace.reader import check_files, read_batches, read_metas, trace_files


def advise_path(
    path: str,
    asked: Request,
    engine: str = "auto",
    master: str | None = None,
    progress: Progress = lambda *_: None,
) -> tuple[list[Advice], str]:
    """Advice on every run of a trace, or on a table of dependencies, and the engine that gave it."""
    local = local_path(path, engine)
    if local is not None:
        table = dependency_file(local)
        if table is not None:
            progress("reading", 0, 0)
            return [advise_dependencies(read_dependencies(table), asked, progress)], "local"
        files = trace_files(local)
        check_files(files)
        if not wants_spark(files, engine, master):
            return _here(local, files, asked, progress), "local"
    with events_on_spark(path, local, "advising", master, progress) as (events, members):
        from antecede.advise.on_spark import advice_by_run

        return list(advice_by_run(events, members, asked)), "spark"


def _here(local: Path, files: list[Path], asked: Request, progress: Progress) -> list[Advice]:
    progress("reading", 0, 0)
    members = members_by_run(read_metas(local))
    tables = [table for file in files for table in read_batches(file)]
    events = pa.concat_tables(tables, promote_options="default")
    found = []
    for run in sorted(events.column("run").unique().to_pylist()):
        rows = events.filter(pc.equal(events.column("run"), run))
        try:
            found.append(advise_run(run, rows, members.get(run, {}), asked, progress))
        except InputError as error:
            raise InputError(f"{local}, {error}") from error
    return found


def parse_names(text: str | None) -> tuple[str, ...] | None:
    """Names with commas between them, or a file with one a line."""
    if text is None:
        return None
    file = Path(text)
    try:
        given = file.read_text(encoding="utf-8").splitlines() if file.is_file() else text.split(",")
    except UnicodeDecodeError as error:
        raise InputError(f"{file} is not text in UTF-8: {error.reason}") from error
    names = tuple(dict.fromkeys(name.strip() for name in given if name.strip()))
    if not names:
        raise InputError(f"'{text}' names nobody; write names with commas between them, or a file of them")
    return names
