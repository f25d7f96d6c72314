"""Of rows with one id the first by file and row is ordered, whatever the files are; the others are listed."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from commands import run, run_json

Row = dict[str, Any]


def rows_of(out: Path, outcome: str) -> list[Row]:
    files = sorted((out / f"outcome={outcome}").glob("*.parquet"))
    return [row for file in files for row in pq.ParquetFile(file).read().to_pylist()]


def kafka_record(offset: int, name: str, payload: str) -> Row:
    place = {"topic": "orders", "partition": 0, "offset": offset, "ts": 1_700_000_000_000 + offset}
    return place | {"headers": ["ce_id", name], "key": "k", "payload": payload}


@pytest.mark.parametrize("name", ["k1.jsonl", "k2.jsonl", "k3.jsonl", "k4.jsonl", "k5.jsonl.gz"])
def test_the_first_of_duplicate_records_is_retained_whatever_the_file_name(tmp_path: Path, name: str) -> None:
    records = [kafka_record(1, "o1", "a"), kafka_record(2, "o2", "first"), kafka_record(3, "o2", "second")]
    data = "".join(json.dumps(record) + "\n" for record in records).encode()
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    code, found = run_json("order", tmp_path / name, "--out", tmp_path / "out")
    assert (code, found["ordered"], found["duplicates"]) == (0, 2, 1)
    assert [row["payload"] for row in rows_of(tmp_path / "out", "ordered")] == ["a", "first"]
    (again,) = rows_of(tmp_path / "out", "duplicate")
    assert (again["payload"], again["row"], again["causal_index"]) == ("second", 3, None)
    assert (again["status"], again["reason"]) == ("duplicate", "a row before it has its id")


@pytest.mark.parametrize("second", ["2", "9"])
def test_dependencies_of_the_first_duplicate_count(tmp_path: Path, second: str) -> None:
    table = tmp_path / "dup.csv"
    table.write_text(f"id,parents,v\na,,1\na,zz,{second}\nb,a,3\n")
    columns = ("--id", "id", "--deps", "parents")
    code, out = run("order", table, *columns, "--out", tmp_path / "out")
    assert code == 0
    assert [row["v"] for row in rows_of(tmp_path / "out", "ordered")] == ["1", "3"]
    assert [row["v"] for row in rows_of(tmp_path / "out", "duplicate")] == [second]
    shown = [f"duplicate: {tmp_path}/out/outcome=duplicate", "• a: a row before it has its id"]
    assert shown == [line for line in out.splitlines() if line.startswith(("duplicate:", "•"))]


def test_the_duplicate_in_the_first_file_is_retained_even_if_by_prefers_another(tmp_path: Path) -> None:
    for file, at in (("a", 5), ("b", 1)):
        (tmp_path / "in").mkdir(exist_ok=True)
        (tmp_path / "in" / f"{file}.csv").write_text(f"id,parents,at\nx,,{at}\n")
    words = ("--id", "id", "--deps", "parents", "--by", "at", "--out", tmp_path / "out")
    run_json("order", tmp_path / "in", *words)
    assert [row["at"] for row in rows_of(tmp_path / "out", "ordered")] == ["5"]
    assert [row["at"] for row in rows_of(tmp_path / "out", "duplicate")] == ["1"]
