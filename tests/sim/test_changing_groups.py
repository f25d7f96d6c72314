"""Runs in which processes join, leave, crash, are removed, suspected and partitioned."""

from __future__ import annotations

from typing import Any

import pytest

from antecede.errors import InputError
from antecede.membership.catalog import CHANGING
from antecede.sim import Result, Scenario, scenario, simulate
from antecede.sim.changing_world import ChangingGroupWorld


def run(protocol: str = "mbcp", **fields: Any) -> tuple[Result, ChangingGroupWorld]:
    chosen: Scenario = scenario(**({"protocol": protocol, "peers": 6, "seconds": 3} | fields))
    world = chosen.world(chosen.members(), [])
    assert isinstance(world, ChangingGroupWorld)
    world.run()
    return simulate(chosen), world


def views(world: ChangingGroupWorld) -> list[list[int]]:
    """The view of each member in the end, by address."""
    return [
        sorted(each.addresses.values())
        for each in world.members
        if each.is_member and not world.is_down(each.me)
    ]


@pytest.mark.parametrize("protocol", CHANGING)
def test_every_protocol_joins_leaves_and_removes(protocol: str) -> None:
    result, world = run(
        protocol, churn=["join:500ms", "leave:1s:1", "remove:1.5s:2"], faults=["suspect:1-2s:3", "crash:1s:5"]
    )
    # Member 2 lives and returns, as 7; 5 is removed because it is suspected.
    assert views(world) == [[0, 3, 4, 6, 7]] * 5
    figures = result.metrics.measured
    assert (figures["joins"], figures["leaves"], figures["removals"], figures["returns"]) == (2, 1, 2, 1)
    assert result.metrics.stuck == 0
    assert result.metrics.deliveries > 300
    assert not any(each.unstable for each in world.members if each.is_member and each.me != 5)


def test_members_forget_processes_that_have_left() -> None:
    """Not even reports that arrive after a stream is forgotten bring it back: tables and packets shrink."""
    churn = [f"join:{1 + n / 5}s" for n in range(10)] + [f"leave:{1.5 + n / 5}s:{6 + n}" for n in range(10)]
    _, world = run(churn=churn, seconds=5, rate=4)
    for member in world.members[:6]:
        assert member.view == set(range(6))
        assert member.order.delivered.keys() == set(range(6))
        for known in member.progress.known.values():
            assert (set(known.delivered), known.closed | known.done) == (set(range(6)), set())


@pytest.mark.parametrize("protocol", ["mbcp", "vcube-agg"])
def test_random_churn_is_reproducible_and_settles(protocol: str) -> None:
    fields = {"seconds": 5, "churn": "poisson:6:25%", "seed": 7}
    result, world = run(protocol, **fields)
    again, _ = run(protocol, **fields)
    assert result == again
    figures = result.metrics.measured
    assert figures["joins"] > 3
    assert figures["leaves"] > 3
    assert figures["crashes"] > 0
    assert len({tuple(view) for view in views(world)}) == 1
    other = simulate(scenario(protocol=protocol, peers=6, seconds=5, churn="poisson:6:25%", seed=8))
    assert other.metrics != result.metrics


def test_a_restart_within_the_time_out_removes_nobody() -> None:
    result, world = run(faults=["crash:1-1.5s:2"])
    assert views(world) == [list(range(6))] * 6
    figures = result.metrics.measured
    assert (figures["crashes"], figures["removals"], figures["returns"]) == (1, 0, 0)
    assert result.metrics.deliveries == 5 * result.metrics.messages


def test_a_long_pause_is_detected_and_the_removed_process_returns() -> None:
    result, world = run(faults=["crash:1.5s-6s:2"])
    assert views(world) == [[0, 1, 3, 4, 5, 6]] * 6
    figures = result.metrics.measured
    assert (figures["removals"], figures["returns"]) == (1, 1)
    assert 100 < figures["detection_mean_ms"] < 1000
    assert figures["false_suspicions"] == 0


VCUBE = "vcube,test=200ms,remove=1s"


@pytest.mark.parametrize("protocol", ["mbcp", "vcube"])
def test_a_long_pause_is_detected_by_vcube_tests(protocol: str) -> None:
    result, world = run(protocol, faults=["crash:1.5s-6s:2"], detector=VCUBE)
    assert views(world) == [[0, 1, 3, 4, 5, 6]] * 6
    figures = result.metrics.measured
    assert (figures["removals"], figures["returns"], figures["false_suspicions"]) == (1, 1, 0)
    assert figures["suspicions"] == 5
    assert result.metrics.stuck == 0


def test_a_suspected_member_that_answers_again_stays() -> None:
    result, world = run("vcube", faults=["crash:1-1.6s:2"], detector=VCUBE)
    assert views(world) == [list(range(6))] * 6
    figures = result.metrics.measured
    assert figures["suspicions"] > 0
    assert figures["removals"] == 0
    assert not any(each.order.suspected for each in world.members)


def test_members_test_log_n_others_in_a_round() -> None:
    result, _ = run(peers=64, seconds=2, senders=1, detector="vcube,test=100ms,report=1s")
    tests = result.metrics.measured["test_packets"] / 2
    assert tests == pytest.approx(64 * 6 * 20, rel=0.2)


def test_joining_and_leaving_members_are_tested() -> None:
    fields: dict[str, Any] = {"seconds": 5, "churn": "poisson:6:25%", "seed": 7, "detector": VCUBE}
    result, world = run("vcube", **fields)
    figures = result.metrics.measured
    assert figures["joins"] > 3
    assert figures["crashes"] > 0
    assert len({tuple(view) for view in views(world)}) == 1
    assert simulate(scenario(protocol="vcube", peers=6, **fields)) == result


def test_the_smaller_side_of_a_partition_returns_to_the_larger() -> None:
    result, world = run(faults=["partition:500ms-5s:0,1"])
    assert views(world) == [[2, 3, 4, 5, 6, 7]] * 6
    assert result.metrics.measured["returns"] == 2


@pytest.mark.parametrize("seed", range(4))
def test_links_stay_fifo_across_crashes_and_partitions(seed: int) -> None:
    """`pc` raises an error if not. Of what a crashed member leaves in flight, the first packets arrive."""
    faults = ["crash:500ms:2", "partition:300-600ms:0,1"]
    result, _ = run("pc", seconds=1, rate=20, delay="1-200ms", churn="poisson:4", faults=faults, seed=seed)
    assert result.metrics.stuck == 0


def test_two_halves_do_not_remove_each_other() -> None:
    """Neither side has a quorum: nothing that is sent is lost, and a person has to decide."""
    _, world = run(faults=["partition:500ms-5s:0-2"])
    assert not any(each.ends for each in world.members)


def test_nobody_is_removed_without_a_detector() -> None:
    result, _ = run(faults=["crash:500ms:2"], detector="none")
    assert result.metrics.measured["suspicions"] == 0
    assert result.metrics.measured["removals"] == 0


def test_joining_takes_one_round_trip_to_the_sponsor() -> None:
    for peers in (3, 12):
        result = simulate(
            scenario(protocol="mbcp", peers=peers, delay="20ms", rate=2, seconds=1, churn=["join:500ms:0"])
        )
        assert result.metrics.measured["join_welcome_max_ms"] == 40


@pytest.mark.parametrize("protocol", ["flooding", "multigroup"])
def test_processes_of_a_fixed_group_may_crash(protocol: str) -> None:
    if protocol in CHANGING:
        pytest.skip("its group changes")
    whole = simulate(scenario(protocol=protocol, peers=8, seconds=1)).metrics
    crashed = simulate(scenario(protocol=protocol, peers=8, seconds=1, faults=["crash:300ms:3"])).metrics
    assert 0 < crashed.messages < whole.messages
    assert 0 < crashed.deliveries < whole.deliveries
    stands_still = simulate(scenario(protocol=protocol, peers=8, seconds=1, faults=["crash:300-600ms:3"]))
    assert stands_still.metrics.deliveries == 7 * stands_still.metrics.messages


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"churn": "join"}, "scenario: churn: 'join' is not a change of a group; write join:1s"),
        ({"churn": "leave:1s:x"}, "'x' is not a process"),
        (
            {"churn": "leave:1s:12"},
            "there is no process 12; members are 0 to 9, and those who join come next",
        ),
        ({"churn": "poisson:-1"}, "'-1' is not a rate"),
        ({"churn": "poisson:1:200%"}, "'200%' is not a share"),
        ({"faults": ["crash:1s"]}, "scenario: faults: 'crash:1s' is not a fault of processes"),
        ({"faults": ["crash:2-1s:3"]}, "it ends before it begins"),
        ({"faults": ["partition:1-2s:0-"]}, "'' is not a process"),
        ({"faults": ["partition:1-2s:0-99999999"]}, "too many processes"),
        ({"detector": "swim"}, "scenario: detector: there is no detector 'swim'"),
        ({"detector": "adaptive,phi=8"}, "detector adaptive has no 'phi'; it takes report, remove"),
        ({"detector": "none,report=1us"}, "at intervals of at least 1ms"),
        ({"churn": "join:1s", "protocol": "flooding"}, "the group of flooding is fixed"),
        ({"churn": "join:1s", "faults": ["loss:1%"]}, "links that are FIFO and lose nothing"),
        ({"churn": "join:1s", "network": "routed"}, "those who join need direct links"),
        ({"churn": "join:1s", "protocol": "pc", "overlay": "ring"}, "is arranged by its view"),
    ],
)
def test_impossible_scenarios_are_refused_with_the_reason(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError) as error:
        scenario(**({"protocol": "mbcp"} | fields))
    assert words in str(error.value)
