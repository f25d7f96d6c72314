"""The event kernel of `freescale`, for any number of super peers and either form.

Rings and rows are sized by what may be in flight; a run that finds them too short starts over with longer
ones.
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from antecede.jit import njit_hot, njit_inline, njit_inner
from antecede.protocols.freescale import FreescaleLayout
from antecede.sim.kernels.contract import CapacityExceeded, ObserverFeed, Progress, Unsupported
from antecede.sim.kernels.freescale.external import (
    accept_outside,
    create_external_packet,
    deliver_next_outside,
    deliver_outside,
)
from antecede.sim.kernels.freescale.internal import (
    accept_inside,
    assign_number,
    create_packet,
    deliver_inside,
)
from antecede.sim.kernels.freescale.packets import (
    count_costs,
    external_index,
    next_ready,
    release,
    send,
    span_bytes,
)
from antecede.sim.kernels.freescale.state import (
    ACK,
    ASSIGNMENT,
    BASE,
    CAUSES,
    CONTROL,
    COPIES,
    HELD,
    HIGH,
    KIND,
    KINDS,
    LOW,
    MAX_BITS,
    MAX_PEERS,
    MAX_SUPERS,
    MEMBERS,
    NAMED_BITS,
    NAMED_HIGH,
    NAMED_LOW,
    NUMBER,
    ORIGIN,
    PAPER,
    SEEN_BASE,
    SEEN_TOP,
    SENDERS,
    SENT_AT,
    SEQ,
    TABLE_SIZE,
    TO_NAME,
    TOP,
    UNREPORTED,
    UPLINK,
    FreescaleState,
    create_params,
    create_state,
)
from antecede.sim.kernels.freescale.super_peer import (
    forward_external,
    forward_internal,
    receive_ack,
    receive_internal,
    send_ack,
    send_to_external_group,
)
from antecede.sim.kernels.runtime import world as runtime
from antecede.sim.kernels.runtime.agenda import next_event, plan_next_send
from antecede.sim.kernels.runtime.bit_set import set_tighten
from antecede.sim.kernels.runtime.counting import (
    begin_broadcast,
    record_delivery,
    record_receive,
    record_send,
)
from antecede.sim.kernels.runtime.links import longest_delay
from antecede.sim.kernels.runtime.world_state import ARRIVAL, NOTHING, NOW, SAMPLE, SEND, STOPPED
from antecede.sim.metrics import Metrics
from antecede.sim.scenario import Scenario
from antecede.units import SECOND

_MIN_BITS = 256
_BITS_PER_MESSAGE = 4
"""Length of bit rings: the shortest, and for each message that may be in flight."""


def supports(scenario: Scenario) -> Unsupported | None:
    """Why the kernel cannot run a scenario; None if it can."""
    if scenario.network is not None:
        return Unsupported("delays depend on what else is sent")
    others = set(scenario.probes) - {"costs"}
    if others:
        return Unsupported(f"probe {min(others)} is not compiled for {scenario.protocol}")
    if any(fault.startswith("duplicate") for fault in scenario.faults):
        return Unsupported("a fault duplicates packets")
    arranged = cast(FreescaleLayout, scenario.resolved_layout())
    if scenario.peers > MAX_PEERS or len(arranged.inside) > MAX_SUPERS:
        return Unsupported(f"there are more than {MAX_PEERS:,} peers, or {MAX_SUPERS} super peers")
    return None


def run(scenario: Scenario, observers: ObserverFeed, progress: Progress | None) -> Metrics:
    in_flight = min(1.0, 4 * longest_delay(scenario) / SECOND / max(scenario.seconds, 1e-9))
    bits = _MIN_BITS
    while bits < _BITS_PER_MESSAGE * scenario.expected_messages() * in_flight:
        bits *= 2
    words = bits // 128
    while True:
        try:
            return _attempt(scenario, observers, progress, bits, words)
        except CapacityExceeded:
            if bits >= MAX_BITS:
                raise
            bits, words = 4 * bits, 4 * words


def _attempt(
    scenario: Scenario,
    observers: ObserverFeed,
    progress: Progress | None,
    bits: int,
    words: int,
) -> Metrics:
    params = create_params(scenario)
    links = scenario.peers**2
    world, rules = runtime.create_world(scenario, links, 2.0 * scenario.peers, bool(observers))
    state = create_state(params, bits, words)
    runtime.drive(
        world, rules, lambda count: advance(world, rules, params, state, count), observers, progress
    )
    return runtime.metrics(
        world, int(state.scalars[HELD]), _cost_metrics(state) if "costs" in scenario.probes else {}
    )


def _cost_metrics(state: FreescaleState) -> dict[str, float]:
    """The metrics of the probe `costs`."""
    found: dict[str, float] = {}
    for name, (count, paper, wire, with_last) in zip(KINDS, state.costs.tolist(), strict=True):
        if count:
            found[f"{name}_packets"] = count
            found[f"{name}_paper_bytes"] = paper / count
            found[f"{name}_wire_bytes"] = wire / count
            if name == "down":
                found["down_last_paper_bytes"] = with_last / count
    for name, (count, stored) in zip(MEMBERS, state.storage.tolist(), strict=True):
        if count:
            found[f"{name}_storage"] = stored / count
    return found


@njit_hot
def advance(world: Any, rules: Any, params: Any, state: Any, budget: Any) -> Any:
    """Process up to `budget` events; return False when none are left."""
    for _ in range(budget):
        kind, peer, source, packet = next_event(world, rules)
        if kind == NOTHING:
            return False
        if kind == STOPPED:
            return True
        if kind == SAMPLE:
            for member in range(params.peers):
                probe_sample(params, state, member)
            continue
        if kind == SEND:
            broadcast(world, rules, params, state, peer)
            plan_next_send(world, rules, peer)
        elif kind == ARRIVAL:
            receive(world, rules, params, state, peer, source, packet)
        deliver(world, rules, params, state, peer)
    return True


@njit_inline
def is_internal(params: Any, me: Any) -> Any:
    return params.homes[me] != me


@njit_inner
def broadcast(world: Any, rules: Any, params: Any, state: Any, me: Any) -> Any:
    """The twin of `broadcast` of each role."""
    if not begin_broadcast(world, me):
        return
    if me < params.supers:
        packet = create_packet(world, params, state, me)
        wire, counted = forward_internal(world, rules, params, state, me, packet, world.scalars[NOW])
        state.packets[packet, COPIES] = 1
        release(state, packet)
        record_send(world, me, wire, counted)
        return
    if is_internal(params, me):
        packet = create_packet(world, params, state, me)
        record_send(world, me, state.packets[packet, CONTROL], state.packets[packet, PAPER])
        count_costs(world, params, state, packet, me)
        send(world, rules, params, state, me, params.homes[me], packet)
    else:
        packet = create_external_packet(world, params, state, me)
        alone = params.peers - params.behind == 1
        record_send(
            world,
            me,
            0 if alone else state.packets[packet, CONTROL],
            0 if alone else state.packets[packet, PAPER],
        )
        if not alone:
            send_to_external_group(world, rules, params, state, me, packet)
    if state.packets[packet, COPIES] == 0:
        release(state, packet)


@njit_inline
def receive(world: Any, rules: Any, params: Any, state: Any, me: Any, link: Any, packet: Any) -> Any:
    """The twin of `receive` of each role."""
    kind = state.packets[packet, KIND]
    if kind != ASSIGNMENT and kind != ACK:
        record_receive(world, me, link, state.packets[packet, ORIGIN], state.packets[packet, SEQ])
    if is_internal(params, me):
        if kind == ASSIGNMENT:
            assign_number(world, state, me, state.packets[packet, NUMBER])
            release(state, packet)
        else:
            accept_inside(world, state, me, packet, world.scalars[NOW], state.packets[packet, NUMBER])
        if state.inside[UNREPORTED, me] >= params.ack_every:
            send_ack(world, rules, params, state, me)
    elif kind == UPLINK:
        receive_internal(world, rules, params, state, me, link, packet)
    elif kind == ACK:
        receive_ack(world, params, state, me, link, packet)
    else:
        accept_outside(world, params, state, me, link, packet)
        while me < params.supers:
            turn, arrived = deliver_next_outside(world, params, state, me)
            if turn < 0:
                break
            forward_external(world, rules, params, state, me, turn, arrived)
            release(state, turn)


@njit_inline
def deliver(world: Any, rules: Any, params: Any, state: Any, me: Any) -> Any:
    """Deliver all that is ready, one at a time."""
    inside = me < params.supers or is_internal(params, me)
    while True:
        if inside:
            packet, arrived = next_ready(state, True)
            if packet < 0:
                break
            deliver_inside(world, state, me, packet)
        else:
            packet, arrived = deliver_next_outside(world, params, state, me)
            if packet < 0:
                break
            deliver_outside(world, params, state, me, packet)
        origin, seq = state.packets[packet, ORIGIN], state.packets[packet, SEQ]
        replies = record_delivery(world, rules, me, origin, seq, state.packets[packet, SENT_AT], arrived)
        release(state, packet)
        if replies:
            broadcast(world, rules, params, state, me)


@njit_inner
def probe_sample(params: Any, state: Any, me: Any) -> Any:
    """What the probe `costs` samples: `paper_storage` of each role."""
    inside = me < params.supers or is_internal(params, me)
    stored = np.int64(0)
    if inside and me >= params.supers:
        set_tighten(state.inside_bits[CAUSES, me], state.inside[LOW], state.inside[HIGH], me)
        stored = span_bytes(state.inside[BASE, me] + 1, state.inside[TOP, me]) + span_bytes(
            state.inside[LOW, me], state.inside[HIGH, me]
        )
        kind = 0
    else:
        mine = external_index(params, me)
        stored = np.int64(4 * (params.peers - params.supers - params.behind))
        for place in range(params.supers):
            stored += span_bytes(
                state.outside[SEEN_BASE, mine, place] + 1, state.outside[SEEN_TOP, mine, place]
            )
        if me < params.supers:
            stored += 8 * state.supers[SENDERS, me] + 8 * state.supers[TABLE_SIZE, me]
            kind = 2
        else:
            named = state.external_counts[TO_NAME, mine]
            for place in range(len(named)):
                stored += 8 * (named[place] > 0)
            for place in range(params.supers):
                lows, highs = state.outside[NAMED_LOW, mine], state.outside[NAMED_HIGH, mine]
                set_tighten(state.outside_bits[NAMED_BITS, mine, place], lows, highs, place)
                if lows[place] <= highs[place]:
                    stored += 4 + span_bytes(lows[place], highs[place])
            kind = 1
    state.storage[kind, 0] += 1
    state.storage[kind, 1] += stored
