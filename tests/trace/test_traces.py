"""Traces: what is written is read back in every format, and errors name what cannot be read."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import antecede.trace
from antecede.audit.core import judge_files, judge_run, sum_verdicts
from antecede.errors import InputError
from antecede.sim.record import simulate_to
from antecede.sim.scenario import scenario
from antecede.trace.reader import (
    check_files,
    read_batches,
    read_dictionary_encoded,
    read_metas,
    trace_files,
)
from antecede.trace.schema import REQUIRED, Meta
from antecede.trace.writer import TraceWriter

COLUMNS = ("run", "group", "process", "index", "kind", "origin", "seq", "time")


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    simulate_to(tmp_path / "trace", scenario(protocol="mbcp", peers=4, seconds=1))
    return tmp_path / "trace"


def rows_of(path: Path) -> list[dict[str, Any]]:
    return [row for file in trace_files(path) for batch in read_batches(file) for row in batch.to_pylist()]


def sends(first: int, end: int) -> pa.Table:
    rows = [("r", "g", "a", index, "send", "a", index + 1, 0) for index in range(first, end)]
    columns = zip(*rows, strict=True)
    return pa.table({name: pa.array(values) for name, values in zip(COLUMNS, columns, strict=True)})


def test_the_package_reads_a_trace_and_explains_a_message(trace: Path) -> None:
    assert antecede.trace.read_trace(str(trace)).to_pylist() == rows_of(trace)
    explained = antecede.trace.explain_message(str(trace), "p0:1")
    assert explained.message == "p0:1"
    assert sorted(each.process for each in explained.deliveries) == ["p1", "p2", "p3"]
    assert "explain_message" in antecede.trace.__all__


def test_parts_roll_and_read_back_in_order(tmp_path: Path) -> None:
    meta = Meta(run="r", groups={"g": ["a"]})
    with TraceWriter(tmp_path / "t", meta, COLUMNS, batch_rows=10, part_rows=25) as writer:
        writer.extend(sends(0, 7))
        writer.extend(sends(7, 50))
        writer.extend(sends(50, 64))
    parts = trace_files(tmp_path / "t")
    assert [file.name for file in parts] == [f"part-0000{n}.parquet" for n in range(3)]
    assert [pq.read_metadata(part).num_rows for part in parts] == [25, 25, 14]
    assert [row["index"] for row in rows_of(tmp_path / "t")] == list(range(64))
    assert read_metas(tmp_path / "t") == [meta]


def test_a_trace_can_be_read_while_it_grows(tmp_path: Path) -> None:
    writer = TraceWriter(tmp_path / "t", Meta(run="r", groups={}), COLUMNS, batch_rows=5, part_rows=10)
    for index in range(13):
        writer.extend(sends(index, index + 1))
    assert len(rows_of(tmp_path / "t")) == 10


def test_an_empty_trace_is_a_trace(tmp_path: Path) -> None:
    with TraceWriter(tmp_path / "t", Meta(run="r", groups={"g": ["a"]}), COLUMNS):
        pass
    assert rows_of(tmp_path / "t") == []
    assert sum_verdicts(
        [each.verdict for each in judge_files(tmp_path / "t", trace_files(tmp_path / "t"))]
    ).clean


def test_json_lines_csv_and_parquet_give_the_same_rows(trace: Path, tmp_path: Path) -> None:
    rows = rows_of(trace)
    lines, table = tmp_path / "t.jsonl", tmp_path / "t.csv"
    lines.write_text(
        "".join(json.dumps({k: v for k, v in row.items() if v is not None}) + "\n" for row in rows)
    )
    with table.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    assert [{k: row[k] for k in rows[0]} for row in rows_of(table)] == rows
    kept = [{k: row[k] for k in REQUIRED} for row in rows]
    assert [{k: row[k] for k in REQUIRED} for row in rows_of(lines)] == kept
    verdicts = [next(iter(judge_files(p, trace_files(p)))).verdict for p in (trace, lines, table)]
    assert verdicts[0].clean
    assert verdicts[0] == verdicts[1] == verdicts[2]


def row(**changes: Any) -> dict[str, Any]:
    whole = {
        "run": "r",
        "group": "g",
        "process": "a",
        "index": 0,
        "kind": "send",
        "origin": "a",
        "seq": 1,
        "time": 0,
    }
    return {**whole, **changes}


def drop(name: str) -> Callable[[Path], Path]:
    def damage(trace: Path) -> Path:
        part = trace / "part-00000.parquet"
        pq.write_table(pq.read_table(part).drop_columns([name]), part)
        return trace

    return damage


def retype(trace: Path) -> Path:
    part = trace / "part-00000.parquet"
    table = pq.read_table(part)
    place = table.column_names.index("seq")
    pq.write_table(table.set_column(place, "seq", table.column("seq").cast(pa.float64())), part)
    return trace


def blank(trace: Path) -> Path:
    part = trace / "part-00000.parquet"
    table = pq.read_table(part)
    place = table.column_names.index("origin")
    values = table.column("origin").to_pylist()
    values[7] = None
    pq.write_table(table.set_column(place, "origin", pa.array(values)), part)
    return trace


def truncate(trace: Path) -> Path:
    part = trace / "part-00000.parquet"
    part.write_bytes(part.read_bytes()[:-100])
    return trace


def spoil(trace: Path) -> Path:
    part = trace / "part-00000.parquet"
    data = bytearray(part.read_bytes())
    data[40:400] = bytes(360)
    part.write_bytes(data)
    return trace


def write(name: str, text: str | bytes) -> Callable[[Path], Path]:
    def damage(trace: Path) -> Path:
        file = trace.parent / name
        file.write_bytes(text.encode() if isinstance(text, str) else text)
        return file

    return damage


def empty(trace: Path) -> Path:
    (trace.parent / "empty").mkdir()
    return trace.parent / "empty"


def meta(text: str) -> Callable[[Path], Path]:
    def damage(trace: Path) -> Path:
        (trace / "_meta/meta.json").write_text(text, errors="surrogateescape")
        return trace

    return damage


def unreadable(trace: Path) -> Path:
    (trace / "locked").mkdir()
    (trace / "locked").chmod(0)
    if os.access(trace / "locked", os.R_OK):
        pytest.skip("this user may read everything")
    return trace


def strings(trace: Path) -> Path:
    """A column of text that is not text."""
    part = trace / "part-00000.parquet"
    table = pq.read_table(part)
    place = table.column_names.index("origin")
    bad = pa.array([b"\xff\xfe"] * table.num_rows, pa.binary()).view(pa.string())
    pq.write_table(table.set_column(place, "origin", bad), part)
    return trace


def lines(*rows: Any) -> str:
    return "".join(json.dumps(each) + "\n" for each in rows)


HEADER = ",".join(REQUIRED)


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda trace: trace / "nowhere", "nowhere does not exist"),
        (empty, "empty holds no trace yet: the folder has no recorded events"),
        *((drop(name), f"part-00000.parquet has no column {name}") for name in REQUIRED),
        (retype, "column seq holds double, expected int64"),
        (blank, "part-00000.parquet, row 8, field origin: it is empty"),
        (truncate, "part-00000.parquet is a truncated or damaged Parquet file"),
        (spoil, "part-00000.parquet is a damaged Parquet file"),
        (write("t.parquet", "process,index\n"), "t.parquet is not a Parquet file"),
        (write("t.parquet", ""), "t.parquet is empty, not Parquet"),
        (write("t.txt", "?"), "t.txt: a trace is a folder or a file ending in"),
        (meta("{"), "meta.json is not a trace's meta.json"),
        (meta('{"run": "r", "groups": {}, "schema_version": 99}'), "schema version 99"),
        (write("t.jsonl", ""), "t.jsonl is empty"),
        (write("t.jsonl", "{"), "t.jsonl, row 1: not JSON"),
        (write("t.jsonl", lines(row()) + "[1]"), "t.jsonl, row 2: expected an object"),
        (
            write("t.jsonl", lines(row(), row(seq="x"))),
            "t.jsonl, row 2, field seq: expected a whole number, got 'x'",
        ),
        (write("t.jsonl", lines(row(seq=2**80))), "t.jsonl, row 1, field seq: expected a whole number"),
        (write("t.jsonl", lines(row(process=None))), "t.jsonl, row 1, field process: it is empty"),
        (write("t.jsonl", b'{"run": "\xff"}'), "t.jsonl, row 1: not JSON"),
        (write("t.csv", ""), "t.csv is empty"),
        (write("t.csv", "run,group\n"), "t.csv has no columns process, index"),
        (
            write("t.csv", f"{HEADER}\nr,g,a,0,send,a,one,0\n"),
            "t.csv, row 1, field seq: expected a whole number",
        ),
        (write("t.csv", f"{HEADER}\nr,g,a\n"), "t.csv, row 1: it does not have the header's 8 fields"),
        (write("t.csv", b"run\xff,group\n"), "t.csv: its header is not text in UTF-8"),
        (write("t.csv", f"{HEADER}\n"), "t.csv has a header but no rows"),
        (write("t.csv", f"{HEADER},run\n"), "t.csv: it has two columns run"),
        (meta("\udcff"), "meta.json is not a trace's meta.json"),
        (unreadable, "locked: Permission denied"),
        (strings, "part-00000.parquet is a damaged Parquet file"),
        (
            write("t.jsonl", lines(row(kind="sned"))),
            "index 0: kind 'sned' is not send, receive, deliver, admit, leave, remove, close or snapshot",
        ),
        (write("t.jsonl", lines(row(seq=0))), "seq 0 is not 1 or more"),
        (write("t.jsonl", lines(row(), row(seq=2))), "process a has two events with index 0"),
        (write("t.jsonl", lines(row(), row(index=1))), "a:1 is sent twice"),
        (write("t.jsonl", lines(row(origin="b"))), "process a, index 0: it sends a message of b"),
    ],
)
def test_errors_name_the_unreadable_input(trace: Path, damage: Callable[[Path], Path], says: str) -> None:
    path = damage(trace)
    with pytest.raises(InputError) as error:
        files = trace_files(path)
        check_files(files)
        list(judge_files(path, files))
    assert says in str(error.value)
    assert "\n" not in str(error.value)


def table_of(*rows: tuple[str, int, str, str, int], **more: list[Any]) -> pa.Table:
    names = ("process", "index", "kind", "origin", "seq")
    made = [row(**dict(zip(names, each, strict=True))) for each in rows]
    for name, values in more.items():
        made = [{**each, name: value} for each, value in zip(made, values, strict=True)]
    return pa.Table.from_pylist(made)


def test_each_message_is_expected_by_its_audience() -> None:
    rows = [("a", 0, "send", "a", 1), ("b", 0, "deliver", "a", 1), ("c", 0, "receive", "a", 1)]
    observed = judge_run("r", table_of(*rows), {}).verdict
    assert (observed.missing, observed.processes) == (1, 3)
    told = judge_run("r", table_of(*rows), {"g": ["a", "b", "c", "d"]}).verdict
    assert (told.missing, told.processes) == (2, 4)
    named = judge_run(
        "r", table_of(*rows, destinations=[["b"], None, None]), {"g": ["a", "b", "c", "d"]}
    ).verdict
    assert named.missing == 0


def test_an_orphan_may_have_an_unknown_sender() -> None:
    verdict = judge_run("r", table_of(("a", 0, "deliver", "ghost", 4)), {}).verdict
    assert (verdict.orphans, verdict.messages, verdict.deliveries) == (1, 0, 1)


def test_a_run_whose_causal_pasts_exceed_the_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("antecede.audit.core.MAX_BYTES", 3)
    with pytest.raises(InputError, match="has 2 messages in 1 streams"):
        judge_run("r", table_of(("a", 0, "send", "a", 1), ("a", 1, "send", "a", 2)), {})


def test_large_causal_pasts_are_kept_in_a_file(trace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (before,) = judge_files(trace, trace_files(trace))
    monkeypatch.setattr("antecede.audit.core._MAX_BYTES_IN_MEMORY", 0)
    (after,) = judge_files(trace, trace_files(trace))
    assert before == after


def test_real_logs_are_clean(real_traces: Path) -> None:
    """A replicated editing session and a database run: deliveries in causal order."""
    for name in ("clownschool", "postgres_25x400"):
        foreign = pq.read_table(real_traces / f"{name}.events.parquet")
        verdict = judge_run(name, _ours(foreign), {}).verdict
        assert verdict.messages > 9_000
        assert verdict.clean, verdict


def _ours(foreign: pa.Table) -> pa.Table:
    """process, idx, kind, msg: a message's number is its place among its sender's."""
    numbers: dict[int, tuple[str, int]] = {}
    counts: dict[str, int] = {}
    rows = foreign.sort_by([("process", "ascending"), ("idx", "ascending")]).to_pylist()
    for each in rows:
        if each["kind"] == "send":
            process = str(each["process"])
            counts[process] = counts.get(process, 0) + 1
            numbers[each["msg"]] = (process, counts[process])
    return pa.Table.from_pylist(
        [
            row(process=str(e["process"]), index=e["idx"], kind=e["kind"], origin=o, seq=s)
            for e in rows
            for o, s in [numbers[e["msg"]]]
        ]
    )


def test_a_late_optional_field_and_a_byte_order_mark_are_accepted(tmp_path: Path) -> None:
    file = tmp_path / "t.jsonl"
    file.write_bytes(b"\xef\xbb\xbf" + lines(row(), row(index=1, seq=2, destinations=["z"])).encode())
    (judged,) = judge_files(file, trace_files(file))
    assert (judged.verdict.processes, judged.verdict.missing) == (2, 1)
    table = tmp_path / "t.csv"
    table.write_bytes(b"\xef\xbb\xbf" + f"{HEADER}\nr,g,a,0,send,a,1,0\n".encode())
    assert [each.verdict.messages for each in judge_files(table, trace_files(table))] == [1]


def test_only_plain_files_are_parts_of_a_trace(trace: Path) -> None:
    os.mkfifo(trace / "pipe.parquet")
    (trace / "folder.parquet").mkdir()
    assert [file.name for file in trace_files(trace)] == ["part-00000.parquet"]


def test_files_of_other_programs_are_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "_meta").mkdir()
    (tmp_path / "_meta/meta.json").write_text('{"mine": true}')
    (tmp_path / "precious.parquet").write_text("years of work")
    with pytest.raises(InputError, match="not written over"):
        simulate_to(tmp_path, scenario(protocol="mbcp", peers=2, seconds=0.1))
    simulate_to(tmp_path / "t", scenario(protocol="mbcp", peers=2, seconds=0.1))
    (tmp_path / "t" / "precious.parquet").write_text("years of work")
    simulate_to(tmp_path / "t", scenario(protocol="mbcp", peers=2, seconds=0.1))
    assert (tmp_path / "t" / "precious.parquet").exists()


def test_an_error_in_a_later_row_group_names_the_row_of_the_file(tmp_path: Path) -> None:
    same = {"run": "r", "group": "g", "process": "p", "kind": "send", "origin": "p"}
    rows: list[dict[str, Any]] = [same | {"index": n, "seq": n + 1, "time": n} for n in range(20)]
    rows[15]["seq"] = None
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "t.parquet", row_group_size=10)
    with pytest.raises(InputError, match="row 16, field seq"):
        list(read_dictionary_encoded(tmp_path / "t.parquet", ["process"], ["seq"], [1]))
