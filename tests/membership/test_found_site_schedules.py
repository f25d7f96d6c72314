"""Schedules in which groups with phones or local processes once went wrong, as `verify --membership` shrank
them."""

from __future__ import annotations

import pytest
from broken_sites import (
    BringsBackAnywhere,
    ForgetsTheExpelled,
    ForgetsTheExpelledLater,
    ForgetsWhileAPhoneComes,
    ForgetsWhoHasLeft,
    KnowsOnlyWhatItReported,
    ReleasesToStrangers,
    TakesTheForgottenForSettled,
    TellsNothingOfSenders,
    TellsPhonesNothingOfRemovals,
)

from antecede.check.changing.kinds import schedule_type
from antecede.check.changing.shrink import replay
from antecede.check.changing.world import ScheduleEvent
from antecede.membership.freescale import ChangingFreescale
from antecede.membership.gateways import ChangingBasic, ChangingHcg
from antecede.membership.member import ChangingMember

BROUGHT_BACK_WITHOUT_WHAT_IS_STABLE: list[ScheduleEvent] = [
    ("attach", 5, 1),
    ("attach", 7, 2),
    ("transmit", 7, 2),
    ("transmit", 2, 7),
    ("remove", 2, 1),
    ("transmit", 2, 0),
    ("transmit", 2, 0),
    ("deliver", 0, -1),
    ("join", 3, 1),
    ("transmit", 3, 1),
    ("broadcast", 7, -1),
    ("move", 7, 1),
    ("transmit", 7, 1),
    ("transmit", 1, 7),
    ("transmit", 7, 2),
    ("broadcast", 7, -1),
    ("transmit", 0, 2),
    ("transmit", 2, 0),
    ("deliver", 0, -1),
    ("deliver", 2, -1),
    ("deliver", 2, -1),
    ("report", 0, -1),
    ("transmit", 0, 2),
    ("report", 2, -1),
    ("transmit", 2, 1),
    ("transmit", 1, 2),
    ("transmit", 1, 3),
    ("transmit", 1, 0),
    ("transmit", 2, 0),
    ("transmit", 7, 2),
    ("transmit", 5, 1),
    ("transmit", 0, 1),
    ("transmit", 1, 5),
    ("transmit", 1, 7),
    ("transmit", 7, 2),
]
"""p7:1 is stable without p1, which is removed and does not know it. p7 returns to p3, which p1 has
admitted. p3 has never heard of p7:1, and broadcast again what followed it."""

FORGOTTEN_WHILE_A_PHONE_COMES: list[ScheduleEvent] = [
    ("attach", 3, 0),
    ("transmit", 3, 0),
    ("transmit", 0, 3),
    ("leave", 1, -1),
    ("transmit", 1, 0),
    ("deliver", 0, -1),
    ("transmit", 1, 2),
    ("deliver", 2, -1),
    ("report", 0, -1),
    ("transmit", 0, 2),
    ("report", 2, -1),
    ("move", 3, 2),
    ("transmit", 3, 2),
    ("transmit", 2, 3),
    ("transmit", 3, 0),
    ("transmit", 2, 0),
    ("report", 0, -1),
]
"""p2 has reported that the stream of p1, which has left, is done. p0 has not received that when it releases
p3, so with a count of p1; then it has, and says that it is done. p2 had forgotten p1 when p3 arrived, and
took it for a member that it does not know yet."""

EXPELLED_BY_ONE_THAT_LEFT: list[ScheduleEvent] = [
    ("attach", 5, 2),
    ("transmit", 5, 2),
    ("transmit", 2, 5),
    ("broadcast", 1, -1),
    ("expel", 2, 5),
    ("broadcast", 5, -1),
    ("leave", 2, -1),
    ("transmit", 2, 0),
    ("transmit", 2, 1),
    ("crash", 2, 0),
]
"""p2 expels p5, leaves, and is switched off before p5 hears of either. Nobody could tell p5 that p5:1 was not
accepted: p2 was forgotten, and whatever came from behind it was taken for delivered."""

SWITCHED_OFF_AND_BROUGHT_BACK: list[ScheduleEvent] = [
    ("attach", 5, 1),
    ("transmit", 5, 1),
    ("transmit", 1, 5),
    ("broadcast", 5, -1),
    ("transmit", 5, 1),
    ("transmit", 1, 0),
    ("transmit", 1, 2),
    ("transmit", 1, 3),
    ("transmit", 1, 4),
    ("deliver", 0, -1),
    ("deliver", 2, -1),
    ("deliver", 3, -1),
    ("deliver", 4, -1),
    ("detach", 5, -1),
    ("transmit", 5, 1),
    ("cut", 0, 1),
    ("leave", 1, -1),
    ("transmit", 1, 2),
    ("transmit", 1, 3),
    ("transmit", 1, 4),
    ("deliver", 2, -1),
    ("deliver", 3, -1),
    ("deliver", 4, -1),
    ("report", 3, -1),
    ("transmit", 3, 0),
    ("report", 0, -1),
    ("report", 0, -1),
    ("transmit", 0, 3),
    ("transmit", 0, 2),
    ("transmit", 0, 3),
    ("transmit", 0, 2),
    ("transmit", 0, 3),
    ("transmit", 3, 0),
    ("transmit", 3, 2),
    ("deliver", 0, -1),
    ("crash", 1, 0),
    ("report", 0, -1),
    ("transmit", 4, 1),
    ("transmit", 0, 2),
    ("report", 2, -1),
    ("report", 3, -1),
    ("report", 4, -1),
    ("transmit", 2, 0),
    ("transmit", 3, 2),
]
"""p1 leaves, and is switched off before its own copy of its last message arrives at p0, which stops waiting
for it. p5 does not hear that p1 has let it go, and returns with p5:1. That was delivered long ago; but what
had come from behind p1 was forgotten, so it was taken for lost."""

EXPELLED_DURING_A_MOVE: list[ScheduleEvent] = [
    ("attach", 8, 1),
    ("transmit", 8, 1),
    ("transmit", 1, 8),
    ("move", 8, 0),
    ("broadcast", 8, -1),
    ("transmit", 8, 0),
    ("transmit", 0, 8),
    ("leave", 2, -1),
    ("broadcast", 8, -1),
    ("expel", 1, 8),
    ("leave", 1, -1),
    ("transmit", 1, 3),
    ("transmit", 1, 0),
    ("deliver", 0, -1),
    ("deliver", 3, -1),
    ("orphan", 8, -1),
    ("report", 0, -1),
    ("report", 3, -1),
]
"""p8 moves from p1 to p0, is expelled by p1, and gives up since p1 leaves. It brought back what it had
broadcast for p0, and not p8:1, which precedes that and which p1 had not accepted."""

DONE_FOR_A_NEW_MEMBER: list[ScheduleEvent] = [
    ("leave", 1, -1),
    ("transmit", 1, 2),
    ("transmit", 1, 0),
    ("deliver", 2, -1),
    ("attach", 7, 0),
    ("deliver", 0, -1),
    ("transmit", 7, 0),
    ("report", 2, -1),
    ("report", 0, -1),
    ("join", 3, 2),
    ("transmit", 0, 2),
    ("transmit", 2, 0),
    ("transmit", 3, 2),
    ("transmit", 2, 0),
    ("transmit", 2, 3),
    ("transmit", 0, 7),
    ("report", 3, -1),
    ("deliver", 0, -1),
    ("move", 7, 3),
]
"""p0 and p2 tell p3, which is new, that p1's stream is done, and have not reported it yet. So p3 forgets p1;
p0 released p7 with a count of it, for which p3 waited."""

RELEASED_TO_A_STRANGER: list[ScheduleEvent] = [
    ("attach", 6, 0),
    ("transmit", 6, 0),
    ("transmit", 0, 6),
    ("remove", 1, 0),
    ("transmit", 1, 2),
    ("transmit", 1, 3),
    ("deliver", 2, -1),
    ("deliver", 3, -1),
    ("transmit", 1, 3),
    ("transmit", 1, 2),
    ("transmit", 2, 1),
    ("transmit", 2, 3),
    ("transmit", 3, 1),
    ("transmit", 3, 2),
    ("deliver", 1, -1),
    ("deliver", 2, -1),
    ("deliver", 3, -1),
    ("broadcast", 1, -1),
    ("report", 1, -1),
    ("report", 2, -1),
    ("report", 3, -1),
    ("transmit", 1, 2),
    ("transmit", 1, 3),
    ("transmit", 2, 1),
    ("transmit", 2, 3),
    ("transmit", 3, 1),
    ("transmit", 3, 2),
    ("transmit", 1, 2),
    ("transmit", 1, 3),
    ("deliver", 2, -1),
    ("deliver", 3, -1),
    ("join", 4, 1),
    ("report", 1, -1),
    ("report", 2, -1),
    ("report", 3, -1),
    ("transmit", 1, 2),
    ("transmit", 1, 3),
    ("transmit", 2, 1),
    ("transmit", 3, 1),
    ("transmit", 4, 1),
    ("leave", 1, -1),
    ("transmit", 1, 2),
    ("transmit", 1, 3),
    ("transmit", 1, 4),
    ("deliver", 2, -1),
    ("deliver", 3, -1),
    ("leave", 2, -1),
    ("leave", 3, -1),
    ("transmit", 1, 4),
    ("transmit", 2, 4),
    ("transmit", 3, 4),
    ("transmit", 2, 4),
    ("transmit", 3, 4),
    ("deliver", 4, -1),
    ("move", 6, 4),
    ("transmit", 6, 4),
    ("broadcast", 4, -1),
]
"""p0 is removed and does not know it. All others leave, and p4 and p5, whom they have admitted, have
broadcast nothing. p0 released p6 to p4, of which it had never heard: p4 counted nothing that p0 lacked, since
everybody but p0 had all of the rest. So p6 went on without that."""

RETURNED_TO_ONE_THAT_HAD_HEARD_OF_NOBODY: list[ScheduleEvent] = [
    ("cut", 3, 0),
    ("attach", 8, 2),
    ("join", 4, 3),
    ("transmit", 4, 3),
    ("transmit", 3, 4),
    ("transmit", 3, 1),
    ("report", 4, -1),
    ("cut", 2, 1),
    ("broadcast", 4, -1),
    ("transmit", 4, 1),
    ("transmit", 4, 1),
    ("transmit", 8, 2),
    ("transmit", 2, 8),
    ("deliver", 1, -1),
    ("attach", 5, 4),
    ("broadcast", 8, -1),
    ("attach", 7, 3),
    ("attach", 6, 1),
    ("transmit", 6, 1),
    ("expel", 1, 6),
    ("transmit", 1, 6),
    ("broadcast", 6, -1),
    ("cut", 2, 4),
    ("transmit", 6, 1),
    ("broadcast", 8, -1),
]
"""p6 is given a snapshot with p4:1, is expelled by p1 and returns to p0, which has never heard of p4. p0 took
p4:1 for a message of one that was forgotten long ago, and broadcast p6:1 ahead of it."""

STABLE_WITHOUT_WHO_WAS_REMOVED: list[ScheduleEvent] = [
    ("attach", 5, 1),
    ("transmit", 5, 1),
    ("transmit", 1, 5),
    ("remove", 1, 0),
    ("transmit", 1, 2),
    ("transmit", 1, 3),
    ("deliver", 2, -1),
    ("deliver", 3, -1),
    ("transmit", 1, 2),
    ("transmit", 1, 3),
    ("transmit", 2, 1),
    ("transmit", 2, 3),
    ("transmit", 3, 1),
    ("transmit", 3, 2),
    ("deliver", 1, -1),
    ("deliver", 2, -1),
    ("deliver", 3, -1),
    ("report", 1, -1),
    ("report", 2, -1),
    ("report", 3, -1),
    ("transmit", 1, 2),
    ("transmit", 1, 3),
    ("transmit", 2, 1),
    ("transmit", 2, 3),
    ("transmit", 3, 1),
    ("transmit", 3, 2),
    ("report", 1, -1),
    ("report", 2, -1),
    ("report", 3, -1),
    ("transmit", 1, 2),
    ("transmit", 1, 3),
    ("transmit", 2, 1),
    ("transmit", 3, 1),
    ("join", 4, 1),
    ("transmit", 4, 1),
    ("transmit", 1, 2),
    ("transmit", 1, 3),
    ("transmit", 1, 4),
    ("deliver", 2, -1),
    ("deliver", 3, -1),
    ("report", 2, -1),
    ("report", 3, -1),
    ("report", 4, -1),
    ("transmit", 2, 1),
    ("transmit", 3, 1),
    ("transmit", 4, 1),
    ("broadcast", 4, -1),
    ("transmit", 4, 1),
    ("deliver", 1, -1),
    ("transmit", 1, 5),
    ("deliver", 5, -1),
    ("broadcast", 5, -1),
    ("expel", 1, 5),
    ("transmit", 1, 5),
    ("return", 5, 0),
    ("transmit", 10, 0),
    ("deliver", 0, -1),
]
"""p0 is removed and does not know it. p4 joins, and all others have its admission. So p1 said nothing of that
when it gave p4:1 to p5, which it expels and which returns to p0: to one that took p4 for forgotten."""

REFUSES_WHOM_A_FORGOTTEN_ONE_ADMITTED: list[ScheduleEvent] = [
    ("remove", 2, 1),
    ("transmit", 2, 0),
    ("transmit", 2, 0),
    ("deliver", 0, -1),
    ("join", 3, 1),
    ("transmit", 3, 1),
    ("transmit", 0, 2),
    ("deliver", 2, -1),
    ("report", 0, -1),
    ("transmit", 0, 2),
    ("report", 2, -1),
    ("transmit", 1, 3),
    ("transmit", 2, 0),
    ("remove", 3, 0),
    ("broadcast", 0, -1),
    ("report", 0, -1),
]
"""p1 is removed, does not know it, and admits p3. p0 had forgotten p1 when p3's first message arrived. That
names its admission: names of forgotten streams were taken for settled, and the message was held for ever."""


@pytest.mark.parametrize(
    ("kind", "founders", "size", "schedule"),
    [
        (ChangingFreescale, 3, 5, BROUGHT_BACK_WITHOUT_WHAT_IS_STABLE),
        (ChangingFreescale, 3, 3, FORGOTTEN_WHILE_A_PHONE_COMES),
        (ChangingBasic, 3, 5, EXPELLED_BY_ONE_THAT_LEFT),
        (ChangingHcg, 3, 5, EXPELLED_BY_ONE_THAT_LEFT),
        (ChangingFreescale, 5, 5, SWITCHED_OFF_AND_BROUGHT_BACK),
        (ChangingFreescale, 4, 4, EXPELLED_DURING_A_MOVE),
        (ChangingFreescale, 3, 5, DONE_FOR_A_NEW_MEMBER),
        (ChangingFreescale, 4, 6, RELEASED_TO_A_STRANGER),
        (ChangingBasic, 4, 5, RETURNED_TO_ONE_THAT_HAD_HEARD_OF_NOBODY),
        (ChangingFreescale, 4, 5, STABLE_WITHOUT_WHO_WAS_REMOVED),
        (ChangingHcg, 3, 5, REFUSES_WHOM_A_FORGOTTEN_ONE_ADMITTED),
        (ChangingHcg, 3, 5, DONE_FOR_A_NEW_MEMBER),
    ],
)
def test_formerly_failing_schedules_pass(
    kind: type[ChangingMember], founders: int, size: int, schedule: list[ScheduleEvent]
) -> None:
    world = replay(kind, founders, size, schedule)
    assert schedule_type(kind).of_world(world).oracle().violations() == []


@pytest.mark.parametrize(
    ("kind", "founders", "size", "schedule"),
    [
        (BringsBackAnywhere, 3, 5, BROUGHT_BACK_WITHOUT_WHAT_IS_STABLE),
        (ForgetsWhileAPhoneComes, 3, 3, FORGOTTEN_WHILE_A_PHONE_COMES),
        (ForgetsTheExpelled, 3, 5, EXPELLED_BY_ONE_THAT_LEFT),
        (ForgetsTheExpelledLater, 3, 5, EXPELLED_BY_ONE_THAT_LEFT),
        (ForgetsWhoHasLeft, 5, 5, SWITCHED_OFF_AND_BROUGHT_BACK),
        (ForgetsTheExpelled, 4, 4, EXPELLED_DURING_A_MOVE),
        (ReleasesToStrangers, 4, 6, RELEASED_TO_A_STRANGER),
        (KnowsOnlyWhatItReported, 3, 5, DONE_FOR_A_NEW_MEMBER),
        (TellsNothingOfSenders, 4, 5, RETURNED_TO_ONE_THAT_HAD_HEARD_OF_NOBODY),
        (TellsPhonesNothingOfRemovals, 4, 5, STABLE_WITHOUT_WHO_WAS_REMOVED),
        (TakesTheForgottenForSettled, 3, 5, REFUSES_WHOM_A_FORGOTTEN_ONE_ADMITTED),
    ],
)
def test_formerly_failing_schedules_fail_without_the_rule(
    kind: type[ChangingMember], founders: int, size: int, schedule: list[ScheduleEvent]
) -> None:
    world = replay(kind, founders, size, schedule)
    assert schedule_type(kind).of_world(world).oracle().violations() != []
