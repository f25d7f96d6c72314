"""Random logs, written as each format writes them, give the verdict of a brute force on the log itself."""

from __future__ import annotations

import base64
import contextlib
import csv
import gzip
import io
import json
from collections.abc import Callable
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commands import SAMPLES
from hypothesis import given, settings
from hypothesis import strategies as st

from antecede.audit.dependency_log import judge_dependency_log
from antecede.errors import InputError
from antecede.sources import PRESETS, find_source, read_source
from antecede.sources.recognise import recognise, recognise_file
from antecede.trace.bad_rows import BadRows


class Logged(NamedTuple):
    """A record; its time is in milliseconds."""

    id: str
    process: str
    seq: int
    causes: list[str]
    time: int
    payload: str


# Everything that text may have in it, quotes, separators and line ends included.
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
names = st.sampled_from(["a", "01", "1", "001", "é", "x y"[:1], "日本", 'q"', "n:m", "-7"])
logs = st.lists(
    st.builds(
        Logged,
        id=names,
        process=st.sampled_from(["p", "q;r", "ß"]),
        seq=st.integers(0, 5),
        causes=st.lists(names, max_size=3, unique=True),
        time=st.integers(0, 5),
        payload=texts,
    ),
    min_size=1,
    max_size=8,
)


def as_graph_lines(log: list[Logged]) -> bytes:
    rows = [{"id": r.id, "process": r.process, "parents": r.causes, "text": r.payload} for r in log]
    return b"\n".join(json.dumps(row, ensure_ascii=len(log) % 2 == 0).encode() for row in rows)


def as_graph_array(log: list[Logged]) -> bytes:
    rows = [{"id": r.id, "process": r.process, "parents": r.causes, "text": r.payload} for r in log]
    return json.dumps(rows, indent=1).encode("utf-16" if len(log) % 2 else "utf-8-sig")


def as_dependency_csv(log: list[Logged], separator: str = ",") -> bytes:
    out = io.StringIO(newline="")
    writer = csv.writer(out, delimiter=separator)
    writer.writerow(["node", "process", "seq", "parents", "text"])
    writer.writerows([r.id, r.process, r.seq, " ".join(r.causes), r.payload] for r in log)
    return out.getvalue().encode("utf-8-sig")


def as_tsv(log: list[Logged]) -> bytes:
    return gzip.compress(as_dependency_csv(log, "\t"))


def as_dependency_parquet(log: list[Logged]) -> bytes:
    rows = [{"node": r.id, "process": r.process, "seq": r.seq, "parents": r.causes} for r in log]
    kinds = [("node", pa.string()), ("process", pa.string()), ("seq", pa.int64())]
    schema = pa.schema([*kinds, ("parents", pa.list_(pa.string()))])
    out = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), out)
    return out.getvalue()


def as_kcat(log: list[Logged]) -> bytes:
    rows = [
        {
            "topic": r.process,
            "partition": 0,
            "offset": r.seq,
            "ts": r.time,
            "headers": ["ce_id", r.id, "unrelated", r.payload]
            + (["causation_id", r.causes[0]] if r.causes else []),
            "payload": r.payload,
        }
        for r in log
    ]
    return b"\n".join(json.dumps(row).encode() for row in rows)


def as_otlp(log: list[Logged]) -> bytes:
    def number(name: str) -> str:
        return base64.b16encode(name.encode()).decode().lower().rjust(16, "0")

    trace = "ab" * 16
    requests = []
    for r in log:
        parent, *links = [*r.causes, ""] if len(r.causes) % 2 else ["", *r.causes]
        span = {
            "traceId": trace,
            "spanId": number(r.id),
            "parentSpanId": number(parent) if parent else "",
            "links": [{"traceId": trace, "spanId": number(each)} for each in links if each],
            "startTimeUnixNano": str(r.time * 1_000_000),
            "name": r.payload,
        }
        attributes = [{"key": "service.name", "value": {"stringValue": r.process}}]
        requests.append({"resource": {"attributes": attributes}, "scopeSpans": [{"spans": [span]}]})
    return json.dumps({"resourceSpans": requests}, indent=2 if len(log) % 2 else None).encode()


def as_jaeger(log: list[Logged]) -> bytes:
    spans = [
        {
            "traceID": "t",
            "spanID": r.id,
            "references": [{"traceID": "t", "spanID": each} for each in r.causes],
            "startTime": r.time * 1000,
            "operationName": r.payload,
            "processID": r.process,
        }
        for r in log
    ]
    processes = {r.process: {"serviceName": r.process, "tags": []} for r in log}
    return json.dumps({"data": [{"traceID": "t", "spans": spans, "processes": processes}]}).encode()


FORMS: dict[str, tuple[Callable[[list[Logged]], bytes], str, set[str]]] = {
    "JSON lines": (as_graph_lines, "graph", set()),
    "a JSON array": (as_graph_array, "graph", set()),
    "CSV": (as_dependency_csv, "dependencies", {"seq"}),
    "compressed TSV": (as_tsv, "dependencies", {"seq"}),
    "Parquet": (as_dependency_parquet, "dependencies", {"seq"}),
    "kcat": (as_kcat, "kafka", {"seq", "time", "one cause"}),
    "OTLP": (as_otlp, "otlp", {"time"}),
    "Jaeger": (as_jaeger, "jaeger", {"time"}),
}
"""How a log is written, which preset reads it, and what the format has besides ids, processes and causes."""


def expected(log: list[Logged], has: set[str]) -> dict[str, Any]:
    first: dict[str, Logged] = {}
    for r in log:
        first.setdefault(r.id, r._replace(causes=r.causes[:1] if "one cause" in has else r.causes))
    pairs = {(c, r.id) for r in first.values() for c in r.causes if c in first}
    reach = set(pairs)
    while more := {(a, d) for a, b in reach for c, d in reach if b == c} - reach:
        reach |= more
    on_cycle = {a for a, b in reach if a == b}
    around = {(a, b) for a, b in pairs if (b, a) in reach}
    causal = pairs - around
    while more := {(a, d) for a, b in causal for c, d in causal if b == c} - causal:
        causal |= more
    early = {
        b
        for a, b in causal
        if "seq" in has and first[a].process == first[b].process and first[b].seq < first[a].seq
    }
    skewed = sum("time" in has and first[b].time < first[a].time for a, b in pairs)
    missing = [c for r in first.values() for c in r.causes if c not in first]
    return {
        "records": len(first),
        "processes": len({r.process for r in first.values()}),
        "missing_ids": len(set(missing)),
        "missing_causes": len(missing),
        "duplicate_records": len(log) - len(first),
        "records_on_cycles": len(on_cycle),
        "effects_before_causes": len(early),
        "skewed_pairs": skewed,
    }


@pytest.mark.parametrize("form", FORMS)
@given(log=logs)
def test_a_random_log_in_a_file(
    form: str, log: list[Logged], tmp_path_factory: pytest.TempPathFactory
) -> None:
    write, preset, has = FORMS[form]
    file = tmp_path_factory.getbasetemp() / "random-log"
    file.write_bytes(write(log))
    source = find_source(str(file))
    assert source is not None
    assert source.preset.name == preset
    bad = BadRows(str(file), strict=True)
    found = judge_dependency_log(read_source(source, bad))
    assert {name: getattr(found, name) for name in expected(log, has)} == expected(log, has)


@given(log=logs)
def test_payloads_are_as_they_were(log: list[Logged], tmp_path_factory: pytest.TempPathFactory) -> None:
    file = tmp_path_factory.getbasetemp() / "payloads"
    bad = BadRows(str(file), strict=True)

    def payloads() -> list[str | None]:
        source = find_source(str(file))
        assert source is not None
        tables = list(read_source(source, bad, {"payload": pa.string()}))
        return [value for table in tables for value in table.column("payload").to_pylist()]

    file.write_bytes(as_kcat(log))
    assert payloads() == [r.payload for r in log]
    file.write_bytes(as_graph_lines(log))
    assert payloads() == [line.decode() for line in as_graph_lines(log).split(b"\n")]


DEEP_AND_ODD = [b"[" * 3000, b'{"a":' * 2000, b"null", b'"', b"\n", b"1e999", b"\xff\xfe"]
SAMPLE_BYTES = [file.read_bytes() for file in sorted(SAMPLES.iterdir())]


@settings(max_examples=300)
@given(
    sample=st.sampled_from(SAMPLE_BYTES),
    at=st.integers(0, 5000),
    cut=st.integers(0, 40),
    inserted=st.binary(max_size=6) | st.sampled_from(DEEP_AND_ODD),
    preset=st.sampled_from(list(PRESETS)),
)
def test_damaged_files_end_in_words(
    sample: bytes,
    at: int,
    cut: int,
    inserted: bytes,
    preset: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Whatever is damaged, whichever preset reads it: records, counted bad rows, or a sentence."""
    place = at % len(sample)
    file = tmp_path_factory.getbasetemp() / "damaged"
    file.write_bytes(sample[:place] + inserted + sample[place + cut :])
    recognise(file.read_bytes()[:1024])
    with contextlib.suppress(InputError):
        recognise_file(file)
    for chosen in (preset, None):
        with contextlib.suppress(InputError):
            source = find_source(str(file), chosen)
            if source is not None:
                carried = {"payload": pa.string()}
                judge_dependency_log(read_source(source, BadRows("damaged", strict=False), carried))
