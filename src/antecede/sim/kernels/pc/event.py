"""The event kernel of `pc`, except newcomers, which no scenario has.

Messages are flooded as in `flooding`; links that change are in `links`. Packets in flight on a link that
closes stay in the calendar and are ignored when they arrive. Memory is that of flooding; and for each pair of
a peer and a peer that ever opens a link 16 bytes, and bits for as many pings as are told apart.
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from antecede.jit import njit_hot, njit_inline, njit_inner
from antecede.protocols.pc import OverlayLayout, Pc
from antecede.sim.kernels.contract import ObserverFeed, Progress, Unsupported
from antecede.sim.kernels.flooding import event as flooding
from antecede.sim.kernels.flooding.event import TAG, control_bytes, deliver, flood, is_first_copy, new_message
from antecede.sim.kernels.pc.links import (
    ALARM_SET,
    CHANGES,
    FIRST,
    FLOODED,
    KIND,
    KINDS,
    NUMBER,
    PEER,
    PING,
    PINGS,
    PINGS_USED,
    PONG,
    SOURCE,
    TARGET,
    WHAT,
    PcParams,
    PcState,
    add_opening,
    buffer,
    clear_buffer,
    create_state,
    has_delivered,
    link_place,
    mark_safe,
    opening_to,
    remove_opening,
    swap_links,
)
from antecede.sim.kernels.runtime import world as runtime
from antecede.sim.kernels.runtime.agenda import next_event, plan_next_send, set_alarm, wake_at
from antecede.sim.kernels.runtime.bit_window import add_if_new, fill_up_to
from antecede.sim.kernels.runtime.links import transmit
from antecede.sim.kernels.runtime.msgpack_sizes import int_bytes, payload_head
from antecede.sim.kernels.runtime.world_state import (
    ARRIVAL,
    FULL,
    LINK_CHANGE,
    NOTHING,
    NOW,
    SAMPLES,
    SEND,
    STOPPED,
    WAKE,
)
from antecede.sim.metrics import Metrics
from antecede.sim.scenario import Scenario
from antecede.units import SECOND

_MAX_PAIRS = 1 << 27
"""The most pairs of a peer and a peer that sends pings."""


def supports(scenario: Scenario) -> Unsupported | None:
    """Why the kernel cannot run a scenario; None if it can."""
    if scenario.peers * min(scenario.peers, 2 * scenario.link_churn * scenario.seconds) > _MAX_PAIRS:
        return Unsupported("too many peers have to remember the pings of too many others")
    return flooding.supports(scenario, ("costs",))


def run(scenario: Scenario, observers: ObserverFeed, progress: Progress | None) -> Metrics:
    return flooding.run_with_growing_windows(scenario, observers, progress, _attempt)


def _attempt(scenario: Scenario, observers: ObserverFeed, progress: Progress | None, words: int) -> Metrics:
    kind = cast(type[Pc], scenario.protocol_class())
    params = PcParams(
        payload_head(scenario.payload), kind.max_buffered, kind.pong_timeout, kind.max_recent_pings,
        round(scenario.warmup * SECOND),
    )  # fmt: skip
    overlay = scenario.neighbours()
    if overlay is None:
        overlay = cast(OverlayLayout, scenario.resolved_layout()).neighbours(scenario.peers)
    state = create_state(scenario, overlay, kind.max_recent_pings, words)
    links = sum(map(len, overlay))
    world, rules = runtime.create_world(scenario, len(state.flood.neighbours), links, bool(observers))
    plan_link_change(world, state)
    runtime.drive(
        world, rules, lambda count: advance(world, rules, state, params, count), observers, progress
    )
    return runtime.metrics(
        world, 0, _cost_metrics(state, world.scalars[SAMPLES] > 0) if scenario.probes else {}
    )


def _cost_metrics(state: PcState, sampled: bool) -> dict[str, float]:
    """The metrics of the probe `costs`: as the paper counts, every packet has 4 bytes, and members store
    nothing."""
    found: dict[str, float] = {"member_storage": 0.0} if sampled else {}
    for name, (count, wire) in zip(KINDS, state.costs.tolist(), strict=True):
        if count:
            found |= {
                f"{name}_packets": count,
                f"{name}_paper_bytes": 4.0,
                f"{name}_wire_bytes": wire / count,
            }
    return found


@njit_hot
def advance(world: Any, rules: Any, state: Any, params: Any, budget: Any) -> Any:
    """Process up to `budget` events; return False when none are left."""
    for _ in range(budget):
        before = world.scalars[NOW]
        kind, me, link, packet = next_event(world, rules)
        if kind == NOTHING:
            return False
        if kind == STOPPED:
            return True
        if kind == SEND:
            broadcast(world, rules, state, params, me)
            plan_next_send(world, rules, me)
        elif kind == ARRIVAL:
            if state.closed[packet >> TAG]:
                world.scalars[NOW] = before  # Its link has closed; the run may end before it.
            elif packet >> KIND & 3 == FLOODED:
                receive(world, rules, state, params, me, link, packet & WHAT)
            elif packet >> KIND & 3 == PONG:
                receive_pong(world, rules, state, params, me, link, packet & WHAT)
            else:
                receive_ping(world, rules, state, params, me, link, packet & WHAT)
        elif kind == WAKE:
            wake(world, rules, state, params, me)
        elif kind == LINK_CHANGE:
            change_link(world, rules, state, params)
    return True


@njit_hot
def plan_link_change(world: Any, state: Any) -> Any:
    """Set an alarm for the next change of a link."""
    if state.scalars[CHANGES] < len(state.changes):
        set_alarm(world, state.changes[state.scalars[CHANGES], 0], LINK_CHANGE, 0)


@njit_inner
def broadcast(world: Any, rules: Any, state: Any, params: Any, me: Any) -> Any:
    """The twin of `Pc.broadcast`."""
    message = new_message(world, state.flood, params.head, me)
    if message >= 0:
        forward(world, rules, state, params, me, np.int64(-1), message)


@njit_inline
def forward(world: Any, rules: Any, state: Any, params: Any, me: Any, link: Any, message: Any) -> Any:
    """Send a message over safe links, and buffer it for those that are opening."""
    size = control_bytes(state.flood, params.head, message)
    if flood(world, rules, state.flood, me, link, message, size):
        count_costs(world, state, params, FLOODED, size)
    if state.peers[FIRST, me]:
        buffer_for_unsafe_links(world, rules, state, params, me, link, message)


@njit_inline
def count_costs(world: Any, state: Any, params: Any, kind: Any, size: Any) -> Any:
    """Count a packet for the probe `costs`: once, to however many peers it goes."""
    if len(state.costs) and world.scalars[NOW] >= params.since:
        state.costs[kind, 0] += 1
        state.costs[kind, 1] += size


@njit_inline
def receive(world: Any, rules: Any, state: Any, params: Any, me: Any, link: Any, message: Any) -> Any:
    """The twin of `Pc.receive` for a message, and of the delivery of a first copy."""
    if not is_first_copy(world, state.flood, me, link, message):
        return
    forward(world, rules, state, params, me, link, message)
    if deliver(world, rules, state.flood, me, message):
        broadcast(world, rules, state, params, me)


@njit_inner
def buffer_for_unsafe_links(
    world: Any, rules: Any, state: Any, params: Any, me: Any, source: Any, message: Any
) -> Any:
    """The twin of `Pc._buffer_for_unsafe_links`: a buffer that gets too long is started anew."""
    rows = state.openings.rows
    opening = state.peers[FIRST, me]
    while opening:
        if rows[opening].other != source:
            buffer(world, state, opening, message)
            if rows[opening].size > params.most_buffered:
                clear_buffer(state, opening)
                start_buffer(world, rules, state, params, me, opening)
        opening = np.int64(rows[opening].after)


@njit_inline
def start_buffer(world: Any, rules: Any, state: Any, params: Any, me: Any, opening: Any) -> Any:
    """The twin of `Pc._start_buffer`: an empty buffer and a new ping."""
    row = state.openings.rows[opening]
    row.first, row.last, row.size = 0, 0, 0
    row.since = state.peers[PINGS, me] + 1
    row.due = world.scalars[NOW] + world.ahead[me] + params.patience
    send_ping(world, rules, state, params, me, np.int64(row.other))


@njit_inner
def send_ping(world: Any, rules: Any, state: Any, params: Any, me: Any, other: Any) -> Any:
    """Flood a ping for a link that is opening."""
    state.peers[PINGS, me] += 1
    which = state.scalars[PINGS_USED]
    if which == len(state.pings):
        world.scalars[FULL] = 1
        return
    state.scalars[PINGS_USED] += 1
    ping = state.pings[which]
    ping[SOURCE], ping[TARGET], ping[NUMBER] = me, other, state.peers[PINGS, me]
    flood_ping(world, rules, state, params, me, np.int64(-1), which)


@njit_inner
def flood_ping(world: Any, rules: Any, state: Any, params: Any, me: Any, link: Any, which: Any) -> Any:
    ping = state.pings[which]
    size = 2 + int_bytes(ping[SOURCE]) + int_bytes(ping[TARGET]) + int_bytes(ping[NUMBER])
    if flood(world, rules, state.flood, me, link, PING << KIND | which, size):
        count_costs(world, state, params, PING, size)


@njit_inner
def receive_ping(world: Any, rules: Any, state: Any, params: Any, me: Any, link: Any, which: Any) -> Any:
    """The twin of `Pc._receive_ping`: flood a ping further, or answer it."""
    ping = state.pings[which]
    source, number = np.int64(ping[SOURCE]), np.int64(ping[NUMBER])
    if source == me or not is_new_ping(world, state, params, me, source, number):
        return
    if ping[TARGET] != me:
        flood_ping(world, rules, state, params, me, link, which)
    else:
        place = link_place(state, me, source)
        if place < state.flood.last[me] or opening_to(state, me, source):
            size = 2 + int_bytes(number)
            send(world, rules, state, me, place, PONG << KIND | number, size)
            count_costs(world, state, params, PONG, size)


@njit_inner
def receive_pong(world: Any, rules: Any, state: Any, params: Any, me: Any, link: Any, number: Any) -> Any:
    """The twin of `Pc._receive_pong`: if the pong answers the present buffer, the link is safe and the buffer
    is sent."""
    opening = opening_to(state, me, link)
    if opening == 0 or number < state.openings.rows[opening].since:
        return
    place = mark_safe(world, state, me, link_place(state, me, link))
    item = np.int64(state.openings.rows[opening].first)
    while item:
        message = np.int64(state.buffered.rows[item].message)
        size = control_bytes(state.flood, params.head, message)
        send(world, rules, state, me, place, message, size)
        count_costs(world, state, params, FLOODED, size)
        item = np.int64(state.buffered.rows[item].after)
    remove_opening(state, me, opening)


@njit_inline
def is_new_ping(world: Any, state: Any, params: Any, me: Any, source: Any, number: Any) -> Any:
    """Whether a ping arrives for the first time; pings from too long ago never count."""
    which = me * (len(state.seen_pings.base) // len(state.pinger)) + state.pinger[source]
    fill_up_to(state.seen_pings, which, number - params.recent_pings)
    return add_if_new(world.scalars, state.seen_pings, which, number)


@njit_inline
def send(world: Any, rules: Any, state: Any, me: Any, place: Any, packet: Any, size: Any) -> Any:
    """Send a packet over one link."""
    tagged = state.flood.neighbours[place]
    other = tagged & PEER
    transmit(world, rules, place, me, other, packet | tagged ^ other, size)


@njit_inner
def change_link(world: Any, rules: Any, state: Any, params: Any) -> Any:
    """Open or close the next link in the schedule, at both ends."""
    row = state.changes[state.scalars[CHANGES]]
    state.scalars[CHANGES] += 1
    plan_link_change(world, state)
    here, there = row[1], row[2]
    if not row[3]:
        state.closed[state.flood.neighbours[link_place(state, here, there)] >> TAG] = True
    for _ in range(2):
        place = link_place(state, here, there)
        opening = opening_to(state, here, there)
        safe = place < state.flood.last[here]
        if (safe or opening != 0) == (row[3] != 0):  # It is so already: the reference refuses.
            world.scalars[FULL] = 1
        elif row[3]:
            link_opened(world, rules, state, params, here, there, place)
        elif safe:
            state.flood.last[here] -= 1
            swap_links(world, state, place, state.flood.last[here])
        else:
            remove_opening(state, here, opening)
        here, there = there, here


@njit_inline
def link_opened(world: Any, rules: Any, state: Any, params: Any, me: Any, other: Any, place: Any) -> Any:
    """The twin of `Pc.link_opened`."""
    state.flood.neighbours[place] = other | state.scalars[CHANGES] << TAG
    if not has_delivered(world, state, me):
        mark_safe(world, state, me, place)
        return
    opening = add_opening(world, state, me, other)
    start_buffer(world, rules, state, params, me, opening)
    if not state.peers[ALARM_SET, me]:
        state.peers[ALARM_SET, me] = 1
        wake_at(world, rules, me, state.openings.rows[opening].due)


@njit_inner
def wake(world: Any, rules: Any, state: Any, params: Any, me: Any) -> Any:
    """The twin of `Pc.wake`."""
    rows, clock = state.openings.rows, world.scalars[NOW] + world.ahead[me]
    opening = state.peers[FIRST, me]
    state.peers[ALARM_SET, me] = opening != 0
    soonest = np.int64(1 << 62)
    while opening:
        if rows[opening].due <= clock:
            rows[opening].due = clock + params.patience
            send_ping(world, rules, state, params, me, np.int64(rows[opening].other))
        soonest = min(soonest, rows[opening].due)
        opening = np.int64(rows[opening].after)
    if state.peers[ALARM_SET, me]:
        wake_at(world, rules, me, soonest)
