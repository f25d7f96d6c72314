"""The twin of `VcubeAgg`'s own part: messages that wait on their way for what travels with them.

A message's clock is the same for all who pass it on, so it is not kept by each. Of what is missing only the
most blocking is ever looked for, and what blocks nobody here is left out. A packet with one message is that
message's number; one with more, or with something that a probe remembers, is a block of words: how many
copies are under way, how many messages there are, and for each its number and what the probe remembers.
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
from antecede.sim.kernels.vcube.members import (
    AGAIN,
    AWAKE,
    BLOCKED,
    COUNT,
    EARLY,
    MOVED,
    forward,
    hold,
    is_first_copy,
)

_COPIES, _MESSAGES, _FIRST = range(3)
_COUNT, _32 = np.uint64(COUNT), np.uint64(32)
_COLUMN = (1 << 24) - 1
_UNKNOWN, _UNKNOWN_AWAKE = -1, -2
"""Instead of how much is missing: the message's predecessor is not here; the second is awake already."""


@njit_inline
def receive_bundle(
    world: Any, rules: Any, nodes: Any, probe: Any, state: Any, params: Any, me: Any, link: Any, packet: Any
) -> Any:
    """The twin of `VcubeAgg.receive`, and of `VcubeAggSingleTree.receive`."""
    below = height(me, ROOT, params.peers, params.height) if params.single_tree else cluster(me, link)
    if packet >= 0:
        row = state.messages[packet]
        record_receive(world, me, link, row.origin, row.seq)
        probe_receive(world, probe, me, link)
        receive_single(world, rules, nodes, probe, state, params, me, below, packet)
        return
    words, block = state.blocks.words, np.int64(~packet)
    messages, came = words[block + _MESSAGES], 0
    for number in range(messages):
        row = state.messages[words[block + _FIRST + 2 * number]]
        record_receive(world, me, link, row.origin, row.seq)
        probe_receive(world, probe, me, link)
    state.scalars[AWAKE] = state.scalars[MOVED] = 0
    for number in range(messages):
        message = words[block + _FIRST + 2 * number]
        late = words[block + _FIRST + 2 * number + 1]
        if state.messages[message].origin == me:
            if is_first_return(world, state, params, me, message) and below > 0:
                schedule_forward(world, state, message, 0, below, 0)
            continue
        place = hold(world, probe, state, params, me, message, late)
        if place != AGAIN:
            state.came[came] = state.messages[message].column
            came += 1
            if below > 0:
                track(world, state, params, me, message, below, place, late)
    words[block + _COPIES] -= 1
    if words[block + _COPIES] == 0:
        free_block(state.blocks, block, _FIRST + 2 * messages)
    for number in range(came):
        advance(world, state, params, me, state.came[number])
    forward_awake(world, rules, nodes, probe, state, params, me)


@njit_inline
def receive_single(
    world: Any, rules: Any, nodes: Any, probe: Any, state: Any, params: Any, me: Any, below: Any, message: Any
) -> Any:
    """A message alone: mostly nothing waits for it or with it, and nothing has to be remembered."""
    row = state.messages[message]
    if row.origin == me:
        if is_first_return(world, state, params, me, message):
            forward(world, rules, nodes, probe, state, params, me, below, message, True)
        return
    place = hold(world, probe, state, params, me, message, 0)
    if place == AGAIN:
        return
    pair = me * params.columns + row.column
    chains, chained = state.chains, pair * params.chains
    none_wait = chains[chained + BLOCKED] == 0 and chains[chained + EARLY] == 0
    if none_wait and below == 0:
        return
    if none_wait and row.seq <= state.solid[pair]:
        looked_at = entries_to_check(row, place)
        if looked_at == 0 or find_missing(state, params, me, row, looked_at) == 0:
            forward(world, rules, nodes, probe, state, params, me, below, message, True)
            return
    state.scalars[AWAKE] = state.scalars[MOVED] = 0
    if below > 0:
        track(world, state, params, me, message, below, place, 0)
    advance(world, state, params, me, row.column)
    forward_awake(world, rules, nodes, probe, state, params, me)


@njit_inline
def is_first_return(world: Any, state: Any, params: Any, me: Any, message: Any) -> Any:
    """Where there is one tree for all, a message comes through its sender again; True the first time."""
    row = state.messages[message]
    return is_first_copy(world, state, me, me * params.columns + row.column, row.seq)


@njit_inline
def entries_to_check(row: Any, place: Any) -> Any:
    """How much of a clock may be missing here: what was delivered before the message is not."""
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
    """A new message that is to be passed on. Leaves have nothing to do for it: nobody is served there."""
    row, item = state.messages[message], new_item(world, state.passing)
    passing = state.passing.rows[item]
    passing.message, passing.place, passing.since, passing.late = message, below, world.scalars[NOW], late
    passing.block, passing.missing = entries_to_check(row, place), _UNKNOWN_AWAKE
    early = (me * params.columns + row.column) * params.chains + EARLY
    chain_item(state.passing, state.chains, early, item, row.seq)
    mark_awake(world, state, item)


@njit_inline
def advance(world: Any, state: Any, params: Any, me: Any, column: Any) -> Any:
    """The twin of `VcubeAgg._advance`."""
    passing, chains, pair = state.passing, state.chains, me * params.columns + column
    early, blocked = pair * params.chains + EARLY, pair * params.chains + BLOCKED
    solid = state.solid[pair]
    while True:
        one, other = (
            first_waiting(passing, chains, early, solid),
            first_waiting(passing, chains, blocked, solid),
        )
        if one and (other == 0 or passing.rows[one].number <= passing.rows[other].number):
            unchain_lowest(passing, chains, early)
            is_awake = passing.rows[one].missing == _UNKNOWN_AWAKE
            store_missing(world, state, params, me, passing.rows[one])
            if not is_awake:
                mark_awake(world, state, one)
        elif other:
            unchain_lowest(passing, chains, blocked)
            while other:
                mark_awake(world, state, other)
                other = passing.rows[other].after
        else:
            return


@njit_inline
def find_missing(state: Any, params: Any, me: Any, row: Any, looked_at: Any) -> Any:
    """(height, column, count) of the causes not received yet that block somebody; the column in 24 bits."""
    words, solid, mine, found = state.blocks.words, state.solid, state.column[me], 0
    pair, start = np.uint64(me * params.columns), np.uint64(row.clock)
    for place in range(looked_at):
        word = np.uint64(words[start + np.uint64(place)])
        count = np.int64(word & _COUNT)
        if solid[pair + (word >> _32)] < count:
            column = np.int64(word >> _32)
            root = ROOT if params.single_tree else np.int64(state.rank[column])
            served = 0 if column == mine else height(me, root, params.peers, params.height)
            if served > 0:
                state.missing[found] = np.int64(served) << 56 | column << 32 | count
                found += 1
    return found


@njit_inline
def store_missing(world: Any, state: Any, params: Any, me: Any, passing: Any) -> Any:
    """In words of its own: how many there were, and they."""
    found = find_missing(state, params, me, state.messages[passing.message], passing.block)
    passing.missing = found
    block = new_block(world, state.blocks, found + 1)
    state.blocks.words[block] = found
    for place in range(found):
        state.blocks.words[block + 1 + place] = state.missing[place]
    passing.block = block


@njit_inline
def forward_awake(world: Any, rules: Any, nodes: Any, probe: Any, state: Any, params: Any, me: Any) -> Any:
    for place in range(state.scalars[AWAKE]):
        forward_unblocked(world, probe, state, params, me, state.awake[place])
    if state.scalars[MOVED]:
        send_bundles(world, rules, nodes, probe, state, params, me)


@njit_inline
def forward_unblocked(world: Any, probe: Any, state: Any, params: Any, me: Any, item: Any) -> Any:
    """The twin of `VcubeAgg._pass_on`."""
    words, passing, pair = state.blocks.words, state.passing.rows[item], me * params.columns
    if passing.missing < 0:
        passing.missing = _UNKNOWN
        return
    block, low, kept, most = np.int64(passing.block) + 1, passing.place, 0, np.int64(0)
    for place in range(passing.missing):
        word = words[block + place]
        if state.solid[pair + (word >> 32 & _COLUMN)] < word & COUNT:
            words[block + kept] = word
            kept += 1
            most = max(most, word)
    passing.missing = kept
    rest = min(most >> 56, low)
    if rest < low:
        sent_at = state.messages[passing.message].sent_at
        late = lateness(world, probe, sent_at, passing.since, passing.late)
        schedule_forward(world, state, passing.message, rest, low, late)
    if rest:
        passing.place = rest
        blocked = (pair + (most >> 32 & _COLUMN)) * params.chains + BLOCKED
        chain_item(state.passing, state.chains, blocked, item, most & COUNT)
    else:
        free_block(state.blocks, passing.block, words[passing.block] + 1)
        free_item(state.passing, item)


@njit_inline
def schedule_forward(world: Any, state: Any, message: Any, low: Any, high: Any, late: Any) -> Any:
    """A message is to be sent to the clusters from `low` to before `high`."""
    place = state.scalars[MOVED]
    if place == len(state.moved):
        world.scalars[FULL] = 1
        return
    state.scalars[MOVED] = place + 1
    state.moved[place], state.moved_from[place], state.moved_to[place] = message, low, high
    state.moved_late[place] = late


@njit_inline
def send_bundles(world: Any, rules: Any, nodes: Any, probe: Any, state: Any, params: Any, me: Any) -> Any:
    """The twin of `VcubeAgg._bundles` and `_cut`."""
    moved, highest = state.scalars[MOVED], 0
    for place in range(moved):
        highest = max(highest, state.moved_to[place])
    for bit in range(highest):
        child = first_in_cluster(me, bit, params.peers)
        start = place = 0
        while child >= 0 and place < moved:
            # One part of what goes to this child: as much as fits, but at least one message.
            start, room, messages, control, named = place, params.mtu, 0, 0, 0
            while place < moved:
                if state.moved_from[place] <= bit < state.moved_to[place]:
                    row = state.messages[state.moved[place]]
                    paper = 4 + 4 * row.named
                    size = params.payload + (paper if params.paper_sizes else row.control)
                    if messages and size > room:
                        break
                    room -= size
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
    """One packet, of what moved from `start` to before `end` and goes to this child."""
    words = state.blocks.words
    block, number, packet, whole = np.int64(0), 0, np.int64(0), False
    for place in range(start, end):
        if state.moved_from[place] <= bit < state.moved_to[place]:
            if not whole and messages == 1 and state.moved_late[place] == 0:
                packet = state.moved[place]
            else:
                if not whole:
                    block = new_block(world, state.blocks, _FIRST + 2 * messages)
                    words[block + _MESSAGES] = messages
                    packet, whole = ~block, True
                words[block + _FIRST + 2 * number] = state.moved[place]
                words[block + _FIRST + 2 * number + 1] = state.moved_late[place] << 1 | (messages == 2)
                number += 1
    bytes_sent, paper = 2 + head_bytes(messages) + control, 4 * messages + 4 * named
    weight = messages * params.payload + (paper if params.as_paper else bytes_sent)
    copies = send(world, rules, nodes, me * params.height + bit, me, child, packet, bytes_sent, weight)
    if whole:
        words[block + _COPIES] = copies
        if copies == 0:
            free_block(state.blocks, block, _FIRST + 2 * messages)
    probe_transmit(world, probe, me, child, 1, messages, messages * params.payload + paper)
