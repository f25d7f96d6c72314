"""antecede order on dumps of Debezium's topics: merged alike by every engine, with missing records
reported."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from change_history import MARKERS, History, Written, check_order
from typer.testing import CliRunner

from antecede.cli.main import app
from antecede.errors import AntecedeError


def dump(records: list[Written], folder: Path) -> Path:
    """A file for each topic, as kcat -J writes it."""
    folder.mkdir()
    for topic in sorted({one.topic for one in records}):
        lines = [
            {
                "topic": topic,
                "partition": one.partition,
                "offset": one.offset,
                "tstype": "create",
                "ts": 5,
                "key": one.key,
                "payload": one.value,
                "name": one.name,  # which a stream keeps
            }
            for one in records
            if one.topic == topic
        ]
        (folder / f"{topic}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def order(*arguments: Any, code: int = 0) -> str:
    done = CliRunner().invoke(app, ["order", *map(str, arguments)])
    if code == 2 and isinstance(done.exception, AntecedeError):  # as `main` prints it
        return str(done.exception)
    assert done.exit_code == code, done.output
    return " ".join(done.output.replace("│", " ").split())


def merged(out: Path, what: str = "ordered") -> list[dict[str, Any]]:
    rows = pq.read_table(out / f"outcome={what}").to_pylist()
    return sorted(rows, key=lambda row: (row["causal_index"] is None, row["causal_index"]))


def names_of(records: list[Written], rows: list[dict[str, Any]]) -> list[str]:
    names = {(one.topic, one.partition, one.offset): one for one in records}
    found = [names[row["topic"], row["partition"], row["offset"]] for row in rows]
    assert [row["payload"] for row in rows] == [one.value for one in found]
    return [one.name for one in found]


def test_a_folder_of_topics_is_recognised_and_merged_the_same_on_both_engines(tmp_path: Path) -> None:
    history = History(random.Random(3), 30, partitions=2)
    records = [one for one in history.records if one.name not in ("715:2", "715:END")]
    random.Random(3).shuffle(records)
    topics = dump(records, tmp_path / "topics")
    shown = order(topics, "--out", tmp_path / "local", "--engine", "local")
    order(topics, "--out", tmp_path / "spark", "--engine", "spark", "--preset", "debezium")
    for what in ("ordered", "held"):
        assert merged(tmp_path / "local", what) == merged(tmp_path / "spark", what)
    rows = merged(tmp_path / "local")
    check_order(records, names_of(records, rows), by_position=False)
    assert "missing: 715:END" in shown
    first = next(row for row in rows if row["transaction"] == "700" and row["transaction_order"] == 1)
    assert [row["kind"] for row in rows if row["causal_index"] == first["causal_index"] - 1] == ["BEGIN"]


def test_transactions_complete_without_topics_that_are_not_read(tmp_path: Path) -> None:
    history = History(random.Random(8), 20, again=False)
    records = [
        one for one in history.records if one.topic != "shop.public.payments" or one.snapshot == "last"
    ]
    topics = dump(records, tmp_path / "topics")
    found = json.loads(order(topics, "--out", tmp_path / "held", "--json"))
    assert found["held"] > 0
    refused = order(topics, "--out", tmp_path / "typo", "--without", "public.payment", code=2)
    assert "names a table public.payment; they name public." in refused
    found = json.loads(order(topics, "--out", tmp_path / "out", "--without", "public.payments", "--json"))
    assert found["held"] == 0
    emitted = names_of(records, merged(tmp_path / "out"))
    check_order(records, emitted, by_position=False, whole=False)
    assert set(emitted) == {one.name for one in records}


def test_a_stream_of_files_is_merged(tmp_path: Path) -> None:
    history = History(random.Random(4), 30, again=False)
    records = list(history.records)
    random.Random(4).shuffle(records)
    topics = dump(records, tmp_path / "topics")
    needed = [part for topic in history.snapshot_topics for part in ("--snapshot-of", topic)]
    arguments = (topics, "--out", tmp_path / "out", "--preset", "debezium", "--stream", "--once")
    found = json.loads(order(*arguments, *needed, "--json"))
    assert (found["rows"], found["held"]) == (len(records), 0)
    check_order(records, [row["name"] for row in merged(tmp_path / "out")])


def test_other_presets_cannot_stream_and_conflicting_rules_are_refused(tmp_path: Path) -> None:
    topics = dump(History(random.Random(4), 1).records, tmp_path / "topics")
    stream = (topics, "--out", tmp_path / "out", "--stream")
    assert "a stream reads tables of events" in order(*stream, "--preset", "otlp", code=2)
    refused = order(*stream, "--preset", "debezium", "--offsets", "dense", code=2)
    assert "neither consecutive nor increasing" in refused


@pytest.mark.parametrize(
    "value", ["5", '"text"', "[1]", '{"op": 7}', '{"status": "END", "id": "7"}', "{", "\x00"]
)
def test_non_change_events_are_quarantined_or_refused_with_strict(value: str, tmp_path: Path) -> None:
    records = History(random.Random(5), 3).records
    bad = Written("bad", MARKERS, 0, 10_000, None, value)
    topics = dump([*records, bad], tmp_path / "topics")
    order(topics, "--out", tmp_path / "out")
    (row,) = merged(tmp_path / "out", "quarantined")
    assert row["reason"] == "it is no change event of Debezium"
    assert row["offset"] == 10_000
    refused = order(topics, "--out", tmp_path / "strict", "--strict", code=2)
    assert "no change event" in refused


def test_markers_of_two_connectors_are_refused(tmp_path: Path) -> None:
    records = History(random.Random(5), 3).records
    other = [one._replace(topic="bank.transaction") for one in records if one.topic == MARKERS]
    topics = dump([*records, *other], tmp_path / "topics")
    refused = order(topics, "--out", tmp_path / "out", code=2)
    assert "transaction markers are in bank.transaction-0 and in shop.transaction-0" in refused
