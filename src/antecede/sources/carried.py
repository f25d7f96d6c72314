"""Fields of a record that `order` passes through unchanged: keys, headers and the value.

A value keeps the type that it has in the file. In Parquet that is the type of its column, so binary values
stay binary; in text files it is text, and JSON that is not a string stays as written.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from antecede.sources.fields import Step
from antecede.sources.records import HEAD_BYTES, container, text_at
from antecede.trace.foreign.open_files import read_head
from antecede.trace.reader import open_any_parquet


def carried_type(files: Iterable[Path], paths: Sequence[Sequence[Step]]) -> pa.DataType:
    """The type of the first of several paths that a file has; if files differ, a type that loses nothing."""
    kinds = {_type_in(file, paths) for file in files} - {None}
    if len(kinds) < 2:
        return next(iter(kinds), pa.string())
    return pa.binary() if kinds == {pa.string(), pa.binary()} else pa.string()


def _type_in(file: Path, paths: Sequence[Sequence[Step]]) -> pa.DataType | None:
    if container(read_head(file, HEAD_BYTES)) != "parquet":
        return pa.string()
    schema = open_any_parquet(file).schema_arrow
    for path in paths:
        kind: Any = schema
        for step in path:
            is_there = isinstance(kind, pa.Schema) or pa.types.is_struct(kind)
            at = kind.get_field_index(step) if is_there and isinstance(step, str) else -1
            kind = kind.field(at).type if at >= 0 else None
            if kind is None:
                break
        else:
            kind = _decoded_type(kind)
            return kind if _is_kept(kind) else pa.string()
    return None


def _decoded_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    short = {pa.large_string(): pa.string(), pa.large_binary(): pa.binary()}
    return short.get(kind, kind)


def _is_kept(kind: pa.DataType) -> bool:
    """Whether values of a type are the same after they have been objects of Python."""
    if pa.types.is_struct(kind):
        return all(_is_kept(field.type) for field in kind)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _is_kept(kind.value_type)
    flat = (pa.string(), pa.binary(), pa.bool_(), pa.int32(), pa.int64())
    return kind in flat or pa.types.is_null(kind)


def carry(value: Any, kind: pa.DataType, text: str | None, path: Sequence[Step]) -> Any:
    """A value in the type of its column; `text` is the text of the record, which contains the value at the
    path."""
    if value is None or kind not in (pa.string(), pa.binary()):
        return value
    if not isinstance(value, str | bytes):
        written = None if text is None else text_at(text, path)
        value = msgspec.json.encode(value) if written is None else written
    if kind == pa.binary():
        return value.encode() if isinstance(value, str) else value
    return value if isinstance(value, str) else _text(value)


def _text(value: bytes) -> str:
    """Bytes in a column of text, where files differ in type: decoded if possible, otherwise as JSON
    represents bytes."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return msgspec.json.decode(msgspec.json.encode(value), type=str)
