"""The wire format of protocol buffers, as much of it as reading OTLP needs.

A message is a sequence of fields: a key (field number and wire type, as a varint) and a value. Groups, which
nobody writes any more, are refused. Nothing here recurses, and lengths are checked before bytes are taken.
"""

from __future__ import annotations

from collections.abc import Iterator

from antecede.errors import InputError

VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5
_MAX_VARINT_BYTES = 10


class ProtobufError(InputError):
    """Bytes that are not in the wire format."""


def read_varint(data: memoryview, at: int) -> tuple[int, int]:
    """An integer, and where it ends."""
    value = 0
    for place in range(_MAX_VARINT_BYTES):
        if at >= len(data):
            raise ProtobufError("a number is cut off")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << (7 * place)
        if not byte & 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, at
    raise ProtobufError("a number has more than ten bytes")


def fields(data: memoryview) -> Iterator[tuple[int, int, int | memoryview]]:
    """The fields of a message: number, wire type, and value; fixed-size values as they are."""
    at = 0
    while at < len(data):
        key, at = read_varint(data, at)
        number, kind = key >> 3, key & 7
        if not number:
            raise ProtobufError("a field has the number 0")
        if kind == VARINT:
            value, at = read_varint(data, at)
            yield number, kind, value
            continue
        if kind == LENGTH:
            size, at = read_varint(data, at)
        elif kind in (FIXED64, FIXED32):
            size = 8 if kind == FIXED64 else 4
        else:
            raise ProtobufError(f"a field has the wire type {kind}")
        if size > len(data) - at:
            raise ProtobufError("a field is cut off")
        yield number, kind, data[at : at + size]
        at += size


def text(value: int | memoryview) -> str:
    """A field of text."""
    if isinstance(value, int):
        raise ProtobufError("a number stands where a text should")
    try:
        return bytes(value).decode()
    except UnicodeDecodeError as error:
        raise ProtobufError("a text is not in UTF-8") from error


def message(value: int | memoryview) -> memoryview:
    """A field that is a message, or bytes."""
    if isinstance(value, int):
        raise ProtobufError("a number stands where a message should")
    return value


def fixed(value: int | memoryview) -> int:
    """A field of fixed size, as an unsigned number."""
    return value if isinstance(value, int) else int.from_bytes(value, "little")
