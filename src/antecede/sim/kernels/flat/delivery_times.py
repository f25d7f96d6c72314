"""Flat causal broadcast as a recurrence, without events, for delays that do not depend on the protocol.

In the order of sending, a message is delivered to each peer when it has arrived there and its immediate
dependencies have been delivered there:

    delivery[m, :] = max(arrival[m, :], delivery[d, :] for each d that m immediately depends on)

This yields every delivery time, every vector clock and every immediate dependency in one pass, and so the
control information of each flat protocol (`protocols/flat.py` and those built on it, which share one delivery
condition). A delivery costs as many operations as its message has immediate dependencies, 4 or 8 of them at a
time. Rows are stored until their message is delivered everywhere: memory is peers × messages in flight, and a
few tables of peers².
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from antecede.compiled.splitmix64 import STEP, mix
from antecede.jit import njit_inline, njit_plain
from antecede.sim.kernels.flat.stamps import stamp_bytes
from antecede.sim.kernels.runtime.counter_rng import FIXED, LOW_HALF, UNIFORM, delay_of, extended
from antecede.sim.kernels.runtime.msgpack_sizes import payload_head
from antecede.sim.kernels.runtime.send_schedule import SendSchedule

_32 = np.uint64(32)
_NARROW = 1 << 32
_NEVER = 1 << 62
BLOCK = 16
"""Messages that are transposed at once: they fill whole cache lines."""
_PAD = 8
"""Rows a power of two apart would compete for the same few cache sets."""

# Places in `RecurrenceState.sums`.
LATENCY, LATEST, HELD, HOLD, END, SAMPLES, NAMED_AT_SAMPLES, OLDEST, TRANSPOSED = range(9)


class RecurrenceState(NamedTuple):
    """All state is in arrays, so that a run can stop between any two messages and continue."""

    delivery: np.ndarray
    """How long after it was sent each message in flight is delivered to each peer. Message i is in row i
    modulo the rows. 32 bits wide, which is twice as fast as 64, as long as nothing takes two seconds."""
    clocks: np.ndarray
    """The vector clock of each message in flight."""
    complete: np.ndarray
    """When each message in flight is delivered everywhere."""
    due: np.ndarray
    """When each message in flight (column, except the newest) is delivered to each peer (row); never, if the
    peer has sent since. `delivery` transposed, for looking at what one peer has delivered."""
    seen_before: np.ndarray
    """Which of the newest messages each peer had delivered when it last sent."""
    since: np.ndarray
    """The first message that each peer may have delivered since it last sent."""
    older: np.ndarray
    """The clock of each peer's last message that is no longer in flight."""
    seen: np.ndarray
    """How many messages of each peer (column) each peer (row) had delivered when it last sent."""
    links: np.ndarray
    """The key of each link's random sequence."""
    relays: np.ndarray
    """The same from the relay on; empty if there is none."""
    last: np.ndarray
    """The last arrival on each link, where links are FIFO; else empty."""
    sums: np.ndarray
    """Totals, the first message still in flight, and how many are in `due`."""
    control: np.ndarray
    paper: np.ndarray
    named: np.ndarray
    """Of each message: control bytes on the wire, as its paper counts, and immediate dependencies of other
    peers."""
    covered: np.ndarray
    """Whether the sender's previous message precedes another one that the message depends on."""


def create_state(
    schedule: SendSchedule, peers: int, links: int, relays: int | None, fifo: bool, wide: bool, rows: int
) -> RecurrenceState:
    """Before anything is sent. `links` and `relays` are keys of random sequences, to be extended by link."""
    square, none = (peers, peers), (0, 0)
    count = len(schedule.times)
    return RecurrenceState(
        delivery=np.zeros((rows, peers), np.int64 if wide else np.int32),
        clocks=np.zeros((rows, peers), np.int32),
        complete=np.zeros(rows, np.int64),
        due=np.zeros((peers, rows + _PAD), np.int64),
        seen_before=np.zeros((BLOCK, peers), np.bool_),
        since=np.zeros(peers, np.int64),
        older=np.zeros(square, np.int32),
        seen=np.zeros(square, np.int32),
        links=link_keys(np.uint64(links), peers),
        relays=np.empty(none, np.uint64) if relays is None else link_keys(np.uint64(relays), peers),
        last=np.zeros(square if fifo else none, np.int64),
        sums=np.zeros(9, np.int64),
        control=np.zeros(count, np.int64),
        paper=np.zeros(count, np.int64),
        named=np.zeros(count, np.int32),
        covered=np.zeros(count, np.bool_),
    )


def with_more_rows(state: RecurrenceState, sent: int) -> RecurrenceState:
    """The same state with twice as many rows; `sent` messages have been sent."""
    rows, peers = state.delivery.shape
    places = np.arange(max(0, sent - rows), sent)
    grown = {}
    for name in ("delivery", "clocks", "complete"):
        old = getattr(state, name)
        new = np.zeros((2 * rows, *old.shape[1:]), old.dtype)
        new[places % (2 * rows)] = old[places % rows]
        grown[name] = new
    due = np.zeros((peers, 2 * rows + _PAD), np.int64)
    due[:, places % (2 * rows)] = state.due[:, places % rows]
    grown["due"] = due
    return state._replace(**grown)


@njit_plain
def link_keys(key: Any, peers: Any) -> Any:
    """The key of each link's random sequence, by source and destination."""
    keys = np.empty((peers, peers), np.uint64)
    for source in range(peers):
        start = extended(key, source)
        for destination in range(peers):
            keys[source, destination] = extended(start, destination)
    return keys


@njit_plain
def advance(
    begin: Any, end: Any, protocol: Any, payload: Any, schedule: Any, state: Any,
    delay: Any, behind: Any, samples: Any, sampled: Any,
) -> Any:  # fmt: skip
    """Send the messages from `begin` to before `end`, and take the `samples`, from number `sampled` on, that
    come before. Returns how many messages and samples are done: fewer than requested if rows ran out, -1 if a
    delivery took longer than `delivery` can represent."""
    times, senders, numbers, first, places, _ = schedule
    delivery, clocks, complete, due, seen_before, _, older, seen, _, _, _, sums = state[:12]
    control, paper, named, covered = state[12:]
    rows, peers = delivery.shape
    mask, total = rows - 1, len(times)
    row, delays = np.empty(peers, delivery.dtype), np.empty(peers, np.int64)
    past, last_seen = np.empty(peers, np.int32), np.empty(peers, np.int32)
    chosen = np.empty(rows + peers, np.int64)
    for message in range(begin, end + 1):
        now = times[message] if message < total else np.int64(_NEVER)
        while sampled < len(samples) and samples[sampled] < now and (message < end or end == total):
            take_sample(samples[sampled], message, schedule, state, last_seen, past, row, chosen)
            sampled += 1
        if message == end:
            break
        slot = message & mask
        if message - rows >= sums[OLDEST]:
            if complete[slot] > now:
                return message, sampled
            older[senders[message - rows]] = clocks[slot]
            sums[OLDEST] = message - rows + 1
        if message % BLOCK == 0 and message > sums[TRANSPOSED]:
            transpose_block(message - BLOCK, times, delivery, seen_before, due)
            sums[TRANSPOSED] = message
        me, number = senders[message], numbers[message]

        row[:] = 0
        last_seen[:] = seen[me]
        count = immediate_dependencies(me, now, message, True, schedule, state, seen[me], past, row, chosen)
        if number > 1:
            previous = places[first[me] + number - 2]
            if previous >= sums[OLDEST] and complete[previous & mask] > now:
                no_sooner_than(row, delivery[previous & mask], now - times[previous])
        named[message], covered[message] = count, past[me] >= number - 1 and number > 1
        if peers > 1:
            wire, counted = stamp_bytes(
                protocol, me, number, seen[me], last_seen, chosen, count, senders, numbers
            )
            control[message], paper[message] = wire + payload_head(payload), counted
        seen[me, me] = number
        seen_before[message % BLOCK, :] = False
        seen_before[message % BLOCK, me] = True
        clocks[slot, :] = seen[me]
        draw_arrivals(me, number, now, delay, behind, state, delays)
        if not deliver(me, slot, now, state, row, delays):
            return -1, sampled
    return end, sampled


@njit_plain
def take_sample(
    now: Any, sent: Any, schedule: Any, state: Any, seen: Any, past: Any, row: Any, chosen: Any
) -> Any:
    """Count what the next message of every peer would name if sent now."""
    sums = state.sums
    for peer in range(len(seen)):
        seen[:] = state.seen[peer]
        sums[NAMED_AT_SAMPLES] += immediate_dependencies(
            peer, now, sent, False, schedule, state, seen, past, row, chosen
        )
    sums[SAMPLES] += 1


@njit_inline
def draw_arrivals(me: Any, number: Any, now: Any, delay: Any, behind: Any, state: Any, delays: Any) -> Any:
    """Draw how long the packets of a message take to every peer."""
    relays, last, peers = state.relays, state.last, len(delays)
    shift = np.uint64(number - 1) * STEP
    draw_delays(delay, state.links[me], shift, delays)
    if relays.shape[0]:
        kind, one, two, three = delay
        to_relay = delays[me]  # The link to itself stands for the one to the relay.
        for peer in range(peers):
            if me < behind or peer < behind:
                delays[peer] = to_relay + delay_of(kind, one, two, three, mix(relays[me, peer] + shift))
    if last.shape[0]:
        for peer in range(peers):
            last[me, peer] = max(now + delays[peer], last[me, peer])
            delays[peer] = last[me, peer] - now
    delays[me] = 0


@njit_inline
def deliver(me: Any, slot: Any, now: Any, state: Any, row: Any, delays: Any) -> Any:
    """The recurrence: a message is delivered when it has arrived (`delays`) and its dependencies are
    delivered (`row`). False if `delivery` is not wide enough for a delivery."""
    sums, delivery = state.sums, state.delivery[slot]
    row[me] = 0
    slowest, latest, latency, held, hold = 0, 0, 0, 0, 0
    for peer in range(len(delays)):
        took = max(np.int64(row[peer]), delays[peer])
        delivery[peer] = took
        latest = max(latest, took)
        slowest = max(slowest, delays[peer])
        latency += took
        held += took > delays[peer]
        hold += took - delays[peer]
    if latest >= ((1 << 31) - 1 if state.delivery.itemsize == 4 else _NEVER):
        return False
    state.complete[slot] = now + latest
    sums[LATENCY] += latency
    sums[LATEST] = max(sums[LATEST], latest)
    sums[HELD] += held
    sums[HOLD] += hold
    sums[END] = max(sums[END], now + slowest)
    return True


@njit_plain
def draw_delays(delay: Any, keys: Any, shift: Any, delays: Any) -> Any:
    """How long packets take over links with these keys."""
    kind, one, two, three = delay
    peers = len(delays)
    if kind == FIXED:
        delays[:] = one
    elif kind == UNIFORM and two - one + 1 < _NARROW:
        span = np.uint64(two - one + 1)
        for peer in range(peers):  # `between`, short enough to be vectorised
            bits = mix(keys[peer] + shift)
            delays[peer] = one + np.int64((bits >> _32) * span + ((bits & LOW_HALF) * span >> _32) >> _32)
    else:
        for peer in range(peers):
            delays[peer] = delay_of(kind, one, two, three, mix(keys[peer] + shift))


@njit_plain
def no_sooner_than(row: Any, delivery: Any, earlier: Any) -> Any:
    """Deliver at each peer no sooner than another message, which was sent so much `earlier`."""
    shift = row.dtype.type(earlier)
    for peer in range(len(row)):
        at = row.dtype.type(delivery[peer] - shift)
        row[peer] = max(at, row[peer])


@njit_plain
def transpose_block(begin: Any, times: Any, delivery: Any, seen_before: Any, due: Any) -> Any:
    """Write a block of messages that has just been sent into `due`."""
    mask, peers = delivery.shape[0] - 1, delivery.shape[1]
    for peer in range(peers):
        for place in range(BLOCK):
            slot = begin + place & mask
            at = times[begin + place] + np.int64(delivery[slot, peer])
            due[peer, slot] = _NEVER if seen_before[place, peer] else at


@njit_plain
def immediate_dependencies(
    me: Any, now: Any, sent: Any, sending: Any, schedule: Any, state: Any,
    seen: Any, past: Any, row: Any, chosen: Any,
) -> Any:  # fmt: skip
    """What a message of `me` immediately depends on if sent now: how many, with their places in `chosen`.

    Those are the messages of others that it has delivered since it last sent and that are not in the causal
    past of another of them. Counts what it has delivered in `seen`; writes the latest delivery of any of them
    at each peer into `row`, and all that is in their past into `past`.
    """
    times, senders, numbers = schedule.times, schedule.senders, schedule.numbers
    delivery, clocks, complete, older = state.delivery, state.clocks, state.complete, state.older
    rows, peers = delivery.shape
    mask, oldest = rows - 1, state.sums[OLDEST]
    found = delivered_while_silent(me, schedule, state, seen, chosen)
    if found:
        chosen[:found].sort()
    found = newly_delivered(me, now, sent, schedule, state, chosen, found)
    for place in range(found):
        seen[senders[chosen[place]]] = numbers[chosen[place]]
    if sending:
        mark_seen(me, state, chosen, found)
    past[:] = 0
    count = 0
    # The newest is in no other's past; a message in another's past adds nothing to it.
    for place in range(found - 1, -1, -1):
        message = chosen[place]
        peer = senders[message]
        if past[peer] >= numbers[message]:
            continue
        in_flight = message >= oldest
        clock = clocks[message & mask] if in_flight else older[peer]
        for other in range(peers):
            past[other] = max(past[other], clock[other])
        if in_flight and complete[message & mask] > now:
            no_sooner_than(row, delivery[message & mask], now - times[message])
        count += 1
        chosen[found - count] = message
    chosen[:count] = chosen[found - count : found].copy()
    return count


@njit_inline
def delivered_while_silent(me: Any, schedule: Any, state: Any, seen: Any, chosen: Any) -> Any:
    """If `me` was silent for long: for each peer, the last message that is delivered everywhere. Returns how
    many."""
    first, places, older = schedule.first, schedule.places, state.older
    found = 0
    if state.since[me] < state.sums[OLDEST]:
        for peer in range(len(seen)):
            if peer != me and older[peer, peer] > seen[peer]:
                seen[peer] = older[peer, peer]
                chosen[found] = places[first[peer] + seen[peer] - 1]
                found += 1
    return found


@njit_inline
def newly_delivered(me: Any, now: Any, sent: Any, schedule: Any, state: Any, chosen: Any, found: Any) -> Any:
    """Append the messages in flight that `me` has delivered by `now` and since it last sent, in the order of
    sending, to the `found` in `chosen`; how many there are then."""
    times, delivery, due, since = schedule.times, state.delivery, state.due, state.since
    mask = delivery.shape[0] - 1
    oldest, transposed = state.sums[OLDEST], state.sums[TRANSPOSED]
    for message in range(max(since[me], oldest), transposed):
        if due[me, message & mask] <= now:
            chosen[found] = message
            found += 1
    for message in range(max(transposed, since[me]), sent):
        seen_before = state.seen_before[message % BLOCK, me]
        if not seen_before and times[message] + delivery[message & mask, me] <= now:
            chosen[found] = message
            found += 1
    return found


@njit_inline
def mark_seen(me: Any, state: Any, chosen: Any, found: Any) -> Any:
    """`me` sends: what it has delivered so far is no dependency of later messages."""
    due, since = state.due, state.since
    mask = state.delivery.shape[0] - 1
    oldest, transposed = state.sums[OLDEST], state.sums[TRANSPOSED]
    for place in range(found):
        if chosen[place] >= transposed:
            state.seen_before[chosen[place] % BLOCK, me] = True
        elif chosen[place] >= oldest:
            due[me, chosen[place] & mask] = _NEVER
    start = max(since[me], oldest)
    while start < transposed and due[me, start & mask] == _NEVER:
        start += 1
    since[me] = start
