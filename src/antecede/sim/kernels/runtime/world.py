"""Running an event kernel: its world before anything happens, the drive to the end, and the metrics.

A kernel has a compiled function that takes events (`agenda.next_event`) and calls the protocol's twins of
`broadcast`, `receive` and `wake`; those call `links.transmit` and `counting.record_*` as `sim/world.py`
would.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from antecede.sim import counter_rng
from antecede.sim.kernels.contract import CapacityExceeded, ObserverFeed, Progress
from antecede.sim.kernels.runtime import calendar, heap
from antecede.sim.kernels.runtime.agenda import start
from antecede.sim.kernels.runtime.counter_rng import model
from antecede.sim.kernels.runtime.links import MAX_COPIES, fault_numbers, longest_delay
from antecede.sim.kernels.runtime.send_schedule import workload_numbers
from antecede.sim.kernels.runtime.world_state import (
    CONTROL,
    CONTROL_MAX,
    DELIVERIES,
    FULL,
    HELD,
    HOLD,
    LATENCY,
    LATENCY_MAX,
    LINK_BYTES,
    MESSAGES,
    MESSAGES_LEFT,
    NOW,
    PACKETS,
    PAPER,
    PAPER_MAX,
    ROWS,
    SCALARS,
    WorldRules,
    WorldState,
)
from antecede.sim.metrics import Metrics, mean
from antecede.sim.network import parse_delay
from antecede.sim.network.faults import parse_fault
from antecede.sim.scenario import Scenario
from antecede.sim.world import DRAIN
from antecede.units import SECOND

_MAX_ARRIVALS = 1 << 25
_MAX_ROWS = 1 << 20
_EVENTS_PER_CALL = 2_000_000
"""Events between two reports of progress: about a second."""


def create_world(
    scenario: Scenario,
    links: int,
    packets_per_message: float,
    observed: bool,
    furthest_wake: int = 0,
    pace: tuple[float, int] | None = None,
) -> tuple[WorldState, WorldRules]:
    """The world of a run before anything happens. `links` is how many links there are.

    `furthest_wake` is how far ahead `wake_by_calendar` may be asked for. `pace` describes a network with
    events of its own: how many happen in a nanosecond, and how far ahead they are planned.
    """
    until = round(scenario.seconds * SECOND)
    if pace is None:
        rate = max(1e-9, scenario.expected_messages() * packets_per_message / max(1, until))
        pace = rate, max(longest_delay(scenario), furthest_wake)
    width, buckets = calendar.dimensions(*pace)
    rules = _rules(scenario, until, width)
    world = _state(scenario, links, buckets, observed)
    world.scalars[MESSAGES_LEFT] = -1 if scenario.most_messages is None else scenario.most_messages
    active = np.zeros(scenario.peers, np.bool_)
    active[scenario.sending_peers()] = True
    start(world, rules, active)
    return world, rules


def _rules(scenario: Scenario, until: int, width: int) -> WorldRules:
    purposes = counter_rng.PHASE, counter_rng.SEND, counter_rng.REPLY, counter_rng.LINK
    phase, late, replies, link = (np.uint64(counter_rng.key(scenario.seed, use)) for use in purposes)
    return WorldRules(
        workload=workload_numbers(scenario.build_workload()),
        phase=phase,
        late=late,
        reply_key=replies,
        reply=scenario.reply,
        until=until,
        last_wake=until + DRAIN,
        link_key=link,
        delay=model(parse_delay(scenario.delay)),
        local_delay=model(parse_delay(scenario.local_delay or scenario.delay)),
        bucket_width=width,
    )


def _state(scenario: Scenario, links: int, buckets: int, observed: bool) -> WorldState:
    peers = scenario.peers
    faults = [parse_fault(text) for text in scenario.faults]
    layout = scenario.resolved_layout() if scenario.local_delay is not None else None
    fifo = scenario.protocol_class().links.fifo if scenario.fifo is None else scenario.fifo
    silent = np.zeros(peers, np.bool_)
    silent[list(scenario.silent)] = True
    return WorldState(
        scalars=np.zeros(SCALARS, np.int64),
        arrivals=np.empty((_MAX_ARRIVALS, 4), np.int64),
        free_arrivals=np.empty(_MAX_ARRIVALS, np.int32),
        bucket_heads=np.full(buckets, -1, np.int32),
        due=np.empty((_MAX_ARRIVALS, heap.COLUMNS), np.int64),
        alarms=np.empty((4 * peers + 1024, heap.COLUMNS), np.int64),
        sends_planned=np.zeros(peers, np.int64),
        messages=np.zeros(peers, np.int64),
        silent=silent,
        ahead=np.array(scenario.clock_offsets(), np.int64),
        samples=np.array(scenario.sample_times() if scenario.probes else (), np.int64),
        link_packets=np.zeros(links, np.int32),
        link_last=np.zeros(links if fifo else 0, np.int64),
        copies=np.zeros(MAX_COPIES, np.int64),
        rows=np.empty((_MAX_ROWS if observed else 0, 7), np.int64),
        sites=np.array(layout.sites(peers) if layout is not None else (), np.int32),
        faults=np.array([fault_numbers(fault) for fault in faults], np.int64).reshape(-1, 4),
        fault_shares=np.array([getattr(fault, "share", 0.0) for fault in faults], np.float64),
    )


def drive(
    world: WorldState,
    rules: WorldRules,
    advance: Callable[[int], bool],
    observers: ObserverFeed,
    progress: Progress | None,
) -> None:
    """Drive a run to its end: `advance` processes so many events and returns whether there are more."""
    observers.start_over()
    more = True
    while more:
        more = advance(_EVENTS_PER_CALL)
        if world.scalars[FULL]:
            raise CapacityExceeded
        observers.show_rows(world.rows[: world.scalars[ROWS]])
        world.scalars[ROWS] = 0
        if progress is not None:
            progress(min(1.0, float(world.scalars[NOW]) / max(1, rules.until)))


def metrics(world: WorldState, stuck: int, measured: dict[str, float]) -> Metrics:
    """The metrics of a run that has ended."""
    scalars = [int(value) for value in world.scalars]
    return Metrics(
        messages=scalars[MESSAGES],
        deliveries=scalars[DELIVERIES],
        packets=scalars[PACKETS],
        link_bytes=scalars[LINK_BYTES],
        control_bytes_mean=mean(scalars[CONTROL], scalars[MESSAGES]),
        control_bytes_max=scalars[CONTROL_MAX],
        paper_bytes_mean=mean(scalars[PAPER], scalars[MESSAGES]),
        paper_bytes_max=scalars[PAPER_MAX],
        latency_mean_ns=mean(scalars[LATENCY], scalars[DELIVERIES]),
        latency_max_ns=scalars[LATENCY_MAX],
        held=scalars[HELD],
        hold_mean_ns=mean(scalars[HOLD], scalars[HELD]),
        stuck=stuck,
        simulated_ns=scalars[NOW],
        measured=measured,
    )
