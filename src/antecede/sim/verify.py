"""Verify a protocol on random small executions, by the oracle alone.

Scenarios have few peers, delays over orders of magnitude, faults and replies. Run r of seed s is always the
same scenario, so both replay a failure. A protocol passes if every message is delivered exactly once, in
causal order, and none stays held.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import msgspec

from antecede.causality import Execution, Judgement, Kind, MessageId, Step, judge
from antecede.errors import ProtocolError
from antecede.protocols import catalog
from antecede.sim import counter_rng
from antecede.sim.engines import simulate
from antecede.sim.scenario import Scenario

_MAX_FAILURES = 20
_BATCH = 100


class Histories:
    """Records what each process sent and delivered: the oracle's only input."""

    def __init__(self, scenario: Scenario) -> None:
        self.steps: list[list[Step]] = [[] for _ in range(scenario.peers)]
        self._members = {group: frozenset(peers) for group, peers in scenario.audiences().items()}
        self._audiences: dict[MessageId, frozenset[int]] = {}

    def execution(self) -> Execution:
        return Execution(self.steps, self._audiences)

    def send(
        self, process: int, message: MessageId, time: int, control: int, paper: int, group: str | None
    ) -> None:
        self.steps[process].append(Step(Kind.SEND, message))
        if group is not None:
            self._audiences[message] = self._members[group]

    def receive(self, process: int, link: int, message: MessageId, time: int) -> None:
        """Receiving a packet is not an event of causal order."""

    def deliver(self, process: int, message: MessageId, time: int) -> None:
        self.steps[process].append(Step(Kind.DELIVER, message))


class Failure(msgspec.Struct, frozen=True):
    """A run that failed, with its scenario to replay it."""

    run: int
    scenario: Scenario
    reason: str


class VerifyReport(msgspec.Struct):
    """The outcome of `verify` for one protocol."""

    protocol: str
    runs: int = 0
    deliveries: int = 0
    largest_group: int = 0
    violations: int = 0
    stuck: int = 0
    duplicates: int = 0
    missing: int = 0
    raised: int = 0
    """Runs in which the protocol raised an exception."""
    messages: int = 0
    control_bytes_mean: float = 0.0
    control_bytes_max: int = 0
    failed: int = 0
    """Runs with any fault; `failures` has the first of them."""
    failures: list[Failure] = msgspec.field(default_factory=list)

    @property
    def passed(self) -> bool:
        return self.failed == 0

    def add(self, other: VerifyReport) -> None:
        """Add the counts of other runs."""
        control = self.control_bytes_mean * self.messages + other.control_bytes_mean * other.messages
        for count in ("runs", "deliveries", "violations", "stuck", "duplicates", "missing", "raised"):
            setattr(self, count, getattr(self, count) + getattr(other, count))
        self.messages += other.messages
        self.control_bytes_mean = control / self.messages if self.messages else 0.0
        self.largest_group = max(self.largest_group, other.largest_group)
        self.control_bytes_max = max(self.control_bytes_max, other.control_bytes_max)
        self.failed += other.failed
        self.failures = [*self.failures, *other.failures][:_MAX_FAILURES]


def random_scenario(protocol: str, seed: int, run: int, peers: int | None = None) -> Scenario:
    """Scenario number `run` of the endless sequence that `seed` determines."""
    sequence = counter_rng.key(seed, counter_rng.SCENARIO, run)

    def pick(number: int, choices: list[Any]) -> Any:
        return choices[counter_rng.between(counter_rng.draw(sequence, number), 0, len(choices))]

    faults = [
        *pick(0, [[], ["duplicate:20%:300ms"]]),
        *pick(1, [[], ["reorder:20%:900ms"]]),
        *pick(2, [[], ["spike:100-300ms:700ms"]]),
    ]
    kind = catalog.find_protocol(protocol)
    if kind.links.fifo:
        faults = [fault for fault in faults if fault.startswith("spike")]
    if kind.links.bounded_delays:
        faults = [fault for fault in faults if fault.startswith("duplicate")]
    size = peers or pick(3, [1, 2, 3, 4, 5, 6, 6, 7, 8, 8, 10, 12])
    groups = None
    if kind.overlapping_groups and pick(10, [True, True, True, False]):
        groups = _random_groups(counter_rng.draw(sequence, 11), size)
    layout = None
    if kind.layout is not None:
        stream = counter_rng.RandomStream(counter_rng.draw(sequence, 15))
        layout = msgspec.to_builtins(kind.layout.random(size, stream.below))
    return Scenario(
        protocol=protocol,
        peers=size,
        groups=groups,
        layout=layout,
        local_delay=pick(12, [None, "wild:1us-10ms", "0-2ms"]) if layout else None,
        skew=pick(13, [None, "1ms", "50ms"]) if kind.links.bounded_delays else None,
        churn=pick(14, [None, 10.0, 40.0, 120.0]) if kind.dynamic_links else None,
        seconds=0.5,
        seed=counter_rng.draw(sequence, 4),
        workload=pick(5, ["periodic", "poisson"]),
        rate=pick(6, [4.0, 10.0, 10.0, 25.0]),
        jitter=pick(7, [0.0, 0.5, 3.0]),
        reply=pick(8, [0.0, 0.0, 0.1, 0.4]),
        delay=pick(9, ["wild:1us-1s", "wild:1us-1s", "0-300ms", "normal:0-200ms", "5ms"]),
        faults=tuple(faults),
        payload=8,
        most_messages=60,
    )


def _random_groups(bits: int, size: int) -> dict[str, tuple[int, ...]]:
    """One to five overlapping groups: random ones, or a ring in which each shares a member with the next."""
    names = [f"g{number}" for number in range(1 + counter_rng.between(bits, 0, 5))]
    if len(names) <= size and counter_rng.mix(bits + 1) % 3 == 0:
        return {name: tuple({n, (n + 1) % len(names)}) for n, name in enumerate(names)}
    groups = {}
    for number, name in enumerate(names):
        drawn = counter_rng.draw(bits, number)
        members = tuple(peer for peer in range(size) if drawn >> peer & 1)
        groups[name] = members or (number % size,)
    return groups


def verify(
    protocol: str,
    runs: int,
    seed: int,
    peers: int | None = None,
    first: int = 0,
    export: Path | None = None,
) -> Iterator[VerifyReport]:
    """Judge `protocol` on `runs` random executions from number `first` on; yields the report after each.

    With `export`, each run's trace is written to that folder too.
    """
    report = VerifyReport(catalog.find_protocol(protocol).name if protocol in catalog.PROTOCOLS else protocol)
    for run in range(first, first + runs):
        report.add(_judge(protocol, random_scenario(protocol, seed, run, peers), run, export))
        yield report


def _judge(protocol: str, scenario: Scenario, run: int, export: Path | None) -> VerifyReport:
    histories = Histories(scenario)
    try:
        if export is None:
            metrics = simulate(scenario, [histories]).metrics
        else:
            from antecede.sim.record import simulate_to

            metrics = simulate_to(export / f"run-{run:06}", scenario, [histories]).metrics
    except ProtocolError as error:
        return VerifyReport(
            protocol, runs=1, raised=1, failed=1, failures=[Failure(run, scenario, str(error))]
        )
    judgement = judge(histories.execution())
    verdict = judgement.verdict
    failed = not verdict.clean or metrics.stuck > 0
    return VerifyReport(
        protocol,
        runs=1,
        deliveries=verdict.deliveries,
        largest_group=scenario.peers,
        violations=verdict.causal_violations + verdict.orphans + verdict.impossible,
        stuck=metrics.stuck,
        duplicates=verdict.duplicates,
        missing=verdict.missing,
        messages=metrics.messages,
        control_bytes_mean=metrics.control_bytes_mean,
        control_bytes_max=metrics.control_bytes_max,
        failed=int(failed),
        failures=[Failure(run, scenario, _reason(judgement, metrics.stuck))] if failed else [],
    )


def verify_parallel(
    jobs: int, protocol: str, runs: int, seed: int, peers: int | None = None, export: Path | None = None
) -> Iterator[VerifyReport]:
    """As `verify`, on `jobs` processes, with the same outcome. Yields the report after each batch."""
    report = VerifyReport(catalog.find_protocol(protocol).name if protocol in catalog.PROTOCOLS else protocol)
    batches = [(first, min(_BATCH, runs - first)) for first in range(0, runs, _BATCH)]
    pool = ProcessPoolExecutor(jobs)
    try:
        parts = [pool.submit(_batch, protocol, count, seed, peers, first, export) for first, count in batches]
        for part in parts:
            report.add(part.result())
            yield report
    finally:
        pool.shutdown(cancel_futures=True)


def _batch(
    protocol: str, runs: int, seed: int, peers: int | None, first: int, export: Path | None
) -> VerifyReport:
    report = VerifyReport(protocol)
    for report in verify(protocol, runs, seed, peers, first, export):  # noqa: B007
        pass
    return report


def _reason(judgement: Judgement, stuck: int) -> str:
    verdict = judgement.verdict
    if verdict.causal_violations:
        return judgement.explain(next(judgement.violations()))
    counts = {"duplicate": verdict.duplicates, "missing": verdict.missing, "stuck": stuck}
    counts |= {"sent by nobody": verdict.orphans, "delivered before they were sent": verdict.impossible}
    return ", ".join(f"{count} {what}" for what, count in counts.items() if count)
