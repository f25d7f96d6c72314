"""Packets of the `freescale` kernel, their sizes, and lists of held messages.

A message is held under the one number that it waits for, in the order of `HoldBackQueue`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from antecede.jit import njit_inline, njit_inner
from antecede.sim.kernels.freescale.state import (
    ACK,
    AFTER,
    ARRIVED,
    ASSIGNMENT,
    CONTROL,
    COPIES,
    DOWNLINK,
    FINAL,
    FIRST,
    HELD,
    HELD_FREE,
    HELD_USED,
    INSIDE_HEAD,
    INSIDE_TAIL,
    KEY,
    KIND,
    LAST,
    NEXT,
    NUMBER,
    ORIGIN,
    OTHER,
    OUTSIDE_HEAD,
    OUTSIDE_TAIL,
    PACKET,
    PACKETS_FREE,
    PACKETS_USED,
    PAPER,
    SENT_AT,
    SEQ,
    UPLINK,
)
from antecede.sim.kernels.runtime.links import transmit
from antecede.sim.kernels.runtime.msgpack_sizes import head_bytes, int_bytes, payload_head
from antecede.sim.kernels.runtime.world_state import FULL, NOW


@njit_inline
def new_packet(world: Any, state: Any, kind: Any, origin: Any, seq: Any, sent_at: Any) -> Any:
    scalars = state.scalars
    if scalars[PACKETS_FREE] < len(state.free):
        packet = np.int64(state.free[scalars[PACKETS_FREE]])
        scalars[PACKETS_FREE] += 1
    else:
        packet = scalars[PACKETS_USED]
        if packet == len(state.free):
            world.scalars[FULL] = 1
            return np.int64(0)
        scalars[PACKETS_USED] += 1
    state.packets[packet, KIND], state.packets[packet, ORIGIN], state.packets[packet, SEQ] = kind, origin, seq
    state.packets[packet, SENT_AT], state.packets[packet, COPIES] = sent_at, 0
    return packet


@njit_inline
def release(state: Any, packet: Any) -> Any:
    """Release one copy; a packet without copies is freed."""
    state.packets[packet, COPIES] -= 1
    if state.packets[packet, COPIES] <= 0:
        state.scalars[PACKETS_FREE] -= 1
        state.free[state.scalars[PACKETS_FREE]] = packet


@njit_inline
def external_index(params: Any, peer: Any) -> Any:
    """The index of a peer among the members of the external group."""
    return peer if peer < params.supers else peer - params.behind


@njit_inline
def bits_bytes(first: Any, final: Any) -> Any:
    """Bytes of an `OffsetBitmap` on the wire."""
    if final < first:
        return 4
    length = final - first + 8 >> 3
    return 1 + int_bytes(first) + payload_head(length) + length


@njit_inline
def span_bytes(first: Any, final: Any) -> Any:
    return 0 if final < first else final - first + 8 >> 3


@njit_inner
def count_control_bytes(params: Any, state: Any, packet: Any) -> Any:
    """Set a packet's control bytes, on the wire and as the paper counts."""
    kind, first, final = state.packets[packet, KIND], state.bounds[FIRST, packet], state.bounds[FINAL, packet]
    if kind == ASSIGNMENT:
        state.packets[packet, CONTROL] = (
            2 + int_bytes(state.packets[packet, SEQ]) + int_bytes(state.packets[packet, NUMBER])
        )
        state.packets[packet, PAPER] = 0
        return
    wire = 2 + bits_bytes(first[0], final[0])
    if kind == ACK:
        state.packets[packet, CONTROL] = (
            wire + int_bytes(state.packets[packet, AFTER]) + int_bytes(state.packets[packet, OTHER])
        )
        state.packets[packet, PAPER] = 0
        return
    ours = params.head + int_bytes(state.packets[packet, ORIGIN]) + int_bytes(state.packets[packet, SEQ])
    if kind == UPLINK:
        state.packets[packet, CONTROL] = wire + ours + int_bytes(state.packets[packet, OTHER])
        state.packets[packet, PAPER] = span_bytes(first[0], final[0])
        return
    ours += int_bytes(state.packets[packet, NUMBER]) + int_bytes(state.packets[packet, LAST])
    if kind == DOWNLINK:
        state.packets[packet, CONTROL] = wire + ours
        state.packets[packet, PAPER] = span_bytes(first[0], final[0])
        return
    wire = 2 + ours + int_bytes(state.packets[packet, OTHER])
    named, counted, start = 0, 0, params.supers + params.behind
    pairs = state.pairs[packet]
    for place in range(len(pairs)):
        if pairs[place]:
            named += 1
            wire += int_bytes(start + place) + int_bytes(pairs[place])
    wire += head_bytes(named)
    counted, named = 8 * named, 0
    for place in range(params.supers):
        if first[place] <= final[place]:
            named += 1
            wire += int_bytes(place) + bits_bytes(first[place], final[place])
            counted += 4 + span_bytes(first[place], final[place])
    translated = params.supers
    wire += head_bytes(named) + bits_bytes(first[translated], final[translated])
    state.packets[packet, CONTROL] = wire
    state.packets[packet, PAPER] = counted + span_bytes(first[translated], final[translated])


@njit_inline
def count_costs(world: Any, params: Any, state: Any, packet: Any, me: Any) -> Any:
    """Count a packet of `me` for the probe `costs`, to however many peers it goes."""
    with_last = np.int64(0)
    if params.probed and state.packets[packet, KIND] == DOWNLINK:
        with_last = bytes_with_last(params, state, packet, me)
        state.last_down[me, state.packets[packet, ORIGIN]] = state.packets[packet, NUMBER]
    if params.probed and world.scalars[NOW] >= params.measured_from:
        sums = state.costs[state.packets[packet, KIND]]
        sums[0] += 1
        sums[1] += state.packets[packet, PAPER]
        sums[2] += state.packets[packet, CONTROL]
        sums[3] += with_last


@njit_inline
def bytes_with_last(params: Any, state: Any, packet: Any, me: Any) -> Any:
    """The twin of `Freescale.paper_bytes_with_last`."""
    first, final = state.bounds[FIRST, packet, 0], state.bounds[FINAL, packet, 0]
    origin = state.packets[packet, ORIGIN]
    last = state.last_down[me, origin]
    if last == 0 or origin < params.supers or params.homes[origin] != origin:
        return state.packets[packet, PAPER]
    if final < first:
        return np.int64(1)
    return span_bytes(min(first, last), max(final, last))


@njit_inline
def send(world: Any, rules: Any, params: Any, state: Any, source: Any, to: Any, packet: Any) -> Any:
    """Send a copy of a packet to one peer."""
    control = state.packets[packet, CONTROL]
    state.packets[packet, COPIES] += transmit(
        world, rules, source * params.peers + to, source, to, packet, control
    )


@njit_inline
def hold_unmet(
    world: Any, state: Any, packet: Any, arrived: Any, key: Any, heads: Any, ends: Any, place: Any
) -> Any:
    """The twin of `HoldBackQueue.hold_unmet`: append a message to a list of held messages."""
    scalars = state.scalars
    if scalars[HELD_FREE] < len(state.held_free):
        held = np.int64(state.held_free[scalars[HELD_FREE]])
        scalars[HELD_FREE] += 1
    else:
        scalars[HELD_USED] += 1
        held = scalars[HELD_USED]
        if held >= len(state.held_free):
            world.scalars[FULL] = 1
            return
    scalars[HELD] += 1
    state.held[held, PACKET], state.held[held, ARRIVED] = packet, arrived
    state.held[held, KEY], state.held[held, NEXT] = key, 0
    if heads[place]:
        state.held[ends[place], NEXT] = held
    else:
        heads[place] = held
    ends[place] = held


@njit_inline
def take_waiting(state: Any, key: Any, heads: Any, ends: Any, place: Any) -> Any:
    """Take the messages that wait for `key` out of a list: the first of a list of them, in their order."""
    first = last = before = np.int64(0)
    held = np.int64(heads[place])
    while held:
        following = np.int64(state.held[held, NEXT])
        if state.held[held, KEY] == key:
            if before:
                state.held[before, NEXT] = following
            else:
                heads[place] = following
            if first:
                state.held[last, NEXT] = held
            else:
                first = held
            state.held[held, NEXT] = 0
            last = held
        else:
            before = held
        held = following
    ends[place] = before
    return first


@njit_inline
def free_held(state: Any, held: Any) -> Any:
    state.scalars[HELD] -= 1
    state.scalars[HELD_FREE] -= 1
    state.held_free[state.scalars[HELD_FREE]] = held


@njit_inline
def make_ready(state: Any, inside: Any, packet: Any, arrived: Any) -> Any:
    tail = INSIDE_TAIL if inside else OUTSIDE_TAIL
    place = state.scalars[tail]
    state.scalars[tail] += 1
    queue = 1 if inside else 0
    state.ready[queue, place, 0], state.ready[queue, place, 1] = packet, arrived


@njit_inline
def next_ready(state: Any, inside: Any) -> Any:
    """The next packet that is ready, and when it arrived; -1 if there is none."""
    head, tail = (INSIDE_HEAD, INSIDE_TAIL) if inside else (OUTSIDE_HEAD, OUTSIDE_TAIL)
    queue, place = 1 if inside else 0, state.scalars[head]
    if place == state.scalars[tail]:
        state.scalars[head] = state.scalars[tail] = 0
        return np.int64(-1), np.int64(0)
    state.scalars[head] += 1
    return np.int64(state.ready[queue, place, 0]), state.ready[queue, place, 1]
