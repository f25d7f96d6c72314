"""Traces of OpenTelemetry and Jaeger: parents and links are causes, clock skew is reported."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commands import SAMPLES, refusal, run, run_json

OTLP, JAEGER = SAMPLES / "otlp.json", SAMPLES / "jaeger.json"
TRACE = "5b8efff798038103d269b633813fc60c"


def test_otlp_is_audited_without_conversion() -> None:
    code, found = run_json("audit", OTLP)
    assert code == 1
    assert (found["preset"], found["records"], found["processes"], found["causes"]) == ("otlp", 6, 3, 5)
    assert [each["id"] for each in found["missing"]] == ["7" * 32 + ":deadbeefdeadbeef"]
    # What was read by what is said once, in the lineage.
    assert [each["file"] for each in found["lineage"]["files"]] == [str(OTLP)]
    assert not {"files", "version"} & found.keys()
    (skew,) = found["skew"]
    assert (skew["cause_process"], skew["effect_process"]) == ("frontend@web-1", "payments@pay-7")
    assert (skew["effects"], skew["of"], skew["largest"]) == (1, 1, 12_000_000)
    assert found["bad_rows"] == 0


def test_the_verdict_on_spans_is_printed_in_sentences() -> None:
    code, out = run("audit", OTLP)
    assert code == 1
    words = " ".join(out.split())
    assert "deadbeefdeadbeef is missing: it is a cause of" in words
    assert "payments@pay-7 have a time before their cause's at frontend@web-1, by up to 12.0 ms" in words
    assert "no time is corrected" in words


def test_span_links_count_as_causes_like_parents(tmp_path: Path) -> None:
    _, found = run_json("graph", OTLP, "--out", tmp_path / "graph")
    edges = pq.read_table(tmp_path / "graph" / "edges.parquet").to_pylist()
    linked = [edge for edge in edges if "7" * 32 + ":bbb19b7ec3c1b001" in edge.values()]
    assert [f"{TRACE}:aaa19b7ec3c1b002" in edge.values() for edge in linked] == [True]
    assert found["runs"][0]["depth"] == 5


def test_jaeger_is_audited_and_clock_skew_alone_is_not_a_violation() -> None:
    code, found = run_json("audit", JAEGER)
    assert code == 0
    assert (found["preset"], found["records"], found["causes"], found["clean"]) == ("jaeger", 3, 3, True)
    (skew,) = found["skew"]
    assert (skew["cause_process"], skew["largest"]) == ("customer@db-1", 5_000_000)


def test_spans_are_ordered_with_their_original_text(tmp_path: Path) -> None:
    code, found = run_json("order", OTLP, "--out", tmp_path / "out")
    assert code == 0
    assert (found["ordered"], found["held"]) == (5, 1)
    rows = pq.read_table(tmp_path / "out" / "outcome=ordered").to_pylist()
    kinds = [row["kind"] for row in sorted(rows, key=lambda row: row["causal_index"])]
    assert kinds.index("POST payments") < kinds.index("charge") < kinds.index("send receipt")
    text = OTLP.read_text()
    assert all(row["payload"] in text for row in rows)  # byte for byte


def test_spans_become_a_dependency_table(tmp_path: Path) -> None:
    code, about = run_json("import", "otlp", OTLP, "--out", tmp_path / "table")
    assert (code, about["rows"], about["parents"], about["bad_rows"]) == (0, 6, 4, 1)
    refused = refusal("import", "otlp", OTLP, "--out", tmp_path / "strict", "--strict")
    assert "deadbeefdeadbeef" in refused


DEEP: Any = 1
for _ in range(700):
    DEEP = [DEEP]


def spans(**changes: Any) -> str:
    span = {"traceId": "a" * 32, "spanId": "b" * 16, "name": "x", "startTimeUnixNano": "1"} | changes
    span = {name: value for name, value in span.items() if value is not ...}
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]})


def test_ids_may_be_base64_or_in_upper_case(tmp_path: Path) -> None:
    file = tmp_path / "spans.json"
    parent = spans(traceId="qqqqqqqqqqqqqqqqqqqqqg==", spanId="u7u7u7u7u7s=")
    file.write_text(f"{parent}\n{spans(spanId='C' * 16, parentSpanId='B' * 16)}\n")
    code, found = run_json("audit", file)
    assert (code, found["causes"], found["clean"]) == (0, 1, True)


@pytest.mark.parametrize("name", ["trace", "result"])
def test_responses_of_the_tempo_v2_and_jaeger_v3_apis_are_read(name: str, tmp_path: Path) -> None:
    file = tmp_path / "trace.json"
    child = spans(spanId="C" * 16, parentSpanId="b" * 16)
    file.write_text(f'{{"{name}": {spans()}}}\n{{"{name}": {child}}}\n')
    code, found = run_json("audit", file)
    assert (code, found["preset"], found["records"], found["causes"]) == (0, "otlp", 2, 1)


@pytest.mark.parametrize("shape", ["elasticdump", "search"])
def test_spans_inside_an_elasticsearch_response_are_read(shape: str, tmp_path: Path) -> None:
    process = {"serviceName": "shop", "tags": [], "tag": {"hostname": "web-1"}}
    span = {"traceID": "a", "spanID": "b", "startTime": 5, "process": process}
    parent = [{"refType": "CHILD_OF", "traceID": "a", "spanID": "b"}]
    hits = [
        {"_index": "jaeger-span-2026-11-17", "_id": "x", "_source": each}
        for each in (span, span | {"spanID": "c", "references": parent})
    ]
    file = tmp_path / "spans.json"
    text = json.dumps({"took": 3, "hits": {"total": {"value": 2}, "hits": hits}})
    file.write_text("\n".join(map(json.dumps, hits)) if shape == "elasticdump" else text)
    code, found = run_json("audit", file)
    assert (code, found["preset"], found["records"], found["causes"]) == (0, "jaeger-spans", 2, 1)
    run("order", file, "--out", tmp_path / "out")
    rows = pq.read_table(tmp_path / "out" / "outcome=ordered").sort_by("causal_index").to_pylist()
    assert [(row["id"], row["process"], row["row"]) for row in rows] == [
        ("a:b", "shop@web-1", 1),
        ("a:c", "shop@web-1", 2),
    ]


@pytest.mark.parametrize("links", ["['{trace}']\t['{span}']", '["{trace}"]\t["{span}"]', "{trace}\t{span}"])
def test_list_valued_fields_of_text_tables_are_read(links: str, tmp_path: Path) -> None:
    """As ClickHouse and Python write them, as JSON, and as words."""
    file = tmp_path / "spans.tsv"
    linked = links.format(trace="a" * 32, span="b" * 16)
    names = "TraceId\tSpanId\tParentSpanId\tServiceName\tLinks.TraceId\tLinks.SpanId"
    rows = [f"{'a' * 32}\t{'b' * 16}\t\tshop\t[]\t[]", f"{'c' * 32}\t{'d' * 16}\t\tmail\t{linked}"]
    file.write_text("\n".join([names, *rows]) + "\n")
    code, found = run_json("audit", file)
    assert (code, found["preset"], found["causes"], found["clean"]) == (0, "otel-table", 1, True)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (spans(spanId=...), "records without {traceId}:{spanId}, left out"),
        (spans(spanId=7), "spanId is not text"),
        (spans(traceId="xyz"), "traceId has 3 characters"),
        (spans(startTimeUnixNano="soon"), "times that cannot be read, ignored"),
        (spans(links=5, name={"a": [1]}), None),
        ('{"resourceSpans": 5}', "export requests that cannot be read"),
        ('{"resourceSpans": [{"scopeSpans": [{"spans": [5]}]}]}', "spans that cannot be read"),
        (
            '{"resourceSpans": [{"scopeSpans": [{"spans": [' + '{"a":' * 5000 + "1" + "}" * 5000 + "]}]}]}",
            "left out",
        ),
        ("[" * 5000, "left out"),
        ("not json", "left out"),
    ],
)
def test_bad_spans_are_counted_shown_and_refused_if_strict(
    line: str, why: str | None, tmp_path: Path
) -> None:
    file = tmp_path / "spans.json"
    child = spans(spanId="d" * 16, parentSpanId="c" * 16)
    file.write_text(f"{spans(spanId='c' * 16)}\n{child}\n{line}\n")
    code, found = run_json("audit", file)
    assert code == 0
    if why is None:
        assert found["bad"] == []
        return
    (kind,) = found["bad"]
    assert why in kind["what"] + kind["examples"][0]
    assert str(file) in refusal("audit", file, "--strict")


def test_a_file_without_spans_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "spans.json"
    file.write_text('{"resourceSpans": []}')
    assert "has no record that could be taken as otlp" in refusal("audit", file)
    file.write_text(spans())
    assert "has 1 record as otlp, and none of them names a cause" in refusal("audit", file)
    assert "no engine 'flink'" in refusal("audit", OTLP, "--engine", "flink")
    code, out = run("audit", OTLP, "--html", tmp_path / "page.html")
    assert (code, "No page: --html draws deliveries" in out) == (1, True)
    assert not (tmp_path / "page.html").exists()


def test_counts_of_one_are_singular(tmp_path: Path) -> None:
    file = tmp_path / "graph.jsonl"
    file.write_text('{"id":"a","process":"p","parents":[]}\n{"id":"b","process":"p","parents":["a"]}\n')
    assert "2 records of 1 process with 1 cause (" in run("audit", file)[1]


def test_several_files_are_one_log(tmp_path: Path) -> None:
    for number, line in enumerate(OTLP.read_text().splitlines()):
        (tmp_path / f"{number}.json").write_text(line)
    _, whole = run_json("audit", OTLP)
    code, found = run_json("audit", tmp_path)
    assert code == 1
    assert len(found["lineage"]["files"]) == 3
    assert {name: found[name] for name in ("records", "missing_ids", "skewed_pairs")} == {
        name: whole[name] for name in ("records", "missing_ids", "skewed_pairs")
    }


def test_spans_in_a_table(tmp_path: Path) -> None:
    """The columns of ClickHouse's exporter, with links as two lists; and names in snake case."""
    rows = [
        {"TraceId": "t", "SpanId": "1", "ParentSpanId": "", "Links.TraceId": [], "Links.SpanId": []},
        {"TraceId": "t", "SpanId": "2", "ParentSpanId": "1", "Links.TraceId": ["u"], "Links.SpanId": ["9"]},
    ]
    table = pa.Table.from_pylist(rows)
    times = pa.array([5_000_000_003, 5_000_000_001], pa.timestamp("ns"))
    table = table.append_column("Timestamp", times).append_column("ServiceName", pa.array(["a", "b"]))
    pq.write_table(table, tmp_path / "spans.parquet")
    code, found = run_json("audit", tmp_path / "spans.parquet")
    assert (code, found["preset"]) == (1, "otel-table")
    assert [each["id"] for each in found["missing"]] == ["u:9"]
    assert [each["largest"] for each in found["skew"]] == [2]
    (tmp_path / "spans.csv").write_text(
        "trace_id,span_id,parent_span_id,service_name,start_time\nt,1,,a,2024-01-01T00:00:00.5Z\nt,2,1,b,2024-01-01\n"
    )
    code, found = run_json("audit", tmp_path / "spans.csv")
    assert (code, found["causes"], found["skew"][0]["largest"]) == (0, 1, 500_000_000)


def test_jaeger_spans_one_per_line_are_read(tmp_path: Path) -> None:
    rows = [
        {"traceID": "t", "spanID": "1", "startTime": 5, "process": {"serviceName": "a", "tags": []}},
        {
            "traceID": "t",
            "spanID": "2",
            "startTime": 9,
            "parentSpanID": "1",
            "process": {"serviceName": "b", "tags": [{"key": "hostname", "value": "h"}]},
        },
    ]
    file = tmp_path / "spans.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)))
    code, found = run_json("audit", file)
    assert (code, found["preset"], found["causes"], found["processes"]) == (0, "jaeger-spans", 1, 2)
