"""antecede order and held: mostly on the Spark session that tests share, some as subprocesses."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from antecede import __version__
from antecede.cli.main import app
from antecede.errors import InputError
from command_line import antecede

ANTECEDE = [sys.executable, "-c", "from antecede.cli.main import main; main()"]
IDS = ("--group", "room", "--id", "event_id", "--deps", "follows")
WHERE = {"local": "in this process", "spark": "on Spark"}

Row = dict[str, Any]


def event(room: str, name: object, *follows: object) -> Row:
    return {"room": room, "event_id": name, "follows": list(follows), "at": 0}


def write_lines(file: Path, rows: list[Row]) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def output(*words: object) -> str:
    """What a command prints, run in this process."""
    done = CliRunner().invoke(app, list(map(str, words)))
    if done.exception is not None:
        raise done.exception
    assert done.exit_code == 0
    return done.stdout


def result(*words: object) -> Any:
    return json.loads(output(*words, "--json"))


def counts(document: Any) -> Row:
    names = ("rows", "ordered", "released", "late", "quarantined", "duplicates", "held")
    by_outcome = {name: document[name] for name in names}
    assert by_outcome["rows"] == sum(by_outcome.values()) - by_outcome["rows"]
    return {name: count for name, count in by_outcome.items() if count}


def rows_of(folder: Path) -> list[Row]:
    """The rows of each file in their order, file after file."""
    return [row for file in sorted(folder.glob("*.parquet")) for row in pq.read_table(file).to_pylist()]


CHAT = [
    event("tea", "b", "a"),
    event("tea", "a"),
    event("tea", "z", "lost"),
    event("bar", "c", "c"),
    event("bar", "d", None) | {"follows": None},
    event("bar", "d"),
]


@pytest.mark.parametrize("engine", ["local", "spark"])
def test_rows_are_by_outcome_group_and_index_and_the_counts_add_up(
    spark: SparkSession, tmp_path: Path, engine: str
) -> None:
    rng = random.Random(7)
    rows = [event(f"r{room}", n, *({n - 1, n // 2} if n else ())) for room in range(30) for n in range(50)]
    rows += [event("r3", 70, 71), event("r3", 71, 70), event("r4", 70, 99), event("r5", 7, 6)]
    rng.shuffle(rows)
    for part in range(3):
        pq.write_table(pa.Table.from_pylist(rows[part::3]), tmp_path / f"{part}.parquet")
    out = tmp_path.parent / f"{tmp_path.name}-out"
    document = result("order", tmp_path, "--out", out, *IDS, "--engine", engine)
    assert document["engine"] == engine
    expected = {"rows": 1504, "ordered": 1500, "quarantined": 2, "duplicates": 1, "held": 1}
    assert counts(document) == expected
    assert [(row["id"], row["reason"]) for row in document["examples"] if row["status"] == "held"] == [
        ("70", "waits for 99")
    ]
    ordered = rows_of(out / "outcome=ordered")
    together = [(room, list(those)) for room, those in groupby(ordered, key=lambda row: str(row["room"]))]
    assert len(together) == 30
    for _, those in together:
        assert [row["causal_index"] for row in those] == list(range(50))
        place = {row["event_id"]: row["causal_index"] for row in those}
        assert all(place[dep] < row["causal_index"] for row in those for dep in row["follows"])
    assert {row["event_id"] for row in rows_of(out / "outcome=quarantined")} == {70, 71}
    assert [row["room"] for row in rows_of(out / "outcome=held")] == ["r4"]


def test_text_files_get_the_types_that_ids_need(spark: SparkSession, tmp_path: Path) -> None:
    table = tmp_path / "graph.csv"
    table.write_text("node,parents\n3,1 2\n2,1\n1,\n4,3  9\n")
    document = result(
        "order", table, "--out", tmp_path / "a", "--id", "node", "--deps", "parents", "--split", " "
    )
    assert counts(document) == {"rows": 4, "ordered": 3, "held": 1}
    assert [row["node"] for row in rows_of(tmp_path / "a" / "outcome=ordered")] == ["1", "2", "3"]
    clocks = [{"who": "ben", "clock": {"ana": 1, "ben": 1}}, {"who": "ana", "clock": {"ana": 1}}]
    lines = write_lines(tmp_path / "clocks.jsonl", clocks)
    result("order", lines, "--out", tmp_path / "b", "--origin", "who", "--clock", "clock")
    assert [row["who"] for row in rows_of(tmp_path / "b" / "outcome=ordered")] == ["ana", "ben"]
    # Arrays that are all empty, and folders that hold a column.
    write_lines(tmp_path / "in [1]" / "room=a" / "x.json", [{"event_id": 2, "follows": []}])
    document = result("order", tmp_path / "in [1]", "--out", tmp_path / "c, d", *IDS)
    assert counts(document) == {"rows": 1, "ordered": 1}
    assert rows_of(tmp_path / "c, d" / "outcome=ordered")[0]["room"] == "a"


def test_split_preserves_ids_exactly(spark: SparkSession, tmp_path: Path) -> None:
    """Ids that begin and end with their position, which an earlier version stripped from them."""
    table = tmp_path / "commits.csv"
    table.write_text("node,parents\n2c2,0a0 ;  1b1\n1b1,0a0\n0a0,\n")
    document = result(
        "order", table, "--out", tmp_path / "a", "--id", "node", "--deps", "parents", "--split", ";"
    )
    assert counts(document) == {"rows": 3, "ordered": 3}
    ordered = rows_of(tmp_path / "a" / "outcome=ordered")
    assert [row["parents"] for row in ordered] == ["", "0a0", "0a0 ;  1b1"]


@pytest.mark.parametrize("engine", ["local", "spark"])
def test_order_prints_a_readable_summary(spark: SparkSession, tmp_path: Path, engine: str) -> None:
    lines = write_lines(tmp_path / "chat.jsonl", CHAT)
    shown = output("order", lines, "--out", tmp_path / "out", *IDS, "--engine", engine).splitlines()
    assert [line.split() for line in shown[1:6]] == [
        ["in", "6"],
        ["ordered", "3"],
        ["quarantined", "1"],
        ["duplicates", "1"],
        ["held", "1"],
    ]
    assert shown[6:] == [
        f"held: {tmp_path}/out/outcome=held (1 missing id holds 1 row)",
        "• missing: lost of tea, holds 1",
        "• z of tea: waits for lost",
        f"quarantined: {tmp_path}/out/outcome=quarantined",
        "• c of bar: depends on itself through c",
        f"duplicate: {tmp_path}/out/outcome=duplicate",
        "• d of bar: a row before it has its id",
        f"ordered: {tmp_path}/out/outcome=ordered",
        f"6 rows of 1 file (chat.jsonl); 2 groups; {WHERE[engine]}; Antecede {__version__}",
    ]
    chain = write_lines(tmp_path / "split.jsonl", [{"id": "a", "after": ""}, {"id": "b", "after": "a  x"}])
    shown = output("order", chain, "--out", tmp_path / "split", "--id", "id", "--deps", "after").splitlines()
    assert "missing ids have ' ' in them; if each is several ids, give --split ' '" in shown
    released = result("order", lines, "--out", tmp_path / "released", *IDS, "--on-missing", "release")
    assert counts(released) == {"rows": 6, "ordered": 3, "released": 1, "quarantined": 1, "duplicates": 1}


def test_a_stream_resumes_and_lists_held_rows(spark: SparkSession, tmp_path: Path) -> None:
    inbox, out = tmp_path / "in", tmp_path / "out"
    write_lines(inbox / "1.jsonl", CHAT)
    stream = ("order", inbox, "--out", out, *IDS, "--stream", "--once")
    document = result(*stream)
    assert counts(document) == {"rows": 6, "ordered": 3, "quarantined": 1, "duplicates": 1, "held": 1}
    assert document["checkpoint"] == str(out / "_checkpoint")
    lineage = document["lineage"]
    assert [(each["file"], each["rows"]) for each in lineage["files"]] == [(str(inbox / "1.jsonl"), None)]
    assert (lineage["rows_read"], lineage["engine"]) == (6, "spark")
    example, quarantined, duplicate = document["examples"]
    assert (example["id"], example["group"], example["reason"]) == ("z", "tea", "waits for lost")
    assert (quarantined["id"], quarantined["reason"]) == ("c", "depends on itself through c")
    assert (duplicate["id"], duplicate["reason"]) == ("d", "a row before it has its id")
    assert [row["follows"] for row in rows_of(out / "outcome=duplicate")] == [[]]
    (row,) = result("held", out)["held_rows"]
    assert (row["id"], row["waits_for"], row["missing"]) == ("z", ["lost"], ["lost"])
    assert row["since"].endswith("Z")
    assert "lost" in output("held", out / "_checkpoint")
    other_deps = ("--group", "room", "--id", "event_id", "--deps", "room", "--stream", "--once")
    with pytest.raises(InputError, match="deps: the checkpoint was made with column follows and the query"):
        result("order", inbox, "--out", out, *other_deps)  # without a new file, too
    with pytest.raises(InputError, match="--on-missing: with a checkpoint, hold cannot become release"):
        result(*stream, "--on-missing", "release")
    write_lines(inbox / "2.jsonl", [event("tea", "lost")])
    with pytest.raises(InputError, match="made with ids and the query has numbers"):
        result("order", inbox, "--out", out, "--group", "room", "--id", "at", "--deps", "at", *stream[-2:])
    with pytest.raises(InputError, match="--on-missing: with a checkpoint, hold cannot become release"):
        result(*stream, "--on-missing", "release")
    assert counts(result(*stream)) == {"rows": 7, "ordered": 5, "quarantined": 1, "duplicates": 1}
    assert "nothing is held; 7 rows" in output("held", out)
    written = spark.read.parquet(str(out)).where("outcome = 'ordered'").sort("room", "causal_index")
    rows = [(row.room, row.event_id) for row in written.collect()]
    assert rows == [("bar", "d"), ("tea", "a"), ("tea", "b"), ("tea", "lost"), ("tea", "z")]
    with pytest.raises(InputError, match="wrote elsewhere"):
        output(
            "order", inbox, "--out", tmp_path / "other", *IDS, "--stream", "--checkpoint", out / "_checkpoint"
        )
    with pytest.raises(InputError, match="is not empty"):
        output("order", inbox, "--out", out, *IDS)
    with pytest.raises(InputError, match="a path has ' ' in it"):
        output("order", inbox, "--out", tmp_path / "an other", *IDS, "--stream")


@pytest.mark.parametrize(
    ("rule", "outcome"),
    [("hold", {"held": 1}), ("release", {"released": 1}), ("quarantine", {"quarantined": 1})],
)
def test_once_ends_when_no_row_can_time_out(
    spark: SparkSession, tmp_path: Path, rule: str, outcome: dict[str, int]
) -> None:
    """Spark alone never ends a query with timeouts, not even one of the files that exist now."""
    inbox = tmp_path / "in"
    write_lines(inbox / "1.jsonl", [event("tea", "b", "a"), event("tea", "a"), event("tea", "c", "lost")])
    words = ["order", inbox, "--out", tmp_path / "out", *IDS, "--stream", "--once", "--on-missing", rule]
    words += ["--timeout", "3s"] if rule != "hold" else []
    done = within(120, lambda: counts(result(*words)))
    assert done == {"rows": 3, "ordered": 2} | outcome
    assert within(120, lambda: counts(result(*words))) == done  # without a new file


def within(seconds: float, call: Callable[[], Row]) -> Row:
    """The result of a call that fails as if by Ctrl-C if it takes longer."""
    alarm = threading.Timer(seconds, signal.raise_signal, [signal.SIGINT])
    alarm.start()
    try:
        return call()
    finally:
        alarm.cancel()


UNREADABLE = [*CHAT, event("tea", None)]


@pytest.mark.parametrize(
    ("rows", "words", "message"),
    [
        (CHAT, ["--group", "rom", *IDS[2:]], "in has no column rom (--group); did you mean room?"),
        (CHAT, ["--id", "event_id"], "name either id and deps"),
        (CHAT, ["--id", "follows", "--deps", "follows"], "column follows is array<string>; ids are"),
        (UNREADABLE, [*IDS, "--strict"], "column event_id: 1 row cannot be ordered, as it has no id"),
        (UNREADABLE, [*IDS, "--strict", "--stream"], "leave out --strict to have them quarantined"),
        (
            [{"w": "a", "c": '{"a":'}],
            ["--origin", "w", "--clock", "c", "--stream", "--strict"],
            "clock: column c: 1 row",
        ),
        (
            [{"outcome": 1, "a": 1, "b": 1}],
            ["--id", "a", "--deps", "b"],
            "in has a column outcome, a name that the result needs (it adds causal_index, ",
        ),
        (CHAT, [*IDS, "--split", ","], "column follows is array<string>, not text"),
        ([{"a": 1, "b": "1,2"}], ["--id", "a", "--deps", "b"], '1 is not "1": cast one of them'),
        ([{"a": 1, "b": 2.5}], ["--id", "a", "--deps", "b"], "deps: column b has other numbers (2.5)"),
        (CHAT, [*IDS, "--schema", "romm string"], "--schema: events have no column romm; did you mean room?"),
        (CHAT, [*IDS, "--schema", "room text"], "--schema: room is text; choose among string"),
        (CHAT, [*IDS, "--schema", "room"], "--schema: expected a name and a type at 'room'"),
        (CHAT, [*IDS, "--encoding", "latin-1"], "--encoding and --separator are for CSV"),
    ],
)
def test_rows_that_cannot_be_ordered_are_refused_by_name(
    spark: SparkSession, tmp_path: Path, rows: list[Row], words: list[str], message: str
) -> None:
    write_lines(tmp_path / "in" / "x.jsonl", rows)
    with pytest.raises(InputError) as error:
        output("order", tmp_path / "in", "--out", tmp_path / "out", *words)
    assert message in str(error.value)
    assert not list((tmp_path / "out").glob("*"))


@pytest.mark.parametrize("engine", ["local", "spark"])
def test_rows_that_cannot_be_read_are_counted_shown_and_quarantined(
    spark: SparkSession, tmp_path: Path, engine: str
) -> None:
    lines = tmp_path / "half.csv"
    lines.write_bytes(b'room,event_id,follows,text\ntea,a,,"two\nlines"\ntea,b\ntea,c,a,caf\xe9\ntea,d,a,x\n')
    out = tmp_path / "out"
    document = result("order", lines, "--out", out, *IDS, "--engine", engine)
    assert counts(document) == {"rows": 4, "ordered": 2, "quarantined": 2}
    assert document["unreadable"] == 2
    ordered = rows_of(out / "outcome=ordered")
    assert [(row["event_id"], row["text"]) for row in ordered] == [("a", "two\nlines"), ("d", "x")]
    assert {row["reason"]: row["unreadable_row"] for row in rows_of(out / "outcome=quarantined")} == {
        "half.csv, row 2: it does not have the header's 4 fields, but 2": b"tea,b",
        "half.csv, row 3: it is not text in UTF-8; give the --encoding": b"tea,c,a,caf\xe9",
    }
    numbers = tmp_path / "numbers.jsonl"
    numbers.write_text('{"id": "a", "deps": [], "n": 1}\n{"id": "b",  "deps": [], "n": "x"}\n[]\n')
    schema = ("--id", "id", "--deps", "deps", "--schema", "n int", "--engine", engine)
    assert result("order", numbers, "--out", tmp_path / "typed", *schema)["unreadable"] == 2
    texts = {row["unreadable_row"] for row in rows_of(tmp_path / "typed" / "outcome=quarantined")}
    assert texts == {b'{"id": "b",  "deps": [], "n": "x"}', b"[]"}
    shown = output("order", lines, "--out", tmp_path / "again", *IDS, "--engine", engine)
    assert "2 of the quarantined rows could not be read; --strict refuses them" in shown
    assert "• half.csv, row 2: it does not have" in shown
    with pytest.raises(InputError, match=r"2 rows cannot be read; one is half\.csv, row 2"):
        output("order", lines, "--out", tmp_path / "strict", *IDS, "--strict", "--engine", engine)
    latin = ("--encoding", "latin-1", "--engine", engine)
    document = result("order", lines, "--out", tmp_path / "latin", *IDS, *latin)
    assert counts(document) == {"rows": 4, "ordered": 3, "quarantined": 1}
    assert "café" in {row["text"] for row in rows_of(tmp_path / "latin" / "outcome=ordered")}


@pytest.mark.parametrize("how", ["local", "spark", "stream"])
def test_empty_parents_hold_nothing_and_missing_ones_are_ranked(
    spark: SparkSession, tmp_path: Path, how: str
) -> None:
    lines = ["id,after,room"]
    lines += [f"r{n},{f'r{n - 1}' if n % 10 else 'lost' if n == 10 else ''},tea" for n in range(30)]
    lines += ["x,gone,tea", "y,x gone,tea", "z,x none,bar", "w,none,bar"]
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text("\n".join(lines) + "\n")
    words: list[object] = ["order", tmp_path / "in", "--out", tmp_path / "out", "--group", "room"]
    words += ["--id", "id", "--deps", "after", "--split", " "]
    words += ["--stream", "--once"] if how == "stream" else ["--engine", how]
    document = result(*words)
    assert counts(document) == {"rows": 34, "ordered": 20, "held": 14}
    missing = document["missing"]
    ranked = [(cause["group"], cause["id"], cause["rows"]) for cause in missing["first"]]
    assert ranked == [("tea", "lost", 10), ("tea", "gone", 2), ("bar", "none", 1), ("bar", "x", 1)]
    assert (missing["ids"], missing["rows"]) == (4, 14)


def test_a_stream_quarantines_rows_that_cannot_be_read(spark: SparkSession, tmp_path: Path) -> None:
    inbox, out = tmp_path / "in", tmp_path / "out"
    inbox.mkdir()
    (inbox / "1.csv").write_text('id,after,text\nb,a,"x\ny"\n')
    stream = ("order", inbox, "--out", out, "--id", "id", "--deps", "after", "--stream", "--once")
    assert counts(result(*stream)) == {"rows": 1, "held": 1}
    (inbox / "odd name [%20].csv").write_text("id,after,text\na,,\nc\n")
    document = result(*stream)
    assert counts(document) == {"rows": 3, "ordered": 2, "quarantined": 1}
    (example,) = document["examples"]
    assert example["reason"] == "odd name [%20].csv, row 2: it does not have the header's 3 fields, but 1"
    rows = spark.read.parquet(str(out)).where("outcome = 'ordered'").sort("causal_index").collect()
    assert [(row.id, row.text) for row in rows] == [("a", ""), ("b", "x\ny")]
    (inbox / "3.csv").write_text("id,after,text\nd\n")
    with pytest.raises(InputError, match=r"2 rows cannot be read; one is 3\.csv, row 1"):
        result(*stream, "--strict")


def test_files_that_are_not_event_tables_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    def refuses(path: object, message: str, *words: object) -> None:
        with pytest.raises(InputError, match=message):
            output("order", path, "--out", tmp_path / "out", *(words or IDS))

    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.txt").write_text("a")
    (tmp_path / "none.csv").write_text("")
    (tmp_path / "header.csv").write_text("room,event_id,follows\n")
    (tmp_path / "list.json").write_text('[\n{"room":\n1}\n')
    mixed = write_lines(tmp_path / "mixed" / "b.jsonl", CHAT).parent
    (mixed / "a.csv").write_text("room\n1\n")
    write_lines(mixed / "_skipped" / "c.parquet", [])
    unlike = tmp_path / "unlike"
    unlike.mkdir()
    (unlike / "a.csv").write_text("room,event_id\n")
    (unlike / "b.csv").write_text("event_id,group\n")
    refuses(tmp_path / "nowhere", "does not exist")
    refuses("", "no events are named")
    refuses("s3a://bucket/events", "is a URL")
    refuses(tmp_path / "notes.txt", "it does not end in .parquet")
    refuses(tmp_path / "empty", "no file in it ends in .parquet")
    refuses(tmp_path / "none.csv", "none.csv is empty")
    refuses(tmp_path / "header.csv", "it has no rows")
    refuses(tmp_path / "list.json", "none of its lines is a JSON object")
    refuses(mixed, r"holds CSV \(a.csv\) and JSON lines \(b.jsonl\)")
    refuses(unlike, "b.csv has other columns than the files before it")
    (tmp_path / "twice.csv").write_text("room,event_id,event_id,follows\na,b,c,d\n")
    refuses(tmp_path / "twice.csv", "twice.csv: it has two columns event_id")
    inside = write_lines(tmp_path / "in" / "a.jsonl", CHAT).parent
    with pytest.raises(InputError, match="results would be read as events"):
        output("order", inside, "--out", inside / "out", *IDS)
    refuses(tmp_path / "list.json", "is a file; a stream", *IDS, "--stream")
    for folder, message in (
        (tmp_path / "empty", "no checkpoint"),
        (tmp_path / "notes.txt", "is not a folder"),
    ):
        with pytest.raises(InputError, match=message):
            output("held", folder)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nowhere"], "nowhere does not exist"),
        ([".", "--timeout", "soon"], "--timeout: 'soon' is not a duration; write one like 30s, 10m or 24h"),
        ([".", "--timeout", "5s"], "--timeout is for --stream with --on-missing release or quarantine"),
        ([".", "--timeout", "5s", "--stream"], "--timeout is for --stream with --on-missing release"),
        ([".", "--horizon", "1"], "--horizon: '1' is not a duration"),
        ([".", "--on-missing", "drop"], "'drop' is none of hold, release, quarantine"),
        ([".", "--once"], "--once is for --stream"),
        ([".", "--engine", "flink"], "no engine 'flink'; choose auto, local or spark"),
        ([".", "--engine", "local", "--stream"], "--stream needs Spark"),
        ([".", "--checkpoint", "s3a://bucket/c"], "is a URL"),
    ],
)
def test_an_error_is_one_line_and_exit_code_2(words: list[str], message: str, tmp_path: Path) -> None:
    done = antecede("order", *words, "--out", "out", *IDS, cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert message in done.stderr


def test_ctrl_c_ends_a_stream_with_its_counts(tmp_path: Path) -> None:
    write_lines(tmp_path / "in" / "1.jsonl", CHAT)
    mark = f"antecede-order-{os.getpid()}"
    process = subprocess.Popen(
        [*ANTECEDE, "order", "in", "--out", "out", *IDS, "--stream"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"JDK_JAVA_OPTIONS": f"{os.environ['JDK_JAVA_OPTIONS']} -Dmark={mark}"},
    )
    _wait_until(lambda: (tmp_path / "out" / "_checkpoint" / "commits" / "0").exists())
    process.send_signal(signal.SIGINT)
    shown, error = process.communicate(timeout=120)
    assert (process.returncode, error) == (130, "stopped; finished work is kept\n")
    assert "• z of tea: waits for lost, since " in shown
    _wait_until(lambda: not _running(mark))


def _wait_until(happened: Callable[[], object]) -> None:
    for _ in range(900):
        if happened():
            return
        time.sleep(0.1)
    pytest.fail("it did not happen within 90 seconds")


def _running(mark: str) -> list[str]:
    """Processes with a mark in their environment."""
    processes = []
    for environment in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if mark.encode() in environment.read_bytes():
                processes.append(environment.parent.name)
    return processes
