"""Runs of overlapping groups that change: processes join and leave single groups, and crash as a whole."""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import Any

import pytest

from antecede.audit.core import RunAudit, judge_run
from antecede.errors import InputError
from antecede.membership import catalog
from antecede.sim import Result, Scenario, scenario, simulate
from antecede.sim.changing_overlap import OverlappingGroupsWorld
from antecede.sim.record import simulate_to
from antecede.trace.reader import read_trace
from antecede.trace.schema import CHANGE_KINDS, read_meta

sys.path.insert(0, str(Path(__file__).parents[1] / "membership"))
import broken_groups

GROUPS = {"a": [0, 1, 2, 3, 4], "b": [2, 3, 4, 5, 6], "c": [0, 1, 5, 6, 7]}


def overlapping(**fields: Any) -> Scenario:
    return scenario(
        **({"protocol": "multigroup", "peers": 8, "seconds": 2, "rate": 5, "groups": GROUPS} | fields)
    )


def run(**fields: Any) -> OverlappingGroupsWorld:
    chosen = overlapping(**fields)
    world = chosen.world(chosen.members(), [])
    assert isinstance(world, OverlappingGroupsWorld)
    world.run()
    return world


def views(world: OverlappingGroupsWorld) -> dict[str, set[tuple[int, ...]]]:
    """The views of each group's members in the end, as processes."""
    found: dict[str, set[tuple[int, ...]]] = {}
    for member in world.members:
        if member.is_member and not world.is_down(member.me):
            view = sorted(world.seat(each).process for each in member.addresses.values())
            found.setdefault(member.in_group, set()).add(tuple(view))
    return found


def audited(folder: Path, chosen: Scenario) -> tuple[Result, RunAudit]:
    result = simulate_to(folder, chosen)
    groups = read_meta((folder / "_meta" / "meta.json").read_bytes(), "").groups
    return result, judge_run(chosen.key(), read_trace(folder), groups)


def texts(judged: RunAudit) -> list[str]:
    return [*(each.text for each in judged.findings), *(each.text for each in judged.faults)]


def test_processes_join_leave_and_return_to_single_groups_and_crash_as_a_whole() -> None:
    world = run(
        churn=["join:300ms:a", "join:400ms:b:0", "join:500ms:6", "leave:600ms:2:a", "remove:700ms:3:b"],
        faults=["crash:1s:7", "suspect:1-1.5s:5"],
    )
    # The first newcomer is 8. The other one asks 6, in any of its groups. 3 returns to b.
    found = views(world)
    assert {len(each) for each in found.values()} == {1}
    (a,), (b,), (c,) = found["a"], found["b"], found["c"]
    assert set(a) - {9} == {0, 1, 3, 4, 8}
    assert set(b) - {9} == {0, 2, 3, 4, 5, 6}
    assert set(c) - {9} == {0, 1, 5, 6}
    assert [9 in each for each in (a, b, c)].count(True) == 1
    assert 9 not in a
    figures = world.figures()
    assert (figures["joins"], figures["leaves"], figures["returns"]) == (4, 1, 1)
    assert (figures["removals"], figures["crashes"]) == (2, 1)
    assert world.count_stuck() == 0
    assert not any(
        member.held for member in world.members if member.is_member and not world.is_down(member.me)
    )


def test_a_process_leaves_and_is_removed_from_all_its_groups() -> None:
    world = run(churn=["leave:500ms:1", "remove:500ms:5"])
    assert views(world) == {"a": {(0, 2, 3, 4)}, "b": {(2, 3, 4, 5, 6)}, "c": {(0, 5, 6, 7)}}
    assert world.figures()["returns"] == 2  # one group after the other


def test_a_partitioned_part_of_all_groups_returns() -> None:
    world = run(seconds=3, faults=["partition:300ms-4s:6"], detector="adaptive,remove=500ms")
    assert views(world) == {group: {tuple(sorted(peers))} for group, peers in GROUPS.items()}
    assert world.figures()["returns"] == 2


def test_a_restart_within_the_time_out_changes_nothing() -> None:
    chosen = overlapping(faults=["crash:500-900ms:5"])
    fixed = overlapping(faults=["spike:5-6s:1ms"])
    result = simulate(chosen)
    assert result.metrics.measured["removals"] == 0
    assert result.metrics.stuck == 0
    assert 0.8 < result.metrics.deliveries / simulate(fixed).metrics.deliveries < 1


def test_joining_takes_one_round_trip_whatever_other_groups_the_process_is_in() -> None:
    for churn in ("join:501ms:a", "join:501ms:a:7"):
        figures = run(delay="20ms", rate=1, seconds=1, churn=[churn]).figures()
        assert figures["joins"] == 1
        assert figures["join_welcome_max_ms"] <= 60  # it may wait for what its sponsor lacks


def test_a_newcomer_sends_only_to_groups_it_has_joined(tmp_path: Path) -> None:
    _, judged = audited(tmp_path, overlapping(seconds=3, churn=["join:200ms:a", "join:1s:b:8"]))
    assert judged.verdict.clean, texts(judged)
    rows = read_trace(tmp_path).to_pylist()
    newcomer = [row for row in rows if row["of_process"] == "p8"]
    sent = [row["group"] for row in newcomer if row["kind"] == "send"]
    assert {*sent} == {"a", "b"}
    first_in_b = next(row["index"] for row in newcomer if row["group"] == "b")
    assert {row["group"] for row in newcomer if row["index"] < first_in_b} == {"a"}
    assert {row["process"] for row in newcomer} == {"p8.a", "p8.b"}


def test_the_trace_counts_rows_in_each_processs_own_order(tmp_path: Path) -> None:
    chosen = overlapping(churn=["remove:500ms:3:b", "leave:1s:1", "join:300ms"])
    _, judged = audited(tmp_path, chosen)
    assert judged.verdict.clean, texts(judged)
    rows = read_trace(tmp_path).to_pylist()
    assert {row["kind"] for row in rows} == {"send", "receive", "deliver", *CHANGE_KINDS}
    indices: dict[str, list[int]] = {}
    for row in rows:
        indices.setdefault(row["of_process"], []).append(row["index"])
        assert row["process"].startswith(f"{row['of_process']}.{row['group']}")
    assert all(sorted(each) == list(range(len(each))) for each in indices.values())
    assert "p3.b.2" in {row["process"] for row in rows}


def any_scenario(seed: int) -> Scenario:
    """Any changes and faults that leave each group a quorum."""
    source = random.Random(seed)
    pick = source.choice
    peers = source.randint(7, 10)
    names = "abc"[: source.randint(2, 3)]
    groups = {name: sorted(source.sample(range(peers), source.randint(6, 7))) for name in names}

    def time() -> float:
        return round(source.uniform(0.05, 2), 3)

    def peer() -> int:
        return source.randrange(peers)

    changes = (
        lambda: f"join:{time()}s",
        lambda: f"join:{time()}s:{pick(names)}",
        lambda: f"join:{time()}s:{pick(names)}:{peer()}",
        lambda: f"leave:{time()}s:{peer()}:{pick(names)}",
        lambda: f"remove:{time()}s:{peer()}:{pick(names)}",
        lambda: f"poisson:{pick((1, 4))}",
    )
    faults = (
        lambda: f"crash:{time()}s:{peer()}",
        lambda: f"crash:{time()}-{round(time() + 2, 3)}s:{peer()}",
        lambda: f"suspect:{time()}-{round(time() + 2, 3)}s:{peer()}",
        lambda: f"partition:{time()}-{round(time() + 3, 3)}s:{peer()}",
    )
    return overlapping(
        peers=peers, groups=groups, seed=seed, rate=pick((2, 5, 10)), payload=10, most_messages=200,
        churn=[pick(changes)() for _ in range(source.randint(1, 2))],
        faults=[pick(faults)() for _ in range(source.randint(0, 1))],
        delay=pick(("5ms", "1-100ms", "exp:20ms", "wild:1us-200ms")), reply=pick((0, 0.02)),
        workload=pick(("periodic", "poisson")), detector=pick((None, "vcube,test=400ms,remove=2s")),
    )  # fmt: skip


@pytest.mark.parametrize("block", range(6))
def test_random_runs_are_clean(block: int, tmp_path: Path) -> None:
    changes = 0.0
    for seed in range(10 * block, 10 * block + 10):
        chosen = any_scenario(seed)
        result, judged = audited(tmp_path, chosen)
        assert judged.verdict.clean, (seed, texts(judged))
        assert result.metrics.stuck == 0, seed
        measured = result.metrics.measured
        changes += sum(measured[name] for name in ("joins", "leaves", "removals", "crashes", "returns"))
    assert changes > 10


def test_random_churn_is_reproducible(tmp_path: Path) -> None:
    fields: dict[str, Any] = {"churn": ["poisson:6:25%"], "seed": 7, "seconds": 3}
    results = [simulate_to(tmp_path / name, overlapping(**fields)) for name in ("one", "two")]
    assert results[0] == results[1]
    here, there = (
        sorted(file for file in (tmp_path / name).rglob("*") if file.is_file()) for name in ("one", "two")
    )
    assert [file.read_bytes() for file in here] == [file.read_bytes() for file in there]
    figures = results[0].metrics.measured
    assert figures["joins"] > 3
    assert figures["leaves"] > 3
    assert simulate(overlapping(**(fields | {"seed": 8}))).metrics != results[0].metrics


def test_missing_order_across_groups_is_detected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(catalog.CHANGING, "multigroup", broken_groups.NamesNothing)
    _, judged = audited(tmp_path, overlapping(churn=["join:300ms:a"]))
    assert judged.verdict.causal_late_deliveries > 0
    assert any("in another group" in each.text for each in judged.findings)
    assert not judged.faults


def test_senders_and_silent_count_processes_in_any_group(tmp_path: Path) -> None:
    audited(tmp_path, overlapping(senders=2, silent=[0], churn=["join:300ms:a"]))
    rows = read_trace(tmp_path).to_pylist()
    assert {row["of_process"] for row in rows if row["kind"] == "send"} == {"p4"}


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"churn": ["join:1s:x"]}, "there is no group 'x'; there are a, b, c"),
        ({"churn": ["leave:1s:3:x"]}, "there is no group 'x'"),
        ({"churn": ["join:1s:a:12"]}, "there is no process 12"),
        ({"churn": ["join:1s:a"], "groups": None}, "there is no group 'a'; the scenario names no groups"),
        ({"churn": ["join:1s"], "faults": ["loss:1%"]}, "links that are FIFO and lose nothing"),
    ],
)
def test_impossible_scenarios_are_refused_with_the_reason(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError) as error:
        overlapping(**fields)
    assert words in str(error.value)
