"""The twin of `Internal` in `protocols/freescale_roles.py`: internal peers, super peers' applications."""

from __future__ import annotations

from typing import Any

import numpy as np

from antecede.jit import njit_inline, njit_inner
from antecede.sim.kernels.freescale.packets import (
    count_control_bytes,
    free_held,
    hold,
    make_ready,
    new_packet,
    take_waiting,
)
from antecede.sim.kernels.freescale.state import (
    BASE,
    CAUSES,
    CHAINS,
    END,
    FINAL,
    FIRST,
    HAVE,
    HEAD,
    HIGH,
    LAST,
    LOW,
    NEXT,
    NUMBER,
    OTHER,
    PACKET,
    SINCE,
    TOP,
    UNSAID,
    UP,
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
def file_inside(world: Any, state: Any, me: Any, packet: Any, since: Any, below: Any) -> Any:
    """Under the highest number that is not here, and else under the same sender's last. All that it names
    from `below` on is here."""
    base, top = state.inside[BASE, me], state.inside[TOP, me]
    first, final = state.bounds[FIRST, packet, 0], min(state.bounds[FINAL, packet, 0], below - 1)
    number = row_missing(state.inside_bits[HAVE, me], base, top, first, final, state.rows[packet, 0])
    if number == 0 and not contains(state.inside_bits[HAVE, me], base, top, state.packets[packet, LAST]):
        number = state.packets[packet, LAST]
    if number:
        heads, ends = state.inside_chains[HEAD, me], state.inside_chains[END, me]
        hold(world, state, packet, since, number, heads, ends, number % CHAINS)
    else:
        make_ready(state, True, packet, since)


@njit_inline
def wake_inside(world: Any, state: Any, me: Any, number: Any) -> Any:
    held = take_waiting(
        state, number, state.inside_chains[HEAD, me], state.inside_chains[END, me], number % CHAINS
    )
    while held:
        later = np.int64(state.held[held, NEXT])
        packet, since = np.int64(state.held[held, PACKET]), state.held[held, SINCE]
        free_held(state, held)
        file_inside(world, state, me, packet, since, number)
        held = later


@njit_inline
def assign_number(world: Any, state: Any, me: Any, number: Any) -> Any:
    """`Internal.echo`."""
    if not add(state.inside_bits[HAVE, me], state.inside[BASE], state.inside[TOP], me, number):
        world.scalars[FULL] = 1
    wake_inside(world, state, me, number)


@njit_inner
def write_causes(world: Any, state: Any, me: Any, packet: Any) -> Any:
    """The causes of an internal peer's next message, as bits."""
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
def create_uplink(world: Any, params: Any, state: Any, me: Any) -> Any:
    """`Internal.send`."""
    packet = new_packet(world, state, UP, me, world.messages[me], world.scalars[NOW])
    write_causes(world, state, me, packet)
    state.packets[packet, OTHER] = state.inside[BASE, me]
    set_clear(state.inside_bits[CAUSES, me], state.inside[LOW], state.inside[HIGH], me)
    state.inside[UNSAID, me] = 0
    count_control_bytes(params, state, packet)
    return packet


@njit_inline
def deliver_inside(world: Any, state: Any, me: Any, packet: Any) -> Any:
    """`Internal.deliver`, once it is known what."""
    number = state.packets[packet, NUMBER]
    if not add(state.inside_bits[HAVE, me], state.inside[BASE], state.inside[TOP], me, number):
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
    state.inside[UNSAID, me] += 1
    wake_inside(world, state, me, number)
