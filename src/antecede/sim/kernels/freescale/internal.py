"""The twin of `protocols/freescale/internal.py`: internal peers, and the applications of super peers."""

from __future__ import annotations

from typing import Any

import numpy as np

from antecede.jit import njit_inline, njit_inner
from antecede.sim.kernels.freescale.packets import (
    count_control_bytes,
    free_held,
    hold_unmet,
    make_ready,
    new_packet,
    take_waiting,
)
from antecede.sim.kernels.freescale.state import (
    ARRIVED,
    BASE,
    CAUSES,
    CHAINS,
    DELIVERED,
    END,
    FINAL,
    FIRST,
    HEAD,
    HIGH,
    LAST,
    LOW,
    NEXT,
    NUMBER,
    OTHER,
    PACKET,
    TOP,
    UNREPORTED,
    UPLINK,
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
from antecede.sim.kernels.runtime.bit_window import add, contains
from antecede.sim.kernels.runtime.world_state import FULL, NOW


@njit_inline
def accept_inside(world: Any, state: Any, me: Any, packet: Any, arrived: Any, below: Any) -> Any:
    """The twin of `InternalPeer.accept`: hold a packet under the highest number that is not delivered, else
    under its sender's previous message; or make it ready. All that it names from `below` on is delivered."""
    base, top = state.inside[BASE, me], state.inside[TOP, me]
    first, final = state.bounds[FIRST, packet, 0], min(state.bounds[FINAL, packet, 0], below - 1)
    number = row_missing(state.inside_bits[DELIVERED, me], base, top, first, final, state.rows[packet, 0])
    if number == 0 and not contains(state.inside_bits[DELIVERED, me], base, top, state.packets[packet, LAST]):
        number = state.packets[packet, LAST]
    if number:
        heads, ends = state.inside_chains[HEAD, me], state.inside_chains[END, me]
        hold_unmet(world, state, packet, arrived, number, heads, ends, number % CHAINS)
    else:
        make_ready(state, True, packet, arrived)


@njit_inline
def release_inside(world: Any, state: Any, me: Any, number: Any) -> Any:
    held = take_waiting(
        state, number, state.inside_chains[HEAD, me], state.inside_chains[END, me], number % CHAINS
    )
    while held:
        following = np.int64(state.held[held, NEXT])
        packet, arrived = np.int64(state.held[held, PACKET]), state.held[held, ARRIVED]
        free_held(state, held)
        accept_inside(world, state, me, packet, arrived, number)
        held = following


@njit_inline
def assign_number(world: Any, state: Any, me: Any, number: Any) -> Any:
    """The twin of `InternalPeer.assign_number`."""
    if not add(state.inside_bits[DELIVERED, me], state.inside[BASE], state.inside[TOP], me, number):
        world.scalars[FULL] = 1
    release_inside(world, state, me, number)


@njit_inner
def write_causes(world: Any, state: Any, me: Any, packet: Any) -> Any:
    """Write the causes of an internal peer's next message into a packet."""
    set_tighten(state.inside_bits[CAUSES, me], state.inside[LOW], state.inside[HIGH], me)
    low, high = state.inside[LOW, me], state.inside[HIGH, me]
    row = state.rows[packet, 0]
    if not row_fits(low, high, row):
        world.scalars[FULL] = 1
        return
    write_row(state.inside_bits[CAUSES, me], low, high, row)
    empty = high < low
    state.bounds[FIRST, packet, 0], state.bounds[FINAL, packet, 0] = (0, -1) if empty else (low, high)


@njit_inner
def create_packet(world: Any, params: Any, state: Any, me: Any) -> Any:
    """The twin of `InternalPeer.create_packet`."""
    packet = new_packet(world, state, UPLINK, me, world.messages[me], world.scalars[NOW])
    write_causes(world, state, me, packet)
    state.packets[packet, OTHER] = state.inside[BASE, me]
    set_clear(state.inside_bits[CAUSES, me], state.inside[LOW], state.inside[HIGH], me)
    state.inside[UNREPORTED, me] = 0
    count_control_bytes(params, state, packet)
    return packet


@njit_inline
def deliver_inside(world: Any, state: Any, me: Any, packet: Any) -> Any:
    """The twin of `InternalPeer.deliver`, of a given packet."""
    number = state.packets[packet, NUMBER]
    if not add(state.inside_bits[DELIVERED, me], state.inside[BASE], state.inside[TOP], me, number):
        world.scalars[FULL] = 1
    first, final = state.bounds[FIRST, packet, 0], state.bounds[FINAL, packet, 0]
    set_subtract(
        state.inside_bits[CAUSES, me],
        state.inside[LOW, me],
        state.inside[HIGH, me],
        first,
        final,
        state.rows[packet, 0],
    )
    set_remove(
        state.inside_bits[CAUSES, me], state.inside[LOW], state.inside[HIGH], me, state.packets[packet, LAST]
    )
    if state.inside[HIGH, me] - state.inside[LOW, me] > 0 and number - state.inside[LOW, me] >= 64 * (
        state.inside_bits.shape[2] - 2
    ):
        set_tighten(state.inside_bits[CAUSES, me], state.inside[LOW], state.inside[HIGH], me)
    if not set_add(state.inside_bits[CAUSES, me], state.inside[LOW], state.inside[HIGH], me, number):
        world.scalars[FULL] = 1
    state.inside[UNREPORTED, me] += 1
    release_inside(world, state, me, number)
