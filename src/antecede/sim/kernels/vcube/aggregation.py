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
from antecede.sim.kernels.runtime.bundles import lateness, watch_receive, watch_transmit
from antecede.sim.kernels.runtime.events import FULL, NOW, arrived
from antecede.sim.kernels.runtime.msgpack_sizes import head_bytes
from antecede.sim.kernels.runtime.nodes import send
from antecede.sim.kernels.runtime.overlays import cluster, first_in_cluster, height
from antecede.sim.kernels.runtime.pools import (
    chain,
    first,
    free_block,
    free_item,
    new_block,
    new_item,
    unchain,
)
from antecede.sim.kernels.vcube.members import (
    AGAIN,
    AWAKE,
    BLOCKED,
    COUNT,
    EARLY,
    MOVED,
    note,
    serve,
    take,
)

_COPIES, _MESSAGES, _FIRST = range(3)
_COUNT, _32 = np.uint64(COUNT), np.uint64(32)
_COLUMN = (1 << 24) - 1
_UNKNOWN, _UNKNOWN_AWAKE = -1, -2
"""Instead of how much is missing: the message's predecessor is not here; the second is awake already."""


@njit_inline
def receive_together(
    run: Any, rules: Any, nodes: Any, watch: Any, state: Any, terms: Any, me: Any, link: Any, packet: Any
) -> Any:
    """The twin of `VcubeAgg.receive`, and of `VcubeAggSingleTree.receive`."""
    below = height(me, ROOT, terms.peers, terms.height) if terms.one_tree else cluster(me, link)
    if packet >= 0:
        row = state.messages[packet]
        arrived(run, me, link, row.origin, row.seq)
        watch_receive(run, watch, me, link)
        receive_one(run, rules, nodes, watch, state, terms, me, below, packet)
        return
    words, block = state.blocks.words, np.int64(~packet)
    messages, came = words[block + _MESSAGES], 0
    for number in range(messages):
        row = state.messages[words[block + _FIRST + 2 * number]]
        arrived(run, me, link, row.origin, row.seq)
        watch_receive(run, watch, me, link)
    state.at[AWAKE] = state.at[MOVED] = 0
    for number in range(messages):
        message = words[block + _FIRST + 2 * number]
        late = words[block + _FIRST + 2 * number + 1]
        if state.messages[message].origin == me:
            if comes_back(run, state, terms, me, message) and below > 0:
                move(run, state, message, 0, below, 0)
            continue
        place = take(run, watch, state, terms, me, message, late)
        if place != AGAIN:
            state.came[came] = state.messages[message].column
            came += 1
            if below > 0:
                follow(run, state, terms, me, message, below, place, late)
    words[block + _COPIES] -= 1
    if words[block + _COPIES] == 0:
        free_block(state.blocks, block, _FIRST + 2 * messages)
    for number in range(came):
        advance_source(run, state, terms, me, state.came[number])
    pass_on_and_send(run, rules, nodes, watch, state, terms, me)


@njit_inline
def receive_one(
    run: Any, rules: Any, nodes: Any, watch: Any, state: Any, terms: Any, me: Any, below: Any, message: Any
) -> Any:
    """A message alone: mostly nothing waits for it or with it, and nothing has to be remembered."""
    row = state.messages[message]
    if row.origin == me:
        if comes_back(run, state, terms, me, message):
            serve(run, rules, nodes, watch, state, terms, me, below, message, True)
        return
    place = take(run, watch, state, terms, me, message, 0)
    if place == AGAIN:
        return
    pair = me * terms.columns + row.column
    chains, chained = state.chains, pair * terms.chains
    none_wait = chains[chained + BLOCKED] == 0 and chains[chained + EARLY] == 0
    if none_wait and below == 0:
        return
    if none_wait and row.seq <= state.solid[pair]:
        looked_at = to_look_at(row, place)
        if looked_at == 0 or find_missing(state, terms, me, row, looked_at) == 0:
            serve(run, rules, nodes, watch, state, terms, me, below, message, True)
            return
    state.at[AWAKE] = state.at[MOVED] = 0
    if below > 0:
        follow(run, state, terms, me, message, below, place, 0)
    advance_source(run, state, terms, me, row.column)
    pass_on_and_send(run, rules, nodes, watch, state, terms, me)


@njit_inline
def comes_back(run: Any, state: Any, terms: Any, me: Any, message: Any) -> Any:
    """Where there is one tree for all, a message comes through its sender again; True the first time."""
    row = state.messages[message]
    return note(run, state, me, me * terms.columns + row.column, row.seq)


@njit_inline
def to_look_at(row: Any, place: Any) -> Any:
    """How much of a clock may be missing here: what was delivered before the message is not."""
    return row.length if place == row.named else place + 1


@njit_inline
def awaken(run: Any, state: Any, item: Any) -> Any:
    place = state.at[AWAKE]
    if place == len(state.awake):
        run.at[FULL] = 1
        return
    state.awake[place] = item
    state.at[AWAKE] = place + 1


@njit_inline
def follow(run: Any, state: Any, terms: Any, me: Any, message: Any, below: Any, place: Any, late: Any) -> Any:
    """A new message that is to be passed on. Leaves have nothing to do for it: nobody is served there."""
    row, item = state.messages[message], new_item(run, state.passing)
    passing = state.passing.rows[item]
    passing.message, passing.place, passing.since, passing.late = message, below, run.at[NOW], late
    passing.block, passing.kept = to_look_at(row, place), _UNKNOWN_AWAKE
    early = (me * terms.columns + row.column) * terms.chains + EARLY
    chain(state.passing, state.chains, early, item, row.seq)
    awaken(run, state, item)


@njit_inline
def advance_source(run: Any, state: Any, terms: Any, me: Any, column: Any) -> Any:
    """The twin of `VcubeAgg._advance`."""
    passing, chains, pair = state.passing, state.chains, me * terms.columns + column
    early, blocked = pair * terms.chains + EARLY, pair * terms.chains + BLOCKED
    solid = state.solid[pair]
    while True:
        one, other = first(passing, chains, early, solid), first(passing, chains, blocked, solid)
        if one and (other == 0 or passing.rows[one].number <= passing.rows[other].number):
            unchain(passing, chains, early)
            is_awake = passing.rows[one].kept == _UNKNOWN_AWAKE
            keep_missing(run, state, terms, me, passing.rows[one])
            if not is_awake:
                awaken(run, state, one)
        elif other:
            unchain(passing, chains, blocked)
            while other:
                awaken(run, state, other)
                other = passing.rows[other].after
        else:
            return


@njit_inline
def find_missing(state: Any, terms: Any, me: Any, row: Any, looked_at: Any) -> Any:
    """(height, column, count) of the causes not received yet that block somebody; the column in 24 bits."""
    words, solid, mine, found = state.blocks.words, state.solid, state.column[me], 0
    pair, start = np.uint64(me * terms.columns), np.uint64(row.clock)
    for place in range(looked_at):
        word = np.uint64(words[start + np.uint64(place)])
        count = np.int64(word & _COUNT)
        if solid[pair + (word >> _32)] < count:
            column = np.int64(word >> _32)
            root = ROOT if terms.one_tree else np.int64(state.rank[column])
            served = 0 if column == mine else height(me, root, terms.peers, terms.height)
            if served > 0:
                state.missing[found] = np.int64(served) << 56 | column << 32 | count
                found += 1
    return found


@njit_inline
def keep_missing(run: Any, state: Any, terms: Any, me: Any, passing: Any) -> Any:
    """In words of its own: how many there were, and they."""
    found = find_missing(state, terms, me, state.messages[passing.message], passing.block)
    passing.kept = found
    block = new_block(run, state.blocks, found + 1)
    state.blocks.words[block] = found
    for place in range(found):
        state.blocks.words[block + 1 + place] = state.missing[place]
    passing.block = block


@njit_inline
def pass_on_and_send(run: Any, rules: Any, nodes: Any, watch: Any, state: Any, terms: Any, me: Any) -> Any:
    for place in range(state.at[AWAKE]):
        pass_on(run, watch, state, terms, me, state.awake[place])
    if state.at[MOVED]:
        send_moved(run, rules, nodes, watch, state, terms, me)


@njit_inline
def pass_on(run: Any, watch: Any, state: Any, terms: Any, me: Any, item: Any) -> Any:
    """The twin of `VcubeAgg._pass_on`."""
    words, passing, pair = state.blocks.words, state.passing.rows[item], me * terms.columns
    if passing.kept < 0:
        passing.kept = _UNKNOWN
        return
    block, low, kept, most = np.int64(passing.block) + 1, passing.place, 0, np.int64(0)
    for place in range(passing.kept):
        word = words[block + place]
        if state.solid[pair + (word >> 32 & _COLUMN)] < word & COUNT:
            words[block + kept] = word
            kept += 1
            most = max(most, word)
    passing.kept = kept
    rest = min(most >> 56, low)
    if rest < low:
        sent_at = state.messages[passing.message].sent_at
        late = lateness(run, watch, sent_at, passing.since, passing.late)
        move(run, state, passing.message, rest, low, late)
    if rest:
        passing.place = rest
        blocked = (pair + (most >> 32 & _COLUMN)) * terms.chains + BLOCKED
        chain(state.passing, state.chains, blocked, item, most & COUNT)
    else:
        free_block(state.blocks, passing.block, words[passing.block] + 1)
        free_item(state.passing, item)


@njit_inline
def move(run: Any, state: Any, message: Any, low: Any, high: Any, late: Any) -> Any:
    """A message is to be sent to the clusters from `low` to before `high`."""
    place = state.at[MOVED]
    if place == len(state.moved):
        run.at[FULL] = 1
        return
    state.at[MOVED] = place + 1
    state.moved[place], state.moved_from[place], state.moved_to[place] = message, low, high
    state.moved_late[place] = late


@njit_inline
def send_moved(run: Any, rules: Any, nodes: Any, watch: Any, state: Any, terms: Any, me: Any) -> Any:
    """The twin of `VcubeAgg._bundles` and `_cut`."""
    moved, highest = state.at[MOVED], 0
    for place in range(moved):
        highest = max(highest, state.moved_to[place])
    for bit in range(highest):
        child = first_in_cluster(me, bit, terms.peers)
        start = place = 0
        while child >= 0 and place < moved:
            # One part of what goes to this child: as much as fits, but at least one message.
            start, room, messages, control, named = place, terms.full, 0, 0, 0
            while place < moved:
                if state.moved_from[place] <= bit < state.moved_to[place]:
                    row = state.messages[state.moved[place]]
                    paper = 4 + 4 * row.named
                    size = terms.payload + (paper if terms.full_as_paper else row.control)
                    if messages and size > room:
                        break
                    room -= size
                    messages += 1
                    control += row.control
                    named += row.named
                place += 1
            if messages:
                send_part(
                    run,
                    rules,
                    nodes,
                    watch,
                    state,
                    terms,
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
def send_part(
    run: Any, rules: Any, nodes: Any, watch: Any, state: Any, terms: Any, me: Any, bit: Any,
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
                    block = new_block(run, state.blocks, _FIRST + 2 * messages)
                    words[block + _MESSAGES] = messages
                    packet, whole = ~block, True
                words[block + _FIRST + 2 * number] = state.moved[place]
                words[block + _FIRST + 2 * number + 1] = state.moved_late[place] << 1 | (messages == 2)
                number += 1
    bytes_sent, paper = 2 + head_bytes(messages) + control, 4 * messages + 4 * named
    weight = messages * terms.payload + (paper if terms.as_paper else bytes_sent)
    copies = send(run, rules, nodes, me * terms.height + bit, me, child, packet, bytes_sent, weight)
    if whole:
        words[block + _COPIES] = copies
        if copies == 0:
            free_block(state.blocks, block, _FIRST + 2 * messages)
    watch_transmit(run, watch, me, child, 1, messages, messages * terms.payload + paper)
