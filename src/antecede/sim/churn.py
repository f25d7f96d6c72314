"""Churn: links that open and close during a run."""

from __future__ import annotations

from collections.abc import Collection

from antecede.sim import counter_rng
from antecede.sim.world import LinkChange
from antecede.units import SECOND


def link_changes(
    seed: int, size: int, until: int, rate: float, permanent: Collection[tuple[int, int]]
) -> list[LinkChange]:
    """Changes of links between random peers, about `rate` a second: open links close, closed links open.

    The `permanent` links of the overlay are left alone, so that the group stays connected.
    """
    if size < 2:
        return []
    key = counter_rng.key(seed, counter_rng.CHURN)
    planned = []
    for number in range(round(rate * until / SECOND)):
        bits = counter_rng.draw(key, number)
        one = counter_rng.between(counter_rng.mix(bits), 0, size)
        other = (one + 1 + counter_rng.between(counter_rng.mix(bits + 1), 0, size - 1)) % size
        link = (min(one, other), max(one, other))
        if link not in permanent:
            planned.append((counter_rng.between(bits, 0, max(1, until)), link))
    open_links: set[tuple[int, int]] = set()
    changes = []
    for time, link in sorted(planned):
        changes.append(LinkChange(time, *link, opens=link not in open_links))
        open_links ^= {link}
    return changes
