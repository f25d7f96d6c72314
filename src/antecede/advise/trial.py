"""One protocol on the schedule of a log: what it sends, keeps and delays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from antecede.advise.schedule import mean_delay
from antecede.causality import MessageId
from antecede.protocols.base import Packet, Protocol
from antecede.sim.metrics import Meter
from antecede.sim.network import parse_delay
from antecede.sim.probes import Probe
from antecede.sim.scenario import Scenario, scenario
from antecede.units import SECOND

_LOOKS = 20
_STEPS = 5_000
DIRECT = ("timestamp", "timestamp-diff", "mbcp", "depseq")
"""Protocols that send to everyone directly: what is late with them was held."""


class TrialResult(NamedTuple):
    control: np.ndarray
    """Control bytes of each message's own packet."""
    copies: float
    link_bytes: float
    payload_bytes: float
    """Of all copies of a message's payload."""
    stored: float
    extra_delay: float
    deliveries: int


class CostProbe(Probe):
    """What each message carried, how often payloads were sent, and what members keep."""

    def __init__(self) -> None:
        super().__init__()
        self.control: list[int] = []
        self.payloads = 0
        self._kept = self._looks = 0

    def send(
        self, process: int, message: MessageId, time: int, control: int, paper: int, group: str | None
    ) -> None:
        self.control.append(control)

    def transmit(self, member: Protocol, to: Sequence[int], packet: Packet, now: int) -> None:
        self.payloads += packet.payload_bytes() * len(to)

    def sample(self, members: Sequence[Protocol]) -> None:
        self._kept += sum(len(member.save()) for member in members)
        self._looks += len(members)

    @property
    def stored(self) -> float:
        return self._kept / max(1, self._looks)


def trial_scenario(
    protocol: str,
    sends: Sequence[Sequence[int]],
    delay: str,
    payload: int,
    layout: dict[str, Any] | None = None,
    seed: int = 1,
) -> Scenario:
    """A protocol among as many peers as `sends` has times for."""
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


def run_trial(given: Scenario, progress: Callable[[float], None] = lambda _: None) -> TrialResult:
    """Simulate a scenario whose sends are given."""
    members = given.members()
    meter, ledger = Meter(given.peers), CostProbe()
    times = sorted(time for mine in given.sends or () for time in mine)
    looks = sorted({times[(2 * look + 1) * len(times) // (2 * _LOOKS)] for look in range(_LOOKS)})
    world = given.world(members, [meter], [ledger], looks)
    while all(world.step() for _ in range(_STEPS)):
        progress(min(1.0, world.now / max(1, times[-1])))
    found = meter.metrics(world.packets, world.control_bytes, 0, world.now, {})
    messages, deliveries = max(1, found.messages), max(1, found.deliveries)
    extra = found.hold_mean_ns * found.held / deliveries
    if given.protocol not in DIRECT:
        extra = max(0.0, found.latency_mean_ns - mean_delay(parse_delay(given.delay)))
    return TrialResult(
        control=np.array(ledger.control, np.int64),
        copies=found.packets / messages,
        link_bytes=found.link_bytes / messages,
        payload_bytes=ledger.payloads / messages,
        stored=ledger.stored,
        extra_delay=extra,
        deliveries=found.deliveries,
    )
