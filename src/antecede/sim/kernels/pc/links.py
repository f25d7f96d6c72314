"""The links of `pc`: those that are safe, those that are opening, and what is buffered for them.

Every link that is ever open has its place among its peer's neighbours from the start: first those that are
safe, which are flooded, then the others; a link that becomes safe, or closes, changes places. Each opening of
a link is a *channel*, and every packet carries the number of its channel. Each peer's links that are opening
are in a list, in the order in which they were opened, because that is the order of pings that are sent in one
instant. The order in which the copies of one packet are sent makes no difference.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from antecede.jit import njit_inline
from antecede.sim.kernels.flooding import event as flooding
from antecede.sim.kernels.flooding.event import TAG
from antecede.sim.kernels.runtime.bit_window import BitWindows, create_windows
from antecede.sim.kernels.runtime.pool import ItemPool, create_items, free_item, new_item
from antecede.sim.kernels.runtime.world_state import FULL
from antecede.sim.scenario import Scenario

FLOODED, PING, PONG = range(3)
KINDS = ("flooded", "ping", "pong")
KIND, WHAT = 32, (1 << 32) - 1
"""In the bits of a packet: its kind, and below that the place of a message or ping, or the number of a
pong."""
PEER = (1 << TAG) - 1

CHANGES, PINGS_USED = range(2)
"""Places in `PcState.scalars`: how many links have changed, and how many pings there are."""
FIRST, LAST, PINGS, ALARM_SET = range(4)
"""Rows of `PcState.peers`: first and last link that is opening, pings sent, and whether an alarm is set."""
SOURCE, TARGET, NUMBER = range(3)
"""Columns of `PcState.pings`."""

_MAX_PINGS = 1 << 24
_MAX_OPENINGS = 1 << 20
_MAX_BUFFERED = 1 << 26
_OPENING: list[tuple[str, type[np.generic]]] = [
    ("after", np.int32),
    ("other", np.int32),
    ("first", np.int32),
    ("last", np.int32),
    ("size", np.int64),
    ("since", np.int64),
    ("due", np.int64),
]
"""`after`: the next at its peer. `other`: the peer at its far end. `first`, `last`, `size`: its buffer.
`since`: the first ping whose pong counts. `due`: when the ping is repeated."""
_BUFFERED: list[tuple[str, type[np.generic]]] = [("after", np.int32), ("message", np.int32)]


class PcParams(NamedTuple):
    """What does not change in a run."""

    head: int
    most_buffered: int
    patience: int
    recent_pings: int
    since: int
    """The time from which probes measure."""


class PcState(NamedTuple):
    flood: flooding.FloodingState
    scalars: np.ndarray
    changes: np.ndarray
    """The schedule: time, two peers, and whether their link opens or closes."""
    closed: np.ndarray
    """Whether each channel has closed; the first is that of all links that never change."""
    peers: np.ndarray
    openings: ItemPool
    buffered: ItemPool
    """Messages in buffers."""
    pings: np.ndarray
    pinger: np.ndarray
    """The index of each peer among those that ever send pings; -1 if it never does."""
    seen_pings: BitWindows
    """For each peer, the pings of those peers that it has seen."""
    costs: np.ndarray
    """For each kind of packet: how many, and their bytes; empty if the probe is off."""


def create_state(
    scenario: Scenario, overlay: Sequence[Sequence[int]], recent_pings: int, words: int
) -> PcState:
    """Before anything happens."""
    # In the order in which the world processes changes of one instant, not in that of planning.
    changes = sorted(scenario.link_changes(overlay))
    others: list[list[int]] = [[] for _ in range(scenario.peers)]
    for one, other in sorted({(change.one, change.other) for change in changes}):
        others[one].append(other)
        others[other].append(one)
    # Links that are not open yet are placed behind those that are.
    places = [[*here, *more] for here, more in zip(overlay, others, strict=True)]
    first = np.cumsum([0, *map(len, places)])
    last = first[:-1] + np.array([*map(len, overlay)], np.int64)
    neighbours = np.array([peer for row in places for peer in row], np.int64)
    pinging = [peer for peer, links in enumerate(others) if links]
    columns = np.full(scenario.peers, -1, np.int32)
    columns[pinging] = np.arange(len(pinging))
    return PcState(
        flood=flooding.create_state(scenario, first, last, neighbours, words),
        scalars=np.zeros(2, np.int64),
        changes=np.array(changes, np.int64).reshape(-1, 4),
        closed=np.zeros(len(changes) + 1, np.bool_),
        peers=np.zeros((4, scenario.peers), np.int64),
        openings=create_items(_OPENING, _MAX_OPENINGS),
        buffered=create_items(_BUFFERED, _MAX_BUFFERED),
        pings=np.empty((_MAX_PINGS, 3), np.int32),
        pinger=columns,
        seen_pings=create_windows(scenario.peers * len(pinging), recent_pings),
        costs=np.zeros((len(KINDS) if scenario.probes else 0, 2), np.int64),
    )


@njit_inline
def add_opening(world: Any, state: Any, me: Any, other: Any) -> Any:
    """Append a link to those of `me` that are opening."""
    rows, peers = state.openings.rows, state.peers
    opening = new_item(world, state.openings)
    rows[opening].after, rows[opening].other = 0, other
    if peers[FIRST, me] and not world.scalars[FULL]:
        rows[peers[LAST, me]].after = opening
    else:
        peers[FIRST, me] = opening
    peers[LAST, me] = opening
    return opening


@njit_inline
def buffer(world: Any, state: Any, opening: Any, message: Any) -> Any:
    """Buffer a message for a link that is opening."""
    row, buffered = state.openings.rows[opening], state.buffered.rows
    item = new_item(world, state.buffered)
    buffered[item].message, buffered[item].after = message, 0
    if row.first and not world.scalars[FULL]:
        buffered[row.last].after = item
    else:
        row.first = item
    row.last = item
    row.size += 1


@njit_inline
def opening_to(state: Any, me: Any, other: Any) -> Any:
    """The opening of the link from `me` to `other`; 0 if it is not opening."""
    rows = state.openings.rows
    opening = state.peers[FIRST, me]
    while opening and rows[opening].other != other:
        opening = np.int64(rows[opening].after)
    return opening


@njit_inline
def remove_opening(state: Any, me: Any, opening: Any) -> Any:
    """A link is no longer opening: drop it and its buffer."""
    rows, peers = state.openings.rows, state.peers
    clear_buffer(state, opening)
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


@njit_inline
def clear_buffer(state: Any, opening: Any) -> Any:
    """Drop what is in a buffer."""
    item = np.int64(state.openings.rows[opening].first)
    while item:
        after = np.int64(state.buffered.rows[item].after)
        free_item(state.buffered, item)
        item = after


@njit_inline
def link_place(state: Any, me: Any, other: Any) -> Any:
    """The place of `other` among the neighbours of `me`, whether their link is open or not."""
    place = state.flood.first[me]
    while state.flood.neighbours[place] & PEER != other:
        place += 1
    return place


@njit_inline
def mark_safe(world: Any, state: Any, me: Any, place: Any) -> Any:
    """A link becomes safe; returns its new place."""
    last = state.flood.last[me]
    state.flood.last[me] += 1
    swap_links(world, state, place, last)
    return last


@njit_inline
def swap_links(world: Any, state: Any, one: Any, other: Any) -> Any:
    """Swap the places of two links of a peer, with all that the network keeps for them."""
    links, packets, last = state.flood.neighbours, world.link_packets, world.link_last
    links[one], links[other] = links[other], links[one]
    packets[one], packets[other] = packets[other], packets[one]
    if len(last):
        last[one], last[other] = last[other], last[one]


@njit_inline
def has_delivered(world: Any, state: Any, me: Any) -> Any:
    """Whether a peer has delivered anything, its own messages included."""
    found = world.messages[me] > 0
    for column in range(state.flood.delivered.shape[1]):
        found |= state.flood.delivered[me, column] > 0
        if state.flood.bits.shape[2]:
            found |= state.flood.last_number[me, column] > 0
    return found
