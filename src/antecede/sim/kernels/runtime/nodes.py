"""The twin of `sim/nodes.py`: one send queue a node, and delays drawn in the order of transmission."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from antecede.jit import njit_inline
from antecede.sim import counter_rng
from antecede.sim.kernels.runtime import events
from antecede.sim.kernels.runtime.counter_rng import FIXED, Model, delay_of, draw, model
from antecede.sim.kernels.runtime.events import LINK_BYTES, NOW, PACKETS, arrival, transmit
from antecede.sim.network import NodesModel, parse_delay
from antecede.sim.scenario import Scenario
from antecede.units import parse_duration

_COPIES, _TURNS, _QUEUED = range(3)


class Nodes(NamedTuple):
    free: np.ndarray
    """When each node's queue will be empty; it has no entries where the network is another."""
    sums: np.ndarray
    drawn: Any
    propagation: Model
    processing: int
    transmission: int
    room: int


def fresh(given: Scenario) -> Nodes:
    """The nodes of a run, or what stands for them if it has none."""
    sums, of = np.zeros(3, np.int64), given.network
    if not isinstance(of, NodesModel):
        return Nodes(np.zeros(0, np.int64), sums, np.uint64(0), (FIXED, 0, 0, 0), 0, 0, 1)
    return Nodes(
        np.zeros(given.peers, np.int64), sums,
        np.uint64(counter_rng.key(given.seed, counter_rng.PROPAGATION)),
        model(parse_delay(of.propagation)), parse_duration(of.processing), parse_duration(of.transmission),
        of.mtu - of.header,
    )  # fmt: skip


def figures(nodes: Nodes) -> dict[str, float]:
    """The twin of `QueuedNodes.figures`; nothing of another network."""
    copies, turns, queued = (int(value) for value in nodes.sums)
    return {"packets": turns, "queued_mean_ns": queued / max(1, copies)} if len(nodes.free) else {}


@njit_inline
def send(
    run: Any, rules: Any, nodes: Any, link: Any, source: Any, to: Any, packet: Any, control: Any, weight: Any
) -> Any:
    """Send a packet of `weight` bytes over one link of whatever network there is; how many copies arrive."""
    if len(nodes.free) == 0:
        return transmit(run, rules, link, source, to, packet, control)
    at, sums, free = run.at, nodes.sums, nodes.free
    now = at[NOW]
    at[PACKETS] += 1
    at[LINK_BYTES] += control
    turns = max(1, -(-weight // nodes.room))
    start = max(now, free[source])
    free[source] = start + turns * nodes.transmission
    sums[_COPIES] += 1
    sums[_TURNS] += turns
    sums[_QUEUED] += start - now
    kind, one, two, three = nodes.propagation
    time = free[source] + delay_of(kind, one, two, three, draw(nodes.drawn, sums[_COPIES])) + nodes.processing
    number = run.link_packets[link]
    run.link_packets[link] += 1
    if number >> events._NUMBER_BITS:
        at[events.FULL] = 1
        return 0
    arrival(run, rules, time, source, to, number, packet)
    return 1
