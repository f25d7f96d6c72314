"""Jaeger's JSON: the answer of its query API, or what its user interface downloads.

A record is a span: its own fields, and `process` (`serviceName` and `tags`) instead of a reference to it.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from antecede.errors import InputError
from antecede.sources.records import SourceRecord
from antecede.sources.spans import RawSpan, read_spans
from antecede.trace.bad_rows import BadRows


class _JaegerTrace(msgspec.Struct):
    spans: list[msgspec.Raw]
    processes: dict[str, Any] = {}


class _JaegerAnswer(msgspec.Struct):
    data: list[_JaegerTrace] | None = None
    spans: list[msgspec.Raw] | None = None
    processes: dict[str, Any] = {}


_answer = msgspec.json.Decoder(_JaegerAnswer)


def read_jaeger(
    path: Path, bad: BadRows, encoding: str = "", max_bytes: int | None = None
) -> Iterator[SourceRecord]:
    """The spans of a file of traces: `{"data": […]}`, or one trace a line."""
    return read_spans(path, bad, encoding, max_bytes, ("trace", _answer), _spans)


def _spans(answer: _JaegerAnswer) -> Iterator[RawSpan]:
    traces = answer.data or []
    if answer.spans is not None:
        traces = [*traces, _JaegerTrace(answer.spans, answer.processes)]
    for trace in traces:
        complete = partial(_add_process, trace.processes)
        yield from (RawSpan(text, complete) for text in trace.spans)


def _add_process(processes: dict[str, Any], span: dict[str, Any]) -> None:
    """Give the span its process, and put its older field `parentSpanID` among its references."""
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


def tags_by_name(tags: Any) -> Any:
    """Tags as a dictionary; Elasticsearch has them so already."""
    if not isinstance(tags, list):
        return tags
    return {
        each["key"]: each.get("value")
        for each in tags
        if isinstance(each, dict) and isinstance(each.get("key"), str)
    }
