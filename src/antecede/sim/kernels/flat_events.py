"""The twin of `protocols/flat.py` and of those built on it, event by event.

What a message waits for is a row with a count for each peer: its sender's clock, or for `mbcp` the causes
that it names. All four look at the sender's previous message first, and then from the last peer to the first
(`Holdback.file`). Once the previous message is there, so are the counts of a clock that did not change since:
what `timestamp-diff` and `depseq`, which name fewer of them, are filed under is what `timestamp` is filed
under.

What is held is in chains, some for each peer, by a hash of the message that it waits for: less memory than
one for each pair of peers, and so in nearer caches. A chain begins with what came last.

Memory is 12 to 24 bytes for each pair of peers, 4 × peers for each message until all its packets have come
and were delivered, and what is held.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from antecede.protocols.flat import Dependent
from antecede.sim.faults import Duplicate, parse_fault
from antecede.sim.kernels import events, flat, flat_network, pools, queues, routed
from antecede.sim.kernels.events import (
    ARRIVAL,
    FULL,
    NOTHING,
    NOW,
    SAMPLE,
    SEND,
    STOPPED,
    arrived,
    delivered,
    may_send,
    plan_next,
    sent,
)
from antecede.sim.kernels.flat_network import coming, send_all
from antecede.sim.kernels.jit import loop, part, step
from antecede.sim.kernels.pools import Items, free_item, new_item
from antecede.sim.kernels.queues import Watch, queue_deliver, queue_receive
from antecede.sim.kernels.recurrence import MBCP, TIMESTAMP_DIFF, stamp_bytes
from antecede.sim.kernels.sizes import payload_head
from antecede.sim.metrics import Metrics
from antecede.sim.scenario import Scenario
from antecede.sim.units import SECOND
from antecede.sim.world import Observer

_LANES = 64
"""Counts that are compared at once: fewer would not be compiled into vectors, but one by one."""
_MOST_COUNTS = 1 << 28
_MOST_MESSAGES = 1 << 20
_MOST_RECENT = 1 << 27
_RECENT = 16
_SPREAD = 7
_ONE, _63 = np.uint64(1), np.uint64(63)
_LANES_WIDE = np.uint64(_LANES)
_MADE, _VACANT, _HELD, _RING, _SCALARS = range(5)

# Places in `State.sums`: of packets, samples and messages, as probes count them.
_PACKETS, _PAPER, _WIRE, _SAMPLES, _SAMPLED = range(5)
_MESSAGES, _IMMEDIATE, _MOST, _NAMED, _WORST, _ALL, _SUMS = range(5, 12)

_MESSAGE = [
    ("sent_at", np.int64),
    ("origin", np.int32),
    ("seq", np.int32),
    ("left", np.int32),
    ("after", np.int32),
]
"""`left` copies have yet to come or to be delivered; then `after` is the next that is no message."""
_ITEM: list[tuple[str, type[np.generic]]] = [
    ("after", np.int32),
    ("origin", np.int32),
    ("number", np.int32),
    ("message", np.int32),
    ("place", np.int32),
    ("since", np.int64),
]
"""A message that waits: the next in its chain, what it waits for, which it is, from which peer on it lacks
nothing, and when it came."""


class Terms(NamedTuple):
    """What does not change in a run."""

    peers: int
    protocol: int
    payload: int
    head: int
    """Bytes of the payload's length on the wire."""
    as_paper: bool
    """Whether the network weighs packets as the paper does."""
    chains: int
    """How many each peer has, a power of two."""
    dense: bool
    """Whether packets are numbers of their senders' messages, not messages."""
    dependent: bool
    """Whether messages are `Dependent`."""
    since: int
    costs: bool
    immediate: bool
    """What probes measure, and from when on."""


class State(NamedTuple):
    at: np.ndarray
    """Single numbers, by the names above."""
    messages: np.ndarray
    """Those under way, from 1 on."""
    needs: np.ndarray
    """Of each of them what it waits for, beyond the last peer too: to whole vectors."""
    have: np.ndarray
    """What each peer has delivered of each."""
    noted: np.ndarray
    """What it will name next (`mbcp`), or had delivered when it last sent (`timestamp-diff`); or empty."""
    clocks: np.ndarray
    """The clock of each message where that is not what it waits for and a probe wants to know; or empty."""
    seen: np.ndarray
    """Of each message, to whom it has come, if packets may come twice; else it is empty."""
    recent: np.ndarray
    """The message that is the i-th of its sender, i modulo a ring; 0 if it is no longer under way."""
    chains: np.ndarray
    held: Items
    ranks: np.ndarray
    chosen: np.ndarray
    """All peers, and those that a message names."""
    covered: np.ndarray
    """Whether a peer's last message is before another that it has delivered."""
    sums: np.ndarray
    queues: Watch | None


def unfit(given: Scenario) -> str:
    """Why a run cannot be done so; nothing if it can."""
    others = set(given.probes) - flat.PROBES - {"queues"}
    if others:
        return f"probe {min(others)} is not compiled for {given.protocol}"
    if given.peers > flat.MOST_PEERS:
        return f"there are more than {flat.MOST_PEERS:,} peers"
    return flat_network.unfit(given)


def run(given: Scenario, observers: Sequence[Observer], progress: Callable[[float], None] | None) -> Metrics:
    peers = given.peers
    hops, twin = routed.fresh(given, lambda: flat_network.audiences(given))
    pace = routed.pace(given, hops, 4 * peers)
    made, rules = events.fresh(given, peers * peers, peers - 1, bool(observers), pace=pace)
    network = flat_network.fresh(given, hops)
    chains = _LANES
    while chains < peers // 4:
        chains *= 2
    terms = Terms(
        peers, flat.PROTOCOLS[given.protocol], given.payload, payload_head(given.payload),
        given.count == "paper", chains, network.plain, flat.stamps(given) is Dependent,
        round(given.warmup * SECOND), "costs" in given.probes, "immediate" in given.probes,
    )  # fmt: skip
    state = _fresh(given, terms)
    events.drive(
        made, rules, lambda count: advance(made, rules, network, state, terms, count), observers, progress
    )
    sums = [int(value) for value in state.sums]
    measured = flat_network.figures(network) | routed.figures(hops, twin, int(made.at[NOW]))
    measured |= queues.figures(state.queues)
    if terms.costs:
        measured |= flat.costs(given, *sums[_PACKETS:_MESSAGES])
    if terms.immediate:
        measured |= flat.immediate(*sums[_MESSAGES:])
    return events.metrics(made, int(state.at[_HELD]), measured)


def _fresh(given: Scenario, terms: Terms) -> State:
    peers = terms.peers
    width = -(-peers // _LANES) * _LANES
    rows = min(_MOST_MESSAGES, _MOST_COUNTS // width)
    noted = peers if terms.protocol in (MBCP, TIMESTAMP_DIFF) else 0
    clocks = rows if terms.protocol == MBCP and terms.immediate else 0
    again = any(isinstance(parse_fault(fault), Duplicate) for fault in given.faults)
    state = State(
        np.zeros(_SCALARS, np.int64), np.empty(rows, np.dtype(_MESSAGE, align=True)),
        np.empty((rows, width), np.int32), np.zeros((peers, width), np.int32),
        np.zeros((noted, width), np.int32), np.empty((clocks, width), np.int32),
        np.empty((rows if again else 0, peers + 63 >> 6), np.uint64), np.zeros(_MOST_RECENT, np.int32),
        np.zeros(peers * terms.chains, np.int32), pools.items(_ITEM), np.arange(peers),
        np.empty(peers, np.int64), np.zeros(peers, np.bool_), np.zeros(_SUMS, np.int64),
        queues.fresh(given),
    )  # fmt: skip
    state.at[_MADE], state.at[_RING] = 1, _RECENT
    return state


@loop
def advance(run: Any, rules: Any, network: Any, state: Any, terms: Any, budget: Any) -> Any:
    """So many events; False if there are no more."""
    for _ in range(budget):
        kind, peer, source, packet = coming(run, rules, network)
        if kind == NOTHING:
            return False
        if kind == STOPPED:
            return True
        if kind == SEND:
            broadcast(run, rules, network, state, terms, peer)
            plan_next(run, rules, peer)
        elif kind == ARRIVAL:
            if terms.dense:
                packet = np.int64(state.recent[(packet & state.at[_RING] - 1) * terms.peers + source])
            receive(run, rules, network, state, terms, peer, source, packet)
        elif kind == SAMPLE:
            sample(state, terms)
    return True


@part
def broadcast(run: Any, rules: Any, network: Any, state: Any, terms: Any, me: Any) -> Any:
    """The twin of `Flat.broadcast`."""
    if not may_send(run, me):
        return
    message, seq = new_message(run, state, terms, me), run.messages[me]
    if run.at[FULL]:
        return
    row, have = state.messages[message], state.have[me]
    row.origin, row.seq, row.sent_at = me, seq, run.at[NOW]
    control, paper = 0, 0
    if terms.peers > 1:
        control, paper = stamp(run, state, terms, me, message, seq)
    have[me] = seq
    sent(run, me, control, paper)
    weight = terms.payload + (paper if terms.as_paper else control)
    row.left = send_all(run, rules, network, me, message, seq - 1, control, weight)
    if row.left == 0:
        free(state, terms, message)


@step
def new_message(run: Any, state: Any, terms: Any, me: Any) -> Any:
    """Room for the next message of `me`."""
    at = state.at
    message = at[_VACANT]
    if message:
        at[_VACANT] = state.messages[message].after
    elif at[_MADE] == len(state.messages):
        run.at[FULL] = 1
        return message
    else:
        message = at[_MADE]
        at[_MADE] += 1
    if terms.dense:
        while state.recent[recent_place(state, terms, me, run.messages[me])]:
            if 2 * at[_RING] * terms.peers > len(state.recent):
                run.at[FULL] = 1
                return message
            widen(state, terms)
        state.recent[recent_place(state, terms, me, run.messages[me])] = message
    return message


@step
def recent_place(state: Any, terms: Any, origin: Any, seq: Any) -> Any:
    return (seq - 1 & state.at[_RING] - 1) * terms.peers + origin


@step
def widen(state: Any, terms: Any) -> Any:
    """Make rings of recent messages twice as long."""
    further = state.at[_RING] * terms.peers
    for place in range(further):
        message = state.recent[place]
        if message and state.messages[message].seq - 1 & state.at[_RING]:
            state.recent[place + further] = message
            state.recent[place] = 0
    state.at[_RING] *= 2


@step
def free(state: Any, terms: Any, message: Any) -> Any:
    """Nobody will look at a message any more."""
    row = state.messages[message]
    if terms.dense:
        state.recent[recent_place(state, terms, row.origin, row.seq)] = 0
    row.after = state.at[_VACANT]
    state.at[_VACANT] = message


@step
def stamp(run: Any, state: Any, terms: Any, me: Any, message: Any, seq: Any) -> Any:
    """The twin of every `stamp`: what a message waits for, and its control bytes on the wire and on paper."""
    have, need, told, named = state.have[me], state.needs[message], state.have[me], 0
    if len(state.noted):
        told = state.noted[me]
    if terms.protocol == MBCP:
        for peer in range(terms.peers):
            if told[peer]:
                state.chosen[named] = peer
                named += 1
    clock = have[: terms.peers]
    wire, paper = stamp_bytes(
        terms.protocol, me, seq, clock, told, state.chosen, named, state.ranks, told
    )  # fmt: skip
    for peer in range(len(have)):
        need[peer] = told[peer] if terms.protocol == MBCP else have[peer]
    if len(state.noted):
        for peer in range(len(have)):
            told[peer] = 0 if terms.protocol == MBCP else have[peer]
    if len(state.clocks):
        for peer in range(len(have)):
            state.clocks[message, peer] = have[peer]
    for word in range(state.seen.shape[1] if len(state.seen) else 0):
        state.seen[message, word] = 0
    wire += terms.head
    watch_transmit(run, state, terms, me, seq, wire, paper)
    return wire, paper


@step
def receive(
    run: Any, rules: Any, network: Any, state: Any, terms: Any, me: Any, link: Any, message: Any
) -> Any:
    """The twin of `Flat.receive`."""
    row = state.messages[message]
    origin, seq = np.int64(row.origin), np.int64(row.seq)
    arrived(run, me, link, origin, seq)
    if len(state.seen):
        word, bit = me >> 6, _ONE << (np.uint64(me) & _63)
        if state.seen[message, word] & bit:
            queue_receive(run, state.queues, me, state.have[me, origin] >= seq, True)
            done(state, terms, message)
            return
        state.seen[message, word] |= bit
    queue_receive(run, state.queues, me, False, False)
    place, number = terms.peers, seq - 1
    if state.have[me, origin] >= number:
        place = lacking(state, me, message, place)
        if place < 0:
            deliver(run, rules, network, state, terms, me, message)
            return
        origin, number = place, np.int64(state.needs[message, place])
    item = new_item(run, state.held)
    waiting = state.held.rows[item]
    waiting.message, waiting.since = message, run.at[NOW]
    state.at[_HELD] += 1
    file(state, terms, me, item, origin, number, place)


@step
def lacking(state: Any, me: Any, message: Any, below: Any) -> Any:
    """The last peer below `below` of which a message waits for more than is delivered here; -1 if none is.

    Indices are unsigned, or each would be looked at for being negative."""
    have, needs = state.have, state.needs
    here, row = np.uint64(me), np.uint64(message)
    end = (np.uint64(below) + _LANES_WIDE - _ONE) // _LANES_WIDE * _LANES_WIDE
    while end:
        end -= _LANES_WIDE
        sign = np.int32(0)
        for lane in range(_LANES):
            place = end + np.uint64(lane)
            sign = np.int32(sign | np.int32(have[here, place] - needs[row, place]))
        if sign < 0:
            place = end + _LANES_WIDE - _ONE
            while have[here, place] >= needs[row, place]:
                place -= _ONE
            return np.int64(place)
    return np.int64(-1)


@step
def chain_of(terms: Any, me: Any, origin: Any, number: Any) -> Any:
    return me * terms.chains + (origin + number * _SPREAD & terms.chains - 1)


@step
def file(state: Any, terms: Any, me: Any, item: Any, origin: Any, number: Any, place: Any) -> Any:
    """Something waits until a message is delivered."""
    waiting, chain = state.held.rows[item], chain_of(terms, me, origin, number)
    waiting.origin, waiting.number, waiting.place = origin, number, place
    waiting.after = state.chains[chain]
    state.chains[chain] = item


@step
def unfile(state: Any, chain: Any, origin: Any, number: Any) -> Any:
    """Take off all that wait for a message: the first of them, each leading to the one that came after it."""
    rows = state.held.rows
    item, before, found = np.int64(state.chains[chain]), np.int64(0), np.int64(0)
    while item:
        waiting = rows[item]
        after = np.int64(waiting.after)
        if waiting.number == number and waiting.origin == origin:
            if before:
                rows[before].after = after
            else:
                state.chains[chain] = after
            waiting.after = found
            found = item
        else:
            before = item
        item = after
    return found


@step
def deliver(run: Any, rules: Any, network: Any, state: Any, terms: Any, me: Any, message: Any) -> Any:
    """The twin of `World._take_deliveries` and `Flat.deliver`, for a message that has just come."""
    rows, since = state.held.rows, run.at[NOW]
    ready, last = np.int64(0), np.int64(0)
    while True:
        row = state.messages[message]
        origin, seq, sent_at = np.int64(row.origin), np.int64(row.seq), row.sent_at
        state.have[me, origin] = seq
        learn(run, state, terms, me, message, origin, seq)
        chain = chain_of(terms, me, origin, seq)
        item = unfile(state, chain, origin, seq) if state.chains[chain] else np.int64(0)
        while item:
            waiting = rows[item]
            after, other = np.int64(waiting.after), np.int64(waiting.message)
            place = lacking(state, me, other, waiting.place)
            if place >= 0:
                file(state, terms, me, item, place, np.int64(state.needs[other, place]), place)
            else:
                waiting.after = 0
                if ready:
                    rows[last].after = item
                else:
                    ready = item
                last = item
            item = after
        done(state, terms, message)
        queue_deliver(run, state.queues, me, since)
        if delivered(run, rules, me, origin, seq, sent_at, since):
            broadcast(run, rules, network, state, terms, me)
        if ready == 0:
            return
        item, waiting = ready, rows[ready]
        ready, message, since = np.int64(waiting.after), np.int64(waiting.message), waiting.since
        free_item(state.held, item)
        state.at[_HELD] -= 1


@step
def done(state: Any, terms: Any, message: Any) -> Any:
    """One copy less of a message has to come, or to be delivered."""
    row = state.messages[message]
    row.left -= 1
    if row.left == 0:
        free(state, terms, message)


@step
def learn(run: Any, state: Any, terms: Any, me: Any, message: Any, origin: Any, seq: Any) -> Any:
    """The twin of `Mbcp.learn`, the others knowing all from what they have; and of `Immediate.deliver`."""
    need = state.needs[message]
    if terms.protocol == MBCP:
        noted = state.noted[me]
        for peer in range(len(noted)):
            noted[peer] = 0 if noted[peer] == need[peer] else noted[peer]
        noted[origin] = seq
    if terms.immediate and run.messages[me]:
        clock = state.clocks[message] if len(state.clocks) else need
        if clock[me] == run.messages[me]:
            state.covered[me] = True


@step
def watch_transmit(run: Any, state: Any, terms: Any, me: Any, seq: Any, wire: Any, paper: Any) -> Any:
    """The twins of `Costs.transmit` and `Immediate.transmit`."""
    sums = state.sums
    if terms.costs and run.at[NOW] >= terms.since:
        sums[_PACKETS] += 1
        sums[_PAPER] += paper
        sums[_WIRE] += wire
    if terms.immediate and terms.dependent:
        if run.at[NOW] >= terms.since:
            named = paper // 8 if terms.protocol == MBCP else paper // 4 - 1
            immediate = named + (seq > 1 and not state.covered[me])
            sums[_MESSAGES] += 1
            sums[_NAMED] += named
            sums[_IMMEDIATE] += immediate
            sums[_MOST] = max(sums[_MOST], immediate)
            sums[_WORST] += immediate == terms.peers
            sums[_ALL] += named == terms.peers - 1
        state.covered[me] = False


@step
def sample(state: Any, terms: Any) -> Any:
    """The twin of `Costs.sample`."""
    state.sums[_SAMPLES] += 1
    if terms.protocol == MBCP:
        for me in range(terms.peers):
            for peer in range(terms.peers):
                state.sums[_SAMPLED] += state.noted[me, peer] > 0
