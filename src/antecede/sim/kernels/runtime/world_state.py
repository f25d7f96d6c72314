"""What every event kernel keeps besides its protocol's own state: time, links, counts.

All of it is in arrays, so that compiled code can stop between any two events and go on later. Arrays are
large enough for whatever may be in flight; memory that is never touched costs nothing. Where one turns out
to be too small, `FULL` is set and the run has to be started over elsewhere.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

HOP, NOTHING, ARRIVAL, WAKE, LINK_CHANGE, SEND, SAMPLE, STOPPED = -1, 0, 1, 2, 3, 4, 5, 6
"""Kinds of events. Those of one instant happen in this order, as in `sim/world.py`."""

WHEN, ORDER, WHAT, AFTER = range(4)
"""Columns of `WorldState.arrivals`."""

# Places in `WorldState.scalars`.
(
    NOW, FREE, DUE, BUCKET, PLANNED, ALARMS, MESSAGES_LEFT, ROWS, FULL, SAMPLES,
    PACKETS, LINK_BYTES, MESSAGES, CONTROL, CONTROL_MAX, PAPER, PAPER_MAX,
    DELIVERIES, LATENCY, LATENCY_MAX, HELD, HOLD, SCALARS,
) = range(23)  # fmt: skip

PEER_BITS, NUMBER_BITS = 20, 21
"""Bits of a peer, and of a packet's number on its link, in the key that orders arrivals of one instant."""


class WorldState(NamedTuple):
    """The compiled counterpart of `sim.world.World`."""

    scalars: np.ndarray
    """Single numbers, at the places above."""
    arrivals: np.ndarray
    """Packets in flight: arrival time, the key that orders those of one time, the packet, and the next
    arrival in the same bucket. One array, so that each arrival is on one cache line."""
    free_arrivals: np.ndarray
    """Unused rows of `arrivals`, as a stack."""
    bucket_heads: np.ndarray
    """The calendar queue: the first arrival of each bucket, or -1."""
    due: np.ndarray
    """The heap of arrivals whose bucket has come."""
    alarms: np.ndarray
    """The heap of peers' own actions: sends, wakes, samples, changes of links."""
    sends_planned: np.ndarray
    """How many sends of each peer have been planned so far."""
    messages: np.ndarray
    """How many messages each peer has sent."""
    silent: np.ndarray
    """Whether a peer's sends are suppressed."""
    ahead: np.ndarray
    """How far each peer's clock is ahead of the world's."""
    samples: np.ndarray
    """The times at which probes sample all members."""
    link_packets: np.ndarray
    """Packets sent over each link so far."""
    link_last: np.ndarray
    """The last arrival on each link where links are FIFO; else empty."""
    copies: np.ndarray
    """Arrival times of the copies of the packet that is being sent."""
    rows: np.ndarray
    """Events that observers have not been shown yet; empty if there are no observers."""
    sites: np.ndarray
    """The site of each peer where delays within a site differ; else empty."""
    faults: np.ndarray
    fault_shares: np.ndarray
    """Faults of the network: kind and times, and the share of packets that they affect."""


class WorldRules(NamedTuple):
    """What does not change in a run."""

    workload: tuple[int, int, int, int, int]
    phase: Any
    late: Any
    reply_key: Any
    """Keys of random sequences: of the first send, of each send, of replies."""
    reply: float
    until: int
    last_wake: int
    link_key: Any
    delay: tuple[int, int, int, int]
    local_delay: tuple[int, int, int, int]
    bucket_width: int
    """In bits: a bucket is 2^this nanoseconds wide."""
