"""The event kernel of `vcube` and `vcube-agg`, and of the variants in `protocols/vcube_variants.py`.

`members` broadcasts, forwards, holds and delivers; `aggregation` has what `vcube-agg` adds. Memory is 20
bytes for each pair of a peer and a sender, 28 for `vcube-agg`; the clocks of messages in flight; and what
is held.
"""

from __future__ import annotations

from typing import Any

from antecede.jit import njit_hot, njit_inline
from antecede.protocols.vcube import VcubeAgg
from antecede.protocols.vcube_variants import VcubeAggPaperSizes, VcubeAggSingleTree
from antecede.sim.kernels.contract import ObserverFeed, Progress, Unsupported
from antecede.sim.kernels.runtime import probe_bundles, queued_nodes
from antecede.sim.kernels.runtime import world as runtime
from antecede.sim.kernels.runtime.agenda import next_event, plan_next_send
from antecede.sim.kernels.runtime.counting import record_receive
from antecede.sim.kernels.runtime.msgpack_sizes import payload_head
from antecede.sim.kernels.runtime.overlays import cluster
from antecede.sim.kernels.runtime.probe_bundles import probe_receive
from antecede.sim.kernels.runtime.queued_nodes import process
from antecede.sim.kernels.runtime.send_schedule import who_sends
from antecede.sim.kernels.runtime.world_state import ARRIVAL, HOP, NOTHING, SEND, STOPPED
from antecede.sim.kernels.vcube.aggregation import count_messages, receive_bundle
from antecede.sim.kernels.vcube.protocol import accept, broadcast, deliver, forward
from antecede.sim.kernels.vcube.state import DUPLICATE, HELD, VcubeParams, create_state
from antecede.sim.metrics import Metrics
from antecede.sim.network import NodesModel
from antecede.sim.scenario import Scenario

_MAX_PAIRS = 1 << 27
"""The most pairs of peers and senders: 4 GB."""


def supports(scenario: Scenario) -> Unsupported | None:
    """Why the kernel cannot run a scenario; None if it can."""
    if not isinstance(scenario.network, NodesModel | None):
        return Unsupported("delays depend on what else is sent")
    others = set(scenario.probes) - {"bundles"}
    if others:
        return Unsupported(f"probe {min(others)} is not compiled for {scenario.protocol}")
    if scenario.probes and scenario.payload > probe_bundles.MAX_PAYLOAD:
        return Unsupported("packets are too large to be counted by their size")
    if scenario.peers * len(who_sends(scenario)) > _MAX_PAIRS:
        return Unsupported("too many peers have to remember too many senders")
    return None


def run(scenario: Scenario, observers: ObserverFeed, progress: Progress | None) -> Metrics:
    kind, senders = scenario.protocol_class(), who_sends(scenario)
    height = (scenario.peers - 1).bit_length()
    params = VcubeParams(
        peers=scenario.peers,
        columns=len(senders),
        height=height,
        payload=scenario.payload,
        head=payload_head(scenario.payload),
        as_paper=scenario.count == "paper",
        aggregates=issubclass(kind, VcubeAgg),
        chains=3 if issubclass(kind, VcubeAgg) else 1,
        mtu=kind.mtu if issubclass(kind, VcubeAgg) else 0,
        paper_sizes=issubclass(kind, VcubeAggPaperSizes),
        single_tree=issubclass(kind, VcubeAggSingleTree),
    )
    world, rules = runtime.create_world(
        scenario, scenario.peers * height, scenario.peers - 1, bool(observers)
    )
    state = create_state(params, senders)
    nodes, probe = queued_nodes.create_state(scenario), probe_bundles.create_probe(scenario)
    runtime.drive(
        world, rules, lambda count: advance(world, rules, nodes, probe, state, params, count),
        observers, progress,
    )  # fmt: skip
    measured = queued_nodes.measured(nodes) | probe_bundles.measured(probe)
    return runtime.metrics(world, int(state.scalars[HELD]), measured)


@njit_hot
def advance(world: Any, rules: Any, nodes: Any, probe: Any, state: Any, params: Any, budget: Any) -> Any:
    """Process up to `budget` events; return False when none are left."""
    for _ in range(budget):
        kind, peer, source, packet = next_event(world, rules)
        if kind == NOTHING:
            return False
        if kind == STOPPED:
            return True
        if kind == SEND:
            broadcast(world, rules, nodes, probe, state, params, peer)
            plan_next_send(world, rules, peer)
        elif kind == ARRIVAL:
            if params.aggregates:
                receive_bundle(world, rules, nodes, probe, state, params, peer, source, packet)
            else:
                receive(world, rules, nodes, probe, state, params, peer, source, packet)
            deliver(world, rules, nodes, probe, state, params, peer)
        elif kind == HOP:
            messages = count_messages(state, packet) if params.aggregates else 1
            process(world, rules, nodes, source, packet, messages)
    return True


@njit_inline
def receive(
    world: Any,
    rules: Any,
    nodes: Any,
    probe: Any,
    state: Any,
    params: Any,
    me: Any,
    link: Any,
    message: Any,
) -> Any:
    """The twin of `Vcube.receive`."""
    row = state.messages[message]
    record_receive(world, me, link, row.origin, row.seq)
    probe_receive(world, probe, me, link)
    if accept(world, probe, state, params, me, message, 0) != DUPLICATE:
        forward(world, rules, nodes, probe, state, params, me, cluster(me, link), message, False)
