"""How the packets of flat protocols travel: one to every other peer, at once.

Where delays are independent random values, all delays of a message are drawn in one pass and its packets
planned in a dense calendar: a packet is the n-th on its link as its message is the n-th of its sender.
Links with faults, and networks with queues, plan their packets one by one in the common calendar. On a
routed network one packet may go to all peers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from antecede.compiled.splitmix64 import STEP, mix
from antecede.jit import njit_inline
from antecede.sim import counter_rng
from antecede.sim.kernels.contract import Unsupported
from antecede.sim.kernels.flat.delivery_times import draw_delays, link_keys
from antecede.sim.kernels.runtime import dense_calendar, queued_nodes, routed
from antecede.sim.kernels.runtime.agenda import must_stop
from antecede.sim.kernels.runtime.counter_rng import Model, delay_of, model
from antecede.sim.kernels.runtime.dense_calendar import ArrivalPacking, DenseCalendar, plan, take_arrival
from antecede.sim.kernels.runtime.queued_nodes import QueuedNodesState, send
from antecede.sim.kernels.runtime.routed import Audience, RoutedState
from antecede.sim.kernels.runtime.routed import send as send_routed
from antecede.sim.kernels.runtime.send_schedule import who_sends
from antecede.sim.kernels.runtime.world_state import ARRIVAL, FULL, LINK_BYTES, NOW, PACKETS
from antecede.sim.network import NodesModel, RelayedModel, parse_delay, reach
from antecede.sim.scenario import Scenario
from antecede.units import SECOND


class FlatNetwork(NamedTuple):
    independent: bool
    """Whether delays are independent random values."""
    calendar: DenseCalendar
    packing: ArrivalPacking
    keys: np.ndarray
    """The key of each link's random sequence."""
    relays: np.ndarray
    """The same from the relay on; empty if there is none."""
    behind: int
    delay: Model
    delays: np.ndarray
    """Delays of the packets that are being sent."""
    nodes: QueuedNodesState
    routed: RoutedState | None


def supports(scenario: Scenario) -> Unsupported | None:
    """Why the scenario's network is not supported; None if it is."""
    if isinstance(scenario.network, NodesModel) and scenario.network.queue != "sends":
        return Unsupported("nodes process what they receive in their turn")
    return routed.supports(scenario)


def create_network(scenario: Scenario, routes: RoutedState | None) -> FlatNetwork:
    """The network of a run; `routes` if it is a routed one."""
    relayed = scenario.network if isinstance(scenario.network, RelayedModel) else None
    independent = relayed is not None or (scenario.network is None and not scenario.faults)
    text = scenario.delay if relayed is None else relayed.delay
    longest = reach(text) * (1 if relayed is None else 2)
    until = max(1, round(scenario.seconds * SECOND))
    rate = max(1e-9, scenario.expected_messages() * (scenario.peers - 1) / until)
    calendar, packing = dense_calendar.create_calendar(scenario.peers, rate, longest)
    seeds = scenario.seed, counter_rng.mix(scenario.seed)
    keys, relays = (
        link_keys(np.uint64(counter_rng.key(seed, counter_rng.LINK)), scenario.peers if wanted else 0)
        for seed, wanted in zip(seeds, (independent, relayed is not None), strict=True)
    )
    return FlatNetwork(
        independent=independent,
        calendar=calendar,
        packing=packing,
        keys=keys,
        relays=relays,
        behind=0 if relayed is None else relayed.behind,
        delay=model(parse_delay(text)),
        delays=np.zeros(scenario.peers, np.int64),
        nodes=queued_nodes.create_state(scenario),
        routed=routes,
    )


def audiences(scenario: Scenario) -> Iterator[Audience]:
    """The destinations of each sender: every other peer."""
    senders = set(who_sends(scenario))
    for me in range(scenario.peers):
        yield me, tuple(to for to in range(scenario.peers) if to != me) if me in senders else ()


def measured(network: FlatNetwork) -> dict[str, float]:
    return queued_nodes.measured(network.nodes)


@njit_inline
def next_event(world: Any, rules: Any, network: Any) -> Any:
    """The next event, as in `agenda`; where delays are independent, a packet is its message's number less
    one."""
    if network.independent and not must_stop(world):
        to, source, number = take_arrival(world, network.calendar, network.packing)
        if to >= 0:
            return ARRIVAL, to, source, number
    return routed.next_event(world, rules, network.routed)


@njit_inline
def send_all(
    world: Any, rules: Any, network: Any, me: Any, message: Any, number: Any, control: Any, weight: Any
) -> Any:
    """Send a message to every other peer; how many copies of it will arrive."""
    peers = len(network.delays)
    if network.independent:
        draw_all_delays(world, network, me, number)
        for to in range(peers):
            if to != me:
                time = world.scalars[NOW] + network.delays[to]
                plan(world, network.calendar, network.packing, time, to, me, number)
        world.scalars[PACKETS] += peers - 1
        world.scalars[LINK_BYTES] += control * (peers - 1)
        if number >> network.packing.number:
            world.scalars[FULL] = 1
        return peers - 1
    return send_each(world, rules, network, network.routed, me, message, number, control, weight)


@njit_inline
def send_each(
    world: Any, rules: Any, network: Any, routes: Any, me: Any, message: Any, number: Any, control: Any,
    weight: Any,
) -> Any:  # fmt: skip
    """The same one by one; or in one packet, where the network has multicast trees."""
    peers = len(network.delays)
    if routes is not None:
        if routes.multicast and peers > 1:
            send_routed(world, rules, routes, me, me, message, control, weight)
        for to in range(0 if routes.multicast else peers):
            if to != me:
                send_routed(world, rules, routes, me, to, message, control, weight)
        return peers - 1
    copies = 0
    for to in range(peers):
        if to != me:
            link = me * peers + to
            copies += send(
                world, rules, network.nodes, link, me, to, message, control, weight, me, number + 1
            )  # fmt: skip
    return copies


@njit_inline
def draw_all_delays(world: Any, network: Any, me: Any, number: Any) -> Any:
    """Draw the delays of a message to all peers: the twin of direct links without faults, and of relayed
    ones."""
    delays, now, shift = network.delays, world.scalars[NOW], np.uint64(number) * STEP
    peers = len(delays)
    draw_delays(network.delay, network.keys[me], shift, delays)
    if len(network.relays):
        kind, one, two, three = network.delay
        to_relay = delays[me]  # the link to itself stands for the one to the relay
        for to in range(peers):
            if me < network.behind or to < network.behind:
                delays[to] = to_relay + delay_of(kind, one, two, three, mix(network.relays[me, to] + shift))
    elif len(world.link_last):
        for to in range(peers):
            link = me * peers + to
            time = max(now + delays[to], world.link_last[link])
            world.link_last[link] = time
            delays[to] = time - now
