"""What `order` reports: reasons, examples, folders, and invalid options."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commands import refusal, run, run_json

IDS = ("--id", "id", "--deps", "parents")


def rows_of(out: Path, outcome: str) -> list[dict[str, Any]]:
    files = sorted((out / f"outcome={outcome}").glob("*.parquet"))
    return [row for file in files for row in pq.ParquetFile(file).read().to_pylist()]


def test_unreadable_table_rows_are_among_the_bad_rows(tmp_path: Path) -> None:
    table = tmp_path / "fields.csv"
    table.write_text("id,parents\na,\nb\nc,a,x\nd,a\n")
    _, found = run_json("order", table, *IDS, "--out", tmp_path / "out")
    assert (found["unreadable"], found["bad_rows"]) == (2, 2)
    (kind,) = found["bad"]
    assert (kind["what"], kind["rows"]) == ("rows that cannot be read, quarantined", 2)
    assert kind["examples"][0] == "fields.csv, row 2: it does not have the header's 2 fields, but 1"
    assert (kind["left_out"], found["lineage"]["rows_skipped"]) == (False, 0)


def test_the_summary_names_only_folders_that_were_written(tmp_path: Path) -> None:
    table = tmp_path / "held.csv"
    table.write_text("id,parents\na,z\n")
    _, out = run("order", table, *IDS, "--out", tmp_path / "out")
    assert not (tmp_path / "out" / "outcome=ordered").exists()
    assert "outcome=ordered" not in out


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        (
            "room.jsonl",
            '{"event_id": "a", "prev_events": [], "origin": "o", "origin_server_ts": 1, "type": "m"}\n'
            '{"prev_events": [], "sender": "s"}\n',
            "room.jsonl, row 2 has prev_events, sender (records without {event_id})",
        ),
        (
            "orders.txt",
            "CreateTime:1\tPartition:0\tOffset:1\tce_id:a\tkey\tvalue\nsecond line\n",
            "orders.txt, row 2: second line (lines that do not begin with a partition and an offset)",
        ),
        (
            "graph.jsonl",
            '{"id": "a", "parents": []}\n7\n',
            "graph.jsonl, row 2 (values that are no object)",
        ),
    ],
)
def test_quarantined_rows_carry_a_specific_reason(tmp_path: Path, name: str, text: str, reason: str) -> None:
    (tmp_path / name).write_text(text)
    run_json("order", tmp_path / name, "--out", tmp_path / "out")
    assert [row["reason"] for row in rows_of(tmp_path / "out", "quarantined")] == [reason]


def test_errors_name_the_file(tmp_path: Path) -> None:
    numbers, named = tmp_path / "numbers.jsonl", tmp_path / "named.csv"
    numbers.write_text("1\n2\n")
    named.write_text("id,parents,unreadable_row\na,,b\n")
    out = ("--out", tmp_path / "out")
    assert refusal("order", numbers, *IDS, *out).startswith(f"{numbers}: none of its lines is a JSON object")
    assert refusal("order", named, *IDS, *out).startswith(f"{named} has a column unreadable_row")


def change(table: str, number: int) -> dict[str, Any]:
    source = {"connector": "postgresql", "name": "shop", "db": "d", "schema": "public", "table": table}
    return {"op": "c", "source": source | {"lsn": number}, "before": None, "after": {"id": number}}


def test_order_names_change_event_topics_like_audit(tmp_path: Path) -> None:
    log = tmp_path / "changes.jsonl"
    log.write_text("".join(json.dumps(change("customers", number)) + "\n" for number in (1, 2)))
    run_json("order", log, "--out", tmp_path / "out")
    assert {row["topic"] for row in rows_of(tmp_path / "out", "ordered")} == {"shop.public.customers"}
    refused = refusal("order", log, "--out", tmp_path / "no", "--snapshot-of", "shop.nope")
    assert refused == f"--snapshot-of: {log} has no topic shop.nope; it has shop.public.customers"


def test_several_causes_in_one_text_get_a_hint_on_the_preset_template(tmp_path: Path) -> None:
    table, preset = tmp_path / "log.csv", tmp_path / "mine.toml"
    table.write_text("nr,wer,ursache\na,x,\nb,x,\nc,y,a b\n")
    preset.write_text(
        'name = "mine"\ntitle = "mine"\nreader = "records"\n'
        'id = ["{nr}"]\nprocess = ["{wer}"]\ncauses = ["{ursache}"]\n'
    )
    _, out = run("order", table, "--preset", preset, "--out", tmp_path / "out")
    hint = "missing ids have ' ' in them; if each is several ids, write {ursache[]} in the preset's causes"
    assert hint in out
    assert "--split" not in out


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("wide.jsonl", '{"id": "b", "parents": ["a"]}\n{"id": "a", "parents": []}\n'.encode("utf-16")),
        ("list.json", b'[{"id": "b",\n "parents": ["a"]}, {"id": "a", "parents": []}]'),
        ("noext", b"id,parents\nb,a\na,\n"),
        ("text.parquet", b"id,parents\nb,a\na,\n"),
        ("table.csv", None),
    ],
)
def test_the_file_format_is_detected_by_content(tmp_path: Path, name: str, data: bytes | None) -> None:
    file = tmp_path / name
    if data is None:
        pq.write_table(pa.table({"id": ["b", "a"], "parents": [["a"], []]}), file)
    else:
        file.write_bytes(data)
    _, found = run_json("order", file, *IDS, "--out", tmp_path / "out")
    assert (found["ordered"], found["lineage"]["files"][0]["file"]) == (2, str(file))
    assert [row["id"] for row in rows_of(tmp_path / "out", "ordered")] == ["a", "b"]


def test_small_tables_with_maps_and_times_of_day_are_ordered_here(tmp_path: Path) -> None:
    values = {"m": pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int64()))}
    values["t"] = pa.array([5, 6], pa.time64("us"))
    table = pa.table({"id": ["b", "a"], "parents": [["a"], []]} | values)
    pq.write_table(table, tmp_path / "maps.parquet")
    _, found = run_json("order", tmp_path / "maps.parquet", *IDS, "--out", tmp_path / "out")
    assert (found["ordered"], found["engine"]) == (2, "local")
    assert [row["m"] for row in rows_of(tmp_path / "out", "ordered")] == [None, [("k", 1)]]


def test_rows_without_an_id_have_their_file_and_row_in_the_reason(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.jsonl").write_text('{"id": "a", "parents": []}\n')
    (tmp_path / "in" / "b.jsonl").write_text('\n\n{"parents": [], "v": 5}\n')
    run_json("order", tmp_path / "in", *IDS, "--out", tmp_path / "out")
    (row,) = rows_of(tmp_path / "out", "quarantined")
    assert (row["reason"], row["v"]) == ("b.jsonl, row 3: it has no id", 5)
