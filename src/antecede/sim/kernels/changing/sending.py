"""How the calm kernel sends packets over FIFO links, and shows events to observers."""

from __future__ import annotations

from typing import Any

from antecede.jit import njit_inline
from antecede.sim.kernels.changing.state import (
    ADDRESS,
    ADDRESS_BITS,
    ARRIVALS,
    IS_FULL,
    LINK_BYTES,
    LINK_LAST,
    LINK_SENT,
    NOW,
    NUMBER_BITS,
    PACKETS,
    QUARTER_LINK_BYTES,
    ROWS,
)
from antecede.sim.kernels.runtime import heap
from antecede.sim.kernels.runtime.counter_rng import delay_of, draw, extended


@njit_inline
def quarter(state: Any, rules: Any) -> Any:
    return min(3, state.scalars[NOW] * 4 // max(1, rules.until))


@njit_inline
def transmit(state: Any, rules: Any, me: Any, to: Any, item: Any, control: Any) -> Any:
    """Send a packet over one link, which is FIFO."""
    scalars, pairs = state.scalars, state.pairs
    source, address = state.members[me, ADDRESS], state.members[to, ADDRESS]
    number = pairs[LINK_SENT, me, to]
    pairs[LINK_SENT, me, to] += 1
    if number >= (1 << NUMBER_BITS) - 2:
        scalars[IS_FULL] = 1
    kind, one, two, three = rules.delay
    key = extended(extended(rules.link_key, source), address)
    time = max(scalars[NOW] + delay_of(kind, one, two, three, draw(key, number)), pairs[LINK_LAST, me, to])
    pairs[LINK_LAST, me, to] = time
    order = (address << ADDRESS_BITS | source) << NUMBER_BITS | number
    heap.push(state.arrivals, 0, scalars[ARRIVALS], time, order, item)
    scalars[ARRIVALS] += 1
    scalars[PACKETS] += 1
    scalars[LINK_BYTES] += control
    state.quarters[quarter(state, rules), QUARTER_LINK_BYTES] += control


@njit_inline
def append_row(state: Any, kind: Any, address: Any, origin: Any, seq: Any, source: Any, control: Any) -> Any:
    """Add an event for observers, if there are any."""
    if len(state.rows) == 0:
        return
    row = state.rows[state.scalars[ROWS]]
    state.scalars[ROWS] += 1
    row[0], row[1], row[2], row[3] = kind, address, origin, seq
    row[4], row[5], row[6] = state.scalars[NOW], source, control
