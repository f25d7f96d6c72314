"""The worlds, schedules and explorations that the groups of each protocol need."""

from __future__ import annotations

from antecede.check.changing.explore import ChangeBounds, ExploredGroup
from antecede.check.changing.explore_sites import ExploredSites
from antecede.check.changing.overlap import MOST_IN_ONE_GROUP, OverlapSchedule, OverlapWorld
from antecede.check.changing.random_schedules import RandomSchedule
from antecede.check.changing.sites import SiteSchedule, SiteWorld
from antecede.check.changing.world import ChangingWorld
from antecede.errors import InputError
from antecede.membership.freescale import ChangingFreescale
from antecede.membership.member import ChangingMember
from antecede.membership.multigroup import ChangingMultigroup


def world_type(kind: type[ChangingMember]) -> type[ChangingWorld]:
    if issubclass(kind, ChangingMultigroup):
        return OverlapWorld
    return SiteWorld if issubclass(kind, ChangingFreescale) else ChangingWorld


def schedule_type(kind: type[ChangingMember]) -> type[RandomSchedule]:
    if issubclass(kind, ChangingMultigroup):
        return OverlapSchedule
    return SiteSchedule if issubclass(kind, ChangingFreescale) else RandomSchedule


def explored_group(kind: type[ChangingMember], bounds: ChangeBounds, reduce: bool = True) -> ExploredGroup:
    if issubclass(kind, ChangingMultigroup) and bounds.peers > MOST_IN_ONE_GROUP:
        raise InputError(
            f"check: changes of multigroup are explored in one group of up to {MOST_IN_ONE_GROUP} peers; "
            "`verify multigroup --membership` draws groups that overlap"
        )
    group = ExploredSites if issubclass(kind, ChangingFreescale) else ExploredGroup
    return group(kind, bounds, reduce)


def judge_random(kind: type[ChangingMember], seed: int | str, steps: int | None = None) -> list[str]:
    """The violation in a random schedule; empty if the protocol is correct."""
    schedule = schedule_type(kind)(kind, seed, steps)
    schedule.run()
    return schedule.oracle().violations()
