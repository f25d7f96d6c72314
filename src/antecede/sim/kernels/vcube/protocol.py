"""What `vcube` and `vcube-agg` share: the twin of `TimestampDiff`, and of forwarding down a spanning tree."""

from __future__ import annotations

from typing import Any

import numpy as np

from antecede.jit import njit_hot, njit_inline
from antecede.protocols.vcube_variants import ROOT
from antecede.sim.kernels.runtime.counting import begin_broadcast, record_delivery, record_send
from antecede.sim.kernels.runtime.msgpack_sizes import head_bytes, int_bytes
from antecede.sim.kernels.runtime.overlays import cluster, first_in_cluster
from antecede.sim.kernels.runtime.pool import (
    chain_item,
    first_waiting,
    free_block,
    free_item,
    new_block,
    new_item,
    unchain_lowest,
)
from antecede.sim.kernels.runtime.probe_bundles import probe_deliver, probe_hold, probe_send, probe_transmit
from antecede.sim.kernels.runtime.queued_nodes import send
from antecede.sim.kernels.runtime.world_state import FULL, NOW
from antecede.sim.kernels.vcube.state import (
    COUNT_MASK,
    DUPLICATE,
    FAR_AHEAD,
    HELD,
    READY,
    READY_END,
    USED,
    WAITING,
)

_ONE, _WINDOW = np.uint64(1), np.uint64(64)
_COUNT_MASK, _32, _63 = (np.uint64(value) for value in (COUNT_MASK, 32, 63))


@njit_hot
def broadcast(world: Any, rules: Any, nodes: Any, probe: Any, state: Any, params: Any, me: Any) -> Any:
    """The twin of `Vcube.broadcast`, `VcubeAgg.broadcast` and `VcubeAggSingleTree.broadcast`."""
    if not begin_broadcast(world, me):
        return
    message, seq = state.scalars[USED], world.messages[me]
    if message == len(state.messages):
        world.scalars[FULL] = 1
        return
    state.scalars[USED] += 1
    my_column = state.column[me]
    state.delivered[me * params.columns + my_column] = seq
    row = state.messages[message]
    row.origin, row.column, row.seq, row.sent_at = me, my_column, seq, world.scalars[NOW]
    row.undelivered = params.peers - 1
    stamp(world, state, params, me, my_column, row)
    alone = params.peers == 1
    control = 0 if alone else packet_control(params, row)
    record_send(world, me, control, 0 if alone else 4 + 4 * row.named)
    probe_send(world, probe, row.named)
    if params.single_tree and me != ROOT:
        paper = 4 + 4 * row.named
        weight = params.payload + (paper if params.as_paper else control)
        link = me * params.height + cluster(
            me, ROOT
        )  # Not a link down the tree, which leads to lower clusters.
        send(world, rules, nodes, link, me, ROOT, message, control, weight, row.origin, row.seq)
        probe_transmit(world, probe, me, ROOT, 1, 1, params.payload + paper)
    else:
        forward(world, rules, nodes, probe, state, params, me, params.height, message, False)


@njit_inline
def stamp(world: Any, state: Any, params: Any, me: Any, my_column: Any, row: Any) -> Any:
    """Store a message's clock: the causes that its packet names; with aggregation also the rest."""
    delivered, first, words = state.delivered, me * params.columns, state.blocks.words
    named = length = state.changed_count[my_column]
    if params.aggregates:
        length = -1
        for column in range(params.columns):
            length += delivered[first + column] > 0
    clock = new_block(world, state.blocks, length)
    control = 2 + params.head + int_bytes(me) + int_bytes(row.seq) + head_bytes(named)
    place = clock
    for column in range(params.columns):
        if has_changed(state, my_column, column):
            count = delivered[first + column]
            words[place] = np.int64(column) << 32 | count
            place += 1
            control += int_bytes(state.rank[column]) + int_bytes(count)
    if params.aggregates:
        for column in range(params.columns):
            count = delivered[first + column]
            if count > 0 and column != my_column and not has_changed(state, my_column, column):
                words[place] = np.int64(column) << 32 | count
                place += 1
    for part in range(state.changed.shape[1]):
        state.changed[my_column, part] = 0
    state.changed_count[my_column] = 0
    row.control, row.named, row.clock, row.length = control, named, clock, length


@njit_inline
def has_changed(state: Any, my_column: Any, column: Any) -> Any:
    return state.changed[my_column, column >> 6] >> (np.uint64(column) & _63) & _ONE


@njit_inline
def packet_control(params: Any, row: Any) -> Any:
    """Control bytes of a packet with one message."""
    return row.control + (3 if params.aggregates else 0)


@njit_inline
def forward(
    world: Any, rules: Any, nodes: Any, probe: Any, state: Any, params: Any, me: Any, below: Any,
    message: Any, separately: Any,
) -> Any:  # fmt: skip
    """Forward a single message to the children in the clusters below `below`: the twin of
    `Vcube._forward`. `separately`: in a packet for each child."""
    row = state.messages[message]
    control, paper = packet_control(params, row), 4 + 4 * row.named
    weight = params.payload + (paper if params.as_paper else control)
    copies, last = 0, 0
    for bit in range(below):
        child = first_in_cluster(me, bit, params.peers)
        if child >= 0:
            send(
                world,
                rules,
                nodes,
                me * params.height + bit,
                me,
                child,
                message,
                control,
                weight,
                row.origin,
                row.seq,
            )
            copies, last = copies + 1, child
            if separately:
                probe_transmit(world, probe, me, child, 1, 1, params.payload + paper)
    if copies and not separately:
        # Lists of children are prefixes of one list, so their lengths identify them.
        to = last if copies == 1 else -copies
        probe_transmit(world, probe, me, to, copies, 1, params.payload + paper)


@njit_inline
def accept(world: Any, probe: Any, state: Any, params: Any, me: Any, message: Any, late: Any) -> Any:
    """The twin of `Flat._accept`: hold a message under a missing cause, or make it ready. Returns `DUPLICATE`
    if it has arrived before, the place of the cause that it waits for, or -1 if it waits for none."""
    row = state.messages[message]
    if not is_first_copy(world, state, me, me * params.columns + row.column, row.seq):
        return DUPLICATE
    probe_hold(world, probe, me, row.sent_at)
    item = new_item(world, state.held)
    held = state.held.rows[item]
    held.message, held.since, held.late = message, world.scalars[NOW], late
    return hold(world, state, params, me, row, item, row.named)


@njit_inline
def is_first_copy(world: Any, state: Any, me: Any, pair: Any, seq: Any) -> Any:
    """Add a message to what a peer has received; False if it has arrived before. The twin of
    `BitWindow.add`."""
    received = state.received[pair]
    if seq <= received:
        return False
    if seq == received + 1 and state.gaps[me] == 0 and state.scalars[FAR_AHEAD] == 0:
        state.received[pair] = seq
        return True
    place, window = np.uint64(seq - received - 1), state.window[pair]
    if place >= _WINDOW:
        return is_first_copy_far_ahead(world, state, pair, seq)
    if window >> place & _ONE:
        return False
    state.gaps[me] -= window != 0
    window |= _ONE << place
    while window & _ONE:
        window >>= _ONE
        received += 1
        if state.scalars[FAR_AHEAD] and first_waiting(state.held, state.far, pair, received + 64):
            free_item(state.held, unchain_lowest(state.held, state.far, pair))
            state.scalars[FAR_AHEAD] -= 1
            window |= _ONE << _63
    state.gaps[me] += window != 0
    state.received[pair], state.window[pair] = received, window
    return True


@njit_inline
def is_first_copy_far_ahead(world: Any, state: Any, pair: Any, seq: Any) -> Any:
    """The same for a number more than 64 ahead."""
    last = item = state.far[pair]
    while item:
        if state.held.rows[item].number == seq:
            return False
        item = state.held.rows[item].higher
        if item == last:
            break
    chain_item(state.held, state.far, pair, new_item(world, state.held), seq)
    state.scalars[FAR_AHEAD] += 1
    return True


@njit_inline
def hold(world: Any, state: Any, params: Any, me: Any, row: Any, item: Any, place: Any) -> Any:
    """The twin of `HoldBackQueue.hold`: check causes from `place` down; the last is the sender's previous
    message."""
    delivered, words, first = state.delivered, state.blocks.words, me * params.columns
    column, count = np.int64(row.column), np.int64(row.seq) - 1
    if place == row.named and delivered[first + column] >= count:
        place -= 1
    if place < row.named:
        # Unsigned indices: signed ones cost a test for negatives.
        at, row_at = np.uint64(row.clock + place), np.uint64(first)
        while place >= 0:
            word = np.uint64(words[at])
            count = np.int64(word & _COUNT_MASK)
            if delivered[row_at + (word >> _32)] < count:
                column = np.int64(word >> _32)
                break
            at -= _ONE
            place -= 1
    if place >= 0:
        state.held.rows[item].place = place
        chain_item(state.held, state.chains, (first + column) * params.chains + WAITING, item, count)
        state.scalars[HELD] += 1
        return place
    end = state.scalars[READY_END]
    if end == len(state.ready):
        world.scalars[FULL] = 1
        return place
    state.ready[end] = item
    state.scalars[READY_END] = end + 1
    return place


@njit_inline
def deliver(world: Any, rules: Any, nodes: Any, probe: Any, state: Any, params: Any, me: Any) -> Any:
    """Deliver all that is ready: the twin of `Flat.deliver`, called until there is nothing more."""
    scalars, my_column = state.scalars, state.column[me]
    while scalars[READY] < scalars[READY_END]:
        item = state.ready[scalars[READY]]
        scalars[READY] += 1
        held = state.held.rows[item]
        message, since, late = held.message, held.since, held.late
        free_item(state.held, item)
        row = state.messages[message]
        pair = me * params.columns + row.column
        state.delivered[pair] = row.seq
        if my_column >= 0 and not has_changed(state, my_column, row.column):
            state.changed[my_column, row.column >> 6] |= _ONE << (np.uint64(row.column) & _63)
            state.changed_count[my_column] += 1
        release(world, state, params, me, pair, row.seq)
        row.undelivered -= 1
        if row.undelivered == 0:
            free_block(state.blocks, row.clock, row.length)
        replies = record_delivery(world, rules, me, row.origin, row.seq, row.sent_at, since)
        probe_deliver(world, probe, me, row.sent_at, since, late)
        if replies:
            broadcast(world, rules, nodes, probe, state, params, me)
    scalars[READY] = scalars[READY_END] = 0


@njit_inline
def release(world: Any, state: Any, params: Any, me: Any, pair: Any, seq: Any) -> Any:
    """The twin of `HoldBackQueue.release`: check again what waited for a message that is delivered now."""
    place = pair * params.chains + WAITING
    if first_waiting(state.held, state.chains, place, seq):
        item = unchain_lowest(state.held, state.chains, place)
        while item:
            held = state.held.rows[item]
            after = held.after
            state.scalars[HELD] -= 1
            hold(world, state, params, me, state.messages[held.message], item, held.place - 1)
            item = after
