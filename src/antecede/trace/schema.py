"""The one schema: a row for everything a process sent, received or delivered.

A trace folder holds Parquet parts of these rows and a `meta.json`. Every column of `REQUIRED` is
in every trace; the others are there where somebody knows them. A send is the sender's own delivery
too; there is no extra row for that. Later versions read what earlier ones wrote.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pyarrow as pa

from antecede.errors import InputError

VERSION = 1

FIELDS: dict[str, tuple[pa.DataType, str]] = {
    "run": (pa.string(), "which execution"),
    "group": (pa.string(), "which group the message went to"),
    "process": (pa.string(), "who did it"),
    "index": (pa.int64(), "place in the process's own order, over all groups"),
    "kind": (pa.string(), "send, receive or deliver"),
    "origin": (pa.string(), "who sent the message"),
    "seq": (pa.int64(), "the message's number among its origin's, from 1"),
    "time": (pa.int64(), "nanoseconds"),
    "deps": (pa.list_(pa.string()), "messages the system itself named as causes, as origin:seq"),
    "destinations": (pa.list_(pa.string()), "whom the message went to, if not the whole group"),
    "control_bytes": (pa.int64(), "what a send carried besides its payload"),
    "payload_bytes": (pa.int64(), "the size of the payload"),
    "link": (pa.string(), "who handed over what was received"),
}
REQUIRED = ("run", "group", "process", "index", "kind", "origin", "seq", "time")
KINDS = ("send", "receive", "deliver")

SCHEMA = pa.schema([(name, kind) for name, (kind, _) in FIELDS.items()])


class Meta(msgspec.Struct, frozen=True):
    """What a trace folder says of itself, in `meta.json`."""

    run: str
    groups: dict[str, list[str]]
    """The members of each group."""
    protocol: str | None = None
    seed: int | None = None
    parameters: dict[str, Any] = {}
    schema_version: int = VERSION

    def encode(self) -> bytes:
        return msgspec.json.format(msgspec.json.encode(self, order="sorted"), indent=2) + b"\n"


def read_meta(text: bytes | str, where: str) -> Meta:
    """The contents of a `meta.json`, which was found at `where`."""
    try:
        meta = msgspec.json.decode(text, type=Meta)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"{where} is not a trace's meta.json: {error}") from error
    check_schema_version(meta, where)
    return meta


def check_schema_version(meta: Meta, where: str) -> None:
    if meta.schema_version > VERSION:
        raise InputError(
            f"{where}: the trace has schema version {meta.schema_version}, this Antecede reads up "
            f"to {VERSION}; upgrade it"
        )


def check_columns(found: list[str], where: str) -> None:
    """Whether a table has the columns that every trace has."""
    missing = [name for name in REQUIRED if name not in found]
    if {"node", "parents"} <= {*found} and "kind" in missing:
        raise InputError(
            f"{where} says what depends on what, but not who delivered what and in which order, so no "
            "delivery can be judged; antecede graph shows what it does say"
        )
    if missing:
        columns = "column" if len(missing) == 1 else "columns"
        raise InputError(
            f"{where} has no {columns} {', '.join(missing)}; a trace needs {', '.join(REQUIRED)}, under "
            "these names or as --map tells"
        )
