"""Every schedule of small groups in which somebody joins, leaves or is removed."""

from __future__ import annotations

import pytest

from antecede.check.changing.explore import ChangeBounds, ChangingProgress, ExploredGroup, explore
from antecede.membership.catalog import CHANGING

JOIN, LEAVE, REMOVAL = (ChangeBounds(total=1, **{kind: 1}) for kind in ("joins", "leaves", "removals"))
_SOME_STATES = 1_500


def explored(name: str, bounds: ChangeBounds, max_states: int, reduce: bool = True) -> ChangingProgress:
    *_, last = explore(ExploredGroup(CHANGING[name], bounds, reduce), max_states)
    return last


@pytest.mark.parametrize(
    ("bounds", "states"), [(JOIN, 4_118), (LEAVE, 704), (REMOVAL, 6_812)], ids=["join", "leave", "removal"]
)
def test_mbcp_holds_in_every_schedule_with_a_change(bounds: ChangeBounds, states: int) -> None:
    progress = explored("mbcp", bounds, 100_000)
    assert (progress.found, progress.is_complete, progress.states) == (None, True, states)


@pytest.mark.parametrize("bounds", [JOIN, LEAVE, REMOVAL], ids=["join", "leave", "removal"])
@pytest.mark.parametrize("name", [name for name in CHANGING if name != "mbcp"])
def test_other_protocols_pass_the_first_schedules(name: str, bounds: ChangeBounds) -> None:
    assert explored(name, bounds, _SOME_STATES).found is None


def test_a_reduced_exploration_reaches_the_same_verdict() -> None:
    whole, reduced = (explored("mbcp", LEAVE, 100_000, reduce) for reduce in (False, True))
    assert (whole.is_complete, whole.found) == (reduced.is_complete, reduced.found) == (True, None)
    assert reduced.states < whole.states / 3
