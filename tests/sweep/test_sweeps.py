"""Sweeps: one run a task, finished runs kept, failed runs reported."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path
from statistics import fmean, stdev
from typing import ClassVar

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from antecede.causality import Verdict
from antecede.errors import InputError
from antecede.protocols.base import Effects
from antecede.protocols.flat import StampedPacket
from antecede.protocols.mbcp import Mbcp
from antecede.protocols.timestamp import TimestampDiff
from antecede.sim.scenario import Scenario
from antecede.sweep.grid import expand
from antecede.sweep.on_spark import Sweep, _run
from antecede.sweep.results import RESULTS, SUMMARY, write_results
from antecede.sweep.run import run_study, write_report


class FailsInLargeGroups(Mbcp):
    """A protocol with a fault of its own."""

    name: ClassVar[str] = "fails-in-large-groups"

    def broadcast(self, payload: bytes, now: int, group: str | None = None) -> Effects:
        if self.size > 3:
            raise RuntimeError("more than I can bear")
        return super().broadcast(payload, now, group)


class NamesNoCauses(TimestampDiff):
    """Deliveries are in the order of each sender, and out of causal order."""

    name: ClassVar[str] = "names-no-causes"

    def on_delivered(self, packet: StampedPacket) -> None:
        pass


def grid(**more: list[object]) -> list[Scenario]:
    return expand({"seconds": 0.4}, {"protocol": ["mbcp", "timestamp"], "peers": [2, 4], **more})


def digests(folder: Path) -> dict[str, str]:
    return {
        str(file.relative_to(folder)): sha256(file.read_bytes()).hexdigest()
        for file in folder.rglob("*")
        if file.is_file() and file.name not in ("_run.json", "_digest.json", "_verdict.sha256")
    }


def test_a_sweep_runs_audits_and_resumes(spark: SparkSession, tmp_path: Path) -> None:
    sweep = Sweep(tmp_path, grid(seed=[1, 2]))
    seen: list[int] = []
    assert sweep.simulate(spark, seen.append) == {}
    assert seen[-1] == 8
    sweep.judge(spark)
    runs = list(sweep.runs())
    assert len(runs) == 8
    assert all(verdict is not None and verdict.clean for _, _, verdict in runs)

    summary = write_results(sweep)
    assert summary.num_rows == 4
    assert summary.column("runs").to_pylist() == [2, 2, 2, 2]
    assert pq.read_table(tmp_path / RESULTS).num_rows == 8
    assert pq.read_table(tmp_path / SUMMARY).equals(summary)

    before = digests(tmp_path)
    lost = sorted(sweep.scenarios)[3]
    (tmp_path / "runs" / lost / "_run.json").unlink()
    kept = {
        key: (tmp_path / "runs" / key / "_run.json").stat().st_mtime_ns
        for key in sweep.scenarios
        if key != lost
    }
    assert sweep.unfinished() == [lost]
    assert sweep.simulate(spark) == {}
    assert {key: (tmp_path / "runs" / key / "_run.json").stat().st_mtime_ns for key in kept} == kept
    sweep.judge(spark)
    write_results(sweep)
    assert digests(tmp_path) == before


def test_a_failed_run_is_reported_while_the_others_finish(spark: SparkSession, tmp_path: Path) -> None:
    name = f"{__name__}:FailsInLargeGroups"
    sweep = Sweep(tmp_path, expand({"seconds": 0.3}, {"protocol": [name, "mbcp"], "peers": [2, 5]}))
    failed = sweep.simulate(spark)
    (key,) = failed
    assert failed[key].startswith(
        f"protocol {name} raised RuntimeError: more than I can bear (test_sweeps.py"
    )
    assert sweep.unfinished() == [key]
    assert len(list(sweep.runs())) == 3


def test_metrics_only_writes_no_trace_and_a_later_sweep_does(spark: SparkSession, tmp_path: Path) -> None:
    Sweep(tmp_path, grid(), traced=lambda _: False).simulate(spark)
    assert list(tmp_path.rglob("*.parquet")) == []
    traced = Sweep(tmp_path, grid())
    assert len(traced.unfinished()) == 4
    assert traced.simulate(spark) == {}
    assert len(list(tmp_path.rglob("*.parquet"))) == 4
    assert traced.unfinished() == []


def test_untraced_runs_are_audited_while_they_run_and_a_faulty_one_leaves_its_trace(
    spark: SparkSession, tmp_path: Path
) -> None:
    faulty = expand(
        {"seconds": 0.4, "protocol": f"{__name__}:NamesNoCauses", "delay": "1-90ms"}, {"peers": [5]}
    )
    sweep = Sweep(tmp_path, [*grid(), *faulty], traced=lambda _: False, audit_untraced=True)
    assert sweep.simulate(spark) == {}
    assert sweep.unfinished() == []
    (key,) = sweep.unjudged()
    assert key == faulty[0].key()
    assert {file.parent.name for file in tmp_path.rglob("*.parquet")} == {key}
    assert sweep.judge(spark) == {}
    traced = Sweep(tmp_path / "traced", [*grid(), *faulty])
    assert traced.simulate(spark) == traced.judge(spark) == {}
    verdicts = {key: verdict for key, _, verdict in sweep.runs()}
    assert verdicts == {key: verdict for key, _, verdict in traced.runs()}
    assert {each for each, verdict in verdicts.items() if verdict and not verdict.clean} == {key}
    assert sweep.discard_damaged() == {}


def test_the_report_draws_a_violation_and_names_its_runs(spark: SparkSession, tmp_path: Path) -> None:
    kind = f"{__name__}:NamesNoCauses"
    scenarios = expand({"seconds": 0.4, "protocol": kind, "delay": "1-90ms"}, {"peers": [5]})
    sweep = Sweep(tmp_path, scenarios)
    assert sweep.simulate(spark) == sweep.judge(spark) == {}
    write_results(sweep)
    (tmp_path / "grid.toml").write_text("[run]\nseconds = 0.4  # <as said>\n")
    html = write_report(tmp_path, "A sweep").read_text()
    named = f"{kind} with 5 peers and seed 1 (runs/{scenarios[0].key()})"
    assert f"<p>The first violation in the smallest run that has any, {named}: p" in html
    assert '<svg class="violation"' in html
    assert "seconds = 0.4  # &lt;as said&gt;" in html
    (row,) = pq.read_table(tmp_path / SUMMARY).to_pylist()
    assert f"<td>{row['packets'] / row['messages']:.1f}</td>" in html
    assert f"<td>{row['latency_mean_ns'] / 1e6:.1f} ms</td>" in html


def test_a_lost_verdict_of_an_untraced_run_is_recomputed(tmp_path: Path) -> None:
    (setting,) = expand({"seconds": 0.4}, {"protocol": ["mbcp"], "peers": [4]})
    sweep = Sweep(tmp_path, [setting], traced=lambda _: False, audit_untraced=True)
    text = msgspec.json.encode(setting).decode()
    assert _run(tmp_path / "runs", text, "verdict", False)["error"] is None
    assert sweep.unfinished() == []
    (tmp_path / "runs" / setting.key() / "_verdict.json").write_text('{"deliveries": 1}')
    assert list(sweep.discard_damaged()) == [setting.key()]
    assert sweep.unfinished() == [setting.key()]


def test_runs_that_one_pass_cannot_judge_leave_a_trace(tmp_path: Path) -> None:
    groups = {"a": [0, 1, 2], "b": [2, 3]}
    settings = expand({"seconds": 0.4, "protocol": "multigroup", "groups": groups}, {"peers": [4]})
    sweep = Sweep(tmp_path, [*settings, *grid()], traced=lambda _: False, audit_untraced=True)
    assert list(sweep.kept.values()) == ["trace", *["verdict"] * 4]


def test_the_summary_has_the_spread_over_seeds(spark: SparkSession, tmp_path: Path) -> None:
    seeds = expand({"seconds": 0.4, "protocol": "mbcp"}, {"peers": [4], "seed": [1, 2, 3]})
    alone = expand({"seconds": 0.4, "protocol": "mbcp"}, {"peers": [3], "seed": [1]})
    sweep = Sweep(tmp_path, [*seeds, *alone], traced=lambda _: False)
    sweep.simulate(spark)
    three, one = sorted(write_results(sweep).to_pylist(), key=lambda row: -row["runs"])
    assert (three["runs"], one["runs"]) == (3, 1)
    for name in ("control_bytes_mean", "paper_bytes_mean", "latency_mean_ns", "hold_mean_ns"):
        values = [getattr(run.metrics, name) for _, run, _ in sweep.runs() if run.scenario.peers == 4]
        assert three[name] == pytest.approx(fmean(values))
        assert three[f"{name}_sd"] == pytest.approx(stdev(values))
        assert one[f"{name}_sd"] is None


def test_summary_rows_are_labelled_by_the_fields_that_vary(spark: SparkSession, tmp_path: Path) -> None:
    sweep = Sweep(tmp_path, grid(delay=["5ms", "1-90ms"]), traced=lambda _: False)
    sweep.simulate(spark)
    summary = write_results(sweep)
    assert summary.column_names[:4] == ["protocol", "peers", "delay", "runs"]
    assert summary.num_rows == 8
    assert summary.column("causal_violations").null_count == 8


def test_former_names_of_counts_are_written_and_read(spark: SparkSession, tmp_path: Path) -> None:
    """Deprecated, for one release: tables and _verdict.json have them, and older verdicts stay readable."""
    sweep = Sweep(tmp_path, grid())
    sweep.simulate(spark)
    sweep.judge(spark)
    summary = write_results(sweep)
    for old, new in Verdict.DEPRECATED.items():
        assert summary.column(old) == summary.column(new)
    (key, _, verdict), *_ = sweep.runs()
    file = sweep.run_folder(key) / "_verdict.json"
    counts = msgspec.json.decode(file.read_bytes())
    for old, new in Verdict.DEPRECATED.items():
        assert counts.pop(new) == counts[old]
    file.write_bytes(msgspec.json.encode(counts))
    assert next(sweep.runs())[2] == verdict
    file.write_bytes(b"{}")
    with pytest.raises(InputError, match="no count"):
        list(sweep.runs())


def test_a_sweep_without_finished_runs_has_no_tables(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no finished run"):
        write_results(Sweep(tmp_path, grid()))


def test_a_run_without_events_is_judged_once(spark: SparkSession, tmp_path: Path) -> None:
    sweep = Sweep(tmp_path, expand({"seconds": 0}, {"protocol": ["mbcp"], "peers": [3]}))
    assert sweep.simulate(spark) == {}
    sweep.judge(spark)
    assert sweep.unjudged() == []
    ((_, _, verdict),) = sweep.runs()
    assert verdict is not None
    assert (verdict.processes, verdict.messages, verdict.clean) == (3, 0, True)


@pytest.mark.parametrize("name", ["_run.json", "_verdict.json"])
def test_a_damaged_result_is_refused_by_name(spark: SparkSession, tmp_path: Path, name: str) -> None:
    sweep = Sweep(tmp_path, expand({"seconds": 0.1}, {"protocol": ["mbcp"], "peers": [2]}))
    sweep.simulate(spark)
    sweep.judge(spark)
    (file,) = tmp_path.rglob(name)
    for text in ("", "{", "{}"):
        file.write_text(text)
        with pytest.raises(InputError, match=f"{name} is damaged"):
            list(sweep.runs())


def test_a_sweep_over_faults_has_its_tables(spark: SparkSession, tmp_path: Path) -> None:
    faults: list[object] = [[], ["duplicate:10%:50ms"], ["duplicate:10%:50ms", "reorder:5%:90ms"]]
    sweep = Sweep(tmp_path, grid(faults=faults), traced=lambda _: False)
    sweep.simulate(spark)
    summary = write_results(sweep)
    assert summary.column_names[2] == "faults"
    assert summary.num_rows == 12


def test_a_run_that_cannot_be_audited_does_not_affect_the_others(spark: SparkSession, tmp_path: Path) -> None:
    sweep = Sweep(tmp_path, grid())
    sweep.simulate(spark)
    spoilt = sorted(sweep.scenarios)[0]
    part = tmp_path / "runs" / spoilt / "part-00000.parquet"
    table = pq.read_table(part)
    pq.write_table(pa.concat_tables([table, table.slice(0, 1)]), part)
    errors = sweep.judge(spark)
    assert list(errors) == [spoilt]
    assert "two events with index" in errors[spoilt]
    assert sweep.unjudged() == [spoilt]
    assert sum(verdict is not None for _, _, verdict in sweep.runs()) == 3


def test_concurrent_attempts_at_one_run_do_not_interfere(tmp_path: Path) -> None:
    (setting,) = expand({"seconds": 1}, {"protocol": ["mbcp"], "peers": [8]})
    text = msgspec.json.encode(setting).decode()
    with ThreadPoolExecutor(4) as pool:
        outcomes = list(pool.map(lambda _: _run(tmp_path, text, "trace", False), range(8)))
    assert [outcome["error"] for outcome in outcomes] == [None] * 8
    assert [folder.name for folder in tmp_path.iterdir()] == [setting.key()]
    assert sorted(file.name for file in (tmp_path / setting.key()).iterdir()) == [
        "_digest.json",
        "_meta",
        "_run.json",
        "part-00000.parquet",
    ]


def flip(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)


def test_a_modified_run_is_executed_again(spark: SparkSession, tmp_path: Path) -> None:
    run_study(tmp_path / "out", grid())
    keys = sorted(folder.name for folder in (tmp_path / "out" / "runs").iterdir())
    whole = digests(tmp_path / "out" / "runs")
    runs = {key: tmp_path / "out" / "runs" / key for key in keys}
    part = runs[keys[0]] / "part-00000.parquet"
    part.write_bytes(part.read_bytes()[:100])
    flip(runs[keys[1]] / "_run.json")
    shutil.rmtree(runs[keys[2]])
    shutil.copytree(runs[keys[3]], runs[keys[2]])
    flip(runs[keys[3]] / "_verdict.json")

    again = run_study(tmp_path / "out", grid())
    assert again.repeated == {
        keys[0]: "part-00000.parquet is not as the run left it",
        keys[1]: "_run.json is not as the run left it",
        keys[2]: "it is another run",
        keys[3]: "_verdict.json is not as the audit left it",
    }
    assert again.skipped == 1
    assert digests(tmp_path / "out" / "runs") == whole
    once_more = run_study(tmp_path / "out", grid())
    assert (once_more.repeated, once_more.skipped) == ({}, 4)


def test_a_foreign_part_in_a_run_is_noticed(spark: SparkSession, tmp_path: Path) -> None:
    sweep = Sweep(tmp_path, grid())
    sweep.simulate(spark)
    first, second, *_ = sorted(sweep.scenarios)
    shutil.copy(
        sweep.run_folder(first) / "part-00000.parquet", sweep.run_folder(second) / "part-00001.parquet"
    )
    (sweep.run_folder(first) / "_digest.json").unlink()
    assert sweep.discard_damaged() == {
        first: "it has no _digest.json",
        second: "part-00001.parquet does not belong to it",
    }
    assert sorted(sweep.unfinished()) == [first, second]
