"""Simulates one protocol on the schedule of a log: what it sends, stores and delays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from antecede.advise.schedule import mean_delay
from antecede.causality import MessageId
from antecede.protocols.base import Packet, Protocol
from antecede.sim.engines import reference
from antecede.sim.kernels.contract import ObserverFeed
from antecede.sim.network import parse_delay
from antecede.sim.probes import Probe
from antecede.sim.scenario import Scenario, scenario
from antecede.units import SECOND

_SAMPLES = 20
DIRECT = ("timestamp", "timestamp-diff", "mbcp", "depseq")
"""Protocols that send to every peer directly: in these, a message delivered late was held back."""


class TrialResult(NamedTuple):
    """What a simulation measured, per message on average."""

    control: np.ndarray
    """Control bytes of each message's own packet."""
    copies: float
    link_bytes: float
    payload_bytes: float
    """Bytes of all copies of a message's payload."""
    stored: float
    extra_delay: float
    deliveries: int


class CostProbe(Probe):
    """Records what each message carried, how often payloads were sent, and the size of members' state."""

    def __init__(self) -> None:
        super().__init__()
        self.control: list[int] = []
        self.payloads = 0
        self._stored = self._samples = 0

    def send(
        self, process: int, message: MessageId, time: int, control: int, paper: int, group: str | None
    ) -> None:
        self.control.append(control)

    def transmit(self, member: Protocol, to: Sequence[int], packet: Packet, now: int) -> None:
        self.payloads += packet.payload_bytes() * len(to)

    def sample(self, members: Sequence[Protocol]) -> None:
        self._stored += sum(len(member.save()) for member in members)
        self._samples += len(members)

    @property
    def stored(self) -> float:
        return self._stored / max(1, self._samples)


def trial_scenario(
    protocol: str,
    sends: Sequence[Sequence[int]],
    delay: str,
    payload: int,
    layout: dict[str, Any] | None = None,
    seed: int = 1,
) -> Scenario:
    """A scenario with a peer for each list of send times."""
    last = max((times[-1] for times in sends if times), default=0)
    return scenario(
        protocol=protocol,
        peers=len(sends),
        seconds=last / SECOND + 1,
        seed=seed,
        workload="given",
        sends=sends,
        delay=delay,
        payload=payload,
        layout=layout,
    )


def run_trial(planned: Scenario, progress: Callable[[float], None] = lambda _: None) -> TrialResult:
    """Simulate a scenario of `trial_scenario` on the reference engine."""
    probe = CostProbe()
    times = sorted(time for mine in planned.sends or () for time in mine)
    sample_at = sorted({times[(2 * n + 1) * len(times) // (2 * _SAMPLES)] for n in range(_SAMPLES)})
    metrics = reference.run(planned, ObserverFeed(()), progress, [probe], sample_at)
    messages, deliveries = max(1, metrics.messages), max(1, metrics.deliveries)
    extra = metrics.hold_mean_ns * metrics.held / deliveries
    if planned.protocol not in DIRECT:
        extra = max(0.0, metrics.latency_mean_ns - mean_delay(parse_delay(planned.delay)))
    return TrialResult(
        control=np.array(probe.control, np.int64),
        copies=metrics.packets / messages,
        link_bytes=metrics.link_bytes / messages,
        payload_bytes=probe.payloads / messages,
        stored=probe.stored,
        extra_delay=extra,
        deliveries=metrics.deliveries,
    )
