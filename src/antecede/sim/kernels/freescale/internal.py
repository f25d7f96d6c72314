"""The twin of `Internal` in `protocols/freescale_roles.py`: internal peers, super peers' applications."""

from __future__ import annotations

from typing import Any

import numpy as np

from antecede.jit import njit_inline, njit_inner
from antecede.sim.kernels.freescale.packets import fresh_packet, hold, make_ready, unhold, weigh, woken
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
)
from antecede.sim.kernels.runtime.events import FULL, NOW


@njit_inline
def file_inside(run: Any, state: Any, me: Any, packet: Any, since: Any, below: Any) -> Any:
    """Under the highest number that is not here, and else under the same sender's last. All that it names
    from `below` on is here."""
    base, top = state.inside[BASE, me], state.inside[TOP, me]
    first, final = state.bounds[FIRST, packet, 0], min(state.bounds[FINAL, packet, 0], below - 1)
    number = row_lacking(state.inside_bits[HAVE, me], base, top, first, final, state.rows[packet, 0])
    if number == 0 and not window_has(state.inside_bits[HAVE, me], base, top, state.packets[packet, LAST]):
        number = state.packets[packet, LAST]
    if number:
        heads, ends = state.inside_chains[HEAD, me], state.inside_chains[END, me]
        hold(run, state, packet, since, number, heads, ends, number % CHAINS)
    else:
        make_ready(state, True, packet, since)


@njit_inline
def wake_inside(run: Any, state: Any, me: Any, number: Any) -> Any:
    held = woken(state, number, state.inside_chains[HEAD, me], state.inside_chains[END, me], number % CHAINS)
    while held:
        later = np.int64(state.held[held, NEXT])
        packet, since = np.int64(state.held[held, PACKET]), state.held[held, SINCE]
        unhold(state, held)
        file_inside(run, state, me, packet, since, number)
        held = later


@njit_inline
def echo(run: Any, state: Any, me: Any, number: Any) -> Any:
    """`Internal.echo`."""
    if not window_add(state.inside_bits[HAVE, me], state.inside[BASE], state.inside[TOP], me, number):
        run.at[FULL] = 1
    wake_inside(run, state, me, number)


@njit_inner
def causes_into(run: Any, state: Any, me: Any, packet: Any) -> Any:
    """The causes of an internal peer's next message, as bits."""
    set_tighten(state.inside_bits[CAUSES, me], state.inside[LOW], state.inside[HIGH], me)
    low, high = state.inside[LOW, me], state.inside[HIGH, me]
    row = state.rows[packet, 0]
    if not row_fits(low, high, row):
        run.at[FULL] = 1
        return
    row_of_set(state.inside_bits[CAUSES, me], low, high, row)
    empty = high < low
    state.bounds[FIRST, packet, 0], state.bounds[FINAL, packet, 0] = (0, -1) if empty else (low, high)


@njit_inner
def up(run: Any, shape: Any, state: Any, me: Any) -> Any:
    """`Internal.send`."""
    packet = fresh_packet(run, state, UP, me, run.messages[me], run.at[NOW])
    causes_into(run, state, me, packet)
    state.packets[packet, OTHER] = state.inside[BASE, me]
    set_clear(state.inside_bits[CAUSES, me], state.inside[LOW], state.inside[HIGH], me)
    state.inside[UNSAID, me] = 0
    weigh(shape, state, packet)
    return packet


@njit_inline
def delivered_inside(run: Any, state: Any, me: Any, packet: Any) -> Any:
    """`Internal.deliver`, once it is known what."""
    number = state.packets[packet, NUMBER]
    if not window_add(state.inside_bits[HAVE, me], state.inside[BASE], state.inside[TOP], me, number):
        run.at[FULL] = 1
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
        run.at[FULL] = 1
    state.inside[UNSAID, me] += 1
    wake_inside(run, state, me, number)
