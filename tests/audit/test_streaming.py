"""The one-pass audit agrees with the oracle, or gives no verdict."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from antecede.audit.core import judge_run, members_by_run
from antecede.audit.run import audit_path
from antecede.audit.streaming import verdict_if_clean
from antecede.causality import Verdict
from antecede.errors import InputError
from antecede.sim.record import simulate_to
from antecede.sim.scenario import scenario
from antecede.trace.reader import read_batches, read_metas, trace_files
from antecede.trace.schema import SCHEMA
from antecede.trace.writer import write_parts

Rows = list[dict[str, Any]]
PROTOCOLS = ("timestamp", "mbcp", "flooding", "vcube", "hcg", "freescale")


def simulated(folder: Path, **fields: Any) -> tuple[Rows, str, dict[str, list[str]]]:
    made = scenario(**{"protocol": "timestamp", "peers": 5, "seconds": 0.3, **fields})
    simulate_to(folder, made)
    rows = [row for file in trace_files(folder) for table in read_batches(file) for row in table.to_pylist()]
    return rows, made.key(), dict(members_by_run(read_metas(folder))[made.key()])


def both(folder: Path, rows: Rows, run: str, members: dict[str, list[str]]) -> tuple[Verdict | None, Verdict]:
    folder.mkdir()
    columns = [name for name in SCHEMA.names if name not in ("deps", "destinations")]
    table = pa.Table.from_pylist(rows, schema=pa.schema([SCHEMA.field(name) for name in columns]))
    write_parts(folder, [table], part_rows=100)
    return verdict_if_clean(trace_files(folder), run, members), judge_run(run, table, members).verdict


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("peers", [1, 2, 9])
def test_one_pass_finds_a_clean_run_clean(tmp_path: Path, protocol: str, peers: int) -> None:
    rows, run, members = simulated(tmp_path / "made", protocol=protocol, peers=peers)
    found, judged = both(tmp_path / "again", rows, run, members)
    assert found == judged
    assert judged.clean


@given(seed=st.integers(0, 1 << 30))
def test_one_pass_never_contradicts_the_oracle_on_corrupted_traces(
    tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    source = random.Random(seed)
    folder = tmp_path_factory.mktemp("trace")
    rows, run, members = simulated(folder / "made", peers=source.randrange(1, 6), seed=seed, rate=30)
    for _ in range(source.randrange(4)):
        spoil(source, rows)
    found, judged = both(folder / "again", rows, run, members)
    assert found is None or found == judged
    if not judged.clean:
        assert found is None


def spoil(source: random.Random, rows: Rows) -> None:
    """Move, drop or repeat an event of a process, or move a row without changing its meaning."""
    if len(rows) < 2:
        return
    one, other = sorted(source.sample(range(len(rows)), 2))
    match source.randrange(4):
        case 0:  # two events of one process change places
            mine = [row for row in rows if row["process"] == rows[one]["process"]]
            first, second = source.choice(mine), source.choice(mine)
            if {first["kind"], second["kind"]} == {"deliver"}:
                for field in ("origin", "seq"):
                    first[field], second[field] = second[field], first[field]
        case 1:
            if rows[one]["kind"] == "deliver":
                del rows[one]
        case 2:
            if rows[one]["kind"] == "deliver":
                rows.append({**rows[one], "index": 1 + max(row["index"] for row in rows)})
        case 3:
            rows.insert(one, rows.pop(other))


def test_state_grows_with_messages_in_flight(tmp_path: Path) -> None:
    rows, run, members = simulated(tmp_path / "made", peers=6, rate=200, delay="100-300ms")
    found, judged = both(tmp_path / "again", rows, run, members)
    assert found == judged
    assert judged.messages > 300


def test_one_pass_gives_no_verdict_on_unsupported_traces(tmp_path: Path) -> None:
    rows, run, members = simulated(tmp_path / "made")
    files = trace_files(tmp_path / "made")
    assert verdict_if_clean(files, run, members) is not None
    assert verdict_if_clean(files, "another run", members) is None
    assert verdict_if_clean(files, run, {"all": members["all"][:-1]}) is None
    assert verdict_if_clean(files, run, {**members, "more": ["p0"]}) is None
    folder = tmp_path / "addressed"
    folder.mkdir()
    write_parts(folder, [pa.Table.from_pylist(rows, schema=SCHEMA)])
    assert verdict_if_clean(trace_files(folder), run, members) is None


def test_a_large_clean_trace_needs_no_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("antecede.engine_choice.MAX_LOCAL_ROWS", 0)
    monkeypatch.setattr("antecede.audit.run._MANY_ROWS", 0)
    monkeypatch.setattr("antecede.audit.run.events_on_spark", None)
    simulate_to(tmp_path / "t", scenario(protocol="mbcp", peers=4, seconds=1))
    found = audit_path(str(tmp_path / "t"), "auto", 10, None)
    assert (found.verdict.clean, found.engine, found.tally) == (True, "local", None)
    rows = pa.concat_tables(table for file in trace_files(tmp_path / "t") for table in read_batches(file))
    last = max(place for place, kind in enumerate(rows.column("kind").to_pylist()) if kind == "deliver")
    (tmp_path / "u").mkdir()
    write_parts(tmp_path / "u", [pa.concat_tables([rows.slice(0, last), rows.slice(last + 1)])])
    shutil.copytree(tmp_path / "t" / "_meta", tmp_path / "u" / "_meta")
    with pytest.raises(TypeError, match="'NoneType' object is not callable"):
        audit_path(str(tmp_path / "u"), "auto", 10, None)


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    _, run, members = simulated(tmp_path / "made")
    (file,) = trace_files(tmp_path / "made")
    data = bytearray(file.read_bytes())
    data[40:400] = bytes(360)
    file.write_bytes(data)
    with pytest.raises(InputError, match=r"part-00000\.parquet"):
        verdict_if_clean([file], run, members)
