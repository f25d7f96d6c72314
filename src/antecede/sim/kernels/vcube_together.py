"""The twin of `VcubeAgg`'s own part: messages that wait on their way for what travels with them.

A message's clock is the same for all who pass it on, so it is not kept by each. Of what is missing only the
most blocking is ever looked for, and what blocks nobody here is left out. A packet with one message is that
message's number; one with more, or with something that a probe remembers, is a block of words: how many
copies are under way, how many messages there are, and for each its number and what the probe remembers.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from antecede.sim.kernels.bundles import lateness, watch_receive, watch_transmit
from antecede.sim.kernels.cubes import cluster, first_in_cluster, height
from antecede.sim.kernels.events import FULL, NOW, arrived
from antecede.sim.kernels.jit import step
from antecede.sim.kernels.nodes import send
from antecede.sim.kernels.pools import chain, first, free_block, free_item, new_block, new_item, unchain
from antecede.sim.kernels.sizes import head_bytes
from antecede.sim.kernels.vcube_members import AWAKE, MOVED, take

_COPIES, _MESSAGES, _FIRST = range(3)
_COUNT = (1 << 32) - 1
_COLUMN = (1 << 24) - 1
_UNKNOWN, _UNKNOWN_AWAKE = -1, -2
"""Instead of how much is missing: the message's predecessor is not here; the second is awake already."""


@step
def receive_together(
    run: Any,
    rules: Any,
    nodes: Any,
    watch: Any,
    pools: Any,
    state: Any,
    terms: Any,
    me: Any,
    link: Any,
    packet: Any,
) -> Any:
    """The twin of `VcubeAgg.receive`."""
    words, block = pools.words, ~packet
    below = cluster(me, link)
    messages = 1 if packet >= 0 else words[block + _MESSAGES]
    for number in range(messages):
        message = packet if packet >= 0 else np.int32(words[block + _FIRST + 2 * number])
        arrived(run, me, link, state.origin[message], state.seq[message])
        watch_receive(run, watch, me, link)
    state.at[AWAKE] = state.at[MOVED] = 0
    came = 0
    for number in range(messages):
        message, late = packet, 0
        if packet < 0:
            message = words[block + _FIRST + 2 * number]
            late = words[block + _FIRST + 2 * number + 1]
        if take(run, watch, pools, state, me, message, late):
            state.came[came] = state.column[state.origin[message]]
            came += 1
            if below > 0:
                follow(run, pools, state, me, message, below, late)
    if packet < 0:
        words[block + _COPIES] -= 1
        if words[block + _COPIES] == 0:
            free_block(pools, block, _FIRST + 2 * messages)
    for place in range(came):
        advance_source(run, pools, state, terms, me, state.came[place])
    for place in range(state.at[AWAKE]):
        pass_on(run, watch, pools, state, me, state.awake[place])
    send_moved(run, rules, nodes, watch, pools, state, terms, me)


@step
def awaken(run: Any, state: Any, item: Any) -> Any:
    place = state.at[AWAKE]
    if place == len(state.awake):
        run.at[FULL] = 1
        return
    state.awake[place] = item
    state.at[AWAKE] = place + 1


@step
def follow(run: Any, pools: Any, state: Any, me: Any, message: Any, below: Any, late: Any) -> Any:
    """A new message that is to be passed on. Leaves have nothing to do for it: nobody is served there."""
    item = new_item(run, pools)
    pools.message[item], pools.place[item], pools.kept[item] = message, below, _UNKNOWN_AWAKE
    pools.since[item], pools.late[item] = run.at[NOW], late
    chain(pools, state.early, me, state.column[state.origin[message]], item, state.seq[message])
    awaken(run, state, item)


@step
def advance_source(run: Any, pools: Any, state: Any, terms: Any, me: Any, column: Any) -> Any:
    """The twin of `VcubeAgg._advance`."""
    solid = state.solid[me, column]
    while True:
        one = first(pools, state.early, me, column, solid)
        other = first(pools, state.blocked, me, column, solid)
        if one and (other == 0 or pools.number[one] <= pools.number[other]):
            unchain(pools, state.early, me, column)
            is_awake = pools.kept[one] == _UNKNOWN_AWAKE
            find_missing(run, pools, state, terms, me, one)
            if not is_awake:
                awaken(run, state, one)
        elif other:
            unchain(pools, state.blocked, me, column)
            awaken(run, state, other)
        else:
            return


@step
def find_missing(run: Any, pools: Any, state: Any, terms: Any, me: Any, item: Any) -> Any:
    """(height, column, count) of the causes not received yet that block somebody; the column in 24 bits."""
    words, message, mine = pools.words, pools.message[item], state.column[me]
    clock, found = state.clock[message], 0
    for place in range(clock, clock + state.length[message]):
        word = words[place]
        column = word >> 32
        if state.solid[me, column] < word & _COUNT and column != mine:
            served = height(me, state.rank[column], terms.peers, terms.height)
            if served > 0:
                state.missing[found] = np.int64(served) << 56 | word
                found += 1
    pools.kept[item] = pools.size[item] = found
    if found:
        block = new_block(run, pools, found)
        pools.block[item] = block
        for place in range(found):
            words[block + place] = state.missing[place]


@step
def pass_on(run: Any, watch: Any, pools: Any, state: Any, me: Any, item: Any) -> Any:
    """The twin of `VcubeAgg._pass_on`."""
    words, message, low = pools.words, pools.message[item], pools.place[item]
    if pools.kept[item] < 0:
        pools.kept[item] = _UNKNOWN
        return
    block, kept, most = np.int64(pools.block[item]), 0, np.int64(0)
    for place in range(pools.kept[item]):
        word = words[block + place]
        if state.solid[me, word >> 32 & _COLUMN] < word & _COUNT:
            words[block + kept] = word
            kept += 1
            most = max(most, word)
    pools.kept[item] = kept
    rest = min(most >> 56, low)
    if rest < low:
        place = state.at[MOVED]
        if place == len(state.moved):
            run.at[FULL] = 1
            return
        state.at[MOVED] = place + 1
        state.moved[place], state.moved_from[place], state.moved_to[place] = message, rest, low
        state.moved_late[place] = lateness(
            run, watch, state.sent_at[message], pools.since[item], pools.late[item]
        )
    pools.place[item] = rest
    if rest:
        chain(pools, state.blocked, me, most >> 32 & _COLUMN, item, most & _COUNT)
    else:
        if pools.size[item]:
            free_block(pools, block, pools.size[item])
        free_item(pools, item)


@step
def send_moved(
    run: Any, rules: Any, nodes: Any, watch: Any, pools: Any, state: Any, terms: Any, me: Any
) -> Any:
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
                    message = state.moved[place]
                    paper = 4 + 4 * state.named[message]
                    size = terms.payload + (paper if terms.full_as_paper else state.control[message])
                    if messages and size > room:
                        break
                    room -= size
                    messages += 1
                    control += state.control[message]
                    named += state.named[message]
                place += 1
            if messages:
                send_part(
                    run,
                    rules,
                    nodes,
                    watch,
                    pools,
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


@step
def send_part(
    run: Any, rules: Any, nodes: Any, watch: Any, pools: Any, state: Any, terms: Any, me: Any, bit: Any,
    child: Any, start: Any, end: Any, messages: Any, control: Any, named: Any,
) -> Any:  # fmt: skip
    """One packet, of what moved from `start` to before `end` and goes to this child."""
    words = pools.words
    block, number, packet, whole = np.int64(0), 0, np.int64(0), False
    for place in range(start, end):
        if state.moved_from[place] <= bit < state.moved_to[place]:
            if not whole and messages == 1 and state.moved_late[place] == 0:
                packet = state.moved[place]
            else:
                if not whole:
                    block = new_block(run, pools, _FIRST + 2 * messages)
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
            free_block(pools, block, _FIRST + 2 * messages)
    watch_transmit(run, watch, me, child, 1, messages, messages * terms.payload + paper)
