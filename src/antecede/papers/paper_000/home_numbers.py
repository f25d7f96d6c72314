"""DS with a super peer in front of each external peer: in how many intervals a peer has its super peer's
numbers.

"Each external peer is simulated as a super peer with exactly one peer in its group" (section 3.2). A super
peer numbers the messages that reach it, and its peer receives them after another delay, so that they overtake
each other: at any time the peer has some of the newest numbers and not others. A dependency sequence names
what it has as intervals of numbers, beside the one interval of each other super peer.

At a rate r and delays with distribution F these are r ∫ F (1 − F) dt + 1 intervals on average. Here the
arrivals are drawn, so that what is measured has its spread. Messages that a super peer would hold until their
causes come are numbered as they arrive.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from antecede.jit import njit_plain
from antecede.sim import counter_rng
from antecede.sim.kernels.runtime.counter_rng import Model, delay_of, model
from antecede.sim.network import parse_delay, upper_bound

_RECEIVERS = 12
"""Peers that are observed."""
_SECONDS = 2.0


def home_intervals(peers: int, delay: str, interval: str, seed: int) -> float:
    """How many intervals of its super peer's numbers a peer names when it sends, on average."""
    drawn, pause = model(parse_delay(delay)), model(parse_delay(interval))
    longest = upper_bound(delay)
    random = np.random.default_rng(counter_rng.mix(seed))

    def draw(distribution: Model, count: int) -> np.ndarray:
        bits = random.integers(0, 1 << 64, count, np.uint64, endpoint=False)
        delays: np.ndarray = _delays(*distribution, bits)
        return delays

    pausing = upper_bound(interval)
    begin = 3 * (longest + pausing)
    end = begin + round(_SECONDS * 1e9)
    count = 2 * end // pausing
    sends = np.cumsum(draw(pause, peers * count).reshape(peers, count), axis=1)
    sends = (sends + random.integers(-pausing, pausing, (peers, 1))).ravel()
    at_home = sends + draw(drawn, len(sends))
    found = []
    for receiver in range(min(_RECEIVERS, peers)):
        others = np.delete(at_home, np.s_[receiver * count : (receiver + 1) * count])
        numbered = np.sort(others + draw(drawn, len(others)))
        received = numbered + draw(drawn, len(numbered))
        for time in sends[receiver * count : (receiver + 1) * count]:
            if begin <= time < end:
                known = received <= time
                found.append(int(known[0]) + int((known[1:] & ~known[:-1]).sum()))
    return float(np.mean(found)) if found else 0.0


@njit_plain
def _delays(kind: Any, one: Any, two: Any, three: Any, bits: Any) -> Any:
    """A delay for each number."""
    delays = np.empty(len(bits), np.int64)
    for place in range(len(bits)):
        delays[place] = delay_of(kind, one, two, three, bits[place])
    return delays
