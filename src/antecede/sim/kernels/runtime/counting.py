"""What event kernels count and show: the counterpart of `Meter`, and of how `World` calls observers."""

from __future__ import annotations

from typing import Any

from antecede.jit import njit_inline
from antecede.sim.kernels.contract import DELIVERED, RECEIVED, SENT
from antecede.sim.kernels.runtime.counter_rng import draw, extended, happens
from antecede.sim.kernels.runtime.world_state import (
    CONTROL,
    CONTROL_MAX,
    DELIVERIES,
    FULL,
    HELD,
    HOLD,
    LATENCY,
    LATENCY_MAX,
    MESSAGES,
    MESSAGES_LEFT,
    NOW,
    PAPER,
    PAPER_MAX,
    ROWS,
)


@njit_inline
def begin_broadcast(world: Any, peer: Any) -> Any:
    """Give a peer's next message its number; False if the peer is silent or the run has enough messages."""
    if world.scalars[MESSAGES_LEFT] == 0 or world.silent[peer]:
        return False
    world.scalars[MESSAGES_LEFT] -= 1
    world.messages[peer] += 1
    return True


@njit_inline
def record_send(world: Any, peer: Any, control: Any, paper: Any) -> Any:
    """A peer's last message was sent, with so many control bytes in its packet."""
    scalars = world.scalars
    scalars[MESSAGES] += 1
    scalars[CONTROL] += control
    scalars[CONTROL_MAX] = max(scalars[CONTROL_MAX], control)
    scalars[PAPER] += paper
    scalars[PAPER_MAX] = max(scalars[PAPER_MAX], paper)
    append_row(world, SENT, peer, peer, world.messages[peer], 0, control)


@njit_inline
def record_receive(world: Any, peer: Any, source: Any, origin: Any, seq: Any) -> Any:
    """A message has arrived at a peer, perhaps again."""
    append_row(world, RECEIVED, peer, origin, seq, source, 0)


@njit_inline
def record_delivery(
    world: Any, rules: Any, peer: Any, origin: Any, seq: Any, sent_at: Any, arrived_at: Any
) -> Any:
    """A message is delivered; True if the peer replies to it at once."""
    scalars = world.scalars
    now = scalars[NOW]
    scalars[DELIVERIES] += 1
    scalars[LATENCY] += now - sent_at
    scalars[LATENCY_MAX] = max(scalars[LATENCY_MAX], now - sent_at)
    if now > arrived_at:
        scalars[HELD] += 1
        scalars[HOLD] += now - arrived_at
    append_row(world, DELIVERED, peer, origin, seq, 0, 0)
    if rules.reply == 0.0 or now >= rules.until:
        return False
    replies = extended(extended(rules.reply_key, peer), origin)
    return happens(draw(replies, seq), rules.reply)


@njit_inline
def append_row(world: Any, kind: Any, peer: Any, origin: Any, seq: Any, source: Any, control: Any) -> Any:
    """Add an event for observers, if there are any."""
    scalars, rows = world.scalars, world.rows
    if len(rows) == 0:
        return
    row = scalars[ROWS]
    if row == len(rows):
        scalars[FULL] = 1
        return
    scalars[ROWS] += 1
    rows[row, 0], rows[row, 1], rows[row, 2], rows[row, 3] = kind, peer, origin, seq
    rows[row, 4], rows[row, 5], rows[row, 6] = scalars[NOW], source, control
