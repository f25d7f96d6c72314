"""Spans within JSON documents, each decoded by itself, so that an unreadable span does not affect the
others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec

from antecede.errors import InputError
from antecede.sources.records import JSON_ERRORS, SourceRecord, json_values
from antecede.trace.bad_rows import BadRows
from antecede.trace.json_lines import why_not_json

Document = TypeVar("Document")
_span = msgspec.json.Decoder(dict[str, Any])


class RawSpan(NamedTuple):
    """A span as written in its document, and a function that adds what the document says about it. `complete`
    raises InputError for a span that cannot be used."""

    text: msgspec.Raw
    complete: Callable[[dict[str, Any]], None]


def read_spans(
    path: Path,
    bad: BadRows,
    encoding: str,
    max_bytes: int | None,
    documents: tuple[str, msgspec.json.Decoder[Document]],
    spans_of: Callable[[Document], Iterable[RawSpan]],
) -> Iterator[SourceRecord]:
    """The spans of a file of documents; each span has a name for messages and a decoder."""
    name, decoder = documents
    number = 0
    for row, raw in json_values(path, bad, encoding, max_bytes):
        try:
            document = decoder.decode(raw)
        except JSON_ERRORS as error:
            bad.add(
                f"{name}s that cannot be read, left out",
                f"{name.split()[-1]} {row}: {why_not_json(bytes(raw), error)}",
                str(path),
                text=bytes(raw),
            )
            continue
        for each in spans_of(document):
            number += 1
            try:
                span = _span.decode(each.text)
                each.complete(span)
            except (*JSON_ERRORS, InputError) as error:
                what = "spans that cannot be read, left out"
                bad.add(what, f"span {number}: {error}", str(path), text=bytes(each.text))
                continue
            yield SourceRecord(number, span, bytes(each.text).decode())
