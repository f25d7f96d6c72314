"""Runs of groups whose members have phones: these join, leave, move, and find another super peer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from antecede.audit.core import RunAudit, judge_run
from antecede.errors import InputError
from antecede.membership.state import Phase
from antecede.sim import Result, scenario, simulate
from antecede.sim.changing_sites import ChangingSitesWorld
from antecede.sim.record import simulate_to
from antecede.trace.reader import read_trace
from antecede.trace.schema import read_meta

SITES = ["freescale", "hcg", "basic"]


def run(protocol: str = "freescale", **fields: Any) -> ChangingSitesWorld:
    chosen = scenario(**({"protocol": protocol, "peers": 4, "seconds": 2, "rate": 5} | fields))
    world = chosen.world(chosen.members(), [])
    assert isinstance(world, ChangingSitesWorld)
    world.run()
    return world


def audited(folder: Path, **fields: Any) -> tuple[Result, RunAudit]:
    chosen = scenario(**fields)
    result = simulate_to(folder, chosen)
    groups = read_meta((folder / "_meta" / "meta.json").read_bytes(), "").groups
    return result, judge_run(chosen.key(), read_trace(folder), groups)


def hub_of(world: ChangingSitesWorld, phone: int) -> int:
    place = world.members[phone].phone
    assert place is not None
    assert place.here is not None
    return place.here.hub


@pytest.mark.parametrize("protocol", SITES)
def test_phones_join_move_and_leave_without_changing_any_view(protocol: str) -> None:
    world = run(protocol, churn=["attach:0s:0", "attach:0s:1", "move:1s:4:2", "detach:1.5s:5"])
    assert hub_of(world, 4) == 2
    assert world.members[5].phase == Phase.ENDED
    assert [each.view for each in world.members[:4]] == [{0, 1, 2, 3}] * 4
    figures = world.figures()
    assert (figures["phone_joins"], figures["phone_moves"], figures["phone_leaves"]) == (2, 1, 1)
    assert (figures["joins"], figures["phone_returns"]) == (0, 0)
    assert [len(each.site.slots) for each in world.members[:4]] == [0, 0, 1, 0]


def test_joining_takes_one_round_trip() -> None:
    world = run(delay="20ms", churn="attach:500ms:0")
    assert world.figures()["phone_join_max_ms"] == 40


def test_phones_of_a_super_peer_that_crashes_find_another() -> None:
    world = run(peers=5, seconds=3, churn=["attach:0s:0"], faults=["crash:1s:0"])
    returned = next(each for each in range(6, len(world.members)) if world.members[each].is_member)
    assert hub_of(world, returned) != 0
    assert world.figures()["phone_returns"] == 1


def test_a_super_peer_that_leaves_sends_its_phones_away_first() -> None:
    world = run(churn=["attach:0s:0", "attach:0s:0", "leave:1s:0"])
    assert world.members[0].phase == Phase.ENDED
    assert 0 not in {hub_of(world, 4), hub_of(world, 5)}
    assert world.figures()["phone_returns"] == 0


def test_a_phone_that_never_returns_is_given_up() -> None:
    world = run(seconds=3, churn="attach:0s:0", faults=["crash:500ms:4"])
    assert not world.members[0].site.slots
    assert not any(each.unstable for each in world.members[:4])


CHURN: list[tuple[list[str], list[str]]] = [
    (["phones:6", "roam:6"], []),
    (["phones:5", "roam:3", "poisson:2:20%"], ["suspect:500ms-1s:1"]),
    (["phones:5", "roam:3", "remove:700ms:6", "remove:1s:1"], ["crash:600ms-1.2s:2"]),
    (["phones:6", "roam:2"], ["crash:700ms:3", "crash:1s:7", "partition:300ms-1.5s:1,8"]),
]


@pytest.mark.parametrize("protocol", SITES)
@pytest.mark.parametrize("changes", range(len(CHURN)))
def test_random_runs_are_clean(protocol: str, changes: int, tmp_path: Path) -> None:
    churn, faults = CHURN[changes]
    fields: dict[str, Any] = {"protocol": protocol, "peers": 6, "seconds": 2, "rate": 4, "seed": 5 + changes}
    result, judged = audited(tmp_path, churn=churn, faults=faults, **fields)
    texts = [*(each.text for each in judged.findings), *(each.text for each in judged.faults)]
    assert judged.verdict.clean, texts
    assert result.metrics.stuck == 0
    assert result.metrics.measured["phone_joins"] >= 5
    assert simulate(scenario(churn=churn, faults=faults, **fields)).metrics == result.metrics


def test_groups_with_phones_may_use_the_vcube_failure_detector() -> None:
    world = run(
        peers=6, churn=["phones:4"], detector="vcube,test=100ms,report=1s,remove=500ms", faults=["crash:1s:2"]
    )
    assert world.figures()["removals"] == 1


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"protocol": "mbcp", "churn": "phones:3"}, "mbcp has no phones; freescale, hcg and basic have"),
        ({"churn": "attach"}, "for phones phones:5 (at the start), attach:1s:2"),
        ({"churn": ["phones:2", "move:1s:12"]}, "there is no process 12"),
        ({"churn": "roam:x"}, "'x' is not a rate"),
    ],
)
def test_impossible_scenarios_are_refused_with_the_reason(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError) as error:
        scenario(**({"protocol": "freescale"} | fields))
    assert words in str(error.value)
