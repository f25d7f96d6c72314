"""OpenTelemetry's traces in OTLP: export requests as JSON (a document, or one a line) or as protobuf.

A record is a span: its own fields, `resource` (the attributes of its resource by name) and `scope` (the name
of its instrumentation scope). Ids are in hexadecimal digits; those that a program has written in base64, as
protobuf's own JSON has bytes, are converted.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from antecede.errors import InputError
from antecede.sources.fields import as_text
from antecede.sources.otlp_protobuf import is_otlp_protobuf, read_otlp_protobuf
from antecede.sources.records import HEAD_BYTES, SourceRecord, container
from antecede.sources.spans import RawSpan, read_spans
from antecede.trace.bad_rows import BadRows
from antecede.trace.foreign.open_files import read_head

_ID_LENGTHS = {"traceId": 16, "spanId": 8, "parentSpanId": 8}
_HEX = re.compile(r"[0-9a-f]*").fullmatch


class _Scope(msgspec.Struct):
    name: str | None = None


class _ScopeSpans(msgspec.Struct):
    spans: list[msgspec.Raw] | None = None
    scope: _Scope | None = None


class _Resource(msgspec.Struct):
    attributes: list[dict[str, Any]] | None = None


class _ResourceSpans(msgspec.Struct):
    resource: _Resource | None = None
    scope_spans: list[_ScopeSpans] | None = msgspec.field(default=None, name="scopeSpans")
    older_scope_spans: list[_ScopeSpans] | None = msgspec.field(
        default=None, name="instrumentationLibrarySpans"
    )


class _ExportRequest(msgspec.Struct):
    resource_spans: list[_ResourceSpans] | None = msgspec.field(default=None, name="resourceSpans")
    batches: list[_ResourceSpans] | None = None
    """The name of the field in Tempo's API."""
    trace: _ExportRequest | None = None
    """The second version of Tempo's API nests the spans in this field."""
    result: _ExportRequest | None = None
    """The third version of Jaeger's API nests the spans in this field."""


_request = msgspec.json.Decoder(_ExportRequest)


def read_otlp(
    path: Path, bad: BadRows, encoding: str = "", max_bytes: int | None = None
) -> Iterator[SourceRecord]:
    """The spans of a file of export requests."""
    head = read_head(path, HEAD_BYTES)
    if is_otlp_protobuf(head) or container(head) != "json":
        return read_otlp_protobuf(path, bad, max_bytes)
    return read_spans(path, bad, encoding, max_bytes, ("export request", _request), _spans)


def _spans(request: _ExportRequest) -> Iterator[RawSpan]:
    requests = [each for each in (request, request.trace, request.result) if each is not None]
    groups = (group for each in requests for group in (*(each.resource_spans or []), *(each.batches or [])))
    for group in groups:
        resource = attributes_by_name(group.resource.attributes if group.resource else None)
        for scope in [*(group.scope_spans or []), *(group.older_scope_spans or [])]:
            complete = partial(_complete, resource, scope.scope.name if scope.scope else None)
            yield from (RawSpan(text, complete) for text in scope.spans or [])


def _complete(resource: dict[str, str], scope: str | None, span: dict[str, Any]) -> None:
    convert_ids(span)
    span["resource"], span["scope"] = resource, scope


def attributes_by_name(attributes: list[dict[str, Any]] | None) -> dict[str, str]:
    """Attributes with a single value, by their names."""
    found: dict[str, str] = {}
    for each in attributes or []:
        name, value = each.get("key"), as_text(each.get("value"))
        if isinstance(name, str) and value is not None:
            found[name] = value
    return found


def convert_ids(span: dict[str, Any]) -> None:
    """Write the ids of a span and of its links in hexadecimal digits, in lower case."""
    for name, length in _ID_LENGTHS.items():
        if span.get(name):
            span[name] = _hexadecimal(span[name], length, name)
    links = span.get("links")
    for link in links if isinstance(links, list) else ():
        if isinstance(link, dict):
            for name in ("traceId", "spanId"):
                if link.get(name):
                    link[name] = _hexadecimal(link[name], _ID_LENGTHS[name], f"links.{name}")


def _hexadecimal(value: Any, length: int, name: str) -> str:
    if not isinstance(value, str):
        raise InputError(f"{name} is not text")
    digits = value.lower()
    if len(digits) == 2 * length and _HEX(digits):
        return digits
    try:
        data = base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        data = b""
    if len(data) == length:
        return data.hex()
    if len(digits) <= 2 * length and _HEX(digits):
        return digits.rjust(2 * length, "0")
    raise InputError(f"{name} has {len(value)} characters; it should have {2 * length} hexadecimal digits")
