"""The twin of `protocols/flat.py` and of those built on it, event by event.

What a message waits for is a row with a count for each peer: its sender's clock, or for `mbcp` the causes
that it names. All four look at the sender's previous message first, and then from the last peer to the first
(`Holdback.file`). Once the previous message is there, so are the counts of a clock that did not change since:
`timestamp-diff` and `depseq`, which name fewer of them, are filed under the same as `timestamp`.

What is held is in chains, some for each peer, by a hash of the message that it waits for: less memory than
one for each pair of peers, and so in nearer caches. A chain begins with what came last.

Memory is 12 to 24 bytes for each pair of peers, 4 × peers for each message until all its packets have come
and were delivered, and what is held.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from antecede.jit import njit_hot, njit_inline, njit_inner
from antecede.sim.kernels.contract import ObserverFeed, Progress, Unsupported
from antecede.sim.kernels.flat import network as flat_network
from antecede.sim.kernels.flat import recurrence
from antecede.sim.kernels.flat import state as flat_state
from antecede.sim.kernels.flat.delivery_times import MBCP, stamp_bytes
from antecede.sim.kernels.flat.network import coming, send_all
from antecede.sim.kernels.flat.state import (
    HELD,
    LANES,
    RING,
    done,
    free,
    new_message,
    sample,
    watch_transmit,
)
from antecede.sim.kernels.runtime import events, queues, routed
from antecede.sim.kernels.runtime.events import (
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
from antecede.sim.kernels.runtime.pools import free_item, new_item
from antecede.sim.kernels.runtime.queues import queue_deliver, queue_receive
from antecede.sim.metrics import Metrics
from antecede.sim.scenario import Scenario

_FIRST, _SECOND = 0x9E3779B1, 0x85EBCA6B
_ITEM = (1 << 24) - 1
"""Bits of a chain's word that say where it begins; the others are marks of what its items wait for."""
_ONE, _63, _WIDE = (np.uint64(value) for value in (1, 63, LANES))


def supports(given: Scenario) -> Unsupported | None:
    """Why a run cannot be done so; None if it can."""
    others = set(given.probes) - recurrence.PROBES - {"queues"}
    if others:
        return Unsupported(f"probe {min(others)} is not compiled for {given.protocol}")
    if given.peers > recurrence.MAX_PEERS:
        return Unsupported(f"there are more than {recurrence.MAX_PEERS:,} peers")
    return flat_network.supports(given)


def run(given: Scenario, observers: ObserverFeed, progress: Progress | None) -> Metrics:
    hops, twin = routed.fresh(given, lambda: flat_network.audiences(given))
    pace = routed.pace(given, hops, 4 * given.peers)
    made, rules = events.fresh(given, given.peers**2, given.peers - 1, bool(observers), pace=pace)
    network = flat_network.fresh(given, hops)
    terms = flat_state.terms_of(given, network.plain)
    state = flat_state.fresh(given, terms)
    events.drive(
        made, rules, lambda count: advance(made, rules, network, state, terms, count), observers, progress
    )
    measured = flat_network.figures(network) | routed.figures(hops, twin, int(made.at[NOW]))
    measured |= queues.figures(state.queues) | flat_state.figures(given, terms, state)
    return events.metrics(made, int(state.at[HELD]), measured)


@njit_hot
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
                packet = np.int64(state.recent[(packet & state.at[RING] - 1) * terms.peers + source])
            receive(run, rules, network, state, terms, peer, source, packet)
        elif kind == SAMPLE:
            sample(state, terms)
    return True


@njit_inner
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


@njit_inline
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


@njit_inline
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
    state.at[HELD] += 1
    file(state, terms, me, item, origin, number, place)


@njit_inline
def lacking(state: Any, me: Any, message: Any, below: Any) -> Any:
    """The last peer below `below` of which a message waits for more than is delivered here; -1 if none is.

    Indices are unsigned, or each would be looked at for being negative."""
    have, needs = state.have, state.needs
    here, row = np.uint64(me), np.uint64(message)
    end = (np.uint64(below) + _WIDE - _ONE) // _WIDE * _WIDE
    while end:
        end -= _WIDE
        sign = np.int32(0)
        for lane in range(LANES):
            place = end + np.uint64(lane)
            sign = np.int32(sign | np.int32(have[here, place] - needs[row, place]))
        if sign < 0:
            place = end + _WIDE - _ONE
            while have[here, place] >= needs[row, place]:
                place -= _ONE
            return np.int64(place)
    return np.int64(-1)


@njit_inline
def chain_of(terms: Any, me: Any, origin: Any, number: Any) -> Any:
    """Which chain what waits for a message is in, and the mark that the chain then has."""
    mixed = origin * _FIRST + number * _SECOND
    return me * terms.chains + (mixed >> 16 & terms.chains - 1), (_ITEM + 1) << (mixed >> 8 & 7)


@njit_inline
def file(state: Any, terms: Any, me: Any, item: Any, origin: Any, number: Any, place: Any) -> Any:
    """Something waits until a message is delivered."""
    waiting = state.held.rows[item]
    chain, mark = chain_of(terms, me, origin, number)
    waiting.origin, waiting.number, waiting.place = origin, number, place
    word = np.int64(state.chains[chain])
    waiting.after = word & _ITEM
    state.chains[chain] = word & ~_ITEM | mark | item


@njit_inline
def unfile(state: Any, terms: Any, me: Any, origin: Any, number: Any) -> Any:
    """Take off all that wait for a message: the first of them, each leading to the one that came after it."""
    rows = state.held.rows
    chain, mark = chain_of(terms, me, origin, number)
    word, before, found = np.int64(state.chains[chain]), np.int64(0), np.int64(0)
    if word & mark == 0:  # what is in the chain waits for others, and need not be looked at
        return found
    item, head, marks = word & _ITEM, np.int64(0), np.int64(0)
    while item:
        waiting = rows[item]
        after = np.int64(waiting.after)
        if waiting.number == number and waiting.origin == origin:
            waiting.after = found
            found = item
        else:
            marks |= chain_of(terms, me, np.int64(waiting.origin), np.int64(waiting.number))[1]
            if before:
                rows[before].after = item
            else:
                head = item
            before = item
        item = after
    if before:
        rows[before].after = 0
    state.chains[chain] = marks | head
    return found


@njit_inline
def deliver(run: Any, rules: Any, network: Any, state: Any, terms: Any, me: Any, message: Any) -> Any:
    """The twin of `World._take_deliveries` and `Flat.deliver`, for a message that has just come."""
    rows, since = state.held.rows, run.at[NOW]
    ready, last = np.int64(0), np.int64(0)
    while True:
        row = state.messages[message]
        origin, seq, sent_at = np.int64(row.origin), np.int64(row.seq), row.sent_at
        state.have[me, origin] = seq
        learn(run, state, terms, me, message, origin, seq)
        item = unfile(state, terms, me, origin, seq)
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
        state.at[HELD] -= 1


@njit_inline
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
