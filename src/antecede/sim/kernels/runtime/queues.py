"""The twin of `probes.Queues`, for protocols that deliver each sender's messages in order."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from antecede.jit import njit_inline
from antecede.sim.kernels.runtime.events import NOW
from antecede.sim.probes import HoldBackQueues
from antecede.sim.scenario import Scenario
from antecede.units import SECOND

_MOST, _WAITED, _END, _LEFT, _STARTS = range(5)
"""The longest queue, the time that was waited in all, the last arrival; of what still waits, how many there
are and the sum of the times from which they do."""


class Watch(NamedTuple):
    since: int
    """What was before is not measured."""
    at: np.ndarray
    held: np.ndarray
    changed: np.ndarray
    """Of each peer: how many it holds, and when that last changed."""


def fresh(given: Scenario) -> Watch | None:
    """Nothing if nobody measures."""
    if "queues" not in given.probes:
        return None
    peers, at = given.peers, np.zeros(5, np.int64)
    return Watch(round(given.warmup * SECOND), at, np.zeros(peers, np.int64), np.zeros(peers, np.int64))


@njit_inline
def queue_receive(run: Any, watch: Any, me: Any, delivered: Any, again: Any) -> Any:
    """Something arrives; perhaps it was delivered before, or is here again and waits."""
    if watch is None:
        return
    now, at = run.at[NOW], watch.at
    at[_END] = now
    if delivered:
        return
    change(watch, me, now)
    if not again:
        watch.held[me] += 1
        at[_LEFT] += 1
        at[_STARTS] += max(now, watch.since)


@njit_inline
def queue_deliver(run: Any, watch: Any, me: Any, arrived: Any) -> Any:
    if watch is None:
        return
    now, at = run.at[NOW], watch.at
    change(watch, me, now)
    start = max(arrived, watch.since)
    watch.held[me] -= 1
    at[_LEFT] -= 1
    at[_STARTS] -= start
    at[_WAITED] += max(0, now - start)


@njit_inline
def change(watch: Any, me: Any, now: Any) -> Any:
    """A queue is about to change: it has been as it is for some time, or for none."""
    if now > max(watch.changed[me], watch.since):
        watch.at[_MOST] = max(watch.at[_MOST], watch.held[me])
    watch.changed[me] = now


def figures(watch: Watch | None) -> dict[str, float]:
    """As the probe says them; nothing if nobody measured."""
    if watch is None:
        return {}
    most, waited, end, left, starts = (int(value) for value in watch.at)
    probe = HoldBackQueues(watch.since)
    probe._members, probe._most, probe._end = len(watch.held), most, end
    probe._waited = waited + (left * end - starts if end > watch.since else 0)
    return probe.figures()
