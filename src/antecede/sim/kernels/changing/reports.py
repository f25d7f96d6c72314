"""Reports in the calm kernel: which messages are stable, and whether a message is missing or a member
silent."""

from __future__ import annotations

from typing import Any

import numpy as np

from antecede.jit import njit_inline, njit_inner
from antecede.membership.failure_detection import _PATIENCE, _TRUSTED_AFTER, WINDOW
from antecede.sim.kernels.changing.sending import transmit
from antecede.sim.kernels.changing.state import (
    AFTER,
    BLOCKER,
    CHECKED,
    DELIVERED,
    DOWN_UNTIL,
    ENTRY_FIRST,
    ENTRY_LAST,
    FREE_ENTRY,
    HEARD_AT,
    ID_BYTES,
    INTERVALS,
    ITEM,
    KIND_BITS,
    KNOWN,
    LACKED,
    NOW,
    PENDING_FIRST,
    RECEIVED,
    REPORT,
    REPORT_BASE,
    REPORT_BYTES,
    REPORT_PACKETS,
    REPORTED,
    REPORTED_AT,
    REPORTS,
    REPORTS_USED,
    RETAINED,
    SEQ,
    STABLE,
    SUSPECTED_AT,
)
from antecede.sim.kernels.runtime.msgpack_sizes import head_bytes, int_bytes


@njit_inner
def report(state: Any, rules: Any, me: Any) -> Any:
    """The twin of `ChangingMember.report`, and of the detector's part in it."""
    scalars, pairs, size, now = state.scalars, state.pairs, state.pairs.shape[1], state.scalars[NOW]
    which = scalars[REPORTS_USED]
    scalars[REPORTS_USED] += 1
    control = state.members[me, REPORT_BASE] + head_bytes(size)
    for stream in range(size):
        count = pairs[DELIVERED, me, stream]
        state.reports[which, stream] = count
        control += state.members[stream, ID_BYTES] + int_bytes(count)
    for other in range(size):
        if other != me:
            transmit(state, rules, me, other, which << KIND_BITS | REPORT, control)
            scalars[REPORT_PACKETS] += 1
            scalars[REPORT_BYTES] += control
    state.members[me, REPORTS] += 1
    for stream in range(size):
        if stream != me:
            last = pairs[RECEIVED, me, stream]
            pairs[LACKED, me, stream] = last if is_lacking(state, me, stream, last) else -1
    find_stable(state, me)
    if rules.detects:
        anew = begins_anew(state, rules, me, now)
        for other in range(size):
            if other != me:
                if anew:
                    pairs[REPORTED_AT, me, other] = -1
                if anew or pairs[HEARD_AT, me, other] < 0:
                    pairs[HEARD_AT, me, other] = now
        state.members[me, CHECKED] = now


@njit_inner
def find_stable(state: Any, me: Any) -> Any:
    """The twin of `ReportingMember._find_stable`. Members that lacked a message are checked first the next
    time."""
    pairs, size, entries = state.pairs, state.pairs.shape[1], state.entries
    for stream in range(size):
        entry = pairs[ENTRY_FIRST, me, stream]
        if entry < 0:
            continue
        first = state.messages[entries[entry, ITEM], SEQ]
        stable = pairs[DELIVERED, me, stream]
        if first > stable:
            continue
        blocker = pairs[BLOCKER, me, stream]
        if blocker != me and known_count(state, me, blocker, stream) < first:
            continue
        for other in range(size):
            if other != me:
                count = known_count(state, me, other, stream)
                stable = min(stable, count)
                if count < first:
                    pairs[BLOCKER, me, stream] = other
                    break
        if first <= stable:
            pairs[STABLE, me, stream] = stable
        while entry >= 0 and state.messages[entries[entry, ITEM], SEQ] <= stable:
            after = entries[entry, AFTER]
            entries[entry, AFTER] = state.scalars[FREE_ENTRY]
            state.scalars[FREE_ENTRY] = entry
            state.members[me, RETAINED] -= 1
            entry = after
        pairs[ENTRY_FIRST, me, stream] = entry
        if entry < 0:
            pairs[ENTRY_LAST, me, stream] = -1


@njit_inline
def known_count(state: Any, me: Any, other: Any, stream: Any) -> Any:
    row = state.pairs[KNOWN, me, other]
    return state.reports[row, stream] if row >= 0 else np.int64(-1)


@njit_inner
def apply_pending(state: Any, me: Any, member: Any) -> Any:
    """The twin of `StreamProgress.apply`: more messages of a member are delivered."""
    pairs = state.pairs
    wait, found = pairs[PENDING_FIRST, me, member], False
    while wait >= 0 and pairs[DELIVERED, me, member] >= state.reports[state.pending[wait, 0], member]:
        pairs[KNOWN, me, member] = state.pending[wait, 0]
        wait = state.pending[wait, 1]
        found = True
    pairs[PENDING_FIRST, me, member] = wait
    if found:
        find_stable(state, me)


@njit_inner
def report_needs_reference(state: Any, rules: Any, me: Any, now: Any, changes_left: Any) -> Any:
    """Whether a report may be the last one, or has consequences: a missing message, or a suspected member."""
    pairs, size = state.pairs, state.pairs.shape[1]
    if now >= rules.until and not changes_left:
        if now >= rules.settled_by:
            return True
        is_settled = True
        for each in range(size):
            if state.members[each, DOWN_UNTIL] <= now and state.members[each, RETAINED]:
                is_settled = False
        if is_settled:
            return True
    for stream in range(size):
        last = pairs[RECEIVED, me, stream]
        if stream != me and pairs[LACKED, me, stream] == last and is_lacking(state, me, stream, last):
            return True
    return rules.detects and detector_needs_reference(state, rules, me, now)


@njit_inline
def is_lacking(state: Any, me: Any, stream: Any, last: Any) -> Any:
    """Whether another member has delivered more of a stream than is here."""
    for other in range(state.pairs.shape[1]):
        row = state.pairs[REPORTED, me, other]
        if row >= 0 and state.reports[row, stream] > last:
            return True
    return False


@njit_inline
def begins_anew(state: Any, rules: Any, me: Any, now: Any) -> Any:
    """Whether a detector restarts because its member paused."""
    checked = state.members[me, CHECKED]
    return checked >= 0 and now - checked > 2 * rules.interval


@njit_inner
def detector_needs_reference(state: Any, rules: Any, me: Any, now: Any) -> Any:
    """Whether a member is to be suspected or removed."""
    pairs, size = state.pairs, state.pairs.shape[1]
    if not begins_anew(state, rules, me, now):
        for other in range(size):
            heard = pairs[HEARD_AT, me, other]
            if other == me or heard < 0 or pairs[SUSPECTED_AT, me, other] >= 0:
                continue
            if now - heard > rules.interval and now - heard > timeout(state, rules, me, other):
                return True
    if rules.remove < 0:
        return False
    for other in range(me):
        if pairs[SUSPECTED_AT, me, other] < 0:
            return False  # Another member removes it.
    for other in range(size):
        since = pairs[SUSPECTED_AT, me, other]
        if since >= 0 and now - since >= rules.remove:
            return True
    return False


@njit_inline
def timeout(state: Any, rules: Any, me: Any, other: Any) -> Any:
    """The twin of `AdaptiveTimeout.timeout`."""
    count = min(state.pairs[INTERVALS, me, other], WINDOW)
    if count < _TRUSTED_AFTER:
        return _PATIENCE * rules.interval
    longest, total = np.int64(0), np.int64(0)
    for place in range(count):
        longest = max(longest, state.intervals[me, other, place])
        total += state.intervals[me, other, place]
    return 2 * longest - total // count + rules.interval
