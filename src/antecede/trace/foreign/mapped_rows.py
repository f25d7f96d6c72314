"""Reads another program's table of events under our column names, batch by batch.

Values are converted to our types (`trace.validate`). Only missing columns get a default: `run` is the name of
the file or folder that the user named, `group` is `all`, `time` is `index`, and `index` is the row's place in
the files. A folder's name may be a column too, as in `date=2024-05-01/`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from antecede.errors import InputError
from antecede.trace.bad_rows import BadRows, brief
from antecede.trace.copies import table_suffix
from antecede.trace.csv_records import CsvFormat, LineNumbers
from antecede.trace.foreign.column_map import COLUMNS, MESSAGE, SKIP, ColumnMap
from antecede.trace.foreign.file_layout import default_run, partition_values
from antecede.trace.foreign.time_column import TimeColumn, text_of_time
from antecede.trace.parquet_files import parquet_file, refuse_long_text, text_columns_of
from antecede.trace.reader import (
    BATCH_ROWS,
    csv_rows,
    damaged_parquet,
    empty_file,
    json_rows,
    open_any_parquet,
)
from antecede.trace.schema import FIELDS, KINDS, REQUIRED
from antecede.trace.validate import convert_value, first_line, is_text, refuse_duplicate_columns, unknown_kind

_TYPES = {name: kind for name, (kind, _) in FIELDS.items()} | {"time": pa.string()}
"""Our types; times are text here, whatever they are in the file, until `TimeColumn` reads them."""
_DEFAULTED = ("run", "group", "index", "time")
_IMPLICIT = (*REQUIRED, "destinations")
"""Columns that are read without --map; other columns may have our names by coincidence."""
_DEFAULT_GROUP = "all"
_JSON_SAMPLE_ROWS = 1000
_ROW = "row of the file"
"""A column with each row's number in its file, removed once the row has been checked."""
_LINE = "line of the file"
"""The same for CSV, in lines as an editor counts them; otherwise null."""
_WRONG_VALUE = "rows with a value of the wrong kind, left out"


def read_mapped_rows(
    path: Path, files: list[Path], mapping: ColumnMap, bad: BadRows | None = None
) -> Iterator[pa.Table]:
    """The rows of the files at `path` under our names, and with our words for kinds.

    A row that cannot be read raises an error, unless `bad` counts it: then it is left out.
    """
    bad = bad or BadRows(str(path))
    bad.reads(files)
    earlier_rows = 0
    for file in files:
        partitions = partition_values(path, file)
        columns = resolve_columns(file, mapping, partitions)
        if "index" not in columns:
            unused = [name for name in _column_names(file, mapping.encoding) if name not in columns.values()]
            bad.note("index", _no_index(unused, len(files)))
        in_file = {ours: theirs for ours, theirs in columns.items() if theirs not in partitions}
        missing = [name for name in _DEFAULTED if name not in columns]
        run = default_run(path, file, mapping.run_per_file)
        last, times = 0, TimeColumn(file, columns.get("time", ""), mapping.time_unit, bad)
        for rows in _read(file, in_file, bad, mapping.encoding):
            for name in columns.keys() - in_file.keys():
                rows = _with_constant(rows, name, partitions[columns[name]], file, columns[name])
            for name in missing:
                rows = rows.append_column(name, _default(name, rows, run, earlier_rows))
            last = rows.column(_ROW)[-1].as_py() if rows.num_rows else last
            before = rows.num_rows
            rows = _map_kinds(rows, mapping, file)
            bad.leave_out("rows of kinds that --map says to skip", before - rows.num_rows)
            rows = _leave_out_incomplete(rows, file, columns, bad)
            rows = times.in_nanoseconds(rows, _ROW)
            if mapping.first_seq == 0 and "seq" in rows.column_names:
                place = rows.column_names.index("seq")
                rows = rows.set_column(place, "seq", pc.add(rows.column("seq"), 1))
            yield rows.drop_columns([name for name in (_ROW, _LINE) if name in rows.column_names])
        earlier_rows += last
        bad.finish(file)


def resolve_columns(file: Path, mapping: ColumnMap, partitions: Collection[str] = ()) -> dict[str, str]:
    """Which of our columns a table has, of its own or as `partitions`, and their names there."""
    paths = (name for name in mapping.columns.values() if "." in name)
    present = _column_names(file, mapping.encoding, paths)
    if not present:
        raise empty_file(file)
    # A partition's value applies to the whole file; like Spark, we prefer it to a column of the same name.
    present = [name for name in present if name not in partitions] + [*partitions]
    columns = {}
    for name in COLUMNS:
        theirs = mapping.columns.get(name, name if name in _IMPLICIT else "")
        # A row of JSON may lack a field that others have.
        may_lack = name not in REQUIRED and name != MESSAGE and table_suffix(file) not in (".parquet", ".csv")
        if theirs and (theirs in present or may_lack):
            refuse_duplicate_columns([each for each in present if each == theirs], file)
            columns[name] = theirs
        elif mapping.columns.get(name):
            shown = brief(", ".join(present))
            raise InputError(f"{file} has no column {theirs}, which --map says is {name}; it has {shown}")
    if MESSAGE in columns:
        columns.pop("origin", None)
        columns.pop("seq", None)
    if mapping.run_per_file:
        columns.pop("run", None)
    unused = brief(", ".join(name for name in present if name not in columns.values()))
    others = f" (the other columns are {unused})" if unused else ""
    if "kind" not in columns:
        raise InputError(
            f"{file} has no column kind: nothing says which rows are deliveries, so none can be judged; name "
            f"it with --map kind=…{others}, or look at what depends on what with antecede graph"
        )
    if "process" not in columns:
        raise InputError(f"{file} has no column process; say what it is called with --map process=…{others}")
    if MESSAGE not in columns and ("origin" not in columns or "seq" not in columns):
        raise InputError(
            f"{file}: there is neither an id of messages (message) nor origin and seq; say which column it "
            f"is with --map message=…{others}"
        )
    return columns


def _no_index(unused: list[str], files: int) -> str:
    """A note that the order of a process's events is taken from the rows, which the writer of a file may not
    intend."""
    where = "" if files == 1 else ", file after file by name"
    others = f"; columns that are not used: {brief(', '.join(unused))}" if unused else ""
    return (
        f"no column index: the events of each process are taken in the order of the rows{where}{others}; "
        "--map index=… names the column that orders them"
    )


def _field(row: dict[str, Any], name: str) -> Any:
    """A field of a row of JSON: of its own, or within objects, as in payload.host."""
    if name in row or "." not in name:
        return row.get(name)
    first, _, rest = name.partition(".")
    inner = row.get(first)
    return _field(inner, rest) if isinstance(inner, dict) else None


def _column_names(file: Path, encoding: str | None, paths: Iterable[str] = ()) -> list[str]:
    """The names of a table's columns; for JSON lines, the fields of the first rows, and those of `paths` that
    are within their objects."""
    if file.suffix == ".parquet":
        return list(open_any_parquet(file).schema_arrow.names)
    if table_suffix(file) == ".csv":
        header: list[str] = []
        next(csv_rows(file, header.extend, lambda *_: None, CsvFormat(encoding)), None)
        return header
    # A field that one row lacks may occur in others.
    rows = islice(json_rows(file, on_unreadable=lambda *_: None), _JSON_SAMPLE_ROWS)
    sample = [row for _, row in rows]
    names = list(dict.fromkeys(name for row in sample for name in row))
    names += [
        path for path in paths if any(path not in row and _field(row, path) is not None for row in sample)
    ]
    if not names:
        next(json_rows(file), None)  # Raises the fault of the first row.
    return names


def _default(name: str, rows: pa.Table, run: str, earlier_rows: int) -> Any:
    if name == "index":
        return pc.add(rows.column(_ROW), earlier_rows - 1)
    if name == "time":
        return rows.column("index")
    return pa.repeat(pa.scalar(_DEFAULT_GROUP if name == "group" else run, pa.string()), rows.num_rows)


def _with_constant(rows: pa.Table, name: str, value: str | None, file: Path, theirs: str) -> pa.Table:
    """The rows with an added column of one value, taken from the name of a partition's folder."""
    try:
        converted = convert_value(value, _TYPES[name], _label(name, theirs))
    except ValueError as error:
        raise InputError(f"{file}: the name of its folder, {error}") from error
    return rows.append_column(name, pa.array([converted] * rows.num_rows, _TYPES[name]))


def _map_kinds(rows: pa.Table, mapping: ColumnMap, file: Path) -> pa.Table:
    """The rows with our words for kinds, without the rows to skip."""
    column = rows.column("kind").combine_chunks().dictionary_encode()
    words = column.dictionary.to_pylist()
    kinds = [mapping.kinds.get(word, word) for word in words]
    for word, kind in zip(words, kinds, strict=True):
        if kind not in (*KINDS, SKIP):
            place = rows.column("kind").index(word).as_py()
            raise InputError(f"{file}, {next(_places(rows.slice(place, 1)))}: {unknown_kind(word)}")
    mapped = pa.array(kinds, pa.string()).take(column.indices)
    rows = rows.set_column(rows.column_names.index("kind"), "kind", mapped)
    if SKIP in kinds:
        rows = rows.filter(pc.fill_null(pc.not_equal(rows.column("kind"), SKIP), True))
    return rows


def _leave_out_incomplete(rows: pa.Table, file: Path, columns: dict[str, str], bad: BadRows) -> pa.Table:
    for name in ("process", "kind", MESSAGE, "origin", "seq", "index", "run", "group"):
        if name in rows.column_names and rows.column(name).null_count:
            empty = rows.column(name).is_null()
            hint = f"; --map {name}= does without it" if name in ("run", "group") else ""
            lacking = rows.filter(empty)
            field = _label(name, columns.get(name, name))
            examples = (f"{place}, field {field}: it is empty{hint}" for place in _places(lacking))
            bad.add_all("rows that lack a field, left out", examples, lacking.num_rows, str(file))
            rows = rows.filter(pc.invert(empty))
    return rows


def _places(rows: pa.Table) -> Iterator[str]:
    """The location of each row in its file, in words."""
    lines = rows.column(_LINE) if _LINE in rows.column_names else [None] * rows.num_rows
    for number, line in zip(rows.column(_ROW), lines, strict=True):
        yield _place(number.as_py(), None if line is None else line.as_py())


def _place(row: int, line: int | None) -> str:
    return f"row {row}" if line is None else f"row {row} (line {line})"


def _label(ours: str, theirs: str) -> str:
    return theirs if ours == theirs else f"{theirs} ({ours})"


def _read(file: Path, columns: dict[str, str], bad: BadRows, encoding: str | None) -> Iterator[pa.Table]:
    """Rows in our types, each with its number in the file."""
    if file.suffix == ".parquet":
        yield from _read_parquet(file, columns, bad)
        return

    is_csv, lines = table_suffix(file) == ".csv", LineNumbers()

    def line() -> int | None:
        return lines.first if is_csv else None

    def unreadable(number: int, why: str) -> None:
        bad.count(file, 1)
        why = why.replace("give the --encoding", "say which with --map encoding=latin-1 or another")
        bad.add("rows that cannot be read, left out", f"{_place(number, line())}: {why}", str(file))

    source: Iterator[tuple[int, dict[str, Any]]]
    source = (
        csv_rows(file, on_unreadable=unreadable, form=CsvFormat(encoding), line_numbers=lines)
        if is_csv
        else json_rows(file, unreadable)
    )
    places = [(_ROW, pa.int64()), (_LINE, pa.int64())]
    schema = pa.schema([(ours, _TYPES[ours]) for ours in columns] + places)
    times = columns.get("time", "")
    others = {ours: theirs for ours, theirs in columns.items() if ours != "time"}
    batch: list[dict[str, Any]] = []
    empty = True
    for number, row in source:
        empty = False
        bad.count(file, 1)
        try:
            values = {
                ours: convert_value(_field(row, theirs), _TYPES[ours], _label(ours, theirs))
                for ours, theirs in others.items()
            }
        except ValueError as error:
            bad.add(_WRONG_VALUE, f"{_place(number, line())}, {error}", str(file))
            continue
        if times:
            values["time"] = text_of_time(_field(row, times))
        batch.append({**values, _ROW: number, _LINE: line()})
        if len(batch) >= BATCH_ROWS:
            yield pa.Table.from_pylist(batch, schema=schema)
            batch = []
    if empty and not bad.rows:
        raise empty_file(file)
    yield pa.Table.from_pylist(batch, schema=schema)


def _read_parquet(file: Path, columns: dict[str, str], bad: BadRows) -> Iterator[pa.Table]:
    opened = parquet_file(file, text_columns_of(open_any_parquet(file)))
    rows_before = 0
    try:
        for batch in opened.iter_batches(BATCH_ROWS, columns=list(dict.fromkeys(columns.values()))):
            refuse_long_text(batch, file)
            table = pa.Table.from_batches([batch])
            table.validate(full=True)
            numbers = pa.array(range(rows_before + 1, rows_before + len(batch) + 1), pa.int64())
            rows_before += len(batch)
            bad.count(file, len(batch))
            yield _convert_columns(table, columns, numbers, file, bad)
    except (pa.ArrowException, OSError) as error:
        raise damaged_parquet(file, error) from error
    if not rows_before:
        kinds = {ours: _TYPES[ours] for ours in columns} | {_ROW: pa.int64()}
        yield pa.schema(kinds).empty_table()


def _convert_columns(
    table: pa.Table, columns: dict[str, str], numbers: pa.Array, file: Path, bad: BadRows
) -> pa.Table:
    """The columns in our types; rows with a value that cannot be converted are left out."""
    converted: dict[str, Any] = {}
    wrong: dict[int, str] = {}
    for ours, theirs in columns.items():
        column = table.column(theirs)
        if ours == "time":
            converted[ours] = column
            continue
        try:
            converted[ours] = _cast(column, ours, theirs, file)
        except pa.ArrowInvalid as error:
            converted[ours] = _convert_one_by_one(column, ours, theirs, wrong)
            if not wrong:
                raise InputError(f"{file}, column {theirs} ({ours}): {first_line(error)}") from error
    rows = pa.table({**converted, _ROW: numbers})
    if not wrong:
        return rows
    for place, why in sorted(wrong.items()):
        bad.add(_WRONG_VALUE, f"row {numbers[place]}, {why}", str(file))
    return rows.filter(pa.array([place not in wrong for place in range(rows.num_rows)]))


def _convert_one_by_one(column: pa.ChunkedArray, ours: str, theirs: str, wrong: dict[int, str]) -> pa.Array:
    """A column some of whose values cannot be converted; their positions and the reasons are added to
    `wrong`."""
    values: list[Any] = []
    for place, value in enumerate(column.to_pylist()):
        value = int(value) if isinstance(value, float) and value.is_integer() else value
        try:
            values.append(convert_value(value, _TYPES[ours], _label(ours, theirs)))
        except ValueError as error:
            values.append(None)
            wrong.setdefault(place, str(error))
    return pa.array(values, _TYPES[ours])


def _cast(column: pa.ChunkedArray, ours: str, theirs: str, file: Path) -> pa.ChunkedArray:
    """A column in our type, if the conversion loses nothing."""
    expected = _TYPES[ours]
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    kind = column.type
    text = is_text(kind)
    listed = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    try:
        if pa.types.is_list(expected) and (text or listed):
            lists = pc.utf8_split_whitespace(pc.utf8_trim_whitespace(column)) if text else column
            return lists.cast(expected)
        if pa.types.is_string(expected) and (text or pa.types.is_integer(kind)):
            return column.cast(expected)
        # A column of integers with nulls is often written as floating-point numbers.
        if (pa.types.is_integer(kind) or pa.types.is_floating(kind)) and not pa.types.is_list(expected):
            return column.cast(pa.int64()).cast(expected)
    except pa.ArrowNotImplementedError as error:
        raise InputError(f"{file}, column {theirs} ({ours}): {first_line(error)}") from error
    raise InputError(f"{file}: column {theirs} holds {kind}, which cannot be {ours}: expected {expected}")
