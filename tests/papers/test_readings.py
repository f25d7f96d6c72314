"""Readings as data: joint readings, which one is chosen, and that verdicts come from other seeds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from pyspark.sql import SparkSession

from antecede.papers import reproduce as study
from antecede.papers.paper import Paper, Runs, Scale
from antecede.papers.readings import (
    Agreement,
    Alternative,
    Joint,
    Reading,
    Seeds,
    choose,
    fixed,
    in_words,
    joint_readings,
)
from antecede.papers.scoreboard import ScoreRow, claim, number
from antecede.papers.scoreboard_page import markdown
from antecede.sim.scenario import Scenario, scenario

DELAY = Reading(
    "delay", "how long a packet takes", (Alternative("10ms", "10 ms"), Alternative("20ms", "20 ms"))
)
COUNT = Reading("count", "what is counted", (Alternative("mean", "the mean"), Alternative("max", "the most")))
SEEDS = Seeds((101, 102), (1, 2, 3))


def test_joint_readings_are_all_combinations_with_the_plainest_first() -> None:
    joints = joint_readings([DELAY, fixed("a", "b", "c"), COUNT])
    assert joints[0] == {"delay": "10ms", "count": "mean"}
    assert len(joints) == len({in_words(joint) for joint in joints}) == 4
    assert joint_readings([fixed("a", "b", "c")]) == [{}]


def test_agreement_counts_means_and_claims() -> None:
    rows = [
        number("p", "matches", 100.0, [109.0, 109.0]),
        number("p", "close", 100.0, [80.0, 80.0]),
        number("p", "differs", 100.0, [50.0, 50.0]),
        number("p", "noisy", 100.0, [1.0, 199.0]),
        number("p", "pending", 100.0, []),
        claim("p", "holds", True, "", 1),
        claim("p", "fails", False, "", 1),
        claim("p", "undecided, as claimed by the means", "likely", "", 1),
        claim("p", "undecided, and not as claimed", "unlikely", "", 1),
        claim("p", "ours", True, "", 1, own=True),
    ]
    assert Agreement.of(rows) == Agreement(close=5, matching=4, rows=8)


def test_the_best_joint_reading_is_chosen_for_all_rows_at_once() -> None:
    one, other, third = joint_readings([DELAY, COUNT])[:3]
    scored = [(one, _rows(120, 50)), (other, _rows(120, 80)), (third, _rows(100, 120))]
    choice = choose(scored, SEEDS)
    assert choice.joint == third
    assert [joint for joint, _ in choice.scored] == [third, other, one]
    assert choose([(one, _rows(80, 80)), (other, _rows(120, 120))], SEEDS).joint == one


def _rows(*measured: float) -> list[ScoreRow]:
    return [number("p", f"row {place}", 100.0, [each]) for place, each in enumerate(measured)]


def test_a_disagreeing_row_lists_the_results_of_all_readings() -> None:
    one, other = joint_readings([DELAY])
    says = claim("p", "says", False, "", 1)
    choice = choose([(one, [*_rows(120, 50), says]), (other, [*_rows(130, 50), says])], SEEDS)
    differs = number("p", "row 0", 100.0, [130.0, 130.0], "because")
    found = choice.explain(differs)
    assert found.why == "because"
    on = "On seeds 101 and 102 it"
    assert found.tried == f"{on} is within 25 % in 1 of 2 joint readings (120 to 130)."
    alike = number("p", "row 1", 100.0, [1.0, 500.0])
    assert choice.explain(alike).tried == f"{on} is within 25 % in 0 of 2 joint readings (50 in all)."
    assert choice.explain(says).tried == f"{on} holds in 0 of 2 joint readings."
    for row in (number("p", "row 0", 100.0, [100.0, 100.0]), number("p", "row 0", 100.0, [])):
        assert choice.explain(row) == row


def _grid(scale: Scale, joint: Joint, seeds: Sequence[int]) -> list[Scenario]:
    return [
        scenario(protocol="mbcp", peers=3, seconds=0.2, rate=20, delay=joint["delay"], seed=seed)
        for seed in seeds
    ]


def _score(runs: Runs, joint: Joint) -> list[ScoreRow]:
    seeds = ", ".join(str(run.scenario.seed) for run in runs.finished)
    delays = [run.value("latency_mean_ns") / 1e6 for run in runs.finished]
    return [
        number("900", "delay, ms", 20.0, delays),
        claim("900", "a delay is never long", max(delays, default=0) < 1e3, f"seeds {seeds}", len(runs)),
    ]


def test_a_reproduction_chooses_on_some_seeds_and_judges_on_others(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del spark  # started once for all tests
    small = Paper("900", "A study", [DELAY], lambda _: SEEDS, _grid, _score, lambda *_: [])
    monkeypatch.setattr(study, "PAPERS", {"900": small})
    found, outcome = study.reproduce(tmp_path, ["900"], "full")
    assert outcome.fine
    assert found.choices["900"].joint == {"delay": "20ms"}
    assert [joint["delay"] for joint, _ in found.choices["900"].scored] == ["20ms", "10ms"]
    by_name = {row.quantity: row for row in found.scoreboard}
    assert by_name["delay, ms"].verdict == "matches"
    assert by_name["a delay is never long"].measured == "seeds 1, 2, 3"
    text = markdown(found, "today")
    assert "Judged by delay: 20ms: the best of 2 joint readings on seeds 101 and 102" in text
    assert "verdicts are from seeds 1 to 3" in text
    assert "| delay: 10ms | 1 of 2 | 1 |" in text


def test_finished_runs_are_scored_and_rows_without_runs_pending(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del spark
    one, other = (
        Paper(name, "A study", [DELAY], lambda _: SEEDS, grid, _score, lambda *_: [])
        for name, grid in (("900", _later_grid), ("901", _grid))
    )
    monkeypatch.setattr(study, "PAPERS", {"900": one, "901": other})
    study.reproduce(tmp_path, ["901"], "full")
    found, outcome = study.reproduce(tmp_path, ["900", "901"], "full", finished_only=True)
    assert [row.verdict for row in found.scoreboard if row.quantity == "delay, ms"] == ["pending", "matches"]
    assert "7 runs" in found.audited
    assert outcome.fine


def test_every_run_of_a_reproduction_is_audited_however_large(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del spark
    monkeypatch.setattr(study, "_SMALL", 0)
    small = Paper("900", "A study", [], lambda _: SEEDS, _plain_grid, _score, lambda *_: [])
    monkeypatch.setattr(study, "PAPERS", {"900": small})
    found, outcome = study.reproduce(tmp_path, ["900"], "full")
    assert outcome.fine
    deliveries = sum(outcome.summary.column("deliveries").to_pylist())
    assert f"3 runs, {deliveries:,} deliveries audited on Spark: every one after its causes." in found.audited
    assert list((tmp_path / "runs").rglob("*.parquet")) == []


def _later_grid(scale: Scale, joint: Joint, seeds: Sequence[int]) -> list[Scenario]:
    return [msgspec.structs.replace(each, peers=4) for each in _grid(scale, joint, seeds)]


def _plain_grid(scale: Scale, joint: Joint, seeds: Sequence[int]) -> list[Scenario]:
    return _grid(scale, {"delay": "10ms"}, seeds)
