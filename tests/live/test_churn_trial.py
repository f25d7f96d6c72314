"""Churn trials: real processes in a changing group, and a judge that finds violations."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from antecede.audit.run import audit_path
from antecede.live.changing.protocols import WITH_PHONES
from antecede.live.trial.churn import ChurnPlan, run
from antecede.live.trial.churn_judge import KeptFile, judge
from antecede.live.trial.churn_phones import PhoneChurnTrial
from antecede.live.trial.kept_state import KeptState, KnownMessages
from antecede.live.trial.networks import remove_abandoned


def test_a_group_that_changes_loses_nothing_and_its_trace_is_clean(tmp_path: Path) -> None:
    plan = ChurnPlan(size=5, rate=6, seconds=6, messages=200, seed=5)
    result = asyncio.run(run(plan, tmp_path / "run", tmp_path / "trace", lambda *_: None))
    assert result.faults == []
    assert result.changes > 0
    assert result.verdict.accepted <= result.verdict.messages + result.verdict.lost_with_disks
    assert audit_path(str(tmp_path / "trace"), "local", 10, None).verdict.clean


@pytest.mark.parametrize("protocol", sorted(WITH_PHONES))
def test_a_changing_group_with_phones_loses_nothing_and_its_trace_is_clean(
    tmp_path: Path, protocol: str
) -> None:
    """They permanently lose super peers or gateways, move, are killed, and lose their disks."""
    plan = ChurnPlan(size=5, phones=4, protocol=protocol, rate=6, seconds=6, messages=200, seed=6)
    result = asyncio.run(run(plan, tmp_path / "run", None, lambda *_: None, PhoneChurnTrial))
    assert result.faults == []
    assert result.members > plan.size
    behind = sum(count for kind, count in result.steps.items() if kind.endswith("behind"))
    assert 0 < behind < sum(result.steps.values())


@pytest.mark.skipif(
    shutil.which("ip") is None or os.geteuid() != 0, reason="network namespaces need ip and root"
)
def test_network_namespaces_of_a_killed_trial_are_removed_by_the_next() -> None:
    with subprocess.Popen([sys.executable, "-c", "pass"]) as ended:
        pass
    names = [f"antecede{process}-test" for process in (ended.pid, os.getpid())]
    for name in names:
        subprocess.run(["ip", "netns", "add", name], check=True)
    try:
        remove_abandoned()
        listed = subprocess.run(["ip", "netns", "list"], check=True, capture_output=True, text=True).stdout
        assert [name in listed.split() for name in names] == [False, True]
    finally:
        subprocess.run(["ip", "netns", "del", names[1]], check=True)


def write(path: Path, *lines: list[Any]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def faults(*files: KeptFile) -> list[str]:
    return judge(list(files)).faults


def test_the_judge_detects_duplicate_early_and_missing_deliveries(tmp_path: Path) -> None:
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


def test_the_application_log_restores_its_state_and_ignores_a_truncated_line(
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


def grandchildren(pid: int) -> list[str]:
    """The processes that those of a process have started."""

    def children(of: str) -> list[str]:
        with contextlib.suppress(OSError):
            return [
                each
                for file in Path(f"/proc/{of}/task").glob("*/children")
                for each in file.read_text().split()
            ]
        return []

    return [each for child in children(str(pid)) for each in children(child)]


def test_ctrl_c_ends_all_its_processes_without_a_traceback(tmp_path: Path) -> None:
    """A terminal sends the signal to every process of the command."""
    command = [sys.executable, "-m", "antecede", "cluster", "5", "--churn", "2", "--seconds", "60s"]
    with (tmp_path / "said").open("wb") as said:
        process = subprocess.Popen(
            command,
            stdout=said,
            stderr=said,
            start_new_session=True,
            env={**os.environ, "TMPDIR": str(tmp_path)},
        )
        try:
            end = time.monotonic() + 60
            while len(grandchildren(process.pid)) < 5:
                assert time.monotonic() < end, "no member has begun"
                time.sleep(0.05)
            os.killpg(process.pid, signal.SIGINT)
            assert process.wait(60) == 130
            with pytest.raises(ProcessLookupError):
                while time.monotonic() < end:
                    os.killpg(process.pid, 0)
                    time.sleep(0.05)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    assert "Traceback" not in (tmp_path / "said").read_text()
