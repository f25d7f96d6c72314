"""Aggregation in `vcube-agg`: messages that wait in transit for causes, and travel on with them.

A message's clock is the same for all peers that forward it, so it is stored once. Of the missing causes
only the most blocking one is ever looked for, and causes that block no child are left out. A packet with
one message is that message's number; one with more, or with something that a probe remembers, is a block of
words: how many copies are in flight, how many messages there are, and for each its number and what the
probe remembers.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from antecede.jit import njit_inline
from antecede.protocols.vcube_variants import ROOT
from antecede.sim.kernels.runtime.counting import record_receive
from antecede.sim.kernels.runtime.msgpack_sizes import head_bytes
from antecede.sim.kernels.runtime.overlays import cluster, first_in_cluster, height
from antecede.sim.kernels.runtime.pool import (
    chain_item,
    first_waiting,
    free_block,
    free_item,
    new_block,
    new_item,
    unchain_lowest,
)
from antecede.sim.kernels.runtime.probe_bundles import lateness, probe_receive, probe_transmit
from antecede.sim.kernels.runtime.queued_nodes import send
from antecede.sim.kernels.runtime.world_state import FULL, NOW
from antecede.sim.kernels.vcube.protocol import accept, forward, is_first_copy
from antecede.sim.kernels.vcube.state import AWAKE, BLOCKED, COUNT_MASK, DUPLICATE, EARLY, FORWARDS

_COPIES, _MESSAGES, _FIRST = range(3)
_COUNT_MASK, _32 = np.uint64(COUNT_MASK), np.uint64(32)
_COLUMN = (1 << 24) - 1
_UNKNOWN, _UNKNOWN_AWAKE = -1, -2
"""Stored instead of the number of missing causes: unknown, because the message's predecessor has not arrived;
the second value if the message is already in `awake`."""


@njit_inline
def count_messages(state: Any, packet: Any) -> Any:
    """The number of messages in a packet."""
    return np.int64(1) if packet >= 0 else state.blocks.words[np.int64(~packet) + _MESSAGES]


@njit_inline
def receive_bundle(
    world: Any, rules: Any, nodes: Any, probe: Any, state: Any, params: Any, me: Any, link: Any, packet: Any
) -> Any:
    """The twin of `VcubeAgg.receive` and `VcubeAggSingleTree.receive`."""
    below = height(me, ROOT, params.peers, params.height) if params.single_tree else cluster(me, link)
    if packet >= 0:
        row = state.messages[packet]
        record_receive(world, me, link, row.origin, row.seq)
        probe_receive(world, probe, me, link)
        receive_single(world, rules, nodes, probe, state, params, me, below, packet)
        return
    words, block = state.blocks.words, np.int64(~packet)
    messages, count = words[block + _MESSAGES], 0
    for number in range(messages):
        row = state.messages[words[block + _FIRST + 2 * number]]
        record_receive(world, me, link, row.origin, row.seq)
        probe_receive(world, probe, me, link)
    state.scalars[AWAKE] = state.scalars[FORWARDS] = 0
    for number in range(messages):
        message = words[block + _FIRST + 2 * number]
        late = words[block + _FIRST + 2 * number + 1]
        if state.messages[message].origin == me:
            if is_first_return(world, state, params, me, message) and below > 0:
                schedule_forward(world, state, message, 0, below, 0)
            continue
        place = accept(world, probe, state, params, me, message, late)
        if place != DUPLICATE:
            state.arrived[count] = state.messages[message].column
            count += 1
            if below > 0:
                track(world, state, params, me, message, below, place, late)
    words[block + _COPIES] -= 1
    if words[block + _COPIES] == 0:
        free_block(state.blocks, block, _FIRST + 2 * messages)
    for number in range(count):
        advance(world, state, params, me, state.arrived[number])
    forward_unblocked(world, rules, nodes, probe, state, params, me)


@njit_inline
def receive_single(
    world: Any, rules: Any, nodes: Any, probe: Any, state: Any, params: Any, me: Any, below: Any, message: Any
) -> Any:
    """A packet with a single message: mostly nothing waits for it, so nothing has to be stored."""
    row = state.messages[message]
    if row.origin == me:
        if is_first_return(world, state, params, me, message):
            forward(world, rules, nodes, probe, state, params, me, below, message, True)
        return
    place = accept(world, probe, state, params, me, message, 0)
    if place == DUPLICATE:
        return
    pair = me * params.columns + row.column
    chains, chained = state.chains, pair * params.chains
    none_wait = chains[chained + BLOCKED] == 0 and chains[chained + EARLY] == 0
    if none_wait and below == 0:
        return
    if none_wait and row.seq <= state.received[pair]:
        looked_at = entries_to_check(row, place)
        if looked_at == 0 or find_missing_causes(state, params, me, row, looked_at) == 0:
            forward(world, rules, nodes, probe, state, params, me, below, message, True)
            return
    state.scalars[AWAKE] = state.scalars[FORWARDS] = 0
    if below > 0:
        track(world, state, params, me, message, below, place, 0)
    advance(world, state, params, me, row.column)
    forward_unblocked(world, rules, nodes, probe, state, params, me)


@njit_inline
def is_first_return(world: Any, state: Any, params: Any, me: Any, message: Any) -> Any:
    """With a single tree a message passes its own sender again; True the first time."""
    row = state.messages[message]
    return is_first_copy(world, state, me, me * params.columns + row.column, row.seq)


@njit_inline
def entries_to_check(row: Any, place: Any) -> Any:
    """How many words of a clock may be missing here; `place` is that of the cause that the message waits
    for."""
    return row.length if place == row.named else place + 1


@njit_inline
def mark_awake(world: Any, state: Any, item: Any) -> Any:
    place = state.scalars[AWAKE]
    if place == len(state.awake):
        world.scalars[FULL] = 1
        return
    state.awake[place] = item
    state.scalars[AWAKE] = place + 1


@njit_inline
def track(
    world: Any, state: Any, params: Any, me: Any, message: Any, below: Any, place: Any, late: Any
) -> Any:
    """Keep track of a new message that is to be forwarded. Leaves of the tree have nothing to do."""
    row, item = state.messages[message], new_item(world, state.forwarding)
    forwarding = state.forwarding.rows[item]
    forwarding.message, forwarding.place, forwarding.since, forwarding.late = (
        message,
        below,
        world.scalars[NOW],
        late,
    )
    forwarding.block, forwarding.missing = entries_to_check(row, place), _UNKNOWN_AWAKE
    early = (me * params.columns + row.column) * params.chains + EARLY
    chain_item(state.forwarding, state.chains, early, item, row.seq)
    mark_awake(world, state, item)


@njit_inline
def advance(world: Any, state: Any, params: Any, me: Any, column: Any) -> Any:
    """The twin of `VcubeAgg._advance`: follow a sender's messages as far as they have arrived without a gap,
    and wake what waited for them."""
    forwarding, chains, pair = state.forwarding, state.chains, me * params.columns + column
    early, blocked = pair * params.chains + EARLY, pair * params.chains + BLOCKED
    received = state.received[pair]
    while True:
        one, other = (
            first_waiting(forwarding, chains, early, received),
            first_waiting(forwarding, chains, blocked, received),
        )
        if one and (other == 0 or forwarding.rows[one].number <= forwarding.rows[other].number):
            unchain_lowest(forwarding, chains, early)
            is_awake = forwarding.rows[one].missing == _UNKNOWN_AWAKE
            store_missing_causes(world, state, params, me, forwarding.rows[one])
            if not is_awake:
                mark_awake(world, state, one)
        elif other:
            unchain_lowest(forwarding, chains, blocked)
            while other:
                mark_awake(world, state, other)
                other = forwarding.rows[other].after
        else:
            return


@njit_inline
def find_missing_causes(state: Any, params: Any, me: Any, row: Any, looked_at: Any) -> Any:
    """Write (height, column, count) of the missing causes that block a child into `missing`; returns how
    many. A column has 24 bits."""
    words, received, my_column, found = state.blocks.words, state.received, state.column[me], 0
    pair, start = np.uint64(me * params.columns), np.uint64(row.clock)
    for place in range(looked_at):
        word = np.uint64(words[start + np.uint64(place)])
        count = np.int64(word & _COUNT_MASK)
        if received[pair + (word >> _32)] < count:
            column = np.int64(word >> _32)
            root = ROOT if params.single_tree else np.int64(state.rank[column])
            served = 0 if column == my_column else height(me, root, params.peers, params.height)
            if served > 0:
                state.missing[found] = np.int64(served) << 56 | column << 32 | count
                found += 1
    return found


@njit_inline
def store_missing_causes(world: Any, state: Any, params: Any, me: Any, forwarding: Any) -> Any:
    """Store the missing causes of a message in a block of its own: how many, and which."""
    found = find_missing_causes(state, params, me, state.messages[forwarding.message], forwarding.block)
    forwarding.missing = found
    block = new_block(world, state.blocks, found + 1)
    state.blocks.words[block] = found
    for place in range(found):
        state.blocks.words[block + 1 + place] = state.missing[place]
    forwarding.block = block


@njit_inline
def forward_unblocked(
    world: Any, rules: Any, nodes: Any, probe: Any, state: Any, params: Any, me: Any
) -> Any:
    """The twin of `VcubeAgg._forward_unblocked`, and of sending the result."""
    for place in range(state.scalars[AWAKE]):
        forward_message(world, probe, state, params, me, state.awake[place])
    if state.scalars[FORWARDS]:
        send_bundles(world, rules, nodes, probe, state, params, me)


@njit_inline
def forward_message(world: Any, probe: Any, state: Any, params: Any, me: Any, item: Any) -> Any:
    """The twin of `VcubeAgg._forward_message`: forward a message to the children that can deliver it; for
    the others it waits under the cause that blocks most."""
    words, forwarding, pair = state.blocks.words, state.forwarding.rows[item], me * params.columns
    if forwarding.missing < 0:
        forwarding.missing = _UNKNOWN
        return
    block, low, left, most = np.int64(forwarding.block) + 1, forwarding.place, 0, np.int64(0)
    for place in range(forwarding.missing):
        word = words[block + place]
        if state.received[pair + (word >> 32 & _COLUMN)] < word & COUNT_MASK:
            words[block + left] = word
            left += 1
            most = max(most, word)
    forwarding.missing = left
    rest = min(most >> 56, low)
    if rest < low:
        sent_at = state.messages[forwarding.message].sent_at
        late = lateness(world, probe, sent_at, forwarding.since, forwarding.late)
        schedule_forward(world, state, forwarding.message, rest, low, late)
    if rest:
        forwarding.place = rest
        blocked = (pair + (most >> 32 & _COLUMN)) * params.chains + BLOCKED
        chain_item(state.forwarding, state.chains, blocked, item, most & COUNT_MASK)
    else:
        free_block(state.blocks, forwarding.block, words[forwarding.block] + 1)
        free_item(state.forwarding, item)


@njit_inline
def schedule_forward(world: Any, state: Any, message: Any, low: Any, high: Any, late: Any) -> Any:
    """Schedule a message to be forwarded to the clusters from `low` to before `high`."""
    place = state.scalars[FORWARDS]
    if place == len(state.forwards):
        world.scalars[FULL] = 1
        return
    state.scalars[FORWARDS] = place + 1
    state.forwards[place], state.forward_from[place], state.forward_to[place] = message, low, high
    state.forward_late[place] = late


@njit_inline
def send_bundles(world: Any, rules: Any, nodes: Any, probe: Any, state: Any, params: Any, me: Any) -> Any:
    """The twin of `VcubeAgg._send_bundles`: send what is scheduled, cluster by cluster, in packets of at most
    `mtu` bytes or one message."""
    moved, highest = state.scalars[FORWARDS], 0
    for place in range(moved):
        highest = max(highest, state.forward_to[place])
    for bit in range(highest):
        child = first_in_cluster(me, bit, params.peers)
        start = place = 0
        while child >= 0 and place < moved:
            start, space, messages, control, named = place, params.mtu, 0, 0, 0
            while place < moved:
                if state.forward_from[place] <= bit < state.forward_to[place]:
                    row = state.messages[state.forwards[place]]
                    paper = 4 + 4 * row.named
                    size = params.payload + (paper if params.paper_sizes else row.control)
                    if messages and size > space:
                        break
                    space -= size
                    messages += 1
                    control += row.control
                    named += row.named
                place += 1
            if messages:
                send_bundle(
                    world,
                    rules,
                    nodes,
                    probe,
                    state,
                    params,
                    me,
                    bit,
                    child,
                    start,
                    place,
                    messages,
                    control,
                    named,
                )


@njit_inline
def send_bundle(
    world: Any, rules: Any, nodes: Any, probe: Any, state: Any, params: Any, me: Any, bit: Any,
    child: Any, start: Any, end: Any, messages: Any, control: Any, named: Any,
) -> Any:  # fmt: skip
    """Send one packet: what is scheduled for this child from `start` to before `end`."""
    words = state.blocks.words
    block, number, packet, packed = np.int64(0), 0, np.int64(0), False
    first = np.int64(-1)
    for place in range(start, end):
        if state.forward_from[place] <= bit < state.forward_to[place]:
            first = np.int64(state.forwards[place]) if first < 0 else first
            if not packed and messages == 1 and state.forward_late[place] == 0:
                packet = state.forwards[place]
            else:
                if not packed:
                    block = new_block(world, state.blocks, _FIRST + 2 * messages)
                    words[block + _MESSAGES] = messages
                    packet, packed = ~block, True
                words[block + _FIRST + 2 * number] = state.forwards[place]
                words[block + _FIRST + 2 * number + 1] = state.forward_late[place] << 1 | (messages == 2)
                number += 1
    bytes_sent, paper = 2 + head_bytes(messages) + control, 4 * messages + 4 * named
    weight = messages * params.payload + (paper if params.as_paper else bytes_sent)
    row = state.messages[first]
    link = me * params.height + bit
    copies = send(
        world, rules, nodes, link, me, child, packet, bytes_sent, weight, row.origin, row.seq
    )  # fmt: skip
    if packed:
        words[block + _COPIES] = copies
        if copies == 0:
            free_block(state.blocks, block, _FIRST + 2 * messages)
    probe_transmit(world, probe, me, child, 1, messages, messages * params.payload + paper)
