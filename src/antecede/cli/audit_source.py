"""antecede audit on a source that has causes but no deliveries: the verdict on its dependency log."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import typer

from antecede.cli import show
from antecede.cli.source_input import refuse_run_per_file
from antecede.errors import InputError
from antecede.units import count_of

if TYPE_CHECKING:
    import pyarrow as pa

    from antecede.audit.dependency_findings import DependencyVerdict
    from antecede.cli.source_input import InputOptions
    from antecede.sources import Source
    from antecede.trace.bad_rows import BadRows

_LABELS = {
    "missing_causes": "missing causes",
    "missing_ids": "  distinct ids",
    "duplicate_records": "records that repeat an id",
    "cycles": "cycles of causes",
    "records_on_cycles": "  records on them",
    "effects_before_causes": "effects before a cause in their process",
    "skewed_pairs": "effects with an earlier time than their cause",
}
_LISTS = {
    "missing": "missing causes, those with most effects first",
    "duplicates": "ids that occur more than once",
    "cycle_list": "cycles",
    "before_causes": "effects before a cause in the order of their own process",
    "skew": "clock skew: no time is corrected, and skew alone is not a violation",
}


def audit_source(
    source: Source,
    path: str,
    reading: InputOptions,
    engine: str,
    master: str | None,
    html: Path | None,
    limit: int,
    as_json: bool,
) -> None:
    """Judge a source and print the verdict; exit code 1 if something is wrong with it."""
    if reading.run_per_file:
        refuse_run_per_file(source)
    from antecede.audit.dependency_run import judge_where_it_fits
    from antecede.sources import read_source
    from antecede.trace.bad_rows import BadRows
    from antecede.trace.lineage import lineage

    bad = BadRows(path, reading.strict)
    with show.progress() as progress:
        numbered = _Numbered(read_source(source, bad, max_bytes=reading.max_bytes, progress=progress))
        batches = numbered.batches()
        counted = source.preset.record_name
        verdict, engine = judge_where_it_fits(batches, engine, limit, master, progress, counted)
    if not verdict.records:
        raise InputError(
            f"{path} has no record that could be taken as {source.preset.name}{bad.first_example()}; "
            f"antecede sources {source.preset.name} shows where they are looked for"
        )
    if not verdict.causes and verdict.clean:
        name, records = source.preset.name, count_of(verdict.records, "record")
        raise InputError(
            f"{path} has {records} as {name}, and none of them names a cause, so there is nothing to judge; "
            f"if causes are elsewhere in them, save the preset (antecede sources {name} > "
            f"mine.toml), change its causes, and give --preset mine.toml{bad.first_example()}"
        )
    # Of records with one id, only the first is judged.
    bad.leave_out("records that repeat an id", verdict.duplicate_records)
    based_on = lineage(bad, 1, engine)
    if as_json:
        head = {
            "trace": path,
            "clean": verdict.clean,
            "engine": engine,
            "preset": source.preset.name,
        }
        read = {"order_judged": numbered.any, "bad_rows": bad.rows, "bad": bad.kinds, "lineage": based_on}
        show.json(head | msgspec.to_builtins(verdict) | read)
    else:
        _print(source, verdict, bad, numbered.any)
        show.lineage(based_on)
    if html is not None and not as_json:
        show.line(
            f"No page: --html draws deliveries, which {source.name} does not have; antecede graph "
            "describes its dependencies"
        )
    if not verdict.clean:
        raise typer.Exit(1)


class _Numbered:
    """Passes the batches of a log on, and remembers whether any record has a place in its process's order."""

    def __init__(self, batches: Iterator[pa.Table]) -> None:
        self._batches = batches
        self.any = False

    def batches(self) -> Iterator[pa.Table]:
        for table in self._batches:
            self.any = self.any or table.column("seq").null_count < table.num_rows
            yield table


def _print(source: Source, verdict: DependencyVerdict, bad: BadRows, has_order: bool) -> None:
    show.bad_rows(bad.kinds)
    first, *others = source.files
    files = f"{len(source.files):,} files" if others else Path(source.name_of(first)).name
    show.line(
        f"{count_of(verdict.records, 'record')} of {count_of(verdict.processes, 'process')} with "
        f"{count_of(verdict.causes, 'cause')} ",
        show.styled(f"({source.preset.name}, {files})", "dim"),
    )
    if verdict.clean:
        apart = ", apart from the rows above" if bad.kinds else ""
        judged = (
            "every cause is present, once, before its effects in their own process, and in no cycle"
            if has_order
            else "every cause is present, once, and in no cycle; the order of the records was not judged: "
            "the source does not say where each belongs in its process"
        )
        show.line(show.styled("clean", "green"), f"{apart}: {judged}")
    rows = [
        [label, f"{getattr(verdict, name):,}"] for name, label in _LABELS.items() if getattr(verdict, name)
    ]
    if rows:
        show.table(None, ["", ""], rows)
    for name, title in _LISTS.items():
        found = getattr(verdict, name)
        if found:
            show.note(title)
        for each in found:
            show.line(f"• {each.text}")
