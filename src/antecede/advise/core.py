"""Advice on one run: figures from the log's own pasts where that is exact, from a simulation elsewhere.

- `timestamp`, `timestamp-diff`, `mbcp` and `depseq` carry what a message's past says: bytes from all
  messages, by the sizes that the simulator's engines use, and copies to everyone. Not so if the log's own
  system delivered sooner or later than these would: then its messages knew of others.
- Everything else is simulated on the logged sends, over delays as the log shows them: the first messages, as
  many as `deliveries` allow. Where that is not all of them, or when they were sent had to be assumed, control
  bytes are corrected by the protocol that is stamped most alike (`_LIKE`), of which the log says it all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from antecede.advise.pasts import Pasts, pasts_of_dependencies, pasts_of_run, single_group_rows, stated
from antecede.advise.recommend import SLACK, recommend, split
from antecede.advise.results import Advice, Cost, FreescaleRoles
from antecede.advise.schedule import WorkloadSchedule, assumed, logged, mean_delay
from antecede.advise.trial import TrialResult, run_trial, trial_scenario
from antecede.errors import InputError
from antecede.sim.kernels.flat.delivery_times import DEPSEQ, MBCP, TIMESTAMP, TIMESTAMP_DIFF
from antecede.sim.kernels.flat.log_sizes import control_sizes
from antecede.sim.network import parse_delay
from antecede.trace.dependencies import Dependencies
from antecede.trace.execution_from_rows import Members
from antecede.units import format_duration

Progress = Callable[[str, int, int], None]

FROM_PASTS = {"timestamp": TIMESTAMP, "timestamp-diff": TIMESTAMP_DIFF, "mbcp": MBCP, "depseq": DEPSEQ}
ADVISED_PROTOCOLS = (*FROM_PASTS, "freescale", "flooding", "vcube", "vcube-agg", "pc")
_LIKE = {"vcube": "timestamp-diff", "vcube-agg": "timestamp-diff", "freescale": "mbcp"}
"""Whose stamps grow as theirs do in the course of a log; the others carry an identity and no more."""
DELIVERIES = 40_000
"""Simulated for each protocol: about ten seconds for all of them."""
MAX_PEERS = 1_000
"""Members keep something of each other: beyond this many they do not fit."""
_LEAST_MESSAGES = 10
_SAME_DELAY = 0.2
_LONG_ENOUGH = 20
"""Delays that a simulated part should span."""
_ENOUGH_DELIVERIES = 1_000
"""To tell whether the log's deliveries are late: the mean of fewer is a matter of luck."""


class CostInputs(NamedTuple):
    """What the figures of a protocol are made of."""

    sizes: dict[str, np.ndarray]
    """Control bytes of every message under each flat protocol, by the log's own pasts."""
    bare: np.ndarray
    """The same with nothing named: a message's identity."""
    first: np.ndarray
    """The messages that were simulated, in the order of sending."""
    trials: dict[str, TrialResult]
    timed: bool


class Request(msgspec.Struct, frozen=True):
    """What is asked for."""

    protocols: tuple[str, ...] = ADVISED_PROTOCOLS
    internal: tuple[str, ...] | None = None
    """The peers behind freescale's super peer; by default chosen from the traffic."""
    delay: str | None = None
    """What a packet takes, as in a scenario; by default as the log shows."""
    deliveries: int = DELIVERIES
    """How many to simulate for each protocol, about."""
    slack: float = SLACK
    """How much later than the quickest the recommended protocol may deliver, as a share."""

    def __post_init__(self) -> None:
        unknown = [name for name in self.protocols if name not in ADVISED_PROTOCOLS]
        if unknown:
            raise InputError(f"no advice on '{unknown[0]}'; there is on {', '.join(ADVISED_PROTOCOLS)}")
        if not self.protocols:
            raise InputError("no protocol is named")
        if self.delay is not None:
            parse_delay(self.delay)


def advise_run(
    run: str, rows: pa.Table, members: Members, asked: Request, progress: Progress = lambda *_: None
) -> Advice:
    """Advice on the rows of one run, in whatever order they come."""
    plain, everyone = single_group_rows(run, rows, members)
    if not pc.any(pc.equal(plain.column("kind"), "deliver")).as_py():
        return advise_dependencies(stated(run, plain), asked, progress)
    with pasts_of_run(run, plain, everyone) as (pasts, log):
        _refuse_nothing(run, pasts)
        return _advise(run, pasts, logged(plain, log, pasts, asked.delay), asked, progress)


def advise_dependencies(given: Dependencies, asked: Request, progress: Progress = lambda *_: None) -> Advice:
    """Advice on a table of dependencies."""
    with pasts_of_dependencies(given) as pasts:
        _refuse_nothing(given.run, pasts)
        return _advise(given.run, pasts, assumed(pasts, asked.delay), asked, progress)


def _refuse_nothing(run: str, pasts: Pasts) -> None:
    if not len(pasts.senders):
        raise InputError(f"run {run}: nobody sends anything, so there is nothing to advise on")
    if len(pasts.names) < 2:
        raise InputError(f"run {run}: there is only {pasts.names[0]}; a group has two members or more")


def _advise(run: str, pasts: Pasts, schedule: WorkloadSchedule, asked: Request, progress: Progress) -> Advice:
    peers, messages = len(pasts.names), len(pasts.senders)
    sizes = {name: _sizes(pasts, code, schedule.payload) for name, code in FROM_PASTS.items()}
    parts = None
    assumptions = list(schedule.assumptions)
    if "freescale" in asked.protocols:
        parts = split(pasts.names, np.bincount(pasts.senders, minlength=peers), asked.internal)
    elif asked.internal is not None:
        raise InputError("internal: freescale is not among the protocols")
    first = np.argsort(schedule.times, kind="stable")
    first = first[: max(_LEAST_MESSAGES, asked.deliveries // peers)]
    if peers > MAX_PEERS:
        first = first[:0]
        assumptions.append(f"nothing was simulated: there are more than {MAX_PEERS:,} processes")
    wanted = list(asked.protocols)
    if not schedule.timed:
        wanted = list(dict.fromkeys(wanted + [_LIKE[name] for name in wanted if name in _LIKE]))
    trials: dict[str, TrialResult] = {}
    for number, protocol in enumerate(wanted if len(first) else ()):

        def told(share: float, number: int = number) -> None:
            progress("simulating", round(100 * (number + share)), 100 * len(wanted))

        told(0.0)
        trials[protocol] = _try(protocol, pasts, schedule, first, parts, told)
    direct = mean_delay(parse_delay(schedule.delay))
    known = CostInputs(
        sizes, _sizes(pasts, MBCP, schedule.payload, named=False), first, trials, schedule.timed
    )
    costs = []
    elsewhen = False
    for protocol in asked.protocols:
        trial = trials.get(protocol)
        if protocol in sizes and not (trial and _differs(schedule, direct, trial)):
            costs.append(_from_log(protocol, sizes[protocol], peers, schedule.payload, trial))
        elif trial is None:
            costs.append(Cost(protocol, None, None, False, None, None, None, None, None))
        else:
            elsewhen |= protocol in sizes
            costs.append(_simulated(protocol, trial, _over_all(protocol, known)))
    if elsewhen and schedule.delivered_after is not None:
        assumptions.append(
            f"the log's deliveries took {format_duration(schedule.delivered_after)} on average, not what "
            "direct ones take, so its messages knew of others than they would have; what they carry is "
            "simulated"
        )
    if 0 < len(first) < messages and schedule.times[first].max() < _LONG_ENOUGH * direct:
        assumptions.append(
            f"the simulated part is {format_duration(float(schedule.times[first].max()))} long, too short "
            "for messages to have come round: simulated control bytes are too low; take more --deliveries"
        )
    chosen, reason, otherwise = recommend(costs, direct, asked.slack)
    return Advice(
        run=run,
        processes=peers,
        messages=messages,
        simulated_messages=len(first),
        recommended=chosen,
        reason=reason,
        otherwise=otherwise,
        delay_mean_ns=direct,
        delay=schedule.delay_from,
        payload_bytes=schedule.payload,
        logged_control_bytes_mean=schedule.logged_control,
        assumptions=assumptions,
        split=parts,
        costs=costs,
    )


def _sizes(pasts: Pasts, protocol: int, payload: int, named: bool = True) -> np.ndarray:
    """Control bytes of every message; with nothing `named`, of its identity alone."""
    start = pasts.start if named else np.zeros_like(pasts.start)
    sizes: np.ndarray = control_sizes(
        protocol, len(pasts.names), payload, pasts.senders, pasts.numbers, pasts.columns,
        pasts.vectors, pasts.previous, start, pasts.cause,
    )  # fmt: skip
    return sizes


def _try(
    protocol: str,
    pasts: Pasts,
    schedule: WorkloadSchedule,
    first: np.ndarray,
    parts: FreescaleRoles | None,
    progress: Callable[[float], None],
) -> TrialResult:
    """Simulate the `first` messages; in freescale members stand in the order of their roles."""
    order: Sequence[int] = range(len(pasts.names))
    layout: dict[str, Any] | None = None
    if protocol == "freescale" and parts is not None:
        rank = {name: place for place, name in enumerate(pasts.names)}
        order = [rank[name] for name in (parts.super_peer, *parts.internal, *parts.external)]
        layout = {"inside": [len(parts.internal)]}
    sends: list[list[int]] = [[] for _ in pasts.names]
    for message in first:
        sends[pasts.senders[message]].append(int(schedule.times[message]))
    arranged = [sends[peer] for peer in order]
    return run_trial(trial_scenario(protocol, arranged, schedule.delay, schedule.payload, layout), progress)


def _differs(schedule: WorkloadSchedule, direct: float, trial: TrialResult) -> bool:
    """Whether the log's deliveries were not those of a protocol that sends to everyone directly."""
    logged, simulated = schedule.delivered_after, direct + trial.extra_delay
    if logged is None or trial.deliveries < _ENOUGH_DELIVERIES:
        return False
    return abs(logged - simulated) > _SAME_DELAY * simulated


def _over_all(protocol: str, known: CostInputs) -> tuple[float, float]:
    """Control bytes, mean and p99: simulated for the first messages, as they would be over the whole log.

    What a message carries in any case grows as its identity does. What it names grows as it does in the flat
    protocol that is most alike, by the log; where the sends are not the log's own, beside that one's trial.
    """
    trial, bare, first = known.trials[protocol], known.bare, known.first
    if known.timed and len(first) == len(bare):
        return float(trial.control.mean()), _p99(trial.control)
    always = int(trial.control.min()) - int(bare[first].min())  # a run's first message names nothing
    fixed = bare + always
    like = _LIKE.get(protocol, protocol)
    if like not in known.sizes:
        return float(fixed.mean()), _p99(fixed)
    # In the beginning nothing depends on anything, and for longer where messages take longer.
    later = len(first) // 2
    part = known.sizes[like][first] if known.timed else known.trials[like].control
    named, by_part = (trial.control - fixed[first])[later:], (part - bare[first])[later:]
    by_log = known.sizes[like] - bare
    mean = named.mean() * by_log.mean() / (by_part.mean() or 1.0)
    most = _p99(named) * _p99(by_log) / (_p99(by_part) or 1.0)
    return float(fixed.mean() + mean), float(fixed.mean() + most)


def _p99(sizes: np.ndarray) -> float:
    return float(np.quantile(sizes, 0.99, method="higher"))


def _from_log(protocol: str, sizes: np.ndarray, peers: int, payload: int, trial: TrialResult | None) -> Cost:
    mean = float(sizes.mean())
    return Cost(
        protocol=protocol,
        control_bytes_mean=mean,
        control_bytes_p99=_p99(sizes),
        exact=True,
        copies=peers - 1,
        link_bytes=mean * (peers - 1),
        total_bytes=(mean + payload) * (peers - 1),
        stored_bytes=trial.stored if trial else None,
        extra_delay_ns=trial.extra_delay if trial else None,
    )


def _simulated(protocol: str, trial: TrialResult, control: tuple[float, float]) -> Cost:
    """What a trial showed; of all links as much more or less as of a message's own packet."""
    mean, most = control
    link = trial.link_bytes * mean / float(trial.control.mean())
    return Cost(
        protocol=protocol,
        control_bytes_mean=mean,
        control_bytes_p99=most,
        exact=False,
        copies=trial.copies,
        link_bytes=link,
        total_bytes=link + trial.payload_bytes,
        stored_bytes=trial.stored,
        extra_delay_ns=trial.extra_delay,
    )
