"""Schedules in which overlapping groups once went wrong, as `verify --membership` shrank them."""

from __future__ import annotations

import broken_groups
import pytest

from antecede.check.changing.kinds import schedule_type
from antecede.check.changing.shrink import replay
from antecede.check.changing.world import ScheduleEvent
from antecede.membership.multigroup import ChangingMultigroup

REMOVED_AND_DOES_NOT_KNOW: list[ScheduleEvent] = [
    ("remove", 4, 3),
    ("broadcast", 2, -1),
    ("transmit", 4, 2),
    ("report", 2, -1),
    ("deliver", 2, -1),
    ("transmit", 2, 4),
    ("transmit", 2, 4),
    ("deliver", 4, -1),
    ("transmit", 2, 4),
    ("deliver", 4, -1),
    ("broadcast", 0, -1),
]
"""p3 and p1 are one process. p3 is removed from its group and does not know it. The others do not wait for
it any more, and p0:1 did not name p2:1. So p1 was given p0:1, and p3 then p2:1, which precedes it."""

HEARS_OF_IT_THROUGH_OTHERS: list[ScheduleEvent] = [
    ("broadcast", 6, -1),
    ("transmit", 6, 0),
    ("remove", 6, 1),
    ("deliver", 0, -1),
    ("transmit", 6, 0),
    ("transmit", 6, 0),
    ("deliver", 0, -1),
    ("report", 6, -1),
    ("transmit", 6, 0),
    ("broadcast", 7, -1),
    ("transmit", 7, 3),
    ("deliver", 3, -1),
    ("broadcast", 4, -1),
    ("transmit", 4, 5),
    ("deliver", 5, -1),
]
"""The same through a third group, whose members have never been in the one from which p1 is removed."""

NAMED_BY_A_COPY: list[ScheduleEvent] = [
    ("join", 10, 4),
    ("cut", 1, 6),
    ("ask", 10, 9),
    ("broadcast", 6, -1),
    ("broadcast", 7, -1),
    ("remove", 8, 7),
    ("transmit", 7, 6),
    ("deliver", 6, -1),
    ("remove", 7, 6),
    ("remove", 1, 7),
    ("cut", 12, 7),
    ("broadcast", 4, -1),
    ("broadcast", 6, -1),
]
"""p6:2, which follows p4:1, and p7:1 are lost. Two processes bring p7:1 back. The copy of p6's process
named p4:1, and was dropped where the other came first; the copy of p6:2 did not name it again."""

WAITS_WHERE_SOMEBODY_STARTS: list[ScheduleEvent] = [
    ("broadcast", 4, -1),
    ("join", 10, 5),
    ("remove", 7, 1),
    ("transmit", 7, 1),
    ("broadcast", 7, -1),
    ("transmit", 7, 0),
    ("broadcast", 4, -1),
    ("deliver", 0, -1),
    ("deliver", 1, -1),
    ("transmit", 7, 0),
    ("transmit", 7, 0),
    ("transmit", 0, 7),
    ("deliver", 0, -1),
    ("transmit", 10, 5),
    ("transmit", 5, 10),
    ("remove", 5, 10),
    ("transmit", 5, 10),
    ("deliver", 7, -1),
    ("return", 1, 7),
    ("broadcast", 10, -1),
    ("deliver", 10, -1),
    ("return", 10, 6),
    ("report", 0, -1),
    ("transmit", 0, 7),
]
"""p7:3 waits at p0 when p7 admits p13. p13 took it for given there, and its process did not name it."""

REPORT_BEHIND_WHAT_WAITS: list[ScheduleEvent] = [
    ("join", 8, 5),
    ("transmit", 8, 5),
    ("join", 7, 3),
    ("broadcast", 4, -1),
    ("transmit", 7, 3),
    ("transmit", 3, 2),
    ("transmit", 4, 5),
    ("join", 9, 2),
    ("transmit", 3, 7),
    ("transmit", 9, 2),
    ("deliver", 5, -1),
    ("remove", 2, 9),
    ("transmit", 2, 3),
    ("broadcast", 7, -1),
    ("transmit", 7, 3),
    ("transmit", 2, 3),
    ("transmit", 7, 2),
    ("deliver", 3, -1),
    ("transmit", 3, 2),
    ("deliver", 2, -1),
    ("deliver", 2, -1),
    ("broadcast", 2, -1),
]
"""p7:1 waits at p3 when p3 reports what it holds of p9. p2:4 follows that report, and was given before
p7:1."""

NOBODY_LEFT_TO_ADMIT_IT: list[ScheduleEvent] = [
    ("join", 8, 3),
    ("transmit", 8, 3),
    ("transmit", 3, 8),
    ("join", 7, 8),
    ("broadcast", 8, -1),
    ("broadcast", 0, -1),
    ("leave", 8, -1),
    ("crash", 4, 0),
    ("crash", 6, 0),
]
"""p7 asks to join a group that has no members any more. p5, of the same process, waited for p7's snapshot."""

SPONSORS_WAIT_IN_A_CIRCLE: list[ScheduleEvent] = [
    ("join", 10, 5),
    ("broadcast", 4, -1),
    ("broadcast", 0, -1),
    ("transmit", 0, 1),
    ("broadcast", 4, -1),
    ("transmit", 4, 5),
    ("broadcast", 7, -1),
    ("broadcast", 5, -1),
    ("broadcast", 3, -1),
    ("broadcast", 4, -1),
    ("broadcast", 1, -1),
    ("deliver", 1, -1),
    ("broadcast", 0, -1),
    ("transmit", 0, 1),
    ("deliver", 1, -1),
    ("deliver", 5, -1),
    ("transmit", 4, 5),
    ("join", 9, 6),
    ("broadcast", 7, -1),
    ("broadcast", 0, -1),
    ("crash", 6, 99),
    ("deliver", 5, -1),
    ("transmit", 4, 5),
    ("join", 8, 3),
    ("deliver", 5, -1),
    ("broadcast", 5, -1),
]
"""Three processes each join the group that the two others are in, and each holds what the snapshot that it
waits for may lack. So none of them could admit another."""

REFUSES_A_SNAPSHOT: list[ScheduleEvent] = [
    ("join", 10, 5),
    ("join", 9, 6),
    ("transmit", 9, 6),
    ("remove", 1, 6),
    ("broadcast", 5, -1),
    ("transmit", 1, 6),
    ("transmit", 6, 0),
    ("broadcast", 6, -1),
    ("transmit", 1, 0),
    ("deliver", 0, -1),
    ("broadcast", 1, -1),
    ("report", 3, -1),
    ("broadcast", 2, -1),
    ("freeze", 1, -1),
    ("transmit", 2, 3),
    ("deliver", 3, -1),
    ("report", 4, -1),
    ("deliver", 3, -1),
]
"""p9 has waited for long, and its process was given p2:1, which follows p6:2. So it refuses the snapshot
of p6, which has been removed; p0 and p1 wait for p9's report on that."""

GIVEN_BACK_TOO_LATE: list[ScheduleEvent] = [
    ("join", 5, 0),
    ("transmit", 5, 0),
    ("transmit", 0, 1),
    ("report", 0, -1),
    ("transmit", 0, 5),
    ("transmit", 0, 5),
    ("transmit", 0, 1),
    ("deliver", 1, -1),
    ("transmit", 1, 5),
    ("report", 5, -1),
    ("transmit", 5, 1),
    ("transmit", 5, 0),
    ("remove", 1, 0),
    ("transmit", 1, 5),
    ("transmit", 1, 5),
    ("deliver", 5, -1),
    ("broadcast", 0, -1),
    ("transmit", 5, 1),
    ("transmit", 0, 5),
    ("transmit", 5, 0),
    ("deliver", 1, -1),
    ("return", 0, 1),
    ("transmit", 6, 1),
    ("transmit", 1, 6),
    ("remove", 4, 3),
    ("transmit", 6, 1),
    ("transmit", 6, 1),
    ("transmit", 4, 3),
    ("deliver", 1, -1),
    ("deliver", 3, -1),
    ("return", 3, 4),
    ("transmit", 7, 4),
    ("transmit", 4, 7),
    ("broadcast", 7, -1),
]
"""p0 and p4 are one process, which returns as p6 and brings back p0:2. p7:2 follows the copy: p4 was given it
while p6 still had the copy to give."""

ADMITTED_BY_ONE_THAT_CRASHED: list[ScheduleEvent] = [
    ("join", 10, 5),
    ("join", 9, 6),
    ("transmit", 9, 6),
    ("broadcast", 5, -1),
    ("transmit", 6, 0),
    ("broadcast", 6, -1),
    ("broadcast", 1, -1),
    ("report", 3, -1),
    ("broadcast", 2, -1),
    ("freeze", 1, -1),
    ("transmit", 2, 3),
    ("deliver", 3, -1),
    ("report", 4, -1),
    ("crash", 2, 0),
]
"""p6 admits p9, broadcasts p6:2 and crashes. p9 is not welcomed, and asks p0, too. p0 waits until it is known
where p6's stream ends: for a report of the member at p9's first address."""


def violations(
    kind: type[ChangingMultigroup], founders: int, size: int, schedule: list[ScheduleEvent]
) -> list[str]:
    world = replay(kind, founders, size, schedule)
    return schedule_type(kind).of_world(world).oracle().violations()


COUNTS_ON_AN_ATTEMPT_THAT_REFUSED: list[ScheduleEvent] = [
    ("join", 6, 0),
    ("transmit", 6, 0),
    ("transmit", 0, 6),
    ("join", 5, 4),
    ("broadcast", 4, -1),
    ("broadcast", 0, -1),
    ("ask", 5, 2),
    ("transmit", 7, 2),
    ("transmit", 0, 6),
    ("deliver", 6, -1),
    ("ask", 7, 2),
    ("report", 6, -1),
    ("report", 6, -1),
    ("deliver", 6, -1),
    ("transmit", 2, 7),
    ("report", 6, -1),
    ("report", 6, -1),
]
"""p5, p7 and p8 are attempts of one process. p7 has refused a snapshot, and gets no other. p8 was given up
all the same, for the later attempt that it took p7 for."""

LOST_AGAIN: list[ScheduleEvent] = [
    ("remove", 7, 1),
    ("transmit", 7, 1),
    ("transmit", 7, 6),
    ("transmit", 7, 0),
    ("remove", 4, 8),
    ("deliver", 6, -1),
    ("transmit", 6, 0),
    ("transmit", 4, 8),
    ("deliver", 0, -1),
    ("transmit", 0, 7),
    ("deliver", 8, -1),
    ("return", 8, 4),
    ("broadcast", 1, -1),
    ("deliver", 1, -1),
    ("return", 1, 6),
    ("transmit", 7, 6),
    ("transmit", 7, 0),
    ("transmit", 10, 6),
    ("transmit", 6, 7),
    ("transmit", 0, 6),
    ("deliver", 6, -1),
    ("transmit", 6, 0),
    ("deliver", 0, -1),
    ("transmit", 6, 10),
    ("remove", 6, 10),
    ("remove", 0, 10),
    ("transmit", 6, 7),
    ("deliver", 10, -1),
    ("transmit", 0, 7),
    ("deliver", 7, -1),
    ("broadcast", 3, -1),
]
"""p1:1 is lost, and p10 brings it back and is removed before anybody else has the copy. So p2 is given p3:1,
which follows that copy, and p7, of the same process, is given p1:1 when p12 brings it back once more. The
members were right: nobody can wait for a message that nobody may ever bring back."""


@pytest.mark.parametrize(
    ("name", "founders", "size", "schedule"),
    [
        ("KeepsRemovalsToItsGroup", 5, 7, REMOVED_AND_DOES_NOT_KNOW),
        ("KeepsRemovalsToItsGroup", 8, 11, HEARS_OF_IT_THROUGH_OTHERS),
        ("NamesOnceInACopy", 10, 12, NAMED_BY_A_COPY),
        ("StartsWithoutWhatWaits", 9, 13, WAITS_WHERE_SOMEBODY_STARTS),
        ("ReportsAheadOfWhatWaits", 7, 10, REPORT_BEHIND_WHAT_WAITS),
        ("WaitsForItsAdmission", 6, 9, NOBODY_LEFT_TO_ADMIT_IT),
        ("WaitsForItsAdmission", 8, 11, SPONSORS_WAIT_IN_A_CIRCLE),
        ("TakesAnySnapshot", 8, 11, REFUSES_A_SNAPSHOT),
        ("RefusesQuietly", 8, 11, REFUSES_A_SNAPSHOT),
        ("CopiesCountAsGiven", 5, 6, GIVEN_BACK_TOO_LATE),
        ("WaitsAtEveryAddress", 8, 11, ADMITTED_BY_ONE_THAT_CRASHED),
        ("CountsOnWhoRefused", 5, 7, COUNTS_ON_AN_ATTEMPT_THAT_REFUSED),
    ],
)
def test_formerly_failing_schedules_pass_and_fail_without_the_rule(
    name: str, founders: int, size: int, schedule: list[ScheduleEvent]
) -> None:
    assert violations(ChangingMultigroup, founders, size, schedule) == []
    assert violations(getattr(broken_groups, name), founders, size, schedule) != []


@pytest.mark.parametrize(("founders", "size", "schedule"), [(9, 9, LOST_AGAIN)])
def test_a_lost_copy_is_not_awaited_but_a_surviving_one_is(
    founders: int, size: int, schedule: list[ScheduleEvent]
) -> None:
    assert violations(ChangingMultigroup, founders, size, schedule) == []
    kept = [each for each in schedule if each not in (("remove", 6, 10), ("remove", 0, 10))]
    assert violations(ChangingMultigroup, founders, size, kept) == []
    found = violations(broken_groups.NamesNothing, founders, size, kept)
    assert found == ["p7 delivers p1:1 after what it precedes"]
