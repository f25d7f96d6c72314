"""Times in every form that logs have; whatever cannot be read changes no verdict and no order."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from antecede.cli.main import app
from antecede.errors import InputError
from antecede.trace.bad_rows import BadRows
from antecede.trace.foreign.column_map import parse_column_map
from antecede.trace.foreign.to_trace import convert_to_trace
from antecede.trace.reader import read_trace, trace_files
from antecede.trace.times import parse_time

MAP = "process=host,kind=what,message=id,time=at"
EVENTS = [("ana", "send", "q"), ("ben", "deliver", "q"), ("ben", "send", "a"), ("ana", "deliver", "a")]
EVENTS += [("cleo", "deliver", "a"), ("cleo", "deliver", "q")]
NOON = 1_714_564_800 * 10**9


def document(*arguments: str) -> Any:
    return json.loads(CliRunner().invoke(app, [*arguments, "--json"]).stdout)


def write(file: Path, times: list[Any]) -> Path:
    rows = [
        {"host": host, "what": what, "id": name, "at": at}
        for (host, what, name), at in zip(EVENTS, times, strict=True)
    ]
    if file.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), file)
    elif file.suffix == ".csv":
        lines = [",".join("" if value is None else f'"{value}"' for value in row.values()) for row in rows]
        file.write_text("\n".join(["host,what,id,at", *lines, ""]))
    else:
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def times_of(file: Path, columns: str = MAP) -> list[int]:
    tables = convert_to_trace(file, trace_files(file), parse_column_map([columns]))
    return [time for table in tables for time in table.column("time").to_pylist()]


ISO = [f"2024-05-01T12:00:0{second}.5Z" for second in range(6)]
HALVES = [NOON + second * 10**9 + 5 * 10**8 for second in range(6)]


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
@pytest.mark.parametrize(
    "times",
    [
        ISO,
        [text.replace("T", " ").replace("Z", "+00:00") for text in ISO],
        [text.replace("12:", "14:").replace("Z", "+02:00") for text in ISO],
        [time / 10**9 for time in HALVES],
        HALVES,
    ],
    ids=["ISO", "with a space", "with a zone", "seconds", "nanoseconds"],
)
def test_every_form_of_time_is_read(tmp_path: Path, suffix: str, times: list[Any]) -> None:
    file = write(tmp_path / f"log.{suffix}", times)
    assert times_of(file) == HALVES
    found = document("audit", str(file), "--map", MAP)
    assert (found["causal_violations"], found["missing"], found["bad_rows"]) == (1, 0, 0)


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_mixed_and_unreadable_times_keep_their_rows(tmp_path: Path, suffix: str) -> None:
    times = ["2024-05-01T12:00:00Z", "yesterday", None, "1714564801.5", str(NOON + 2 * 10**9)]
    times += ["2024-05-01 25:00"]
    file = write(tmp_path / f"log.{suffix}", times)
    expected = [NOON, NOON, NOON, NOON + 1_500_000_000, NOON + 2 * 10**9, NOON + 2 * 10**9]
    bad = BadRows(str(file), strict=False)
    tables = convert_to_trace(file, [file], parse_column_map([MAP]), bad)
    assert [time for table in tables for time in table.column("time").to_pylist()] == expected
    found = document("audit", str(file), "--map", MAP)
    assert (found["causal_violations"], found["missing"], found["deliveries"]) == (1, 0, 4)
    (kind,) = found["bad"]
    assert (kind["what"], kind["rows"]) == ("rows whose time cannot be read, kept in their place", 3)
    assert not kind["left_out"]
    example = "row 2, field at (time): 'yesterday' is not a time; --map time= does without it"
    assert example in kind["examples"]
    strict = CliRunner().invoke(app, ["audit", str(file), "--map", MAP, "--strict"])
    assert isinstance(strict.exception, InputError)
    assert "'yesterday' is not a time" in str(strict.exception)


def test_the_unit_option_scales_numeric_times(tmp_path: Path) -> None:
    file = write(tmp_path / "log.csv", [1, 2, 3, 4, 5, "6.5"])
    assert times_of(file, f"{MAP},time.unit=ms") == [10**6 * each for each in (1, 2, 3, 4, 5)] + [6_500_000]
    with pytest.raises(InputError, match=r"time.unit is ns, us, ms, s, not 'weeks'"):
        times_of(file, f"{MAP},time.unit=weeks")


def test_timestamps_of_any_resolution_are_read_and_out_of_range_ones_rejected(tmp_path: Path) -> None:
    table = pa.table(
        {
            **{name: [row[place] for row in EVENTS] for place, name in enumerate(("host", "what", "id"))},
            "at": pa.array([NOON // 10**9] * 5 + [2**40], pa.timestamp("s", "UTC")),
        }
    )
    pq.write_table(table, tmp_path / "log.parquet")
    found = document("audit", str(tmp_path / "log.parquet"), "--map", MAP)
    assert (found["causal_violations"], found["deliveries"], found["bad_rows"]) == (1, 4, 1)


def test_a_trace_with_antecede_column_names_may_use_other_time_formats(tmp_path: Path) -> None:
    row = {"run": "r", "group": "g", "index": 0, "seq": 1, "origin": "a", "kind": "send", "process": "a"}
    rows = [row, row | {"process": "b", "kind": "deliver"}]
    noon = datetime(2024, 5, 1, 12, tzinfo=UTC)
    pq.write_table(pa.Table.from_pylist([each | {"time": noon} for each in rows]), tmp_path / "t.parquet")
    text = "".join(json.dumps(each | {"time": noon.isoformat()}) + "\n" for each in rows)
    (tmp_path / "t.jsonl").write_text(text)
    names = list(row)
    lines = [",".join([*(str(each[name]) for name in names), noon.isoformat()]) for each in rows]
    (tmp_path / "t.csv").write_text("\n".join([",".join([*names, "time"]), *lines, ""]))
    for suffix in ("parquet", "jsonl", "csv"):
        found = document("audit", str(tmp_path / f"t.{suffix}"))
        assert (found["clean"], found["deliveries"]) == (True, 1)
    assert read_trace(tmp_path / "t.csv").column("time").to_pylist() == [NOON, NOON]
    (tmp_path / "t.jsonl").write_text(json.dumps(row | {"time": "noon"}))
    with pytest.raises(InputError, match=r"row 1, field time: 'noon' is not a time.*--map time= does"):
        read_trace(tmp_path / "t.jsonl")


def test_values_that_are_not_times_parse_to_none() -> None:
    wrong = ["", "noon", "12:00", "2024-02-31", "9999-01-01", "nan", "9" * 25, 1e300, True, None, [], "٣"]
    assert [value for value in wrong if parse_time(value) is not None] == []
