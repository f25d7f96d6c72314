"""Reads tables of dependencies without deliveries: `node`, `process`, `parents`, a row a message.

A table is Parquet (parents are lists) or a folder with a `dependencies.parquet`, as `antecede import` writes
it; other columns are ignored. Rows may come in any order. CSV and other formats are read by `sources`, which
writes such a folder.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from antecede.errors import InputError
from antecede.trace.bad_rows import BadRows, brief
from antecede.trace.copies import table_stem
from antecede.trace.reader import damaged_parquet, open_any_parquet
from antecede.trace.schema import META, read_meta
from antecede.trace.validate import first_line, refuse_duplicate_columns

DEPENDENCIES, TABLE_INFO = "dependencies.parquet", "dependencies.json"
COLUMNS = ("node", "process", "parents")
DISTINCTIVE = {"node", "parents"}
"""The columns that distinguish such a table from a trace, and from other tables with parents."""
_MAX_CYCLE_SHOWN = 8
_MAX_ROWS_PER_BYTE = 8
"""The most rows per byte of a file: a node's name takes at least one bit, however it is compressed."""


class Dependencies(NamedTuple):
    """A table as numbers; a message is its row."""

    run: str
    names: pa.Array
    """The name of each message."""
    process: np.ndarray
    """The number of each message's sender."""
    start: np.ndarray
    """Where each message's causes begin; one more at the end."""
    cause: np.ndarray
    order: np.ndarray
    """All messages, causes first."""
    senders: Sequence[str] = ()
    """The names that the numbers in `process` stand for."""


def is_imported(path: Path) -> bool:
    """Whether a folder is a dependency table that Antecede has written."""
    return (path / DEPENDENCIES).is_file() and (path / TABLE_INFO).is_file()


def dependency_file(path: Path) -> Path | None:
    """The table of dependencies at `path`; None if the path holds something else."""
    if path.is_dir():
        return path / DEPENDENCIES if (path / DEPENDENCIES).is_file() else None
    if not path.is_file():
        return None
    if path.suffix != ".parquet":
        return None
    return path if DISTINCTIVE.issubset(open_any_parquet(path).schema_arrow.names) else None


def read_dependencies(path: Path, bad: BadRows | None = None) -> Dependencies:
    """The table at `path`: a .parquet file, or a folder with a dependencies.parquet.

    Bad rows raise an error, unless `bad` counts them. A cycle always does.
    """
    file = path / DEPENDENCIES if path.is_dir() else path
    if not file.exists():
        raise InputError(f"{file} does not exist")
    bad = bad or BadRows(str(file))
    bad.reads([file])
    table = _read_parquet(file)
    bad.count(file, table.num_rows)
    return dependencies(table, _run(file), str(file), bad)


def dependencies(
    table: pa.Table,
    run: str,
    where: str = "the table",
    bad: BadRows | None = None,
) -> Dependencies:
    """Encode a table with the columns node, process and parents; `where` is what errors call it.

    `bad` counts bad rows instead of raising an error.
    """
    _check_columns(table.column_names, where)
    bad = bad or BadRows(where)
    numbers = np.arange(1, table.num_rows + 1)
    table = text_columns(table.select(COLUMNS), where)
    for name in ("node", "process"):
        empty = pc.fill_null(pc.equal(table.column(name), ""), True).to_numpy()
        _count_bad(
            bad, f"rows without a {name}, left out", where, empty, numbers, f"field {name}: it is empty"
        )
        table, numbers = table.filter(pa.array(~empty)), numbers[~empty]
    codes = table.column("node").combine_chunks().dictionary_encode().indices.to_numpy()
    # Dictionary codes follow the order of first occurrence.
    firsts = np.flatnonzero(np.diff(np.maximum.accumulate(codes), prepend=-1))
    again = np.ones(len(codes), np.bool_)
    again[firsts] = False
    if again.any():
        names = table.column("node")
        examples = (
            f"row {numbers[row]}: node {names[row]} is in row {numbers[firsts[codes[row]]]} already"
            for row in np.flatnonzero(again)
        )
        bad.add_all("nodes that repeat a name, left out", examples, int(again.sum()), where)
        table, numbers = table.filter(pa.array(~again)), numbers[~again]
    nodes, processes, parents = (table.column(name).combine_chunks() for name in COLUMNS)
    start, cause = _causes(nodes, parents, where, bad, numbers)
    order = _topological_order(nodes, start, cause, where)
    encoded = processes.dictionary_encode()
    process, senders = encoded.indices.to_numpy(), encoded.dictionary.to_pylist()
    return Dependencies(run, nodes, process, start, cause, order, senders)


def text_columns(table: pa.Table, where: str) -> pa.Table:
    """The table's columns as text, and its parents as lists of text."""
    columns = {}
    for name in table.column_names:
        column = table.column(name)
        kind = pa.list_(pa.string()) if name == "parents" else pa.string()
        if name == "parents" and (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
            column = pc.ascii_split_whitespace(column)
        try:
            columns[name] = column.cast(kind)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise InputError(f"{where}, column {name}: expected {kind}: {first_line(error)}") from error
    return pa.table(columns)


def _count_bad(bad: BadRows, what: str, where: str, rows: np.ndarray, numbers: np.ndarray, why: str) -> None:
    examples = (f"row {number}, {why}" for number in numbers[rows])
    bad.add_all(what, examples, int(rows.sum()), where)


def _read_parquet(file: Path) -> pa.Table:
    opened = open_any_parquet(file)
    names = opened.schema_arrow.names
    _check_columns(names, str(file))
    refuse_duplicate_columns(names, file)
    refuse_impossible_rows(file, opened.metadata.num_rows)
    try:
        table = opened.read(columns=list(COLUMNS))
        table.validate(full=True)
    except (pa.ArrowException, OSError) as error:
        raise damaged_parquet(file, error) from error
    return table


def refuse_impossible_rows(file: Path, rows: int) -> None:
    """Refuse a Parquet file with more rows than it can have nodes of different names."""
    size = file.stat().st_size
    if rows > _MAX_ROWS_PER_BYTE * size:
        raise InputError(
            f"{file} says that it has {rows:,} rows in {size:,} bytes; nodes have different names, so that "
            "cannot be"
        )


def _check_columns(found: list[str], where: str) -> None:
    missing = [name for name in COLUMNS if name not in found]
    if missing:
        columns = "column" if len(missing) == 1 else "columns"
        raise InputError(
            f"{where} has no {columns} {', '.join(missing)}; "
            f"a table of dependencies needs {', '.join(COLUMNS)}"
        )


def _run(file: Path) -> str:
    """The run's name: from the folder's meta.json, or the name of the folder or file."""
    if file.name != DEPENDENCIES:
        return table_stem(file)
    meta = file.parent / META
    return read_meta(meta.read_bytes(), str(meta)).run if meta.exists() else file.resolve().parent.name


def _causes(
    nodes: pa.Array, parents: pa.Array, where: str, bad: BadRows, numbers: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Where each row's causes begin, and the rows of these causes."""
    effect, named = pc.list_parent_indices(parents), pc.list_flatten(parents)
    rows = effect.to_numpy()
    if named.null_count:
        empty = named.is_null().to_numpy(zero_copy_only=False)
        why = "field parents: there is an empty one among them"
        examples = (f"row {number}, {why}" for number in numbers[rows][empty])
        bad.add_all("empty names of parents, left out", examples, int(empty.sum()), where, left_out=False)
    nonempty = pc.fill_null(pc.not_equal(named, ""), False).to_numpy(zero_copy_only=False)
    rows, named = rows[nonempty], named.filter(pa.array(nonempty))
    found = pc.index_in(named, nodes)
    if found.null_count:
        unknown = found.is_null().to_numpy(zero_copy_only=False)
        examples = (
            f"row {numbers[rows[one]]}: parent {brief(str(named[one]))} of node {nodes[rows[one]]} "
            "is no node of the table"
            for one in np.flatnonzero(unknown)
        )
        bad.add_all("parents that are no node, left out", examples, int(unknown.sum()), where, left_out=False)
        rows, found = rows[~unknown], found.drop_null()
    start = np.zeros(len(nodes) + 1, np.int64)
    np.cumsum(np.bincount(rows, minlength=len(nodes)), out=start[1:])
    return start, found.to_numpy().astype(np.int64)


def _topological_order(nodes: pa.Array, start: np.ndarray, cause: np.ndarray, where: str) -> np.ndarray:
    """The rows, causes first: in their own order if that is possible."""
    size = len(nodes)
    effect = np.repeat(np.arange(size), np.diff(start))
    if (cause < effect).all():
        return np.arange(size)
    from antecede.causality.topological_sort import kahn  # Needs the compiler.

    by_cause = np.argsort(cause, kind="stable")
    after = np.searchsorted(cause[by_cause], np.arange(size + 1))
    order, placed = kahn(start, after, effect[by_cause])
    if placed == size:
        ordered: np.ndarray = order
        return ordered
    raise InputError(f"{where}: {describe_cycle(nodes, start, cause, order[:placed])}")


def describe_cycle(
    nodes: Sequence[Any] | pa.Array, start: np.ndarray, cause: np.ndarray, placed: np.ndarray
) -> str:
    """One cycle in words, given the rows that Kahn's algorithm could place.

    A row that could not be placed has a cause that could not be placed either.
    """
    stuck = np.ones(len(nodes), np.bool_)
    stuck[placed] = False
    seen: dict[int, int] = {}
    at = int(np.flatnonzero(stuck)[0])
    while at not in seen:
        seen[at] = len(seen)
        at = next(int(each) for each in cause[start[at] : start[at + 1]] if stuck[each])
    cycle = [brief(str(nodes[each])) for each in list(seen)[seen[at] :]]
    if len(cycle) == 1:
        return f"node {cycle[0]} is its own parent"
    shown = cycle[:_MAX_CYCLE_SHOWN] + (["…"] if len(cycle) > _MAX_CYCLE_SHOWN else []) + cycle[:1]
    return f"a cycle of {len(cycle):,} nodes, each with the next as a parent: {', '.join(shown)}"
