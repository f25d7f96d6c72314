"""The event kernel of groups that change: it alternates between compiled code and the reference.

For most of a run, no member joins, leaves or is removed: members send messages and reports. This part is
compiled (`calm`). For all other events, the group is handed to the reference (`handover`), which drives the
actual members of `membership/` until the group is calm again. So there is one implementation of changes, and
the twin covers only the time between them.
"""

from __future__ import annotations

import numpy as np

from antecede.membership.catalog import ChangingMbcp, ChangingPc, ChangingVcube
from antecede.sim import counter_rng
from antecede.sim.changes import is_group_fault
from antecede.sim.changing_world import _SETTLE, ChangingGroupWorld
from antecede.sim.kernels.changing.calm import advance
from antecede.sim.kernels.changing.handover import CalmGroup, take_over
from antecede.sim.kernels.changing.state import BLOCKED, EVENTS, FULL, NOW, ROWS, SHOW, CalmRules, Capacities
from antecede.sim.kernels.contract import ObserverFeed, Progress, Unsupported
from antecede.sim.kernels.runtime.counter_rng import model
from antecede.sim.kernels.runtime.send_schedule import workload_numbers
from antecede.sim.metrics import Meter, Metrics
from antecede.sim.network import parse_delay
from antecede.sim.scenario import Scenario
from antecede.sim.scenario_detector import parse_detector
from antecede.units import SECOND

CAPACITIES = Capacities()
_MAX_PEERS = 500
"""The most members: each remembers the last intervals between reports of every other."""
_ROWS = 1 << 18
_EVENTS_PER_CALL = 1_000_000
_WORTH_IT = 20
"""Events per member that a calm period must have; otherwise the next one is looked for later."""
_LONGEST_WAIT = 4096


def supports(scenario: Scenario) -> Unsupported | None:
    """Why the kernel cannot run a scenario; None if it can."""
    if scenario.network is not None:
        return Unsupported("its group changes, and its network is not one of direct links")
    if scenario.probes:
        return Unsupported("its group changes, and probes look at its members")
    if scenario.reply:
        return Unsupported("its group changes, and members answer messages")
    if not all(map(is_group_fault, scenario.faults)):
        return Unsupported("its group changes, and its packets are delayed by a fault")
    if scenario.peers > _MAX_PEERS:
        return Unsupported(f"its group changes, and has more than {_MAX_PEERS} members")
    return None


def run(scenario: Scenario, observers: ObserverFeed, progress: Progress | None) -> Metrics:
    return Alternation(scenario, observers, progress).run()


class Alternation:
    """A run that alternates between the reference and compiled code."""

    def __init__(self, scenario: Scenario, observers: ObserverFeed, progress: Progress | None) -> None:
        self._scenario, self._observers, self._progress = scenario, observers, progress
        self._meter = Meter()
        observers.start_over()
        world = scenario.world(scenario.members(), [self._meter, observers] if observers else [self._meter])
        assert isinstance(world, ChangingGroupWorld)  # noqa: S101
        self._world = world
        self._rules = _rules(scenario)
        self.calm_events = 0
        """The number of events processed by compiled code."""

    def run(self) -> Metrics:
        world = self._world
        wait = 1
        while True:
            group = None if self._is_ending() else self._take_over()
            if group is not None:
                events = self._run_calm(group)
                wait = 1 if events > _WORTH_IT * len(world.members) else min(2 * wait, _LONGEST_WAIT)
            else:
                wait = min(2 * wait, _LONGEST_WAIT)
            if not all(world.step() for _ in range(wait)):
                break
            if self._progress is not None:
                self._progress(min(1.0, world.now / max(1, self._rules.until)))
        measured = world.network.figures(world.now) | world.figures()
        return self._meter.metrics(
            world.packets, world.control_bytes, world.count_stuck(), world.now, measured
        )

    def _is_ending(self) -> bool:
        """Whether only the last events remain; the reference alone can tell whether they do."""
        return self._world.now >= self._rules.until and not self._world._changes_left and self._has_blocked

    _has_blocked = False

    def _take_over(self) -> CalmGroup | None:
        rows = _ROWS if self._observers else 0
        return take_over(self._world, self._meter, self._scenario.payload, rows, CAPACITIES)

    def _run_calm(self, group: CalmGroup) -> int:
        """Run compiled code as long as possible. Returns the number of events processed."""
        state, rules = group.state, self._rules
        while True:
            left = self._world._changes_left
            why = advance(state, rules, group.stop, left, _EVENTS_PER_CALL)
            if self._observers:
                self._observers.show_rows(state.rows[: state.scalars[ROWS]])
                state.scalars[ROWS] = 0
            if self._progress is not None:
                self._progress(min(1.0, float(state.scalars[NOW]) / max(1, rules.until)))
            if why != SHOW:
                break
        self._has_blocked = why == BLOCKED
        events = int(state.scalars[EVENTS])
        self.calm_events += events
        group.hand_back()
        if why == FULL and events:
            again = self._take_over()
            return events + self._run_calm(again) if again is not None else events
        return events


def _rules(scenario: Scenario) -> CalmRules:
    purposes = counter_rng.PHASE, counter_rng.SEND, counter_rng.LINK
    phase, late, link = (np.uint64(counter_rng.key(scenario.seed, use)) for use in purposes)
    detector = parse_detector(scenario.detector)
    kind = scenario.protocol_class()
    until = round(scenario.seconds * SECOND)
    return CalmRules(
        workload=workload_numbers(scenario.build_workload()),
        phase=phase,
        late=late,
        link_key=link,
        delay=model(parse_delay(scenario.delay)),
        until=until,
        settled_by=until + _SETTLE,
        interval=detector.report,
        detects=detector.detects,
        remove=-1 if detector.remove is None else detector.remove,
        relays=kind in (ChangingVcube, ChangingPc),
        has_causes=kind is not ChangingPc,
        drops_causes=kind is ChangingMbcp,
        by_cluster=kind is ChangingVcube,
        paper_base=0 if kind is ChangingMbcp else 4,
        paper_cause=8 if kind is ChangingMbcp else 0 if kind is ChangingPc else 4,
    )
