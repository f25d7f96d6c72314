"""Links that come and go in mid-run."""

from __future__ import annotations

from collections.abc import Collection

from antecede.sim import counter_rng
from antecede.sim.world import LinkChange
from antecede.units import SECOND


def link_changes(
    seed: int, size: int, until: int, rate: float, standing: Collection[tuple[int, int]]
) -> list[LinkChange]:
    """Changes of links between random peers, about `rate` a second: an open link closes, a closed one opens.

    Links of the `standing` overlay are not touched, so that the group never falls apart.
    """
    if size < 2:
        return []
    drawn = counter_rng.key(seed, counter_rng.CHURN)
    open_links: set[tuple[int, int]] = set()
    changes = []
    for number in range(round(rate * until / SECOND)):
        bits = counter_rng.draw(drawn, number)
        one = counter_rng.between(counter_rng.mix(bits), 0, size)
        other = (one + 1 + counter_rng.between(counter_rng.mix(bits + 1), 0, size - 1)) % size
        link = (min(one, other), max(one, other))
        if link not in standing:
            changes.append((counter_rng.between(bits, 0, max(1, until)), link))
    planned = []
    for time, link in sorted(changes):
        planned.append(LinkChange(time, *link, opens=link not in open_links))
        open_links ^= {link}
    return planned
