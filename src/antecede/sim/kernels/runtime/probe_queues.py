"""The twin of `probes.HoldBackQueues`, for protocols that deliver each sender's messages in order."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from antecede.jit import njit_inline
from antecede.sim.kernels.runtime.world_state import NOW
from antecede.sim.probes import HoldBackQueues
from antecede.sim.scenario import Scenario
from antecede.units import SECOND

_MOST, _WAITED, _END, _LEFT, _STARTS = range(5)
"""The longest queue, the total time that messages waited, the last arrival; of messages that still wait,
how many there are and the sum of their starting times."""


class QueueProbe(NamedTuple):
    since: int
    """The time before which nothing is measured."""
    scalars: np.ndarray
    held: np.ndarray
    changed: np.ndarray
    """For each peer: how many messages it holds, and when that number last changed."""


def create_probe(scenario: Scenario) -> QueueProbe | None:
    """None if the probe is off."""
    if "queues" not in scenario.probes:
        return None
    peers, scalars = scenario.peers, np.zeros(5, np.int64)
    return QueueProbe(
        round(scenario.warmup * SECOND), scalars, np.zeros(peers, np.int64), np.zeros(peers, np.int64)
    )


@njit_inline
def probe_receive(world: Any, probe: Any, me: Any, delivered: Any, is_duplicate: Any) -> Any:
    """A message arrives. It may have been delivered before, or have arrived before and still wait."""
    if probe is None:
        return
    now, scalars = world.scalars[NOW], probe.scalars
    scalars[_END] = now
    if delivered:
        return
    note_change(probe, me, now)
    if not is_duplicate:
        probe.held[me] += 1
        scalars[_LEFT] += 1
        scalars[_STARTS] += max(now, probe.since)


@njit_inline
def probe_deliver(world: Any, probe: Any, me: Any, arrived: Any) -> Any:
    if probe is None:
        return
    now, scalars = world.scalars[NOW], probe.scalars
    note_change(probe, me, now)
    start = max(arrived, probe.since)
    probe.held[me] -= 1
    scalars[_LEFT] -= 1
    scalars[_STARTS] -= start
    scalars[_WAITED] += max(0, now - start)


@njit_inline
def note_change(probe: Any, me: Any, now: Any) -> Any:
    """A queue is about to change; its length counts if it lasted for any time."""
    if now > max(probe.changed[me], probe.since):
        probe.scalars[_MOST] = max(probe.scalars[_MOST], probe.held[me])
    probe.changed[me] = now


def measured(probe: QueueProbe | None) -> dict[str, float]:
    """The metrics, as the probe reports them; nothing if it is off."""
    if probe is None:
        return {}
    most, waited, end, left, starts = (int(value) for value in probe.scalars)
    twin = HoldBackQueues(probe.since)
    twin._members, twin._most, twin._end = len(probe.held), most, end
    twin._waited = waited + (left * end - starts if end > probe.since else 0)
    return twin.figures()
