"""The calendar queue of arrivals (R. Brown, 1988).

A ring of buckets of equal width, each a linked list of arrivals, and a heap of the arrivals whose bucket has
come. An arrival further ahead than the ring is long stays in its bucket for another turn. Planning an
arrival is O(1), taking one O(log of a bucket); the width is such that a bucket holds about eight.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from antecede.jit import njit_inline
from antecede.sim.kernels.runtime import heap
from antecede.sim.kernels.runtime.world_state import (
    AFTER,
    ALARMS,
    BUCKET,
    DUE,
    FREE,
    FULL,
    NUMBER_BITS,
    ORDER,
    PEER_BITS,
    PLANNED,
    WHAT,
    WHEN,
)

_ARRIVALS_PER_BUCKET = 8
_MAX_BUCKETS = 1 << 20
_FOREVER = 1 << 62


def dimensions(rate: float, longest: int) -> tuple[int, int]:
    """Width of a bucket in bits of nanoseconds, and how many buckets there are.

    `rate` is about how many arrivals are planned in a nanosecond, `longest` how far ahead.
    """
    bits = 0
    while 1 << bits + 1 < _ARRIVALS_PER_BUCKET / rate or (longest >> bits) > _MAX_BUCKETS:
        bits += 1
    buckets = 1
    while buckets < (longest >> bits) + 3:
        buckets *= 2
    return bits, buckets


@njit_inline
def arrival_order(source: Any, to: Any, number: Any) -> Any:
    """What orders the arrivals of one instant: destination, source, number on the link."""
    return (np.int64(to) << PEER_BITS | source) << NUMBER_BITS | number


@njit_inline
def plan_packet(world: Any, rules: Any, time: Any, source: Any, to: Any, number: Any, packet: Any) -> Any:
    """Plan the arrival of a packet."""
    plan_arrival(world, rules, time, arrival_order(source, to, number), packet)


@njit_inline
def plan_arrival(world: Any, rules: Any, time: Any, order: Any, what: Any) -> Any:
    """Plan something that happens at `time`."""
    scalars, heads = world.scalars, world.bucket_heads
    if scalars[FREE] == len(world.free_arrivals):  # the stack is filled as it is first used
        place = scalars[PLANNED]
        if place == len(world.arrivals):
            scalars[FULL] = 1
            return
        scalars[PLANNED] += 1
    else:
        place = np.int64(world.free_arrivals[scalars[FREE]])
        scalars[FREE] += 1
    arrival = world.arrivals[place]
    arrival[WHEN], arrival[ORDER], arrival[WHAT] = time, order, what
    bucket = time >> rules.bucket_width
    if bucket <= scalars[BUCKET]:
        make_due(world, place)
    else:
        slot = bucket & len(heads) - 1
        arrival[AFTER] = heads[slot]
        heads[slot] = place


@njit_inline
def make_due(world: Any, place: Any) -> Any:
    """Put an arrival whose bucket has come onto the heap."""
    scalars, arrival = world.scalars, world.arrivals[place]
    heap.push(world.due, 0, scalars[DUE], arrival[WHEN], arrival[ORDER], place)
    scalars[DUE] += 1


@njit_inline
def in_flight(world: Any) -> Any:
    """How many arrivals are planned."""
    return world.scalars[PLANNED] - (len(world.free_arrivals) - world.scalars[FREE])


@njit_inline
def open_buckets(world: Any, rules: Any) -> Any:
    """Go on to the next bucket that has arrivals, but not beyond the next alarm: what a peer then does may
    come before what is planned now."""
    scalars, heads = world.scalars, world.bucket_heads
    limit = world.alarms[0, heap.TIME] >> rules.bucket_width if scalars[ALARMS] else np.int64(_FOREVER)
    while scalars[DUE] == 0 and scalars[BUCKET] < limit:
        scalars[BUCKET] += 1
        slot = scalars[BUCKET] & len(heads) - 1
        place = np.int64(heads[slot])
        heads[slot] = -1
        while place >= 0:
            after = world.arrivals[place, AFTER]
            if (
                world.arrivals[place, WHEN] >> rules.bucket_width > scalars[BUCKET]
            ):  # a later turn of the ring
                world.arrivals[place, AFTER] = heads[slot]
                heads[slot] = place
            else:
                make_due(world, place)
            place = after


@njit_inline
def take_due(world: Any) -> Any:
    """Remove the first arrival from the heap, which the caller has read."""
    scalars = world.scalars
    place = world.due[0, heap.ITEM]
    heap.pop(world.due, 0, scalars[DUE])
    scalars[DUE] -= 1
    scalars[FREE] -= 1
    world.free_arrivals[scalars[FREE]] = place
