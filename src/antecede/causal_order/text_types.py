"""Types of columns in text files: text, unless a schema or JSON itself says otherwise.

A schema is written as Spark's DDL, `n int, at timestamp`. Types have Spark's names, and here their Arrow
types and the functions that read their values. Two more are only ours: `json` is a column of JSON text as the
file has it, and `text` one of JSON texts or of other values as the file has them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime
from difflib import get_close_matches
from typing import Annotated, Any

import msgspec
import pyarrow as pa

from antecede.errors import InputError

CLOCK = pa.map_(pa.string(), pa.int64())
Whole = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
PAIRS = re.compile(r"array<struct<(.+):string,(.+):bigint>>")
"""A list of objects with an origin and a number, by the names of these fields."""

_ARROW = {
    "string": pa.string(),
    "text": pa.string(),
    "json": pa.string(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "double": pa.float64(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "array<string>": pa.list_(pa.string()),
    "array<text>": pa.list_(pa.string()),
    "array<bigint>": pa.list_(pa.int64()),
    "map<string,bigint>": CLOCK,
}
_ALIASES = {"integer": "int", "long": "bigint", "bool": "boolean"}
_WRITABLE = ("string", "boolean", "int", "bigint", "double", "date", "timestamp", "array<string>")
_FIELD = re.compile(r"\s*(?:`((?:[^`]|``)+)`|([^\s,`]+))\s+([a-zA-Z<>]+)\s*")


def arrow_type(kind: str) -> pa.DataType:
    if pairs := PAIRS.fullmatch(kind):
        return pa.list_(pa.struct([(pairs[1], pa.string()), (pairs[2], pa.int64())]))
    return _ARROW[kind]


def spark_type(kind: str) -> str:
    """The name that Spark has for a type."""
    return "string" if kind == "json" else kind.replace("text", "string")


def parse_schema(text: str) -> dict[str, str]:
    """Types by columns, from text such as `n int, at timestamp`."""
    types: dict[str, str] = {}
    place = 0
    while place < len(text):
        field = _FIELD.match(text, place)
        if field is None or text[field.end() : field.end() + 1] not in ("", ","):
            raise InputError(
                f"--schema: expected a name and a type at {text[place:]!r}, as in 'n int, t date'"
            )
        name = field[1].replace("``", "`") if field[1] is not None else field[2]
        kind = _ALIASES.get(field[3].lower(), field[3].lower())
        if kind not in _WRITABLE:
            raise InputError(f"--schema: {name} is {field[3]}; choose among {', '.join(_WRITABLE)}")
        if name in types:
            raise InputError(f"--schema: it has {name} twice")
        types[name] = kind
        place = field.end() + 1
    if not types:
        raise InputError("--schema: give names and types, as in 'n int, at timestamp'")
    return types


def refuse_unknown(types: Iterable[str], columns: Iterable[str]) -> None:
    """Refuse a schema with columns that the files do not have."""
    present = list(columns)
    for name in types:
        if name not in present:
            near = get_close_matches(name, present, 1)
            hint = f"did you mean {near[0]}?" if near else f"they have {', '.join(present)}"
            raise InputError(f"--schema: events have no column {name}; {hint}")


# Values of text, also of CSV.


def _parse_whole(bits: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        number = int(text) if re.fullmatch(r"[+-]?[0-9]{1,19}", text) else None
        if number is None or not -(1 << bits - 1) <= number < 1 << bits - 1:
            raise ValueError(f"{text!r} is not a whole number of {bits} bits")
        return number

    return parse


def _parse_double(text: str) -> float:
    if not re.fullmatch(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?", text):
        raise ValueError(f"{text!r} is not a number")
    return float(text)


def _parse_boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(f"{text!r} is neither true nor false")
    return text.lower() == "true"


def _parse_date(text: str) -> date:
    if not re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", text):
        raise ValueError(f"{text!r} is not a date like 2024-12-31")
    return date.fromisoformat(text)


def _parse_time(text: str) -> datetime:
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a time like 2024-12-31T23:59:59Z") from None
    return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)


PARSERS: dict[str, Callable[[str], Any]] = {
    "boolean": _parse_boolean,
    "int": _parse_whole(32),
    "bigint": _parse_whole(64),
    "double": _parse_double,
    "date": _parse_date,
    "timestamp": _parse_time,
}
"""Functions from text to a value, which raise ValueError; an empty text is null."""


# Values of JSON, as the file has them.


def json_text(raw: bytes) -> str:
    """A string, or any other value as it is written."""
    return msgspec.json.decode(raw, type=str) if raw[:1] == b'"' else raw.decode()


def parse_json(kind: str) -> Callable[[bytes], Any]:
    """The function from JSON to a value of a type; null means no value. It raises ValueError."""
    if kind == "json":
        return lambda raw: raw.decode()
    if kind == "text":
        return json_text
    if kind == "map<string,bigint>":
        return _parse_clock
    if kind.startswith("array<"):
        return _parse_list(kind)

    def parse(raw: bytes) -> Any:
        text = json_text(raw)
        return PARSERS[kind](text) if text else None

    return parse


def _parse_list(kind: str) -> Callable[[bytes], list[Any]]:
    """Lists, and single values as lists of one."""
    elements: dict[str, Any] = {
        "array<string>": str | None,
        "array<text>": msgspec.Raw,
        "array<bigint>": Whole | None,
    }
    pairs = PAIRS.fullmatch(kind)
    element = dict[str, Any] | None if pairs else elements[kind]
    decoder: msgspec.json.Decoder[list[Any]] = msgspec.json.Decoder(list.__class_getitem__(element))

    def parse(raw: bytes) -> list[Any]:
        is_list = raw[:1] == b"["
        values = decoder.decode(raw if is_list else b"[" + raw + b"]")
        if pairs:
            return [value and _parse_pair(value, pairs[1], pairs[2]) for value in values]
        if element is msgspec.Raw:
            return [None if bytes(value) == b"null" else json_text(bytes(value)) for value in values]
        return values

    return parse


def _parse_pair(value: dict[str, Any], origin: str, number: str) -> dict[str, Any]:
    if set(value) - {origin, number}:
        raise ValueError(f"expected {origin} and {number}, not {', '.join(value)}")
    return {origin: _name(value.get(origin)), number: _as_whole(value.get(number))}


def _name(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    raise ValueError(f"an origin is text or a whole number, not {value!r}")


def _parse_clock(raw: bytes) -> list[tuple[str, int | None]]:
    """Entries that are not whole numbers are null: the row is then one with a bad clock."""
    return [(name, _as_whole(value)) for name, value in msgspec.json.decode(raw, type=dict[str, Any]).items()]


def parse_clock_text(text: str | None) -> list[tuple[str, int | None]] | None:
    """The entries of a clock in JSON; None if it is no JSON object."""
    try:
        return None if text is None else _parse_clock(text.encode())
    except (ValueError, RecursionError):
        return None


def _as_whole(value: Any) -> int | None:
    whole = isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63
    return value if whole else None
