"""The event kernels' common ground: time, links and what is counted; the twin of `sim/world.py`.

Arrivals are in a calendar: a ring of buckets of equal width, each a chain of events, and a heap of those
whose bucket has come; what is further ahead than the ring is long stays in its bucket for another turn.
What a peer does by itself, sending and waking, is in a second heap of alarms. An arrival costs O(1) to plan
and O(log of a bucket) to take; the width is such that a bucket holds about eight.

A kernel for a protocol has a loop over `following` and calls `transmit`, `arrived`, `delivered` and the like
as the world would. All of it is in arrays, so that it can stop between any two events and go on. They are
large enough for whatever may be under way; memory that is never touched costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from antecede.jit import njit_hot, njit_inline
from antecede.sim import counter_rng
from antecede.sim.kernels.contract import DELIVERED, RECEIVED, SENT, CapacityExceeded, ObserverFeed, Progress
from antecede.sim.kernels.runtime.counter_rng import between, delay_of, draw, extended, happens, mix, model
from antecede.sim.kernels.runtime.send_schedule import next_send, plan_of
from antecede.sim.metrics import Metrics, mean
from antecede.sim.network import Delay, parse_delay
from antecede.sim.network.faults import Duplicate, Fault, Loss, Reorder, Spike, parse_fault
from antecede.sim.scenario import Scenario
from antecede.sim.world import DRAIN
from antecede.units import SECOND

HOP, NOTHING, ARRIVAL, WAKE, CHANGE, SEND, SAMPLE, STOPPED = -1, 0, 1, 2, 3, 4, 5, 6
"""What comes next. Those of one instant come in this order, as in the world."""

WHEN, ORDER, WHAT, AFTER = range(4)
"""In `Run.events`."""

# Places in `Run.at`.
(
    NOW, FREE, HEAPED, BUCKET, PLANNED, ALARMS, LEFT, ROWS, FULL, SAMPLES,
    PACKETS, LINK_BYTES, MESSAGES, CONTROL, CONTROL_MOST, PAPER, PAPER_MOST,
    DELIVERIES, LATENCY, LATENCY_MOST, HELD, HOLD, SCALARS,
) = range(23)  # fmt: skip

_PEER_BITS, _NUMBER_BITS = 20, 21
_MAX_EVENTS = 1 << 25
_MAX_COPIES = 16
_ROOM = 1 << 20
_MARGIN = 1 << 18
_IN_A_BUCKET = 8
_EVENTS = 2_000_000
"""Between two reports of progress: about a second."""
_FAULTS: dict[type[Fault], int] = {Spike: 0, Duplicate: 1, Reorder: 2, Loss: 3}


class Run(NamedTuple):
    """All that an event kernel knows besides its protocol's own state."""

    at: np.ndarray
    """Single numbers, by the names above."""
    events: np.ndarray
    """Arrivals: their time, what orders those of one time, the packet, and the next in their bucket. In one
    array, so that each is on one cache line."""
    free: np.ndarray
    """Places of no arrival, as a stack."""
    heads: np.ndarray
    heap: np.ndarray
    alarms: np.ndarray
    """The heap of alarms: time, and kind and peer."""
    planned: np.ndarray
    """How often each peer was to send so far."""
    messages: np.ndarray
    """How many messages it has sent."""
    silent: np.ndarray
    ahead: np.ndarray
    """How far each clock is ahead."""
    samples: np.ndarray
    link_packets: np.ndarray
    link_last: np.ndarray
    """Of each link: packets so far, and the last arrival if links keep order (else it is empty)."""
    copies: np.ndarray
    rows: np.ndarray
    """What observers have not been shown yet; empty if there are none."""
    sites: np.ndarray
    faults: np.ndarray
    shares: np.ndarray


class Rules(NamedTuple):
    """What does not change in a run."""

    plan: tuple[int, int, int, int, int]
    phase: Any
    late: Any
    answers: Any
    reply: float
    until: int
    last_wake: int
    link: Any
    near: tuple[int, int, int, int]
    local: tuple[int, int, int, int]
    width: int
    """Of a bucket, in bits of nanoseconds."""


def fresh(
    given: Scenario,
    links: int,
    copies: float,
    observed: bool,
    furthest: int = 0,
    pace: tuple[float, int] | None = None,
) -> tuple[Run, Rules]:
    """Before anything happens. `links` is how many there are; `copies` how many packets a message makes.

    `furthest` is how far ahead `wake_soon` may be asked for. `pace` is of a network with a time of its own:
    how many things happen in a nanosecond, and how far ahead they are planned.
    """
    load = given.build_workload()
    until = round(given.seconds * SECOND)
    delay, local = parse_delay(given.delay), parse_delay(given.local_delay or given.delay)
    faults = [parse_fault(text) for text in given.faults]
    longest = max(longest_delay(given), furthest)
    rate = max(1e-9, given.expected_messages() * copies / max(1, until))
    if pace is not None:
        rate, longest = pace
    bits = 0
    while 1 << bits + 1 < _IN_A_BUCKET / rate or (longest >> bits) > 1 << 20:
        bits += 1
    buckets = 1
    while buckets < (longest >> bits) + 3:
        buckets *= 2
    arranged = given.resolved_layout()
    near = given.local_delay is not None and arranged is not None
    fifo = given.protocol_class().links.fifo if given.fifo is None else given.fifo
    purposes = counter_rng.PHASE, counter_rng.SEND, counter_rng.REPLY, counter_rng.LINK
    keys = [counter_rng.key(given.seed, purpose) for purpose in purposes]
    phase, late, answers, link = (np.uint64(key) for key in keys)
    rules = Rules(
        plan_of(load), phase, late, answers, given.reply, until, until + DRAIN, link, model(delay),
        model(local), bits,
    )  # fmt: skip
    silent = np.zeros(given.peers, np.bool_)
    silent[list(given.silent)] = True
    active = np.zeros(given.peers, np.bool_)
    active[given.sending_peers()] = True
    alarms = 4 * given.peers + 1024
    run = Run(
        at=np.zeros(SCALARS, np.int64),
        events=np.empty((_MAX_EVENTS, 4), np.int64),
        free=np.empty(_MAX_EVENTS, np.int32),
        heads=np.full(buckets, -1, np.int32),
        heap=np.empty(_MAX_EVENTS, np.int32),
        alarms=np.empty((2, alarms), np.int64),
        planned=np.zeros(given.peers, np.int64),
        messages=np.zeros(given.peers, np.int64),
        silent=silent,
        ahead=np.array(given.clock_offsets(), np.int64),
        samples=np.array(given.sample_times() if given.probes else (), np.int64),
        link_packets=np.zeros(links, np.int32),
        link_last=np.zeros(links if fifo else 0, np.int64),
        copies=np.zeros(_MAX_COPIES, np.int64),
        rows=np.empty((_ROOM if observed else 0, 7), np.int64),
        sites=np.array(arranged.sites(given.peers) if near and arranged else (), np.int32),
        faults=np.array([_numbers(fault) for fault in faults], np.int64).reshape(-1, 4),
        shares=np.array([getattr(fault, "share", 0.0) for fault in faults], np.float64),
    )
    run.at[LEFT] = -1 if given.most_messages is None else given.most_messages
    start(run, rules, active)
    return run, rules


def _numbers(fault: Fault) -> tuple[int, int, int, int]:
    """A fault as kernels take it: which, and its times."""
    match fault:
        case Spike(first, end, extra):
            return _FAULTS[Spike], first, end, extra
        case Duplicate(_, within):
            return _FAULTS[Duplicate], within, 0, 0
        case Reorder(_, by):
            return _FAULTS[Reorder], by, 0, 0
    return _FAULTS[Loss], 0, 0, 0


def _longest(delays: Sequence[Delay], faults: Sequence[Fault]) -> int:
    """No packet takes longer."""
    return max(delay.longest for delay in delays) + sum(max(_numbers(fault)[1:]) for fault in faults)


@njit_hot
def start(run: Any, rules: Any, active: Any) -> Any:
    at = run.at
    at[FREE] = len(run.free)
    for place in range(len(run.samples[:1])):
        alarm(run, run.samples[place], SAMPLE, 0)
    for peer in range(len(run.planned)):
        if active[peer]:
            plan(run, rules, peer, 0)


@njit_inline
def alarm(run: Any, time: Any, kind: Any, peer: Any) -> Any:
    """Something that a peer is to do by itself: onto the heap of alarms."""
    times, keys, at = run.alarms[0], run.alarms[1], run.at
    place = at[ALARMS]
    if place == len(times):
        at[FULL] = 1
        return
    at[ALARMS] += 1
    key = np.int64(kind) << _PEER_BITS | peer
    while place:
        above = place - 1 >> 1
        if times[above] < time or (times[above] == time and keys[above] <= key):
            break
        times[place], keys[place] = times[above], keys[above]
        place = above
    times[place], keys[place] = time, key


@njit_inline
def next_alarm(run: Any) -> Any:
    """Take the first alarm off its heap; its key."""
    times, keys, at = run.alarms[0], run.alarms[1], run.at
    first = keys[0]
    at[ALARMS] -= 1
    size = at[ALARMS]
    time, key = times[size], keys[size]
    place = 0
    while True:
        below = 2 * place + 1
        if below >= size:
            break
        other = below + 1
        if other < size and (
            times[other] < times[below] or (times[other] == times[below] and keys[other] < keys[below])
        ):
            below = other
        if time < times[below] or (time == times[below] and key <= keys[below]):
            break
        times[place], keys[place] = times[below], keys[below]
        place = below
    times[place], keys[place] = time, key
    return first


@njit_inline
def plan(run: Any, rules: Any, peer: Any, previous: Any) -> Any:
    """The twin of `World._plan_send`."""
    phase, late = extended(rules.phase, peer), extended(rules.late, peer)
    time = next_send(rules.plan, phase, late, run.planned[peer], previous)
    if time < rules.until:
        alarm(run, time, SEND, peer)


@njit_inline
def plan_next(run: Any, rules: Any, peer: Any) -> Any:
    """A peer has sent, or would have: when it does so again."""
    run.planned[peer] += 1
    plan(run, rules, peer, run.at[NOW])


@njit_inline
def wake_at(run: Any, rules: Any, peer: Any, clock: Any) -> Any:
    """`peer` asks to be woken when its own clock says so."""
    time = max(clock - run.ahead[peer], run.at[NOW])
    if time <= rules.last_wake:
        alarm(run, time, WAKE, peer)


@njit_inline
def wake_soon(run: Any, rules: Any, peer: Any, clock: Any) -> Any:
    """The same for those who are woken as often as packets come: in the calendar, as an arrival at a peer
    above all others, so that it comes after the arrivals of its instant."""
    time = max(clock - run.ahead[peer], run.at[NOW])
    if time <= rules.last_wake:
        arrival(run, rules, time, 0, 1 << _PEER_BITS | peer, 0, 0)


@njit_inline
def heap_push(run: Any, event: Any) -> Any:
    events, heap, at = run.events, run.heap, run.at
    place = at[HEAPED]
    at[HEAPED] += 1
    time, order = events[event, WHEN], events[event, ORDER]
    while place:
        above = place - 1 >> 1
        other = heap[above]
        if events[other, WHEN] < time or (events[other, WHEN] == time and events[other, ORDER] <= order):
            break
        heap[place] = other
        place = above
    heap[place] = event


@njit_inline
def heap_pop(run: Any) -> Any:
    events, heap, at = run.events, run.heap, run.at
    at[HEAPED] -= 1
    size = at[HEAPED]
    event = heap[size]
    time, order = events[event, WHEN], events[event, ORDER]
    place = 0
    while True:
        below = 2 * place + 1
        if below >= size:
            break
        lower = heap[below]
        first, key = events[lower, WHEN], events[lower, ORDER]
        if below + 1 < size:
            other = heap[below + 1]
            if events[other, WHEN] < first or (events[other, WHEN] == first and events[other, ORDER] < key):
                below, lower = below + 1, other
                first, key = events[lower, WHEN], events[lower, ORDER]
        if time < first or (time == first and order <= key):
            break
        heap[place] = lower
        place = below
    heap[place] = event


@njit_inline
def arrival(run: Any, rules: Any, time: Any, source: Any, to: Any, number: Any, packet: Any) -> Any:
    """Plan one."""
    expect(run, rules, time, arrival_order(source, to, number), packet)


@njit_inline
def arrival_order(source: Any, to: Any, number: Any) -> Any:
    """Of arrivals of one instant. What a network does by itself is below 0, so that it comes before them."""
    return (np.int64(to) << _PEER_BITS | source) << _NUMBER_BITS | number


@njit_inline
def expect(run: Any, rules: Any, time: Any, order: Any, what: Any) -> Any:
    """Plan something: into its bucket, or onto the heap if that has come."""
    at, heads = run.at, run.heads
    if at[FREE] == len(run.free):  # the stack is filled as it is first used
        event = at[PLANNED]
        if event == len(run.events):
            at[FULL] = 1
            return
        at[PLANNED] += 1
    else:
        event = np.int64(run.free[at[FREE]])
        at[FREE] += 1
    made = run.events[event]
    made[WHEN], made[ORDER], made[WHAT] = time, order, what
    bucket = time >> rules.width
    if bucket <= at[BUCKET]:
        heap_push(run, event)
    else:
        place = bucket & len(heads) - 1
        made[AFTER] = heads[place]
        heads[place] = event


@njit_inline
def stops(run: Any) -> Any:
    """Whether rows are to be shown before anything else happens, or something is full."""
    return run.at[FULL] or (run.at[ROWS] > len(run.rows) - _MARGIN and len(run.rows))


@njit_inline
def following(run: Any, rules: Any) -> Any:
    """What comes next: its kind, the peer, and for an arrival where it is from and the packet.

    `STOPPED` if rows are to be shown first, or something is full.
    """
    at, heads = run.at, run.heads
    if stops(run):
        return STOPPED, 0, 0, 0
    under_way = at[PLANNED] - (len(run.free) - at[FREE])
    if under_way > 0:
        mask = len(heads) - 1
        # No further than the next alarm: what it does may come before what is planned.
        limit = run.alarms[0, 0] >> rules.width if at[ALARMS] else np.int64(1 << 62)
        while at[HEAPED] == 0 and at[BUCKET] < limit:
            at[BUCKET] += 1
            place = at[BUCKET] & mask
            event = np.int64(heads[place])
            heads[place] = -1
            while event >= 0:
                after = run.events[event, AFTER]
                if run.events[event, WHEN] >> rules.width > at[BUCKET]:  # in a later turn of the ring
                    run.events[event, AFTER] = heads[place]
                    heads[place] = event
                else:
                    heap_push(run, event)
                event = after
    if at[HEAPED]:
        event = np.int64(run.heap[0])
        time, order, packet = run.events[event, WHEN], run.events[event, ORDER], run.events[event, WHAT]
        if at[ALARMS] == 0 or time <= run.alarms[0, 0]:
            heap_pop(run)
            at[FREE] -= 1
            run.free[at[FREE]] = event
            at[NOW] = time
            if order < 0:
                return HOP, 0, 0, packet
            ends = order >> _NUMBER_BITS
            peer = ends >> _PEER_BITS
            if peer >> _PEER_BITS:
                return WAKE, peer & (1 << _PEER_BITS) - 1, 0, 0
            return ARRIVAL, peer, ends & (1 << _PEER_BITS) - 1, packet
    if at[ALARMS] == 0:
        return NOTHING, 0, 0, 0
    at[NOW] = run.alarms[0, 0]
    if at[PLANNED] - (len(run.free) - at[FREE]) == 0:
        at[BUCKET] = max(at[BUCKET], (at[NOW] >> rules.width) - 1)
    key = next_alarm(run)
    kind, peer = key >> _PEER_BITS, key & (1 << _PEER_BITS) - 1
    if kind == SAMPLE:
        at[SAMPLES] += 1
        if at[SAMPLES] < len(run.samples):
            alarm(run, run.samples[at[SAMPLES]], SAMPLE, 0)
    return kind, peer, 0, 0


@njit_inline
def may_send(run: Any, peer: Any) -> Any:
    """Whether a broadcast of `peer` is sent at all; then it has the next number."""
    if run.at[LEFT] == 0 or run.silent[peer]:
        return False
    run.at[LEFT] -= 1
    run.messages[peer] += 1
    return True


@njit_inline
def sent(run: Any, peer: Any, control: Any, paper: Any) -> Any:
    """The last message of `peer` is on its way, with so many bytes of control information in its packet."""
    at = run.at
    at[MESSAGES] += 1
    at[CONTROL] += control
    at[CONTROL_MOST] = max(at[CONTROL_MOST], control)
    at[PAPER] += paper
    at[PAPER_MOST] = max(at[PAPER_MOST], paper)
    show(run, SENT, peer, peer, run.messages[peer], 0, control)


@njit_inline
def arrived(run: Any, peer: Any, source: Any, origin: Any, seq: Any) -> Any:
    """A message has come to `peer`, perhaps again."""
    show(run, RECEIVED, peer, origin, seq, source, 0)


@njit_inline
def delivered(run: Any, rules: Any, peer: Any, origin: Any, seq: Any, sent_at: Any, arrived_at: Any) -> Any:
    """A message is delivered; True if it is to be answered at once."""
    at = run.at
    now = at[NOW]
    at[DELIVERIES] += 1
    at[LATENCY] += now - sent_at
    at[LATENCY_MOST] = max(at[LATENCY_MOST], now - sent_at)
    if now > arrived_at:
        at[HELD] += 1
        at[HOLD] += now - arrived_at
    show(run, DELIVERED, peer, origin, seq, 0, 0)
    if rules.reply == 0.0 or now >= rules.until:
        return False
    answers = extended(extended(rules.answers, peer), origin)
    return happens(draw(answers, seq), rules.reply)


@njit_inline
def show(run: Any, kind: Any, peer: Any, origin: Any, seq: Any, source: Any, control: Any) -> Any:
    at, rows = run.at, run.rows
    if len(rows) == 0:
        return
    row = at[ROWS]
    if row == len(rows):
        at[FULL] = 1
        return
    at[ROWS] += 1
    rows[row, 0], rows[row, 1], rows[row, 2], rows[row, 3] = kind, peer, origin, seq
    rows[row, 4], rows[row, 5], rows[row, 6] = at[NOW], source, control


@njit_inline
def transmit(run: Any, rules: Any, link: Any, source: Any, to: Any, packet: Any, control: Any) -> Any:
    """Send a packet over one link; how many copies of it will arrive. The twin of `Direct.transmit`."""
    at = run.at
    now = at[NOW]
    at[PACKETS] += 1
    at[LINK_BYTES] += control
    number = run.link_packets[link]
    run.link_packets[link] += 1
    if number >> _NUMBER_BITS:
        at[FULL] = 1
        return 0
    key = extended(extended(rules.link, source), to)
    kind, one, two, three = rules.near
    if len(run.sites) and run.sites[source] == run.sites[to]:
        kind, one, two, three = rules.local
    time = now + delay_of(kind, one, two, three, draw(key, number))
    if len(run.faults) == 0:
        if len(run.link_last):
            time = max(time, run.link_last[link])
            run.link_last[link] = time
        arrival(run, rules, time, source, to, number, packet)
        return 1
    copies = run.copies
    copies[0] = time
    count = strike(run, key, number, 1, False)
    if len(run.link_last) and count:
        for copy in range(count):
            copies[copy] = max(copies[copy], run.link_last[link])
        run.link_last[link] = copies[count - 1]
    count = strike(run, key, number, count, True)
    for copy in range(count):
        arrival(run, rules, copies[copy], source, to, number, packet)
    return count


@njit_inline
def strike(run: Any, key: Any, number: Any, count: Any, breaking: Any) -> Any:
    """What faults do to the copies of a packet: those that can, or that cannot, break a link's order."""
    copies, now = run.copies, run.at[NOW]
    for place in range(len(run.faults)):
        kind, one, two, three = run.faults[place]
        bits = draw(extended_pair(key, place), number)
        if kind == 0 and not breaking and one <= now < two:
            for copy in range(count):
                copies[copy] += three
        elif kind == 3 and not breaking and happens(bits, run.shares[place]):
            count = 0
        elif kind == 1 and breaking and count and happens(bits, run.shares[place]):
            if count == len(copies):
                run.at[FULL] = 1
            else:
                copies[count] = copies[0] + between(mix(bits), 0, one + 1)
                count += 1
        elif kind == 2 and breaking and happens(bits, run.shares[place]):
            late = between(mix(bits), 0, one + 1)
            for copy in range(count):
                copies[copy] += late
    return count


@njit_inline
def extended_pair(key: Any, part: Any) -> Any:
    """`counter_rng.key(key, part)`: a key that is itself made of a key."""
    return extended(extended(np.uint64(0), key), part)


def longest_delay(given: Scenario) -> int:
    """No packet takes longer, in nanoseconds."""
    delays = (parse_delay(given.delay), parse_delay(given.local_delay or given.delay))
    return _longest(delays, [parse_fault(text) for text in given.faults])


def drive(
    run: Run,
    rules: Rules,
    advance: Callable[[int], bool],
    observers: ObserverFeed,
    progress: Progress | None,
) -> None:
    """Drive a run to its end: `advance` processes so many events and returns whether there are more."""
    observers.start_over()
    more = True
    while more:
        more = advance(_EVENTS)
        if run.at[FULL]:
            raise CapacityExceeded
        observers.show_rows(run.rows[: run.at[ROWS]])
        run.at[ROWS] = 0
        if progress is not None:
            progress(min(1.0, float(run.at[NOW]) / max(1, rules.until)))


def metrics(run: Run, stuck: int, measured: dict[str, float]) -> Metrics:
    """The figures of a run that has ended."""
    at = [int(value) for value in run.at]
    return Metrics(
        messages=at[MESSAGES],
        deliveries=at[DELIVERIES],
        packets=at[PACKETS],
        link_bytes=at[LINK_BYTES],
        control_bytes_mean=mean(at[CONTROL], at[MESSAGES]),
        control_bytes_max=at[CONTROL_MOST],
        paper_bytes_mean=mean(at[PAPER], at[MESSAGES]),
        paper_bytes_max=at[PAPER_MOST],
        latency_mean_ns=mean(at[LATENCY], at[DELIVERIES]),
        latency_max_ns=at[LATENCY_MOST],
        held=at[HELD],
        hold_mean_ns=mean(at[HOLD], at[HELD]),
        stuck=stuck,
        simulated_ns=at[NOW],
        measured=measured,
    )
