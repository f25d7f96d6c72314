"""The one event schema: a row for everything a process sent, received or delivered, and for changes of its
group.

A trace folder holds Parquet parts of these rows and a `_meta/meta.json`: names that start with an underscore
are skipped by pandas, Spark and others, so these can read the folder directly. Every trace has the columns of
`REQUIRED`; the others are optional. A send counts as the sender's own delivery, which gets no row of its own;
a log of another program may have such rows, which are then marked as `own_delivery`. Later versions read what
earlier ones wrote. `trace.validate` says which rows are valid.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pyarrow as pa

from antecede.errors import InputError

VERSION = 1
META_FOLDER = "_meta"
META = f"{META_FOLDER}/meta.json"
"""The file that describes the trace in a trace folder."""
META_BEFORE = "meta.json"
"""Its location before 0.1.0."""

FIELDS: dict[str, tuple[pa.DataType, str]] = {
    "run": (pa.string(), "which execution"),
    "group": (pa.string(), "the group the message was sent to"),
    "process": (pa.string(), "where the event happened"),
    "index": (pa.int64(), "place in the process's own order, over all groups"),
    "kind": (pa.string(), "send, receive or deliver; of a changing group also admit, leave, remove or close"),
    "origin": (pa.string(), "who sent the message"),
    "seq": (pa.int64(), "the message's sequence number at its origin, from 1"),
    "time": (pa.int64(), "nanoseconds"),
    "deps": (pa.list_(pa.string()), "causes that the system itself named, as origin:seq"),
    "destinations": (pa.list_(pa.string()), "whom the message was sent to, if not the whole group"),
    "control_bytes": (pa.int64(), "what a send carried besides its payload"),
    "payload_bytes": (pa.int64(), "the size of the payload"),
    "link": (pa.string(), "the peer from which the message was received"),
    "message": (pa.string(), "the message's id in the log that it comes from, shown instead of origin:seq"),
    "own_delivery": (pa.int64(), "1 if a sender's delivery of its own message is judged like any other"),
    "member": (pa.string(), "whom a change of the group concerns"),
    "of_process": (pa.string(), "the process in several groups, of which `process` is the member of one"),
}
REQUIRED = ("run", "group", "process", "index", "kind", "origin", "seq", "time")
CHANGE_KINDS = ("admit", "leave", "remove", "close", "snapshot")
"""Kinds of rows for membership changes that a process has seen: a member was admitted, has left or was
removed, or its last message that any member delivers is known. `origin` and `seq` identify the message that
made the change; for `close`, that last message. `snapshot` rows describe the snapshot that a process began
with: the messages of a member up to that one."""
COUNT_KINDS = ("close", "snapshot")
"""The kinds among these that are not events of messages: their `seq` may be 0, for none."""
KINDS = ("send", "receive", "deliver", *CHANGE_KINDS)
SEND, RECEIVE, DELIVER, ADMIT, LEAVE, REMOVE, CLOSE, SNAPSHOT = range(len(KINDS))
"""Kinds as numbers: their indices in `KINDS`."""

SCHEMA = pa.schema([(name, kind) for name, (kind, _) in FIELDS.items()])

Members = Mapping[str, list[str]]
"""The members of each group of one run."""


def with_all_columns(rows: pa.Table) -> pa.Table:
    """The rows with every column of the schema; absent columns are null."""
    columns = [
        rows.column(field.name).cast(field.type)
        if field.name in rows.column_names
        else pa.nulls(rows.num_rows, field.type)
        for field in SCHEMA
    ]
    return pa.table(columns, schema=SCHEMA)


def shown_message(row: Mapping[str, Any]) -> str:
    """The displayed name of a row's message: its own id, or ORIGIN:SEQ."""
    return row.get("message") or message_key(row)


def message_key(row: Mapping[str, Any]) -> str:
    """The message of a row as ORIGIN:SEQ."""
    return f"{row['origin']}:{row['seq']}"


class Meta(msgspec.Struct, frozen=True):
    """The contents of a trace folder's `_meta/meta.json`."""

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
    """Decode a `meta.json`; `where` is what errors call it."""
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
