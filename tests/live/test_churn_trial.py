"""Churn trials: real processes whose group changes, and a judge that finds what is wrong."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from antecede.audit.run import audit_path
from antecede.live.trial.churn import ChurnPlan, run
from antecede.live.trial.churn_judge import KeptFile, judge
from antecede.live.trial.kept_state import KeptState, KnownMessages


def test_a_group_that_changes_loses_nothing_and_its_trace_is_clean(tmp_path: Path) -> None:
    plan = ChurnPlan(size=5, rate=6, seconds=6, messages=200, seed=5)
    result = asyncio.run(run(plan, tmp_path / "run", tmp_path / "trace", lambda *_: None))
    assert result.faults == []
    assert result.changes > 0
    assert result.verdict.accepted <= result.verdict.messages + result.verdict.lost_with_disks
    assert audit_path(str(tmp_path / "trace"), "local", 10, None).verdict.clean


def write(path: Path, *lines: list[Any]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def faults(*files: KeptFile) -> list[str]:
    return judge(list(files)).faults


def test_the_judge_finds_what_was_delivered_twice_early_or_never(tmp_path: Path) -> None:
    a = write(
        tmp_path / "a",
        ["intend", "a.0:1", []],
        ["accept", "a.0:1"],
        ["deliver", "a.0:1", [], False],
        ["intend", "a.0:2", ["a.0:1"]],
        ["accept", "a.0:2"],
        ["deliver", "a.0:2", ["a.0:1"], False],
    )
    good = KeptFile(a, "a.0", is_member=True)
    assert faults(good) == []
    one, two = ["deliver", "a.0:1", [], False], ["deliver", "a.0:2", ["a.0:1"], False]
    again = ["deliver", "a.0:2", ["a.0:1"], True]

    def other(*lines: list[Any]) -> list[str]:
        return faults(good, KeptFile(write(tmp_path / "b", *lines), "b.0", is_member=True))

    assert other(one, two, again) == []
    assert "given a.0:2 twice" in other(one, two, two)[0]
    assert "given a.0:1 twice" in other(one, two, ["deliver", "a.0:1", [], True])[0]
    assert "before its cause a.0:1" in other(two, one)[0]
    assert "b.0 lacks a.0:2" in other(one)[0]
    assert "other content" in other(one, ["deliver", "a.0:2", [], False])[0]
    snapshot = {"have": {"a.0": [[2, 2]]}, "frontier": ["a.0:2"]}
    assert "not its cause a.0:1" in other(["restore", snapshot], one)[0]
    assert (
        "a.0:1 was accepted and is lost"
        in faults(KeptFile(a, "a.0"), KeptFile(write(tmp_path / "b"), "b.0", is_member=True))[0]
    )
    assert (
        judge(
            [KeptFile(a, "a.0", is_lost=True), KeptFile(write(tmp_path / "b"), "b.0", is_member=True)]
        ).lost_with_disks
        == 2
    )


def test_an_application_keeps_what_it_was_given_and_a_line_that_was_cut_off_counts_as_none(
    tmp_path: Path,
) -> None:
    kept = KeptState(tmp_path / "kept", "a.0")
    kept.load(json.dumps({"have": {"b.0": [[1, 3]]}, "frontier": ["b.0:3"]}).encode())
    identifier, causes = kept.intend()
    assert (identifier, causes) == ("a.0:1", ["b.0:3"])
    kept.deliver(identifier, causes, redelivered=False)
    with (tmp_path / "kept").open("ab") as file:
        file.write(b'["deliver", "b.0:4"')
    again = KeptState(tmp_path / "kept", "a.0")
    assert again.messages.ranges() == {"a.0": [[1, 1]], "b.0": [[1, 3]]}
    assert again.intend() == ("a.0:2", ["a.0:1"])
    assert KnownMessages({"a": [[2, 3], [1, 1]]}).ranges() == {"a": [[1, 3]]}
