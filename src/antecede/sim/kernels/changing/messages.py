"""Messages in the calm kernel: broadcast, forwarded, retained, held back and delivered."""

from __future__ import annotations

from typing import Any

import numpy as np

from antecede.jit import njit_inline, njit_inner
from antecede.sim.kernels.changing.reports import apply_pending
from antecede.sim.kernels.changing.sending import append_row, quarter, transmit
from antecede.sim.kernels.changing.state import (
    ADDRESS,
    AFTER,
    ARRIVAL_NUMBER,
    ARRIVED,
    AWAITED,
    AWAITS_SEQ,
    BROADCASTS,
    CAUSES_BEGIN,
    CAUSES_END,
    CAUSES_USED,
    CONTROL,
    CONTROL_MAX,
    DELIVERED,
    DELIVERIES,
    DOWN_UNTIL,
    DUTY,
    DUTY_STAMP,
    ENTRIES_USED,
    ENTRY_FIRST,
    ENTRY_LAST,
    ENTRY_NEXT,
    FREE_ENTRY,
    HELD,
    HOLD,
    ID_BYTES,
    IS_SILENT,
    ITEM,
    KIND_BITS,
    LATENCY,
    LATENCY_MAX,
    MESSAGE,
    MESSAGE_BASE,
    MESSAGES_LEFT,
    MESSAGES_USED,
    NAMED,
    NOW,
    ORIGIN,
    PAPER,
    PAPER_MAX,
    PENDING_FIRST,
    PLACE,
    PLACED,
    QUARTER_CONTROL,
    QUARTER_MESSAGES,
    RECEIVED,
    RETAINED,
    ROUTES_BEGIN,
    ROUTES_END,
    SENT_AT,
    SEQ,
    SIZE,
    STAMP,
    STAMPS,
    TIME,
    UNMET_BEGIN,
    UNMET_END,
    UNMET_USED,
    WAITING_AFTER,
    WAITING_FIRST,
    WAITING_LAST,
)
from antecede.sim.kernels.contract import DELIVERED as DELIVERED_ROW
from antecede.sim.kernels.contract import SENT as SENT_ROW
from antecede.sim.kernels.runtime.msgpack_sizes import head_bytes, int_bytes

ALL_CLUSTERS = 64


@njit_inner
def broadcast(state: Any, rules: Any, me: Any) -> Any:
    """The twin of `ChangingGroupWorld._broadcast` and of what it calls."""
    scalars, pairs, size = state.scalars, state.pairs, state.pairs.shape[1]
    row, now = state.members[me], state.scalars[NOW]
    if me >= size or row[IS_SILENT] or row[DOWN_UNTIL] > now or scalars[MESSAGES_LEFT] == 0:
        return
    scalars[MESSAGES_LEFT] -= 1
    row[BROADCASTS] += 1
    pairs[DELIVERED, me, me] += 1
    seq = pairs[DELIVERED, me, me]
    if not rules.has_causes:
        pairs[RECEIVED, me, me] = seq
    which = scalars[MESSAGES_USED]
    scalars[MESSAGES_USED] += 1
    message = state.messages[which]
    message[ORIGIN], message[SEQ], message[SENT_AT] = me, seq, now
    message[SIZE] = row[MESSAGE_BASE] + int_bytes(seq)
    message[CAUSES_BEGIN] = scalars[CAUSES_USED]
    if rules.has_causes:
        for peer in range(size):
            count = pairs[NAMED, me, peer]
            if count:
                state.causes[scalars[CAUSES_USED], 0] = peer
                state.causes[scalars[CAUSES_USED], 1] = count
                scalars[CAUSES_USED] += 1
                message[SIZE] += state.members[peer, ID_BYTES] + int_bytes(count)
                pairs[NAMED, me, peer] = 0
        message[SIZE] += head_bytes(scalars[CAUSES_USED] - message[CAUSES_BEGIN])
    message[CAUSES_END] = scalars[CAUSES_USED]
    if size > 1 or not rules.has_causes:
        entry = retain(state, me, me, which)
        row[PLACED] += 1
        state.entries[entry, PLACE] = row[PLACED]
        pairs[ENTRY_NEXT, me, me] = -1
        state.entries[entry, DUTY] = ALL_CLUSTERS if rules.by_cluster else -1
    has_sent = row[ROUTES_END] > row[ROUTES_BEGIN] if rules.relays else size > 1
    control = message[SIZE] if has_sent else 0
    paper = rules.paper_base + rules.paper_cause * (message[CAUSES_END] - message[CAUSES_BEGIN])
    paper = paper if has_sent else 0
    scalars[CONTROL] += control
    scalars[CONTROL_MAX] = max(scalars[CONTROL_MAX], control)
    scalars[PAPER] += paper
    scalars[PAPER_MAX] = max(scalars[PAPER_MAX], paper)
    here = state.quarters[quarter(state, rules)]
    here[QUARTER_MESSAGES] += 1
    here[QUARTER_CONTROL] += control
    append_row(state, SENT_ROW, row[ADDRESS], row[ADDRESS], seq, 0, control)
    item = which << KIND_BITS | MESSAGE
    if rules.relays:
        forward(state, rules, me, np.int64(-1), np.int64(ALL_CLUSTERS), item, message[SIZE])
    else:
        for peer in range(size):
            if peer != me:
                transmit(state, rules, me, peer, item, message[SIZE])


@njit_inner
def forward(state: Any, rules: Any, me: Any, link: Any, below: Any, item: Any, control: Any) -> Any:
    """Send a message along routes: not back to where it came from, and in `vcube` only to the clusters below
    this one."""
    for route in range(state.members[me, ROUTES_BEGIN], state.members[me, ROUTES_END]):
        to = state.routes[route, 0]
        if to != link and state.routes[route, 1] < below:
            transmit(state, rules, me, to, item, control)


@njit_inner
def retain(state: Any, me: Any, origin: Any, item: Any) -> Any:
    """The twin of `MemberState._retain`: the message is the last of its chain."""
    scalars, pairs, entries = state.scalars, state.pairs, state.entries
    entry = scalars[FREE_ENTRY]
    if entry >= 0:
        scalars[FREE_ENTRY] = entries[entry, AFTER]
    else:
        entry = scalars[ENTRIES_USED]
        scalars[ENTRIES_USED] += 1
    row = state.members[me]
    row[ARRIVED] += 1
    row[RETAINED] += 1
    fresh = entries[entry]
    fresh[ITEM], fresh[ARRIVAL_NUMBER], fresh[PLACE], fresh[TIME] = item, row[ARRIVED], 0, scalars[NOW]
    fresh[AFTER], fresh[WAITING_AFTER], fresh[DUTY] = -1, -1, -1
    if pairs[ENTRY_FIRST, me, origin] < 0:
        pairs[ENTRY_FIRST, me, origin] = entry
        scalars[STAMPS] += 1
        pairs[DUTY_STAMP, me, origin] = scalars[STAMPS]
    else:
        entries[pairs[ENTRY_LAST, me, origin], AFTER] = entry
    pairs[ENTRY_LAST, me, origin] = entry
    if pairs[ENTRY_NEXT, me, origin] < 0:
        pairs[ENTRY_NEXT, me, origin] = entry
    return entry


@njit_inner
def accept(state: Any, me: Any, entry: Any, origin: Any, seq: Any) -> Any:
    """The twin of `Flat._accept`: a message waits for the last of its missing causes; True if there is
    none."""
    pairs, scalars = state.pairs, state.scalars
    message, row = state.messages[state.entries[entry, ITEM]], state.entries[entry]
    row[UNMET_BEGIN] = scalars[UNMET_USED]
    for place in range(message[CAUSES_BEGIN], message[CAUSES_END]):
        peer, count = state.causes[place]
        if count > pairs[DELIVERED, me, peer]:
            add_unmet(state, me, peer, count)
    if seq - 1 > pairs[DELIVERED, me, origin]:
        add_unmet(state, me, origin, seq - 1)
    row[UNMET_END] = scalars[UNMET_USED]
    if row[UNMET_BEGIN] == row[UNMET_END]:
        return True
    wait_for_last(state, me, entry)
    return False


@njit_inline
def add_unmet(state: Any, me: Any, peer: Any, count: Any) -> Any:
    used = state.scalars[UNMET_USED]
    state.unmet[used, 0], state.unmet[used, 1] = peer, count
    state.scalars[UNMET_USED] += 1
    state.pairs[AWAITED, me, peer] = max(state.pairs[AWAITED, me, peer], count)


@njit_inner
def wait_for_last(state: Any, me: Any, entry: Any) -> Any:
    """The twin of `HoldBackQueue.hold_unmet`, for a message with missing causes."""
    pairs, entries = state.pairs, state.entries
    peer, seq = state.unmet[entries[entry, UNMET_END] - 1]
    entries[entry, AWAITS_SEQ], entries[entry, WAITING_AFTER] = seq, -1
    state.scalars[STAMPS] += 1
    stamp = state.scalars[STAMPS]
    other = pairs[WAITING_FIRST, me, peer]
    while other >= 0:
        if entries[other, AWAITS_SEQ] == seq:
            stamp = entries[other, STAMP]
            break
        other = entries[other, WAITING_AFTER]
    entries[entry, STAMP] = stamp
    if pairs[WAITING_FIRST, me, peer] < 0:
        pairs[WAITING_FIRST, me, peer] = entry
    else:
        entries[pairs[WAITING_LAST, me, peer], WAITING_AFTER] = entry
    pairs[WAITING_LAST, me, peer] = entry


@njit_inner
def deliver_all(state: Any, rules: Any, me: Any, entry: Any) -> Any:
    """Deliver a message and the messages that waited for it, in the order in which they become ready."""
    state.ready[0] = entry
    taken, ready = 0, 1
    while taken < ready:
        ready = deliver(state, rules, me, state.ready[taken], ready)
        taken += 1


@njit_inner
def deliver(state: Any, rules: Any, me: Any, entry: Any, ready: Any) -> Any:
    """The twin of `ChangingMember._deliver_in_order`. Returns how many messages are ready then."""
    pairs, scalars, now = state.pairs, state.scalars, state.scalars[NOW]
    row, message = state.entries[entry], state.messages[state.entries[entry, ITEM]]
    origin, seq = message[ORIGIN], message[SEQ]
    pairs[DELIVERED, me, origin] = seq
    if rules.has_causes:
        if rules.drops_causes:
            for place in range(message[CAUSES_BEGIN], message[CAUSES_END]):
                peer, count = state.causes[place]
                if pairs[NAMED, me, peer] == count:
                    pairs[NAMED, me, peer] = 0
        pairs[NAMED, me, origin] = seq
        if pairs[WAITING_FIRST, me, origin] >= 0:
            ready = release(state, me, origin, seq, ready)
    state.members[me, PLACED] += 1
    row[PLACE] = state.members[me, PLACED]
    pairs[ENTRY_NEXT, me, origin] = row[AFTER]
    scalars[DELIVERIES] += 1
    scalars[LATENCY] += now - message[SENT_AT]
    scalars[LATENCY_MAX] = max(scalars[LATENCY_MAX], now - message[SENT_AT])
    if now > row[TIME]:
        scalars[HELD] += 1
        scalars[HOLD] += now - row[TIME]
    append_row(
        state, DELIVERED_ROW, state.members[me, ADDRESS], state.members[origin, ADDRESS], seq, 0, 0
    )  # fmt: skip
    if pairs[PENDING_FIRST, me, origin] >= 0:
        apply_pending(state, me, origin)
    return ready


@njit_inner
def release(state: Any, me: Any, origin: Any, seq: Any, ready: Any) -> Any:
    """The twin of `HoldBackQueue.release`. Returns how many messages are ready then."""
    pairs, entries = state.pairs, state.entries
    entry, before = pairs[WAITING_FIRST, me, origin], np.int64(-1)
    first, last = np.int64(-1), np.int64(-1)
    while entry >= 0:
        after = entries[entry, WAITING_AFTER]
        if entries[entry, AWAITS_SEQ] != seq:
            before = entry
        else:
            if before < 0:
                pairs[WAITING_FIRST, me, origin] = after
            else:
                entries[before, WAITING_AFTER] = after
            if pairs[WAITING_LAST, me, origin] == entry:
                pairs[WAITING_LAST, me, origin] = before
            if first < 0:
                first = entry
            else:
                entries[last, WAITING_AFTER] = entry
            entries[entry, WAITING_AFTER] = -1
            last = entry
        entry = after
    while first >= 0:
        after, row = entries[first, WAITING_AFTER], entries[first]
        row[UNMET_END] -= 1
        while row[UNMET_END] > row[UNMET_BEGIN]:
            peer, count = state.unmet[row[UNMET_END] - 1]
            if pairs[DELIVERED, me, peer] < count:
                break
            row[UNMET_END] -= 1
        if row[UNMET_END] == row[UNMET_BEGIN]:
            state.ready[ready] = first
            ready += 1
        else:
            wait_for_last(state, me, first)
        first = after
    return ready
