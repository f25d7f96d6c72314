"""Rings of groups that overlap, as real processes with faults, and a judge that finds what is wrong."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from antecede.audit.run import audit_path
from antecede.errors import InputError
from antecede.live.trial.ring import RingPlan, RingSetup, is_complete, ring, run, write_trace
from antecede.live.trial.ring_judge import judge
from antecede.live.trial.ring_log import read_lines
from antecede.live.trial.ring_processes import RingProcess


def test_a_ring_of_groups_survives_killed_processes(tmp_path: Path) -> None:
    plan = RingPlan(size=4, groups=3, messages=600, seconds=6, kills=4, sync=False, patience=120)
    result, record = asyncio.run(run(plan, tmp_path / "ring", lambda *_: None))
    assert result.faults == []
    assert result.verdict is not None
    assert result.verdict.clean
    assert result.kills > 0
    assert result.verdict.messages >= 600 - result.kills
    assert record is not None
    write_trace(record, tmp_path / "trace")
    audited = audit_path(str(tmp_path / "trace"), "local", 10, None)
    assert audited.verdict.clean
    assert audited.verdict.deliveries == result.verdict.deliveries


def test_a_ring_of_groups_survives_churn_and_broken_connections(tmp_path: Path) -> None:
    """They leave and join again, are removed and return, are stopped, are killed, and lose their disks."""
    faults = {"churn": 3.0, "cut_every": "1500ms", "kill_every": 3.0, "sync": False, "patience": 120.0}
    plan = RingPlan(size=6, messages=180, seconds=8, seed=12, **faults)  # type: ignore[arg-type]
    result, record = asyncio.run(run(plan, tmp_path, lambda *_: None))
    assert result.faults == []
    assert record is None
    assert result.judged is not None
    assert result.judged.restored > 0
    assert result.judged.messages >= result.judged.accepted - result.judged.lost_with_disks > 150
    assert sum(result.steps.values()) > 2
    assert result.cuts > 0


def faults(folder: Path, *logs: str) -> list[str]:
    """What the judge finds, by the logs of `a` and `b`, which are in the groups g and h. Every line of a text
    is one of a log, without its time."""
    found = []
    for name, text in zip("ab", logs, strict=True):
        lines = [f"begin {name}.0 -", "joined - g", "joined - h", *filter(None, text.split("; "))]
        words = [line.split(" ", 3) for line in lines]
        path = folder / name
        path.write_text("".join(" ".join([*each[:3], "1", *each[3:]]) + "\n" for each in words))
        found.append(read_lines(path)[0])
    return judge(found).faults


SEND = "; ".join(
    f"send a.0/{group}:1 {group}; accepted a.0/{group}:1 {group}; deliver a.0/{group}:1 {group}"
    for group in "gh"
)


def test_the_ring_judge_detects_duplicate_early_and_missing_deliveries(tmp_path: Path) -> None:
    cause, effect = "deliver a.0/g:1 g", "deliver a.0/h:1 h"
    assert faults(tmp_path, SEND, f"{cause}; {effect}") == []
    assert (
        faults(tmp_path, SEND, f"{cause}; begin b.0 -; joined - g; joined - h; again a.0/g:1 g; {effect}")
        == []
    )
    assert faults(tmp_path, SEND, f"{effect}; {cause}") == ["b.0 was given a.0/h:1 before its cause a.0/g:1"]
    assert "b.0 was given a.0/g:1 twice" in faults(tmp_path, SEND, f"{cause}; {cause}; {effect}")
    assert "only a.0 has a.0/h:1" in faults(tmp_path, SEND, cause)[0]
    assert faults(tmp_path, "send a.0/g:1 g; accepted a.0/g:1 g", "") == ["a.0/g:1 was accepted and is lost"]
    assert "which nobody has broadcast" in faults(tmp_path, effect, effect)[0]


def test_the_ring_judge_accounts_for_group_membership(tmp_path: Path) -> None:
    effect = "deliver a.0/h:1 h"
    have, nothing = 'restore - g {"a.0/g": [[1, 1]]}', "restore - g {}"
    away = "leave - g; left - g"
    assert faults(tmp_path, SEND, f"{away}; {effect}; {have}; joined - g") == []
    assert faults(tmp_path, SEND, f"{away}; {have}; joined - g; {effect}") == []
    assert faults(tmp_path, SEND, f"leave - g; {effect}; left - g; {have}; joined - g") == []
    # It was removed before it delivered anything of the group, and has a new snapshot since.
    assert faults(tmp_path, SEND, f"{effect}; {have}") == []
    early = faults(tmp_path, SEND, f"{away}; {nothing}; joined - g; {effect}; deliver a.0/g:1 g")
    assert early == ["b.0 was given a.0/h:1 before its cause a.0/g:1"]
    # The content of a snapshot depends on messages of other groups.
    state = 'restore - h {"a.0/h": [[1, 1]]}'
    early = faults(tmp_path, SEND, f"leave - h; left - h; {state}; joined - h; deliver a.0/g:1 g")
    assert early == ["b.0 was given a snapshot with a.0/h:1 before its cause a.0/g:1"]


def test_a_lost_disk_excuses_the_messages_accepted_on_it(tmp_path: Path) -> None:
    lost = "send b.0/g:1 g; accepted b.0/g:1 g; begin b.1 -; restore - g {}; restore - h {}"
    lost += "; joined - g; joined - h"
    assert faults(tmp_path, "", lost) == []
    assert faults(tmp_path, "", lost.replace("b.1", "b.0")) == ["b.0/g:1 was accepted and is lost"]


def test_a_trial_waits_for_a_broadcast_that_has_begun(tmp_path: Path) -> None:
    """It was not counted yet, and the trial once ended between its acceptance and its deliveries."""
    setup = RingSetup({"g0": ["p0", "p1"]}, {}, each=1, pause=0, payload=10, sync=False)
    processes = [RingProcess(name, ["g0"], tmp_path, ()) for name in ("p0", "p1")]

    def is_complete_after(name: str, line: str) -> bool:
        with (tmp_path / f"{name}.log").open("a") as file:
            file.write(f"{line} 1\n")
        for process in processes:
            process.read_log()
        return is_complete(setup, processes)

    for name in ("p0", "p1"):
        assert not is_complete_after(name, f"begin {name}.0 -")
    assert not is_complete_after("p0", "joined - g0")
    assert is_complete_after("p1", "joined - g0")
    assert not is_complete_after("p0", "send p0.0/g0:1 g0")
    assert not is_complete_after("p0", "accepted p0.0/g0:1 g0")
    assert not is_complete_after("p0", "deliver p0.0/g0:1 g0")
    assert is_complete_after("p1", "deliver p0.0/g0:1 g0")
    assert not is_complete_after("p0", "send p0.0/g0:2 g0")
    # It was killed with that broadcast, which no process delivered.
    processes[0].kills += 1
    assert not is_complete_after("p0", "begin p0.0 -")
    assert is_complete_after("p0", "joined - g0")


def test_each_process_is_in_two_groups_of_a_ring() -> None:
    groups = ring(12, 6)
    assert [len(members) for members in groups.values()] == [4] * 6
    for name in groups["g0"]:
        assert sum(name in members for members in groups.values()) == 2
    assert len(RingPlan(size=12).members()) == 6
    assert RingPlan(size=3, groups=1).members() == {"all": ["p0", "p1", "p2"]}
    with pytest.raises(InputError, match="at least two"):
        RingPlan(size=1).members()
    with pytest.raises(InputError, match="at least 4 members"):
        RingPlan(size=4, churn=1.0).members()
