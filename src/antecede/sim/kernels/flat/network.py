"""How the packets of flat protocols travel: one to everyone, at once.

Where nothing but chance decides about delays, all of a message's are drawn in one go, and its packets planned
in a `dense` calendar: a packet is the n-th on its link as its message is the n-th of its sender. Links with
faults, and networks with queues, plan their packets one by one in that of `events`. On a routed network one
packet may go to all at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from antecede.jit import njit_inline
from antecede.sim import counter_rng
from antecede.sim.kernels.contract import Unsupported
from antecede.sim.kernels.flat.delivery_times import delays_of, link_keys
from antecede.sim.kernels.runtime import calendar as packet_calendar
from antecede.sim.kernels.runtime import nodes, routed
from antecede.sim.kernels.runtime.calendar import Dense, Packing, expect, take
from antecede.sim.kernels.runtime.counter_rng import _STEP, Model, delay_of, mix, model
from antecede.sim.kernels.runtime.events import (
    ARRIVAL,
    FULL,
    LINK_BYTES,
    NOW,
    PACKETS,
    stops,
)
from antecede.sim.kernels.runtime.nodes import Nodes, send
from antecede.sim.kernels.runtime.routed import Audience, Routed, post
from antecede.sim.kernels.runtime.send_schedule import who_sends
from antecede.sim.network import RelayedModel, parse_delay
from antecede.sim.scenario import Scenario
from antecede.units import SECOND


class Network(NamedTuple):
    plain: bool
    """Whether nothing but chance decides about delays."""
    calendar: Dense
    packing: Packing
    keys: np.ndarray
    """The random sequence of each link."""
    relays: np.ndarray
    """The same from the relay on; empty if there is none."""
    behind: int
    delay: Model
    delays: np.ndarray
    """Of the packets that are being sent."""
    nodes: Nodes
    routed: Routed | None


def supports(given: Scenario) -> Unsupported | None:
    """Why a network cannot be had; None if it can."""
    return routed.supports(given)


def fresh(given: Scenario, hops: Routed | None) -> Network:
    """The network of a run; `hops` is the routed one, if it is one."""
    relayed = given.network if isinstance(given.network, RelayedModel) else None
    plain = relayed is not None or (given.network is None and not given.faults)
    delay = parse_delay(given.delay if relayed is None else relayed.delay)
    longest = delay.longest * (1 if relayed is None else 2)
    until = max(1, round(given.seconds * SECOND))
    rate = max(1e-9, given.expected_messages() * (given.peers - 1) / until)
    calendar, packing = packet_calendar.fresh(given.peers, rate, longest)
    seeds = given.seed, counter_rng.mix(given.seed)
    keys, relays = (
        link_keys(np.uint64(counter_rng.key(seed, counter_rng.LINK)), given.peers if wanted else 0)
        for seed, wanted in zip(seeds, (plain, relayed is not None), strict=True)
    )
    behind = 0 if relayed is None else relayed.behind
    return Network(
        plain, calendar, packing, keys, relays, behind, model(delay), np.zeros(given.peers, np.int64),
        nodes.fresh(given), hops,
    )  # fmt: skip


def audiences(given: Scenario) -> Iterator[Audience]:
    """Whom each peer sends to: everyone else."""
    senders = set(who_sends(given))
    for me in range(given.peers):
        yield me, tuple(to for to in range(given.peers) if to != me) if me in senders else ()


def figures(network: Network) -> dict[str, float]:
    return nodes.figures(network.nodes)


@njit_inline
def coming(run: Any, rules: Any, network: Any) -> Any:
    """What comes next, as `following` says it; but where the network is plain a packet is a number."""
    if network.plain and not stops(run):
        to, source, number = take(run, network.calendar, network.packing)
        if to >= 0:
            return ARRIVAL, to, source, number
    return routed.coming(run, rules, network.routed)


@njit_inline
def send_all(
    run: Any, rules: Any, network: Any, me: Any, message: Any, number: Any, control: Any, weight: Any
) -> Any:
    """Send a message to everyone; how many copies of it will arrive."""
    peers = len(network.delays)
    if network.plain:
        draw_delays(run, network, me, number)
        for to in range(peers):
            if to != me:
                time = run.at[NOW] + network.delays[to]
                expect(run, network.calendar, network.packing, time, to, me, number)
        run.at[PACKETS] += peers - 1
        run.at[LINK_BYTES] += control * (peers - 1)
        if number >> network.packing.number:
            run.at[FULL] = 1
        return peers - 1
    return send_each(run, rules, network, network.routed, me, message, control, weight)


@njit_inline
def send_each(
    run: Any, rules: Any, network: Any, hops: Any, me: Any, message: Any, control: Any, weight: Any
) -> Any:
    """The same with a packet for each, or where a network has trees with one for all."""
    peers = len(network.delays)
    if hops is not None:
        if hops.multicast and peers > 1:
            post(run, rules, hops, me, me, message, control, weight)
        for to in range(0 if hops.multicast else peers):
            if to != me:
                post(run, rules, hops, me, to, message, control, weight)
        return peers - 1
    copies = 0
    for to in range(peers):
        if to != me:
            copies += send(run, rules, network.nodes, me * peers + to, me, to, message, control, weight)
    return copies


@njit_inline
def draw_delays(run: Any, network: Any, me: Any, number: Any) -> Any:
    """The twin of `Direct.transmit` without faults, and of `Relayed.transmit`."""
    delays, now, shift = network.delays, run.at[NOW], np.uint64(number) * _STEP
    peers = len(delays)
    delays_of(network.delay, network.keys[me], shift, delays)
    if len(network.relays):
        kind, one, two, three = network.delay
        for to in range(peers):
            if me < network.behind or to < network.behind:
                delays[to] += delay_of(kind, one, two, three, mix(network.relays[me, to] + shift))
    elif len(run.link_last):
        for to in range(peers):
            link = me * peers + to
            time = max(now + delays[to], run.link_last[link])
            run.link_last[link] = time
            delays[to] = time - now
