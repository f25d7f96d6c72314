"""The twin of `protocols/pc.py`, but for newcomers, which no scenario has.

Messages are flooded as in `flooding`; the links are in `pc_links`. What is under way on a link that closes
stays in the calendar, and when it comes, it is as if nothing had. Memory is that of flooding, and peers ×
those that ever open a link: 16 bytes, and bits for as many pings as are told apart.
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from antecede.jit import njit_hot, njit_inline, njit_inner
from antecede.protocols.pc import OverlayLayout, Pc
from antecede.sim.kernels.contract import ObserverFeed, Progress, Unsupported
from antecede.sim.kernels.flooding import event as flooding
from antecede.sim.kernels.flooding.event import TAG, control_bytes, flood, is_new, new_message, take
from antecede.sim.kernels.pc.links import (
    ASKED,
    CHANGED,
    FIRST,
    FLOODED,
    KIND,
    KINDS,
    NUMBER,
    PEER,
    PING,
    PINGED,
    PINGS,
    PONG,
    SOURCE,
    TARGET,
    WHAT,
    State,
    Terms,
    add_opening,
    buffer,
    fresh,
    has_delivered,
    opening_to,
    place_of,
    remove,
    swap,
    throw_away,
    use,
)
from antecede.sim.kernels.runtime import events
from antecede.sim.kernels.runtime.events import (
    ARRIVAL,
    CHANGE,
    FULL,
    NOTHING,
    NOW,
    SAMPLES,
    SEND,
    STOPPED,
    WAKE,
    alarm,
    following,
    plan_next,
    transmit,
    wake_at,
)
from antecede.sim.kernels.runtime.msgpack_sizes import int_bytes, payload_head
from antecede.sim.kernels.runtime.windows import put, put_all_to
from antecede.sim.metrics import Metrics
from antecede.sim.scenario import Scenario
from antecede.units import SECOND

_MAX_PAIRS = 1 << 27
"""Peers × those that send pings."""


def supports(given: Scenario) -> Unsupported | None:
    """Why a run cannot be done so; None if it can."""
    if given.peers * min(given.peers, 2 * (given.churn or 0) * given.seconds) > _MAX_PAIRS:
        return Unsupported("too many peers have to remember the pings of too many others")
    return flooding.supports(given, ("costs",))


def run(given: Scenario, observers: ObserverFeed, progress: Progress | None) -> Metrics:
    return flooding.with_room(given, observers, progress, _attempt)


def _attempt(given: Scenario, observers: ObserverFeed, progress: Progress | None, words: int) -> Metrics:
    kind = cast(type[Pc], given.protocol_class())
    terms = Terms(
        payload_head(given.payload), kind.most_buffered, kind.patience, kind.recent_pings,
        round(given.warmup * SECOND),
    )  # fmt: skip
    overlay = cast(OverlayLayout, given.resolved_layout()).joins(given.peers)
    state = fresh(given, overlay, kind.recent_pings, words)
    links = sum(map(len, overlay))
    made, rules = events.fresh(given, len(state.flood.neighbours), links, bool(observers))
    plan_change(made, state)
    events.drive(made, rules, lambda count: advance(made, rules, state, terms, count), observers, progress)
    return events.metrics(made, 0, _measured(state, made.at[SAMPLES] > 0) if given.probes else {})


def _measured(state: State, sampled: bool) -> dict[str, float]:
    """The twin of `probes.Costs`: on paper every packet has 4 bytes, and nothing is kept."""
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
def advance(run: Any, rules: Any, state: Any, terms: Any, budget: Any) -> Any:
    """So many events; False if there are no more."""
    for _ in range(budget):
        before = run.at[NOW]
        kind, me, link, packet = following(run, rules)
        if kind == NOTHING:
            return False
        if kind == STOPPED:
            return True
        if kind == SEND:
            broadcast(run, rules, state, terms, me)
            plan_next(run, rules, me)
        elif kind == ARRIVAL:
            if state.closed[packet >> TAG]:
                run.at[NOW] = before  # the world has taken it away, and a run may end before it
            elif packet >> KIND & 3 == FLOODED:
                receive(run, rules, state, terms, me, link, packet & WHAT)
            else:
                control(run, rules, state, terms, me, link, packet)
        elif kind == WAKE:
            wake(run, rules, state, terms, me)
        elif kind == CHANGE:
            change(run, rules, state, terms)
    return True


@njit_hot
def plan_change(run: Any, state: Any) -> Any:
    """An alarm for the next change of a link."""
    if state.at[CHANGED] < len(state.changes):
        alarm(run, state.changes[state.at[CHANGED], 0], CHANGE, 0)


@njit_inner
def broadcast(run: Any, rules: Any, state: Any, terms: Any, me: Any) -> Any:
    """The twin of `Pc.broadcast`."""
    message = new_message(run, state.flood, terms.head, me)
    if message >= 0:
        pass_on(run, rules, state, terms, me, np.int64(-1), message)


@njit_inline
def pass_on(run: Any, rules: Any, state: Any, terms: Any, me: Any, link: Any, message: Any) -> Any:
    """Over safe links, and into the buffers for those that are opening."""
    size = control_bytes(state.flood, terms.head, message)
    if flood(run, rules, state.flood, me, link, message, size):
        count(run, state, terms, FLOODED, size)
    if state.peers[FIRST, me]:
        keep(run, rules, state, terms, me, link, message)


@njit_inline
def count(run: Any, state: Any, terms: Any, kind: Any, size: Any) -> Any:
    """For the probe, which counts a packet once however many get it."""
    if len(state.costs) and run.at[NOW] >= terms.since:
        state.costs[kind, 0] += 1
        state.costs[kind, 1] += size


@njit_inline
def receive(run: Any, rules: Any, state: Any, terms: Any, me: Any, link: Any, message: Any) -> Any:
    """The twin of `Pc.receive` for a message, and of the delivery that follows the first."""
    if not is_new(run, state.flood, me, link, message):
        return
    pass_on(run, rules, state, terms, me, link, message)
    if take(run, rules, state.flood, me, message):
        broadcast(run, rules, state, terms, me)


@njit_inner
def keep(run: Any, rules: Any, state: Any, terms: Any, me: Any, source: Any, message: Any) -> Any:
    """The twin of `Pc._keep`."""
    rows = state.openings.rows
    opening = state.peers[FIRST, me]
    while opening:
        if rows[opening].other != source:
            buffer(run, state, opening, message)
            if rows[opening].size > terms.most_buffered:
                throw_away(state, opening)
                begin(run, rules, state, terms, me, opening)
        opening = np.int64(rows[opening].after)


@njit_inline
def begin(run: Any, rules: Any, state: Any, terms: Any, me: Any, opening: Any) -> Any:
    """The twin of `Pc._begin`."""
    row = state.openings.rows[opening]
    row.first, row.last, row.size = 0, 0, 0
    row.since = state.peers[PINGS, me] + 1
    row.due = run.at[NOW] + run.ahead[me] + terms.patience
    ask(run, rules, state, terms, me, np.int64(row.other))


@njit_inner
def ask(run: Any, rules: Any, state: Any, terms: Any, me: Any, other: Any) -> Any:
    """The twin of `Pc._ask`."""
    state.peers[PINGS, me] += 1
    which = state.at[PINGED]
    if which == len(state.pings):
        run.at[FULL] = 1
        return
    state.at[PINGED] += 1
    ping = state.pings[which]
    ping[SOURCE], ping[TARGET], ping[NUMBER] = me, other, state.peers[PINGS, me]
    flood_ping(run, rules, state, terms, me, np.int64(-1), which)


@njit_inner
def flood_ping(run: Any, rules: Any, state: Any, terms: Any, me: Any, link: Any, which: Any) -> Any:
    ping = state.pings[which]
    size = 2 + int_bytes(ping[SOURCE]) + int_bytes(ping[TARGET]) + int_bytes(ping[NUMBER])
    if flood(run, rules, state.flood, me, link, PING << KIND | which, size):
        count(run, state, terms, PING, size)


@njit_inner
def control(run: Any, rules: Any, state: Any, terms: Any, me: Any, link: Any, packet: Any) -> Any:
    """The twins of `Pc._pass_on` and `Pc._answered`."""
    what = packet & WHAT
    if packet >> KIND & 3 == PONG:
        opening = opening_to(state, me, link)
        if opening and what >= state.openings.rows[opening].since:
            settle(run, rules, state, terms, me, link, opening)
        return
    ping = state.pings[what]
    source, number = np.int64(ping[SOURCE]), np.int64(ping[NUMBER])
    if source == me or not is_first(run, state, terms, me, source, number):
        return
    if ping[TARGET] != me:
        flood_ping(run, rules, state, terms, me, link, what)
    else:
        place = place_of(state, me, source)
        if place < state.flood.last[me] or opening_to(state, me, source):
            size = 2 + int_bytes(number)
            send(run, rules, state, me, place, PONG << KIND | number, size)
            count(run, state, terms, PONG, size)


@njit_inline
def is_first(run: Any, state: Any, terms: Any, me: Any, source: Any, number: Any) -> Any:
    """The twin of `Pc._is_new`."""
    which = me * (len(state.pinged.base) // len(state.pinging)) + state.pinging[source]
    put_all_to(state.pinged, which, number - terms.recent_pings)
    return put(run.at, state.pinged, which, number)


@njit_inline
def send(run: Any, rules: Any, state: Any, me: Any, place: Any, packet: Any, size: Any) -> Any:
    """Over one link."""
    tagged = state.flood.neighbours[place]
    other = tagged & PEER
    transmit(run, rules, place, me, other, packet | tagged ^ other, size)


@njit_inline
def settle(run: Any, rules: Any, state: Any, terms: Any, me: Any, other: Any, opening: Any) -> Any:
    """The twin of `Pc._settle`; and the buffer is sent."""
    place = use(run, state, me, place_of(state, me, other))
    item = np.int64(state.openings.rows[opening].first)
    while item:
        message = np.int64(state.kept.rows[item].message)
        size = control_bytes(state.flood, terms.head, message)
        send(run, rules, state, me, place, message, size)
        count(run, state, terms, FLOODED, size)
        item = np.int64(state.kept.rows[item].after)
    remove(state, me, opening)


@njit_inner
def change(run: Any, rules: Any, state: Any, terms: Any) -> Any:
    """The twin of `World._change_link`."""
    row = state.changes[state.at[CHANGED]]
    state.at[CHANGED] += 1
    plan_change(run, state)
    here, there = row[1], row[2]
    if not row[3]:
        state.closed[state.flood.neighbours[place_of(state, here, there)] >> TAG] = True
    for _ in range(2):
        place = place_of(state, here, there)
        opening = opening_to(state, here, there)
        safe = place < state.flood.last[here]
        if (safe or opening != 0) == (row[3] != 0):  # it is so already: that the reference refuses
            run.at[FULL] = 1
        elif row[3]:
            opened(run, rules, state, terms, here, there, place)
        elif safe:
            state.flood.last[here] -= 1
            swap(run, state, place, state.flood.last[here])
        else:
            remove(state, here, opening)
        here, there = there, here


@njit_inline
def opened(run: Any, rules: Any, state: Any, terms: Any, me: Any, other: Any, place: Any) -> Any:
    """The twin of `Pc.link_opened`."""
    state.flood.neighbours[place] = other | state.at[CHANGED] << TAG
    if not has_delivered(run, state, me):
        use(run, state, me, place)
        return
    opening = add_opening(run, state, me, other)
    begin(run, rules, state, terms, me, opening)
    if not state.peers[ASKED, me]:
        state.peers[ASKED, me] = 1
        wake_at(run, rules, me, state.openings.rows[opening].due)


@njit_inner
def wake(run: Any, rules: Any, state: Any, terms: Any, me: Any) -> Any:
    """The twin of `Pc.wake`."""
    rows, clock = state.openings.rows, run.at[NOW] + run.ahead[me]
    opening = state.peers[FIRST, me]
    state.peers[ASKED, me] = opening != 0
    soonest = np.int64(1 << 62)
    while opening:
        if rows[opening].due <= clock:
            rows[opening].due = clock + terms.patience
            ask(run, rules, state, terms, me, np.int64(rows[opening].other))
        soonest = min(soonest, rows[opening].due)
        opening = np.int64(rows[opening].after)
    if state.peers[ASKED, me]:
        wake_at(run, rules, me, soonest)
