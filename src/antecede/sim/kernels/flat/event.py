"""The event kernel of the flat protocols: the twin of `protocols/flat.py` and of those built on it.

What a message depends on is a row with a count for each peer: its sender's clock, or for `mbcp` the causes
that it names. All four protocols check the sender's previous message first, and then from the last peer to
the first. Once the previous message is delivered, so are all counts of a clock that did not change since:
`timestamp-diff` and `depseq`, which name fewer of them, are held under the same message as `timestamp`.

Held messages are in chains, some for each peer, by a hash of the message that they wait for: less memory
than a chain for each pair of peers, and so in nearer caches. A chain begins with what arrived last.

Memory is 12 to 24 bytes for each pair of peers, 4 × peers for each message until all its packets have
arrived and were delivered, and what is held.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from antecede.jit import njit_hot, njit_inline, njit_inner
from antecede.sim.kernels.contract import ObserverFeed, Progress, Unsupported
from antecede.sim.kernels.flat import network as flat_network
from antecede.sim.kernels.flat import recurrence
from antecede.sim.kernels.flat import state as flat_state
from antecede.sim.kernels.flat.network import next_event, send_all
from antecede.sim.kernels.flat.stamps import MBCP, stamp_bytes
from antecede.sim.kernels.flat.state import (
    HELD,
    LANES,
    RING,
    drop_copy,
    free_message,
    new_message,
    probe_sample,
    probe_transmit,
)
from antecede.sim.kernels.runtime import probe_queues, routed
from antecede.sim.kernels.runtime import world as runtime
from antecede.sim.kernels.runtime.agenda import plan_next_send
from antecede.sim.kernels.runtime.counting import (
    begin_broadcast,
    record_delivery,
    record_receive,
    record_send,
)
from antecede.sim.kernels.runtime.pool import free_item, new_item
from antecede.sim.kernels.runtime.probe_queues import probe_deliver, probe_receive
from antecede.sim.kernels.runtime.world_state import ARRIVAL, FULL, NOTHING, NOW, SAMPLE, SEND, STOPPED
from antecede.sim.metrics import Metrics
from antecede.sim.scenario import Scenario

_FIRST, _SECOND = 0x9E3779B1, 0x85EBCA6B
_ITEM = (1 << 24) - 1
"""Bits of a chain's word for its first item; the bits above are marks of what its items wait for."""
_ONE, _63, _WIDE = (np.uint64(value) for value in (1, 63, LANES))


def supports(scenario: Scenario) -> Unsupported | None:
    """Why the kernel cannot run a scenario; None if it can."""
    others = set(scenario.probes) - recurrence.PROBES - {"queues"}
    if others:
        return Unsupported(f"probe {min(others)} is not compiled for {scenario.protocol}")
    if scenario.peers > recurrence.MAX_PEERS:
        return Unsupported(f"there are more than {recurrence.MAX_PEERS:,} peers")
    return flat_network.supports(scenario)


def run(scenario: Scenario, observers: ObserverFeed, progress: Progress | None) -> Metrics:
    routes, twin = routed.create_state(scenario, lambda: flat_network.audiences(scenario))
    pace = routed.pace(scenario, routes, 4 * scenario.peers)
    world, rules = runtime.create_world(
        scenario, scenario.peers**2, scenario.peers - 1, bool(observers), pace=pace
    )
    network = flat_network.create_network(scenario, routes)
    params = flat_state.create_params(scenario, network.independent)
    state = flat_state.create_state(scenario, params)
    runtime.drive(
        world, rules, lambda count: advance(world, rules, network, state, params, count), observers, progress
    )
    measured = flat_network.measured(network) | routed.measured(routes, twin, int(world.scalars[NOW]))
    measured |= probe_queues.measured(state.queues) | flat_state.measured(scenario, params, state)
    return runtime.metrics(world, int(state.scalars[HELD]), measured)


@njit_hot
def advance(world: Any, rules: Any, network: Any, state: Any, params: Any, budget: Any) -> Any:
    """Process up to `budget` events; return False when none are left."""
    for _ in range(budget):
        kind, peer, source, packet = next_event(world, rules, network)
        if kind == NOTHING:
            return False
        if kind == STOPPED:
            return True
        if kind == SEND:
            broadcast(world, rules, network, state, params, peer)
            plan_next_send(world, rules, peer)
        elif kind == ARRIVAL:
            if params.dense:
                packet = np.int64(state.recent[(packet & state.scalars[RING] - 1) * params.peers + source])
            receive(world, rules, network, state, params, peer, source, packet)
        elif kind == SAMPLE:
            probe_sample(state, params)
    return True


@njit_inner
def broadcast(world: Any, rules: Any, network: Any, state: Any, params: Any, me: Any) -> Any:
    """The twin of `Flat.broadcast`."""
    if not begin_broadcast(world, me):
        return
    message, seq = new_message(world, state, params, me), world.messages[me]
    if world.scalars[FULL]:
        return
    row, delivered = state.messages.rows[message], state.delivered[me]
    row.origin, row.seq, row.sent_at = me, seq, world.scalars[NOW]
    control, paper = 0, 0
    if params.peers > 1:
        control, paper = stamp(world, state, params, me, message, seq)
    delivered[me] = seq
    record_send(world, me, control, paper)
    weight = params.payload + (paper if params.as_paper else control)
    row.copies = send_all(world, rules, network, me, message, seq - 1, control, weight)
    if row.copies == 0:
        free_message(state, params, message)


@njit_inline
def stamp(world: Any, state: Any, params: Any, me: Any, message: Any, seq: Any) -> Any:
    """The twin of `stamp` of each protocol. Returns control bytes on the wire, and as the paper counts."""
    delivered, dependencies, noted, named = (
        state.delivered[me],
        state.dependencies[message],
        state.delivered[me],
        0,
    )
    if len(state.noted):
        noted = state.noted[me]
    if params.protocol == MBCP:
        for peer in range(params.peers):
            if noted[peer]:
                state.named_peers[named] = peer
                named += 1
    clock = delivered[: params.peers]
    wire, paper = stamp_bytes(
        params.protocol, me, seq, clock, noted, state.named_peers, named, state.ranks, noted
    )  # fmt: skip
    for peer in range(len(delivered)):
        dependencies[peer] = noted[peer] if params.protocol == MBCP else delivered[peer]
    if len(state.noted):
        for peer in range(len(delivered)):
            noted[peer] = 0 if params.protocol == MBCP else delivered[peer]
    if len(state.clocks):
        for peer in range(len(delivered)):
            state.clocks[message, peer] = delivered[peer]
    for word in range(state.arrived.shape[1] if len(state.arrived) else 0):
        state.arrived[message, word] = 0
    wire += params.head
    probe_transmit(world, state, params, me, seq, wire, paper)
    return wire, paper


@njit_inline
def receive(
    world: Any, rules: Any, network: Any, state: Any, params: Any, me: Any, link: Any, message: Any
) -> Any:
    """The twin of `Flat.receive`."""
    row = state.messages.rows[message]
    origin, seq = np.int64(row.origin), np.int64(row.seq)
    record_receive(world, me, link, origin, seq)
    if len(state.arrived):
        word, bit = me >> 6, _ONE << (np.uint64(me) & _63)
        if state.arrived[message, word] & bit:
            probe_receive(world, state.queues, me, state.delivered[me, origin] >= seq, True)
            drop_copy(state, params, message)
            return
        state.arrived[message, word] |= bit
    probe_receive(world, state.queues, me, False, False)
    place, number = params.peers, seq - 1
    if state.delivered[me, origin] >= number:
        place = missing_cause(state, me, message, place)
        if place < 0:
            deliver(world, rules, network, state, params, me, message)
            return
        origin, number = place, np.int64(state.dependencies[message, place])
    item = new_item(world, state.held)
    waiting = state.held.rows[item]
    waiting.message, waiting.since = message, world.scalars[NOW]
    state.scalars[HELD] += 1
    hold_unmet(state, params, me, item, origin, number, place)


@njit_inline
def missing_cause(state: Any, me: Any, message: Any, below: Any) -> Any:
    """The last peer below `below` of which the message depends on more than is delivered here; -1 if there is
    none.

    Indices are unsigned: signed ones cost a test for negatives.
    """
    delivered, dependencies = state.delivered, state.dependencies
    here, row = np.uint64(me), np.uint64(message)
    end = (np.uint64(below) + _WIDE - _ONE) // _WIDE * _WIDE
    while end:
        end -= _WIDE
        sign = np.int32(0)
        for lane in range(LANES):
            place = end + np.uint64(lane)
            sign = np.int32(sign | np.int32(delivered[here, place] - dependencies[row, place]))
        if sign < 0:
            place = end + _WIDE - _ONE
            while delivered[here, place] >= dependencies[row, place]:
                place -= _ONE
            return np.int64(place)
    return np.int64(-1)


@njit_inline
def chain_and_mark(params: Any, me: Any, origin: Any, number: Any) -> Any:
    """The chain for items that wait for a message, and the mark that the chain then gets."""
    mixed = origin * _FIRST + number * _SECOND
    return me * params.chains + (mixed >> 16 & params.chains - 1), (_ITEM + 1) << (mixed >> 8 & 7)


@njit_inline
def hold_unmet(state: Any, params: Any, me: Any, item: Any, origin: Any, number: Any, place: Any) -> Any:
    """The twin of `HoldBackQueue.hold_unmet`: hold an item until a message is delivered."""
    waiting = state.held.rows[item]
    chain, mark = chain_and_mark(params, me, origin, number)
    waiting.origin, waiting.number, waiting.place = origin, number, place
    word = np.int64(state.chains[chain])
    waiting.after = word & _ITEM
    state.chains[chain] = word & ~_ITEM | mark | item


@njit_inline
def take_waiting(state: Any, params: Any, me: Any, origin: Any, number: Any) -> Any:
    """Take all items that wait for a message off their chain: the first of a list in the order of arrival."""
    rows = state.held.rows
    chain, mark = chain_and_mark(params, me, origin, number)
    word, before, found = np.int64(state.chains[chain]), np.int64(0), np.int64(0)
    if word & mark == 0:  # all items of the chain wait for other messages
        return found
    item, head, marks = word & _ITEM, np.int64(0), np.int64(0)
    while item:
        waiting = rows[item]
        after = np.int64(waiting.after)
        if waiting.number == number and waiting.origin == origin:
            waiting.after = found
            found = item
        else:
            marks |= chain_and_mark(params, me, np.int64(waiting.origin), np.int64(waiting.number))[1]
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
def deliver(world: Any, rules: Any, network: Any, state: Any, params: Any, me: Any, message: Any) -> Any:
    """Deliver a message that has just arrived, and all that waited for it: the twin of `Flat.deliver`."""
    rows, since = state.held.rows, world.scalars[NOW]
    ready, last = np.int64(0), np.int64(0)
    while True:
        row = state.messages.rows[message]
        origin, seq, sent_at = np.int64(row.origin), np.int64(row.seq), row.sent_at
        state.delivered[me, origin] = seq
        note_causes(world, state, params, me, message, origin, seq)
        item = take_waiting(state, params, me, origin, seq)
        while item:
            waiting = rows[item]
            after, other = np.int64(waiting.after), np.int64(waiting.message)
            place = missing_cause(state, me, other, waiting.place)
            if place >= 0:
                hold_unmet(state, params, me, item, place, np.int64(state.dependencies[other, place]), place)
            else:
                waiting.after = 0
                if ready:
                    rows[last].after = item
                else:
                    ready = item
                last = item
            item = after
        drop_copy(state, params, message)
        probe_deliver(world, state.queues, me, since)
        if record_delivery(world, rules, me, origin, seq, sent_at, since):
            broadcast(world, rules, network, state, params, me)
        if ready == 0:
            return
        item, waiting = ready, rows[ready]
        ready, message, since = np.int64(waiting.after), np.int64(waiting.message), waiting.since
        free_item(state.held, item)
        state.scalars[HELD] -= 1


@njit_inline
def note_causes(world: Any, state: Any, params: Any, me: Any, message: Any, origin: Any, seq: Any) -> Any:
    """Record what the next message will name: the twin of `Mbcp.on_delivered`, and of the probe
    `immediate`."""
    dependencies = state.dependencies[message]
    if params.protocol == MBCP:
        noted = state.noted[me]
        for peer in range(len(noted)):
            noted[peer] = 0 if noted[peer] == dependencies[peer] else noted[peer]
        noted[origin] = seq
    if params.immediate and world.messages[me]:
        clock = state.clocks[message] if len(state.clocks) else dependencies
        if clock[me] == world.messages[me]:
            state.covered[me] = True
