"""The demo: a small one end to end, and each of its verdicts failing when it should."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest
import typer
from pyspark.sql import SparkSession

from antecede.audit.core import Finding, judge_run
from antecede.causality import Verdict
from antecede.cli.demo import finish, guide
from antecede.demo.plan import PLAN, SMALL
from antecede.demo.planted import FoundFault, PlantedFault, plant
from antecede.demo.run import MARKER, DemoResult, LiveRun, SystemRun, SystemRuns, open_demo
from antecede.demo.stream import StreamedRow, check_order, messages_of
from antecede.errors import InputError
from antecede.live.trial.cluster import ClusterResult, TrialMember
from antecede.sim.engines import choose
from antecede.sim.record import simulate_to
from antecede.sweep.digests import VERDICT, VERDICT_DIGEST, seal_run
from antecede.trace.reader import read_trace

ROWS = [StreamedRow("a", []), StreamedRow("b", ["a"]), StreamedRow("c", ["b"])]


def emitted(*names: str) -> pa.Table:
    causes = {row.message: row.causes for row in ROWS}
    return pa.table({"id": names, "causes": [causes[name] for name in names], "held_ms": [0] * len(names)})


@pytest.mark.parametrize(
    ("names", "wrong"),
    [
        ("abc", ""),
        ("acb", "the stream is not in order: c came out before its cause b"),
        ("ab", "the stream is not in order: c did not come out"),
        ("abcc", "the stream is not in order: c came out 2 times"),
    ],
)
def test_the_demo_fails_if_the_stream_is_out_of_order(names: str, wrong: str) -> None:
    assert check_order(ROWS[::-1], emitted(*names), 1).wrong == wrong


def test_the_demo_fails_if_the_stream_already_arrives_in_order() -> None:
    assert check_order(ROWS, emitted(*"abc"), 1).wrong == "no row of the stream arrived before its cause"


def found(violations: int = 0, finding: Finding | None = None) -> FoundFault:
    return FoundFault(PlantedFault("p1", "p2:1", "p3:1"), 9, violations, finding, "spark", "", "")


def test_the_planted_fault_alone_must_be_found(tmp_path: Path) -> None:
    simulate_to(tmp_path / "clean", SMALL.flat.setting)
    planted = plant(tmp_path / "clean", messages_of(tmp_path / "clean"), tmp_path / "planted")
    rows = read_trace(tmp_path / "planted")
    assert rows.num_rows == read_trace(tmp_path / "clean").num_rows
    audit = judge_run("r", rows, {})
    (finding,) = audit.findings
    assert PlantedFault(finding.process, finding.cause, finding.effect) == planted
    assert audit.verdict.fifo_violations == 0
    assert msgspec.structs.replace(found(1, finding), planted=planted).wrong == ""
    assert found().wrong == "the audit did not find the planted fault"
    assert found(2, finding).wrong == "the audit found 2 violations where one was planted"
    assert found(1, finding).wrong.startswith("the audit found another fault than the planted one")


def live(kills: int = 1, faults: tuple[str, ...] = (), audited: bool = True) -> LiveRun:
    outcome = ClusterResult([TrialMember("peer0", "peer", 1, 1, 0, kills)], list(faults), 1.0, kills, 0, 10)
    return LiveRun(outcome, Verdict.no_faults(1, 1, 1) if audited else None)


def test_the_demo_fails_if_live_processes_lose_messages_or_are_not_killed() -> None:
    assert live().wrong == ""
    assert live(kills=0).wrong == "no live process was killed"
    assert live(faults=("peer0 never delivered peer1:3",)).wrong.endswith("peer0 never delivered peer1:3")
    assert live(audited=False).wrong == "the trace of the live processes is not clean"


def test_the_demo_fails_if_a_system_fails_or_is_not_judged() -> None:
    def runs(violations: int | None, failed: dict[str, str] | None = None) -> SystemRuns:
        run = SystemRun("001", "t", "mbcp", 8, "event", 10, 70, 8.0, 0.1, 0.2, violations)
        return SystemRuns([run], failed or {}, 0)

    assert runs(0).wrong == ""
    assert runs(3).wrong == "the audit found violations in the traces of mbcp"
    assert runs(None).wrong == "the trace of mbcp was not judged"
    assert runs(0, {"k": "full"}).wrong == "k failed: full"


def test_two_systems_are_large_enough_for_compiled_engines() -> None:
    engines = [choose(system.setting, observed=True).engine for system in PLAN.systems]
    assert engines == ["reference", "event", "event", "reference", "reference"]
    assert [system.paper for system in PLAN.systems] == ["000", "001", "002", "003", "004"]


def test_a_folder_with_other_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "stream").mkdir()
    with pytest.raises(InputError, match="has other files in it"), open_demo(tmp_path, SMALL, print):
        pass
    assert [each.name for each in tmp_path.iterdir()] == ["stream"]


@pytest.fixture(scope="module")
def demo(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a small demo."""
    del spark  # the session that is used
    folder = tmp_path_factory.mktemp("demo") / "here"
    with pytest.raises(typer.Exit) as ended:
        guide(folder, SMALL, as_json=True)
    assert ended.value.exit_code == 0
    return folder


def read_result(folder: Path) -> DemoResult:
    written = json.loads((folder / "demo.json").read_bytes())
    assert written["ok"]
    written["planted"]["picture"] = ""
    return msgspec.convert(written, DemoResult)


def test_a_demo_leaves_a_page_and_figures_in_its_folder(demo: Path) -> None:
    names = {MARKER, "demo.html", "demo.json", "live", "planted", "stream", "systems"}
    assert {each.name for each in demo.iterdir()} == names
    assert not (demo / "live" / "members").exists()
    result = read_result(demo)
    assert [run.violations for run in result.systems.runs] == [0] * 5
    assert (result.stream.ordered, result.planted.violations) == (result.stream.rows, 1)
    assert result.live.trial.kills >= 1
    html = (demo / "demo.html").read_text()
    sections = {"systems", "stream", "planted", "live", "next"}
    assert set(re.findall(r'href="#([^"]+)"', html)) == sections
    assert set(re.findall(r'section id="([^"]+)"', html)) == sections
    assert html.count('class="verdict holds"') == 5 + 3
    assert "Application engineers" in html
    assert result.planted.planted.effect in html


def test_a_repeated_demo_keeps_its_runs_and_fails_if_one_is_not_in_order(
    demo: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    again = tmp_path / "again"
    shutil.copytree(demo, again)
    run = again / "systems" / "runs" / SMALL.flat.setting.key()
    shutil.copy(again / "planted" / "part-00000.parquet", run / "part-00000.parquet")
    for name in (VERDICT, VERDICT_DIGEST):
        (run / name).unlink()
    seal_run(run, run.name)
    with open_demo(again, SMALL, lambda *_: None) as steps:
        systems = steps.simulate(lambda *_: None)
    assert systems.resumed == 5
    result = msgspec.structs.replace(read_result(demo), systems=systems)
    with pytest.raises(typer.Exit) as ended:
        finish(again, result, [], as_json=False)
    assert ended.value.exit_code == 1
    assert "demo: the audit found violations in the traces of mbcp" in capsys.readouterr().err
    assert "Not as it should be: the audit found violations" in (again / "demo.html").read_text()
