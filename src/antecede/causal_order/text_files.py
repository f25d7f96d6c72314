"""Rows of CSV and JSON lines as Arrow batches: the same in this process and in Spark's tasks.

Both engines read files by these functions, so they have the same rows. A row that cannot be read becomes a
row of nulls whose column UNREADABLE says where it is and why, and whose UNREADABLE_ROW has the text of the
file. Cost: about a million rows of a few columns per second.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from operator import attrgetter
from pathlib import Path
from typing import IO, Any, NamedTuple
from urllib.parse import unquote

import msgspec
import numpy as np
import pyarrow as pa

from antecede.causal_order.columns import Roles
from antecede.causal_order.json_kinds import Kinds, add_kinds, infer_types, merge_kinds
from antecede.causal_order.rules import PLACE
from antecede.causal_order.text_types import (
    PARSERS,
    Whole,
    arrow_type,
    parse_json,
    refuse_unknown,
    spark_type,
)
from antecede.errors import InputError
from antecede.trace.bad_rows import UNREADABLE, UNREADABLE_ROW
from antecede.trace.csv_records import (
    CsvFormat,
    RecordLines,
    csv_records,
    decode_csv,
    open_csv,
    read_header,
)
from antecede.trace.json_lines import json_lines
from antecede.trace.validate import refuse_duplicate_columns
from antecede.units import count_of

_BATCH_ROWS = 65_536
_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"


def bad_rows(count: int, first: str) -> InputError:
    """The refusal of rows that cannot be read."""
    return InputError(
        f"{count_of(count, 'row')} cannot be read; one is {first}; correct or drop them, or leave out "
        "--strict to have them quarantined"
    )


class FilePart(NamedTuple):
    """Some rows of a file: all, or those whose bytes begin in a range."""

    file: str
    begin: int = 0
    end: int | None = None
    first_row: int = 1
    """The number of the first of these rows."""


class TextPlan(msgspec.Struct, frozen=True):
    """How to read the files of a table."""

    folder: str
    """The folder that names of files are relative to, below which folders may be columns."""
    format: str
    columns: dict[str, str]
    """The types of the columns in the files."""
    in_folders: list[str]
    """Columns in the names of folders, as in room=a."""
    csv: CsvFormat = CsvFormat()
    strict: bool = False
    """Whether a row that cannot be read is an error."""

    def types(self) -> dict[str, str]:
        """Spark's names for the types of all columns."""
        types = {name: spark_type(kind) for name, kind in self.columns.items()}
        types |= dict.fromkeys([*self.in_folders, UNREADABLE], "string")
        return types | {UNREADABLE_ROW: "binary"}

    def schema(self) -> pa.Schema:
        fields = [(name, arrow_type(kind)) for name, kind in self.columns.items()]
        fields += [(name, pa.string()) for name in (*self.in_folders, UNREADABLE)]
        return pa.schema([*fields, (UNREADABLE_ROW, pa.binary())])

    def read(self, part: FilePart, place: int | None = None) -> Iterator[pa.RecordBatch]:
        """The rows of a part of a file; with PLACE, if the file's place is given."""
        read = _read_csv if self.format == "csv" else _read_json
        name = Path(part.file).relative_to(self.folder)
        folders = folder_values(name)
        if list(folders) != self.in_folders:
            raise InputError(f"{name} is not below {'/'.join(f'{each}=…' for each in self.in_folders)}")
        schema = self.schema()
        for columns, faults, texts, numbers in read(self, part):
            if self.strict and faults:
                raise InputError(f"{name}, {next(iter(faults.values()))}; without --strict it is quarantined")
            for values in columns:
                for at in faults:
                    values[at] = None
            size = len(columns[0])
            columns += [[value] * size for value in folders.values()]
            columns.append([f"{name}, {faults[at]}" if at in faults else None for at in range(size)])
            columns.append([texts[at] if at in faults else None for at in range(size)])
            arrays = [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)]
            batch = pa.record_batch(arrays, schema=schema)
            if place is not None:
                batch = batch.append_column(PLACE, pa.array(np.array(numbers, np.int64) + place))
            yield batch


class _Batch:
    """Rows of a part, and the faults of those that cannot be read."""

    def __init__(self, empty: Any) -> None:
        self._empty = empty
        self.clear()

    def clear(self) -> None:
        self.rows: list[Any] = []
        self.numbers: list[int] = []
        self.faults: dict[int, str] = {}
        self.texts: list[bytes] = []
        """The original text of each row."""

    def add(self, number: int, row: Any, text: bytes) -> None:
        self.rows.append(row)
        self.numbers.append(number)
        self.texts.append(text)

    def fail(self, number: int, why: str, text: bytes) -> None:
        self.faults[len(self.rows)] = f"row {number}: {why}"
        self.add(number, self._empty, text)

    def convert(self, values: Iterable[Any], parse: Callable[[Any], Any], name: str) -> list[Any]:
        """The values of a column; a row with one that cannot be converted cannot be read."""
        converted = []
        for at, value in enumerate(values):
            try:
                converted.append(None if value is None else parse(value))
            except ValueError as error:
                converted.append(None)
                self.faults.setdefault(at, f"row {self.numbers[at]}, field {name}: {error}")
        return converted


def plan_text(
    folder: Path,
    format_name: str,
    files: list[Path],
    schema: dict[str, str],
    roles: Roles,
    csv: CsvFormat,
    survey: Callable[[list[Path], str | None], Iterable[dict[str, Kinds]]] | None = None,
) -> TextPlan:
    """Find the columns of some files and their types; `survey` reads the kinds of JSON values elsewhere."""
    where = files[0] if len(files) == 1 else folder
    if format_name == "csv":
        names = _csv_header(files[0], csv)
        refuse_duplicate_columns([name.lower() for name in names], files[0])
        types = {name: schema.get(name, "string") for name in names}
        if "array<string>" in types.values():
            raise InputError("--schema: CSV has no arrays; --split separates the ids in one text")
    else:
        kinds: dict[str, Kinds] = {}
        for own in (survey or _survey_here)(files, roles["deps"]):
            merge_kinds(kinds, own)
        if not kinds:
            raise InputError(f"{where}: none of its lines is a JSON object; expected one in each line")
        types = infer_types(kinds, schema, roles)
    in_folders = list(folder_values(files[0].relative_to(folder)))
    refuse_unknown(schema, types)
    _refuse_names([*types, *in_folders], where)
    return TextPlan(str(folder), format_name, types, in_folders, csv)


def _refuse_names(names: list[str], where: Path) -> None:
    if "" in names:
        raise InputError(f"{where}: a column has no name; give it one")
    for name in (UNREADABLE, UNREADABLE_ROW, PLACE):
        if name in names:
            raise InputError(f"{where} has a column {name}, which is added to rows; rename it")
    # Spark does not tell names apart that differ in case only.
    refuse_duplicate_columns([name.lower() for name in names], where)


def folder_values(place: Path) -> dict[str, str | None]:
    """Columns in the names of folders, as Hive writes them."""
    pairs = [part.split("=", 1) for part in place.parts[:-1] if "=" in part]
    return {unquote(name): None if value == _NO_VALUE else unquote(value) for name, value in pairs}


# CSV


def _csv_header(file: Path, form: CsvFormat) -> list[str]:
    """Columns without a name get the one Spark gives them, by position."""
    with open_csv(file, form) as lines:
        try:
            names = read_header(lines, file, form)
        except UnicodeDecodeError as error:
            raise InputError(f"{file} is not text in {error.encoding}: {error.reason}") from error
    return [name or f"_c{place}" for place, name in enumerate(names)]


@contextmanager
def _open_part(part: FilePart) -> Iterator[IO[bytes]]:
    """The bytes of a part; a range is small enough for the memory."""
    with Path(part.file).open("rb") as stream:
        if part.end is None:
            yield stream
        else:
            stream.seek(part.begin)
            yield io.BytesIO(stream.read(part.end - part.begin))


_Rows = tuple[list[Any], dict[int, str], list[bytes], list[int]]
"""Columns, the faults of some of their rows, the original text of each row, and its number."""


def _read_csv(plan: TextPlan, part: FilePart) -> Iterator[_Rows]:
    file, form = Path(part.file), plan.csv
    names = _csv_header(file, form)
    if not names:
        return
    if sorted(names) != sorted(plan.columns):
        raise InputError(
            f"{file} has other columns than the files before it ({', '.join(names)} instead of "
            f"{', '.join(plan.columns)}); all files need the same"
        )
    places = [names.index(name) for name in plan.columns]
    batch = _Batch([None] * len(names))

    def columns() -> list[Any]:
        by_place = list(zip(*batch.rows, strict=True))
        return [
            batch.convert(by_place[place], _parse_field(kind), name)
            if kind in PARSERS
            else list(by_place[place])
            for place, (name, kind) in zip(places, plan.columns.items(), strict=True)
        ]

    # In rows with as many fields as the header, only parsing a field can fail.
    keeps_text = any(kind in PARSERS for kind in plan.columns.values())
    with _open_part(part) as raw:
        text = decode_csv(raw, form, part.begin == 0)
        if part.begin == 0:
            read_header(text, file, form)
        lines = RecordLines(text)

        def fail(number: int, why: str) -> None:
            batch.fail(number, why, _to_utf8(lines.text))

        try:
            for number, fields in csv_records(lines, fail, form, len(names), part.first_row):
                batch.add(number, fields, _to_utf8(lines.text) if keeps_text else b"")
                if len(batch.rows) >= _BATCH_ROWS:
                    yield columns(), batch.faults, batch.texts, batch.numbers
                    batch.clear()
        except UnicodeDecodeError as error:
            raise InputError(f"{file} is not text in {error.encoding}: {error.reason}") from error
    if batch.rows:
        yield columns(), batch.faults, batch.texts, batch.numbers


def _to_utf8(text: str) -> bytes:
    """Text as bytes; undecodable bytes as they are in the file."""
    return text.encode("utf-8", "surrogateescape")


def _parse_field(kind: str) -> Callable[[str], Any]:
    parse = PARSERS[kind]
    return lambda text: parse(text) if text else None


# JSON lines

_DECODED: dict[str, Any] = {"string": str | None, "bigint": Whole | None, "boolean": bool | None}
"""Types that the decoder reads itself; for other types it leaves the bytes."""
_NULL = msgspec.Raw(b"null")


def survey_json(part: FilePart, listed: str | None) -> dict[str, Kinds]:
    """The kinds of values that the columns of a part have."""
    kinds: dict[str, Kinds] = {}
    decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])
    with _open_part(part) as raw:
        for _, row in json_lines(raw, decoder.decode, lambda *_: None, part.file, part.first_row):
            add_kinds(kinds, row, listed)
    return kinds


def _survey_here(files: list[Path], listed: str | None) -> Iterable[dict[str, Kinds]]:
    return (survey_json(FilePart(str(file)), listed) for file in files)


class _LastLine:
    """A stream that remembers the last line read."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream, self.line = stream, b""

    def readline(self, size: int) -> bytes:
        self.line = self._stream.readline(size)
        return self.line


def _read_json(plan: TextPlan, part: FilePart) -> Iterator[_Rows]:
    fields = [
        (f"f{at}", _DECODED[kind], None) if kind in _DECODED else (f"f{at}", msgspec.Raw, _NULL)
        for at, kind in enumerate(plan.columns.values())
    ]
    row_type = msgspec.defstruct(
        "Row", fields, rename={f"f{at}": name for at, name in enumerate(plan.columns)}
    )
    decoder = msgspec.json.Decoder(row_type)
    batch = _Batch(row_type())

    def columns() -> list[Any]:
        found: list[Any] = []
        for at, (name, kind) in enumerate(plan.columns.items()):
            values = map(attrgetter(f"f{at}"), batch.rows)
            found.append(list(values) if kind in _DECODED else batch.convert(values, _of_raw(kind), name))
        return found

    with _open_part(part) as raw:
        last = _LastLine(raw)

        def fail(number: int, why: str) -> None:
            batch.fail(number, why, last.line.rstrip(b"\r\n"))

        for number, row in json_lines(last, decoder.decode, fail, part.file, part.first_row):
            batch.add(number, row, last.line.rstrip(b"\r\n"))
            if len(batch.rows) >= _BATCH_ROWS:
                yield columns(), batch.faults, batch.texts, batch.numbers
                batch.clear()
    if batch.rows:
        yield columns(), batch.faults, batch.texts, batch.numbers


def _of_raw(kind: str) -> Callable[[msgspec.Raw], Any]:
    parse = parse_json(kind)

    def parse_raw(raw: msgspec.Raw) -> Any:
        value = bytes(raw)
        return None if value == b"null" else parse(value)

    return parse_raw
