"""Every result states its lineage: files, rows read, rows skipped and why, runs, engine and version."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from antecede import __version__
from antecede.audit.on_spark import audit
from antecede.cli.main import app
from antecede.errors import InputError
from antecede.sim.record import simulate_to
from antecede.sim.scenario import scenario

MAP = ["--map", "process=host,kind=what,message=id,kind.skip=TICK"]
COMMANDS = {
    "audit": [],
    "graph": [],
    "advise": ["--protocols", "mbcp"],
    "explain": ["--message", "q"],
}


def invoke(*arguments: str) -> str:
    return CliRunner().invoke(app, list(arguments)).stdout


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    folder = tmp_path / "logs"
    folder.mkdir()
    (folder / "ana.csv").write_text("host,what,id\nana,send,q\nana,TICK,\nana,deliver,a\nana,deliver\n")
    rows = [{"host": "ben", "what": "deliver", "id": "q"}, {"host": "ben", "what": "send", "id": "a"}]
    (folder / "ben.jsonl").write_text("\n".join([*map(json.dumps, rows), "", "no JSON", ""]))
    return folder


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_reports_its_lineage(logs: Path, command: str) -> None:
    arguments = [command, str(logs), *MAP, *COMMANDS[command]]
    found: dict[str, Any] = json.loads(invoke(*arguments, "--json"))["lineage"]
    files = [(Path(each["file"]).name, each["rows"], each["bytes"]) for each in found["files"]]
    sizes = {name: (logs / name).stat().st_size for name in ("ana.csv", "ben.jsonl")}
    assert files == [("ana.csv", 4, sizes["ana.csv"]), ("ben.jsonl", 3, sizes["ben.jsonl"])]
    assert (found["source"], found["rows_read"], found["rows_skipped"]) == (str(logs), 7, 3)
    assert {each["what"]: each["rows"] for each in found["skipped"]} == {
        "rows that cannot be read, left out": 2,
        "rows of kinds that --map says to skip": 1,
    }
    assert (found["runs"], found["engine"], found["version"]) == (1, "local", __version__)
    read = "7 rows of 2 files (ana.csv, ben.jsonl), 3 skipped"
    assert f"{read}; 1 run; in this process; Antecede {__version__}" in invoke(*arguments)


LATE = [
    "ana,1,send,q",
    "ben,1,deliver,q",
    "ben,2,send,a",
    "cleo,1,deliver,a",
    "cleo,2,deliver,q",
    "ana,2,deliver,a",
]
"""A log in which cleo delivers an answer before its question, if its rows are in this order."""
BY_ROWS = "no column index: the events of each process are taken in the order of the rows"


def test_a_log_without_an_index_reports_that_row_order_decides(tmp_path: Path) -> None:
    """If the column that orders the events is not mapped, row order decides the verdict."""
    log, page = tmp_path / "log.csv", tmp_path / "audit.html"
    log.write_text("\n".join(["process,idx,kind,msg", *sorted(LATE, reverse=True), ""]))
    unmapped = [str(log), "--map", "message=msg"]
    text = " ".join(invoke("audit", *unmapped, "--html", str(page)).split())
    assert BY_ROWS in text
    assert "columns that are not used: idx;" in text
    assert BY_ROWS in page.read_text()
    found = json.loads(invoke("audit", *unmapped, "--json"))["lineage"]
    assert [note.startswith(BY_ROWS) for note in found["notes"]] == [True]
    mapped = [str(log), "--map", "message=msg,index=idx"]
    assert json.loads(invoke("audit", *mapped, "--json"))["lineage"]["notes"] == []
    assert BY_ROWS not in invoke("audit", *mapped)
    for other in (["graph"], ["explain", "--message", "q"], ["explore", "--out", str(tmp_path / "e.html")]):
        assert BY_ROWS in " ".join(invoke(*other, *unmapped).split()), other


def test_a_folder_without_an_index_is_read_file_after_file(tmp_path: Path) -> None:
    for number in (1, 2):
        rows = LATE[3 * number - 3 : 3 * number]
        (tmp_path / f"day-{number}.csv").write_text("\n".join(["process,idx,kind,msg", *rows, ""]))
    notes = json.loads(invoke("audit", str(tmp_path), "--map", "message=msg", "--json"))["lineage"]["notes"]
    assert [note.startswith(f"{BY_ROWS}, file after file by name") for note in notes] == [True]


def test_a_data_frame_without_an_index_is_refused(spark: SparkSession) -> None:
    rows = spark.createDataFrame([("ana", "send", "q")], "process string, kind string, message string")
    with pytest.raises(InputError, match=r"no columns run, group, index.*; Spark keeps no order of rows"):
        audit(rows)


def test_the_audit_page_shows_the_lineage(logs: Path, tmp_path: Path) -> None:
    invoke("audit", str(logs), *MAP, "--html", str(tmp_path / "page.html"))
    page = (tmp_path / "page.html").read_text()
    assert "7 rows of 2 files (ana.csv, ben.jsonl), 3 skipped; 1 run" in page


@pytest.mark.parametrize("command", ["audit", "graph"])
def test_an_antecede_trace_has_a_lineage(tmp_path: Path, command: str) -> None:
    simulate_to(tmp_path / "t", scenario(protocol="mbcp", peers=3, seconds=0.5))
    rows = pq.read_table(tmp_path / "t" / "part-00000.parquet").num_rows
    found = json.loads(invoke(command, str(tmp_path / "t"), "--json"))["lineage"]
    assert [(Path(each["file"]).name, each["rows"]) for each in found["files"]] == [
        ("part-00000.parquet", rows)
    ]
    assert (found["rows_read"], found["rows_skipped"], found["runs"]) == (rows, 0, 1)


def test_a_table_of_dependencies_has_a_lineage_too(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("node,process,parents\na,p,\nb,p,a\n,p,a\n")
    found = json.loads(invoke("graph", str(tmp_path / "t.csv"), "--json"))["lineage"]
    assert (found["rows_read"], found["rows_skipped"], len(found["files"])) == (3, 1, 1)


@pytest.mark.parametrize("engine", ["local", "spark"])
@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
def test_order_reports_its_lineage(spark: SparkSession, tmp_path: Path, form: str, engine: str) -> None:
    rows = [("tea", "b", "a"), ("tea", "a", ""), ("bar", "c", "lost"), ("zoo", "a", "")]
    for name, own in (("one", rows[:3]), ("two", rows[3:])):
        table = pa.table(dict(zip(("room", "id", "after"), map(list, zip(*own, strict=True)), strict=True)))
        file = tmp_path / "in" / f"{name}.{form}"
        file.parent.mkdir(exist_ok=True)
        if form == "parquet":
            pq.write_table(table, file)
        elif form == "csv":
            file.write_text("room,id,after\n" + "".join(f"{','.join(row)}\n" for row in own))
        else:
            file.write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))
    words = ["order", str(tmp_path / "in"), "--group", "room", "--id", "id", "--deps", "after"]
    words += ["--engine", engine, "--out"]
    found = json.loads(invoke(*words, str(tmp_path / "json"), "--json"))["lineage"]
    assert [(Path(each["file"]).name, each["rows"]) for each in found["files"]] == [
        (f"one.{form}", 3),
        (f"two.{form}", 1),
    ]
    assert all(each["bytes"] == Path(each["file"]).stat().st_size for each in found["files"])
    assert (found["rows_read"], found["rows_skipped"], found["groups"]) == (4, 0, 3)
    assert (found["engine"], found["version"]) == (engine, __version__)
    place = "in this process" if engine == "local" else "on Spark"
    shown = invoke(*words, str(tmp_path / "text")).splitlines()[-1]
    assert shown == f"4 rows of 2 files (one.{form}, two.{form}); 3 groups; {place}; Antecede {__version__}"


@pytest.mark.parametrize(("sample", "rows"), [("kcat.jsonl", 6), ("debezium.jsonl", 6)])
def test_order_of_a_source_reports_skipped_records(tmp_path: Path, sample: str, rows: int) -> None:
    file = tmp_path / sample
    text = (Path(__file__).parents[1] / "sources" / "samples" / sample).read_text()
    file.write_text(f'{text.rstrip()}\n{{"topic": "orders", "part\n')
    found = json.loads(invoke("order", str(file), "--out", str(tmp_path / "json"), "--json"))
    assert found["bad_rows"] == 1
    (kind,) = found["bad"]
    assert kind["what"].startswith("lines that are not JSON")
    assert "row 7: " in kind["examples"][0]
    assert [each["rows"] for each in found["lineage"]["files"]] == [rows + 1]
    assert found["lineage"]["rows_read"] == rows + 1


# Every record of a file counts once, whichever command reads it.

KAFKA = (
    '{"topic": "shops", "partition": 0, "offset": 1, "headers": ["ce_id", "o1"], "payload": "1"}\n'
    '{"topic": "orders", "partition": 0, "offset": 2, "headers": ["ce_id", "o2", "causation_id", "o1"], '
    '"payload": "2"}\n'
    '{"topic": "orders", "partition": 0, "offset": 3, "headers": ["ce_id", "o2"], "payload": "3"}\n'
    '{"topic": "orders", "part\n'
)
TABLE = "node,process,seq,parents\nn1,a,1,\nn1,a,2,\nn2,b,1,n1\nn3,b,x,n1\nn4,b,1,n2\n,c,1,n1\nn5,c\n"
CHANGES = "".join(
    json.dumps({"topic": f"shop.{offset % 2}", "partition": 0, "offset": offset, "payload": value}) + "\n"
    for offset, value in enumerate(
        [
            {"op": "c", "source": {"connector": "postgresql", "lsn": 5, "schema": "s", "table": "o"}}
            | {"after": {"id": 1}, "transaction": {"id": "7:5", "total_order": 1}},
            {"op": "d", "source": {"connector": "postgresql", "lsn": 6, "schema": "s", "table": "o"}}
            | {"before": {"id": 1}, "transaction": {"id": "7:6", "total_order": 2}},
            None,
        ]
    )
)
SPAN = '{"traceId": "0af7651916cd43dd8448eb211c80319c", "spanId": "%s", "parentSpanId": "%s"}'
SPANS = "".join(
    '{"resourceSpans": [{"resource": {"attributes": [{"key": "service.name", "value": '
    + f'{{"stringValue": "{service}"}}}}]}}, "scopeSpans": [{{"spans": ['
    + ", ".join(SPAN % names for names in spans)
    + "]}]}]}\n"
    for service, spans in {
        "web": [("a" * 16, ""), ("b" * 16, "a" * 16)],
        "shop": [("c" * 16, "d" * 16)],
    }.items()
)
ROOM = [
    {"event_id": "e1", "sender": "ana", "origin_server_ts": 1, "prev_events": []},
    5,
    {"event_id": "e2", "sender": "ben", "origin_server_ts": 2, "prev_events": ["e1"]},
]
LOGS = {
    "room.json": (json.dumps({"pdus": ROOM}), 3, 1),
    "kcat.jsonl": (KAFKA, 4, 2),
    "table.csv": (TABLE, 7, 3),
    "changes.jsonl": (CHANGES, 3, 1),
    "spans.jsonl": (SPANS + '{"resourceSpans": [{"broken\n', 4, 1),
}
"""The text of a file, its number of records, and how many of those are skipped."""


@pytest.mark.parametrize("command", ["audit", "graph", "advise"])
@pytest.mark.parametrize("name", LOGS)
def test_every_record_is_counted_once(tmp_path: Path, name: str, command: str) -> None:
    text, rows, skipped = LOGS[name]
    (tmp_path / name).write_text(text)
    found = json.loads(invoke(command, str(tmp_path / name), *COMMANDS[command], "--json"))["lineage"]
    assert (found["rows_read"], found["rows_skipped"]) == (rows, skipped)
    assert [each["rows"] for each in found["files"]] == [rows]
    assert sum(each["rows"] for each in found["skipped"]) == skipped


@pytest.mark.parametrize("name", LOGS)
def test_order_reads_as_many_records_as_audit(tmp_path: Path, name: str) -> None:
    text, rows, _ = LOGS[name]
    (tmp_path / name).write_text(text)
    words = ["order", str(tmp_path / name), "--out", str(tmp_path / "out"), "--json"]
    assert json.loads(invoke(*words))["lineage"]["rows_read"] == rows


def test_spark_reports_the_same_lineage(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "spans.jsonl").write_text(LOGS["spans.jsonl"][0])
    here, there = (
        json.loads(invoke("audit", str(tmp_path / "spans.jsonl"), "--engine", engine, "--json"))
        for engine in ("local", "spark")
    )
    assert there["missing"] == here["missing"]
    assert there["lineage"] == here["lineage"] | {"engine": "spark"}


def test_records_that_need_no_judgement_are_listed(tmp_path: Path) -> None:
    (tmp_path / "changes.jsonl").write_text(CHANGES)
    shown = invoke("audit", str(tmp_path / "changes.jsonl"))
    assert "left out, tombstones, which have no value: 1 (changes.jsonl, row 3)" in shown
    assert "3 rows of 1 file (changes.jsonl), 1 skipped" in shown


def test_record_numbers_that_are_not_rows_are_labelled(tmp_path: Path) -> None:
    (tmp_path / "spans.jsonl").write_text(LOGS["spans.jsonl"][0])
    shown = invoke("audit", str(tmp_path / "spans.jsonl"))
    assert "spans.jsonl, span 3)" in shown
    assert "request 3: " in shown
    assert "4 records of 1 file (spans.jsonl), 1 skipped" in shown


def test_records_of_a_history_are_counted_once(tmp_path: Path) -> None:
    (tmp_path / "history.edn").write_text(
        "{:type :info, :f :start, :value nil, :process :nemesis}\n"
        "{:type :invoke, :f :txn, :value [[:append 1 1]], :process 0}\n"
        "{:type :ok, :f :txn, :value [[:append 1 1]], :process 0}\n"
        "{:type :invoke, :f :txn, :value [[:r 1 nil]], :process 1}\n"
        "{:type :ok, :f :txn, :value [[:r 1 [1]]], :process 1}\n"
    )
    shown = invoke("audit", str(tmp_path / "history.edn"))
    assert "left out, records of no client, such as Jepsen's nemesis: 1 (record 1)" in shown
    assert "5 records of 1 file (history.edn), 1 skipped" in shown
    (tmp_path / "plume.txt").write_text("w(1,1,0,0)\nr(1,1,1,1)\n")
    assert "2 operations of 1 file (plume.txt); 1 run" in invoke("audit", str(tmp_path / "plume.txt"))
