"""The twin of `sim/routed.py`: store and forward over lines with queues, one packet to each or down a tree.

A line is one direction of a link. What is on it comes to its end in the order in which it joined, and never
two at once, so only the first of each line is in the calendar: as many entries as there are lines, however
long their queues. What is behind is a chain of fragments. So every fragment needs some time (`supports`).

Packets from one peer to another always go the same way, so no two of them arrive at once, and arrivals need
no numbers to be in order. What passes through needs them: it may have come by different lines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from antecede.jit import njit_hot, njit_inline
from antecede.sim.kernels.contract import Unsupported
from antecede.sim.kernels.runtime.events import (
    ARRIVAL,
    FULL,
    LINK_BYTES,
    NOTHING,
    NOW,
    PACKETS,
    arrival_order,
    expect,
    following,
)
from antecede.sim.network import parse_delay
from antecede.sim.network.routed import Branch, RoutedModel, RoutedNetwork
from antecede.sim.scenario import Scenario

_NODE_BITS, _NUMBER_BITS = 12, 38
_THROUGH = np.int64(-1 << 63)
"""In the order of what passes through, so that it comes before arrivals."""
_MAX_FRAGMENTS = 1 << 25
_LATEST = 1 << 61
"""Nanoseconds: no fragment is on its way for longer, and sums of times are counted in pieces of that."""
_MADE, _VACANT, _NUMBERS, _FRAGMENTS, _BYTES, _HOPS, _LONGEST, _LONGEST_AT, _TIME, _TIMES, _SCALARS = range(
    11
)
_HEAD, _TAIL, _LEAVING, _WAITING, _BUSY, _LENGTH, _FROM, _TO = range(8)
"""Of a line: the first fragment on it and the last, 0 if there is none; the first that may not have left the
near end yet, and how many follow from there; when the last will have; how long it is, and between whom."""
_LINE, _TARGET, _FIRST, _END = range(4)
"""Of a branch: its line, whether the packet is for the node there too, and what goes on from there."""
_FINAL, _ARRIVES = 1, 2

_FRAGMENT = [
    ("left", np.int64),
    ("onto", np.int64),
    ("number", np.int64),
    ("packet", np.int32),
    ("source", np.int32),
    ("branch", np.int32),
    ("after", np.int32),
]
"""When it will have left the near end, how long it takes onto a line, its number above two bits (`_FINAL`,
`_ARRIVES`), what it is of and by whom, its branch or where there are no trees its destination, and what
follows it on its line."""

Audience = tuple[int, tuple[int, ...]]
"""A source, and those whom it sends one packet to."""


class Routed(NamedTuple):
    at: np.ndarray
    """Single numbers: fragments ever made and the first that was given back, and the network's own counts."""
    lines: np.ndarray
    fragments: np.ndarray
    ways: np.ndarray
    """From each node the line to take to each other."""
    branches: np.ndarray
    roots: np.ndarray
    """Of each audience: the branches at its source, from one to before another, and how many it has."""
    multicast: bool
    ns_per_byte: float
    header: int
    room: int


def supports(given: Scenario) -> Unsupported | None:
    """Why a run on this network cannot be done so; None if it can, or if it has another network."""
    of = given.network
    if not isinstance(of, RoutedModel):
        return None
    if given.peers >= 1 << _NODE_BITS:
        return Unsupported("routes between so many nodes take too much memory")
    if round((of.header + 1) * (8e9 / of.bits_per_second)) < 1:
        return Unsupported("fragments take no time, so they do not keep their order")
    return None


def fresh(given: Scenario, audiences: Callable[[], Iterable[Audience]]) -> tuple[Routed | None, Any]:
    """The network of a run, with trees for these audiences if it has any, and the same as the reference makes
    it; nothing if it is another network."""
    if not isinstance(given.network, RoutedModel):
        return None, None
    twin = given.network.build(given.peers, given.seed)
    first = np.cumsum([0, *map(len, twin.graph)])
    others = np.array([other for neighbours in twin.graph for other in neighbours], np.int32)
    lines = np.zeros((len(others), 8), np.int64)
    lines[:, _LENGTH] = [link.propagation for link in twin.links.values()]
    lines[:, _FROM], lines[:, _TO] = np.repeat(np.arange(given.peers), np.diff(first)), others
    ways = np.full((given.peers, given.peers), -1, np.int32)
    _find_ways(first, others, ways, np.empty((2, given.peers), np.int32))
    at = np.zeros(_SCALARS, np.int64)
    at[_MADE] = 1
    branches, roots = _grow(twin, ways, others, audiences() if twin.multicast else ())
    made = Routed(
        at, lines, np.empty(_MAX_FRAGMENTS, np.dtype(_FRAGMENT, align=True)), ways, branches, roots,
        twin.multicast, twin.ns_per_byte, twin.header, twin.max_payload,
    )  # fmt: skip
    return made, twin


@njit_hot
def _find_ways(first: Any, others: Any, ways: Any, room: Any) -> Any:
    """The twin of `RoutedNetwork._next_hops_to`, for all."""
    far, todo = room[0], room[1]
    for peer in range(len(ways)):
        for node in range(len(ways)):
            far[node] = -1
        far[peer], todo[0] = 0, peer
        done, known = 0, 1
        while done < known:
            node = todo[done]
            done += 1
            for line in range(first[node], first[node + 1]):
                other = others[line]
                if far[other] < 0:
                    far[other] = far[node] + 1
                    todo[known] = other
                    known += 1
        for node in range(len(ways)):
            for line in range(first[node], first[node + 1]):
                if far[others[line]] == far[node] - 1:
                    ways[node, peer] = line
                    break


def _grow(
    twin: RoutedNetwork, ways: np.ndarray, others: np.ndarray, audiences: Iterable[Audience]
) -> tuple[np.ndarray, np.ndarray]:
    """The reference's trees as rows: those that go on from a branch are one after the other."""
    rows: list[list[int]] = []
    places: dict[int, tuple[int, int]] = {}

    def flat(branches: tuple[Branch, ...]) -> tuple[int, int]:
        known = places.get(id(branches))
        if known is None:
            beyond = [flat(branch.branches) for branch in branches]
            start = len(rows)
            for branch, (here, end) in zip(branches, beyond, strict=True):
                line = int(ways[branch.link.start, branch.node])
                rows.append([line, branch.is_destination, here, end])
            known = places[id(branches)] = start, len(rows)
        return known

    roots = []
    for source, to in audiences:
        if to and not twin.next_hops:  # what it would work out itself, in longer time
            hops = np.where(ways < 0, np.arange(len(ways))[:, None], others[ways])
            twin.next_hops = dict(enumerate(hops.T.tolist()))
        roots.append([*flat(twin.tree(source, to)), len(to)])
    return np.array(rows, np.int32).reshape(-1, 4), np.array(roots, np.int32).reshape(-1, 3)


def pace(given: Scenario, network: Routed | None, control: int) -> tuple[float, int] | None:
    """What `events.fresh` is to know of it: all lines are busy, and the largest fragment on the longest.
    `control` is about how many bytes a packet has besides its payload."""
    if network is None or not isinstance(given.network, RoutedModel):
        return None
    usual = min(given.payload + control, network.room) + network.header
    rate = len(network.lines) / (usual * network.ns_per_byte)
    most = (network.room + network.header) * network.ns_per_byte
    return max(1e-9, rate), round(most) + parse_delay(given.network.delay).longest


def figures(network: Routed | None, twin: Any, duration: int) -> dict[str, float]:
    """As the reference says them; nothing of another network."""
    if network is None:
        return {}
    counts = [int(value) for value in network.at[_FRAGMENTS:]]
    twin.fragments, twin.sent_bytes, twin.hops, twin.longest_queue, twin.longest_queue_at = counts[:5]
    twin.time_on_links = counts[5] + counts[6] * _LATEST
    found: dict[str, float] = twin.figures(duration)
    return found


@njit_inline
def coming(run: Any, rules: Any, net: Any) -> Any:
    """`following`, of the network in between: what comes next that is not the network's own business."""
    if net is None:
        return following(run, rules)
    while True:
        kind, peer, source, what = following(run, rules)
        if kind > ARRIVAL or kind == NOTHING:
            return kind, peer, source, what
        if what < 0:
            return kind, peer, source, ~what
        fragment = net.lines[what, _HEAD]
        row = net.fragments[fragment]
        packet, branch, onto, final = np.int64(row.packet), row.branch, row.onto, row.number & _FINAL
        sender = row.source
        leave(run, rules, net, what, fragment)
        if kind == ARRIVAL:
            return kind, peer, source, packet
        relay(run, rules, net, net.lines[what, _TO], sender, packet, branch, onto, final)


@njit_inline
def leave(run: Any, rules: Any, net: Any, line: Any, fragment: Any) -> Any:
    """The first on a line has come to its end."""
    at, here, row = net.at, net.lines[line], net.fragments[fragment]
    after = row.after
    if here[_LEAVING] == fragment:
        here[_LEAVING] = after
        here[_WAITING] -= 1
    here[_HEAD] = after
    if after:
        plan(run, rules, net, line, after)
    else:
        here[_TAIL] = 0
    row.after = at[_VACANT]
    at[_VACANT] = fragment


@njit_inline
def plan(run: Any, rules: Any, net: Any, line: Any, fragment: Any) -> Any:
    """It is now the first on its line: when it will be at its end."""
    here, row = net.lines[line], net.fragments[fragment]
    source, node = np.int64(row.source), here[_TO]
    if row.number & _ARRIVES:
        order = arrival_order(source, node, 0)
    else:
        order = _THROUGH | (node << _NODE_BITS | source) << _NUMBER_BITS | row.number >> 2
    expect(run, rules, row.left + here[_LENGTH], order, line)


@njit_inline
def relay(
    run: Any, rules: Any, net: Any, node: Any, source: Any, packet: Any, branch: Any, onto: Any, final: Any
) -> Any:
    """The twin of `Routed.relay`."""
    if net.multicast:
        here = net.branches[branch]
        if final and here[_TARGET]:
            expect(run, rules, run.at[NOW], arrival_order(np.int64(source), node, 0), ~packet)
        cross(run, rules, net, node, source, packet, here[_FIRST], here[_END], onto, final)
    elif node != branch:
        cross(run, rules, net, node, source, packet, branch, branch + 1, onto, final)


@njit_inline
def cross(
    run: Any, rules: Any, net: Any, node: Any, source: Any, packet: Any, first: Any, end: Any, onto: Any,
    final: Any,
) -> Any:  # fmt: skip
    """The twin of `Routed._cross`: onto the lines of some branches, or on the way to one destination."""
    at, now, rows = net.at, run.at[NOW], net.fragments
    for branch in range(first, end):
        fragment = at[_VACANT]
        if fragment:
            at[_VACANT] = rows[fragment].after
        else:
            fragment = at[_MADE]
            if fragment == len(rows):
                run.at[FULL] = 1
                return
            at[_MADE] += 1
        line = np.int64(net.branches[branch, _LINE] if net.multicast else net.ways[node, branch])
        here = net.lines[line]
        waiting, leaving = here[_WAITING], here[_LEAVING]
        while waiting and rows[leaving].left <= now:
            leaving = rows[leaving].after
            waiting -= 1
        if waiting > at[_LONGEST]:
            at[_LONGEST], at[_LONGEST_AT] = waiting, here[_FROM]
        busy = max(now, here[_BUSY]) + onto
        at[_HOPS] += 1
        at[_TIME] += busy - now
        if at[_TIME] >= _LATEST:
            at[_TIME] -= _LATEST
            at[_TIMES] += 1
        at[_NUMBERS] += 1
        if busy > _LATEST or at[_NUMBERS] >> _NUMBER_BITS:
            run.at[FULL] = 1
            return
        if net.multicast:
            arrives = net.branches[branch, _FIRST] == net.branches[branch, _END]
        else:
            arrives = here[_TO] == branch
        row = rows[fragment]
        row.left, row.onto, row.packet, row.source, row.branch = busy, onto, packet, source, branch
        row.number = at[_NUMBERS] << 2 | (_ARRIVES if arrives and final else 0) | final
        row.after = 0
        here[_BUSY], here[_WAITING] = busy, waiting + 1
        here[_LEAVING] = leaving if waiting else fragment
        if here[_TAIL]:
            rows[here[_TAIL]].after = fragment
            here[_TAIL] = fragment
        else:
            here[_HEAD] = here[_TAIL] = fragment
            plan(run, rules, net, line, fragment)


@njit_inline
def post(run: Any, rules: Any, net: Any, source: Any, to: Any, packet: Any, control: Any, size: Any) -> Any:
    """The twin of `Routed.transmit`, to an audience where there are trees and else to one peer."""
    first, end, copies = to, to + 1, 1
    if net.multicast:
        first, end, copies = np.int64(net.roots[to, 0]), np.int64(net.roots[to, 1]), net.roots[to, 2]
    at = net.at
    run.at[PACKETS] += copies
    run.at[LINK_BYTES] += copies * control
    while True:
        final = size <= net.room
        part = (size if final else net.room) + net.header
        at[_FRAGMENTS] += copies
        at[_BYTES] += copies * part
        onto = np.int64(np.rint(part * net.ns_per_byte))
        cross(run, rules, net, source, source, packet, first, end, onto, np.int64(final))
        size -= net.room
        if final:
            break
