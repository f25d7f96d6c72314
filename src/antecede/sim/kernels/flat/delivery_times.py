"""Flat causal broadcast without a queue of events, for delays that do not depend on the protocol.

In the order of sending, a message is delivered to each peer when it has arrived there and what it immediately
depends on has been delivered there:

    delivery[m, :] = max(arrival[m, :], delivery[d, :] for each d that m immediately depends on)

This yields every delivery time, every vector clock and every immediate dependency in one pass, and so the
control information of each flat protocol (`protocols/flat.py` and those built on it, whose delivery condition
all of them share). A delivery costs as many operations as its message has immediate dependencies, 4 or 8 of
them at a time. Rows are kept until their message is delivered everywhere: memory is peers × messages under
way, and a few tables of peers².
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from antecede.jit import njit_plain
from antecede.sim.kernels.runtime.counter_rng import FIXED, LOW_HALF, STEP, UNIFORM, delay_of, extended, mix
from antecede.sim.kernels.runtime.msgpack_sizes import head_bytes, int_bytes, payload_head
from antecede.sim.kernels.runtime.send_schedule import SendSchedule

TIMESTAMP, TIMESTAMP_DIFF, MBCP, DEPSEQ = range(4)
_32 = np.uint64(32)
_NARROW = 1 << 32
_NEVER = 1 << 62
BLOCK = 16
"""So many messages are laid out anew at once: they fill whole cache lines."""
_PAD = 8
"""Rows a power of two apart would fall on the same few places of a cache."""

# Places in `State.sums`.
LATENCY, LATEST, HELD, HOLD, END, SAMPLES, NAMED_AT_SAMPLES, OLDEST, LAID_OUT = range(9)


class RecurrenceState(NamedTuple):
    """All that a run knows; arrays, so that it can stop between any two messages and go on."""

    delivery: np.ndarray
    """How long after it was sent each message under way is delivered to each peer. Message i is in row i
    modulo the rows. 32 bits wide, which is twice as fast as 64, for as long as nothing takes two seconds."""
    clocks: np.ndarray
    """The vector clock of each message under way."""
    complete: np.ndarray
    """When each of them is delivered everywhere."""
    due: np.ndarray
    """When each message under way (column, but for the newest) is delivered to each peer (row); never, if the
    peer has sent since. The same as `delivery`, laid out for who looks at what has come to him."""
    taken: np.ndarray
    """Which of the newest messages each peer had delivered when it last sent."""
    since: np.ndarray
    """The first message that each peer may have delivered since it last sent."""
    older: np.ndarray
    """The clock of each peer's last message that is no longer under way."""
    seen: np.ndarray
    """How many messages of each peer (column) each peer (row) had delivered when it last sent."""
    links: np.ndarray
    """The random sequence of each link."""
    relays: np.ndarray
    """The same from the relay on; empty if there is none."""
    last: np.ndarray
    """The last arrival on each link, where links keep order; else empty."""
    sums: np.ndarray
    """Totals, the first message still under way, and how many are laid out in `due`."""
    control: np.ndarray
    paper: np.ndarray
    named: np.ndarray
    """Of each message: bytes on the wire, as its paper counts, and immediate dependencies of other peers."""
    covered: np.ndarray
    """Whether the sender's previous message is before another one that the message depends on."""


def create_state(
    schedule: SendSchedule, peers: int, links: int, relays: int | None, fifo: bool, wide: bool, rows: int
) -> RecurrenceState:
    """Before anything is sent. `links` and `relays` are random sequences, to be told apart by link."""
    square, none = (peers, peers), (0, 0)
    count = len(schedule.times)
    return RecurrenceState(
        delivery=np.zeros((rows, peers), np.int64 if wide else np.int32),
        clocks=np.zeros((rows, peers), np.int32),
        complete=np.zeros(rows, np.int64),
        due=np.zeros((peers, rows + _PAD), np.int64),
        taken=np.zeros((BLOCK, peers), np.bool_),
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
    """Room for twice as many messages under way, `sent` having been sent."""
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
    """`chance.key` of the seed and each link, by source and destination."""
    keys = np.empty((peers, peers), np.uint64)
    for source in range(peers):
        start = extended(key, source)
        for destination in range(peers):
            keys[source, destination] = extended(start, destination)
    return keys


@njit_plain
def advance(
    begin: Any, end: Any, protocol: Any, payload: Any, schedule: Any, state: Any,
    near: Any, far: Any, behind: Any, samples: Any, sampled: Any,
) -> Any:  # fmt: skip
    """Send the messages from `begin` to before `end`, and take the `samples` from the `sampled`-th on that
    come before. Returns how many messages and samples are done: fewer than asked if rows ran out, none if a
    delivery took longer than the width of `delivery` can say."""
    times, senders, numbers, first, places, _ = schedule
    delivery, clocks, complete, due, taken, _, older, seen, links, relays, last, sums = state[:12]
    control, paper, named, covered = state[12:]
    rows, peers = delivery.shape
    mask = rows - 1
    row, delays = np.empty(peers, delivery.dtype), np.empty(peers, np.int64)
    known, told = np.empty(peers, np.int32), np.empty(peers, np.int32)
    chosen = np.empty(rows + peers, np.int64)
    longest = (1 << 31) - 1 if delivery.itemsize == 4 else _NEVER
    fifo, relayed = last.shape[0] > 0, relays.shape[0] > 0
    total = len(times)
    for message in range(begin, end + 1):
        now = times[message] if message < total else np.int64(_NEVER)
        while sampled < len(samples) and samples[sampled] < now and (message < end or end == total):
            for peer in range(peers):
                told[:] = seen[peer]
                sums[NAMED_AT_SAMPLES] += immediate_dependencies(
                    peer, samples[sampled], message, False, schedule, state, told, known, row, chosen
                )
            sums[SAMPLES] += 1
            sampled += 1
        if message == end:
            break
        slot = message & mask
        if message - rows >= sums[OLDEST]:
            if complete[slot] > now:
                return message, sampled
            older[senders[message - rows]] = clocks[slot]
            sums[OLDEST] = message - rows + 1
        if message % BLOCK == 0 and message > sums[LAID_OUT]:
            transpose_block(message - BLOCK, times, delivery, taken, due)
            sums[LAID_OUT] = message
        me, number = senders[message], numbers[message]

        row[:] = 0
        told[:] = seen[me]
        count = immediate_dependencies(me, now, message, True, schedule, state, seen[me], known, row, chosen)
        if number > 1:
            previous = places[first[me] + number - 2]
            if previous >= sums[OLDEST] and complete[previous & mask] > now:
                no_sooner_than(row, delivery[previous & mask], now - times[previous])
        named[message], covered[message] = count, known[me] >= number - 1 and number > 1
        wire, counted = 0, 0
        if peers > 1:
            wire, counted = stamp_bytes(protocol, me, number, seen[me], told, chosen, count, senders, numbers)
            wire += payload_head(payload)
        control[message], paper[message] = wire, counted
        seen[me, me] = number
        taken[message % BLOCK, :] = False
        taken[message % BLOCK, me] = True
        clocks[slot, :] = seen[me]

        shift = np.uint64(number - 1) * STEP
        keys = links[me]
        draw_delays(near, keys, shift, delays)
        if relayed:
            keys = relays[me]
            for peer in range(peers):
                if me < behind or peer < behind:
                    delays[peer] += delay_of(far[0], far[1], far[2], far[3], mix(keys[peer] + shift))
        if fifo:
            for peer in range(peers):
                last[me, peer] = max(now + delays[peer], last[me, peer])
                delays[peer] = last[me, peer] - now
        delays[me] = row[me] = 0
        slowest, latest, latency, held, hold = 0, 0, 0, 0, 0
        to = delivery[slot]
        for peer in range(peers):
            took = max(np.int64(row[peer]), delays[peer])
            to[peer] = took
            latest = max(latest, took)
            slowest = max(slowest, delays[peer])
            latency += took
            held += took > delays[peer]
            hold += took - delays[peer]
        if latest >= longest:
            return -1, sampled
        complete[slot] = now + latest
        sums[LATENCY] += latency
        sums[LATEST] = max(sums[LATEST], latest)
        sums[HELD] += held
        sums[HOLD] += hold
        sums[END] = max(sums[END], now + slowest)
    return end, sampled


@njit_plain
def draw_delays(near: Any, keys: Any, shift: Any, delays: Any) -> Any:
    """How long a packet takes to everyone over links with these keys."""
    kind, one, two, three = near
    peers = len(delays)
    if kind == FIXED:
        delays[:] = one
    elif kind == UNIFORM and two - one + 1 < _NARROW:
        span = np.uint64(two - one + 1)
        for peer in range(peers):  # `between`, short enough to be done for eight peers at a time
            bits = mix(keys[peer] + shift)
            delays[peer] = one + np.int64((bits >> _32) * span + ((bits & LOW_HALF) * span >> _32) >> _32)
    else:
        for peer in range(peers):
            delays[peer] = delay_of(kind, one, two, three, mix(keys[peer] + shift))


@njit_plain
def no_sooner_than(row: Any, delivery: Any, earlier: Any) -> Any:
    """No sooner than another message, which was sent so much `earlier`."""
    shift = row.dtype.type(earlier)
    for peer in range(len(row)):
        at = row.dtype.type(delivery[peer] - shift)
        row[peer] = max(at, row[peer])


@njit_plain
def transpose_block(begin: Any, times: Any, delivery: Any, taken: Any, due: Any) -> Any:
    """Put a block of messages that has just been sent into `due`."""
    mask, peers = delivery.shape[0] - 1, delivery.shape[1]
    for peer in range(peers):
        for place in range(BLOCK):
            slot = begin + place & mask
            at = times[begin + place] + np.int64(delivery[slot, peer])
            due[peer, slot] = _NEVER if taken[place, peer] else at


@njit_plain
def immediate_dependencies(
    me: Any, now: Any, sent: Any, sending: Any, schedule: Any, state: Any,
    seen: Any, known: Any, row: Any, chosen: Any,
) -> Any:  # fmt: skip
    """What a message of `me` immediately depends on if sent now: how many, with their places in `chosen`.

    Those are messages of others that it has delivered since it last sent and that are in no other's past.
    Counts what it has delivered in `seen`; puts the latest delivery of any of them, to each peer, into `row`,
    and all that is in their past into `known`.
    """
    times, senders, numbers, first, places, _ = schedule
    delivery, clocks, complete, due, taken, since, older, _, _, _, _, sums = state[:12]
    rows, peers = delivery.shape
    mask = rows - 1
    oldest, settled = sums[OLDEST], sums[LAID_OUT]
    found = 0
    if since[me] < oldest:
        # It was silent while messages went by: of each peer the last that is delivered everywhere.
        for peer in range(peers):
            if peer != me and older[peer, peer] > seen[peer]:
                seen[peer] = older[peer, peer]
                chosen[found] = places[first[peer] + seen[peer] - 1]
                found += 1
        chosen[:found].sort()
    for message in range(max(since[me], oldest), settled):
        if due[me, message & mask] <= now:
            chosen[found] = message
            found += 1
    for message in range(max(settled, since[me]), sent):
        if not taken[message % BLOCK, me] and times[message] + delivery[message & mask, me] <= now:
            chosen[found] = message
            found += 1
    for place in range(found):
        seen[senders[chosen[place]]] = numbers[chosen[place]]
    if sending:
        for place in range(found):
            if chosen[place] >= settled:
                taken[chosen[place] % BLOCK, me] = True
            elif chosen[place] >= oldest:
                due[me, chosen[place] & mask] = _NEVER
        start = max(since[me], oldest)
        while start < settled and due[me, start & mask] == _NEVER:
            start += 1
        since[me] = start
    known[:] = 0
    count = 0
    # The newest is in nobody's past; whoever is in another's past adds nothing to it.
    for place in range(found - 1, -1, -1):
        message = chosen[place]
        peer = senders[message]
        if known[peer] >= numbers[message]:
            continue
        alive = message >= oldest
        clock = clocks[message & mask] if alive else older[peer]
        for other in range(peers):
            known[other] = max(known[other], clock[other])
        if alive and complete[message & mask] > now:
            no_sooner_than(row, delivery[message & mask], now - times[message])
        count += 1
        chosen[found - count] = message
    chosen[:count] = chosen[found - count : found].copy()
    return count


@njit_plain
def stamp_bytes(
    protocol: Any, me: Any, number: Any, clock: Any, told: Any,
    chosen: Any, count: Any, senders: Any, numbers: Any,
) -> Any:  # fmt: skip
    """Control bytes of a message, without its payload's length: on the wire, and as its paper counts.

    The twins of `stamp` and `paper_bytes` of each flat protocol; `clock` is what the sender has delivered.
    """
    peers = len(clock)
    wire = 2 + int_bytes(me)
    if protocol == TIMESTAMP:
        wire += head_bytes(peers) + int_bytes(number) - int_bytes(clock[me])
        for peer in range(peers):
            wire += int_bytes(clock[peer])
        return wire, 4 * peers
    wire += int_bytes(number)
    if protocol == MBCP:
        for place in range(count):
            message = chosen[place]
            wire += int_bytes(senders[message]) + int_bytes(numbers[message])
        return wire + head_bytes(count), 8 * count
    entries = 0
    for peer in range(peers):
        if peer != me and clock[peer] > (told[peer] if protocol == TIMESTAMP_DIFF else 0):
            entries += 1
            wire += int_bytes(peer) + int_bytes(clock[peer])
    wire += head_bytes(entries)
    return (wire, 4 * (1 + entries)) if protocol == TIMESTAMP_DIFF else (wire + 3 * entries, 8 * entries)
