"""The one definition of a valid event row, and of how an invalid one is reported.

Input from outside is checked on four levels:

1. A *table* has every required column, none twice, each of the right type: `check_columns`, for Parquet
   `check_parquet_schema`.
2. A *value* has its column's type, and required ones are not empty: `validate_parquet_batch` for Parquet
   rows, `validate_rows` for JSON lines and CSV, `convert_value` for tables of other programs (`--map`), which
   may have numbers as names and text as numbers.
3. A *row* has a known kind and a `seq` from 1 (a stream may be closed at 0), and a process sends only its own
   messages: `check_event` for one row, `invalid_events` for arrays, `INVALID_ROW_SQL` for Spark. The latter
   two find the first offending row, for which `check_event` then raises the error.
4. A *run* has one event per index, one send per message, and names in its destinations: `check_run`, or
   `check_encoded_run` for arrays, `SENT_TWICE_SQL` and `EMPTY_DESTINATION_SQL` for Spark.

An error names the file, the row and the field, where these exist, and what to do about it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from antecede.errors import InputError
from antecede.trace.bad_rows import brief
from antecede.trace.copies import table_suffix
from antecede.trace.missing_columns import missing_columns
from antecede.trace.schema import CHANGE_KINDS, CLOSE, COUNT_KINDS, FIELDS, KINDS, REQUIRED, SCHEMA, SEND
from antecede.trace.times import parse_time
from antecede.units import count_of

INVALID_ROW_SQL = " or ".join(
    [
        *(f"`{name}` is null" for name in REQUIRED),
        f"kind not in ({', '.join(map(repr, KINDS))})",
        "seq < if(kind in ('close', 'snapshot'), 0, 1)",
        "(kind = 'send' and origin != process)",
    ]
)
"""The rules of values and rows as one condition for Spark; true for a row that `check_event` refuses."""
NO_CHANGE_SQL = f"kind is null or kind not in ({', '.join(map(repr, CHANGE_KINDS))})"
"""True for rows that are not changes of a group."""
EMPTY_DESTINATION_SQL = "exists(destinations, name -> name is null)"
"""True for a send that `destinations` refuses."""
SENT_TWICE_SQL = "count(*) > 1"
"""True for the sends of one origin and seq that `check_run` refuses; for Spark's aggregation by these."""

_LIKELY_KINDS = {
    "deliver": ("rec", "rcv", "rx", "deliv", "consum", "handle", "apply", "sub", "get", "read"),
    "send": ("send", "sent", "tx", "pub", "prod", "emit", "broadcast", "write", "put"),
}
"""Parts of words for kinds in logs of other programs. A log with a single word for arriving messages means
that its application received them: a delivery."""
_INTEGER = re.compile(r"\s*[+-]?[0-9]{1,30}\s*")
MAX_WHOLE = (1 << 63) - 1
"""The largest number in a column of numbers."""
_MAX_NAME = 1 << 128
"""The largest number that may serve as a name in another program's table."""


# Tables: which columns, of which type.


def check_columns(names: Sequence[str], where: str) -> None:
    """Refuse a table that lacks a required column."""
    if any(name not in names for name in REQUIRED):
        raise missing_columns(names, where)


def refuse_duplicate_columns(names: Sequence[str], where: Path | str) -> None:
    for name, count in Counter(names).items():
        if count > 1:
            raise InputError(f"{where}: it has two columns {brief(name)}; rename or remove one")


def check_parquet_schema(schema: pa.Schema, file: Path) -> None:
    """Refuse a Parquet file whose columns are not those of a trace; its footer is enough for that."""
    check_columns(schema.names, str(file))
    refuse_duplicate_columns(schema.names, file)
    _refuse_flipped_names(schema.names, file)
    for field in schema:
        if field.name in FIELDS:
            _check_column_type(field, file)


def _refuse_flipped_names(names: Sequence[str], file: Path) -> None:
    """Refuse a name that differs from an optional column's by one flipped bit: no checksum covers names, and
    the column would seem to be missing."""
    missing = [name.encode() for name in FIELDS if name not in names]
    for name in names:
        for ours in missing if name not in FIELDS else ():
            bits = int.from_bytes(ours) ^ int.from_bytes(name.encode())
            longer = name.encode().startswith(ours) and not name.isprintable()
            if longer or (len(ours) == len(name.encode()) and bits.bit_count() == 1):
                raise InputError(
                    f"{file} is a damaged Parquet file (column {ours.decode()} is called {brief(name)}, from "
                    "which one bit differs)"
                )


def _check_column_type(field: pa.Field, file: Path) -> None:
    expected = FIELDS[field.name][0]
    found = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
    same = (
        (pa.types.is_integer(expected) and pa.types.is_integer(found))
        or (pa.types.is_string(expected) and is_text(found))
        or (pa.types.is_list(expected) and (pa.types.is_list(found) or pa.types.is_large_list(found)))
    )
    if not same:
        raise InputError(f"{file}: column {field.name} holds {found}, expected {expected}")


def is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


# Values: of their column's type, and not empty.


def validate_parquet_batch(
    batch: pa.RecordBatch, schema: pa.Schema, file: Path, rows_before: int
) -> pa.Table:
    """The rows of a Parquet batch in the types of `schema`; an error names the row, counted in the file."""
    table = pa.Table.from_batches([batch])
    table.validate(full=True)
    table = cast_columns(table, schema, file)
    refuse_empty_fields(table, file, rows_before)
    return table


def cast_columns(table: pa.Table, schema: pa.Schema, file: Path) -> pa.Table:
    for field in schema:
        try:
            column = table.column(field.name).cast(field.type)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise InputError(f"{file}, column {field.name}: {first_line(error)}") from error
        table = table.set_column(table.column_names.index(field.name), field, column)
    return table


def refuse_empty_fields(table: pa.Table, file: Path, rows_before: int) -> None:
    """Refuse nulls in required columns; the error names the first."""
    for name in REQUIRED:
        column = table.column(name) if name in table.column_names else None
        if column is not None and column.null_count:
            row = rows_before + column.is_null().to_pylist().index(True) + 1
            raise InputError(f"{file}, row {row}, {empty_field(name)}")


def validate_rows(rows: Iterable[tuple[int, Mapping[str, Any]]], file: Path) -> pa.Table:
    """Numbered rows of JSON lines or CSV in the types of the schema."""
    from_text = text_value if table_suffix(file) == ".csv" else None
    return pa.Table.from_pylist(
        [validate_row(row, file, number, from_text) for number, row in rows], schema=SCHEMA
    )


def validate_row(
    row: Mapping[str, Any], file: Path, number: int, from_text: Callable[[str, str], Any] | None = None
) -> dict[str, Any]:
    """The fields of one row that a trace knows, each of its type; `from_text` converts fields of CSV."""
    fields = {}
    for name in FIELDS:
        if name in row or name in REQUIRED:
            value = from_text(row[name], name) if from_text and name in row else row.get(name)
            if value is None and name in REQUIRED:
                raise InputError(f"{file}, row {number}, {empty_field(name)}")
            if name == "time":
                value = _time_value(value, file, number)
            try:
                fields[name] = check_value(value, name)
            except ValueError as error:
                raise InputError(f"{file}, row {number}, {error}") from error
    return fields


def _time_value(value: Any, file: Path, number: int) -> int:
    time = parse_time(value)
    if time is None:
        raise InputError(
            f"{file}, row {number}, field time: '{brief(str(value))}' is not a time: a whole number of "
            "nanoseconds, seconds with a point, or ISO 8601; --map time= does without it"
        )
    return time


def empty_field(label: str) -> str:
    return f"field {label}: it is empty, and it is required"


def check_value(value: Any, name: str) -> Any:
    """A value that has exactly its column's type, or None; a ValueError says what was expected."""
    kind = FIELDS[name][0]
    if value is None:
        return None
    if pa.types.is_integer(kind):
        valid, expected = _fits_int64(value), _expected_whole(value)
    elif pa.types.is_list(kind):
        valid = isinstance(value, list) and all(isinstance(each, str) for each in value)
        expected = "a list of texts"
    else:
        valid, expected = isinstance(value, str), "text"
    if not valid:
        raise _wrong_type(name, expected, value)
    return value


def convert_value(value: Any, kind: pa.DataType, label: str) -> Any:
    """A value of another program's table in our column's type; None if it is empty.

    Numbers may be names, text may be numbers, and text with spaces may be a list.
    """
    if value is None or value == "":
        return None
    converted: Any
    if pa.types.is_list(kind):
        parts = value.split() if isinstance(value, str) else value
        names = [_as_name(each) for each in parts] if isinstance(parts, list) else [None]
        converted, expected = None if None in names else names, "a list of names"
    elif pa.types.is_integer(kind):
        number = parse_integer(value) if isinstance(value, str) else value
        converted, expected = number if _fits_int64(number) else None, _expected_whole(number)
    else:
        converted, expected = _as_name(value), "text or a whole number"
    if converted is None:
        raise _wrong_type(label, expected, value)
    return converted


def text_value(text: str, name: str) -> Any:
    """A field of CSV as a value of column `name`; text that is not a number is left for `check_value` to
    refuse."""
    kind = FIELDS[name][0]
    if text == "" and name not in REQUIRED:
        return None
    if pa.types.is_integer(kind) and name != "time":
        number = parse_integer(text)
        return text if number is None else number
    return text.split() if pa.types.is_list(kind) else text


def parse_integer(text: str) -> int | None:
    """A number as people write it, or None. Python's `int` would also take 1_000 and digits of any script."""
    return int(text) if _INTEGER.fullmatch(text) else None


def _fits_int64(value: Any) -> bool:
    return type(value) is int and -(2**63) <= value < 2**63


def _expected_whole(value: Any) -> str:
    """What is expected of a number; a whole number that is refused is too large."""
    return f"a whole number of at most {MAX_WHOLE}" if type(value) is int else "a whole number"


def _as_name(value: Any) -> str | None:
    if isinstance(value, str) or (type(value) is int and abs(value) < _MAX_NAME):
        return str(value)
    return None


def _wrong_type(label: str, expected: str, value: Any) -> ValueError:
    try:
        shown = brief(repr(value))
    except ValueError:  # Python does not print numbers of thousands of digits.
        shown = "a huge number"
    return ValueError(f"field {label}: expected {expected}, got {shown}")


# Rows and runs: events that cannot have happened.


def check_event(process: str, index: int, kind: str, origin: str, seq: int) -> None:
    """Refuse an event that cannot have happened: the rules of `invalid_events` and `INVALID_ROW_SQL`."""
    where = f"process {process}, index {index}"
    if kind not in KINDS:
        raise InputError(f"{where}: {unknown_kind(kind)}")
    if seq < (kind not in COUNT_KINDS):
        raise InputError(
            f"{where}: seq {seq} is not 1 or more; --map seq.first=0 is for logs that count from 0"
        )
    if kind == "send" and origin != process:
        raise InputError(f"{where}: it sends a message of {origin}; the origin of a send is its process")


def unknown_kind(kind: str) -> str:
    known, word = f"{', '.join(KINDS[:-1])} or {KINDS[-1]}", brief(kind)
    likely = [ours for ours, words in _LIKELY_KINDS.items() if any(each in word.lower() for each in words)]
    example = " or ".join(f"kind.{ours}={word}" for ours in (likely[:1] or ("send", "deliver")))
    return (
        f"kind '{word}' is not {known}; say what it is with --map, as in {example}, or kind.skip={word} to "
        "leave such rows out"
    )


def invalid_events(kind: np.ndarray, seq: np.ndarray, origin: np.ndarray, process: np.ndarray) -> np.ndarray:
    """Which rows `check_event` refuses. Kinds are indices in `KINDS`, -1 if unknown; origins and processes
    are numbers for the same names."""
    invalid: np.ndarray = (kind < 0) | (seq < (kind < CLOSE)) | ((kind == SEND) & (origin != process))
    return invalid


def check_run(rows: pa.Table) -> None:
    """Refuse the rows of one run if anything in them cannot have happened."""
    refuse_empty_columns(rows)
    processes, origins = (
        rows.column(name).combine_chunks().dictionary_encode() for name in ("process", "origin")
    )
    names = processes.dictionary.to_pylist()
    ranks = {name: rank for rank, name in enumerate(names)}
    origin_ranks = [ranks.setdefault(name, len(ranks)) for name in origins.dictionary.to_pylist()]
    process = processes.indices.to_numpy().astype(np.int64)
    origin = np.array(origin_ranks, np.int64)[origins.indices.to_numpy()]
    index, seq = (rows.column(name).to_numpy() for name in ("index", "seq"))
    order = np.lexsort((index, process))
    columns = (process, index, kind_codes(rows.column("kind")), origin, seq)
    check_encoded_run(list(ranks), rows.column("kind"), order, *(column[order] for column in columns))
    destinations(rows)


def refuse_empty_columns(rows: pa.Table) -> None:
    for name in REQUIRED:
        if empty := rows.column(name).null_count:
            raise InputError(empty_rows(name, empty))


def empty_rows(name: str, count: int) -> str:
    return f"field {name} is empty in {count_of(count, 'row')}"


def kind_codes(kinds: pa.ChunkedArray) -> np.ndarray:
    """The index of each kind in `KINDS`; -1 if it is unknown."""
    places = pc.fill_null(pc.index_in(kinds, pa.array(KINDS, pa.string())), -1)
    codes: np.ndarray = places.to_numpy().astype(np.int64)
    return codes


def check_encoded_run(
    names: Sequence[str],
    kinds: pa.ChunkedArray,
    order: np.ndarray,
    process: np.ndarray,
    index: np.ndarray,
    kind: np.ndarray,
    origin: np.ndarray,
    seq: np.ndarray,
) -> None:
    """`check_run` for encoded rows, sorted by process and index.

    `names` are the names of processes and origins, `order` is the position of each row in the column `kinds`.
    """
    for row in np.flatnonzero(invalid_events(kind, seq, origin, process))[:1]:
        word = kinds[int(order[row])].as_py()
        check_event(names[process[row]], int(index[row]), word, names[origin[row]], int(seq[row]))
    for row in np.flatnonzero((np.diff(process) == 0) & (np.diff(index) == 0))[:1]:
        raise duplicate_index(names[process[row]], int(index[row]))
    sends = np.flatnonzero(kind == SEND)
    by_message = sends[np.lexsort((index[sends], seq[sends], origin[sends]))]
    again = (np.diff(origin[by_message]) == 0) & (np.diff(seq[by_message]) == 0)
    for row in by_message[1:][again][:1]:
        raise sent_twice(names[origin[row]], int(seq[row]), int(index[row]))


def duplicate_index(process: str, index: int) -> InputError:
    return InputError(
        f"process {process} has two events with index {index}; the index must number the events of each "
        "process, and if there are several runs, a column run must name them (--map run=…)"
    )


def sent_twice(origin: str, seq: int, index: int) -> InputError:
    return InputError(
        f"{origin}:{seq} is sent twice, again at index {index}; a seq is used once by its origin"
    )


def id_sent_twice(message: str, first: str, second: str) -> str:
    both = f"by {brief(first)} and by {brief(second)}"
    senders = both if first != second else f"both times by {brief(first)}"
    return (
        f"message {brief(message)} is sent twice, {senders}; an id names one message of a run, and what is "
        "a run of its own needs a column (--map run=…) or a file (--run-per-file)"
    )


def destinations(rows: pa.Table) -> dict[tuple[str, int], list[str]]:
    """The destinations that sends name, by origin and seq; an empty name among them is refused."""
    if "destinations" not in rows.column_names:
        return {}
    named = pc.and_(pc.equal(rows.column("kind"), "send"), pc.is_valid(rows.column("destinations")))
    sends = rows.filter(named)
    ids = zip(sends.column("origin").to_pylist(), sends.column("seq").to_pylist(), strict=True)
    found: dict[tuple[str, int], list[str]] = {}
    for (origin, seq), names in zip(ids, sends.column("destinations").to_pylist(), strict=True):
        if None in names:
            raise empty_destination(origin, seq)
        found[origin, seq] = names
    return found


def empty_destination(origin: str, seq: int) -> InputError:
    return InputError(
        f"the destinations of {origin}:{seq} have an empty name among them; name whom it goes to"
    )


def first_line(error: Exception) -> str:
    return str(error).splitlines()[0].rstrip(".") if str(error) else type(error).__name__
