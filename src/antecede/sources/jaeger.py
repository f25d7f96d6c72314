"""Jaeger's JSON: the answer of its query API, or what its user interface downloads.

A record is a span: its own fields, and `process` (`serviceName` and `tags`) instead of a reference to it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from antecede.errors import InputError
from antecede.sources.records import SourceRecord, json_values
from antecede.trace.bad_rows import BadRows


class _JaegerTrace(msgspec.Struct):
    spans: list[msgspec.Raw]
    processes: dict[str, Any] = {}


class _JaegerAnswer(msgspec.Struct):
    data: list[_JaegerTrace] | None = None
    spans: list[msgspec.Raw] | None = None
    processes: dict[str, Any] = {}


_answer = msgspec.json.Decoder(_JaegerAnswer)
_span = msgspec.json.Decoder(dict[str, Any])


def read_jaeger(
    path: Path, bad: BadRows, encoding: str = "", max_bytes: int | None = None
) -> Iterator[SourceRecord]:
    """The spans of a file of traces: `{"data": […]}`, or one trace a line."""
    number = 0
    for row, raw in json_values(path, bad, encoding, max_bytes):
        try:
            answer = _answer.decode(raw)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            bad.add("traces that cannot be read, left out", f"row {row}: {error}", str(path))
            continue
        traces = answer.data or []
        if answer.spans is not None:
            traces = [*traces, _JaegerTrace(answer.spans, answer.processes)]
        for trace in traces:
            for text in trace.spans:
                number += 1
                try:
                    span = _with_process(_span.decode(text), trace.processes)
                except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, InputError) as error:
                    bad.add("spans that cannot be read, left out", f"span {number}: {error}", str(path))
                    continue
                yield SourceRecord(number, span, bytes(text).decode())


def _with_process(span: dict[str, Any], processes: dict[str, Any]) -> dict[str, Any]:
    """The span with its process, and with its older field `parentSpanID` among its references."""
    if "process" not in span:
        process = span.get("processID")
        if not isinstance(process, str) or process not in processes:
            raise InputError(f"its process {process} is none of the trace's")
        span["process"] = processes[process]
    if isinstance(span["process"], dict):
        span["process"]["tags"] = tags_by_name(span["process"].get("tags"))
    parent, references = span.get("parentSpanID"), span.get("references")
    if parent and not references:
        span["references"] = [{"traceID": span.get("traceID"), "spanID": parent}]
    return span


def tags_by_name(tags: Any) -> Any:
    """Tags as a dictionary; Elasticsearch has them so already."""
    if not isinstance(tags, list):
        return tags
    return {
        each["key"]: each.get("value")
        for each in tags
        if isinstance(each, dict) and isinstance(each.get("key"), str)
    }
