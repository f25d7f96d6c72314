"""What can happen in a group."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from antecede.check.processes import ProcessStep


class EventKind(IntEnum):
    """What can happen. The faults are from `REPEAT` on."""

    RECEIVE = 0
    DELIVER = 1
    BROADCAST = 2
    WAKE = 3
    TICK = 4
    """Time advances."""
    REPEAT = 5
    """A packet is received, and will be received once more."""
    LOSE = 6
    CRASH = 7
    OPEN = 8
    CLOSE = 9


Event = tuple[int, int, int, "ProcessStep | None"]
"""Its kind, the process, what it concerns (a packet, the group of a broadcast, or the other end of a link),
and its effect on the process."""
