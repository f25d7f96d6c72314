"""The twin of `protocols/vcube.py` and of its variants in `protocols/vcube_variants.py`.

Memory is peers × senders, 20 bytes for each pair and for `vcube-agg` 28; the clocks of messages that are
under way; and what is held.
"""

from __future__ import annotations

from typing import Any

from antecede.jit import njit_hot, njit_inline
from antecede.protocols.vcube import VcubeAgg
from antecede.protocols.vcube_variants import VcubeAggPaperSizes, VcubeAggSingleTree
from antecede.sim.kernels.contract import ObserverFeed, Progress, Unsupported
from antecede.sim.kernels.runtime import bundles, events, nodes
from antecede.sim.kernels.runtime.bundles import watch_receive
from antecede.sim.kernels.runtime.events import ARRIVAL, NOTHING, SEND, STOPPED, arrived, following, plan_next
from antecede.sim.kernels.runtime.msgpack_sizes import payload_head
from antecede.sim.kernels.runtime.overlays import cluster
from antecede.sim.kernels.runtime.send_schedule import who_sends
from antecede.sim.kernels.vcube import members
from antecede.sim.kernels.vcube.aggregation import receive_together
from antecede.sim.kernels.vcube.members import AGAIN, HELD, Terms, broadcast, serve, take, take_deliveries
from antecede.sim.metrics import Metrics
from antecede.sim.network import NodesModel
from antecede.sim.scenario import Scenario

_MAX_PAIRS = 1 << 27
"""Peers × senders: 4 GB."""


def supports(given: Scenario) -> Unsupported | None:
    """Why a run cannot be done so; None if it can."""
    if not isinstance(given.network, NodesModel | None):
        return Unsupported("delays depend on what else is sent")
    others = set(given.probes) - {"bundles"}
    if others:
        return Unsupported(f"probe {min(others)} is not compiled for {given.protocol}")
    if given.probes and given.payload > bundles.MAX_PAYLOAD:
        return Unsupported("packets are too large to be counted by their size")
    if given.peers * len(who_sends(given)) > _MAX_PAIRS:
        return Unsupported("too many peers have to remember too many senders")
    return None


def run(given: Scenario, observers: ObserverFeed, progress: Progress | None) -> Metrics:
    kind, senders = given.protocol_class(), who_sends(given)
    together, full = issubclass(kind, VcubeAgg), kind.mtu if issubclass(kind, VcubeAgg) else 0
    height = (given.peers - 1).bit_length()
    terms = Terms(
        given.peers, len(senders), height, given.payload, payload_head(given.payload), given.count == "paper",
        together, 3 if together else 1, full,
        issubclass(kind, VcubeAggPaperSizes), issubclass(kind, VcubeAggSingleTree),
    )  # fmt: skip
    made, rules = events.fresh(given, given.peers * height, given.peers - 1, bool(observers))
    state = members.fresh(terms, senders)
    queues, watch = nodes.fresh(given), bundles.fresh(given)
    events.drive(
        made, rules, lambda count: advance(made, rules, queues, watch, state, terms, count),
        observers, progress,
    )  # fmt: skip
    measured = nodes.figures(queues) | bundles.figures(watch)
    return events.metrics(made, int(state.at[HELD]), measured)


@njit_hot
def advance(run: Any, rules: Any, nodes: Any, watch: Any, state: Any, terms: Any, budget: Any) -> Any:
    """So many events; False if there are no more."""
    for _ in range(budget):
        kind, peer, source, packet = following(run, rules)
        if kind == NOTHING:
            return False
        if kind == STOPPED:
            return True
        if kind == SEND:
            broadcast(run, rules, nodes, watch, state, terms, peer)
            plan_next(run, rules, peer)
        elif kind == ARRIVAL:
            if terms.together:
                receive_together(run, rules, nodes, watch, state, terms, peer, source, packet)
            else:
                receive(run, rules, nodes, watch, state, terms, peer, source, packet)
            take_deliveries(run, rules, nodes, watch, state, terms, peer)
    return True


@njit_inline
def receive(
    run: Any,
    rules: Any,
    nodes: Any,
    watch: Any,
    state: Any,
    terms: Any,
    me: Any,
    link: Any,
    message: Any,
) -> Any:
    """The twin of `Vcube.receive`."""
    row = state.messages[message]
    arrived(run, me, link, row.origin, row.seq)
    watch_receive(run, watch, me, link)
    if take(run, watch, state, terms, me, message, 0) != AGAIN:
        serve(run, rules, nodes, watch, state, terms, me, cluster(me, link), message, False)
