"""The twin of `sim/network/queued_nodes.py`: one send queue a node, delays drawn in the order of
transmission."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from antecede.jit import njit_inline
from antecede.sim import counter_rng
from antecede.sim.kernels.runtime.calendar import arrival_order, plan_arrival, plan_packet
from antecede.sim.kernels.runtime.counter_rng import FIXED, Model, delay_of, draw, extended, model
from antecede.sim.kernels.runtime.links import transmit
from antecede.sim.kernels.runtime.world_state import FULL, LINK_BYTES, NOW, NUMBER_BITS, PACKETS, PEER_BITS
from antecede.sim.network import NodesModel, parse_delay
from antecede.sim.scenario import Scenario
from antecede.units import parse_duration

_COPIES, _FRAGMENTS, _QUEUED = range(3)
_COPY, _MESSAGE, _LINK = range(3)
_AS_HOP = np.int64(-1 << 62)
"""Added to the key that orders an arrival: marks a hop, which comes before all arrivals of its instant."""


class QueuedNodesState(NamedTuple):
    free: np.ndarray
    """When each node's queue will be empty; empty for other networks."""
    sums: np.ndarray
    delay_key: Any
    propagation: Model
    processing: int
    transmission: int
    max_payload: int
    one_server: bool
    """Whether a node's queue is also for what it has received and is to process."""
    by_message: bool
    """Whether it processes each message of a packet."""
    drawn: int
    """The unit that has a propagation time of its own."""


def create_state(scenario: Scenario) -> QueuedNodesState:
    """The nodes of a run; a stand-in without nodes for other networks."""
    sums, network = np.zeros(3, np.int64), scenario.network
    if not isinstance(network, NodesModel):
        return QueuedNodesState(
            np.zeros(0, np.int64), sums, np.uint64(0), (FIXED, 0, 0, 0), 0, 0, 1, False, False, _COPY
        )
    return QueuedNodesState(
        np.zeros(scenario.peers, np.int64), sums,
        np.uint64(counter_rng.key(scenario.seed, counter_rng.PROPAGATION)),
        model(parse_delay(network.propagation)), parse_duration(network.processing),
        parse_duration(network.transmission), network.mtu - network.header,
        network.queue != "sends", network.queue == "messages",
        {"copy": _COPY, "message": _MESSAGE, "link": _LINK}[network.drawn],
    )  # fmt: skip


def measured(nodes: QueuedNodesState) -> dict[str, float]:
    """The twin of `QueuedNodes.figures`; nothing for other networks."""
    copies, fragments, queued = (int(value) for value in nodes.sums)
    return {"packets": fragments, "queued_mean_ns": queued / max(1, copies)} if len(nodes.free) else {}


@njit_inline
def send(
    world: Any,
    rules: Any,
    nodes: Any,
    link: Any,
    source: Any,
    to: Any,
    packet: Any,
    control: Any,
    weight: Any,
    origin: Any,
    seq: Any,
) -> Any:
    """Send a packet of `weight` bytes over one link, queued or direct; how many copies will arrive. Its first
    message is the `seq`-th of `origin`."""
    if len(nodes.free) == 0:
        return transmit(world, rules, link, source, to, packet, control)
    scalars, sums, free = world.scalars, nodes.sums, nodes.free
    now = scalars[NOW]
    scalars[PACKETS] += 1
    scalars[LINK_BYTES] += control
    fragments = max(1, -(-weight // nodes.max_payload))
    start = max(now, free[source])
    free[source] = start + fragments * nodes.transmission
    sums[_COPIES] += 1
    sums[_FRAGMENTS] += fragments
    sums[_QUEUED] += start - now
    kind, one, two, three = nodes.propagation
    bits = draw(nodes.delay_key, sums[_COPIES])
    if nodes.drawn == _MESSAGE:
        bits = draw(extended(nodes.delay_key, origin), seq)
    elif nodes.drawn == _LINK:
        bits = draw(extended(nodes.delay_key, min(source, to)), max(source, to))
    time = free[source] + delay_of(kind, one, two, three, bits)
    number = world.link_packets[link]
    world.link_packets[link] += 1
    if number >> NUMBER_BITS:
        scalars[FULL] = 1
        return 0
    if nodes.one_server:
        plan_arrival(world, rules, time, arrival_order(source, to, number) + _AS_HOP, packet)
    else:
        plan_packet(world, rules, time + nodes.processing, source, to, number, packet)
    return 1


@njit_inline
def process(world: Any, rules: Any, nodes: Any, order: Any, packet: Any, messages: Any) -> Any:
    """A packet has reached its node, whose one server processes it in its turn: the twin of `forward`."""
    to = (order - _AS_HOP) >> NUMBER_BITS >> PEER_BITS
    processing = nodes.processing * messages if nodes.by_message else nodes.processing
    nodes.free[to] = max(world.scalars[NOW], nodes.free[to]) + processing
    plan_arrival(world, rules, nodes.free[to], order - _AS_HOP, packet)
