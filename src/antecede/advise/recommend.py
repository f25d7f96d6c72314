"""Chooses the peers behind freescale's super peer, and the protocol to recommend.

The rule for the protocol: among those whose average delivery is at most `slack` later than the fastest,
choose the one with the fewest bytes over all links, counting control information and payload of every copy.
Among several within `_TIE` of the fewest, choose the one whose members store the least.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from antecede.advise.results import Cost, FreescaleRoles
from antecede.errors import InputError
from antecede.units import format_duration

SLACK = 0.1
_TIE = 0.01
_MIN_SAVING = 0.05
_NO_OVERLAY = "needs no overlay"
_OVERLAYS = {
    "freescale": "needs a super peer that stays up",
    "flooding": "needs its hypercube of FIFO links kept up",
    "pc": "needs an overlay of FIFO links, which may change",
    "vcube": "needs its trees kept up",
    "vcube-agg": "needs its trees kept up",
}


def choose_roles(names: list[str], sent: np.ndarray, internal: Sequence[str] | None) -> FreescaleRoles:
    """The roles in freescale: as requested, or by how much each peer sends.

    A message of an internal peer takes one hop more, so peers that send less than the average are internal.
    The busiest peer is the super peer, whose own messages take no detour.
    """
    unknown = [name for name in internal or () if name not in names]
    if unknown:
        raise InputError(f"internal: there is no process '{unknown[0]}'; there are {', '.join(names[:5])} …")
    by_traffic = sorted(range(len(names)), key=lambda rank: (-sent[rank], rank))
    if internal is not None:
        inside = {names.index(name) for name in internal}
        why = "the internal peers were given; the busiest of the others is the super peer"
        if len(inside) == len(names):
            raise InputError("internal: somebody must be left to be the super peer")
    else:
        average = sent.sum() / len(names)
        inside = {rank for rank in by_traffic[1:] if sent[rank] < average}
        why = "who sends less than the average is internal; the busiest is the super peer"
        if not inside:
            inside = set(by_traffic[1 + len(names) // 2 :])
            why = "all send alike, so half of them are internal and one is the super peer"
    outside = [rank for rank in by_traffic if rank not in inside]
    return FreescaleRoles(
        super_peer=names[outside[0]],
        internal=[names[rank] for rank in sorted(inside)],
        external=[names[rank] for rank in sorted(outside[1:])],
        why=why,
    )


def recommend(costs: list[Cost], direct: float, slack: float) -> tuple[str, str, str | None]:
    """A protocol, the reason in one sentence, and the better choice if later deliveries are acceptable."""
    complete = [cost for cost in costs if cost.total_bytes is not None and cost.extra_delay_ns is not None]
    if not complete:
        return _recommend_by_control(costs)
    quickest = min(_delay(cost) for cost in complete)
    in_time = [cost for cost in complete if direct + _delay(cost) <= (1 + slack) * (direct + quickest)]
    best = _fewest_bytes(in_time)
    others = sorted((cost for cost in in_time if cost is not best), key=_total)[:2]
    beside = ", ".join(f"{cost.protocol} {_total(cost):,.0f}" for cost in others)
    than = f"({beside})" if beside else "(no other is as quick)"
    overlay = _OVERLAYS.get(best.protocol, _NO_OVERLAY)
    less = any(_total(cost) < _total(best) for cost in others)
    why = "the least stored of those with about the fewest bytes" if less else "the fewest bytes"
    reason = (
        f"{best.protocol}: {why}, {_total(best):,.0f} a message over all links with payload {than}, of those "
        f"that deliver within {slack:.0%} of the quickest; it delivers {_delivers(best)} and {overlay}."
    )
    later = _fewest_bytes(complete)
    saved = 1 - _total(later) / _total(best) if _total(best) else 0.0
    otherwise = None
    if saved > _MIN_SAVING:
        otherwise = (
            f"If deliveries may come later, {later.protocol} takes {saved:.0%} fewer bytes; it delivers "
            f"{_delivers(later)} and {_OVERLAYS.get(later.protocol, _NO_OVERLAY)}."
        )
    return best.protocol, reason, otherwise


def _recommend_by_control(costs: list[Cost]) -> tuple[str, str, str | None]:
    """Recommend without a simulation, among the protocols whose bytes follow from the log."""
    known = [cost for cost in costs if cost.control_bytes_mean is not None]
    if not known:
        raise InputError(
            "nothing is known of these protocols without a simulation, and the group is too large"
        )
    known.sort(key=lambda cost: cost.control_bytes_mean or 0.0)
    beside = ", ".join(f"{cost.protocol} {cost.control_bytes_mean:,.1f}" for cost in known[1:3])
    first = known[0]
    return first.protocol, (
        f"{first.protocol}: {first.control_bytes_mean:,.1f} control bytes a message ({beside}); nothing was "
        "simulated, so only those that follow from the log are compared."
    ), None  # fmt: skip


def _fewest_bytes(costs: list[Cost]) -> Cost:
    fewest = min(_total(cost) for cost in costs)
    near = [cost for cost in costs if _total(cost) <= (1 + _TIE) * fewest]
    return min(near, key=lambda cost: (cost.stored_bytes or 0.0, _total(cost)))


def _delivers(cost: Cost) -> str:
    later = _delay(cost)
    return f"{format_duration(later)} later than a direct send" if later else "no later than a direct send"


def _total(cost: Cost) -> float:
    return cost.total_bytes or 0.0


def _delay(cost: Cost) -> float:
    return cost.extra_delay_ns or 0.0
