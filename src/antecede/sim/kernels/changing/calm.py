"""A group whose view does not change, compiled: messages, reports, stability and failure detection.

The twin of `ChangingGroupWorld` and `ChangingMember` for as long as nobody joins, leaves or is removed, no
message is lacking and no suspicion begins. Compiled code inspects an event before processing it, and leaves
any event that may lead to more to the reference.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from antecede.jit import njit_hot, njit_inline, njit_inner
from antecede.membership.failure_detection import WINDOW
from antecede.sim.kernels.changing.messages import (
    ALL_CLUSTERS,
    accept,
    broadcast,
    deliver_all,
    forward,
    retain,
)
from antecede.sim.kernels.changing.reports import find_stable, report, report_needs_reference
from antecede.sim.kernels.changing.sending import append_row
from antecede.sim.kernels.changing.state import (
    ADDRESS,
    ADDRESS_BITS,
    ALARMS,
    ARRIVALS,
    BLOCKED,
    CAUSES_USED,
    CLUSTER,
    DELIVERED,
    DONE,
    DOWN_UNTIL,
    DUTY,
    ENTRIES_USED,
    EVENTS,
    FULL,
    HEARD_AT,
    INTERVALS,
    IS_FULL,
    KIND_BITS,
    KNOWN,
    MESSAGE,
    MESSAGES_USED,
    NEVER,
    NOW,
    NUMBER_BITS,
    ORIGIN,
    OTHER,
    PENDING_FIRST,
    PENDING_LAST,
    PENDING_USED,
    RECEIVED,
    REPORT,
    REPORT_ALARM,
    REPORTED,
    REPORTED_AT,
    REPORTS_USED,
    ROWS,
    SEND_ALARM,
    SENDS,
    SEQ,
    SHOW,
    SINCE,
    SIZE,
    SUSPECTED_AT,
    UNMET_USED,
)
from antecede.sim.kernels.contract import RECEIVED as RECEIVED_ROW
from antecede.sim.kernels.runtime import heap
from antecede.sim.kernels.runtime.counter_rng import extended
from antecede.sim.kernels.runtime.send_schedule import next_send

_ROW_MARGIN = 1 << 16
_ADDRESS = (1 << ADDRESS_BITS) - 1
_KIND = (1 << KIND_BITS) - 1


@njit_hot
def advance(state: Any, rules: Any, stop: Any, changes_left: Any, budget: Any) -> Any:
    """Process up to `budget` events before the time `stop`. Returns why it stopped."""
    scalars, members = state.scalars, state.members
    for _ in range(budget):
        has_arrival, has_alarm = scalars[ARRIVALS] > 0, scalars[ALARMS] > 0
        if not (has_arrival or has_alarm):
            return DONE
        is_arrival = has_arrival and (
            not has_alarm or state.arrivals[0, heap.TIME] <= state.alarms[0, heap.TIME]
        )
        time = state.arrivals[0, heap.TIME] if is_arrival else state.alarms[0, heap.TIME]
        if time >= stop:
            return DONE
        if is_full(state):
            return FULL
        if len(state.rows) and scalars[ROWS] > len(state.rows) - _ROW_MARGIN:
            return SHOW
        if is_arrival:
            order, item = state.arrivals[0, heap.ORDER], state.arrivals[0, heap.ITEM]
            ends = order >> NUMBER_BITS
            address, source = ends >> ADDRESS_BITS, ends & _ADDRESS
            until = held_until(state, time, address, source)
            me, link = state.place_at[address], state.place_at[source]
            if until <= time and arrival_needs_reference(state, rules, me, link, item):
                return BLOCKED
            heap.pop(state.arrivals, 0, scalars[ARRIVALS])
            scalars[ARRIVALS] -= 1
            scalars[NOW] = time
            if until <= time:
                receive(state, rules, me, link, item)
            elif until < NEVER:
                heap.push(state.arrivals, 0, scalars[ARRIVALS], until, order, item)
                scalars[ARRIVALS] += 1
        else:
            order = state.alarms[0, heap.ORDER]
            kind, me = order >> ADDRESS_BITS, state.place_at[order & _ADDRESS]
            until = members[me, DOWN_UNTIL] if kind == REPORT_ALARM else np.int64(0)
            if (
                kind == REPORT_ALARM
                and until <= time
                and report_needs_reference(state, rules, me, time, changes_left)
            ):
                return BLOCKED
            heap.pop(state.alarms, 0, scalars[ALARMS])
            scalars[ALARMS] -= 1
            scalars[NOW] = time
            if kind == SEND_ALARM:
                broadcast(state, rules, me)
                plan_send(state, rules, me)
            elif until <= time:
                report(state, rules, me)
                set_alarm(state, time + rules.interval, REPORT_ALARM, members[me, ADDRESS])
            elif until < NEVER:
                set_alarm(state, until, REPORT_ALARM, members[me, ADDRESS])
        scalars[EVENTS] += 1
    return SHOW


@njit_inline
def is_full(state: Any) -> Any:
    """Whether one more event might find an array full."""
    scalars, size = state.scalars, state.pairs.shape[1]
    return (
        scalars[IS_FULL]
        or scalars[MESSAGES_USED] == len(state.messages)
        or scalars[CAUSES_USED] + size > len(state.causes)
        or scalars[UNMET_USED] + size > len(state.unmet)
        or scalars[REPORTS_USED] == len(state.reports)
        or scalars[PENDING_USED] == len(state.pending)
        or scalars[ENTRIES_USED] == len(state.entries)
        or scalars[ARRIVALS] + size > len(state.arrivals)
    )


@njit_inline
def held_until(state: Any, now: Any, address: Any, source: Any) -> Any:
    """The twin of `FaultyWorld._held_until` for an arrival."""
    until = np.int64(0)
    if state.place_at[address] >= 0:
        until = state.members[state.place_at[address], DOWN_UNTIL]
    for cut in range(len(state.cuts)):
        if (
            state.cuts[cut, 0] <= now < state.cuts[cut, 1]
            and state.sides[cut, address] != state.sides[cut, source]
        ):
            until = max(until, state.cuts[cut, 1])
    return until


@njit_inline
def set_alarm(state: Any, time: Any, kind: Any, address: Any) -> Any:
    heap.push(state.alarms, 0, state.scalars[ALARMS], time, np.int64(kind) << ADDRESS_BITS | address, 0)
    state.scalars[ALARMS] += 1


@njit_inline
def plan_send(state: Any, rules: Any, me: Any) -> Any:
    """The twin of `ChangingGroupWorld._schedule_send`."""
    row = state.members[me]
    row[SENDS] += 1
    phase, late = extended(rules.phase, row[ADDRESS]), extended(rules.late, row[ADDRESS])
    previous = state.scalars[NOW] - row[SINCE]
    time = row[SINCE] + next_send(rules.workload, phase, late, row[SENDS], previous)
    if time < rules.until:
        set_alarm(state, time, SEND_ALARM, row[ADDRESS])


@njit_inline
def arrival_needs_reference(state: Any, rules: Any, me: Any, link: Any, item: Any) -> Any:
    """Whether a packet is anything but the next message, a copy of one, or a report."""
    kind, which = item & _KIND, item >> KIND_BITS
    if kind == OTHER or me < 0 or link < 0:
        return True
    if rules.by_cluster and state.pairs[SUSPECTED_AT, me, link] >= 0:
        return True  # Routes change.
    if kind != MESSAGE:
        return False
    origin = state.messages[which, ORIGIN]
    return origin != me and state.messages[which, SEQ] > state.pairs[RECEIVED, me, origin] + 1


@njit_inner
def receive(state: Any, rules: Any, me: Any, link: Any, item: Any) -> Any:
    """The twin of `ChangingGroupWorld._on_arrival`."""
    pairs = state.pairs
    is_report, which = item & _KIND == REPORT, item >> KIND_BITS
    hear(state, me, link, is_report)
    if is_report:
        pairs[REPORTED, me, link] = which
        if pairs[PENDING_FIRST, me, link] < 0 and pairs[DELIVERED, me, link] >= state.reports[which, link]:
            pairs[KNOWN, me, link] = which
            find_stable(state, me)
        else:
            wait = state.scalars[PENDING_USED]
            state.scalars[PENDING_USED] += 1
            state.pending[wait, 0], state.pending[wait, 1] = which, -1
            if pairs[PENDING_FIRST, me, link] < 0:
                pairs[PENDING_FIRST, me, link] = wait
            else:
                state.pending[pairs[PENDING_LAST, me, link], 1] = wait
            pairs[PENDING_LAST, me, link] = wait
        return
    message = state.messages[which]
    origin, seq = message[ORIGIN], message[SEQ]
    append_row(
        state, RECEIVED_ROW, state.members[me, ADDRESS], state.members[origin, ADDRESS], seq,
        state.members[link, ADDRESS], 0,
    )  # fmt: skip
    if origin == me or seq <= pairs[RECEIVED, me, origin]:
        return
    pairs[RECEIVED, me, origin] = seq
    entry = retain(state, me, origin, which)
    if rules.relays:
        below = pairs[CLUSTER, me, link] if rules.by_cluster else np.int64(ALL_CLUSTERS)
        if rules.by_cluster:
            state.entries[entry, DUTY] = below
        forward(state, rules, me, link, below, item, message[SIZE])
    if not rules.has_causes or accept(state, me, entry, origin, seq):
        deliver_all(state, rules, me, entry)


@njit_inline
def hear(state: Any, me: Any, link: Any, is_report: Any) -> Any:
    """The twin of `HeartbeatDetector.hear`."""
    pairs, now = state.pairs, state.scalars[NOW]
    if pairs[HEARD_AT, me, link] < 0:
        return
    pairs[HEARD_AT, me, link] = now
    if is_report:
        if pairs[REPORTED_AT, me, link] >= 0:
            number = pairs[INTERVALS, me, link]
            state.intervals[me, link, number % WINDOW] = now - pairs[REPORTED_AT, me, link]
            pairs[INTERVALS, me, link] += 1
        pairs[REPORTED_AT, me, link] = now
    pairs[SUSPECTED_AT, me, link] = -1
