"""The recurrence kernel of the flat protocols: what it supports, and the metrics from its arrays.

The computation is in `delivery_times`. The event kernel computes metrics of probes by the same functions.
"""

from __future__ import annotations

from typing import cast

import numpy as np

from antecede.protocols import catalog
from antecede.protocols.base import Packet
from antecede.protocols.flat import DependencyPacket, Flat
from antecede.sim import counter_rng
from antecede.sim.kernels.contract import ObserverFeed, Progress, Unsupported
from antecede.sim.kernels.flat import delivery_times
from antecede.sim.kernels.flat.delivery_times import RecurrenceState
from antecede.sim.kernels.flat.stamps import DEPSEQ, MBCP, TIMESTAMP, TIMESTAMP_DIFF
from antecede.sim.kernels.runtime.counter_rng import model
from antecede.sim.kernels.runtime.send_schedule import SendSchedule, create_schedule
from antecede.sim.metrics import Metrics, mean
from antecede.sim.network import RelayedModel, parse_delay
from antecede.sim.scenario import Scenario
from antecede.units import SECOND

PROTOCOLS = {"timestamp": TIMESTAMP, "timestamp-diff": TIMESTAMP_DIFF, "mbcp": MBCP, "depseq": DEPSEQ}
PROBES = {"costs", "immediate"}
MAX_PEERS = 5_000
"""The most peers: tables take 28 bytes for each pair."""
_ROWS = 64
_CHUNK = 20_000_000
"""Deliveries between two reports of progress: about a second."""


def supports(scenario: Scenario) -> Unsupported | None:
    """Why the kernel cannot run a scenario; None if it can."""
    if scenario.reply:
        return Unsupported("peers answer what they deliver")
    if scenario.faults:
        return Unsupported("the network has faults")
    if not isinstance(scenario.network, RelayedModel | None):
        return Unsupported("delays depend on what else is sent")
    if scenario.peers > MAX_PEERS:
        return Unsupported(f"there are more than {MAX_PEERS:,} peers")
    others = set(scenario.probes) - PROBES
    if others:
        return Unsupported(f"probe {min(others)} looks at events one by one")
    return None


def run(scenario: Scenario, _observers: ObserverFeed, progress: Progress | None) -> Metrics:
    """Run a scenario; there are no events to show."""
    schedule = create_schedule(scenario)
    samples = scenario.sample_times() if scenario.probes else range(0)
    sample_times = np.array(samples, np.int64)
    try:
        state = _run(scenario, schedule, sample_times, progress, wide=False)
    except OverflowError:
        state = _run(scenario, schedule, sample_times, progress, wide=True)
    return _metrics(scenario, schedule, state, samples)


def _run(
    scenario: Scenario, schedule: SendSchedule, samples: np.ndarray, progress: Progress | None, wide: bool
) -> RecurrenceState:
    """The state at the end of a run. An `OverflowError` if times do not fit into 32 bits, unless `wide`."""
    if isinstance(scenario.network, RelayedModel):
        delay = model(parse_delay(scenario.network.delay))
        behind, fifo = scenario.network.behind, False
        relays = counter_rng.key(counter_rng.mix(scenario.seed), counter_rng.LINK)
    else:
        delay = model(parse_delay(scenario.delay))
        behind, relays, fifo = 0, None, bool(scenario.fifo)
    links = counter_rng.key(scenario.seed, counter_rng.LINK)
    state = delivery_times.create_state(schedule, scenario.peers, links, relays, fifo, wide, _ROWS)
    total, done, sampled = len(schedule.times), 0, 0
    chunk = max(1, _CHUNK // scenario.peers)
    protocol = PROTOCOLS[scenario.protocol]
    while True:
        end = min(total, done + chunk)
        done, sampled = delivery_times.advance(
            done, end, protocol, scenario.payload, schedule, state, delay, behind, samples, sampled
        )
        if done < 0:
            raise OverflowError
        if done < end:
            state = delivery_times.with_more_rows(state, done)
        elif done == total:
            return state
        elif progress is not None:
            progress(done / total)


def _metrics(scenario: Scenario, schedule: SendSchedule, state: RecurrenceState, samples: range) -> Metrics:
    others = scenario.peers - 1
    messages, sums = len(schedule.times), [int(value) for value in state.sums]
    deliveries, held = messages * others, sums[delivery_times.HELD]
    measured: dict[str, float] = {}
    measured_messages = schedule.times >= round(scenario.warmup * SECOND)
    if "costs" in scenario.probes:
        paper, wire = int(state.paper[measured_messages].sum()), int(state.control[measured_messages].sum())
        packets = int(measured_messages.sum()) if scenario.peers > 1 else 0
        measured |= cost_metrics(
            scenario,
            packets,
            paper,
            wire,
            sums[delivery_times.SAMPLES],
            sums[delivery_times.NAMED_AT_SAMPLES],
        )
    if "immediate" in scenario.probes:
        measured |= _immediate_metrics(scenario, schedule, state, measured_messages)
    return Metrics(
        messages=messages,
        deliveries=deliveries,
        packets=deliveries,
        link_bytes=int(state.control.sum()) * others,
        control_bytes_mean=mean(int(state.control.sum()), messages),
        control_bytes_max=int(state.control.max(initial=0)),
        paper_bytes_mean=mean(int(state.paper.sum()), messages),
        paper_bytes_max=int(state.paper.max(initial=0)),
        latency_mean_ns=mean(sums[delivery_times.LATENCY], deliveries),
        latency_max_ns=sums[delivery_times.LATEST],
        held=held,
        hold_mean_ns=mean(sums[delivery_times.HOLD], held),
        stuck=0,
        simulated_ns=max(sums[delivery_times.END], schedule.end, samples[-1] if samples else 0),
        measured=measured,
    )


def message_packet(scenario: Scenario) -> type[Packet]:
    """The packet that carries a message of a flat protocol."""
    kind = cast(type[Flat], catalog.find_protocol(scenario.protocol))
    return kind.message_packets[0]


def cost_metrics(
    scenario: Scenario, packets: int, paper: int, wire: int, samples: int, named: int
) -> dict[str, float]:
    """The metrics of the probe `costs`: of packets and their bytes, and of samples and what the peers' next
    messages would have named then."""
    found: dict[str, float] = {}
    name = message_packet(scenario).metric_prefix()
    if packets:
        found[f"{name}_packets"] = packets
        found[f"{name}_paper_bytes"] = paper / packets
        found[f"{name}_wire_bytes"] = wire / packets
    if samples:
        looked = samples * scenario.peers
        stored = 4 * scenario.peers * looked + 8 * named
        found["member_storage"] = stored / looked if scenario.protocol == "mbcp" else 0.0
    return found


def _immediate_metrics(
    scenario: Scenario, schedule: SendSchedule, state: RecurrenceState, measured_messages: np.ndarray
) -> dict[str, float]:
    seen = (
        measured_messages
        if message_packet(scenario) is DependencyPacket and scenario.peers > 1
        else measured_messages & False
    )
    named = state.named[seen] if scenario.protocol == "mbcp" else state.paper[seen] // 4 - 1
    found = named + ((schedule.numbers[seen] > 1) & ~state.covered[seen])
    total, most, causes = int(found.sum()), int(found.max(initial=0)), int(named.sum())
    worst, everyone = int((found == scenario.peers).sum()), int((named == scenario.peers - 1).sum())
    return immediate_metrics(len(named), total, most, causes, worst, everyone)


def immediate_metrics(
    messages: int, total: int, most: int, named: int, worst: int, everyone: int
) -> dict[str, float]:
    """The metrics of the probe `immediate`: sums over messages, and how many had as many as possible."""
    messages = max(1, messages)
    return {
        "immediate_mean": total / messages,
        "immediate_most": most,
        "named_mean": named / messages,
        "worst_share": worst / messages,
        "named_all_share": everyone / messages,
    }
