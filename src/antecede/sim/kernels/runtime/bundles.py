"""The twin of `probes.Bundles`, for kernels whose messages are each passed on to a peer at most once.

So what the probe remembers of a message that is on its way travels with it: how late it was sent on in all,
and whether it came in a pair, in one number (`late << 1 | pair`).
"""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

import numpy as np

from antecede.jit import njit_inline
from antecede.sim.kernels.runtime.events import FULL, NOW
from antecede.sim.probes import Bundles
from antecede.sim.scenario import Scenario
from antecede.units import SECOND

_MAX_TOGETHER = 1 << 11
_SLACK = 1 << 14
"""Bytes on paper of messages in one packet that are not a single message's."""
MAX_PAYLOAD = 1 << 20
HEADER = Bundles.HEADER
_SLICE = Bundles.SLICE
_CUT, _LAST, _LAST_TO, _SLOWEST, _DELIVERIES, _HELD, _PAIRS, _PAIR_TOOK, _PAIR_HELD, _PAIR_LATE = range(10)


class Watch(NamedTuple):
    since: int
    """What is sent earlier is not measured."""
    at: np.ndarray
    """Single numbers, by the names above."""
    messages_in: np.ndarray
    sizes: np.ndarray
    causes: np.ndarray
    """How many packets or messages have each value; without entries where nobody measures."""
    receptions: np.ndarray
    """How many, and how long they took, for each slice of time."""
    held: np.ndarray
    most_held: np.ndarray
    newest_link: np.ndarray
    newest_time: np.ndarray
    fullest: np.ndarray
    """Of each peer: what the probe has in dictionaries; -1 if it is not in them."""


def fresh(given: Scenario) -> Watch:
    on = "bundles" in given.probes
    peers = given.peers if on else 0
    sizes = HEADER + given.payload + 4 * given.peers + _SLACK if on else 0
    at = np.zeros(10, np.int64)
    at[_LAST] = -1
    return Watch(
        round(given.warmup * SECOND), at, np.zeros(_MAX_TOGETHER if on else 0, np.int64),
        np.zeros(sizes, np.int64), np.zeros(peers + 1, np.int64),
        np.zeros((round(given.seconds * SECOND) // _SLICE + 1 if on else 0, 2), np.int64),
        np.zeros(peers, np.int32), np.full(peers, -1, np.int32), np.full(peers, -1, np.int32),
        np.zeros(peers, np.int64), np.full(peers, -1, np.int32),
    )  # fmt: skip


@njit_inline
def measures(watch: Any) -> Any:
    return len(watch.sizes) > 0


@njit_inline
def watch_send(run: Any, watch: Any, named: Any) -> Any:
    """A message is sent that names so many causes."""
    if measures(watch) and run.at[NOW] >= watch.since:
        watch.causes[named] += 1


@njit_inline
def watch_transmit(run: Any, watch: Any, me: Any, to: Any, copies: Any, messages: Any, weight: Any) -> Any:
    """A packet goes to so many. `to` is the one peer, or below 0 and different for any other list."""
    if not measures(watch) or run.at[NOW] < watch.since:
        return
    size = HEADER + weight
    if messages >= len(watch.messages_in) or size >= len(watch.sizes):
        run.at[FULL] = 1
        return
    at = watch.at
    watch.messages_in[messages] += copies
    watch.sizes[size] += copies
    watch.fullest[me] = max(watch.fullest[me], messages)
    at[_CUT] += at[_LAST] == me and at[_LAST_TO] == to
    at[_LAST], at[_LAST_TO] = me, to


@njit_inline
def lateness(run: Any, watch: Any, sent_at: Any, since: Any, late: Any) -> Any:
    """How late in all a message is that has been here `since` some time, and is sent on now."""
    if not measures(watch) or sent_at < watch.since:
        return 0
    return (late >> 1) + run.at[NOW] - since


@njit_inline
def watch_receive(run: Any, watch: Any, me: Any, link: Any) -> Any:
    """Something arrives, perhaps again."""
    if not measures(watch):
        return
    now = run.at[NOW]
    watch.at[_LAST] = -1
    if watch.newest_link[me] != link or watch.newest_time[me] != now:
        watch.newest_link[me], watch.newest_time[me] = link, now
        watch.most_held[me] = max(watch.most_held[me], watch.held[me])


@njit_inline
def watch_take(run: Any, watch: Any, me: Any, sent_at: Any) -> Any:
    """It is new."""
    if not measures(watch) or sent_at < watch.since:
        return
    watch.held[me] += 1
    took = run.at[NOW] - sent_at
    watch.at[_SLOWEST] = max(watch.at[_SLOWEST], took)
    watch.receptions[sent_at // _SLICE, 0] += 1
    watch.receptions[sent_at // _SLICE, 1] += took


@njit_inline
def watch_deliver(run: Any, watch: Any, me: Any, sent_at: Any, since: Any, late: Any) -> Any:
    if not measures(watch) or sent_at < watch.since:
        return
    at = watch.at
    watch.held[me] -= 1
    held = run.at[NOW] - since
    at[_DELIVERIES] += 1
    at[_HELD] += held
    if late & 1:
        at[_PAIRS] += 1
        at[_PAIR_TOOK] += since - sent_at
        at[_PAIR_HELD] += held
        at[_PAIR_LATE] += late >> 1


def figures(watch: Watch) -> dict[str, float]:
    """As the probe says them; nothing if nobody measured."""
    if not len(watch.sizes):
        return {}
    at, probe = [int(value) for value in watch.at], Bundles()
    probe._messages_in, probe._sizes = _counter(watch.messages_in), _counter(watch.sizes)
    probe._causes = _counter(watch.causes)
    probe._cut, probe._slowest = at[_CUT], at[_SLOWEST]
    probe._deliveries, probe._held = at[_DELIVERIES], at[_HELD]
    probe._pairs = at[_PAIRS:]
    probe._most_held, probe._fullest = _known(watch.most_held), _known(watch.fullest)
    probe._receptions = {
        part: [count, took] for part, (count, took) in enumerate(watch.receptions.tolist()) if count
    }
    return probe.figures()


def _counter(counts: np.ndarray) -> Counter[int]:
    (values,) = counts.nonzero()
    return Counter(dict(zip(values.tolist(), counts[values].tolist(), strict=True)))


def _known(values: np.ndarray) -> dict[int, int]:
    return {peer: value for peer, value in enumerate(values.tolist()) if value >= 0}
