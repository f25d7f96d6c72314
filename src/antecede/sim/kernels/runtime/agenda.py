"""What happens next in an event kernel: arrivals from the calendar queue, and alarms.

Alarms are what peers do by themselves: sends of the workload, wakes that a protocol asked for, samples of
probes, changes of links. The counterpart of `World.step` and of how `World` plans.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from antecede.jit import njit_hot, njit_inline
from antecede.sim.kernels.runtime import heap
from antecede.sim.kernels.runtime.calendar import in_flight, open_buckets, plan_packet, take_due
from antecede.sim.kernels.runtime.counter_rng import extended
from antecede.sim.kernels.runtime.send_schedule import next_send
from antecede.sim.kernels.runtime.world_state import (
    ALARMS,
    ARRIVAL,
    BUCKET,
    DUE,
    FREE,
    FULL,
    HOP,
    NOTHING,
    NOW,
    NUMBER_BITS,
    PEER_BITS,
    ROWS,
    SAMPLE,
    SAMPLES,
    SEND,
    STOPPED,
    WAKE,
    WHAT,
)

_ROW_MARGIN = 1 << 18
"""Rows that one event may add: compiled code stops in time for observers to be shown them first."""


@njit_hot
def start(world: Any, rules: Any, active: Any) -> Any:
    """Plan the first sample, and the first send of every active peer."""
    world.scalars[FREE] = len(world.free_arrivals)
    for place in range(len(world.samples[:1])):
        set_alarm(world, world.samples[place], SAMPLE, 0)
    for peer in range(len(world.sends_planned)):
        if active[peer]:
            plan_send(world, rules, peer, 0)


@njit_inline
def set_alarm(world: Any, time: Any, kind: Any, peer: Any) -> Any:
    """Plan an action of a peer."""
    scalars = world.scalars
    if scalars[ALARMS] == len(world.alarms):
        scalars[FULL] = 1
        return
    heap.push(world.alarms, 0, scalars[ALARMS], time, np.int64(kind) << PEER_BITS | peer, 0)
    scalars[ALARMS] += 1


@njit_inline
def plan_send(world: Any, rules: Any, peer: Any, previous: Any) -> Any:
    """Plan a peer's next send: the twin of `World._plan_send`."""
    phase, late = extended(rules.phase, peer), extended(rules.late, peer)
    time = next_send(rules.workload, phase, late, world.sends_planned[peer], previous)
    if time < rules.until:
        set_alarm(world, time, SEND, peer)


@njit_inline
def plan_next_send(world: Any, rules: Any, peer: Any) -> Any:
    """A peer has sent, or would have if not silent: plan its next send."""
    world.sends_planned[peer] += 1
    plan_send(world, rules, peer, world.scalars[NOW])


@njit_inline
def wake_at(world: Any, rules: Any, peer: Any, clock: Any) -> Any:
    """Wake a peer when its own clock reads `clock`."""
    time = max(clock - world.ahead[peer], world.scalars[NOW])
    if time <= rules.last_wake:
        set_alarm(world, time, WAKE, peer)


@njit_inline
def wake_by_calendar(world: Any, rules: Any, peer: Any, clock: Any) -> Any:
    """The same for peers that are woken as often as packets arrive: planned in the calendar, as an arrival at
    a peer above all others, so that it comes after the arrivals of its instant."""
    time = max(clock - world.ahead[peer], world.scalars[NOW])
    if time <= rules.last_wake:
        plan_packet(world, rules, time, 0, 1 << PEER_BITS | peer, 0, 0)


@njit_inline
def must_stop(world: Any) -> Any:
    """Whether rows have to be shown before the next event, or an array is full."""
    rows = len(world.rows)
    return world.scalars[FULL] or (world.scalars[ROWS] > rows - _ROW_MARGIN and rows)


@njit_inline
def next_event(world: Any, rules: Any) -> Any:
    """Take the next event: its kind, the peer, and for an arrival its source and the packet; for a hop, its
    ordering key in place of its source.

    `STOPPED` if compiled code has to return first (`must_stop`), `NOTHING` at the end of the run.
    """
    scalars = world.scalars
    if must_stop(world):
        return STOPPED, 0, 0, 0
    if in_flight(world) > 0:
        open_buckets(world, rules)
    if scalars[DUE]:
        time, order = world.due[0, heap.TIME], world.due[0, heap.ORDER]
        if scalars[ALARMS] == 0 or time <= world.alarms[0, heap.TIME]:
            packet = world.arrivals[world.due[0, heap.ITEM], WHAT]
            take_due(world)
            scalars[NOW] = time
            if order < 0:
                return HOP, 0, order, packet
            ends = order >> NUMBER_BITS
            peer = ends >> PEER_BITS
            if peer >> PEER_BITS:
                return WAKE, peer & (1 << PEER_BITS) - 1, 0, 0
            return ARRIVAL, peer, ends & (1 << PEER_BITS) - 1, packet
    if scalars[ALARMS] == 0:
        return NOTHING, 0, 0, 0
    return next_alarm(world, rules)


@njit_inline
def next_alarm(world: Any, rules: Any) -> Any:
    """Take the first alarm, as `next_event` returns it."""
    scalars = world.scalars
    scalars[NOW] = world.alarms[0, heap.TIME]
    if in_flight(world) == 0:
        scalars[BUCKET] = max(scalars[BUCKET], (scalars[NOW] >> rules.bucket_width) - 1)
    key = world.alarms[0, heap.ORDER]
    heap.pop(world.alarms, 0, scalars[ALARMS])
    scalars[ALARMS] -= 1
    kind, peer = key >> PEER_BITS, key & (1 << PEER_BITS) - 1
    if kind == SAMPLE:
        scalars[SAMPLES] += 1
        if scalars[SAMPLES] < len(world.samples):
            set_alarm(world, world.samples[scalars[SAMPLES]], SAMPLE, 0)
    return kind, peer, 0, 0
