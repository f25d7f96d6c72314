"""The links of `pc`: those that are safe, those that are opening and what is kept for them.

Every link that is ever open has its place among its peer's neighbours from the start: first those that are
safe, which are flooded, then the others; a link that changes sides changes places. Each opening of a link is
a *channel*, whose number all packets over it bear. Each peer's links that are opening are in a chain, in the
order in which they were opened, because that is the order of pings that are sent at once. In what order the
copies of one packet are sent nobody can tell.
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
"""In a packet's bits: its kind, and below that which message or ping it is, or a pong's number."""
PEER = (1 << TAG) - 1

CHANGED, PINGED = range(2)
"""In `State.at`: how many links have changed, and how many pings there are."""
FIRST, LAST, PINGS, ASKED = range(4)
"""In `State.peers`: the first and last link that is opening, pings, and whether there is an alarm."""
SOURCE, TARGET, NUMBER = range(3)
"""In `State.pings`."""

_MAX_PINGS = 1 << 24
_MAX_OPENINGS = 1 << 20
_MAX_KEPT = 1 << 26
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


class PcParams(NamedTuple):
    """What does not change in a run."""

    head: int
    most_buffered: int
    patience: int
    recent_pings: int
    since: int
    """When the probe begins."""


class PcState(NamedTuple):
    flood: flooding.FloodingState
    scalars: np.ndarray
    changes: np.ndarray
    """A time, two peers and whether their link opens."""
    closed: np.ndarray
    """Whether each channel has closed; the first is that of links that never do."""
    peers: np.ndarray
    openings: ItemPool
    kept: ItemPool
    """What is in buffers."""
    pings: np.ndarray
    pinging: np.ndarray
    """The place of each peer among those that ever send pings."""
    pinged: BitWindows
    """Of each peer, what it has had of each of those."""
    costs: np.ndarray
    """Of each kind of packet: how many, and their bytes; empty if nobody asks."""


def create_state(
    scenario: Scenario, overlay: Sequence[Sequence[int]], recent_pings: int, words: int
) -> PcState:
    """Before anything happens."""
    # In the order in which the world takes those of one instant, which is not the one they were planned in.
    changes = sorted(scenario.link_changes(overlay))
    others: list[list[int]] = [[] for _ in range(scenario.peers)]
    for one, other in sorted({(change.one, change.other) for change in changes}):
        others[one].append(other)
        others[other].append(one)
    # Those that are not open yet have their places behind those that are.
    places = [[*here, *more] for here, more in zip(overlay, others, strict=True)]
    first = np.cumsum([0, *map(len, places)])
    last = first[:-1] + np.array([*map(len, overlay)], np.int64)
    neighbours = np.array([peer for those in places for peer in those], np.int64)
    pinging = [peer for peer, those in enumerate(others) if those]
    columns = np.full(scenario.peers, -1, np.int32)
    columns[pinging] = np.arange(len(pinging))
    return PcState(
        flood=flooding.create_state(scenario, first, last, neighbours, words),
        scalars=np.zeros(2, np.int64),
        changes=np.array(changes, np.int64).reshape(-1, 4),
        closed=np.zeros(len(changes) + 1, np.bool_),
        peers=np.zeros((4, scenario.peers), np.int64),
        openings=create_items(_OPENING, _MAX_OPENINGS),
        kept=create_items(_KEPT, _MAX_KEPT),
        pings=np.empty((_MAX_PINGS, 3), np.int32),
        pinging=columns,
        pinged=create_windows(scenario.peers * len(pinging), recent_pings),
        costs=np.zeros((len(KINDS) if scenario.probes else 0, 2), np.int64),
    )


@njit_inline
def add_opening(world: Any, state: Any, me: Any, other: Any) -> Any:
    """A link begins to open, behind all others of `me` that do."""
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
    """Keep a message for a link that is opening."""
    row, kept = state.openings.rows[opening], state.kept.rows
    item = new_item(world, state.kept)
    kept[item].message, kept[item].after = message, 0
    if row.first and not world.scalars[FULL]:
        kept[row.last].after = item
    else:
        row.first = item
    row.last = item
    row.size += 1


@njit_inline
def opening_to(state: Any, me: Any, other: Any) -> Any:
    """The link from `me` to `other` if it is opening; else 0."""
    rows = state.openings.rows
    opening = state.peers[FIRST, me]
    while opening and rows[opening].other != other:
        opening = np.int64(rows[opening].after)
    return opening


@njit_inline
def remove_opening(state: Any, me: Any, opening: Any) -> Any:
    """A link is no longer opening, and has no buffer."""
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
    """What is in a buffer."""
    item = np.int64(state.openings.rows[opening].first)
    while item:
        after = np.int64(state.kept.rows[item].after)
        free_item(state.kept, item)
        item = after


@njit_inline
def link_place(state: Any, me: Any, other: Any) -> Any:
    """Where among its neighbours `me` has `other`, whether their link is open or not."""
    place = state.flood.first[me]
    while state.flood.neighbours[place] & PEER != other:
        place += 1
    return place


@njit_inline
def mark_safe(world: Any, state: Any, me: Any, place: Any) -> Any:
    """A link is safe: where it is now."""
    last = state.flood.last[me]
    state.flood.last[me] += 1
    swap_links(world, state, place, last)
    return last


@njit_inline
def swap_links(world: Any, state: Any, one: Any, other: Any) -> Any:
    """Two links of a peer change places, with all that the network knows of them."""
    links, packets, last = state.flood.neighbours, world.link_packets, world.link_last
    links[one], links[other] = links[other], links[one]
    packets[one], packets[other] = packets[other], packets[one]
    if len(last):
        last[one], last[other] = last[other], last[one]


@njit_inline
def has_delivered(world: Any, state: Any, me: Any) -> Any:
    """Anything at all, its own messages included."""
    found = world.messages[me] > 0
    for column in range(state.flood.solid.shape[1]):
        found |= state.flood.solid[me, column] > 0
        if state.flood.beyond.shape[2]:
            found |= state.flood.top[me, column] > 0
    return found
