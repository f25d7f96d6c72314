"""The twin of `protocols/freescale/external.py`: members of the external group."""

from __future__ import annotations

from typing import Any

import numpy as np

from antecede.jit import njit_inline, njit_inner
from antecede.sim.kernels.freescale.packets import (
    count_control_bytes,
    external_index,
    free_held,
    hold_unmet,
    make_ready,
    new_packet,
    next_ready,
    take_waiting,
)
from antecede.sim.kernels.freescale.state import (
    ARRIVED,
    CHAINS,
    COUNTS,
    END,
    EXTERNAL,
    FINAL,
    FIRST,
    HEAD,
    LAST,
    NAMED_BITS,
    NAMED_HIGH,
    NAMED_LOW,
    NEXT,
    NUMBER,
    ORIGIN,
    OTHER,
    PACKET,
    SEEN,
    SEEN_BASE,
    SEEN_TOP,
    TO_NAME,
)
from antecede.sim.kernels.runtime.bit_set import (
    row_fits,
    row_missing,
    set_add,
    set_clear,
    set_remove,
    set_subtract,
    set_tighten,
    write_row,
)
from antecede.sim.kernels.runtime.bit_window import add, add_row, contains
from antecede.sim.kernels.runtime.world_state import FULL, NOW

_BLOCK = 64


@njit_inline
def missing_pair(pairs: Any, counts: Any, below: Any) -> Any:
    """The last place before `below` at which a packet names more than is delivered; -1 if there is none."""
    while below > 0:
        start = max(0, below - _BLOCK)
        lacking = False
        for place in range(start, below):
            spot = np.uint64(place)  # signed indices keep the compiler from vectorising
            lacking |= pairs[spot] > counts[spot]
        if lacking:
            while pairs[below - 1] <= counts[below - 1]:
                below -= 1
            return below - 1
        below = start
    return below - 1


@njit_inline
def hold_outside(
    world: Any, params: Any, state: Any, me: Any, sender: Any, packet: Any, arrived: Any, below: Any
) -> Any:
    """The twin of `HoldBackQueue.hold` for external packets: under the last of what it names that is not
    delivered, else under its sender's previous message; or make it ready. All that it names of external peers
    from the place `below` on is delivered."""
    mine = external_index(params, me)
    bases, tops, seen = (
        state.outside[SEEN_BASE, mine],
        state.outside[SEEN_TOP, mine],
        state.outside_bits[SEEN, mine],
    )
    first, final = state.bounds[FIRST, packet], state.bounds[FINAL, packet]
    for place in range(params.supers - 1, -1, -1):
        if place != me and first[place] <= final[place]:
            row = state.rows[packet, place]
            number = row_missing(seen[place], bases[place], tops[place], first[place], final[place], row)
            if number:
                heads, ends = state.super_chains[HEAD, mine, place], state.super_chains[END, mine, place]
                hold_unmet(world, state, packet, arrived, number, heads, ends, number % CHAINS)
                return
    pairs, counts = state.pairs[packet], state.external_counts[COUNTS, mine]
    place = missing_pair(pairs, counts, below)
    if place >= 0:
        heads, ends = state.peer_chains[HEAD, mine], state.peer_chains[END, mine]
        hold_unmet(world, state, packet, arrived, np.int64(pairs[place]), heads, ends, place)
        return
    if sender < params.supers:
        before = state.packets[packet, LAST]
        if not contains(seen[sender], bases[sender], tops[sender], before):
            heads, ends = state.super_chains[HEAD, mine, sender], state.super_chains[END, mine, sender]
            hold_unmet(world, state, packet, arrived, before, heads, ends, before % CHAINS)
            return
    else:
        place, before = external_index(params, sender) - params.supers, state.packets[packet, NUMBER] - 1
        if counts[place] < before:
            heads, ends = state.peer_chains[HEAD, mine], state.peer_chains[END, mine]
            hold_unmet(world, state, packet, arrived, before, heads, ends, place)
            return
    make_ready(state, False, packet, arrived)


@njit_inline
def accept_outside(world: Any, params: Any, state: Any, me: Any, sender: Any, packet: Any) -> Any:
    """The twin of `ExternalInbox.accept`."""
    mine = external_index(params, me)
    if sender < params.supers:
        ring = state.outside_bits[SEEN, mine, sender]
        bases, tops = state.outside[SEEN_BASE, mine], state.outside[SEEN_TOP, mine]
        for number in range(
            max(state.packets[packet, OTHER], bases[sender]) + 1, state.packets[packet, NUMBER]
        ):
            if not add(ring, bases, tops, sender, number):
                world.scalars[FULL] = 1
        translated = params.supers
        first, final = state.bounds[FIRST, packet, translated], state.bounds[FINAL, packet, translated]
        if not add_row(ring, bases, tops, sender, first, final, state.rows[packet, translated]):
            world.scalars[FULL] = 1
    hold_outside(world, params, state, me, sender, packet, world.scalars[NOW], state.pairs.shape[1])


@njit_inline
def deliver_next_outside(world: Any, params: Any, state: Any, me: Any) -> Any:
    """The twin of `ExternalInbox.deliver_next`."""
    packet, arrived = next_ready(state, False)
    if packet < 0:
        return packet, arrived
    mine, sender = external_index(params, me), params.homes[state.packets[packet, ORIGIN]]
    number, below = state.packets[packet, NUMBER], state.pairs.shape[1]
    if sender < params.supers:
        bases, tops = state.outside[SEEN_BASE, mine], state.outside[SEEN_TOP, mine]
        if not add(state.outside_bits[SEEN, mine, sender], bases, tops, sender, number):
            world.scalars[FULL] = 1
        heads, ends = state.super_chains[HEAD, mine, sender], state.super_chains[END, mine, sender]
        held = take_waiting(state, number, heads, ends, number % CHAINS)
    else:
        below = external_index(params, sender) - params.supers
        state.external_counts[COUNTS, mine, below] = number
        held = take_waiting(state, number, state.peer_chains[HEAD, mine], state.peer_chains[END, mine], below)
    while held:
        following = np.int64(state.held[held, NEXT])
        other, others_since = np.int64(state.held[held, PACKET]), state.held[held, ARRIVED]
        free_held(state, held)
        home = params.homes[state.packets[other, ORIGIN]]
        hold_outside(world, params, state, me, home, other, others_since, below)
        held = following
    return packet, arrived


@njit_inner
def create_external_packet(world: Any, params: Any, state: Any, me: Any) -> Any:
    """The packet that `ExternalPeer.broadcast` sends."""
    mine, seq = external_index(params, me), world.messages[me]
    packet = new_packet(world, state, EXTERNAL, me, seq, world.scalars[NOW])
    state.packets[packet, NUMBER], state.packets[packet, LAST], state.packets[packet, OTHER] = seq, 0, seq - 1
    state.external_counts[COUNTS, mine, mine - params.supers] = seq  # its own messages are delivered
    pairs, named = state.pairs[packet], state.external_counts[TO_NAME, mine]
    for place in range(len(pairs)):
        pairs[place] = named[place]
        named[place] = 0
    for place in range(params.supers):
        ring, lows, highs = (
            state.outside_bits[NAMED_BITS, mine, place],
            state.outside[NAMED_LOW, mine],
            state.outside[NAMED_HIGH, mine],
        )
        set_tighten(ring, lows, highs, place)
        low, high = lows[place], highs[place]
        row = state.rows[packet, place]
        if not row_fits(low, high, row):
            world.scalars[FULL] = 1
            return packet
        write_row(ring, low, high, row)
        empty = high < low
        state.bounds[FIRST, packet, place], state.bounds[FINAL, packet, place] = (
            (0, -1) if empty else (low, high)
        )
        set_clear(ring, lows, highs, place)
    state.bounds[FIRST, packet, params.supers], state.bounds[FINAL, packet, params.supers] = 0, -1
    count_control_bytes(params, state, packet)
    return packet


@njit_inline
def deliver_outside(world: Any, params: Any, state: Any, me: Any, packet: Any) -> Any:
    """The twin of `ExternalPeer.deliver`, of a given packet."""
    mine, sender = external_index(params, me), params.homes[state.packets[packet, ORIGIN]]
    pairs, named = state.pairs[packet], state.external_counts[TO_NAME, mine]
    for place in range(len(pairs)):
        named[place] = 0 if named[place] == pairs[place] else named[place]
    lows, highs = state.outside[NAMED_LOW, mine], state.outside[NAMED_HIGH, mine]
    for place in range(params.supers):
        first, final = state.bounds[FIRST, packet, place], state.bounds[FINAL, packet, place]
        ring = state.outside_bits[NAMED_BITS, mine, place]
        set_subtract(ring, lows[place], highs[place], first, final, state.rows[packet, place])
    if sender < params.supers:
        ring = state.outside_bits[NAMED_BITS, mine, sender]
        set_remove(ring, lows, highs, sender, state.packets[packet, LAST])
        set_tighten(ring, lows, highs, sender)
        if not set_add(ring, lows, highs, sender, state.packets[packet, NUMBER]):
            world.scalars[FULL] = 1
    else:
        named[external_index(params, sender) - params.supers] = state.packets[packet, NUMBER]
