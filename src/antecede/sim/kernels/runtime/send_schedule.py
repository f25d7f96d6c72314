"""When everybody sends: the twin of `sim/workload.py`, for runs in which nobody answers a delivery."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from antecede.jit import njit_plain
from antecede.sim import counter_rng, workload
from antecede.sim.kernels.runtime.counter_rng import between, delay_of, draw, exponential, extended, model
from antecede.sim.scenario import Scenario
from antecede.units import SECOND

_PERIODIC, _POISSON, _DRAWN, _ONCE, _ROUNDS, _WINDOWS = range(6)


class Schedule(NamedTuple):
    """All messages of a run, in the order in which they are sent."""

    times: np.ndarray
    senders: np.ndarray
    numbers: np.ndarray
    """Of each among its sender's messages, from 1."""
    first: np.ndarray
    """Where in `places` each peer's own messages begin; one more at the end."""
    places: np.ndarray
    """Of each peer's own messages in turn: where in the order of sending they are."""
    end: int
    """The last time at which somebody would send, heard or not."""


def plan_of(load: workload.Workload) -> tuple[int, int, int, int, int]:
    """A workload as kernels take it: which, and its parameters."""
    match load:
        case workload.Periodic():
            return _PERIODIC, load.interval, load.jitter, 0, 0
        case workload.Poisson():
            return _POISSON, load.interval, 0, 0, 0
        case workload.RandomIntervals():
            return _DRAWN, *model(load.interval)
        case workload.Once():
            return _ONCE, load.until, 0, 0, 0
        case workload.Rounds():
            return _ROUNDS, load.interval, load.burst, 0, 0
        case workload.OncePerWindow():
            return _WINDOWS, load.interval, load.spread, 0, 0
    raise TypeError(f"a workload of no known kind: {load}")


def who_sends(given: Scenario) -> list[int]:
    """Who may send in a run, in the order of ranks."""
    those = range(given.peers) if given.reply else given.sending_peers()
    return sorted(set(those) - set(given.silent))


def schedule(given: Scenario) -> Schedule:
    """The sends of a run, which must not depend on its deliveries."""
    load = given.build_workload()
    heard = np.ones(given.peers, np.bool_)
    heard[list(given.silent)] = False
    active = np.zeros(given.peers, np.bool_)
    active[given.sending_peers()] = True
    keys = [counter_rng.key(given.seed, use) for use in (counter_rng.PHASE, counter_rng.SEND)]
    phase, late = (np.uint64(key) for key in keys)
    times, senders = _sends(plan_of(load), phase, late, round(given.seconds * SECOND), active)
    order = np.argsort(times, kind="stable")  # those of one instant stay in the order of peers
    times, senders = times[order], senders[order]
    end = int(times[-1]) if len(times) else 0
    kept = heard[senders]
    times, senders = times[kept], senders[kept]
    if given.most_messages is not None:
        times, senders = times[: given.most_messages], senders[: given.most_messages]
    places = np.argsort(senders, kind="stable")
    first = np.searchsorted(senders[places], np.arange(given.peers + 1))
    numbers = np.empty(len(times), np.int64)
    numbers[places] = np.arange(1, len(times) + 1) - first[senders[places]]
    return Schedule(times, senders, numbers, first, places, end)


@njit_plain
def _sends(plan: Any, phase: Any, late: Any, until: Any, active: Any) -> Any:
    """Times and peers of all sends before `until`, peer by peer."""
    size = 1024
    times, peers = np.empty(size, np.int64), np.empty(size, np.int32)
    count = 0
    for peer in range(len(active)):
        number, time = 0, 0
        while active[peer]:
            time = next_send(plan, extended(phase, peer), extended(late, peer), number, time)
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
def next_send(plan: Any, phase: Any, late: Any, number: Any, previous: Any) -> Any:
    """The twins of every `next_send`."""
    kind, one, two, three, four = plan
    if kind == _PERIODIC:
        planned = between(phase, 0, one) + number * one
        return max(planned + between(draw(late, number), 0, two + 1), previous)
    if kind == _POISSON:
        return previous + exponential(draw(late, number), one)
    if kind == _DRAWN:
        interval = max(1, delay_of(one, two, three, four, draw(late, number)))
        return previous + interval if number else between(phase, 0, interval)
    if kind == _ONCE:
        return workload.NEVER if number else between(phase, 0, max(1, one))
    if kind == _ROUNDS:
        return number // two * one
    return max(number * one + between(draw(late, number), 0, two + 1), previous)
