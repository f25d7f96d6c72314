"""The twin of `protocols/freescale.py` and its roles, for any number of super peers and either form.

Rings and rows are as long as what is under way asks for; a run that finds them too short begins again with
longer ones.
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from antecede.jit import njit_hot, njit_inline, njit_inner
from antecede.protocols.freescale import FreescaleLayout
from antecede.sim.kernels.contract import CapacityExceeded, ObserverFeed, Progress, Unsupported
from antecede.sim.kernels.freescale.external import (
    across_of_external,
    delivered_external,
    next_outside,
    take_outside,
)
from antecede.sim.kernels.freescale.internal import delivered_inside, echo, file_inside, up
from antecede.sim.kernels.freescale.packets import index, next_ready, post, posted, release, span_bytes
from antecede.sim.kernels.freescale.state import (
    ACK,
    BASE,
    CAUSES,
    CONTROL,
    COPIES,
    ECHO,
    HEARD,
    HIGH,
    KIND,
    KINDS,
    LOW,
    MAX_BITS,
    MAX_PEERS,
    MAX_SUPERS,
    MEMBERS,
    NAMED,
    NAMED_BITS,
    NAMED_HIGH,
    NAMED_LOW,
    NUMBER,
    ORIGIN,
    PAPER,
    SEEN_BASE,
    SEEN_TOP,
    SENT_AT,
    SEQ,
    STUCK,
    TABLE_SIZE,
    TOP,
    UNSAID,
    UP,
    State,
    fresh_state,
    shape_of,
)
from antecede.sim.kernels.freescale.super_peer import (
    acknowledge,
    acknowledged,
    from_inside,
    pass_in,
    pass_out,
    to_group,
)
from antecede.sim.kernels.runtime import events
from antecede.sim.kernels.runtime.bitsets import set_tighten
from antecede.sim.kernels.runtime.events import (
    ARRIVAL,
    NOTHING,
    NOW,
    SAMPLE,
    SEND,
    STOPPED,
    arrived,
    delivered,
    following,
    may_send,
    plan_next,
    sent,
)
from antecede.sim.metrics import Metrics
from antecede.sim.scenario import Scenario
from antecede.units import SECOND

_MIN_BITS = 256
_BITS_PER_MESSAGE = 4
"""Length of bit rings: the shortest, and for each message that may be in flight."""


def supports(given: Scenario) -> Unsupported | None:
    """Why a run cannot be done so; None if it can."""
    if given.network is not None:
        return Unsupported("delays depend on what else is sent")
    others = set(given.probes) - {"costs"}
    if others:
        return Unsupported(f"probe {min(others)} is not compiled for {given.protocol}")
    if any(fault.startswith("duplicate") for fault in given.faults):
        return Unsupported("packets come twice")
    arranged = cast(FreescaleLayout, given.resolved_layout())
    if given.peers > MAX_PEERS or len(arranged.inside) > MAX_SUPERS:
        return Unsupported(f"there are more than {MAX_PEERS:,} peers, or {MAX_SUPERS} super peers")
    return None


def run(given: Scenario, observers: ObserverFeed, progress: Progress | None) -> Metrics:
    in_flight = min(1.0, 4 * events.longest_delay(given) / SECOND / max(given.seconds, 1e-9))
    bits = _MIN_BITS
    while bits < _BITS_PER_MESSAGE * given.expected_messages() * in_flight:
        bits *= 2
    words = bits // 128
    while True:
        try:
            return _attempt(given, observers, progress, bits, words)
        except CapacityExceeded:
            if bits >= MAX_BITS:
                raise
            bits, words = 4 * bits, 4 * words


def _attempt(
    given: Scenario,
    observers: ObserverFeed,
    progress: Progress | None,
    bits: int,
    words: int,
) -> Metrics:
    shape = shape_of(given)
    links = given.peers**2
    made, rules = events.fresh(given, links, 2.0 * given.peers, bool(observers))
    state = fresh_state(shape, bits, words)
    events.drive(made, rules, lambda count: advance(made, rules, shape, state, count), observers, progress)
    return events.metrics(made, int(state.at[STUCK]), _costs(state) if "costs" in given.probes else {})


def _costs(state: State) -> dict[str, float]:
    """The twin of `probes.Costs`."""
    found: dict[str, float] = {}
    for name, (count, paper, wire) in zip(KINDS, state.costs.tolist(), strict=True):
        if count:
            found[f"{name}_packets"] = count
            found[f"{name}_paper_bytes"] = paper / count
            found[f"{name}_wire_bytes"] = wire / count
    for name, (count, kept) in zip(MEMBERS, state.kept.tolist(), strict=True):
        if count:
            found[f"{name}_storage"] = kept / count
    return found


@njit_hot
def advance(run: Any, rules: Any, shape: Any, state: Any, budget: Any) -> Any:
    """So many events; False if there are no more."""
    for _ in range(budget):
        kind, peer, source, packet = following(run, rules)
        if kind == NOTHING:
            return False
        if kind == STOPPED:
            return True
        if kind == SAMPLE:
            for member in range(shape.peers):
                look(shape, state, member)
            continue
        if kind == SEND:
            broadcast(run, rules, shape, state, peer)
            plan_next(run, rules, peer)
        elif kind == ARRIVAL:
            receive(run, rules, shape, state, peer, source, packet)
        deliver(run, rules, shape, state, peer)
    return True


@njit_inline
def is_internal(shape: Any, me: Any) -> Any:
    return shape.homes[me] != me


@njit_inner
def broadcast(run: Any, rules: Any, shape: Any, state: Any, me: Any) -> Any:
    """`broadcast` of each role."""
    if not may_send(run, me):
        return
    if me < shape.supers:
        packet = up(run, shape, state, me)
        wire, counted = pass_out(run, rules, shape, state, me, packet, run.at[NOW])
        state.packets[packet, COPIES] = 1
        release(state, packet)
        sent(run, me, wire, counted)
        return
    if is_internal(shape, me):
        packet = up(run, shape, state, me)
        sent(run, me, state.packets[packet, CONTROL], state.packets[packet, PAPER])
        posted(run, shape, state, packet)
        post(run, rules, shape, state, me, shape.homes[me], packet)
    else:
        packet = across_of_external(run, shape, state, me)
        alone = shape.peers - shape.behind == 1
        sent(
            run,
            me,
            0 if alone else state.packets[packet, CONTROL],
            0 if alone else state.packets[packet, PAPER],
        )
        if not alone:
            to_group(run, rules, shape, state, me, packet)
    if state.packets[packet, COPIES] == 0:
        release(state, packet)


@njit_inline
def receive(run: Any, rules: Any, shape: Any, state: Any, me: Any, link: Any, packet: Any) -> Any:
    """`receive` of each role."""
    kind = state.packets[packet, KIND]
    if kind != ECHO and kind != ACK:
        arrived(run, me, link, state.packets[packet, ORIGIN], state.packets[packet, SEQ])
    if is_internal(shape, me):
        if kind == ECHO:
            echo(run, state, me, state.packets[packet, NUMBER])
            release(state, packet)
        else:
            file_inside(run, state, me, packet, run.at[NOW], state.packets[packet, NUMBER])
        if state.inside[UNSAID, me] >= shape.ack_every:
            acknowledge(run, rules, shape, state, me)
    elif kind == UP:
        from_inside(run, rules, shape, state, me, link, packet)
    elif kind == ACK:
        acknowledged(run, shape, state, me, link, packet)
    else:
        take_outside(run, shape, state, me, link, packet)
        while me < shape.supers:
            turn, since = next_outside(run, shape, state, me)
            if turn < 0:
                break
            pass_in(run, rules, shape, state, me, turn, since)
            release(state, turn)


@njit_inline
def deliver(run: Any, rules: Any, shape: Any, state: Any, me: Any) -> Any:
    """All that is ready, one at a time, as the world takes it."""
    inside = me < shape.supers or is_internal(shape, me)
    while True:
        if inside:
            packet, since = next_ready(state, True)
            if packet < 0:
                break
            delivered_inside(run, state, me, packet)
        else:
            packet, since = next_outside(run, shape, state, me)
            if packet < 0:
                break
            delivered_external(run, shape, state, me, packet)
        origin, seq = state.packets[packet, ORIGIN], state.packets[packet, SEQ]
        answers = delivered(run, rules, me, origin, seq, state.packets[packet, SENT_AT], since)
        release(state, packet)
        if answers:
            broadcast(run, rules, shape, state, me)


@njit_inner
def look(shape: Any, state: Any, me: Any) -> Any:
    """`paper_storage` of each role, for the probe."""
    inside = me < shape.supers or is_internal(shape, me)
    kept = np.int64(0)
    if inside and me >= shape.supers:
        set_tighten(state.inside_bits[CAUSES, me], state.inside[LOW], state.inside[HIGH], me)
        kept = span_bytes(state.inside[BASE, me] + 1, state.inside[TOP, me]) + span_bytes(
            state.inside[LOW, me], state.inside[HIGH, me]
        )
        kind = 0
    else:
        mine = index(shape, me)
        kept = np.int64(4 * (shape.peers - shape.supers - shape.behind))
        for place in range(shape.supers):
            kept += span_bytes(
                state.outside[SEEN_BASE, mine, place] + 1, state.outside[SEEN_TOP, mine, place]
            )
        if me < shape.supers:
            kept += 8 * state.supers[HEARD, me] + 8 * state.supers[TABLE_SIZE, me]
            kind = 2
        else:
            named = state.known[NAMED, mine]
            for place in range(len(named)):
                kept += 8 * (named[place] > 0)
            for place in range(shape.supers):
                lows, highs = state.outside[NAMED_LOW, mine], state.outside[NAMED_HIGH, mine]
                set_tighten(state.outside_bits[NAMED_BITS, mine, place], lows, highs, place)
                if lows[place] <= highs[place]:
                    kept += 4 + span_bytes(lows[place], highs[place])
            kind = 1
    state.kept[kind, 0] += 1
    state.kept[kind, 1] += kept
