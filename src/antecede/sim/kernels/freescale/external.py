"""The twins of `Outside` and `External` in `protocols/freescale_roles.py`: the external group."""

from __future__ import annotations

from typing import Any

import numpy as np

from antecede.jit import njit_inline, njit_inner
from antecede.sim.kernels.freescale.packets import (
    fresh_packet,
    hold,
    index,
    make_ready,
    next_ready,
    unhold,
    weigh,
    woken,
)
from antecede.sim.kernels.freescale.state import (
    ACROSS,
    CHAINS,
    COUNTS,
    END,
    FINAL,
    FIRST,
    HEAD,
    LAST,
    NAMED,
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
    SINCE,
)
from antecede.sim.kernels.runtime.bitsets import (
    row_fits,
    row_lacking,
    row_of_set,
    set_add,
    set_clear,
    set_remove,
    set_subtract,
    set_tighten,
    window_add,
    window_has,
    window_union,
)
from antecede.sim.kernels.runtime.events import FULL, NOW

_BLOCK = 64


@njit_inline
def lacking_pair(pairs: Any, counts: Any, below: Any) -> Any:
    """The last place before `below` at which a packet names more than is here; -1 if there is none."""
    while below > 0:
        start = max(0, below - _BLOCK)
        lacking = False
        for place in range(start, below):
            spot = np.uint64(place)  # what may be negative is looked up one by one
            lacking |= pairs[spot] > counts[spot]
        if lacking:
            while pairs[below - 1] <= counts[below - 1]:
                below -= 1
            return below - 1
        below = start
    return below - 1


@njit_inline
def file_outside(
    run: Any, shape: Any, state: Any, me: Any, sender: Any, packet: Any, since: Any, below: Any
) -> Any:
    """Under the last of what it names that is not here, and else under the same sender's last. All that it
    names of external peers from the place `below` on is here."""
    mine = index(shape, me)
    bases, tops, seen = (
        state.outside[SEEN_BASE, mine],
        state.outside[SEEN_TOP, mine],
        state.outside_bits[SEEN, mine],
    )
    first, final = state.bounds[FIRST, packet], state.bounds[FINAL, packet]
    for place in range(shape.supers - 1, -1, -1):
        if place != me and first[place] <= final[place]:
            row = state.rows[packet, place]
            number = row_lacking(seen[place], bases[place], tops[place], first[place], final[place], row)
            if number:
                heads, ends = state.super_chains[HEAD, mine, place], state.super_chains[END, mine, place]
                hold(run, state, packet, since, number, heads, ends, number % CHAINS)
                return
    pairs, counts = state.pairs[packet], state.known[COUNTS, mine]
    place = lacking_pair(pairs, counts, below)
    if place >= 0:
        heads, ends = state.peer_chains[HEAD, mine], state.peer_chains[END, mine]
        hold(run, state, packet, since, np.int64(pairs[place]), heads, ends, place)
        return
    if sender < shape.supers:
        before = state.packets[packet, LAST]
        if not window_has(seen[sender], bases[sender], tops[sender], before):
            heads, ends = state.super_chains[HEAD, mine, sender], state.super_chains[END, mine, sender]
            hold(run, state, packet, since, before, heads, ends, before % CHAINS)
            return
    else:
        place, before = index(shape, sender) - shape.supers, state.packets[packet, NUMBER] - 1
        if counts[place] < before:
            heads, ends = state.peer_chains[HEAD, mine], state.peer_chains[END, mine]
            hold(run, state, packet, since, before, heads, ends, place)
            return
    make_ready(state, False, packet, since)


@njit_inline
def take_outside(run: Any, shape: Any, state: Any, me: Any, sender: Any, packet: Any) -> Any:
    """`Outside.take`."""
    mine = index(shape, me)
    if sender < shape.supers:
        ring = state.outside_bits[SEEN, mine, sender]
        bases, tops = state.outside[SEEN_BASE, mine], state.outside[SEEN_TOP, mine]
        for number in range(
            max(state.packets[packet, OTHER], bases[sender]) + 1, state.packets[packet, NUMBER]
        ):
            if not window_add(ring, bases, tops, sender, number):
                run.at[FULL] = 1
        translated = shape.supers
        first, final = state.bounds[FIRST, packet, translated], state.bounds[FINAL, packet, translated]
        if not window_union(ring, bases, tops, sender, first, final, state.rows[packet, translated]):
            run.at[FULL] = 1
    file_outside(run, shape, state, me, sender, packet, run.at[NOW], state.pairs.shape[1])


@njit_inline
def next_outside(run: Any, shape: Any, state: Any, me: Any) -> Any:
    """`Outside.next`."""
    packet, since = next_ready(state, False)
    if packet < 0:
        return packet, since
    mine, sender = index(shape, me), shape.homes[state.packets[packet, ORIGIN]]
    number, below = state.packets[packet, NUMBER], state.pairs.shape[1]
    if sender < shape.supers:
        bases, tops = state.outside[SEEN_BASE, mine], state.outside[SEEN_TOP, mine]
        if not window_add(state.outside_bits[SEEN, mine, sender], bases, tops, sender, number):
            run.at[FULL] = 1
        heads, ends = state.super_chains[HEAD, mine, sender], state.super_chains[END, mine, sender]
        held = woken(state, number, heads, ends, number % CHAINS)
    else:
        below = index(shape, sender) - shape.supers
        state.known[COUNTS, mine, below] = number
        held = woken(state, number, state.peer_chains[HEAD, mine], state.peer_chains[END, mine], below)
    while held:
        later = np.int64(state.held[held, NEXT])
        other, others_since = np.int64(state.held[held, PACKET]), state.held[held, SINCE]
        unhold(state, held)
        home = shape.homes[state.packets[other, ORIGIN]]
        file_outside(run, shape, state, me, home, other, others_since, below)
        held = later
    return packet, since


@njit_inner
def across_of_external(run: Any, shape: Any, state: Any, me: Any) -> Any:
    """The packet of `External.broadcast`."""
    mine, seq = index(shape, me), run.messages[me]
    packet = fresh_packet(run, state, ACROSS, me, seq, run.at[NOW])
    state.packets[packet, NUMBER], state.packets[packet, LAST], state.packets[packet, OTHER] = seq, 0, seq - 1
    state.known[COUNTS, mine, mine - shape.supers] = seq  # one's own are here
    pairs, named = state.pairs[packet], state.known[NAMED, mine]
    for place in range(len(pairs)):
        pairs[place] = named[place]
        named[place] = 0
    for place in range(shape.supers):
        ring, lows, highs = (
            state.outside_bits[NAMED_BITS, mine, place],
            state.outside[NAMED_LOW, mine],
            state.outside[NAMED_HIGH, mine],
        )
        set_tighten(ring, lows, highs, place)
        low, high = lows[place], highs[place]
        row = state.rows[packet, place]
        if not row_fits(low, high, row):
            run.at[FULL] = 1
            return packet
        row_of_set(ring, low, high, row)
        empty = high < low
        state.bounds[FIRST, packet, place], state.bounds[FINAL, packet, place] = (
            (0, -1) if empty else (low, high)
        )
        set_clear(ring, lows, highs, place)
    state.bounds[FIRST, packet, shape.supers], state.bounds[FINAL, packet, shape.supers] = 0, -1
    weigh(shape, state, packet)
    return packet


@njit_inline
def delivered_external(run: Any, shape: Any, state: Any, me: Any, packet: Any) -> Any:
    """`External.deliver`, once it is known what."""
    mine, sender = index(shape, me), shape.homes[state.packets[packet, ORIGIN]]
    pairs, named = state.pairs[packet], state.known[NAMED, mine]
    for place in range(len(pairs)):
        named[place] = 0 if named[place] == pairs[place] else named[place]
    lows, highs = state.outside[NAMED_LOW, mine], state.outside[NAMED_HIGH, mine]
    for place in range(shape.supers):
        first, final = state.bounds[FIRST, packet, place], state.bounds[FINAL, packet, place]
        ring = state.outside_bits[NAMED_BITS, mine, place]
        set_subtract(ring, lows[place], highs[place], first, final, state.rows[packet, place])
    if sender < shape.supers:
        ring = state.outside_bits[NAMED_BITS, mine, sender]
        set_remove(ring, lows, highs, sender, state.packets[packet, LAST])
        set_tighten(ring, lows, highs, sender)
        if not set_add(ring, lows, highs, sender, state.packets[packet, NUMBER]):
            run.at[FULL] = 1
    else:
        named[index(shape, sender) - shape.supers] = state.packets[packet, NUMBER]
