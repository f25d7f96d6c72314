"""Sorts a run's events so that causes come first, and computes what the page needs.

The sequence is by time, except that a delivery never comes before its send and a lane keeps its own order:
clocks of different machines may disagree. Where the log has no times, the longest chain of events that leads
to an event stands for its time, so that every cause is left of its effects. So the causal past of an event
can be found by reading the sequence backwards, its future by reading forwards, each event once. *Checkpoints*
bound how much is read: at regular intervals they hold the vector clock of every lane, as counts of events.
Compiled; O(events × lanes / 16).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from antecede.errors import InputError
from antecede.explore.columns import RunColumns
from antecede.jit import njit_plain
from antecede.trace.schema import DELIVER, RECEIVE, SEND

CHUNK = 16_384
"""Events in one file."""
_CHECKPOINT_BYTES = 16
"""The most bytes of checkpoints per event of the run."""
_POOL_BYTES = 4 << 30
NO_SEND = -1
STEP = 1_000
"""In a log without times, the distance of an event from the last of its direct causes. The page can zoom in
to a hundredth of it."""
_SHIFTS = np.array([0, 300, 100, 400])
"""The horizontal shift by lane: less than half a step, so that causes stay left of their effects."""
IMPOSSIBLE = 8
"""Added to the kind of a delivery that precedes its own send and therefore creates no causal order."""


class Events(NamedTuple):
    """The events that are shown, in lane order: sends, deliveries, changes, receives without a delivery."""

    lane: np.ndarray
    position: np.ndarray
    """The position among its lane's events."""
    lane_start: np.ndarray
    kind: np.ndarray
    message: np.ndarray
    time: np.ndarray
    held: np.ndarray
    """Nanoseconds from the receive to the delivery; -1 if the trace has no receive."""
    row: np.ndarray
    """The row in the trace's columns."""
    send: np.ndarray
    """For each message the event of its send; -1 if nobody sent it."""

    @property
    def size(self) -> int:
        return len(self.lane)


class EventSequence(NamedTuple):
    """The events in sequence."""

    events: Events
    sequence: np.ndarray
    """The events by position."""
    place: np.ndarray
    """The position of each event."""
    stride: int
    """The number of events between checkpoints; 0 if there are none."""
    checkpoints: np.ndarray
    """Checkpoints × lanes × lanes: how many events of each lane each lane knows of."""


def select_events(columns: RunColumns) -> Events:
    """Merge each receive into its delivery; leave out receives of messages that a lane has already."""
    held, is_shown = _match_receives(
        columns.lane_start, columns.kind, columns.message, columns.time, len(columns.messages.seq)
    )
    row = np.flatnonzero(is_shown)
    lanes = len(columns.lane_start) - 1
    lane = np.repeat(np.arange(lanes, dtype=np.int32), np.diff(columns.lane_start))[row]
    start = np.searchsorted(lane, np.arange(lanes + 1))
    kind, message = columns.kind[row], columns.message[row]
    send = np.full(len(columns.messages.seq), NO_SEND, np.int64)
    sends = np.flatnonzero(kind == SEND)
    send[message[sends]] = sends
    position = (np.arange(len(row)) - start[lane]).astype(np.int32)
    return Events(lane, position, start, kind, message, columns.time[row], held[row], row, send)


def lay_out(events: Events, impossible: np.ndarray, chunk: int = CHUNK) -> EventSequence:
    """The sequence, with checkpoints every `chunk` events or more; `impossible` are events."""
    kind = events.kind.copy()
    kind[impossible] |= IMPOSSIBLE
    events = events._replace(kind=kind)
    by_time = np.argsort(events.time, kind="stable")
    sequence = np.empty(events.size, np.int64)
    done = _linearise(
        by_time, events.lane, events.position, events.lane_start, kind, events.message, events.send, sequence
    )
    if done < events.size:
        raise InputError(
            "the run has deliveries before their own send, more than the audit lists, so its events have no "
            "order; see antecede audit"
        )
    place = np.empty(events.size, np.int64)
    place[sequence] = np.arange(events.size)
    lanes = len(events.lane_start) - 1
    stride = checkpoint_stride(events.size, lanes, chunk)
    checkpoints = np.zeros((-(-events.size // stride) if stride else 0, lanes, lanes), np.uint32)
    if stride:
        _replay_clocks(events, sequence, stride, checkpoints)
    return EventSequence(events, sequence, place, stride, checkpoints)


def order_without_times(events: Events, impossible: np.ndarray) -> Events:
    """The events of a log without times, each `STEP` after its latest direct predecessor. Lanes are shifted
    slightly, so that a line between lanes that are not neighbours does not run through an event between
    them."""
    unheld = np.full(events.size, -1, np.int64)
    events = events._replace(held=unheld)
    laid_out = lay_out(events, impossible, events.size + 1)
    depth = _depths(laid_out.sequence, events.position, laid_out.events.kind, events.message, events.send)
    return events._replace(time=depth * STEP + _SHIFTS[events.lane % len(_SHIFTS)])


@njit_plain
def _depths(sequence: Any, position: Any, kind: Any, message: Any, send: Any) -> Any:
    """The number of events before each on the longest chain that leads to it."""
    depth = np.full(len(sequence), -1, np.int64)
    for event in sequence:
        latest = depth[event - 1] if position[event] > 0 else -1
        number = message[event]
        if (kind[event] == DELIVER or kind[event] == RECEIVE) and number >= 0 and send[number] >= 0:
            latest = max(latest, depth[send[number]])
        depth[event] = latest + 1
    return depth


def _replay_clocks(events: Events, sequence: np.ndarray, stride: int, checkpoints: np.ndarray) -> None:
    lanes = checkpoints.shape[1]
    uses = _count_uses(events.kind, events.message, events.send)
    room = min(max(64, _POOL_BYTES // (4 * lanes)), max(1, _most_in_flight(events, sequence, uses)))
    pool = np.empty((room, lanes), np.uint32)
    if not _replay(
        sequence, *events[:2], events.kind, events.message, events.send, uses, pool, stride, checkpoints
    ):
        raise InputError(
            f"too many messages are in flight at once for the vector clocks of {lanes:,} processes"
        )


def checkpoint_stride(events: int, lanes: int, chunk: int) -> int:
    """The number of events between checkpoints, a multiple of `chunk`; 0 if even two checkpoints would take
    too much memory."""
    most = _CHECKPOINT_BYTES * events // (4 * lanes * lanes)
    chunks = -(-events // chunk)
    if chunks <= 1 or most < 2:
        return 0
    stride = 1
    while -(-chunks // stride) > most:
        stride *= 2
    return stride * chunk


@njit_plain
def _match_receives(lane_start: Any, kind: Any, message: Any, time: Any, messages: Any) -> Any:
    """For each row, how long its message was held, and whether the row is shown."""
    rows = len(kind)
    held, is_shown = np.full(rows, -1, np.int64), np.ones(rows, np.bool_)
    received, lane_of = np.empty(messages, np.int64), np.full(messages, -1, np.int32)
    for lane in range(len(lane_start) - 1):
        for row in range(lane_start[lane], lane_start[lane + 1]):
            number = message[row]
            if number < 0:
                continue
            if kind[row] == RECEIVE:
                if lane_of[number] == lane:
                    is_shown[row] = False
                else:
                    lane_of[number] = lane
                    received[number] = row
            elif kind[row] == DELIVER or kind[row] == SEND:
                if lane_of[number] == lane and received[number] >= 0:
                    held[row] = max(0, time[row] - time[received[number]])
                    is_shown[received[number]] = False
                lane_of[number] = lane
                received[number] = -1
    return held, is_shown


@njit_plain
def _linearise(
    by_time: Any, lane: Any, position: Any, lane_start: Any, kind: Any, message: Any, send: Any, sequence: Any
) -> Any:
    """Events in order of time, each after its lane's earlier ones and a delivery after its send; returns how
    many could be placed."""
    lanes = len(lane_start) - 1
    cursor, target = np.zeros(lanes, np.int64), np.full(lanes, -1, np.int64)
    waits, next_waiting = np.zeros(lanes, np.bool_), np.full(lanes, -1, np.int64)
    head, is_sent = np.full(len(send), -1, np.int64), np.zeros(len(send), np.bool_)
    ready = np.empty(lanes, np.int64)
    count = 0
    for event in by_time:
        first = lane[event]
        target[first] = max(target[first], position[event])
        if waits[first]:
            continue
        ready[0], waiting = first, 1
        while waiting:
            waiting -= 1
            own = ready[waiting]
            while cursor[own] <= target[own]:
                here = lane_start[own] + cursor[own]
                number = message[here]
                if kind[here] == DELIVER and number >= 0 and send[number] >= 0 and not is_sent[number]:
                    waits[own] = True
                    next_waiting[own] = head[number]
                    head[number] = own
                    break
                sequence[count] = here
                count += 1
                cursor[own] += 1
                if kind[here] == SEND:
                    is_sent[number] = True
                    other = head[number]
                    while other >= 0:
                        waits[other] = False
                        ready[waiting] = other
                        waiting += 1
                        other = next_waiting[other]
    return count


@njit_plain
def _count_uses(kind: Any, message: Any, send: Any) -> Any:
    """How many deliveries of each message transfer its causes."""
    uses = np.zeros(len(send), np.int32)
    for event in range(len(kind)):
        if kind[event] == DELIVER and message[event] >= 0 and send[message[event]] >= 0:
            uses[message[event]] += 1
    return uses


def _most_in_flight(events: Events, sequence: np.ndarray, uses: np.ndarray) -> int:
    """The largest number of messages that are in flight at once: sent, and not yet delivered for the last
    time."""
    most: int = _count_in_flight(sequence, events.kind, events.message, events.send, uses.copy())
    return most


@njit_plain
def _count_in_flight(sequence: Any, kind: Any, message: Any, send: Any, uses: Any) -> Any:
    now, most = 0, 0
    for event in sequence:
        number = message[event]
        if kind[event] == SEND and uses[number] > 0:
            now += 1
            most = max(most, now)
        elif kind[event] == DELIVER and number >= 0 and send[number] >= 0:
            uses[number] -= 1
            now -= uses[number] == 0
    return most


@njit_plain
def _replay(
    sequence: Any, lane: Any, position: Any, kind: Any, message: Any, send: Any, uses: Any, pool: Any,
    stride: Any, checkpoints: Any,
) -> Any:  # fmt: skip
    """Replay the vector clocks of all lanes and copy them into the checkpoints; False if the pool is full."""
    lanes = checkpoints.shape[1]
    clocks = np.zeros((lanes, lanes), np.uint32)
    slot_of, free = np.full(len(send), -1, np.int64), np.arange(len(pool))
    available = len(pool)
    for place in range(len(sequence)):
        event = sequence[place]
        own, number = lane[event], message[event]
        clock = clocks[own]
        clock[own] = position[event] + 1
        if kind[event] == SEND and uses[number] > 0:
            if available == 0:
                return False
            available -= 1
            slot_of[number] = free[available]
            pool[slot_of[number]] = clock
        elif kind[event] == DELIVER and number >= 0 and send[number] >= 0:
            slot = slot_of[number]
            past = pool[slot]
            for other in range(lanes):
                clock[other] = max(clock[other], past[other])
            uses[number] -= 1
            if uses[number] == 0:
                free[available] = slot
                available += 1
        if (place + 1) % stride == 0:
            checkpoints[place // stride] = clocks
    if len(sequence) % stride:
        checkpoints[len(sequence) // stride] = clocks
    return True


@njit_plain
def count_by_bucket(lane: Any, time: Any, width: Any, counts: Any) -> None:
    """Count events by lane and time bucket, up to the maximum of two bytes."""
    last = counts.shape[1] - 1
    for event in range(len(lane)):
        bucket = min(last, np.int64(time[event] / width))
        if counts[lane[event], bucket] < 65_535:
            counts[lane[event], bucket] += 1
