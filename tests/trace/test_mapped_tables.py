"""Tables of other programs under --map: audited as they are, or refused with a clear error."""

from __future__ import annotations

import csv
import itertools
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from antecede.audit.run import audit_path, refuse_without_deliveries
from antecede.causality import Verdict
from antecede.errors import InputError
from antecede.sim.record import simulate_to
from antecede.sim.scenario import scenario
from antecede.trace.bad_rows import BadRows
from antecede.trace.foreign.column_map import parse_column_map
from antecede.trace.foreign.mapped_trace import mapped_trace
from antecede.trace.foreign.to_trace import convert_to_trace
from antecede.trace.reader import trace_files

THEIRS = "process=host,index=n,message=id,kind=what,kind.send=PUB,kind.deliver=SUB"


def verdict(path: Path, *columns: str) -> Verdict:
    with mapped_trace(str(path), columns) as ours:
        found = audit_path(ours, "local", 10, None).verdict
        refuse_without_deliveries(ours, found)
        return found


def ours(path: Path, columns: str) -> list[dict[str, Any]]:
    return [
        row
        for table in convert_to_trace(path, trace_files(path), parse_column_map([columns]))
        for row in table.to_pylist()
    ]


def wrote(path: Path, rows: list[dict[str, Any]]) -> Path:
    """The same rows as Parquet, JSON lines or CSV."""
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    elif path.suffix == ".csv":
        with path.open("w", newline="") as stream:
            writer = csv.DictWriter(stream, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def log(*rows: tuple[Any, int, str, Any], **more: Any) -> list[dict[str, Any]]:
    return [dict(zip(("host", "n", "what", "id"), row, strict=True)) | more for row in rows]


FINE = [(1, 0, "PUB", 70), (2, 0, "SUB", 70), (2, 1, "PUB", 50), (1, 1, "SUB", 50)]


@pytest.mark.parametrize(
    ("name", "processes", "messages"),
    [("clownschool", 3, 23_136), ("git_makefile_A2", 375, 3_210), ("postgres_25x400", 25, 10_000)],
)
def test_real_logs_are_clean_under_a_map(real_traces: Path, name: str, processes: int, messages: int) -> None:
    found = verdict(real_traces / f"{name}.events.parquet", "index=idx,message=msg")
    assert found.clean, found
    assert (found.processes, found.messages) == (processes, messages)
    assert found.deliveries == messages * (processes - 1)


def test_two_swapped_deliveries_in_a_real_log_are_found(real_traces: Path, tmp_path: Path) -> None:
    """Two in turn of one sender, so that the second depends on the first."""
    table = pq.read_table(real_traces / "clownschool.events.parquet")
    rows = table.sort_by([("process", "ascending"), ("idx", "ascending")]).to_pylist()
    sender = {row["msg"]: row["process"] for row in rows if row["kind"] == "send"}
    one, other = next(
        (one, other)
        for one, other in itertools.pairwise(rows[1_000:])
        if one["kind"] == other["kind"] == "deliver"
        and one["process"] == other["process"]
        and sender[one["msg"]] == sender[other["msg"]]
    )
    one["msg"], other["msg"] = other["msg"], one["msg"]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "swapped.parquet")
    found = verdict(tmp_path / "swapped.parquet", "index=idx,message=msg")
    assert (found.causal_violations, found.causal_pairs_late, found.missing) == (1, 1, 0)


@pytest.mark.parametrize("suffix", ["parquet", "jsonl", "csv"])
def test_every_file_format_gives_the_same_rows(tmp_path: Path, suffix: str) -> None:
    file = wrote(tmp_path / f"monday.{suffix}", log(*FINE))
    assert verdict(file, THEIRS).clean
    rows = ours(file, THEIRS)
    assert [(row["process"], row["kind"], row["origin"], row["seq"]) for row in rows] == [
        ("1", "send", "1", 1), ("2", "deliver", "1", 1), ("2", "send", "2", 1), ("1", "deliver", "2", 1),
    ]  # fmt: skip
    assert {(row["run"], row["group"]) for row in rows} == {("monday", "all")}
    assert [row["time"] for row in rows] == [row["index"] for row in rows] == [0, 0, 1, 1]


def test_seq_is_the_position_among_the_sender_s_sends(tmp_path: Path) -> None:
    rows = [("a", 9, "PUB", "y"), ("b", 0, "SUB", "x"), ("a", 3, "PUB", "x"), ("b", 1, "SUB", "y")]
    found = ours(wrote(tmp_path / "t.jsonl", log(*rows)), THEIRS)
    assert [(row["origin"], row["seq"]) for row in found] == [("a", 2), ("a", 1), ("a", 1), ("a", 2)]


def test_an_id_that_nobody_sent_is_an_orphan(tmp_path: Path) -> None:
    strange = [
        ("nobody's ", 0, "PUB", 1),
        (1, 2, "SUB", 99),
        (2, 2, "SUB", 99),
        (2, 3, "SUB", 98),
        (2, 4, "SUB", 98),
    ]
    found = verdict(wrote(tmp_path / "t.csv", log(*FINE, *strange)), THEIRS)
    assert (found.orphans, found.duplicates, found.messages) == (3, 1, 3)


def test_a_mapped_table_gives_the_same_verdict_as_the_trace(tmp_path: Path) -> None:
    """A trace with losses, its columns renamed, its messages by an id, its parts in several files."""
    simulate_to(
        tmp_path / "trace",
        scenario(protocol="basic", peers=6, seconds=3, delay="wild:1us-1s", faults=("loss:2%",)),
    )
    table = pq.read_table(tmp_path / "trace" / "part-00000.parquet")
    ids = [
        f"{origin}/{seq}"
        for origin, seq in zip(table["origin"].to_pylist(), table["seq"].to_pylist(), strict=True)
    ]
    foreign = pa.table({"who": table["process"], "at": table["index"], "kind": table["kind"], "id": ids})
    (tmp_path / "theirs").mkdir()
    half = foreign.num_rows // 2
    pq.write_table(foreign.slice(0, half), tmp_path / "theirs" / "part-0.parquet")
    pq.write_table(foreign.slice(half), tmp_path / "theirs" / "part-1.parquet")
    expected = verdict(tmp_path / "trace")
    assert not expected.clean
    assert verdict(tmp_path / "theirs", "process=who,index=at", "message=id") == expected
    assert {row["run"] for row in ours(tmp_path / "theirs", "process=who,index=at,message=id")} == {"theirs"}


def test_one_table_may_hold_several_runs(tmp_path: Path) -> None:
    rows = [row | {"run": run} for run in ("x", "y") for row in log(*FINE)]
    found = verdict(wrote(tmp_path / "t.parquet", rows), THEIRS)
    assert found.clean
    assert found.messages == 4


def test_a_sender_delivers_its_own_message_once(tmp_path: Path) -> None:
    mine = [(1, 1, "SUB", 70), (2, 5, "SUB", 50)]
    fine = [*FINE[:3], *mine, (1, 2, "SUB", 50)]
    assert verdict(wrote(tmp_path / "once.csv", log(*fine)), THEIRS).clean
    again = [*fine, (1, 6, "SUB", 70)]
    assert verdict(wrote(tmp_path / "twice.csv", log(*again)), THEIRS).duplicates == 1


def test_rows_of_skipped_kinds_are_left_out(tmp_path: Path) -> None:
    file = wrote(tmp_path / "t.jsonl", log(*FINE, (1, 7, "TICK", None)))
    with pytest.raises(InputError, match=r"t.jsonl, row 5: kind 'TICK' is not .*kind.skip=TICK"):
        verdict(file, THEIRS)
    assert verdict(file, f"{THEIRS},kind.skip=TICK").clean


def test_without_an_index_the_order_in_the_file_counts(tmp_path: Path) -> None:
    rows = [{k: v for k, v in row.items() if k != "n"} for row in log(*FINE)]
    columns = THEIRS.replace("index=n,", "")
    assert verdict(wrote(tmp_path / "t.csv", rows), columns).clean
    rows = log((1, 0, "PUB", 1), (1, 0, "PUB", 2), (2, 0, "SUB", 2), (2, 0, "SUB", 1))
    found = verdict(
        wrote(tmp_path / "u.csv", [{k: v for k, v in row.items() if k != "n"} for row in rows]), columns
    )
    assert found.fifo_violations == 1


def test_origin_and_seq_may_have_other_names_and_start_at_zero(tmp_path: Path) -> None:
    rows = [
        {"node": "a", "kind": "send", "from": "a", "no": 0, "to": "b"},
        {"node": "b", "kind": "deliver", "from": "a", "no": 0, "to": None},
        {"node": "c", "kind": "receive", "from": "a", "no": 0, "to": None},
    ]
    columns = "process=node,origin=from,seq=no,destinations=to"
    for suffix in ("parquet", "jsonl", "csv"):
        file = wrote(tmp_path / f"t.{suffix}", rows)
        with pytest.raises(InputError, match="seq 0 is not 1 or more"):
            verdict(file, columns)
        assert verdict(file, columns, "seq.first=0").clean


def test_times_and_numbers_are_converted_where_nothing_is_lost(tmp_path: Path) -> None:
    table = pa.table(
        {
            "host": pa.array(["a", "b"]).dictionary_encode(),
            "n": pa.array([0.0, 1.0]),
            "what": ["PUB", "SUB"],
            "id": pa.array([7.0, 7.0]),
            "time": pa.array([1, 2], pa.timestamp("ms")),
        }
    )
    pq.write_table(table, tmp_path / "t.parquet")
    rows = ours(tmp_path / "t.parquet", THEIRS)
    assert [(row["index"], row["time"], row["seq"]) for row in rows] == [(0, 1_000_000, 1), (1, 2_000_000, 1)]


def test_late_fields_are_read_and_unmapped_fields_ignored(tmp_path: Path) -> None:
    rows = (
        log((1, 0, "PUB", 70), link={"not": "ours"})
        + log((1, 1, "PUB", 71), to=["2"])
        + log((2, 0, "SUB", 70))
    )
    found = verdict(wrote(tmp_path / "t.jsonl", rows), f"{THEIRS},destinations=to")
    assert (found.missing, found.messages) == (1, 2)
    timed = [row | {"time": "noon", "group": None} for row in log(*FINE)]
    assert verdict(wrote(tmp_path / "u.jsonl", timed), f"{THEIRS},time=,group=").clean


def test_a_table_without_rows_is_clean(tmp_path: Path) -> None:
    pq.write_table(
        pa.table({name: pa.array([], pa.string()) for name in ("host", "n", "what", "id")}),
        tmp_path / "t.parquet",
    )
    with pytest.raises(InputError, match="column n holds string"):
        ours(wrote(tmp_path / "u.parquet", [dict.fromkeys(("host", "n", "what", "id"), "x")]), THEIRS)
    assert ours(tmp_path / "t.parquet", THEIRS) == []


def test_ids_may_exceed_64_bits(tmp_path: Path) -> None:
    table = pa.table(
        {
            "host": ["a", "b"],
            "what": ["PUB", "SUB"],
            "id": pa.array([2**64 - 1] * 2, pa.uint64()),
            "n": [0, 0],
        }
    )
    pq.write_table(table, tmp_path / "t.parquet")
    assert verdict(tmp_path / "t.parquet", THEIRS).clean
    assert verdict(
        wrote(tmp_path / "t.jsonl", log(("a", 0, "PUB", 2**90), ("b", 0, "SUB", 2**90))), THEIRS
    ).clean


GOOD = {"host": [1, 2], "n": [0, 0], "what": ["PUB", "SUB"], "id": [7, 7]}


def good(**columns: Any) -> tuple[str, Any]:
    return "t.parquet", pa.table(GOOD | columns)


def json_line(**fields: Any) -> tuple[str, Any]:
    return "t.jsonl", json.dumps({"host": 1, "n": 1, "what": "PUB", "id": 3} | fields).encode()


@pytest.mark.parametrize(
    ("written", "columns", "says"),
    [
        (good(), "process", "'process' is not a pair"),
        (good(), "colour=red", "no column 'colour' of ours"),
        (good(), "process=host,process=n", "process is named twice"),
        (good(), "kind.sned=PUB", "no kind 'sned'"),
        (good(), "kind.send=PUB,kind.deliver=PUB", "PUB is mapped to both send and deliver"),
        (good(), "message=id,seq=n", "not both"),
        (good(), "seq.first=7", "seq.first is 0 or 1"),
        (good(), "process=who", "t.parquet has no column who, which --map says is process; it has"),
        (good(), "process=host,message=id", "no column kind: nothing says which rows are deliveries"),
        (good(), "kind=what,message=id", "t.parquet has no column process"),
        (good(), "kind=what,process=host", "neither an id of messages (message) nor origin and seq"),
        (good(n=[0.5, 1]), THEIRS, "row 1, field n (index): expected a whole number, got 0.5"),
        (good(n=[True, False]), THEIRS, "column n holds bool, which cannot be index"),
        (good(id=[7, None]), THEIRS, "t.parquet, row 2, field id (message): it is empty"),
        (good(time=[1, None]), THEIRS, "row 2, field time: it is empty; --map time= does"),
        (good(what=["PUB", "PUB"]), THEIRS, "message 7 is sent twice, by 1 and by 2"),
        (good(what=["PUB", None]), THEIRS, "row 2, field what (kind): it is empty"),
        (good(host=[[1], [2]]), THEIRS, "column host holds list"),
        (good(host=[b"\xff", b"b"]), THEIRS, "column host holds binary"),
        (("t.parquet", b"PAR1 and so on"), THEIRS, "t.parquet is a truncated or damaged Parquet file"),
        (("t.jsonl", b""), THEIRS, "t.jsonl is empty"),
        (("t.jsonl", b"{"), THEIRS, "t.jsonl, row 1: not JSON"),
        (json_line(n=1e9), THEIRS, "row 1, field n (index): expected a whole"),
        (json_line(n=10**20), THEIRS, "expected a whole number"),
        (json_line(host=[]), THEIRS, "expected text or a whole number, got []"),
        (("t.csv", b""), THEIRS, "t.csv is empty"),
        (("t.csv", b"host,n,what,id\n"), THEIRS, "t.csv has a header but no rows"),
        (("t.csv", b"host,n,what,id\n1,2\n"), THEIRS, "row 1 (line 2): it does not have the header's 4"),
        (("t.csv", b"host,n,what,id\n\xff,2,PUB,3\n"), THEIRS, "row 1 (line 2): it is not text in UTF-8"),
        (("t.csv", b"host,host,n,what,id\n1,2,3,PUB,3\n"), THEIRS, "two columns host"),
        (("t.csv", b"host,n,what,id\n1,9" + b"9" * 5000 + b",PUB,3\n"), THEIRS, "expected a whole number"),
        (("t.csv", b"host,n,what,id\n1,0,PUB,3\n2,0,PUB,4\n"), THEIRS, "has 2 sends and no delivery"),
        (("t.csv", b"node,process,seq,parents\n0,0,0,\n"), "process=process", "no column kind"),
    ],
)  # fmt: skip
def test_errors_name_the_unreadable_input(
    tmp_path: Path, written: tuple[str, Any], columns: str, says: str
) -> None:
    name, content = written
    file = tmp_path / name
    if isinstance(content, bytes):
        file.write_bytes(content)
    else:
        pq.write_table(content, file)
    with pytest.raises(InputError) as error:
        verdict(file, columns)
    assert says in str(error.value)
    assert "\n" not in str(error.value)
    assert "antecede-" not in str(error.value)


def test_only_local_files_are_mapped() -> None:
    with (
        pytest.raises(InputError, match="--map is for local files"),
        mapped_trace("s3a://bucket/t", [THEIRS]),
    ):
        pass


def test_a_dependency_table_is_refused_by_the_audit(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("node,process,seq,parents\n0,0,0,\n1,0,1,0\n")
    with pytest.raises(InputError, match=r"says what depends on what.*antecede graph"):
        verdict(tmp_path / "t.csv")


def test_sends_without_deliveries_are_judged_if_members_are_named(tmp_path: Path) -> None:
    """Then it is known that everybody lacks them."""
    simulate_to(tmp_path / "t", scenario(protocol="mbcp", peers=3, seconds=0.2, faults=("loss:100%",)))
    found = verdict(tmp_path / "t")
    assert (found.deliveries, found.missing) == (0, 2 * found.messages)


def test_bad_rows_are_counted_and_shown_by_example(tmp_path: Path) -> None:
    there = "host,n,what,id\n1,0,PUB,70\n2,x,SUB,70\n,1,SUB,70\n2,2\n2,3,SUB,70\n"
    (tmp_path / "t.csv").write_text(there)
    lines = ['{"n": 0}', '{"host": 1, "n": 0, "what": "PUB", "id": 70}', "{", "[]"]
    lines += [
        '{"host": 2, "n": 1.5, "what": "SUB", "id": 70}',
        '{"host": 2, "n": 9, "what": "SUB", "id": 70}',
    ]
    (tmp_path / "t.jsonl").write_text("\n".join(lines))
    columns = {"host": [1, 2, None, 2], "n": [0, 0.5, 1, 2], "what": ["PUB", *["SUB"] * 3], "id": [70] * 4}
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    wrong = {
        "t.csv": [
            "row 2 (line 3), field n (index): expected a whole number, got 'x'",
            "row 3 (line 4), field host (process): it is empty",
            "row 4 (line 5): it does not have the header's 4 fields, but 2",
        ],
        "t.jsonl": [
            "row 1, field host (process): it is empty",
            "row 3: not JSON: Input data was truncated",
            "row 4: expected an object with named fields",
            "row 5, field n (index): expected a whole number, got 1.5",
        ],
        "t.parquet": [
            "row 2, field n (index): expected a whole number, got 0.5",
            "row 3, field host (process): it is empty",
        ],
    }
    for name, examples in wrong.items():
        bad = BadRows(str(tmp_path / name), strict=False)
        with mapped_trace(str(tmp_path / name), [THEIRS], bad=bad) as ours:
            found = audit_path(ours, "local", 10, None).verdict
        assert (found.messages, found.deliveries, found.clean) == (1, 1, True)
        assert sorted(each for kind in bad.kinds for each in kind.examples) == examples
        assert bad.rows == len(examples)
        with pytest.raises(InputError, match=f"{name}, row"):
            verdict(tmp_path / name, THEIRS)


def test_a_table_with_nothing_but_bad_rows_is_refused(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("host,n,what,id\n1,x,PUB,70\n")
    bad = BadRows("t", strict=False)
    with (
        pytest.raises(InputError, match=r"no row that could be taken; the first bad row: .*row 1"),
        mapped_trace(str(tmp_path / "t.csv"), [THEIRS], bad=bad),
    ):
        pass


def test_a_table_may_have_very_many_columns(tmp_path: Path) -> None:
    others = [f"c{place}" for place in range(100_000)]
    blank = "," * len(others)
    rows = [f"1,0,PUB,70{blank}", f"2,0,SUB,70{blank}"]
    (tmp_path / "t.csv").write_text("\n".join([",".join(["host", "n", "what", "id", *others]), *rows]))
    assert verdict(tmp_path / "t.csv", THEIRS).clean


def test_a_table_left_without_deliveries_is_refused_with_an_example(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("host,n,what,id\n1,0,PUB,70\n2,x,SUB,70\n")
    bad = BadRows("t", strict=False)
    with mapped_trace(str(tmp_path / "t.csv"), [THEIRS], bad=bad) as ours:
        found = audit_path(ours, "local", 10, None).verdict
        with pytest.raises(InputError, match=r"no delivery.*the first bad row: .*row 2.*, field n"):
            refuse_without_deliveries(ours, found, bad)


def test_an_encoding_can_be_named(tmp_path: Path) -> None:
    text = "host,n,what,id\njosé,0,PUB,año\nben,0,SUB,año\n"
    (tmp_path / "t.csv").write_bytes(text.encode("latin-1"))
    with pytest.raises(
        InputError, match=r"row 1 .line 2.: it is not text in UTF-8; say which with --map encoding="
    ):
        verdict(tmp_path / "t.csv", THEIRS)
    assert verdict(tmp_path / "t.csv", THEIRS, "encoding=latin-1").clean
    rows = ours(tmp_path / "t.csv", f"{THEIRS},encoding=latin-1")
    assert [(row["process"], row["message"]) for row in rows] == [("josé", "año"), ("ben", "año")]
    with pytest.raises(InputError, match="there is no encoding 'nonsense'"):
        verdict(tmp_path / "t.csv", THEIRS, "encoding=nonsense")


def test_a_bad_row_of_csv_is_named_by_its_line_too(tmp_path: Path) -> None:
    """A header of two lines, a field of two lines and a blank line: lines are not rows."""
    (tmp_path / "log.csv").write_text(
        'process,index,kind,"message\nid",note\na,1,send,m,"two\nlines"\n\nb,one,deliver,m,\nb,2,,m,\nb,3,deliver\nb,4,send,o,\n'
    )
    bad = BadRows("log.csv", strict=False)
    with mapped_trace(str(tmp_path / "log.csv"), ["message=message\nid"], bad=bad) as ours:
        found = audit_path(ours, "local", 10, None, bad=bad)
    places = [example.split("csv, ")[-1] for kind in bad.kinds for example in kind.examples]
    assert [place.partition(")")[0] for place in places] == [
        "row 2 (line 6",
        "row 4 (line 8",
        "row 3 (line 7",
    ]
    assert found.verdict.missing == 2
    assert [note for note in bad.notes if note.startswith("3 bad rows left out")]


def test_an_unknown_kind_of_csv_is_named_by_its_line_too(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("process,index,kind,message\na,1,send,m\nb,1,recv,m\n")
    with pytest.raises(InputError, match=r"row 2 \(line 3\): kind 'recv'"):
        verdict(tmp_path / "log.csv", "message=message")


@pytest.mark.parametrize(
    ("first", "unit"), [(1_793_534_401, "s"), (1_793_534_401_250, "ms"), (1_793_534_401_250_000, "us")]
)
def test_numbers_that_look_like_times_since_1970_are_noted(first: int, unit: str, tmp_path: Path) -> None:
    """As nanoseconds they would be a run of some seconds, and change what advise recommends."""
    rows = f"process,kind,message,at\na,send,m,{first}\nb,deliver,m,{first + 1}\n"
    (tmp_path / "t.csv").write_text(rows)

    def noted(*columns: str) -> bool:
        bad = BadRows("t.csv")
        with mapped_trace(str(tmp_path / "t.csv"), ["message=message,time=at", *columns], bad=bad):
            return any(f"add --map time.unit={unit}" in note for note in bad.notes)

    assert noted()
    assert not noted(f"time.unit={unit}")
    assert not noted("time.unit=ns")
    (tmp_path / "t.csv").write_text(rows.replace(str(first), "1"))
    assert not noted()


def test_a_column_may_be_within_objects_of_json(tmp_path: Path) -> None:
    rows = [
        {"payload": {"host": host, "about": {"id": "m"}}, "kind": kind, "a.b": 0}
        for host, kind in (("a", "send"), ("b", "deliver"))
    ]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = verdict(tmp_path / "t.jsonl", "process=payload.host,message=payload.about.id,time=a.b")
    assert (found.messages, found.deliveries, found.processes) == (1, 1, 2)
    with pytest.raises(InputError, match=r"has no column payload\.hos, which --map says is process"):
        verdict(tmp_path / "t.jsonl", "process=payload.hos,message=payload.about.id")


def test_a_missing_column_is_refused_with_the_names_of_the_others(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("process,msg,what\na,m,PUB\n")
    with pytest.raises(InputError, match=r"no column kind: .* --map kind=… \(the other columns are what\)"):
        verdict(tmp_path / "t.csv", "message=msg")
    (tmp_path / "t.csv").write_text("process,kind,msg\n")
    with pytest.raises(InputError, match=r"t\.csv has a header but no rows"):
        verdict(tmp_path / "t.csv", "message=msg")
