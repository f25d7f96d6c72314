"""Packets of the compiled `freescale`, their bytes, and chains of messages that are held.

Each is under the one thing that it waits for, in the order in which `Holdback` has them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from antecede.jit import njit_inline, njit_inner
from antecede.sim.kernels.freescale.state import (
    ACK,
    AFTER,
    CONTROL,
    COPIES,
    DOWN,
    ECHO,
    FINAL,
    FIRST,
    FREE,
    FREE_HOLDS,
    HEAD_IN,
    HEAD_OUT,
    HOLDS,
    KEY,
    KIND,
    LAST,
    NEXT,
    NUMBER,
    ORIGIN,
    OTHER,
    PACKET,
    PAPER,
    SENT_AT,
    SEQ,
    SINCE,
    SLOTS,
    STUCK,
    TAIL_IN,
    TAIL_OUT,
    UP,
)
from antecede.sim.kernels.runtime.links import transmit
from antecede.sim.kernels.runtime.msgpack_sizes import head_bytes, int_bytes, payload_head
from antecede.sim.kernels.runtime.world_state import FULL, NOW


@njit_inline
def new_packet(world: Any, state: Any, kind: Any, origin: Any, seq: Any, sent_at: Any) -> Any:
    scalars = state.scalars
    if scalars[FREE] < len(state.free):
        packet = np.int64(state.free[scalars[FREE]])
        scalars[FREE] += 1
    else:
        packet = scalars[SLOTS]
        if packet == len(state.free):
            world.scalars[FULL] = 1
            return np.int64(0)
        scalars[SLOTS] += 1
    state.packets[packet, KIND], state.packets[packet, ORIGIN], state.packets[packet, SEQ] = kind, origin, seq
    state.packets[packet, SENT_AT], state.packets[packet, COPIES] = sent_at, 0
    return packet


@njit_inline
def release(state: Any, packet: Any) -> Any:
    """One copy fewer; of none, the place is free."""
    state.packets[packet, COPIES] -= 1
    if state.packets[packet, COPIES] <= 0:
        state.scalars[FREE] -= 1
        state.free[state.scalars[FREE]] = packet


@njit_inline
def external_index(params: Any, peer: Any) -> Any:
    """The place of a member of the external group among them."""
    return peer if peer < params.supers else peer - params.behind


@njit_inline
def bits_bytes(first: Any, final: Any) -> Any:
    """`Bits` on the wire."""
    if final < first:
        return 4
    length = final - first + 8 >> 3
    return 1 + int_bytes(first) + payload_head(length) + length


@njit_inline
def span_bytes(first: Any, final: Any) -> Any:
    return 0 if final < first else final - first + 8 >> 3


@njit_inner
def count_control_bytes(params: Any, state: Any, packet: Any) -> Any:
    """Control bytes, on the wire and as the paper counts: the twin of `paper_bytes` and of the encoding."""
    kind, first, final = state.packets[packet, KIND], state.bounds[FIRST, packet], state.bounds[FINAL, packet]
    if kind == ECHO:
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
    if kind == UP:
        state.packets[packet, CONTROL] = wire + ours + int_bytes(state.packets[packet, OTHER])
        state.packets[packet, PAPER] = span_bytes(first[0], final[0])
        return
    ours += int_bytes(state.packets[packet, NUMBER]) + int_bytes(state.packets[packet, LAST])
    if kind == DOWN:
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
def count_costs(world: Any, params: Any, state: Any, packet: Any) -> Any:
    """What the probe counts of a packet that is sent, to however many."""
    if params.probed and world.scalars[NOW] >= params.since:
        sums = state.costs[state.packets[packet, KIND]]
        sums[0] += 1
        sums[1] += state.packets[packet, PAPER]
        sums[2] += state.packets[packet, CONTROL]


@njit_inline
def send(world: Any, rules: Any, params: Any, state: Any, source: Any, to: Any, packet: Any) -> Any:
    """A copy of a packet, to one peer."""
    control = state.packets[packet, CONTROL]
    state.packets[packet, COPIES] += transmit(
        world, rules, source * params.peers + to, source, to, packet, control
    )


@njit_inline
def hold(world: Any, state: Any, packet: Any, since: Any, key: Any, heads: Any, ends: Any, place: Any) -> Any:
    """Put a message at the end of a chain."""
    scalars = state.scalars
    if scalars[FREE_HOLDS] < len(state.held_free):
        held = np.int64(state.held_free[scalars[FREE_HOLDS]])
        scalars[FREE_HOLDS] += 1
    else:
        scalars[HOLDS] += 1
        held = scalars[HOLDS]
        if held >= len(state.held_free):
            world.scalars[FULL] = 1
            return
    scalars[STUCK] += 1
    state.held[held, PACKET], state.held[held, SINCE] = packet, since
    state.held[held, KEY], state.held[held, NEXT] = key, 0
    if heads[place]:
        state.held[ends[place], NEXT] = held
    else:
        heads[place] = held
    ends[place] = held


@njit_inline
def take_waiting(state: Any, key: Any, heads: Any, ends: Any, place: Any) -> Any:
    """Take those that wait for `key` out of a chain; the first of a chain of them, in their order."""
    first = last = before = np.int64(0)
    held = np.int64(heads[place])
    while held:
        later = np.int64(state.held[held, NEXT])
        if state.held[held, KEY] == key:
            if before:
                state.held[before, NEXT] = later
            else:
                heads[place] = later
            if first:
                state.held[last, NEXT] = held
            else:
                first = held
            state.held[held, NEXT] = 0
            last = held
        else:
            before = held
        held = later
    ends[place] = before
    return first


@njit_inline
def free_held(state: Any, held: Any) -> Any:
    state.scalars[STUCK] -= 1
    state.scalars[FREE_HOLDS] -= 1
    state.held_free[state.scalars[FREE_HOLDS]] = held


@njit_inline
def make_ready(state: Any, inside: Any, packet: Any, since: Any) -> Any:
    tail = TAIL_IN if inside else TAIL_OUT
    place = state.scalars[tail]
    state.scalars[tail] += 1
    queue = 1 if inside else 0
    state.ready[queue, place, 0], state.ready[queue, place, 1] = packet, since


@njit_inline
def next_ready(state: Any, inside: Any) -> Any:
    """The next that is ready, and since when it is here; -1 if there is none."""
    head, tail = (HEAD_IN, TAIL_IN) if inside else (HEAD_OUT, TAIL_OUT)
    queue, place = 1 if inside else 0, state.scalars[head]
    if place == state.scalars[tail]:
        state.scalars[head] = state.scalars[tail] = 0
        return np.int64(-1), np.int64(0)
    state.scalars[head] += 1
    return np.int64(state.ready[queue, place, 0]), state.ready[queue, place, 1]
