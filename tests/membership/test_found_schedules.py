"""Schedules in which changing groups once went wrong, as `verify --membership` shrank them."""

from __future__ import annotations

import pytest

from antecede.check.changing.kinds import schedule_type
from antecede.check.changing.shrink import replay
from antecede.check.changing.world import ScheduleEvent
from antecede.membership.catalog import CHANGING

DROPPED_BEYOND_A_GAP: list[ScheduleEvent] = [
    ("join", 6, 0),
    ("transmit", 6, 0),
    ("join", 8, 4),
    ("transmit", 0, 2),
    ("transmit", 0, 4),
    ("cut", 4, 1),
    ("remove", 3, 0),
    ("transmit", 2, 3),
    ("transmit", 8, 4),
    ("join", 7, 3),
    ("transmit", 4, 5),
    ("deliver", 3, -1),
    ("deliver", 4, -1),
    ("transmit", 3, 1),
    ("broadcast", 3, -1),
    ("report", 0, -1),
    ("transmit", 4, 0),
    ("transmit", 0, 6),
    ("transmit", 1, 0),
    ("transmit", 7, 3),
    ("transmit", 0, 6),
    ("suspect", 3, 6),
    ("deliver", 0, -1),
    ("remove", 1, 5),
    ("remove", 3, 4),
    ("broadcast", 4, -1),
]
"""p6 forwards p4:2 to p7, holds it beyond a gap, and drops it when p4 is removed: it reported less than p7
had from it, and p4's stream ended before p4:2 for some and after it for others."""

EVERYONE_LEAVES: list[ScheduleEvent] = [
    ("leave", 2, -1),
    ("join", 4, 0),
    ("transmit", 4, 0),
    ("broadcast", 1, -1),
    ("leave", 0, -1),
    ("leave", 1, -1),
]
"""All founders leave. p4, admitted last by p0, asks p1 for a link, which has left and does not know p4."""

REMOVED_WITHOUT_KNOWING: list[ScheduleEvent] = [("remove", 2, 1), ("broadcast", 2, -1), ("crash", 0, 2)]
"""p1 is removed but not informed, because p0, which was to forward the notice, crashes."""

REPORTS_AFTER_IT_IS_FORGOTTEN: list[ScheduleEvent] = [
    ("join", 3, 1),
    ("transmit", 3, 1),
    ("join", 2, 1),
    ("transmit", 1, 0),
    ("deliver", 0, -1),
    ("ask", 2, 0),
    ("transmit", 5, 0),
    ("transmit", 0, 5),
    ("cut", 0, 5),
    ("leave", 5, -1),
]
"""p5 has left before its admission was stable, and still reports when p0, its sponsor, has forgotten
it."""

LEAVES_WITHOUT_BEING_ADMITTED: list[ScheduleEvent] = [
    ("remove", 2, 1),
    ("join", 4, 1),
    ("transmit", 4, 1),
    ("ask", 4, 2),
    ("remove", 0, 1),
    ("join", 5, 0),
    ("transmit", 1, 4),
    ("transmit", 1, 4),
    ("ask", 5, 4),
    ("transmit", 7, 4),
    ("transmit", 4, 7),
    ("transmit", 4, 7),
    ("leave", 7, -1),
]
"""p7, whose admission is lost with its sponsor's, sends its farewell to p0, which then refuses it."""

ASKS_FOR_A_LINK_AND_IS_NEVER_ADMITTED: list[ScheduleEvent] = [
    ("join", 7, 3),
    ("remove", 2, 3),
    ("transmit", 7, 3),
    ("transmit", 3, 7),
    ("transmit", 3, 7),
    ("join", 5, 7),
    ("transmit", 5, 7),
    ("remove", 7, 5),
    ("remove", 1, 3),
]
"""p5 asks p2 for a link, and hears from p7 that it is removed before it reports. p2 never knows p5, whose
sponsor p7 is lost with p3, and kept its request for ever."""

ITS_SPONSOR_WAS_NEVER_ADMITTED: list[ScheduleEvent] = [
    *[("cut", 3, each) for each in (0, 1, 2, 4)],
    ("join", 7, 3),
    ("transmit", 7, 3),
    ("transmit", 3, 7),
    ("transmit", 3, 7),
    ("join", 5, 7),
    ("transmit", 5, 7),
    ("transmit", 7, 5),
    ("broadcast", 5, -1),
    ("crash", 7, 0),
    ("remove", 0, 3),
]
"""p3's admission of p7 is lost, and p7 crashes after it has admitted p5. Nobody else has ever heard of p7,
so nobody could tell p5 that it is not a member."""

REPORTS_AFTER_ITS_SPONSOR_IS_FORGOTTEN: list[ScheduleEvent] = [
    ("join", 3, 1),
    ("transmit", 3, 1),
    ("transmit", 1, 3),
    ("leave", 3, -1),
    ("transmit", 3, 0),
    ("cut", 0, 3),
    ("leave", 1, -1),
]
"""p3 has left, and its report reaches p0 when p3 and p1, its sponsor, are forgotten there: p0 took p3 for
a member whose admission is on its way."""

REMOVED_WHILE_LEAVING: list[ScheduleEvent] = [("leave", 3, -1), ("leave", 2, -1), ("remove", 0, 3)]
"""p3 has left when it is removed. p2 has gone, so only p0 and p1 can tell p3 that p2 needs nothing more."""

REPORTS_AND_IS_NEVER_ADMITTED: list[ScheduleEvent] = [
    ("cut", 0, 3),
    ("cut", 1, 3),
    ("cut", 4, 3),
    ("remove", 4, 2),
    ("remove", 0, 3),
    ("cut", 2, 0),
    ("transmit", 4, 1),
    ("transmit", 1, 0),
]
"""p3 is removed, and admits p2 without knowing that. p2 sends p4 its report on removed streams, learns
from others that it is no member, and sends nothing else. p4 held the report for ever."""

LEAVES_WITH_WHAT_IT_HAS_NOT_DELIVERED: list[ScheduleEvent] = [
    ("remove", 3, 2),
    ("broadcast", 2, -1),
    ("transmit", 3, 1),
    ("transmit", 2, 0),
    ("leave", 0, -1),
    ("deliver", 1, -1),
    ("transmit", 1, 3),
    ("broadcast", 1, -1),
    ("transmit", 0, 3),
    ("transmit", 3, 0),
    ("transmit", 0, 3),
    ("deliver", 3, -1),
]
"""p0 has forwarded p2:1 to p1, and leaves before it delivers it. Asked for a link by p3 it sent its
departure, and not p2:1 ahead of it. So p3 decided without it where the stream of p2, which is removed,
ends; p1 did not."""

BROUGHT_BACK_IN_ORDER_OF_ARRIVAL: list[ScheduleEvent] = [
    ("broadcast", 3, -1),
    ("broadcast", 3, -1),
    ("cut", 3, 1),
    ("broadcast", 3, -1),
    ("remove", 0, 3),
    ("join", 4, 3),
    ("join", 5, 3),
    ("broadcast", 3, -1),
    ("transmit", 4, 3),
    ("transmit", 3, 4),
    ("transmit", 3, 4),
    ("cut", 3, 2),
    ("transmit", 5, 3),
    ("broadcast", 4, -1),
    ("transmit", 3, 5),
    ("transmit", 4, 3),
    ("deliver", 3, -1),
    ("broadcast", 3, -1),
    ("transmit", 3, 5),
    ("transmit", 3, 4),
    ("deliver", 4, -1),
    ("transmit", 4, 5),
    ("deliver", 5, -1),
    ("deliver", 5, -1),
    ("join", 6, 5),
]
"""p5 receives p3:7 before p4:1, which precedes it, and admits p6. When p6, which is never admitted by
others, returns as p9, it brought them back in that order."""

FORWARDED_BY_ONE_THAT_LEAVES: list[ScheduleEvent] = [
    ("broadcast", 5, -1),
    ("leave", 3, -1),
    ("transmit", 5, 1),
    ("remove", 0, 5),
    ("remove", 4, 5),
    ("transmit", 0, 2),
    ("transmit", 0, 2),
    ("broadcast", 5, -1),
    ("cut", 0, 4),
    ("broadcast", 2, -1),
    ("leave", 1, -1),
    ("cut", 0, 2),
]
"""p1 forwards p5:1 to p0, and leaves before it delivers p5:1 or hears that p5 is removed. p0 had reported
that it holds nothing of p5, so p5's stream ended in two places."""

ITS_SPONSOR_FORGETS_A_STREAM_AND_IS_REMOVED: list[ScheduleEvent] = [
    ("join", 2, 0),
    ("transmit", 2, 0),
    ("transmit", 0, 1),
    ("transmit", 0, 2),
    ("transmit", 0, 2),
    ("transmit", 2, 0),
    ("leave", 2, -1),
    ("transmit", 2, 0),
    ("transmit", 0, 1),
    ("deliver", 1, -1),
    ("deliver", 0, -1),
    ("report", 0, -1),
    ("transmit", 0, 1),
    ("report", 1, -1),
    ("transmit", 1, 0),
    ("join", 3, 0),
    ("transmit", 3, 0),
    ("transmit", 0, 1),
    ("deliver", 1, -1),
    ("transmit", 0, 3),
    ("remove", 1, 3),
    ("transmit", 0, 3),
    ("report", 3, -1),
    ("join", 4, 3),
]
"""p3, which p1 has removed, forgets p2's stream and admits p4. Nobody accepts a report of p3 any more, and p4
never mentions p2."""

SWITCHED_OFF_BEFORE_IT_HAS_GONE: list[ScheduleEvent] = [
    ("join", 4, 0),
    ("transmit", 4, 0),
    ("transmit", 0, 4),
    ("transmit", 0, 4),
    ("join", 2, 4),
    ("broadcast", 4, -1),
    ("transmit", 2, 4),
    ("transmit", 4, 2),
    ("transmit", 4, 2),
    ("join", 3, 2),
    ("transmit", 3, 2),
    ("transmit", 2, 3),
    ("transmit", 3, 2),
    ("broadcast", 3, -1),
    ("transmit", 3, 2),
    ("broadcast", 3, -1),
    ("leave", 3, -1),
    ("crash", 3, 0),
    ("crash", 4, 0),
]
"""p3 leaves. Its sponsor p2 was never admitted, and p3 crashes before anybody has what it sent last."""

HEARS_OF_ITS_SPONSOR_AFTER_LEAVING: list[ScheduleEvent] = [
    ("leave", 2, -1),
    ("join", 5, 3),
    ("join", 4, 3),
    ("join", 6, 1),
    ("transmit", 4, 3),
    ("ask", 6, 0),
    ("leave", 3, -1),
    ("freeze", 1, -1),
    ("transmit", 3, 4),
    ("transmit", 3, 4),
    ("deliver", 4, -1),
    ("ask", 6, 0),
    ("remove", 0, 3),
    ("ask", 5, 4),
    ("transmit", 9, 4),
    ("transmit", 4, 9),
    ("leave", 4, -1),
    ("transmit", 4, 9),
    ("deliver", 9, -1),
    ("leave", 9, -1),
]
"""p9 and its sponsor p4 have left, and p0 knows neither. p2 and p3, which have left too, tell p9 of p4 as one
that may need its messages. p9 took it for a member that everybody knows and did not say who had admitted it,
so p0 took p9 for one that is forgotten, and p9 went."""

HEARS_THAT_ITS_SPONSOR_ENDED_BEFORE: list[ScheduleEvent] = [
    ("remove", 3, 2),
    ("broadcast", 3, -1),
    ("transmit", 3, 1),
    ("transmit", 1, 0),
    ("deliver", 1, -1),
    ("join", 6, 2),
    ("transmit", 6, 2),
    ("transmit", 1, 0),
    ("transmit", 3, 0),
    ("join", 4, 2),
    ("broadcast", 2, -1),
    ("transmit", 3, 2),
    ("transmit", 4, 2),
    ("broadcast", 1, -1),
    ("broadcast", 0, -1),
    ("transmit", 2, 4),
    ("broadcast", 4, -1),
    ("broadcast", 0, -1),
    ("deliver", 0, -1),
    ("report", 4, -1),
    ("broadcast", 0, -1),
    ("leave", 0, -1),
    ("broadcast", 3, -1),
    ("broadcast", 1, -1),
    ("deliver", 4, -1),
]
"""p2, which is removed, admits p4 and p6. p0, which has left, tells them that p2's stream ended at 0, and
they dropped p2:2, which they had delivered. They brought back p4:1 without it."""

REPORTS_AHEAD_OF_ITS_FIRST_MESSAGE: list[ScheduleEvent] = [
    ("remove", 0, 2),
    ("transmit", 0, 3),
    ("transmit", 3, 2),
    ("cut", 3, 2),
    ("join", 6, 2),
    ("transmit", 6, 2),
    ("transmit", 2, 6),
    ("remove", 2, 6),
    ("transmit", 2, 6),
    ("broadcast", 6, -1),
]
"""p6 is admitted by p2, which is removed, and reports on p2 to everyone. Its first message, which names its
admission, goes down a tree, in which p1 refuses it. So p0 and p3 had the report alone, and held it."""

HEARS_WHERE_ITS_SPONSOR_ENDED: list[ScheduleEvent] = [
    ("remove", 3, 2),
    ("transmit", 3, 1),
    ("transmit", 1, 0),
    ("deliver", 1, -1),
    ("transmit", 1, 0),
    ("transmit", 3, 0),
    ("join", 4, 2),
    ("broadcast", 2, -1),
    ("remove", 1, 3),
    ("deliver", 0, -1),
    ("leave", 0, -1),
]
"""p2 is removed and does not know it, broadcasts p2:1 and admits p4. p0 has decided that p2's stream ends
before, and leaves; p1 removes p3 and never has a quorum. So nobody told p4 that it is no member. It took p2's
stream for ended where p0 says, and p2:1 for lost: p2 returned with that, and p4 was given it twice."""

KNOWS_OF_A_QUORUM_ALONE: list[ScheduleEvent] = [
    ("leave", 2, -1),
    ("join", 4, 3),
    ("join", 6, 1),
    ("transmit", 4, 3),
    ("ask", 6, 0),
    ("leave", 3, -1),
    ("transmit", 3, 4),
    ("remove", 4, 1),
]
"""p4 reports on p1, which it removes, when it does not know p7 yet. p7 alone knows that p4's admission and
its own were stable before; so it alone has a quorum. It lacked p4's report, which is in no stream."""

ASKS_ONE_THAT_LEFT_FOR_A_LINK: list[ScheduleEvent] = [
    ("remove", 3, 2),
    ("transmit", 3, 1),
    ("deliver", 1, -1),
    ("transmit", 1, 0),
    ("transmit", 3, 0),
    ("join", 4, 2),
    ("transmit", 4, 2),
    ("broadcast", 0, -1),
    ("transmit", 0, 3),
    ("transmit", 0, 1),
    ("transmit", 1, 0),
    ("transmit", 0, 3),
    ("transmit", 3, 0),
    ("deliver", 0, -1),
    ("deliver", 1, -1),
    ("deliver", 3, -1),
    ("report", 1, -1),
    ("report", 3, -1),
    ("transmit", 3, 0),
    ("transmit", 1, 0),
    ("leave", 0, -1),
]
"""p2 is removed and does not know it, and admits p4. p4 asks p0 for a link, which has left. What p4 lacked of
p0 was stable without p2; p0 sent the rest."""

FAREWELL_OF_A_STRANGER: list[ScheduleEvent] = [
    ("join", 5, 0),
    ("transmit", 5, 0),
    ("transmit", 0, 5),
    ("leave", 5, -1),
    ("transmit", 5, 2),
    ("crash", 0, 0),
    ("crash", 5, 0),
]
"""p0 admits p5, which leaves, and both crash. All that p2 ever has of p5 is its farewell, which does not say
who has admitted it: p2 remembered it for ever."""

HAS_REMOVED_ALL_OTHERS: list[ScheduleEvent] = [
    ("join", 4, 3),
    ("join", 5, 1),
    ("leave", 2, -1),
    ("broadcast", 3, -1),
    ("remove", 0, 3),
    ("remove", 0, 1),
    ("join", 6, 3),
    ("remove", 3, 0),
    ("remove", 1, 0),
]
"""p0 removes all whom it knows, and they remove it. They go on without it. It accepts nothing from them, so
nobody can tell it, and it waits for a quorum: a person has to decide. The oracle expected p0 to have p3:1."""


FORWARDED_BY_STRANGERS: list[ScheduleEvent] = [
    ("join", 4, 0),
    ("join", 5, 0),
    ("transmit", 5, 0),
    ("transmit", 4, 0),
    ("transmit", 0, 1),
    ("transmit", 0, 2),
    ("transmit", 0, 4),
    ("transmit", 0, 5),
    ("transmit", 0, 1),
    ("transmit", 0, 2),
    ("transmit", 0, 5),
    ("deliver", 1, -1),
    ("transmit", 1, 5),
    ("broadcast", 1, -1),
    ("broadcast", 1, -1),
    ("join", 8, 1),
    ("report", 1, -1),
    ("transmit", 0, 5),
    ("transmit", 1, 0),
    ("transmit", 8, 1),
    ("transmit", 1, 5),
    ("transmit", 1, 4),
    ("transmit", 1, 2),
    ("transmit", 1, 4),
    ("transmit", 1, 8),
    ("transmit", 1, 0),
    ("transmit", 1, 4),
    ("transmit", 1, 2),
    ("transmit", 1, 2),
    ("transmit", 1, 4),
    ("deliver", 4, -1),
    ("deliver", 4, -1),
    ("deliver", 5, -1),
    ("transmit", 1, 4),
    ("transmit", 1, 2),
    ("join", 6, 5),
    ("broadcast", 4, -1),
    ("join", 7, 8),
    ("transmit", 7, 8),
    ("transmit", 1, 0),
    ("transmit", 8, 4),
    ("transmit", 8, 1),
    ("transmit", 1, 2),
    ("transmit", 8, 7),
    ("deliver", 0, -1),
    ("deliver", 1, -1),
    ("deliver", 2, -1),
    ("deliver", 2, -1),
    ("deliver", 4, -1),
    ("transmit", 4, 7),
    ("transmit", 1, 7),
    ("transmit", 4, 7),
    ("transmit", 4, 7),
    ("leave", 0, -1),
    ("remove", 1, 5),
    ("transmit", 0, 4),
    ("transmit", 1, 2),
    ("transmit", 0, 2),
    ("transmit", 0, 1),
    ("transmit", 1, 7),
    ("deliver", 2, -1),
    ("deliver", 7, -1),
    ("transmit", 4, 8),
    ("transmit", 7, 0),
    ("transmit", 2, 8),
    ("report", 1, -1),
    ("report", 2, -1),
    ("report", 7, -1),
    ("report", 8, -1),
    ("transmit", 4, 7),
    ("transmit", 7, 4),
    ("transmit", 1, 4),
    ("transmit", 4, 8),
    ("transmit", 2, 8),
    ("transmit", 4, 1),
    ("transmit", 7, 4),
    ("transmit", 2, 1),
    ("transmit", 2, 7),
    ("transmit", 2, 1),
    ("transmit", 2, 7),
    ("deliver", 1, -1),
    ("deliver", 4, -1),
    ("deliver", 7, -1),
    ("deliver", 8, -1),
    ("transmit", 8, 2),
    ("report", 1, -1),
    ("report", 7, -1),
    ("report", 8, -1),
    ("transmit", 7, 1),
    ("transmit", 1, 4),
]
"""p9 returns to p6, whose sponsor p5 was removed: neither was ever admitted, and they do not know. They
forward the departure of p0 to p4, which has forgotten p0 and does not know who they are: it held that for
ever."""


REPORTS_WITHOUT_BEING_ADMITTED: list[ScheduleEvent] = [
    ("cut", 0, 3),
    ("remove", 4, 2),
    ("remove", 0, 3),
    ("transmit", 4, 1),
    ("transmit", 1, 0),
    ("transmit", 4, 2),
    ("transmit", 0, 1),
    ("transmit", 4, 1),
    ("transmit", 0, 4),
    ("transmit", 4, 0),
    ("transmit", 1, 4),
    ("transmit", 0, 4),
    ("transmit", 0, 1),
    ("transmit", 4, 1),
    ("transmit", 4, 0),
    ("transmit", 0, 4),
    ("transmit", 0, 4),
    ("deliver", 0, -1),
    ("deliver", 1, -1),
    ("deliver", 4, -1),
    ("transmit", 1, 0),
    ("transmit", 0, 4),
    ("transmit", 4, 0),
    ("transmit", 0, 1),
    ("transmit", 4, 1),
    ("transmit", 1, 4),
    ("transmit", 0, 4),
    ("transmit", 4, 0),
    ("transmit", 1, 0),
    ("transmit", 1, 4),
    ("deliver", 0, -1),
    ("deliver", 1, -1),
    ("deliver", 4, -1),
    ("report", 0, -1),
    ("report", 1, -1),
    ("report", 4, -1),
    ("transmit", 1, 4),
    ("transmit", 4, 1),
    ("transmit", 0, 4),
    ("transmit", 4, 0),
    ("transmit", 1, 0),
    ("transmit", 0, 1),
    ("transmit", 2, 3),
    ("deliver", 2, -1),
    ("deliver", 3, -1),
    ("return", 2, 3),
    ("ask", 8, 4),
    ("report", 0, -1),
    ("report", 1, -1),
    ("report", 4, -1),
    ("transmit", 1, 0),
    ("transmit", 8, 3),
    ("transmit", 9, 4),
    ("transmit", 0, 4),
    ("transmit", 1, 4),
    ("transmit", 3, 8),
    ("transmit", 0, 1),
]
"""p2 returns to p3, which was removed and does not know. It reports on the removed, and its report depends on
p3:1, of a stream that p4 has forgotten: p4 took the report, and remembered it for ever."""


NOBODY_LEFT_TO_HEAR_FROM: list[ScheduleEvent] = [
    ("leave", 0, -1),
    ("join", 6, 2),
    ("remove", 2, 0),
    ("transmit", 6, 2),
    ("transmit", 2, 6),
    ("transmit", 2, 1),
    ("transmit", 6, 2),
    ("transmit", 2, 1),
    ("deliver", 1, -1),
    ("deliver", 2, -1),
    ("transmit", 2, 1),
    ("transmit", 6, 1),
    ("join", 8, 2),
    ("transmit", 8, 2),
    ("transmit", 2, 6),
    ("transmit", 2, 8),
    ("transmit", 2, 1),
    ("transmit", 8, 6),
    ("transmit", 8, 2),
    ("deliver", 1, -1),
    ("deliver", 6, -1),
    ("transmit", 1, 8),
    ("transmit", 6, 8),
    ("transmit", 1, 6),
    ("transmit", 1, 6),
    ("transmit", 1, 2),
    ("remove", 2, 1),
    ("report", 1, -1),
    ("report", 2, -1),
    ("report", 8, -1),
    ("transmit", 8, 2),
    ("transmit", 1, 8),
    ("transmit", 1, 6),
    ("transmit", 2, 1),
    ("transmit", 8, 6),
    ("transmit", 2, 6),
    ("transmit", 2, 8),
    ("transmit", 2, 6),
    ("transmit", 2, 8),
    ("transmit", 2, 8),
    ("transmit", 2, 6),
    ("deliver", 1, -1),
    ("deliver", 6, -1),
    ("deliver", 8, -1),
    ("transmit", 6, 8),
    ("transmit", 8, 2),
    ("transmit", 8, 6),
    ("transmit", 6, 2),
    ("deliver", 2, -1),
    ("deliver", 6, -1),
    ("deliver", 8, -1),
    ("report", 6, -1),
    ("report", 8, -1),
    ("transmit", 8, 2),
    ("transmit", 6, 2),
    ("report", 2, -1),
    ("crash", 2, 1),
]
"""p0 leaves, and all whom it knows are gone: p1 was removed, and p2, which has removed p0, crashes. Only a
person can tell p0. The schedule did not."""

KNOWN_TO_HALF_OF_THEM: list[ScheduleEvent] = [
    ("join", 6, 1),
    ("join", 5, 2),
    ("transmit", 5, 2),
    ("leave", 1, -1),
    ("transmit", 2, 5),
    ("transmit", 2, 0),
    ("join", 3, 0),
    ("transmit", 2, 5),
    ("join", 4, 5),
    ("transmit", 4, 5),
    ("transmit", 3, 0),
    ("transmit", 0, 2),
    ("transmit", 5, 2),
    ("transmit", 5, 2),
    ("leave", 5, -1),
    ("transmit", 2, 0),
    ("deliver", 0, -1),
    ("leave", 2, -1),
    ("remove", 0, 4),
    ("transmit", 0, 3),
    ("report", 0, -1),
    ("report", 0, -1),
    ("report", 3, -1),
    ("report", 0, -1),
]
"""p0 removes p4, which does not know, and admits p7: p0 and p3 have no quorum. The oracle took p7, which they
do not know, for a part of one."""


@pytest.mark.parametrize(
    ("protocol", "founders", "size", "schedule"),
    [
        ("vcube-agg", 6, 9, DROPPED_BEYOND_A_GAP),
        ("pc", 3, 6, EVERYONE_LEAVES),
        ("vcube", 5, 8, REMOVED_WITHOUT_KNOWING),
        ("vcube", 2, 5, REPORTS_AFTER_IT_IS_FORGOTTEN),
        ("vcube", 3, 6, LEAVES_WITHOUT_BEING_ADMITTED),
        ("pc", 5, 8, ASKS_FOR_A_LINK_AND_IS_NEVER_ADMITTED),
        ("mbcp", 5, 8, ITS_SPONSOR_WAS_NEVER_ADMITTED),
        ("pc", 5, 8, ITS_SPONSOR_WAS_NEVER_ADMITTED),
        ("mbcp", 3, 6, REPORTS_AFTER_ITS_SPONSOR_IS_FORGOTTEN),
        ("vcube", 4, 7, REMOVED_WHILE_LEAVING),
        ("pc", 5, 8, REPORTS_AND_IS_NEVER_ADMITTED),
        ("pc", 4, 20, LEAVES_WITH_WHAT_IT_HAS_NOT_DELIVERED),
        ("vcube", 4, 7, BROUGHT_BACK_IN_ORDER_OF_ARRIVAL),
        ("pc", 6, 9, FORWARDED_BY_ONE_THAT_LEAVES),
        ("pc", 2, 5, ITS_SPONSOR_FORGETS_A_STREAM_AND_IS_REMOVED),
        ("vcube", 2, 5, SWITCHED_OFF_BEFORE_IT_HAS_GONE),
        ("mbcp", 4, 7, HEARS_OF_ITS_SPONSOR_AFTER_LEAVING),
        ("pc", 4, 7, HEARS_OF_ITS_SPONSOR_AFTER_LEAVING),
        ("vcube", 4, 7, HEARS_THAT_ITS_SPONSOR_ENDED_BEFORE),
        ("vcube-agg", 4, 7, HEARS_THAT_ITS_SPONSOR_ENDED_BEFORE),
        ("vcube", 4, 7, REPORTS_AHEAD_OF_ITS_FIRST_MESSAGE),
        ("vcube-agg", 4, 7, REPORTS_AHEAD_OF_ITS_FIRST_MESSAGE),
        ("vcube-agg", 4, 7, HEARS_WHERE_ITS_SPONSOR_ENDED),
        ("pc", 4, 7, KNOWS_OF_A_QUORUM_ALONE),
        ("pc", 4, 7, ASKS_ONE_THAT_LEFT_FOR_A_LINK),
        ("pc", 5, 8, FAREWELL_OF_A_STRANGER),
        ("vcube", 5, 8, FAREWELL_OF_A_STRANGER),
        ("timestamp-diff", 4, 7, HAS_REMOVED_ALL_OTHERS),
        ("vcube", 3, 9, FORWARDED_BY_STRANGERS),
        ("pc", 5, 8, REPORTS_WITHOUT_BEING_ADMITTED),
        ("timestamp", 3, 9, NOBODY_LEFT_TO_HEAR_FROM),
        ("pc", 3, 7, KNOWN_TO_HALF_OF_THEM),
    ],
)
def test_formerly_failing_schedules_pass(
    protocol: str, founders: int, size: int, schedule: list[ScheduleEvent]
) -> None:
    kind = CHANGING[protocol]
    world = replay(kind, founders, size, schedule)
    assert schedule_type(kind).of_world(world).oracle().violations() == []
