"""Dumps of Kafka: partitions are processes, offsets their order, causation ids of headers the causes."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commands import SAMPLES, refusal, run, run_json

KCAT, CONSOLE = SAMPLES / "kcat.jsonl", SAMPLES / "orders.console.txt"


def test_an_effect_before_its_cause_in_a_partition_is_found_across_topics(tmp_path: Path) -> None:
    code, found = run_json("audit", KCAT)
    assert (code, found["preset"], found["records"], found["processes"]) == (1, "kafka", 6, 3)
    (early,) = found["before_causes"]
    assert (early["process"], early["path"]) == ("orders-0", ["o-2", "p-2", "o-3"])
    assert early["text"].startswith("orders-0 has o-3 at 42 (")
    assert found["missing_ids"] == found["duplicate_records"] == found["cycles"] == 0
    code, out = run("audit", KCAT)
    assert "before its cause o-2 at 43" in " ".join(out.split())


def test_records_are_ordered_with_their_payloads_byte_for_byte(tmp_path: Path) -> None:
    code, found = run_json("order", KCAT, "--out", tmp_path / "out")
    assert (code, found["ordered"]) == (0, 6)
    rows = pq.read_table(tmp_path / "out" / "outcome=ordered").to_pylist()
    place = {row["id"]: row["causal_index"] for row in rows}
    assert place["o-2"] < place["p-2"] < place["o-3"]
    payloads = {json.loads(line)["payload"] for line in KCAT.read_text().splitlines()}
    assert {row["payload"] for row in rows} == payloads


def test_the_text_of_the_console_consumer(tmp_path: Path) -> None:
    code, found = run_json("audit", CONSOLE)
    assert (code, found["preset"], found["records"], found["causes"]) == (0, "kafka", 3, 1)
    file = tmp_path / "orders.txt"
    file.write_text(CONSOLE.read_text() + "second line of a value\n")
    code, found = run_json("audit", file)
    assert found["bad"][0]["examples"] == ["row 4: second line of a value"]
    assert found["bad"][0]["rows"] == 1


def spark_rows() -> list[dict[str, object]]:
    values = [("a", []), ("b", [("ce_id", b"m2"), ("causation_id", b"orders-0@0")])]
    return [
        {
            "key": b"k",
            "value": value.encode(),
            "topic": "orders",
            "partition": 0,
            "offset": offset,
            "timestamp": 1_700_000_000_000 + offset,
            "timestampType": 0,
            "headers": [{"key": key, "value": text} for key, text in headers],
        }
        for offset, (value, headers) in enumerate(values)
    ]


def test_the_columns_of_structured_streaming_in_parquet(tmp_path: Path) -> None:
    table = pa.Table.from_pylist(spark_rows())
    place = table.schema.get_field_index("timestamp")
    table = table.set_column(place, "timestamp", table.column("timestamp").cast(pa.timestamp("ms", "UTC")))
    pq.write_table(table, tmp_path / "dump.parquet")
    code, found = run_json("audit", tmp_path / "dump.parquet")
    assert (code, found["preset"], found["causes"], found["clean"]) == (0, "kafka", 1, True)
    run("order", tmp_path / "dump.parquet", "--out", tmp_path / "out")
    rows = pq.read_table(tmp_path / "out" / "outcome=ordered").to_pylist()
    assert [(row["id"], row["payload"]) for row in rows] == [("orders-0@0", b"a"), ("m2", b"b")]
    assert rows[1]["time"] == 1_700_000_000_001_000_000


def test_the_columns_of_structured_streaming_in_json(tmp_path: Path) -> None:
    """Spark writes binary columns in base64."""
    rows = spark_rows()
    for row in rows:
        row["headers"] = [
            {"key": each["key"], "value": base64.b64encode(each["value"]).decode()}
            for each in row["headers"]  # type: ignore[attr-defined]
        ]
        row["key"], row["value"] = "aw==", base64.b64encode(row["value"]).decode()  # type: ignore[arg-type]
        row["timestamp"] = "2024-01-01T00:00:00.000Z"
    file = tmp_path / "dump.json"
    file.write_text("\n".join(map(json.dumps, rows)))
    code, found = run_json("audit", file)
    assert (code, found["causes"], found["clean"]) == (0, 1, True)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"offset": "many"}, "sequence numbers that are no whole number, ignored"),
        ({"offset": 2**70}, "sequence numbers that are no whole number, ignored"),
        ({"topic": None}, "records without"),
        ({"headers": "ce_id"}, None),
        ({"headers": [1, 2, 3]}, None),
        ({"headers": [["ce_id", "x"]]}, None),
        ({"headers": {"ce_id": "x"}}, None),
        ({"payload": {"deep": [[[]]]}}, None),
        ({"payload": '{"a":' * 3000}, None),
    ],
)
def test_unusual_kafka_records_are_handled(
    change: dict[str, object], why: str | None, tmp_path: Path
) -> None:
    good = {"topic": "t", "partition": 0, "offset": 1, "ts": 5, "headers": [], "payload": ""}
    file = tmp_path / "dump.jsonl"
    effect = good | {"offset": 2, "headers": ["causation_id", "t-0@1"]}
    rows = [good, effect, good | {"offset": 3} | change]
    file.write_text("\n".join(map(json.dumps, rows)))
    _, found = run_json("audit", file)
    assert [kind["what"][: len(why or "")] for kind in found["bad"]] == ([why] if why else [])


def test_debezium_with_transactions_and_snapshots(tmp_path: Path) -> None:
    file = SAMPLES / "debezium.jsonl"
    code, found = run_json("audit", file)
    assert (code, found["preset"], found["records"]) == (1, "debezium", 6)
    # The END marker counts three events of transaction 571, of which one is not there.
    assert [each["id"] for each in found["missing"]] == ["571:3"]
    run("order", file, "--out", tmp_path / "out")
    ordered = pq.read_table(tmp_path / "out" / "outcome=ordered").to_pylist()
    assert [(row["kind"], row["position"]) for row in ordered] == [("snapshot", 1000), ("snapshot", 1001)]
    held = pq.read_table(tmp_path / "out" / "outcome=held").to_pylist()
    assert {row["kind"] for row in held} == {"BEGIN", "create", "END"}
    assert {row["reason"] for row in held} == {"waits for 571:3"}
    assert all(row["payload"] in file.read_text() for row in (*ordered, *held))


def test_snapshot_rows_sharing_a_position_are_not_duplicates(tmp_path: Path) -> None:
    """PostgreSQL's connector gives all of them the position at which the snapshot was taken."""
    events = [json.loads(line) for line in (SAMPLES / "debezium.jsonl").read_text().splitlines()]
    snapshot = [events[0], events[1] | {"source": events[0]["source"] | {"snapshot": "last"}}]
    file = tmp_path / "changes.jsonl"
    file.write_text("\n".join(map(json.dumps, [*snapshot, events[3], events[4]])))
    code, found = run_json("audit", file)
    assert (code, found["records"], len(found["duplicates"])) == (0, 4, 0)
    file.write_text("\n".join(map(json.dumps, [*snapshot, snapshot[0], events[3], events[4]])))
    code, found = run_json("audit", file)
    assert (code, found["records"], len(found["duplicates"])) == (1, 4, 1)


def test_debezium_events_within_a_kafka_dump_are_read(tmp_path: Path) -> None:
    """With their schema, in two topics, the second event of a transaction before the first."""
    events = [json.loads(line) for line in (SAMPLES / "debezium.jsonl").read_text().splitlines()]
    first, second = events[3], events[4]
    second["source"]["table"] = "customers"
    dump = [
        {"topic": "shop.public.customers", "partition": 0, "offset": offset, "ts": 5, "payload": payload}
        for offset, payload in enumerate(
            [
                json.dumps({"schema": {}, "payload": second}),
                None,
                json.dumps({"schema": {}, "payload": first}),
            ]
        )
    ]
    file = tmp_path / "dump.jsonl"
    file.write_text("\n".join(map(json.dumps, dump)))
    code, found = run_json("audit", file)
    assert (code, found["preset"], found["records"], found["bad_rows"]) == (1, "debezium", 2, 0)
    (early,) = found["before_causes"]
    assert (early["process"], early["path"]) == ("shop.public.customers-0", ["571:1", "571:2"])
    table = pa.Table.from_pylist([each | {"payload": str(each["payload"] or "").encode()} for each in dump])
    pq.write_table(table, tmp_path / "dump.parquet")
    code, found = run_json("audit", tmp_path / "dump.parquet")
    assert (code, found["preset"], found["effects_before_causes"]) == (1, "debezium", 1)


@pytest.mark.parametrize(
    ("event", "why"),
    [
        (
            {"status": "END", "id": "7", "event_count": 10**12, "data_collections": []},
            "event_count is no number",
        ),
        (
            {"status": "END", "id": "7", "event_count": "x", "data_collections": []},
            "event_count is no number",
        ),
        ({"op": "c", "source": {"connector": "x"}, "transaction": 5}, "its transaction is no object"),
        ({"op": "c", "source": {"connector": "x"}, "transaction": {"id": 1}}, "no id or no total_order"),
        ({"op": 5, "source": {"connector": "x"}}, "records that are no change event"),
        ({"op": "c", "source": {"connector": "x"}}, "records without"),
    ],
)
def test_odd_change_events_are_counted(event: dict[str, object], why: str, tmp_path: Path) -> None:
    file = tmp_path / "events.jsonl"
    good = (SAMPLES / "debezium.jsonl").read_text().splitlines()[3:5]
    file.write_text("\n".join([*good, json.dumps(event)]))
    code, found = run_json("audit", file)
    assert code == 0
    (kind,) = found["bad"]
    assert why in kind["what"] + kind["examples"][0]
    assert "row 3" in refusal("audit", file, "--strict")
