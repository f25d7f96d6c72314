"""Paper 002's scoreboard: its claims about delays, messages, bytes and queues. Those about hypercubes and the
causal order of flooding are in `overlays`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import fmean

from antecede.papers.paper import Runs
from antecede.papers.paper_002.overlays import order_rows, shape_rows
from antecede.papers.paper_002.runs import (
    DATA,
    HEADER,
    MB,
    MS,
    NUMBER,
    PAPER,
    PROTOCOLS,
    ROOM,
    SIZES,
    MeanFigures,
    all_sizes,
    short,
)
from antecede.papers.readings import Joint
from antecede.papers.scoreboard import ScoreRow, claim, number
from antecede.papers.verdicts import Holds, all_hold

_UNKNOWN = "we do not know why"
_WHY_LATER = "Overlay's copies take separate paths, Timestamp's share a tree"
_WHY_SENDERS = (
    "in five runs that were examined it was at a node whose link is on the path of about three times as many "
    "overlay arcs as the average link: apparently an effect of the topology, not of the senders"
)


def score(runs: Runs, joint: Joint) -> list[ScoreRow]:
    means = MeanFigures(runs, joint)
    return [
        *_delay_rows(means),
        *_message_rows(means),
        *_byte_rows(means),
        *_delivery_rows(means),
        *_link_rows(means),
        *shape_rows(),
        *order_rows(),
    ]


def _claim(
    means: MeanFigures, statement: str, holds: Holds, measured: str, why: str = "", enough: bool = True,
    sizes: Mapping[int, Holds] | None = None, instead: str = "",
) -> ScoreRow:  # fmt: skip
    """A claim. If it does not hold: that it does `instead` with the other way of Timestamp, at which `sizes`
    it does with this, then why, and the numbers last."""
    known = bool(means.judged) and enough
    if not known or holds is None or holds is True:
        return claim(PAPER, statement, holds if known else None, measured, means.count if known else 0)
    where = at_sizes(sizes or {})
    if instead:
        there = where.removeprefix("holds ") or ("undecided" if isinstance(holds, str) else "it does not")
        where = f"{instead}; with Timestamp, {means.way}, which is judged, {there}"
    reason = why or _UNKNOWN
    if not where:
        return claim(PAPER, statement, holds, reason, means.count, measured)
    return claim(PAPER, statement, holds, where, means.count, f"{reason}. {measured}")


def at_sizes(parts: Mapping[int, Holds]) -> str:
    """At which sizes a claim holds and at which it does not, in words.

    >>> at_sizes({100: True, 200: True, 300: False}), at_sizes({100: False, 200: False})
    ('holds at 2 of 3 sizes, not at n = 300', 'holds at none of 2 sizes')
    >>> at_sizes({100: True, 200: "likely"}), at_sizes({100: False})
    ('holds at 1 of 2 sizes, undecided at n = 200', '')
    """
    if len(parts) < 2:
        return ""
    held = sum(part is True for part in parts.values())
    fails = [str(n) for n, part in parts.items() if part is False]
    open_at = [str(n) for n, part in parts.items() if isinstance(part, str)]
    text = f"holds at {held or 'none'} of {len(parts)} sizes"
    text += f", not at n = {', '.join(fails)}" if fails and held else ""
    return text + (f", undecided at n = {', '.join(open_at)}" if open_at else "")


def _lower(
    means: MeanFigures, statement: str, figure: str, data: int, one: str, other: str,
    unit: str = "", scale: float = 1.0, why: str = "",
) -> ScoreRow:  # fmt: skip
    """A claim that a figure is lower for one protocol than for the other, at every size."""
    parts = means.lower(figure, data, one, other)
    swap = {"Timestamp": "unicast"}
    instead = all_hold(list(means.lower(figure, data, swap.get(one, one), swap.get(other, other)).values()))
    return _claim(
        means, statement, all_hold(list(parts.values())), means.show(figure, data, unit, scale), why,
        sizes=parts, instead=_instead(means, instead, figure, data, unit, scale),
    )  # fmt: skip


def _instead(
    means: MeanFigures, holds: Holds, figure: str, data: int, unit: str = "", scale: float = 1.0
) -> str:
    """A note that a claim holds with the other variant of Timestamp, if it does."""
    if holds is not True:
        return ""
    n = means.judged[0]
    other, overlay = (short(means.mean(figure, name, data, n) / scale) for name in ("unicast", "Overlay"))
    return f"with Timestamp, {means.other} it holds ({other} against Overlay's {overlay}{unit} at n = {n})"


def _why_fast(means: MeanFigures) -> str:
    if means.judged and max(means.judged) < min(SIZES["full"]):
        return "below the paper's sizes a timestamp is small compared with the copies that flooding makes"
    return ""


def _why_queued(means: MeanFigures, data: int) -> str:
    """A note that unicasts queue at their sender, if they do."""
    at = _at_senders(means, "Timestamp", data)
    if means.way != "unicast" or 2 * sum(at) <= len(at):
        return ""
    return (
        "a sender sends n − 1 copies over its own few links, where they queue (the longest queue is at a "
        f"sender in {sum(at)} of {len(at)} runs)"
    )


def _why_bytes(means: MeanFigures) -> str:
    equal = {n: found for n in means.judged if (found := _equal_bytes(means, n))}
    if not equal:
        return ""
    shown = ", ".join(f"{fmean(found):.0f} at n = {n}" for n, found in equal.items())
    return (
        "a header and entries of 4 bytes count as well, so both send the same where a message has this many "
        f"bytes of data: {shown}"
    )


def _delay_rows(means: MeanFigures) -> list[ScoreRow]:
    rows = []
    for figure, which in (("latency_mean_ns", "mean"), ("latency_max_ns", "maximum")):
        fast, slow = "Overlay", "Timestamp"
        statement = f"Overlay delivers much faster at 0 bytes, {which} delay"
        rows.append(_lower(means, statement, figure, 0, fast, slow, " ms", MS, _why_fast(means)))
        gained = {
            n: [means.mean(figure, slow, d, n) / means.mean(figure, fast, d, n) for d in (0, 100)]
            for n in means.judged
        }
        shown = "; ".join(f"n = {n}: {a:.3g}, then {b:.3g}" for n, (a, b) in gained.items())
        shown = f"delay with Timestamp, {means.way} over that with Overlay: {shown}"
        statement = f"the difference decreases from 0 to 100 bytes, {which} delay"
        rows.append(_every(means, statement, {n: b < a for n, (a, b) in gained.items()}, shown))
        statement = f"Overlay is still the faster at 100 bytes, {which} delay (implied)"
        later = _WHY_LATER if means.way == "tree" else ""
        rows.append(_lower(means, statement, figure, 100, fast, slow, " ms", MS, later))
        statement = f"Timestamp is faster at 1000 bytes, {which} delay"
        rows.append(_lower(means, statement, figure, 1000, slow, fast, " ms", MS, _why_queued(means, 1000)))
        grown = {n: [means.share(figure, name, (1000, 0), n) for name in PROTOCOLS] for n in means.judged}
        shown = "; ".join(
            f"n = {n}: ×{short(a)} against ×{short(b)} (×{short(c)})" for n, (a, b, c) in grown.items()
        )
        shown = f"from 0 to 1000 bytes, {means.versus}: {shown}"
        statement = f"Overlay is more influenced by data size than Timestamp, {which} delay"
        rows.append(_every(means, statement, {n: a > b for n, (a, b, _) in grown.items()}, shown))
        growth = [_ratio([means.mean(figure, name, 0, n) for n in means.growth]) for name in PROTOCOLS]
        shown = _grown(means, growth)
        statement = f"Overlay is more scalable for small messages: {which} delay at 0 bytes grows less with n"
        enough = len(means.growth) > 1
        rows.append(_claim(means, statement, growth[0] < growth[1], shown, _why_fast(means), enough))
    rows.append(_held_row(means))
    return rows


def _every(
    means: MeanFigures, statement: str, sizes: Mapping[int, Holds], shown: str, why: str = ""
) -> ScoreRow:
    """A claim that has to hold at every size."""
    return _claim(means, statement, all_hold(list(sizes.values())), shown, why, sizes=sizes)


def _ratio(values: Sequence[float]) -> float:
    return values[-1] / values[0] if values and values[0] else math.nan


def _grown(means: MeanFigures, growth: Sequence[float]) -> str:
    if len(means.growth) < 2:
        return ""
    overlay, tree, each = (f"×{short(value)}" for value in growth)
    sizes = f"from {means.growth[0]} to {means.growth[-1]} nodes"
    return f"{sizes}, {means.versus}: {overlay} against {tree} ({each})"


def _held_row(means: MeanFigures) -> ScoreRow:
    shares = {
        n: [
            means.mean("held", name, 0, n) * means.mean("hold_mean_ns", name, 0, n)
            / (means.mean("deliveries", name, 0, n) * means.mean("latency_mean_ns", name, 0, n))
            for name in PROTOCOLS
        ]
        for n in means.judged
    }  # fmt: skip
    shown = "; ".join(f"n = {n}: {a:.1%} against {b:.1%} ({c:.1%})" for n, (a, b, c) in shares.items())
    shown = f"share of the delay, {means.versus}: {shown}"
    statement = "Timestamp's messages wait in the nodes too, Overlay's only on links, 0 bytes"
    return _every(means, statement, {n: a == 0 < b for n, (a, b, _) in shares.items()}, shown)


def _message_rows(means: MeanFigures) -> list[ScoreRow]:
    rows = []
    for figure, which in ((means.sent, "messages sent"), ("hops", "physical hops")):
        for data in DATA:
            statement = f"Timestamp has fewer {which} at {data} bytes"
            rows.append(_lower(means, statement, figure, data, "Timestamp", "Overlay", " thousand", 1e3))
    bounds = {n: (fmean(means.copies("Overlay", n)), n * math.log2(n)) for n in means.judged}
    shown = "; ".join(f"n = {n}: {short(sent)} of {short(most)}" for n, (sent, most) in bounds.items())
    statement = "Overlay sends a message up to n·log n times"
    rows.append(_every(means, statement, {n: sent <= most for n, (sent, most) in bounds.items()}, shown))
    counts = {n: fmean(means.copies("Timestamp", n)) for n in means.judged}
    shown = "; ".join(f"n = {n}: {short(sent)}" for n, sent in counts.items())
    statement = "Timestamp's messages count as n sent messages each, 0 bytes"
    room = ROOM // NUMBER
    why = f"fragments are counted, and a timestamp of more than {room} entries takes two"
    whole = {n: sent == n - 1 for n, sent in counts.items()}
    rows.append(_every(means, statement, whole, shown, why if means.sent == "fragments" else ""))
    for size in all_sizes(means):
        pairs = zip(means.copies("Overlay", size), means.copies("Timestamp", size), strict=False)
        ratios = [one / other for one, other in pairs]
        statement = f"Overlay sends a message log n times as often as Timestamp, n = {size}"
        why = "a copy never returns to where it came from, so it is slightly more than log n − 1 times"
        if NUMBER * size > ROOM and means.sent == "fragments":
            why += "; fragments are counted, and a timestamp takes two"
        rows.append(number(PAPER, statement, math.log2(size), ratios, why))
    return rows


def _byte_rows(means: MeanFigures) -> list[ScoreRow]:
    rows = [
        _lower(means, f"Overlay sends fewer bytes at {data} bytes of data", "sent_bytes", data, "Overlay",
               "Timestamp", " MB", MB, _why_bytes(means))
        for data in (0, 100)
    ]  # fmt: skip
    statement = "Overlay sends more bytes at 1000 bytes of data"
    rows.append(_lower(means, statement, "sent_bytes", 1000, "Timestamp", "Overlay", " MB", MB))
    growth = [_ratio([means.mean("sent_bytes", name, 0, n) for n in means.growth]) for name in PROTOCOLS]
    statement = "Overlay is more scalable for small messages: bytes at 0 bytes of data grow less with n"
    shown = _grown(means, growth)
    rows.append(_claim(means, statement, growth[0] < growth[1], shown, "", len(means.growth) > 1))
    for statement, name, grows in (
        ("Overlay carries no control information that grows with n, on our wire", "Overlay", False),
        ("Timestamp carries O(n) control information, on our wire", "Timestamp", True),
    ):
        carried = {n: means.mean("control_bytes_mean", name, 0, n) for n in means.growth}
        shown = "; ".join(f"n = {n}: {short(value)} bytes" for n, value in carried.items())
        grown, sizes = _ratio(list(carried.values())), _ratio([float(n) for n in carried])
        holds = 0.5 <= grown / (sizes if grows else 1.0) <= 2  # as all orders of growth
        rows.append(_claim(means, statement, holds, shown, "", len(means.growth) > 1))
    rows += _total_rows(means)
    why = (
        "as a size of data the formula has one byte per entry, no headers, and copies that return to their "
        "sender; corrected, it is about 4n / (degree − 2) − 37"
    )
    for size in all_sizes(means):
        statement = f"Overlay needs fewer bytes while d is less than n/(log n − 1), n = {size}"
        rows.append(number(PAPER, statement, size / (math.log2(size) - 1), _crossovers(means, size), why))
    return rows


def _total_rows(means: MeanFigures) -> list[ScoreRow]:
    """Table 1's orders of growth: how measured over expected changes from smallest to largest size."""
    rows = []
    for name, order in (("Overlay", "n·log n·d"), ("Timestamp", "n² + n·d")):
        factors = []
        for data in DATA:
            each = [
                means.mean("sent_bytes", name, data, n) / means.mean("messages", name, data, n) / expected
                for n in means.growth
                for expected in [
                    n * math.log2(n) * (data + HEADER + NUMBER)
                    if name == "Overlay"
                    else n * (NUMBER * n + HEADER + data)
                ]
            ]
            factors.append(_ratio(each))
        shown = ", ".join(f"{value:.2f} at {data} bytes" for value, data in zip(factors, DATA, strict=True))
        shown = f"bytes over that change by a factor {shown}, n = {', '.join(map(str, means.growth))}"
        statement = f"{name} sends O({order}) bytes for a message"
        rows.append(
            _claim(means, statement, all(0.5 <= k <= 2 for k in factors), shown, "", len(means.growth) > 1)
        )
    return rows


def _crossovers(means: MeanFigures, size: int) -> list[float]:
    """The size at which both protocols send the same bytes, for each topology, as the formula counts it."""
    crossovers = _equal_bytes(means, size)
    if means.whole_copies:  # in entries of a timestamp, as the formula's n is
        return [(data + HEADER + NUMBER) / NUMBER for data in crossovers]
    return crossovers


def _equal_bytes(means: MeanFigures, size: int) -> list[float]:
    """The bytes of data with which both protocols send the same, for each topology."""
    seeds = {run.scenario.seed for run in means.runs("Overlay", 0, size).finished}
    crossovers = []
    for seed in sorted(seeds):
        points = []
        for data in DATA:
            sent = [means.runs(name, data, size).where(seed=seed).values("sent_bytes") for name in PROTOCOLS]
            points += [(float(data), one - other) for one, other in zip(*sent[:2], strict=False)]
        if len(points) == len(DATA):
            crossovers.append(crossing(points))
    return crossovers


def crossing(points: Sequence[tuple[float, float]]) -> float:
    """Where the polyline through rising points crosses zero; its end segments extend beyond the points.

    >>> crossing([(0, -10), (100, 10), (1000, 100)]), crossing([(0, 5), (10, 10)])
    (50.0, -10.0)
    """
    pairs = list(pairwise(points))
    (x0, y0), (x1, y1) = next((pair for pair in pairs if pair[1][1] >= 0), pairs[-1])
    return x0 - y0 * (x1 - x0) / (y1 - y0)


def _delivery_rows(means: MeanFigures) -> list[ScoreRow]:
    mean, most = "delivery_queue_mean", "delivery_queue_most"
    fullest = {n: max(means.mean(most, "Overlay", data, n) for data in DATA) for n in means.judged}
    shown = "; ".join(f"n = {n}: at most {short(value)}" for n, value in fullest.items())
    rows = [_claim(means, "Overlay's delivery queues are always empty", not any(fullest.values()), shown)]
    held = {n: all(means.mean(mean, "Timestamp", data, n) > 0 for data in DATA) for n in means.judged}
    shown = ". ".join(f"{data} bytes, {means.show(mean, data)}" for data in DATA)
    rows.append(_every(means, "Timestamp delays messages in delivery queues", held, f"mean, {shown}"))
    for figure, which in ((mean, "mean"), (most, "maximum")):
        spread = {
            n: [
                _spread([means.mean(figure, name, data, n) for data in DATA])
                for name in ("Timestamp", "unicast")
            ]
            for n in means.judged
        }
        shown = "; ".join(f"n = {n}: {a:.2f} ({b:.2f})" for n, (a, b) in spread.items())
        shown = f"largest over smallest, Timestamp, {means.way} (Timestamp, {means.other}): {shown}"
        statement = f"data size has little effect on Timestamp's delivery queues, {which}"
        little = {n: a <= 2 for n, (a, _) in spread.items()}
        rows.append(_every(means, statement, little, shown, _why_late(means, 0)))
        rows += [_longer(means, figure, which, data) for data in DATA]
    return rows


def _longer(means: MeanFigures, figure: str, which: str, data: int) -> ScoreRow:
    """Whether delivery queues become longer with the size."""
    parts = [
        ", ".join(short(means.mean(figure, name, data, n)) for n in means.growth)
        for name in ("Timestamp", "unicast")
    ]
    shown = (
        f"Timestamp, {means.way} (Timestamp, {means.other}): {parts[0]} ({parts[1]}) at n = "
        f"{', '.join(map(str, means.growth))}"
    )
    rises, other = (means.rises(figure, name, data) for name in ("Timestamp", "unicast"))
    why = _why_late(means, data) if rises is False else "topologies differ more than sizes do"
    instead = f"with Timestamp, {means.other} it holds" if other is True else ""
    apart = [_spread(means.runs("Timestamp", data, n).values(figure)) for n in means.growth]
    if apart and math.isfinite(max(apart)):
        shown += f"; topologies of one size differ by a factor of up to {max(apart):.1f}"
    statement = f"Timestamp's delivery queues become longer with n, {which}, {data} bytes"
    enough = len(means.growth) > 1
    return _claim(means, statement, rises, shown, why, enough, instead=instead)


def _why_late(means: MeanFigures, data: int) -> str:
    """Why messages wait for fewer others if all take longer; stated only where delays are that long."""
    delays = [means.mean("latency_mean_ns", "Timestamp", data, n) / MS for n in means.judged]
    if not delays or min(delays) < means.rounds_ms:
        return ""
    return (
        f"all rounds are sent within {short(means.rounds_ms)} ms and a message takes {short(min(delays))} ms "
        "or more on average: the longer it takes, the fewer others its sender has delivered, so the fewer it "
        "waits for"
    )


def _spread(values: Sequence[float]) -> float:
    return max(values) / min(values) if min(values) else math.inf if max(values) else 1.0


def _link_rows(means: MeanFigures) -> list[ScoreRow]:
    mean, most = "mean_link_queue", "longest_link_queue"
    rows = [
        _lower(means, "Timestamp's mean link queue is larger at 0 bytes", mean, 0, "Overlay", "Timestamp",
               why=_why_many(means)),
        _lower(means, "Overlay's maximum link queue is high at 0 bytes: above Timestamp's", most, 0,
               "Timestamp", "Overlay", why=_why_queued(means, 0)),
    ]  # fmt: skip
    shares = {
        n: [means.mean(mean, name, 0, n) / means.mean(most, name, 0, n) for name in PROTOCOLS]
        for n in means.judged
    }
    shown = "; ".join(f"n = {n}: {a:.1%} against {b:.1%} ({c:.1%})" for n, (a, b, c) in shares.items())
    shown = f"mean over maximum, {means.versus}: {shown}"
    statement = "Overlay's mean link queue is low at 0 bytes: a smaller part of its maximum than Timestamp's"
    sizes = {n: a < b for n, (a, b, _) in shares.items()}
    instead = f"with Timestamp, {means.other} it holds" if all(a < c for a, _, c in shares.values()) else ""
    why = _why_queued(means, 0)
    rows.append(_claim(means, statement, all(sizes.values()), shown, why, sizes=sizes, instead=instead))
    rows.append(_senders_row(means))
    for figure, which in ((mean, "mean"), (most, "maximum")):
        grown = {n: [means.share(figure, name, (1000, 0), n) for name in PROTOCOLS] for n in means.judged}
        shown = "; ".join(f"n = {n}: ×{a:.3g} against ×{b:.3g} (×{c:.3g})" for n, (a, b, c) in grown.items())
        shown = f"from 0 to 1000 bytes, {means.versus}: {shown}"
        statement = f"Overlay's {which} link queue increases with data size in comparison to Timestamp's"
        more = {n: a > b for n, (a, b, _) in grown.items()}
        why = _why_fragments(means, [n for n, holds in more.items() if not holds])
        rows.append(_every(means, statement, more, shown, why))
    return rows


def _why_many(means: MeanFigures) -> str:
    if not means.judged:
        return ""
    times = {
        n: means.mean("fragments", "Overlay", 0, n) / means.mean("fragments", "Timestamp", 0, n)
        for n in means.judged
    }
    return (
        f"a queue counts fragments, not bytes, and Overlay sends {min(times.values()):.1f} to "
        f"{max(times.values()):.1f} times as many, each small"
    )


def _why_fragments(means: MeanFigures, sizes: Sequence[int]) -> str:
    """A note that packets of Timestamp need more fragments at these sizes, if they do."""

    def per_packet(name: str, data: int, n: int) -> float:
        return means.mean("fragments", name, data, n) / means.mean("packets", name, data, n)

    pairs = {n: [per_packet("Timestamp", data, n) for data in (0, 1000)] for n in sizes}
    if not pairs or any(less >= more for less, more in pairs.values()):
        return ""
    shown = ", ".join(f"{less:.3g} to {more:.3g} at n = {n}" for n, (less, more) in pairs.items())
    return f"a queue counts fragments: with 1000 bytes of data a packet of Timestamp grows from {shown}"


def _senders_row(means: MeanFigures) -> ScoreRow:
    """Most runs: in a single topology another link may be busier by chance."""
    at = _at_senders(means, "Overlay", 0)
    shown = f"the longest queue is at a sender in {sum(at)} of {len(at)} runs"
    statement = "Overlay loads the links of the senders most, 0 bytes"
    return _claim(means, statement, 2 * sum(at) > len(at), shown, _WHY_SENDERS)


def _at_senders(means: MeanFigures, name: str, data: int) -> list[bool]:
    """Whether the longest queue of a run was at a sender."""
    done = [run for n in means.judged for run in means.runs(name, data, n).finished]
    return [run.value("longest_link_queue_at") in run.scenario.sending_peers() for run in done]
