"""OpenTelemetry's traces as protobuf: an `ExportTraceServiceRequest` or `TracesData`, or several of them,
each after its length, as the collector's file exporter writes them (four bytes, big-endian) or as a varint.

Spans have the names that they have in OTLP's JSON, so that both are read by one preset. Attributes of spans,
events and the like are not decoded; what a span carries is its bytes, in base64.
"""

from __future__ import annotations

import base64
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from antecede.errors import InputError
from antecede.sources.protobuf import (
    LENGTH,
    ProtobufError,
    fields,
    fixed,
    message,
    read_varint,
    text,
)
from antecede.sources.records import HEAD_BYTES, MAX_DOCUMENT, SourceRecord
from antecede.trace.bad_rows import BadRows
from antecede.trace.foreign.open_files import open_bytes

_RESOURCE_SPANS = 1
_RESOURCE, _SCOPE_SPANS = 1, 2
_SCOPE, _SPANS = 1, 2
_TRACE_ID, _SPAN_ID, _PARENT, _NAME, _START, _END, _LINK = 1, 2, 4, 5, 7, 8, 13
_TAG = _RESOURCE_SPANS << 3 | LENGTH
"""The first byte of a request."""
_PREFIX_BYTES = 4


def is_otlp_protobuf(head: bytes) -> bool:
    """Whether a file that begins like this holds spans in protobuf; `head` may be cut off anywhere."""
    return _framing(head) is not None


def _framing(head: bytes) -> str | None:
    """How requests follow each other: a single one, or each after its length."""
    if _looks_like_request(head):
        return "single"
    prefix = int.from_bytes(head[:_PREFIX_BYTES])
    if 0 < prefix <= MAX_DOCUMENT and _looks_like_request(head[_PREFIX_BYTES : _PREFIX_BYTES + prefix]):
        return "prefixed"
    try:
        size, at = read_varint(memoryview(head), 0)
    except ProtobufError:
        return None
    return "varint" if 0 < size <= MAX_DOCUMENT and _looks_like_request(head[at : at + size]) else None


def _looks_like_request(data: bytes) -> bool:
    """Whether bytes begin with ResourceSpans with a Resource or ScopeSpans in it."""
    view = memoryview(data)
    try:
        for expected in ((_TAG,), (_RESOURCE << 3 | LENGTH, _SCOPE_SPANS << 3 | LENGTH)):
            if not view or view[0] not in expected:
                return False
            size, at = read_varint(view, 1)
            if not 0 < size <= MAX_DOCUMENT:
                return False
            inner, rest = view[at : at + size], view[at + size :]
            if expected == (_TAG,):
                if rest and rest[0] != _TAG:
                    return False
                view = inner
        # The first field within a resource or a scope is a message: an attribute, or the scope.
        return bool(inner) and inner[0] in (0x0A, 0x10, 0x12, 0x1A)
    except ProtobufError:
        return False


def read_otlp_protobuf(path: Path, bad: BadRows, max_bytes: int | None = None) -> Iterator[SourceRecord]:
    """The spans of a file of export requests."""
    numbers = itertools.count(1)
    with open_bytes(path, max_bytes) as stream:
        for row, data in enumerate(_requests(stream, path), start=1):
            try:
                yield from _spans(memoryview(data), numbers, path, bad)
            except ProtobufError as error:
                what = "export requests that cannot be read, left out"
                bad.add(what, f"request {row}: {error}", str(path), text=bytes(data))


def _requests(stream: IO[bytes], path: Path) -> Iterator[bytes]:
    framing = _framing(stream.peek(HEAD_BYTES)[:HEAD_BYTES])  # type: ignore[attr-defined]
    if framing in (None, "single"):
        data = stream.read(MAX_DOCUMENT + 1)
        if len(data) > MAX_DOCUMENT:
            raise InputError(f"{path} is one request of more than {MAX_DOCUMENT:,} bytes")
        yield data
        return
    while True:
        size = _prefix(stream) if framing == "prefixed" else _varint_prefix(stream)
        if size is None:
            return
        if size > MAX_DOCUMENT:
            raise InputError(f"{path} has a request of {size:,} bytes; at most {MAX_DOCUMENT:,} are read")
        yield stream.read(size)


def _prefix(stream: IO[bytes]) -> int | None:
    data = stream.read(_PREFIX_BYTES)
    return int.from_bytes(data) if len(data) == _PREFIX_BYTES else None


def _varint_prefix(stream: IO[bytes]) -> int | None:
    data = b""
    while (byte := stream.read(1)) and len(data) < _PREFIX_BYTES + 1:
        data += byte
        if not byte[0] & 0x80:
            return read_varint(memoryview(data), 0)[0]
    return None


def _spans(request: memoryview, numbers: Iterator[int], path: Path, bad: BadRows) -> Iterator[SourceRecord]:
    for number, _, group in fields(request):
        if number != _RESOURCE_SPANS:
            continue
        parts = list(fields(message(group)))
        resource: dict[str, str] = {}
        for inner, _, value in parts:
            if inner == _RESOURCE:
                resource |= _attributes(message(value))
        for inner, _, scope_spans in parts:
            if inner != _SCOPE_SPANS:
                continue
            for each, _, span in fields(message(scope_spans)):
                if each == _SPANS:
                    row = next(numbers)
                    try:
                        record = _span(message(span))
                    except ProtobufError as error:
                        what = "spans that cannot be read, left out"
                        bad.add(what, f"span {row}: {error}", str(path), text=bytes(message(span)))
                        continue
                    record["resource"] = resource
                    yield SourceRecord(row, record, base64.b64encode(message(span)).decode())


def _span(data: memoryview) -> dict[str, Any]:
    span: dict[str, Any] = {"links": []}
    for number, _, value in fields(data):
        if number == _TRACE_ID:
            span["traceId"] = bytes(message(value)).hex()
        elif number == _SPAN_ID:
            span["spanId"] = bytes(message(value)).hex()
        elif number == _PARENT:
            span["parentSpanId"] = bytes(message(value)).hex()
        elif number == _NAME:
            span["name"] = text(value)
        elif number == _START:
            span["startTimeUnixNano"] = fixed(value)
        elif number == _END:
            span["endTimeUnixNano"] = fixed(value)
        elif number == _LINK:
            ids = {inner: message(each) for inner, _, each in fields(message(value)) if inner in (1, 2)}
            span["links"].append(
                {"traceId": bytes(ids.get(1, b"")).hex(), "spanId": bytes(ids.get(2, b"")).hex()}
            )
    return span


def _attributes(resource: memoryview) -> dict[str, str]:
    """The attributes of a resource that are texts or whole numbers."""
    found = {}
    for number, _, attribute in fields(resource):
        if number != 1:
            continue
        parts = {inner: value for inner, _, value in fields(message(attribute))}
        if 1 in parts and 2 in parts:
            for kind, _, value in fields(message(parts[2])):
                if kind == 1:
                    found[text(parts[1])] = text(value)
                elif kind == 3:
                    found[text(parts[1])] = str(fixed(value))
    return found
