"""What records carry comes out of `order` as it went in: text as it is written, binary values in binary."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commands import SAMPLES, refusal, run_json
from pyspark.sql import SparkSession

NOT_TEXT = b"\xff\xfe\x00a"
WRITTEN = '{"b": 1.0,  "a": "\\u00e9"}'
HEADERS = [{"key": "ce_id", "value": b"m"}, {"key": "x", "value": NOT_TEXT}]


def ordered(path: Path, out: Path, *words: str) -> list[dict[str, Any]]:
    code, found = run_json("order", path, "--out", out, *words)
    assert (code, found["ordered"]) == (0, found["rows"])
    files = (out / "outcome=ordered").glob("*.parquet")
    rows = [row for file in files for row in pq.ParquetFile(file).read().to_pylist()]
    return sorted(rows, key=lambda row: int(row["row"]))


def kafka_parquet(file: Path, values: list[bytes]) -> Path:
    headers = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    size = len(values)
    table = pa.table(
        {
            "key": pa.array([NOT_TEXT, None, b"", b"k"][:size], pa.binary()),
            "value": pa.array(values, pa.binary()),
            "topic": ["orders"] * size,
            "partition": pa.array([0] * size, pa.int32()),
            "offset": list(range(size)),
            "timestampType": pa.array([0] * size, pa.int32()),
            "headers": pa.array([HEADERS, *[None] * (size - 1)], headers),
        }
    )
    pq.write_table(table, file)
    return file


@pytest.mark.parametrize("engine", ["local", "spark"])
def test_binary_keys_headers_and_values_of_kafka(spark: SparkSession, tmp_path: Path, engine: str) -> None:
    file = kafka_parquet(tmp_path / "dump.parquet", [NOT_TEXT, b"", b"text"])
    rows = ordered(file, tmp_path / "out", "--engine", engine)
    assert [row["payload"] for row in rows] == [NOT_TEXT, b"", b"text"]
    assert [row["key"] for row in rows] == [NOT_TEXT, None, b""]
    assert rows[0]["headers"] == HEADERS
    assert rows[1]["headers"] is None
    assert rows[0]["id"] == "m"


def test_keys_and_headers_of_dumps_in_text(tmp_path: Path) -> None:
    """JSON that is no string stays as it is written, an empty value stays empty."""
    file = tmp_path / "dump.jsonl"
    place = '"topic": "t", "partition": 0, "ts": 5'
    file.write_text(
        f'{{{place}, "offset": 1, "key": "k", "headers": ["ce_id", "a",  "n", "1"], "payload": ""}}\n'
        f'{{{place}, "offset": 2, "key": {{"id": 1.10}}, "headers": [], "payload": {WRITTEN}}}\n'
        f'{{{place}, "offset": 3, "key": null, "payload": "\\u00e9\\n"}}\n'
    )
    rows = ordered(file, tmp_path / "out")
    assert [row["payload"] for row in rows] == ["", WRITTEN, "é\n"]
    assert [row["key"] for row in rows] == ["k", '{"id": 1.10}', None]
    assert [row["headers"] for row in rows] == ['["ce_id", "a",  "n", "1"]', "[]", None]
    console = tmp_path / "orders.txt"
    console.write_text("CreateTime:1\tPartition:0\tOffset:1\tid:a,b:c\tkey\tvalue\twith a tab\n")
    (row,) = ordered(console, tmp_path / "console")
    assert (row["headers"], row["key"], row["payload"]) == ("id:a,b:c", "key", "value\twith a tab")


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_csv_rows_are_emitted_byte_for_byte(tmp_path: Path, end: str) -> None:
    lines = ['b,"say ""hi""",a', '"a",  two , ', 'c,"two' + end + 'lines",a']
    file = tmp_path / "graph.csv"
    file.write_bytes(end.join(["id,text,parents", *lines, ""]).encode())
    rows = ordered(file, tmp_path / "out")
    assert {row["id"]: row["payload"] for row in rows} == {"b": lines[0], "a": lines[1], "c": lines[2]}


def test_records_of_a_json_document_are_emitted_as_written(tmp_path: Path) -> None:
    text = (SAMPLES / "matrix.json").read_text()
    file = tmp_path / "room.json"
    file.write_text(text.replace('"type":', '"depth": 1.0e1,   "type":'))
    code, _ = run_json("order", file, "--out", tmp_path / "out", "--on-missing", "release")
    assert code == 0
    payloads = [row["payload"] for row in pq.read_table(tmp_path / "out" / "outcome=ordered").to_pylist()]
    assert len(payloads) == len(json.loads(text)["pdus"])
    assert all(payload in file.read_text() and "1.0e1,   " in payload for payload in payloads)


@pytest.mark.parametrize("engine", ["local", "spark"])
def test_debezium_in_parquet_keeps_bytes_and_headers(
    spark: SparkSession, tmp_path: Path, engine: str
) -> None:
    events = [line.encode() for line in (SAMPLES / "debezium.jsonl").read_text().splitlines()[:2]]
    file = kafka_parquet(tmp_path / "dump.parquet", events)
    rows = ordered(file, tmp_path / "out", "--engine", engine, "--preset", "debezium")
    assert [row["payload"] for row in rows] == events
    assert (rows[0]["key"], rows[0]["headers"][1]["value"]) == (NOT_TEXT, NOT_TEXT)


def test_debezium_in_dumps_of_text_keeps_values_and_times(tmp_path: Path) -> None:
    """A value is text that holds JSON, or JSON as it is written in the dump; a tombstone has none."""
    event = (SAMPLES / "debezium.jsonl").read_text().splitlines()[0]
    place = '"topic": "t", "partition": 0, "ts": 5'
    file = tmp_path / "dump.jsonl"
    file.write_text(
        f'{{{place}, "offset": 1, "key": "k", "payload": {json.dumps(event)}}}\n'
        f'{{{place}, "offset": 2, "key": "l", "payload":   {event}}}\n'
        f'{{{place}, "offset": 3, "key": "k", "payload": null}}\n'
    )
    rows = ordered(file, tmp_path / "out")
    assert [row["payload"] for row in rows] == [event, event, None]
    assert {row["time"] for row in rows} == {5_000_000}
    alone = tmp_path / "alone.jsonl"
    alone.write_text(f'{{"schema": {{}},  "payload": {event}}}\n')
    (row,) = ordered(alone, tmp_path / "alone")
    assert row["payload"] == alone.read_text().rstrip("\n")


def test_a_preset_may_name_a_parquet_column_as_payload(tmp_path: Path) -> None:
    table = {"id": ["a", "b"], "parents": ["", "a"], "image": [NOT_TEXT, b""]}
    pq.write_table(pa.table(table), tmp_path / "graph.parquet")
    preset = tmp_path / "mine.toml"
    preset.write_text(
        'name = "mine"\ntitle = "images"\nreader = "records"\nid = ["{id}"]\nprocess = ["p"]\n'
        'causes = ["{parents[]}"]\npayload = ["{image}"]\n'
    )
    rows = ordered(tmp_path / "graph.parquet", tmp_path / "out", "--preset", str(preset))
    assert [row["payload"] for row in rows] == [NOT_TEXT, b""]


@pytest.mark.parametrize("engine", ["local", "spark"])
@pytest.mark.parametrize("sample", ["kcat.jsonl", "debezium.jsonl", "dependencies.csv", "orders.console.txt"])
def test_unreadable_source_rows_are_quarantined_with_their_text(
    spark: SparkSession, tmp_path: Path, sample: str, engine: str
) -> None:
    file, bad = tmp_path / sample, b'{"topic": "caf\xe9'
    file.write_bytes((SAMPLES / sample).read_bytes().rstrip(b"\n") + b"\n" + bad + b"\n")
    words = () if sample == "dependencies.csv" else ("--preset", "debezium" if "deb" in sample else "kafka")
    _, found = run_json("order", file, "--out", tmp_path / "out", "--engine", engine, *words)
    (kind,) = found["bad"]
    assert (kind["rows"], kind["left_out"], found["unreadable"]) == (1, False, 1)
    assert kind["what"].endswith(", quarantined")
    assert (found["lineage"]["rows_skipped"], found["lineage"]["rows_read"]) == (0, found["rows"])
    (file,) = (tmp_path / "out" / "outcome=quarantined").glob("*.parquet")
    (row,) = pq.ParquetFile(file).read().to_pylist()
    assert row["unreadable_row"] == bad
    assert row["reason"].startswith(f"{sample}, row ")
    assert f"row {row['row']}" in row["reason"]


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_shiviz_events_are_emitted_as_written(tmp_path: Path, end: str) -> None:
    lines = ['ana {"ana": 1}', "say  é", 'ben {"ana": 1, "ben": 1}', "hear"]
    log = tmp_path / "run.log"
    log.write_bytes(end.join(["=== one ===", *lines, ""]).encode())
    rows = ordered(log, tmp_path / "out")
    assert [row["id"] for row in rows] == ["one/ana:1", "one/ben:1"]
    assert [row["payload"] for row in rows] == [end.join(lines[:2]), end.join(lines[2:])]


def test_shiviz_events_that_are_not_utf_8_need_the_encoding(tmp_path: Path) -> None:
    """Without the encoding they are quarantined as they are, and with it they are text."""
    event, log = b'ana {"ana": 1}\ncaf\xe9', tmp_path / "run.log"
    log.write_bytes(event + b'\nben {"ben": 1}\nhear\n')
    code, found = run_json("order", log, "--out", tmp_path / "out")
    assert (code, found["ordered"], found["unreadable"]) == (0, 1, 1)
    (row,) = pq.read_table(tmp_path / "out" / "outcome=quarantined").to_pylist()
    assert (row["unreadable_row"], row["row"]) == (event, 1)
    assert "give the --encoding" in row["reason"]
    rows = ordered(log, tmp_path / "latin", "--encoding", "latin-1")
    assert rows[0]["payload"] == event.decode("latin-1")
    log.write_bytes(log.read_bytes().decode("latin-1").encode("utf-16"))
    assert ordered(log, tmp_path / "wide")[0]["payload"] == event.decode("latin-1")


def test_the_encoding_and_the_separator_of_a_source(tmp_path: Path) -> None:
    table = tmp_path / "graph.csv"
    table.write_bytes("node;process;parents;text\na;p;;caf\xe9, x\nb;p;a;\n".encode("latin-1"))
    rows = ordered(table, tmp_path / "out", "--encoding", "latin-1", "--separator", ";")
    assert [row["payload"] for row in rows] == ["a;p;;café, x", "b;p;a;"]
    console = tmp_path / "orders.txt"
    console.write_bytes("Partition:0\tOffset:1\tkey\tcaf\xe9\n".encode("latin-1"))
    (row,) = ordered(console, tmp_path / "console", "--encoding", "latin-1")
    assert row["payload"] == "café"
    binary = kafka_parquet(tmp_path / "dump.parquet", [b"a"])
    out = ("--out", tmp_path / "refused")
    assert f"--encoding is for text, and {binary} is not" in refusal(
        "order", binary, *out, "--encoding", "latin-1"
    )
    assert f"--separator is for tables in text, and {binary} is none" in refusal(
        "order", binary, *out, "--separator", ";"
    )
    assert "there is no encoding 'klingon'" in refusal("order", table, *out, "--encoding", "klingon")


def test_patches_of_editing_traces_and_messages_of_commits_are_kept(tmp_path: Path) -> None:
    patches = ['{"parents": [], "agent": 0,  "patches": [[0, 0, "é"]]}', '{"agent":0,"patches":[]}']
    trace = tmp_path / "doc.json"
    trace.write_text(f'{{"kind": "concurrent", "txns": [{", ".join(patches)}]}}')
    assert [row["payload"] for row in ordered(trace, tmp_path / "edited")] == patches
    git = ["git", "-C", str(tmp_path / "project"), "-c", "user.name=ana", "-c", "user.email=a@b"]
    (tmp_path / "project").mkdir()
    subprocess.run([*git, "init", "-q"], check=True)
    for message in ("first", "second\n\nwith é and a body"):
        subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", message], check=True)
    rows = ordered(tmp_path / "project", tmp_path / "commits")
    assert [row["payload"] for row in rows] == ["first\n", "second\n\nwith é and a body\n"]
    # Git says nothing of the encoding of this one, so its commit is ordered without it.
    tree, head = (
        subprocess.run([*git, "rev-parse", name], capture_output=True, check=True).stdout
        for name in ("HEAD^{tree}", "HEAD")
    )
    who = b"ana <a@b> 2000000000 +0000\n"
    odd = b"tree " + tree + b"parent " + head + b"author " + who + b"committer " + who + b"\ncaf\xe9\n"
    write = [*git, "hash-object", "-t", "commit", "-w", "--stdin"]
    written = subprocess.run(write, input=odd, capture_output=True, check=True).stdout.decode().strip()
    subprocess.run([*git, "branch", "odd", written], check=True)
    code, found = run_json("order", tmp_path / "project", "--out", tmp_path / "odd")
    assert (code, found["ordered"], found["bad_rows"]) == (0, 3, 1)
    payloads = pq.read_table(tmp_path / "odd" / "outcome=ordered").column("payload").to_pylist()
    assert payloads == ["first\n", "second\n\nwith é and a body\n", None]
