"""The twin of `protocols/pc.py`, but for newcomers, which no scenario has.

Messages are flooded as in `flooding`. Every link that is ever open has its place among its peer's neighbours
from the start: first those that are safe, which are flooded, then the others; a link that changes sides
changes places. Each opening of a link is a *channel*, whose number all packets over it bear. What is under
way on a channel that closes stays in the calendar, and when it comes, it is as if nothing had.

In the order of links that are opening (`Openings`) there are pings when several are sent at once; in what
order copies of one packet are sent nobody can tell. Memory is that of flooding, and peers × those that ever
open a link, 16 bytes and bits for as many pings as are told apart.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

import numpy as np

from antecede.protocols.pc import Overlay, Pc
from antecede.sim.kernels import events, flooding
from antecede.sim.kernels.events import (
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
from antecede.sim.kernels.flooding import TAG, control_bytes, flood, is_new, new_message, take
from antecede.sim.kernels.jit import loop, part, step
from antecede.sim.kernels.pools import Items, free_item, items, new_item
from antecede.sim.kernels.sizes import int_bytes, payload_head
from antecede.sim.kernels.windows import Windows, put, put_all_to, windows
from antecede.sim.metrics import Metrics
from antecede.sim.scenario import Scenario
from antecede.sim.units import SECOND
from antecede.sim.world import Observer

FLOODED, PING, PONG = range(3)
_KINDS = ("flooded", "ping", "pong")
_KIND, _WHAT = 32, (1 << 32) - 1
"""In a packet's bits: its kind, and below that which message or ping it is, or a pong's number."""
_PEER = (1 << TAG) - 1

CHANGED, PINGED = range(2)
"""In `State.at`: how many links have changed, and how many pings there are."""
FIRST, LAST, PINGS, ASKED = range(4)
"""In `State.peers`: the first and last link that is opening, pings, and whether there is an alarm."""
SOURCE, TARGET, NUMBER = range(3)
"""In `State.pings`."""

_MOST_PINGS = 1 << 24
_MOST_PAIRS = 1 << 27
"""Peers × those that send pings."""
_OPENING: list[tuple[str, type[np.generic]]] = [
    ("after", np.int32),
    ("other", np.int32),
    ("first", np.int32),
    ("last", np.int32),
    ("size", np.int64),
    ("since", np.int64),
    ("due", np.int64),
]
"""Which is next at its peer, to whom it is, the first and last of its buffer and how many there are, and as
in `protocols.pc.Opening`."""
_KEPT: list[tuple[str, type[np.generic]]] = [("after", np.int32), ("message", np.int32)]


class Terms(NamedTuple):
    """What does not change in a run."""

    head: int
    most_buffered: int
    patience: int
    recent_pings: int
    since: int
    """When the probe begins."""


class State(NamedTuple):
    flood: flooding.State
    at: np.ndarray
    changes: np.ndarray
    """A time, two peers and whether their link opens."""
    closed: np.ndarray
    """Whether each channel has closed; the first is that of links that never do."""
    peers: np.ndarray
    openings: Items
    kept: Items
    """What is in buffers."""
    pings: np.ndarray
    pinging: np.ndarray
    """The place of each peer among those that ever send pings."""
    pinged: Windows
    """Of each peer, what it has had of each of those."""
    costs: np.ndarray
    """Of each kind of packet: how many, and their bytes; empty if nobody asks."""


def unfit(given: Scenario) -> str:
    """Why a run cannot be done so; nothing if it can."""
    if given.peers * min(given.peers, 2 * (given.churn or 0) * given.seconds) > _MOST_PAIRS:
        return "too many peers have to remember the pings of too many others"
    return flooding.unfit(given, ("costs",))


def run(given: Scenario, observers: Sequence[Observer], progress: Callable[[float], None] | None) -> Metrics:
    return flooding.with_room(given, observers, progress, _attempt)


def _attempt(
    given: Scenario, observers: Sequence[Observer], progress: Callable[[float], None] | None, words: int
) -> Metrics:
    kind = cast(type[Pc], given.protocol_class())
    terms = Terms(
        payload_head(given.payload), kind.most_buffered, kind.patience, kind.recent_pings,
        round(given.warmup * SECOND),
    )  # fmt: skip
    overlay = cast(Overlay, given.arrangement()).joins(given.peers)
    state = _fresh(given, overlay, kind.recent_pings, words)
    links = sum(map(len, overlay))
    made, rules = events.fresh(given, len(state.flood.neighbours), links, bool(observers))
    plan_change(made, state)
    events.drive(made, rules, lambda count: advance(made, rules, state, terms, count), observers, progress)
    return events.metrics(made, 0, _measured(state, made.at[SAMPLES] > 0) if given.probes else {})


def _fresh(given: Scenario, overlay: Sequence[Sequence[int]], recent_pings: int, words: int) -> State:
    """Before anything happens."""
    # In the order in which the world takes those of one instant, which is not the one they were planned in.
    changes = sorted(given.link_changes(overlay))
    others: list[list[int]] = [[] for _ in range(given.peers)]
    for one, other in sorted({(change.one, change.other) for change in changes}):
        others[one].append(other)
        others[other].append(one)
    # Those that are not open yet have their places behind those that are.
    places = [[*here, *more] for here, more in zip(overlay, others, strict=True)]
    first = np.cumsum([0, *map(len, places)])
    last = first[:-1] + np.array([*map(len, overlay)], np.int64)
    neighbours = np.array([peer for those in places for peer in those], np.int64)
    pinging = [peer for peer, those in enumerate(others) if those]
    columns = np.full(given.peers, -1, np.int32)
    columns[pinging] = np.arange(len(pinging))
    return State(
        flood=flooding.fresh(given, first, last, neighbours, words),
        at=np.zeros(2, np.int64),
        changes=np.array(changes, np.int64).reshape(-1, 4),
        closed=np.zeros(len(changes) + 1, np.bool_),
        peers=np.zeros((4, given.peers), np.int64),
        openings=items(_OPENING),
        kept=items(_KEPT),
        pings=np.empty((_MOST_PINGS, 3), np.int32),
        pinging=columns,
        pinged=windows(given.peers * len(pinging), recent_pings),
        costs=np.zeros((len(_KINDS) if given.probes else 0, 2), np.int64),
    )


def _measured(state: State, sampled: bool) -> dict[str, float]:
    """The twin of `probes.Costs`: on paper every packet has 4 bytes, and nothing is kept."""
    found: dict[str, float] = {"member_storage": 0.0} if sampled else {}
    for name, (count, wire) in zip(_KINDS, state.costs.tolist(), strict=True):
        if count:
            found |= {
                f"{name}_packets": count,
                f"{name}_paper_bytes": 4.0,
                f"{name}_wire_bytes": wire / count,
            }
    return found


@loop
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
            elif packet >> _KIND & 3 == FLOODED:
                receive(run, rules, state, terms, me, link, packet & _WHAT)
            else:
                control(run, rules, state, terms, me, link, packet)
        elif kind == WAKE:
            wake(run, rules, state, terms, me)
        elif kind == CHANGE:
            change(run, rules, state, terms)
    return True


@loop
def plan_change(run: Any, state: Any) -> Any:
    """An alarm for the next change of a link."""
    if state.at[CHANGED] < len(state.changes):
        alarm(run, state.changes[state.at[CHANGED], 0], CHANGE, 0)


@step
def broadcast(run: Any, rules: Any, state: Any, terms: Any, me: Any) -> Any:
    """The twin of `Pc.broadcast`."""
    message = new_message(run, state.flood, terms.head, me)
    if message >= 0:
        pass_on(run, rules, state, terms, me, np.int64(-1), message)


@step
def pass_on(run: Any, rules: Any, state: Any, terms: Any, me: Any, link: Any, message: Any) -> Any:
    """Over safe links, and into the buffers for those that are opening."""
    size = control_bytes(state.flood, terms.head, message)
    if flood(run, rules, state.flood, me, link, message, size):
        count(run, state, terms, FLOODED, size)
    if state.peers[FIRST, me]:
        keep(run, rules, state, terms, me, link, message)


@step
def count(run: Any, state: Any, terms: Any, kind: Any, size: Any) -> Any:
    """For the probe, which counts a packet once however many get it."""
    if len(state.costs) and run.at[NOW] >= terms.since:
        state.costs[kind, 0] += 1
        state.costs[kind, 1] += size


@step
def receive(run: Any, rules: Any, state: Any, terms: Any, me: Any, link: Any, message: Any) -> Any:
    """The twin of `Pc.receive` for a message, and of the delivery that follows the first."""
    if not is_new(run, state.flood, me, link, message):
        return
    pass_on(run, rules, state, terms, me, link, message)
    if take(run, rules, state.flood, me, message):
        broadcast(run, rules, state, terms, me)


@part
def keep(run: Any, rules: Any, state: Any, terms: Any, me: Any, source: Any, message: Any) -> Any:
    """The twin of `Pc._keep`."""
    rows, kept = state.openings.rows, state.kept
    opening = state.peers[FIRST, me]
    while opening:
        if rows[opening].other != source:
            item = new_item(run, kept)
            if run.at[FULL]:
                return
            kept.rows[item].message, kept.rows[item].after = message, 0
            if rows[opening].first:
                kept.rows[rows[opening].last].after = item
            else:
                rows[opening].first = item
            rows[opening].last = item
            rows[opening].size += 1
            if rows[opening].size > terms.most_buffered:
                throw_away(state, opening)
                begin(run, rules, state, terms, me, opening)
        opening = np.int64(rows[opening].after)


@step
def throw_away(state: Any, opening: Any) -> Any:
    """What is in a buffer."""
    item = np.int64(state.openings.rows[opening].first)
    while item:
        after = np.int64(state.kept.rows[item].after)
        free_item(state.kept, item)
        item = after


@step
def begin(run: Any, rules: Any, state: Any, terms: Any, me: Any, opening: Any) -> Any:
    """The twin of `Pc._begin`."""
    row = state.openings.rows[opening]
    row.first, row.last, row.size = 0, 0, 0
    row.since = state.peers[PINGS, me] + 1
    row.due = run.at[NOW] + run.ahead[me] + terms.patience
    ask(run, rules, state, terms, me, np.int64(row.other))


@part
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


@part
def flood_ping(run: Any, rules: Any, state: Any, terms: Any, me: Any, link: Any, which: Any) -> Any:
    ping = state.pings[which]
    size = 2 + int_bytes(ping[SOURCE]) + int_bytes(ping[TARGET]) + int_bytes(ping[NUMBER])
    if flood(run, rules, state.flood, me, link, PING << _KIND | which, size):
        count(run, state, terms, PING, size)


@part
def control(run: Any, rules: Any, state: Any, terms: Any, me: Any, link: Any, packet: Any) -> Any:
    """The twins of `Pc._pass_on` and `Pc._answered`."""
    what = packet & _WHAT
    if packet >> _KIND & 3 == PONG:
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
            send(run, rules, state, me, place, PONG << _KIND | number, size)
            count(run, state, terms, PONG, size)


@step
def is_first(run: Any, state: Any, terms: Any, me: Any, source: Any, number: Any) -> Any:
    """The twin of `Pc._is_new`."""
    which = me * (len(state.pinged.base) // len(state.pinging)) + state.pinging[source]
    put_all_to(state.pinged, which, number - terms.recent_pings)
    return put(run.at, state.pinged, which, number)


@step
def send(run: Any, rules: Any, state: Any, me: Any, place: Any, packet: Any, size: Any) -> Any:
    """Over one link."""
    tagged = state.flood.neighbours[place]
    other = tagged & _PEER
    transmit(run, rules, place, me, other, packet | tagged ^ other, size)


@step
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


@step
def opening_to(state: Any, me: Any, other: Any) -> Any:
    """The link from `me` to `other` if it is opening; else 0."""
    rows = state.openings.rows
    opening = state.peers[FIRST, me]
    while opening and rows[opening].other != other:
        opening = np.int64(rows[opening].after)
    return opening


@step
def remove(state: Any, me: Any, opening: Any) -> Any:
    """A link is no longer opening, and has no buffer."""
    rows, peers = state.openings.rows, state.peers
    throw_away(state, opening)
    before, here = np.int64(0), peers[FIRST, me]
    while here != opening:
        before, here = here, np.int64(rows[here].after)
    after = np.int64(rows[opening].after)
    if before:
        rows[before].after = after
    else:
        peers[FIRST, me] = after
    if not after:
        peers[LAST, me] = before
    free_item(state.openings, opening)


@step
def place_of(state: Any, me: Any, other: Any) -> Any:
    """Where among its neighbours `me` has `other`, whether their link is open or not."""
    place = state.flood.first[me]
    while state.flood.neighbours[place] & _PEER != other:
        place += 1
    return place


@step
def use(run: Any, state: Any, me: Any, place: Any) -> Any:
    """A link is safe: where it is now."""
    last = state.flood.last[me]
    state.flood.last[me] += 1
    swap(run, state, place, last)
    return last


@step
def swap(run: Any, state: Any, one: Any, other: Any) -> Any:
    """Two links of a peer change places, with all that the network knows of them."""
    links, packets, last = state.flood.neighbours, run.link_packets, run.link_last
    links[one], links[other] = links[other], links[one]
    packets[one], packets[other] = packets[other], packets[one]
    if len(last):
        last[one], last[other] = last[other], last[one]


@part
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


@step
def opened(run: Any, rules: Any, state: Any, terms: Any, me: Any, other: Any, place: Any) -> Any:
    """The twin of `Pc.link_opened`."""
    state.flood.neighbours[place] = other | state.at[CHANGED] << TAG
    if not has_delivered(run, state, me):
        use(run, state, me, place)
        return
    rows, peers = state.openings.rows, state.peers
    opening = new_item(run, state.openings)
    if run.at[FULL]:
        return
    rows[opening].after, rows[opening].other = 0, other
    if peers[FIRST, me]:
        rows[peers[LAST, me]].after = opening
    else:
        peers[FIRST, me] = opening
    peers[LAST, me] = opening
    begin(run, rules, state, terms, me, opening)
    if not peers[ASKED, me]:
        peers[ASKED, me] = 1
        wake_at(run, rules, me, rows[opening].due)


@step
def has_delivered(run: Any, state: Any, me: Any) -> Any:
    """Anything at all, its own messages included."""
    found = run.messages[me] > 0
    for column in range(state.flood.solid.shape[1]):
        found |= state.flood.solid[me, column] > 0
        if state.flood.beyond.shape[2]:
            found |= state.flood.top[me, column] > 0
    return found


@part
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
