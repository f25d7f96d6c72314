"""What the calm kernel keeps: a group of members with one view, their messages and reports, in arrays.

Members have *places* in the order of their streams. Only retained messages are ever freed: when an array is
full, the group is handed back to the reference and taken over anew, which leaves out what is no longer
needed.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from antecede.membership.failure_detection import WINDOW

NEVER = 1 << 62

# Why compiled code returns.
DONE, BLOCKED, FULL, SHOW = range(4)

# Kinds of packets in flight, in the low bits of an item.
MESSAGE, REPORT, OTHER, KIND_BITS = 0, 1, 2, 2

# Kinds of alarms, in their order at one instant.
SEND_ALARM, REPORT_ALARM = range(2)

ADDRESS_BITS, NUMBER_BITS = 20, 23
"""Bits of a process, and of a packet's number on its link, in the key that orders arrivals of one instant."""

# Indices in `CalmState.scalars`.
(
    NOW, ARRIVALS, ALARMS, MESSAGES_LEFT, ROWS, EVENTS, IS_FULL,
    MESSAGES_USED, CAUSES_USED, UNMET_USED, REPORTS_USED, PENDING_USED, ENTRIES_USED, FREE_ENTRY, STAMPS,
    PACKETS, LINK_BYTES, CONTROL, CONTROL_MAX, PAPER, PAPER_MAX,
    DELIVERIES, LATENCY, LATENCY_MAX, HELD, HOLD, REPORT_PACKETS, REPORT_BYTES, SCALARS,
) = range(29)  # fmt: skip

# Tables of pairs: a member, and another or its stream.
(
    DELIVERED, RECEIVED, AWAITED, NAMED, LINK_SENT, LINK_LAST, CLUSTER,
    KNOWN, REPORTED, LACKED, BLOCKER, PENDING_FIRST, PENDING_LAST,
    HEARD_AT, REPORTED_AT, SUSPECTED_AT, INTERVALS,
    ENTRY_FIRST, ENTRY_LAST, ENTRY_NEXT, WAITING_FIRST, WAITING_LAST, DUTY_STAMP, STABLE, PAIR_TABLES,
) = range(25)  # fmt: skip
"""`NAMED` is what the next message names; `KNOWN` and `REPORTED` are rows of reports: of the last one that
has taken effect, and of the last one; `ENTRY_NEXT` is the first message that is not delivered; `DUTY_STAMP`
is when a member began to have duties for a stream, as an order; `STABLE` is how far all members have
delivered, and -1 while that is not known."""

# Columns of members.
(
    ADDRESS, DOWN_UNTIL, SINCE, SENDS, BROADCASTS, IS_SILENT, ARRIVED, PLACED, REPORTS, CHECKED, RETAINED,
    ID_BYTES, MESSAGE_BASE, REPORT_BASE, ROUTES_BEGIN, ROUTES_END, MEMBER_COLUMNS,
) = range(17)  # fmt: skip

# Columns of messages.
ORIGIN, SEQ, CAUSES_BEGIN, CAUSES_END, SENT_AT, SIZE, MESSAGE_COLUMNS = range(7)

# Columns of retained messages: at one member, in a chain for each stream.
(
    ITEM, ARRIVAL_NUMBER, PLACE, TIME, DUTY, AFTER,
    WAITING_AFTER, UNMET_BEGIN, UNMET_END, AWAITS_SEQ, STAMP, ENTRY_COLUMNS,
) = range(12)  # fmt: skip
"""`STAMP` orders entries by when a member began to wait for what the entry waits for."""

QUARTER_MESSAGES, QUARTER_CONTROL, QUARTER_LINK_BYTES, QUARTER_COLUMNS = range(4)


class CalmRules(NamedTuple):
    """What does not change in a run."""

    workload: tuple[int, int, int, int, int]
    phase: Any
    late: Any
    link_key: Any
    delay: tuple[int, int, int, int]
    until: int
    settled_by: int
    """The latest time until which members report."""
    interval: int
    """Of reports."""
    detects: bool
    remove: int
    """The time after which a suspected member is removed; -1 if never."""
    relays: bool
    """Whether members forward messages along their routes."""
    has_causes: bool
    drops_causes: bool
    """Whether a delivered message replaces its causes, as in `mbcp`."""
    by_cluster: bool
    """Whether routes are those of `vcube`: a member serves clusters below that of the link."""
    paper_base: int
    paper_cause: int


class CalmState(NamedTuple):
    """A group while its view does not change."""

    scalars: np.ndarray
    pairs: np.ndarray
    members: np.ndarray
    """The members of the view, then processes that are down for good and whose sends have no effect."""
    place_at: np.ndarray
    """By address; -1 if the process takes no part."""
    arrivals: np.ndarray
    alarms: np.ndarray
    messages: np.ndarray
    causes: np.ndarray
    unmet: np.ndarray
    reports: np.ndarray
    """What the sender of each report had delivered of each stream; -1 where it named no count."""
    pending: np.ndarray
    """Reports that have not taken effect, linked in lists."""
    entries: np.ndarray
    ready: np.ndarray
    intervals: np.ndarray
    """The last intervals between reports, for each pair."""
    routes: np.ndarray
    """The destinations to which messages are forwarded, each with its cluster."""
    cuts: np.ndarray
    """Partitions: begin and end."""
    sides: np.ndarray
    """For each partition and address, whether it is cut off."""
    quarters: np.ndarray
    rows: np.ndarray


class Capacities(NamedTuple):
    """The room in each array before the group is handed back. Memory is used only once it is touched."""

    messages: int = 1 << 20
    causes: int = 1 << 22
    reports: int = 1 << 24
    entries: int = 1 << 22
    arrivals: int = 1 << 22


def create_state(
    size: int, processes: int, addresses: int, cuts: int, rows: int, room: Capacities
) -> CalmState:
    """Arrays for a group of `size` members. Everything is absent, as -1, or 0."""
    pairs = np.full((PAIR_TABLES, size, size), -1, np.int64)
    for table in (DELIVERED, RECEIVED, AWAITED, NAMED, LINK_SENT, LINK_LAST, CLUSTER, BLOCKER, INTERVALS):
        pairs[table] = 0
    scalars = np.zeros(SCALARS, np.int64)
    scalars[FREE_ENTRY] = -1
    return CalmState(
        scalars=scalars,
        pairs=pairs,
        members=np.zeros((processes, MEMBER_COLUMNS), np.int64),
        place_at=np.full(addresses, -1, np.int64),
        arrivals=np.empty((room.arrivals, 3), np.int64),
        alarms=np.empty((4 * processes + 16, 3), np.int64),
        messages=np.empty((room.messages, MESSAGE_COLUMNS), np.int64),
        causes=np.empty((room.causes, 2), np.int64),
        unmet=np.empty((room.causes, 2), np.int64),
        reports=np.empty((max(4 * size * size, room.reports // max(1, size)), size), np.int64),
        pending=np.empty((room.messages, 2), np.int64),
        entries=np.empty((room.entries, ENTRY_COLUMNS), np.int64),
        ready=np.empty(room.entries, np.int64),
        intervals=np.zeros((size, size, WINDOW), np.int64),
        routes=np.zeros((size * 64, 2), np.int64),
        cuts=np.zeros((cuts, 2), np.int64),
        sides=np.zeros((cuts, addresses), np.bool_),
        quarters=np.zeros((4, QUARTER_COLUMNS), np.int64),
        rows=np.empty((rows, 7), np.int64),
    )
