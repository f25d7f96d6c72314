"""A member's lives, by which partners detect a restored or copied store.

Each opening of a store begins a new *life* with a random id, and the store lists them. A partner remembers
this list for each member that it has met. If the list in a later greeting lacks a known life, the store is an
older copy: in that life its owner may have sent or acknowledged packets that this copy does not contain. A
greeting from an earlier life of the same list is merely late, and no cause for alarm.

Time and memory O(lives), of which the last 32 are kept. A partner that was away for longer than that
detects a fork by the chain values of packets (`outbox.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

from antecede.live.events import Life

MAX_LIVES = 32


def extend_lineage(lineage: Sequence[Life], life: str, broadcasts: int) -> list[Life]:
    return [*lineage, Life(life, broadcasts)][-MAX_LIVES:]


def is_earlier(lineage: Sequence[Life], known: Sequence[Life]) -> bool:
    """Whether a greeting with this lineage comes from an earlier life than the known one."""
    return bool(lineage) and lineage[-1] in known[:-1]


def forked_at(lineage: Sequence[Life], known: Sequence[Life]) -> int | None:
    """How many messages the two have in common, if `known` is not a beginning of `lineage`.

    None if there is no fork, or if it cannot be determined because too many lives were forgotten. 0 if
    they have nothing in common.
    """
    if not known or known[-1] in lineage:
        return None
    common = [life for life in known if life in lineage]
    if not common:
        return None if MAX_LIVES in (len(lineage), len(known)) else 0
    here, there = lineage.index(common[-1]) + 1, known.index(common[-1]) + 1
    branches = [*lineage[here : here + 1], *known[there : there + 1]]
    return min(life.broadcasts for life in branches)
