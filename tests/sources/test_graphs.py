"""Matrix rooms, tables of dependencies and other graphs of events that name what came before them."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from commands import SAMPLES, refusal, run, run_json


def test_a_matrix_room_is_audited() -> None:
    code, found = run_json("audit", SAMPLES / "matrix.json")
    assert (code, found["preset"], found["records"], found["causes"]) == (1, "matrix", 4, 4)
    assert [each["id"] for each in found["missing"]] == ["$never-seen"]
    (skew,) = found["skew"]
    assert (skew["effect_process"], skew["largest"]) == ("@ben:example.com", 500_000_000)
    _, graphs = run_json("graph", SAMPLES / "matrix.json")
    assert graphs["runs"][0]["depth"] == 4


def test_matrix_events_one_per_line_and_without_ids_are_read(tmp_path: Path) -> None:
    events = json.loads((SAMPLES / "matrix.json").read_text())["pdus"]
    del events[3]["event_id"]
    file = tmp_path / "room.jsonl"
    file.write_text("\n".join(map(json.dumps, events)))
    code, found = run_json("audit", file)
    assert (code, found["records"]) == (0, 3)
    assert [kind["what"] for kind in found["bad"]] == ["records without {event_id}, left out"]
    assert "row 4" in refusal("audit", file, "--strict")
    file.write_text(json.dumps({"sender": "@ana:example.com", "prev_events": [], "origin_server_ts": 1}))
    assert "the first bad row: row 1 has sender, prev_events, origin_server_ts;" in refusal("audit", file)


def test_a_table_of_dependencies_is_audited(tmp_path: Path) -> None:
    code, found = run_json("audit", SAMPLES / "dependencies.csv")
    assert (code, found["preset"], found["causes"]) == (1, "dependencies", 5)
    assert [each["id"] for each in found["missing"]] == ["b2"]
    run("import", "dependencies", SAMPLES / "dependencies.csv", "--out", tmp_path / "table")
    code, found = run_json("audit", tmp_path / "table")
    assert (code, found["records"], found["clean"]) == (0, 4, True)
    _, graphs = run_json("graph", SAMPLES / "dependencies.csv")
    assert graphs["runs"][0]["messages"] == 4


def test_a_cycle_is_found_and_cannot_be_drawn() -> None:
    code, found = run_json("audit", SAMPLES / "graph.jsonl")
    assert (code, found["preset"], found["cycles"], found["records_on_cycles"]) == (1, "graph", 1, 2)
    assert found["cycle_list"][0]["text"] == "2 records are causes of each other: Qm2 → Qm3 → Qm2"
    assert "a cycle of 2 nodes" in refusal("graph", SAMPLES / "graph.jsonl")


def test_dictionary_encoded_long_text_is_refused_before_expansion(tmp_path: Path) -> None:
    """The file has a few kilobytes; its rows would have 80 GB."""
    text = pa.DictionaryArray.from_arrays(pa.array([0] * 8000, pa.int32()), pa.array(["x" * 10_000_000]))
    column = pa.array(["p"] * 8000)
    table = pa.table({"id": [str(n) for n in range(8000)], "parents": column, "text": text})
    pq.write_table(table, tmp_path / "graph.parquet", compression="zstd")
    assert "bytes of text" in refusal("audit", tmp_path / "graph.parquet")


def test_order_refuses_bad_records_with_strict(tmp_path: Path) -> None:
    file = tmp_path / "graph.jsonl"
    file.write_text('{"id": "a", "parents": []}\n{"parents": []}\n')
    code, _ = run("order", file, "--out", tmp_path / "out")
    assert code == 0
    assert "row 2" in refusal("order", file, "--out", tmp_path / "strict", "--strict")


def test_a_blank_parent_counts_as_none(tmp_path: Path) -> None:
    file = tmp_path / "graph.csv"
    file.write_text("id,parent_id,parents\na,  ,\nb,a,\n")
    code, found = run_json("audit", file)
    assert (code, found["causes"], found["missing"]) == (0, 1, [])
