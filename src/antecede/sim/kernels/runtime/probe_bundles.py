"""The twin of `probes.Bundles`, for kernels that forward a message to each peer at most once.

What the probe remembers of a message in flight travels with it: how late it was forwarded in all, and
whether it came in a pair, in one number (`late << 1 | pair`).
"""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

import numpy as np

from antecede.jit import njit_inline
from antecede.sim.kernels.runtime.world_state import FULL, NOW
from antecede.sim.probes import Bundles
from antecede.sim.scenario import Scenario
from antecede.units import SECOND

_MAX_MESSAGES_IN_A_PACKET = 1 << 11
_SLACK = 1 << 14
"""Bytes of a packet, as the paper counts, beyond those of a single message."""
MAX_PAYLOAD = 1 << 20
HEADER = Bundles.HEADER
_SLICE = Bundles.SLICE
_CUT, _LAST, _LAST_TO, _SLOWEST, _DELIVERIES, _HELD, _PAIRS, _PAIR_TOOK, _PAIR_HELD, _PAIR_LATE = range(10)


class BundleProbe(NamedTuple):
    since: int
    """The time before which messages are not measured."""
    scalars: np.ndarray
    """Single numbers, at the places above."""
    messages_in: np.ndarray
    sizes: np.ndarray
    causes: np.ndarray
    """How many packets or messages have each value; empty if the probe is off."""
    receptions: np.ndarray
    """For each slice of time, how many receptions there were and how long they took."""
    held: np.ndarray
    most_held: np.ndarray
    most_pending: np.ndarray
    newest_link: np.ndarray
    newest_time: np.ndarray
    fullest: np.ndarray
    """By peer, the contents of the probe's dictionaries; -1 where there is no entry."""


def create_probe(scenario: Scenario) -> BundleProbe:
    on = "bundles" in scenario.probes
    peers = scenario.peers if on else 0
    sizes = HEADER + scenario.payload + 4 * scenario.peers + _SLACK if on else 0
    scalars = np.zeros(10, np.int64)
    scalars[_LAST] = -1
    return BundleProbe(
        round(scenario.warmup * SECOND), scalars, np.zeros(_MAX_MESSAGES_IN_A_PACKET if on else 0, np.int64),
        np.zeros(sizes, np.int64), np.zeros(peers + 1, np.int64),
        np.zeros((round(scenario.seconds * SECOND) // _SLICE + 1 if on else 0, 2), np.int64),
        np.zeros(peers, np.int32), np.full(peers, -1, np.int32), np.full(peers, -1, np.int32),
        np.full(peers, -1, np.int32),
        np.zeros(peers, np.int64), np.full(peers, -1, np.int32),
    )  # fmt: skip


@njit_inline
def measures(probe: Any) -> Any:
    return len(probe.sizes) > 0


@njit_inline
def probe_send(world: Any, probe: Any, named: Any) -> Any:
    """A message that names this many causes is sent."""
    if measures(probe) and world.scalars[NOW] >= probe.since:
        probe.causes[named] += 1


@njit_inline
def probe_transmit(world: Any, probe: Any, me: Any, to: Any, copies: Any, messages: Any, weight: Any) -> Any:
    """A packet is sent to `copies` peers. `to` is the peer if it is one, else a negative number that
    identifies the list of peers."""
    if not measures(probe) or world.scalars[NOW] < probe.since:
        return
    size = HEADER + weight
    if messages >= len(probe.messages_in) or size >= len(probe.sizes):
        world.scalars[FULL] = 1
        return
    scalars = probe.scalars
    probe.messages_in[messages] += copies
    probe.sizes[size] += copies
    probe.fullest[me] = max(probe.fullest[me], messages)
    scalars[_CUT] += scalars[_LAST] == me and scalars[_LAST_TO] == to
    scalars[_LAST], scalars[_LAST_TO] = me, to


@njit_inline
def lateness(world: Any, probe: Any, sent_at: Any, since: Any, late: Any) -> Any:
    """The total delay of a message that has been here since `since` and is forwarded now."""
    if not measures(probe) or sent_at < probe.since:
        return 0
    return (late >> 1) + world.scalars[NOW] - since


@njit_inline
def probe_receive(world: Any, probe: Any, me: Any, link: Any) -> Any:
    """A message arrives, perhaps again."""
    if not measures(probe):
        return
    now = world.scalars[NOW]
    probe.scalars[_LAST] = -1
    if probe.newest_link[me] != link or probe.newest_time[me] != now:
        probe.newest_link[me], probe.newest_time[me] = link, now
        probe.most_held[me] = max(probe.most_held[me], probe.held[me])


@njit_inline
def probe_hold(world: Any, probe: Any, me: Any, sent_at: Any) -> Any:
    """A message arrives for the first time and is held, if only until it is delivered at once."""
    if not measures(probe) or sent_at < probe.since:
        return
    probe.held[me] += 1
    probe.most_pending[me] = max(probe.most_pending[me], probe.held[me])
    took = world.scalars[NOW] - sent_at
    probe.scalars[_SLOWEST] = max(probe.scalars[_SLOWEST], took)
    probe.receptions[sent_at // _SLICE, 0] += 1
    probe.receptions[sent_at // _SLICE, 1] += took


@njit_inline
def probe_deliver(world: Any, probe: Any, me: Any, sent_at: Any, since: Any, late: Any) -> Any:
    if not measures(probe) or sent_at < probe.since:
        return
    scalars = probe.scalars
    probe.held[me] -= 1
    held = world.scalars[NOW] - since
    scalars[_DELIVERIES] += 1
    scalars[_HELD] += held
    if late & 1:
        scalars[_PAIRS] += 1
        scalars[_PAIR_TOOK] += since - sent_at
        scalars[_PAIR_HELD] += held
        scalars[_PAIR_LATE] += late >> 1


def measured(probe: BundleProbe) -> dict[str, float]:
    """The metrics, as the probe reports them; nothing if it is off."""
    if not len(probe.sizes):
        return {}
    scalars, twin = [int(value) for value in probe.scalars], Bundles()
    twin._messages_in, twin._sizes = _counter(probe.messages_in), _counter(probe.sizes)
    twin._causes = _counter(probe.causes)
    twin._cut, twin._slowest = scalars[_CUT], scalars[_SLOWEST]
    twin._deliveries, twin._held = scalars[_DELIVERIES], scalars[_HELD]
    twin._pairs = scalars[_PAIRS:]
    twin._most_held, twin._fullest = _by_peer(probe.most_held), _by_peer(probe.fullest)
    twin._most_pending = _by_peer(probe.most_pending)
    twin._receptions = {
        part: [count, took] for part, (count, took) in enumerate(probe.receptions.tolist()) if count
    }
    return twin.figures()


def _counter(counts: np.ndarray) -> Counter[int]:
    (values,) = counts.nonzero()
    return Counter(dict(zip(values.tolist(), counts[values].tolist(), strict=True)))


def _by_peer(values: np.ndarray) -> dict[int, int]:
    return {peer: value for peer, value in enumerate(values.tolist()) if value >= 0}
