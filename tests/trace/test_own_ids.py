"""A log's original message ids are shown everywhere, and deliveries to the sender itself are judged."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from antecede.audit.core import judge_run, split_runs
from antecede.audit.prepared_run import LARGE_RUN
from antecede.causality import judge
from antecede.cli.main import app
from antecede.graph.core import edge_table, graph_of_run
from antecede.spark import audit, graph
from antecede.trace.execution_from_rows import execution
from antecede.trace.foreign.column_map import parse_column_map
from antecede.trace.foreign.to_trace import convert_to_trace
from antecede.trace.reader import trace_files

MAP = "process=host,index=n,kind=what,message=id"
LATE = """host,n,what,id
ana,0,send,order-17
ben,0,deliver,order-17
ben,1,send,invoice/é
ana,1,deliver,invoice/é
cleo,0,deliver,invoice/é
cleo,1,deliver,order-17
cleo,2,deliver,refund
"""


def run(*arguments: str) -> str:
    return CliRunner().invoke(app, list(arguments)).stdout


def document(*arguments: str) -> Any:
    return json.loads(run(*arguments, "--json"))


@pytest.fixture
def late(tmp_path: Path) -> list[str]:
    (tmp_path / "log.csv").write_text(LATE)
    return [str(tmp_path / "log.csv"), "--map", MAP]


def test_audit_shows_the_log_s_own_ids(late: list[str], tmp_path: Path) -> None:
    (violation,) = document("audit", *late, "--html", str(tmp_path / "page.html"))["violations"]
    assert (violation["cause"], violation["effect"]) == ("order-17", "invoice/é")
    assert violation["path"] == ["order-17", "invoice/é"]
    assert violation["keys"] == ["ana:1", "ben:1"]
    sentence = (
        "cleo delivered invoice/é before its cause order-17: ben delivered order-17 and then sent invoice/é."
    )
    assert violation["text"] == sentence
    shown, page = run("audit", *late), (tmp_path / "page.html").read_text()
    assert sentence in shown
    for text in (shown, page):
        assert "order-17" in text
        assert "ana:1" not in text
        assert "nobody's" not in text


def test_graph_shows_the_log_s_own_ids(late: list[str], tmp_path: Path) -> None:
    found = document("graph", *late, "--out", str(tmp_path / "graph"))
    assert found["runs"][0]["busiest"] == [{"message": "order-17", "effects": 1}]
    edges = pq.read_table(tmp_path / "graph" / "edges.parquet").select(["cause", "effect"]).to_pylist()
    assert edges == [{"cause": "order-17", "effect": "invoice/é"}]


def test_explain_takes_a_map_and_the_log_s_own_ids(late: list[str]) -> None:
    found = document("explain", *late, "--message", "invoice/é")
    assert (found["message"], found["causes"]) == ("invoice/é", ["order-17"])
    assert [each["process"] for each in found["deliveries"]] == ["ana", "cleo"]
    assert [each["before_cause"] for each in found["deliveries"]] == [None, "order-17"]
    shown = run("explain", *late, "--message", "invoice/é")
    assert "depends immediately on order-17" in shown
    assert [" ".join(line.split()) for line in shown.splitlines() if "before its cause" in line] == [
        "cleo as event 1 before its cause order-17"
    ]


def test_explain_prints_times_and_processes_as_people_read_them(tmp_path: Path) -> None:
    """Seconds since 1970 tell nobody when something was sent, and p10 comes after p2."""
    rows = ["p1,send,a,2026-11-01T12:00:00Z"]
    rows += [f"p{n},deliver,a,2026-11-01T12:00:0{n % 9 + 1}Z" for n in (10, 2)]
    (tmp_path / "log.csv").write_text("\n".join(["process,kind,message,time", *rows, ""]))
    arguments = ["explain", str(tmp_path / "log.csv"), "--map", "message=message", "--message", "a"]
    shown = run(*arguments)
    assert "a, sent at 2026-11-01T12:00:00Z, depends immediately on nothing" in shown
    assert [line.split() for line in shown.splitlines()[1:4]] == [
        ["process", "delivered"],
        ["p2", "after", "3.00", "s"],
        ["p10", "after", "2.00", "s"],
    ]


def test_advise_reads_dependencies_under_the_log_s_own_ids(tmp_path: Path) -> None:
    """Sends only, whose causes are named as the log names messages."""
    rows = ["ana,send,order-17,", "ben,send,invoice,order-17", "ana,send,paid,invoice order-17"]
    (tmp_path / "sends.csv").write_text("\n".join(["host,what,id,after", *rows, ""]))
    arguments = ["--map", "process=host,kind=what,message=id,deps=after", "--protocols", "mbcp"]
    (advice,) = document("advise", str(tmp_path / "sends.csv"), *arguments)["runs"]
    assert advice["messages"] == 3


def test_zero_based_numbers_are_shown_as_in_the_log(tmp_path: Path) -> None:
    rows = ["a,send,a,0", "a,send,a,1", "b,deliver,a,1", "b,deliver,a,0"]
    (tmp_path / "log.csv").write_text("\n".join(["process,kind,origin,seq", *rows, ""]))
    (violation,) = document("audit", str(tmp_path / "log.csv"), "--map", "seq.first=0")["violations"]
    assert (violation["cause"], violation["effect"]) == ("a:0", "a:1")


# Own deliveries.


def audited(tmp_path: Path, rows: list[tuple[str, int, str, str]]) -> dict[str, int]:
    lines = [",".join(map(str, row)) for row in rows]
    (tmp_path / "own.csv").write_text("\n".join(["host,n,what,id", *lines, ""]))
    found = document("audit", str(tmp_path / "own.csv"), "--map", MAP)
    names = ("causal_violations", "duplicates", "impossible", "missing", "deliveries")
    return {name: found[name] for name in names if found[name]}


def test_a_process_that_delivers_its_own_message_too_late_is_found(tmp_path: Path) -> None:
    """Ana delivers the answer before her own question."""
    rows = [
        ("ana", 0, "send", "q"),
        ("ben", 0, "deliver", "q"),
        ("ben", 1, "send", "a"),
        ("ben", 2, "deliver", "a"),
        ("ana", 1, "deliver", "a"),
        ("ana", 2, "deliver", "q"),
    ]
    assert audited(tmp_path, rows) == {"causal_violations": 1, "deliveries": 4}
    in_time = [*rows[:4], ("ana", 1, "deliver", "q"), ("ana", 2, "deliver", "a")]
    assert audited(tmp_path, in_time) == {"deliveries": 4}
    implicit = rows[:3] + rows[4:5]
    assert audited(tmp_path, implicit) == {"deliveries": 2}


def test_the_verdict_on_own_deliveries_does_not_depend_on_the_order_of_rows(tmp_path: Path) -> None:
    rows = [
        ("a", 0, "deliver", "x"),
        ("a", 1, "send", "x"),
        ("a", 2, "deliver", "x"),
        ("b", 0, "deliver", "x"),
    ]
    verdicts = [audited(tmp_path, list(each)) for each in itertools.permutations(rows)]
    assert verdicts == [{"impossible": 1, "duplicates": 1, "deliveries": 3}] * len(verdicts)


def random_log(random: Random) -> list[dict[str, Any]]:
    """Three processes, of which each may deliver its own messages too, in any order."""
    counts = dict.fromkeys("abc", 0)
    messages = [f"m{number}" for number in range(random.randint(1, 6))]
    events = [(random.choice("abc"), "send", message) for message in messages]
    events += [(each, "deliver", name) for name in messages for each in "abc" if random.random() < 0.8]
    random.shuffle(events)
    rows = []
    for process, kind, message in events:
        rows.append({"process": process, "kind": kind, "message": message, "index": counts[process]})
        counts[process] += 1
    random.shuffle(rows)
    return rows


def converted(folder: Path, logs: dict[str, list[dict[str, Any]]]) -> pa.Table:
    for name, rows in logs.items():
        pq.write_table(
            pa.Table.from_pylist([{**row, "run": name} for row in rows]), folder / f"{name}.parquet"
        )
    mapping = parse_column_map(["message=message"])
    return pa.concat_tables(convert_to_trace(folder, trace_files(folder), mapping))


def test_the_engine_agrees_with_the_oracle_on_own_deliveries(tmp_path: Path) -> None:
    random = Random(20)
    table = converted(tmp_path, {f"r{number}": random_log(random) for number in range(200)})
    assert sum(each == 1 for each in table.column("own_delivery").to_pylist()) > 300
    for run, rows in split_runs(table):
        assert judge_run(run, rows, {}).verdict == judge(execution(rows, {})).verdict


@pytest.mark.parametrize("large_run", [LARGE_RUN, 0])
def test_spark_shows_the_same_ids_and_judges_own_deliveries(
    spark: SparkSession, tmp_path: Path, large_run: int
) -> None:
    random = Random(9)
    logs = {f"r{number}": random_log(random) for number in range(2 if large_run == 0 else 30)}
    table = converted(tmp_path, logs)
    events = spark.createDataFrame(table)
    found = audit(events, large_run=large_run)
    here = [judge_run(run, rows, {}) for run, rows in split_runs(table)]
    assert dict(found.by_run()) == {each.run: each.verdict for each in here}
    shown = {(each.run, each.process, each.cause, each.effect) for each in found.first(1_000)}
    assert shown == {(f.run, f.process, f.cause, f.effect) for each in here for f in each.findings}
    assert all(cause.startswith("m") for _, _, cause, _ in shown)
    edges = {tuple(row) for row in graph(events, large_run=large_run).edges.collect()}
    local = [edge_table(graph_of_run(run, rows)) for run, rows in split_runs(table)]
    assert edges == {tuple(row.values()) for each in local for row in each.to_pylist()}


def test_explain_shows_no_times_for_a_log_without_times(tmp_path: Path) -> None:
    for name, rows in {"ana": "PUB,m-1\nana,SUB,m-2", "ben": "SUB,m-1\nben,PUB,m-2", "cy": "SUB,m-2"}.items():
        (tmp_path / f"{name}.csv").write_text(f"host,what,id\n{name},{rows}\n")
    names = ["--map", "process=host,kind=what,kind.send=PUB,kind.deliver=SUB,message=id"]
    arguments = ["explain", str(tmp_path), *names, "--message", "m-2"]
    found = document(*arguments)
    assert found["sent"] is None
    assert [(each["process"], each["delivered"], each["index"]) for each in found["deliveries"]] == [
        ("ana", None, 2),
        ("cy", None, 1),
    ]
    shown = run(*arguments)
    assert "m-2 depends immediately on m-1; the log has no times" in shown
    assert " ns" not in shown
