"""When peers send: the twin of `sim/workload.py`.

`create_schedule` is for runs in which nobody replies to a delivery, so that all sends are known beforehand.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from antecede.jit import njit_plain
from antecede.sim import counter_rng, workload
from antecede.sim.kernels.runtime.counter_rng import between, delay_of, draw, exponential, extended, model
from antecede.sim.scenario import Scenario
from antecede.units import SECOND

_PERIODIC, _POISSON, _DRAWN, _ONCE, _ROUNDS, _WINDOWS = range(6)


class SendSchedule(NamedTuple):
    """All messages of a run, in the order of sending."""

    times: np.ndarray
    senders: np.ndarray
    numbers: np.ndarray
    """The sequence number of each message, from 1."""
    first: np.ndarray
    """Where in `places` each peer's messages begin; one more entry at the end."""
    places: np.ndarray
    """Peer by peer, the places of its messages in the order of sending."""
    end: int
    """The last time at which a peer would send, silent or not."""


def workload_numbers(load: workload.Workload) -> tuple[int, int, int, int, int]:
    """A workload as kernels take it: its kind and parameters."""
    match load:
        case workload.Periodic():
            return _PERIODIC, load.interval, load.jitter, 0, 0
        case workload.Poisson():
            return _POISSON, load.interval, 0, 0, 0
        case workload.RandomIntervals():
            return _DRAWN, *model(load.interval)
        case workload.Once():
            return _ONCE, *model(load.at)
        case workload.Rounds():
            return _ROUNDS, load.interval, load.burst, 0, 0
        case workload.OncePerWindow():
            return _WINDOWS, load.interval, load.spread, 0, 0
    raise TypeError(f"kernels do not know the workload {load}")


def who_sends(scenario: Scenario) -> list[int]:
    """The peers that may send in a run, by rank."""
    peers = range(scenario.peers) if scenario.reply else scenario.sending_peers()
    return sorted(set(peers) - set(scenario.silent))


def create_schedule(scenario: Scenario) -> SendSchedule:
    """All sends of a run in which they do not depend on deliveries."""
    load = scenario.build_workload()
    audible = np.ones(scenario.peers, np.bool_)
    audible[list(scenario.silent)] = False
    active = np.zeros(scenario.peers, np.bool_)
    active[scenario.sending_peers()] = True
    keys = [counter_rng.key(scenario.seed, use) for use in (counter_rng.PHASE, counter_rng.SEND)]
    phase, late = (np.uint64(key) for key in keys)
    times, senders = _sends(workload_numbers(load), phase, late, round(scenario.seconds * SECOND), active)
    order = np.argsort(times, kind="stable")  # peers that send in one instant stay in order
    times, senders = times[order], senders[order]
    end = int(times[-1]) if len(times) else 0
    sends = audible[senders]
    times, senders = times[sends], senders[sends]
    if scenario.most_messages is not None:
        times, senders = times[: scenario.most_messages], senders[: scenario.most_messages]
    places = np.argsort(senders, kind="stable")
    first = np.searchsorted(senders[places], np.arange(scenario.peers + 1))
    numbers = np.empty(len(times), np.int64)
    numbers[places] = np.arange(1, len(times) + 1) - first[senders[places]]
    return SendSchedule(times, senders, numbers, first, places, end)


@njit_plain
def _sends(numbers: Any, phase: Any, late: Any, until: Any, active: Any) -> Any:
    """Times and peers of all sends before `until`, peer by peer."""
    size = 1024
    times, peers = np.empty(size, np.int64), np.empty(size, np.int32)
    count = 0
    for peer in range(len(active)):
        number, time = 0, 0
        while active[peer]:
            time = next_send(numbers, extended(phase, peer), extended(late, peer), number, time)
            if time >= until:
                break
            if count == size:
                size *= 2
                more, others = np.empty(size, np.int64), np.empty(size, np.int32)
                more[:count], others[:count] = times, peers
                times, peers = more, others
            times[count], peers[count] = time, peer
            count += 1
            number += 1
    return times[:count], peers[:count]


@njit_plain
def next_send(numbers: Any, phase: Any, late: Any, number: Any, previous: Any) -> Any:
    """When a peer sends next: the twin of `Workload.next_send`."""
    kind, one, two, three, four = numbers
    if kind == _PERIODIC:
        planned = between(phase, 0, one) + number * one
        return max(planned + between(draw(late, number), 0, two + 1), previous)
    if kind == _POISSON:
        return previous + exponential(draw(late, number), one)
    if kind == _DRAWN:
        interval = max(1, delay_of(one, two, three, four, draw(late, number)))
        return previous + interval if number else between(phase, 0, interval)
    if kind == _ONCE:
        return workload.NEVER if number else delay_of(one, two, three, four, phase)
    if kind == _ROUNDS:
        return number // two * one
    return max(number * one + between(draw(late, number), 0, two + 1), previous)
