"""The twin of `sim/network/routed.py`: store-and-forward over links with queues, unicast or down multicast
trees.

Here a link is one direction between two nodes. Fragments reach its far end in the order in which they
joined its queue, never two at once. So only the first fragment of each link is in the calendar, however
long the queue; the others follow in a list. This requires every fragment to take some time (`supports`).

Packets from one peer to another always take the same path, so no two of them arrive at once, and arrivals
need no numbers to be in order. Fragments passing through a node need them: they may have come by different
links.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from antecede.jit import njit_hot, njit_inline
from antecede.sim.kernels.contract import Unsupported
from antecede.sim.kernels.runtime import agenda
from antecede.sim.kernels.runtime.calendar import arrival_order, plan_arrival
from antecede.sim.kernels.runtime.pool import ItemPool, create_items, free_item, new_item
from antecede.sim.kernels.runtime.world_state import ARRIVAL, FULL, LINK_BYTES, NOTHING, NOW, PACKETS
from antecede.sim.network import reach
from antecede.sim.network.routed import Branch, RoutedModel, RoutedNetwork
from antecede.sim.scenario import Scenario

_NODE_BITS, _NUMBER_BITS = 12, 38
_THROUGH = np.int64(-1 << 63)
"""Added to the key that orders fragments passing through a node: they come before the arrivals of their
instant."""
_MAX_FRAGMENTS = 1 << 25
_LATEST = 1 << 61
"""In nanoseconds: no fragment leaves later, and sums of times carry over at this value."""
(
    _NUMBERS,
    _FRAGMENTS,
    _BYTES,
    _HOPS,
    _LONGEST_QUEUE,
    _LONGEST_QUEUE_AT,
    _TIME,
    _TIME_CARRIES,
    _SCALARS,
) = range(9)
_HEAD, _TAIL, _LEAVING, _QUEUED, _BUSY_UNTIL, _PROPAGATION, _FROM, _TO = range(8)
"""Columns of `RoutedState.links`: the first and last fragment, 0 if there is none; the first that may not
have left the near end yet, and how many follow from there; when the last will have left; propagation time;
the two nodes."""
_LINK, _TARGET, _FIRST, _END = range(4)
"""Columns of `RoutedState.branches`: link, whether its far node is a destination, and the branches that go
on there."""
_FINAL, _ARRIVES = 1, 2

_FRAGMENT: list[tuple[str, type[np.generic]]] = [
    ("leaves_at", np.int64),
    ("transmission", np.int64),
    ("number", np.int64),
    ("packet", np.int32),
    ("source", np.int32),
    ("branch", np.int32),
    ("after", np.int32),
]
"""`leaves_at`: when it will have left the near end of its link. `transmission`: how long it takes onto a
link. `number`: its number, above two bits: the packet's last fragment (`_FINAL`), arrives at the far end
(`_ARRIVES`). `branch`: its branch of the tree; without multicast, its destination. `after`: the next
fragment on its link."""

Audience = tuple[int, tuple[int, ...]]
"""A source, and the destinations of one packet of it."""


class RoutedState(NamedTuple):
    scalars: np.ndarray
    """Single numbers: the network's counts."""
    links: np.ndarray
    fragments: ItemPool
    next_links: np.ndarray
    """The link to take from each node to each other."""
    branches: np.ndarray
    roots: np.ndarray
    """Of each audience: first and end of the branches at its source, and how many destinations it has."""
    multicast: bool
    ns_per_byte: float
    header: int
    max_payload: int


def supports(scenario: Scenario) -> Unsupported | None:
    """Why a scenario's routed network is not supported; None if it is, or if the network is another."""
    model = scenario.network
    if not isinstance(model, RoutedModel):
        return None
    if scenario.peers >= 1 << _NODE_BITS:
        return Unsupported("routes between so many nodes take too much memory")
    if round((model.header + 1) * (8e9 / model.bits_per_second)) < 1:
        return Unsupported("fragments take no time, so they do not keep their order")
    return None


def create_state(
    scenario: Scenario, audiences: Callable[[], Iterable[Audience]]
) -> tuple[RoutedState | None, Any]:
    """The network of a run, with multicast trees for these audiences, and the reference's own network,
    which reports its metrics; None if the network is another."""
    if not isinstance(scenario.network, RoutedModel):
        return None, None
    twin = scenario.network.build(scenario.peers, scenario.seed)
    first = np.cumsum([0, *map(len, twin.graph)])
    others = np.array([other for neighbours in twin.graph for other in neighbours], np.int32)
    links = np.zeros((len(others), 8), np.int64)
    links[:, _PROPAGATION] = [link.propagation for link in twin.links.values()]
    links[:, _FROM], links[:, _TO] = np.repeat(np.arange(scenario.peers), np.diff(first)), others
    next_links = np.full((scenario.peers, scenario.peers), -1, np.int32)
    _shortest_paths(first, others, next_links, np.empty((2, scenario.peers), np.int32))
    scalars = np.zeros(_SCALARS, np.int64)
    branches, roots = _flatten_trees(twin, next_links, others, audiences() if twin.multicast else ())
    fragments = create_items(_FRAGMENT, _MAX_FRAGMENTS)
    state = RoutedState(
        scalars, links, fragments, next_links, branches, roots,
        twin.multicast, twin.ns_per_byte, twin.header, twin.max_payload,
    )  # fmt: skip
    return state, twin


@njit_hot
def _shortest_paths(first: Any, others: Any, next_links: Any, scratch: Any) -> Any:
    """Breadth-first search from every peer: the twin of `RoutedNetwork._next_hops_to`."""
    far, queue = scratch[0], scratch[1]
    for peer in range(len(next_links)):
        for node in range(len(next_links)):
            far[node] = -1
        far[peer], queue[0] = 0, peer
        done, reached = 0, 1
        while done < reached:
            node = queue[done]
            done += 1
            for link in range(first[node], first[node + 1]):
                other = others[link]
                if far[other] < 0:
                    far[other] = far[node] + 1
                    queue[reached] = other
                    reached += 1
        for node in range(len(next_links)):
            for link in range(first[node], first[node + 1]):
                if far[others[link]] == far[node] - 1:
                    next_links[node, peer] = link
                    break


def _flatten_trees(
    twin: RoutedNetwork, next_links: np.ndarray, others: np.ndarray, audiences: Iterable[Audience]
) -> tuple[np.ndarray, np.ndarray]:
    """The reference's trees as rows; the branches that go on from a branch are adjacent."""
    rows: list[list[int]] = []
    places: dict[int, tuple[int, int]] = {}

    def flat(branches: tuple[Branch, ...]) -> tuple[int, int]:
        place = places.get(id(branches))
        if place is None:
            beyond = [flat(branch.branches) for branch in branches]
            start = len(rows)
            for branch, (here, end) in zip(branches, beyond, strict=True):
                link = int(next_links[branch.link.start, branch.node])
                rows.append([link, branch.is_destination, here, end])
            place = places[id(branches)] = start, len(rows)
        return place

    roots = []
    for source, to in audiences:
        if to and not twin.next_hops:  # It would compute the same, but more slowly.
            hops = np.where(next_links < 0, np.arange(len(next_links))[:, None], others[next_links])
            twin.next_hops = dict(enumerate(hops.T.tolist()))
        roots.append([*flat(twin.tree(source, to)), len(to)])
    return np.array(rows, np.int32).reshape(-1, 4), np.array(roots, np.int32).reshape(-1, 3)


def pace(scenario: Scenario, network: RoutedState | None, control: int) -> tuple[float, int] | None:
    """What `create_world` needs to know: events a nanosecond if all links are busy, and the longest time a
    fragment takes. `control` is about how many bytes a packet has besides its payload."""
    if network is None or not isinstance(scenario.network, RoutedModel):
        return None
    usual = min(scenario.payload + control, network.max_payload) + network.header
    rate = len(network.links) / (usual * network.ns_per_byte)
    most = (network.max_payload + network.header) * network.ns_per_byte
    return max(1e-9, rate), round(most) + reach(scenario.network.delay)


def measured(network: RoutedState | None, twin: Any, duration: int) -> dict[str, float]:
    """The metrics, as the reference reports them; nothing for other networks."""
    if network is None:
        return {}
    counts = [int(value) for value in network.scalars[_FRAGMENTS:]]
    twin.fragments, twin.sent_bytes, twin.hops, twin.longest_queue, twin.longest_queue_at = counts[:5]
    twin.time_on_links = counts[5] + counts[6] * _LATEST
    found: dict[str, float] = twin.figures(duration)
    return found


@njit_inline
def next_event(world: Any, rules: Any, routes: Any) -> Any:
    """`agenda.next_event`, after all hops of fragments that come before it."""
    if routes is None:
        return agenda.next_event(world, rules)
    while True:
        kind, peer, source, what = agenda.next_event(world, rules)
        if kind > ARRIVAL or kind == NOTHING:
            return kind, peer, source, what
        if what < 0:
            return kind, peer, source, ~what
        fragment = routes.links[what, _HEAD]
        row = routes.fragments.rows[fragment]
        packet, branch = np.int64(row.packet), row.branch
        transmission, final = row.transmission, row.number & _FINAL
        sender = row.source
        dequeue(world, rules, routes, what, fragment)
        if kind == ARRIVAL:
            return kind, peer, source, packet
        forward(world, rules, routes, routes.links[what, _TO], sender, packet, branch, transmission, final)


@njit_inline
def dequeue(world: Any, rules: Any, routes: Any, link: Any, fragment: Any) -> Any:
    """The first fragment of a link has reached its far end."""
    here, row = routes.links[link], routes.fragments.rows[fragment]
    after = row.after
    if here[_LEAVING] == fragment:
        here[_LEAVING] = after
        here[_QUEUED] -= 1
    here[_HEAD] = after
    if after:
        plan_head(world, rules, routes, link, after)
    else:
        here[_TAIL] = 0
    free_item(routes.fragments, fragment)


@njit_inline
def plan_head(world: Any, rules: Any, routes: Any, link: Any, fragment: Any) -> Any:
    """A fragment is now the first of its link: plan when it reaches the far end."""
    here, row = routes.links[link], routes.fragments.rows[fragment]
    source, node = np.int64(row.source), here[_TO]
    if row.number & _ARRIVES:
        order = arrival_order(source, node, 0)
    else:
        order = _THROUGH | (node << _NODE_BITS | source) << _NUMBER_BITS | row.number >> 2
    plan_arrival(world, rules, row.leaves_at + here[_PROPAGATION], order, link)


@njit_inline
def forward(
    world: Any,
    rules: Any,
    routes: Any,
    node: Any,
    source: Any,
    packet: Any,
    branch: Any,
    transmission: Any,
    final: Any,
) -> Any:
    """The twin of `RoutedNetwork.forward`, for a fragment that has reached a node."""
    if routes.multicast:
        here = routes.branches[branch]
        if final and here[_TARGET]:
            plan_arrival(world, rules, world.scalars[NOW], arrival_order(np.int64(source), node, 0), ~packet)
        enqueue(world, rules, routes, node, source, packet, here[_FIRST], here[_END], transmission, final)
    elif node != branch:
        enqueue(world, rules, routes, node, source, packet, branch, branch + 1, transmission, final)


@njit_inline
def enqueue(
    world: Any, rules: Any, routes: Any, node: Any, source: Any, packet: Any, first: Any, end: Any,
    transmission: Any, final: Any,
) -> Any:  # fmt: skip
    """Onto the queues of the links of some branches, or of the link towards one destination: the twin of
    `RoutedNetwork._enqueue`."""
    scalars, now, rows = routes.scalars, world.scalars[NOW], routes.fragments.rows
    for branch in range(first, end):
        fragment = new_item(world, routes.fragments)
        if world.scalars[FULL]:
            return
        link = np.int64(
            routes.branches[branch, _LINK] if routes.multicast else routes.next_links[node, branch]
        )
        here = routes.links[link]
        waiting, leaving = here[_QUEUED], here[_LEAVING]
        while waiting and rows[leaving].leaves_at <= now:
            leaving = rows[leaving].after
            waiting -= 1
        if waiting > scalars[_LONGEST_QUEUE]:
            scalars[_LONGEST_QUEUE], scalars[_LONGEST_QUEUE_AT] = waiting, here[_FROM]
        busy = max(now, here[_BUSY_UNTIL]) + transmission
        scalars[_HOPS] += 1
        scalars[_TIME] += busy - now
        if scalars[_TIME] >= _LATEST:
            scalars[_TIME] -= _LATEST
            scalars[_TIME_CARRIES] += 1
        scalars[_NUMBERS] += 1
        if busy > _LATEST or scalars[_NUMBERS] >> _NUMBER_BITS:
            world.scalars[FULL] = 1
            return
        if routes.multicast:
            arrives = routes.branches[branch, _FIRST] == routes.branches[branch, _END]
        else:
            arrives = here[_TO] == branch
        row = rows[fragment]
        row.leaves_at, row.transmission = busy, transmission
        row.packet, row.source, row.branch = packet, source, branch
        row.number = scalars[_NUMBERS] << 2 | (_ARRIVES if arrives and final else 0) | final
        row.after = 0
        here[_BUSY_UNTIL], here[_QUEUED] = busy, waiting + 1
        here[_LEAVING] = leaving if waiting else fragment
        if here[_TAIL]:
            rows[here[_TAIL]].after = fragment
            here[_TAIL] = fragment
        else:
            here[_HEAD] = here[_TAIL] = fragment
            plan_head(world, rules, routes, link, fragment)


@njit_inline
def send(
    world: Any, rules: Any, routes: Any, source: Any, to: Any, packet: Any, control: Any, size: Any
) -> Any:
    """The twin of `RoutedNetwork.transmit`: to an audience where there are trees, else to one peer."""
    first, end, copies = to, to + 1, 1
    if routes.multicast:
        first, end, copies = np.int64(routes.roots[to, 0]), np.int64(routes.roots[to, 1]), routes.roots[to, 2]
    scalars = routes.scalars
    world.scalars[PACKETS] += copies
    world.scalars[LINK_BYTES] += copies * control
    while True:
        final = size <= routes.max_payload
        part = (size if final else routes.max_payload) + routes.header
        scalars[_FRAGMENTS] += copies
        scalars[_BYTES] += copies * part
        transmission = np.int64(np.rint(part * routes.ns_per_byte))
        enqueue(world, rules, routes, source, source, packet, first, end, transmission, np.int64(final))
        size -= routes.max_payload
        if final:
            break
