"""Advises on one run: costs from the log's own pasts where that is exact, from a simulation elsewhere.

- `timestamp`, `timestamp-diff`, `mbcp` and `depseq` send to everyone directly and carry what a message's
  causal past determines. Their bytes are computed for all messages, with the sizes that the simulator's
  engines use. This does not hold if the logged system delivered clearly sooner or later than these protocols
  would: then its messages had different pasts, and these protocols are simulated too.
- All other protocols are simulated on the logged sends with the delays that the log shows, for as many of the
  first messages as `deliveries` allows. If that is not all of them, or if send times had to be assumed,
  control bytes are extrapolated by the flat protocol whose stamps grow alike (`_GROWS_LIKE`), for which the
  whole log is known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from antecede.advise.pasts import (
    Pasts,
    pasts_of_dependencies,
    pasts_of_run,
    single_group_rows,
    stated_dependencies,
)
from antecede.advise.recommend import SLACK, choose_roles, recommend
from antecede.advise.results import Advice, Cost, FreescaleRoles
from antecede.advise.schedule import WorkloadSchedule, assumed_schedule, logged_schedule, mean_delay
from antecede.advise.trial import TrialResult, run_trial, trial_scenario
from antecede.errors import InputError
from antecede.sim.kernels.flat.log_sizes import control_sizes
from antecede.sim.kernels.flat.stamps import DEPSEQ, MBCP, TIMESTAMP, TIMESTAMP_DIFF
from antecede.sim.network import parse_delay
from antecede.trace.dependencies import Dependencies
from antecede.trace.schema import Members
from antecede.units import format_duration

Progress = Callable[[str, int, int], None]

FROM_PASTS = {"timestamp": TIMESTAMP, "timestamp-diff": TIMESTAMP_DIFF, "mbcp": MBCP, "depseq": DEPSEQ}
ADVISED_PROTOCOLS = (*FROM_PASTS, "freescale", "flooding", "vcube", "vcube-agg", "pc")
_GROWS_LIKE = {"vcube": "timestamp-diff", "vcube-agg": "timestamp-diff", "freescale": "mbcp"}
"""The flat protocol whose stamps grow over a log like those of this one; protocols not listed carry only a
message's identity."""
DELIVERIES = 40_000
"""Deliveries simulated for each protocol: about ten seconds for all of them."""
MAX_PEERS = 1_000
"""The most members that a simulation supports: members hold state for each other, which must fit into
memory."""
_MIN_MESSAGES = 10
_SAME_DELAY = 0.2
_MIN_DELAYS_SIMULATED = 20
"""How many mean delays a simulated part should last."""
_MIN_DELIVERIES_COMPARED = 1_000
"""Below this, the mean delay of the log's deliveries is too noisy to compare."""


class Request(msgspec.Struct, frozen=True):
    """What to advise on, and how."""

    protocols: tuple[str, ...] = ADVISED_PROTOCOLS
    internal: tuple[str, ...] | None = None
    """The peers behind the super peer in freescale; by default chosen from the traffic."""
    delay: str | None = None
    """The delay of a packet, as in a scenario; by default the delay that the log shows."""
    deliveries: int = DELIVERIES
    """About how many deliveries to simulate for each protocol."""
    slack: float = SLACK
    """How much later than the quickest the recommended protocol may deliver, as a share."""

    def __post_init__(self) -> None:
        unknown = [name for name in self.protocols if name not in ADVISED_PROTOCOLS]
        if unknown:
            supported = ", ".join(ADVISED_PROTOCOLS)
            raise InputError(f"advise does not support protocol '{unknown[0]}'; choose from {supported}")
        if not self.protocols:
            raise InputError("no protocol is named")
        if self.internal is not None and "freescale" not in self.protocols:
            raise InputError("internal: freescale is not among the protocols")
        if self.delay is not None:
            parse_delay(self.delay)


class CostInputs(NamedTuple):
    """What a protocol's cost is computed from."""

    sizes: dict[str, np.ndarray]
    """Control bytes of every message under each flat protocol, computed from the log's own pasts."""
    identity_sizes: np.ndarray
    """Control bytes of every message without causes: of its identity alone."""
    simulated: np.ndarray
    """The messages that were simulated, in send order."""
    trials: dict[str, TrialResult]
    timed: bool
    """Whether the send times are the log's own."""


def advise_run(
    run: str, rows: pa.Table, members: Members, request: Request, progress: Progress = lambda *_: None
) -> Advice:
    """Advice on the rows of one run, in any order."""
    rows, everyone = single_group_rows(run, rows, members)
    if not pc.any(pc.equal(rows.column("kind"), "deliver")).as_py():
        return advise_dependencies(stated_dependencies(run, rows), request, progress)
    with pasts_of_run(run, rows, everyone) as (pasts, encoded):
        _refuse_too_small(run, pasts)
        schedule = logged_schedule(rows, encoded, pasts, request.delay)
        return _advise(run, pasts, schedule, request, progress)


def advise_dependencies(
    table: Dependencies, request: Request, progress: Progress = lambda *_: None
) -> Advice:
    """Advice on a table of dependencies."""
    with pasts_of_dependencies(table) as pasts:
        _refuse_too_small(table.run, pasts)
        return _advise(table.run, pasts, assumed_schedule(pasts, request.delay), request, progress)


def _refuse_too_small(run: str, pasts: Pasts) -> None:
    if not len(pasts.senders):
        raise InputError(f"run {run}: nobody sends anything, so there is nothing to advise on")
    if len(pasts.names) < 2:
        raise InputError(f"run {run}: there is only {pasts.names[0]}; a group has two members or more")


def _advise(
    run: str, pasts: Pasts, schedule: WorkloadSchedule, request: Request, progress: Progress
) -> Advice:
    peers = len(pasts.names)
    roles = None
    if "freescale" in request.protocols:
        roles = choose_roles(pasts.names, np.bincount(pasts.senders, minlength=peers), request.internal)
    simulated = np.argsort(schedule.times, kind="stable")
    simulated = simulated[: max(_MIN_MESSAGES, request.deliveries // peers) if peers <= MAX_PEERS else 0]
    inputs = CostInputs(
        sizes={name: _control_sizes(pasts, code, schedule.payload) for name, code in FROM_PASTS.items()},
        identity_sizes=_control_sizes(pasts, MBCP, schedule.payload, with_causes=False),
        simulated=simulated,
        trials=_run_trials(pasts, schedule, request, simulated, roles, progress),
        timed=schedule.timed,
    )
    direct = mean_delay(parse_delay(schedule.delay))
    costs = [_cost(protocol, inputs, schedule, direct, peers) for protocol in request.protocols]
    recommended, reason, otherwise = recommend(costs, direct, request.slack)
    return Advice(
        run=run,
        processes=peers,
        messages=len(pasts.senders),
        simulated_messages=len(simulated),
        recommended=recommended,
        reason=reason,
        otherwise=otherwise,
        delay_mean_ns=direct,
        delay=schedule.delay_from,
        payload_bytes=schedule.payload,
        logged_control_bytes_mean=schedule.logged_control,
        assumptions=_assumptions(schedule, inputs, costs, direct, peers),
        split=roles,
        costs=costs,
    )


def _assumptions(
    schedule: WorkloadSchedule, inputs: CostInputs, costs: list[Cost], direct: float, peers: int
) -> list[str]:
    """What the advice assumes besides the log, in sentences."""
    notes = list(schedule.assumptions)
    simulated = inputs.simulated
    if peers > MAX_PEERS:
        notes.append(f"nothing was simulated: there are more than {MAX_PEERS:,} processes")
    resimulated = any(cost.protocol in FROM_PASTS and not cost.exact for cost in costs)
    if resimulated and schedule.delivered_after is not None:
        notes.append(
            f"the log's deliveries took {format_duration(schedule.delivered_after)} on average, not what "
            "direct ones take, so its messages knew of others than they would have; what they carry is "
            "simulated"
        )
    if 0 < len(simulated) < len(inputs.identity_sizes):
        length = float(schedule.times[simulated].max())
        if length < _MIN_DELAYS_SIMULATED * direct:
            notes.append(
                f"the simulated part is {format_duration(length)} long, too short for messages to have come "
                "round: simulated control bytes are too low; take more --deliveries"
            )
    return notes


def _control_sizes(pasts: Pasts, protocol: int, payload: int, with_causes: bool = True) -> np.ndarray:
    """Control bytes of every message; without causes, of its identity alone."""
    start = pasts.start if with_causes else np.zeros_like(pasts.start)
    sizes: np.ndarray = control_sizes(
        protocol, len(pasts.names), payload, pasts.senders, pasts.numbers, pasts.columns,
        pasts.vectors, pasts.previous, start, pasts.cause,
    )  # fmt: skip
    return sizes


# Simulating.


def _run_trials(
    pasts: Pasts,
    schedule: WorkloadSchedule,
    request: Request,
    simulated: np.ndarray,
    roles: FreescaleRoles | None,
    progress: Progress,
) -> dict[str, TrialResult]:
    """Simulate each protocol and, where send times are assumed, also the protocols that it is compared
    with."""
    if not len(simulated):
        return {}
    protocols = list(request.protocols)
    if not schedule.timed:
        compared = [_GROWS_LIKE[name] for name in protocols if name in _GROWS_LIKE]
        protocols = list(dict.fromkeys(protocols + compared))
    trials: dict[str, TrialResult] = {}
    for number, protocol in enumerate(protocols):

        def report(share: float, number: int = number) -> None:
            progress("simulating", round(100 * (number + share)), 100 * len(protocols))

        report(0.0)
        trials[protocol] = _run_trial(protocol, pasts, schedule, simulated, roles, report)
    return trials


def _run_trial(
    protocol: str,
    pasts: Pasts,
    schedule: WorkloadSchedule,
    simulated: np.ndarray,
    roles: FreescaleRoles | None,
    progress: Callable[[float], None],
) -> TrialResult:
    """Simulate one protocol; in freescale, members are ordered by their roles."""
    order: Sequence[int] = range(len(pasts.names))
    layout: dict[str, Any] | None = None
    if protocol == "freescale" and roles is not None:
        rank = {name: place for place, name in enumerate(pasts.names)}
        order = [rank[name] for name in (roles.super_peer, *roles.internal, *roles.external)]
        layout = {"inside": [len(roles.internal)]}
    sends: list[list[int]] = [[] for _ in pasts.names]
    for message in simulated:
        sends[pasts.senders[message]].append(int(schedule.times[message]))
    arranged = [sends[peer] for peer in order]
    return run_trial(trial_scenario(protocol, arranged, schedule.delay, schedule.payload, layout), progress)


# Costs.


def _cost(protocol: str, inputs: CostInputs, schedule: WorkloadSchedule, direct: float, peers: int) -> Cost:
    trial = inputs.trials.get(protocol)
    if protocol in inputs.sizes and not (trial and _delays_differ(schedule, direct, trial)):
        return _cost_from_log(protocol, inputs.sizes[protocol], peers, schedule.payload, trial)
    if trial is None:
        return Cost(protocol, None, None, False, None, None, None, None, None)
    return _cost_from_trial(protocol, trial, _control_over_log(protocol, inputs))


def _delays_differ(schedule: WorkloadSchedule, direct: float, trial: TrialResult) -> bool:
    """Whether the log's deliveries cannot come from a protocol that sends to every peer directly."""
    logged, simulated = schedule.delivered_after, direct + trial.extra_delay
    if logged is None or trial.deliveries < _MIN_DELIVERIES_COMPARED:
        return False
    return abs(logged - simulated) > _SAME_DELAY * simulated


def _control_over_log(protocol: str, inputs: CostInputs) -> tuple[float, float]:
    """Control bytes, mean and p99, extrapolated from the simulated messages to the whole log.

    The fixed part of a message grows with its identity. The named causes grow as they do over the log in the
    most similar flat protocol; where the send times are assumed, as in the trial of that protocol.
    """
    trial, identity, simulated = inputs.trials[protocol], inputs.identity_sizes, inputs.simulated
    if inputs.timed and len(simulated) == len(identity):
        return float(trial.control.mean()), _p99(trial.control)
    # A run's first message names no causes.
    fixed = identity + (int(trial.control.min()) - int(identity[simulated].min()))
    like = _GROWS_LIKE.get(protocol, protocol)
    if like not in inputs.sizes:
        return float(fixed.mean()), _p99(fixed)
    # Messages name few causes at the start, and for longer where delays are longer: skip the first half.
    half = len(simulated) // 2
    part = inputs.sizes[like][simulated] if inputs.timed else inputs.trials[like].control
    named = (trial.control - fixed[simulated])[half:]
    like_in_part, like_in_log = (part - identity[simulated])[half:], inputs.sizes[like] - identity
    mean = named.mean() * like_in_log.mean() / (like_in_part.mean() or 1.0)
    p99 = _p99(named) * _p99(like_in_log) / (_p99(like_in_part) or 1.0)
    return float(fixed.mean() + mean), float(fixed.mean() + p99)


def _p99(sizes: np.ndarray) -> float:
    return float(np.quantile(sizes, 0.99, method="higher"))


def _cost_from_log(
    protocol: str, sizes: np.ndarray, peers: int, payload: int, trial: TrialResult | None
) -> Cost:
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


def _cost_from_trial(protocol: str, trial: TrialResult, control: tuple[float, float]) -> Cost:
    """The cost measured in a trial; the bytes of all links are corrected in proportion to a message's own
    packet."""
    mean, p99 = control
    link = trial.link_bytes * mean / float(trial.control.mean())
    return Cost(
        protocol=protocol,
        control_bytes_mean=mean,
        control_bytes_p99=p99,
        exact=False,
        copies=trial.copies,
        link_bytes=link,
        total_bytes=link + trial.payload_bytes,
        stored_bytes=trial.stored,
        extra_delay_ns=trial.extra_delay,
    )
