"""Reading somebody else's table of events under our names, batch by batch.

Values take our types; nothing is guessed but what a table lacks: `run` is the file's name, `group` is all,
`time` is `index`, and `index` is the row's place in the file.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from antecede.errors import InputError
from antecede.trace.bad_rows import BadRows, brief
from antecede.trace.foreign.column_map import COLUMNS, MESSAGE, SKIP, ColumnMap
from antecede.trace.reader import BATCH_ROWS, csv_rows, first_line, json_rows, open_any_parquet, parse_integer
from antecede.trace.schema import FIELDS, KINDS, REQUIRED

TYPES = {name: kind for name, (kind, _) in FIELDS.items()} | {MESSAGE: pa.string()}
_DEFAULTS = ("run", "group", "index", "time")
_BY_OUR_NAME = (*REQUIRED, "destinations")
"""Columns that are read without being asked for; others may have our names by accident."""
GROUP = "all"
_JSON_ROWS = 1000
_LARGEST = 1 << 128
"""Of a number that names something."""
_NEITHER = "there is neither an id of messages (message) nor origin and seq"


def column_names(file: Path) -> list[str]:
    """What a table's columns are called; of JSON lines, the first rows' fields."""
    if file.suffix == ".parquet":
        return list(open_any_parquet(file).schema_arrow.names)
    if file.suffix == ".csv":
        header: list[str] = []
        next(csv_rows(file, header.extend, wrong=lambda *_: None), None)
        return header
    # A row that lacks a field does not say that all do.
    rows = islice(json_rows(file, wrong=lambda *_: None), _JSON_ROWS)
    names = list(dict.fromkeys(name for _, row in rows for name in row))
    if not names:
        next(json_rows(file), None)  # says what is wrong with the first row
    return names


def resolve(file: Path, mapping: ColumnMap) -> dict[str, str]:
    """Which of our columns a table has, and what it calls them."""
    there = column_names(file)
    if not there:
        raise InputError(f"{file} is empty; a trace needs at least one row")
    found = {}
    for name in COLUMNS:
        theirs = mapping.columns.get(name, name if name in _BY_OUR_NAME else "")
        # A row of JSON need not have a field that others have.
        may_lack = name not in REQUIRED and name != MESSAGE and file.suffix not in (".parquet", ".csv")
        if theirs and (theirs in there or may_lack):
            if there.count(theirs) > 1:
                raise InputError(f"{file}: it has two columns {theirs}")
            found[name] = theirs
        elif mapping.columns.get(name):
            shown = brief(", ".join(there))
            raise InputError(f"{file} has no column {theirs}, which --map says is {name}; it has {shown}")
    if MESSAGE in found:
        found.pop("origin", None)
        found.pop("seq", None)
    if "kind" not in found:
        raise InputError(
            f"{file} has no column kind: nothing says which rows are deliveries, so none can be judged; name "
            f"it with --map kind=…, or look at what depends on what with antecede graph"
        )
    if "process" not in found:
        raise InputError(f"{file} has no column process; say what it is called with --map process=…")
    if MESSAGE not in found and ("origin" not in found or "seq" not in found):
        raise InputError(f"{file}: {_NEITHER}; say which column it is with --map message=…")
    return found


def read_mapped_rows(
    path: Path, files: list[Path], mapping: ColumnMap, bad: BadRows | None = None
) -> Iterator[pa.Table]:
    """The rows of the files at `path` under our names, and with our words for kinds.

    A row that cannot be read raises an error, unless `bad` counts it: then it is left out.
    """
    bad = bad or BadRows(str(path))
    earlier = 0
    for file in files:
        found = resolve(file, mapping)
        lacking = [name for name in _DEFAULTS if name not in found]
        last = 0
        for rows in _read(file, found, bad):
            for name in lacking:
                rows = rows.append_column(name, _default(name, rows, path, file, earlier))
            last = rows.column(_ROW)[-1].as_py() if rows.num_rows else last
            rows = _without_empty(_kinds(rows, mapping, file), file, found, bad)
            if mapping.first_seq == 0 and "seq" in rows.column_names:
                place = rows.column_names.index("seq")
                rows = rows.set_column(place, "seq", pc.add(rows.column("seq"), 1))
            yield rows.drop_columns([_ROW])
        earlier += last


_ROW = "row of the file"


def _default(name: str, rows: pa.Table, path: Path, file: Path, earlier: int) -> Any:
    if name == "index":
        return pc.add(rows.column(_ROW), earlier - 1)
    if name == "time":
        return rows.column("index")
    # Parts that a program numbered are one run; other files are a run each.
    of_parts = path.is_dir() and file.name.startswith("part-")
    value = GROUP if name == "group" else file.parent.resolve().name if of_parts else file.stem
    return pa.array([value] * rows.num_rows, pa.string())


def _kinds(rows: pa.Table, mapping: ColumnMap, file: Path) -> pa.Table:
    """With our words for kinds, and without events that are none of ours."""
    column = rows.column("kind").combine_chunks().dictionary_encode()
    words = column.dictionary.to_pylist()
    ours = [mapping.kinds.get(word, word) for word in words]
    for word, kind in zip(words, ours, strict=True):
        if kind not in (*KINDS, SKIP):
            place = rows.column("kind").index(word).as_py()
            raise InputError(
                f"{file}, row {rows.column(_ROW)[place].as_py()}: kind '{brief(word)}' is not "
                f"{', '.join(KINDS[:-1])} or {KINDS[-1]}; say what it is with --map, as in "
                f"kind.send={brief(word)}, or kind.skip={brief(word)} to leave such rows out"
            )
    renamed = pa.array(ours, pa.string()).take(column.indices)
    rows = rows.set_column(rows.column_names.index("kind"), "kind", renamed)
    if SKIP in ours:
        rows = rows.filter(pc.fill_null(pc.not_equal(rows.column("kind"), SKIP), True))
    return rows


def _without_empty(rows: pa.Table, file: Path, found: dict[str, str], bad: BadRows) -> pa.Table:
    for name in ("process", "kind", MESSAGE, "origin", "seq", "index", "run", "group", "time"):
        if name in rows.column_names and rows.column(name).null_count:
            empty = rows.column(name).is_null()
            what = f"field {name}" if found.get(name, name) == name else f"field {found[name]} ({name})"
            hint = f"; --map {name}= does without it" if name in ("run", "group", "time") else ""
            numbers = rows.column(_ROW).filter(empty)
            examples = (f"row {number}, {what}: it is empty{hint}" for number in numbers)
            bad.add_all("rows that lack a field, left out", examples, len(numbers), str(file))
            rows = rows.filter(pc.invert(empty))
    return rows


def _read(file: Path, columns: dict[str, str], bad: BadRows) -> Iterator[pa.Table]:
    """Rows in our types, each with its number in the file."""
    if file.suffix == ".parquet":
        yield from _read_parquet(file, columns, bad)
        return

    def unreadable(number: int, why: str) -> None:
        bad.add("rows that cannot be read, left out", f"row {number}: {why}", str(file))

    source: Iterator[tuple[int, dict[str, Any]]]
    source = csv_rows(file, wrong=unreadable) if file.suffix == ".csv" else json_rows(file, unreadable)
    schema = pa.schema([(ours, TYPES[ours]) for ours in columns] + [(_ROW, pa.int64())])
    batch: list[dict[str, Any]] = []
    seen = False
    for number, row in source:
        seen = True
        try:
            taken = {ours: _value(row.get(theirs), ours, theirs) for ours, theirs in columns.items()}
        except ValueError as error:
            bad.add(_WRONG, f"row {number}, {error}", str(file))
            continue
        batch.append({**taken, _ROW: number})
        if len(batch) >= BATCH_ROWS:
            yield pa.Table.from_pylist(batch, schema=schema)
            batch = []
    if not seen and not bad.rows:
        raise InputError(f"{file} is empty; a trace needs at least one row")
    yield pa.Table.from_pylist(batch, schema=schema)


_WRONG = "rows with a value of the wrong kind, left out"


def _read_parquet(file: Path, columns: dict[str, str], bad: BadRows) -> Iterator[pa.Table]:
    opened = pq.ParquetFile(file)
    before = 0
    try:
        for batch in opened.iter_batches(BATCH_ROWS, columns=list(dict.fromkeys(columns.values()))):
            table = pa.Table.from_batches([batch])
            table.validate(full=True)
            numbers = pa.array(range(before + 1, before + len(batch) + 1), pa.int64())
            before += len(batch)
            yield _in_our_types(table, columns, numbers, file, bad)
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{file} is a damaged Parquet file ({first_line(error)})") from error
    if not before:
        kinds = {ours: TYPES[ours] for ours in columns} | {_ROW: pa.int64()}
        yield pa.schema(kinds).empty_table()


def _in_our_types(
    table: pa.Table, columns: dict[str, str], numbers: pa.Array, file: Path, bad: BadRows
) -> pa.Table:
    taken: dict[str, Any] = {}
    wrong: dict[int, str] = {}
    for ours, theirs in columns.items():
        column = table.column(theirs)
        try:
            taken[ours] = _cast(column, ours, theirs, file)
        except pa.ArrowInvalid as error:
            taken[ours] = _one_by_one(column, ours, theirs, wrong)
            if not wrong:
                raise InputError(f"{file}, column {theirs} ({ours}): {first_line(error)}") from error
    rows = pa.table({**taken, _ROW: numbers})
    if not wrong:
        return rows
    for place, why in sorted(wrong.items()):
        bad.add(_WRONG, f"row {numbers[place]}, {why}", str(file))
    kept = [place not in wrong for place in range(rows.num_rows)]
    return rows.filter(pa.array(kept))


def _one_by_one(column: pa.ChunkedArray, ours: str, theirs: str, wrong: dict[int, str]) -> pa.Array:
    """A column in our type of which some values cannot be; where, and why, is put into `wrong`."""
    values: list[Any] = []
    for place, value in enumerate(column.to_pylist()):
        whole = isinstance(value, float) and value.is_integer()
        try:
            values.append(_value(int(value) if whole else value, ours, theirs))
        except ValueError as error:
            values.append(None)
            wrong.setdefault(place, str(error))
    return pa.array(values, TYPES[ours])


def _cast(column: pa.ChunkedArray, ours: str, theirs: str, file: Path) -> pa.ChunkedArray:
    """A column in our type, where that loses nothing."""
    expected = TYPES[ours]
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    kind = column.type
    text = pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    listed = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    try:
        if pa.types.is_list(expected) and (text or listed):
            return (pc.utf8_split_whitespace(pc.utf8_trim_whitespace(column)) if text else column).cast(
                expected
            )
        if ours == "time" and pa.types.is_timestamp(kind):
            return _nanoseconds(column, theirs, file)
        if pa.types.is_string(expected) and (text or pa.types.is_integer(kind)):
            return column.cast(expected)
        # Whole numbers come as floating ones out of tables in which some are missing.
        if (pa.types.is_integer(kind) or pa.types.is_floating(kind)) and not pa.types.is_list(expected):
            return column.cast(pa.int64()).cast(expected)
    except pa.ArrowNotImplementedError as error:
        raise InputError(f"{file}, column {theirs} ({ours}): {first_line(error)}") from error
    raise InputError(f"{file}: column {theirs} holds {kind}, which is no {ours}: expected {expected}")


def _nanoseconds(column: pa.ChunkedArray, theirs: str, file: Path) -> pa.ChunkedArray:
    try:
        return column.cast(pa.timestamp("ns", column.type.tz)).cast(pa.int64())
    except pa.ArrowInvalid as error:
        raise InputError(
            f"{file}, column {theirs} (time): {first_line(error)}; --map time= does without it"
        ) from error


def _value(value: Any, ours: str, theirs: str) -> Any:
    """A value of a row in our column's type; None if there is none. A ValueError says what is wrong."""
    kind = TYPES[ours]
    if value is None or value == "":
        return None
    made: Any
    if pa.types.is_list(kind):
        parts = value.split() if isinstance(value, str) else value
        names = [_name(each) for each in parts] if isinstance(parts, list) else [None]
        made, expected = None if None in names else names, "a list of names"
    elif pa.types.is_integer(kind):
        made, expected = _whole(value), "a whole number"
    else:
        made, expected = _name(value), "text or a whole number"
    if made is not None:
        return made
    what = theirs if ours == theirs else f"{theirs} ({ours})"
    raise ValueError(f"field {what}: expected {expected}, got {_shown(value)}")


def _name(value: Any) -> str | None:
    if isinstance(value, str) or (type(value) is int and abs(value) < _LARGEST):
        return str(value)
    return None


def _whole(value: Any) -> int | None:
    if isinstance(value, str):
        value = parse_integer(value)
    return value if type(value) is int and -(2**63) <= value < 2**63 else None


def _shown(value: Any) -> str:
    try:
        return brief(repr(value))
    except ValueError:  # Python does not write out numbers of thousands of digits
        return "a huge number"
