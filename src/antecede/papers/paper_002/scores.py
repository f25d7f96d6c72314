"""Paper 002's scoreboard: its claims about delays, messages, bytes and queues. Those about hypercubes and the
causal order of flooding are in `overlays`."""

from __future__ import annotations

import math
from collections.abc import Sequence
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
    MeanFigures,
    all_sizes,
    short,
)
from antecede.papers.readings import Joint
from antecede.papers.scoreboard import ScoreRow, claim, number
from antecede.papers.verdicts import Holds

_WHY_FAST = "below the paper's sizes a timestamp is small compared with the copies that flooding makes"
_WHY_LATER = (
    "Overlay's copies take separate paths, Timestamp's share a tree: bytes times links crossed are 3 to 6 "
    "times Timestamp's"
)
_WHY_100 = (
    "with headers and 4-byte entries both send the same at 40 bytes of data with 100 nodes, 93 with 200 and "
    "141 with 300; only from about 215 nodes on is that above 100"
)
_WHY_MESSAGES = (
    "a queue counts messages: Overlay has many more of them, each small, and the stated rate is far above "
    "the capacity of the links, so they pile up"
)
_WHY_DEPENDS = (
    "at the stated rate all rounds are sent before much has arrived; the longer a message takes, because of "
    "its data or timestamp, the fewer others its sender has delivered, so the fewer it waits for; topologies "
    "of one size (five each of 32, 64 and 100 nodes) differ by a factor of about 4 to 12"
)
_WHY_FULL = (
    "links are overloaded at every data size, so equally many messages wait; with 1000 bytes Timestamp's are "
    "more fragments, except at 100 and 400 nodes: two from 118 and three from 485 nodes on, otherwise two "
    "from 368 on"
)
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
    means: MeanFigures, statement: str, holds: Holds, measured: str, why: str = "", enough: bool = True
) -> ScoreRow:
    known = bool(means.judged) and enough
    runs = means.count if known else 0
    return claim(PAPER, statement, holds if known else None, measured, runs, why or "at the sizes run so far")


def _lower(
    means: MeanFigures, statement: str, figure: str, data: int, one: str, other: str,
    unit: str = "", scale: float = 1.0, why: str = "",
) -> ScoreRow:  # fmt: skip
    """A claim that a figure is lower for one protocol than for the other."""
    holds = means.lower(figure, data, one, other)
    return _claim(means, statement, holds, means.show(figure, data, unit, scale), why)


def _delay_rows(means: MeanFigures) -> list[ScoreRow]:
    rows = []
    for figure, which in (("latency_mean_ns", "mean"), ("latency_max_ns", "maximum")):
        fast, slow = "Overlay", "Timestamp"
        statement = f"Overlay delivers much faster at 0 bytes, {which} delay"
        rows.append(_lower(means, statement, figure, 0, fast, slow, " ms", MS, _WHY_FAST))
        gained = {
            n: [means.mean(figure, slow, d, n) / means.mean(figure, fast, d, n) for d in (0, 100)]
            for n in means.judged
        }
        shown = "; ".join(
            f"n = {n}: Timestamp over Overlay {a:.2f}, then {b:.2f}" for n, (a, b) in gained.items()
        )
        statement = f"the difference decreases from 0 to 100 bytes, {which} delay"
        rows.append(_claim(means, statement, all(b < a for a, b in gained.values()), shown))
        statement = f"Overlay is still the faster at 100 bytes, {which} delay (implied)"
        rows.append(_lower(means, statement, figure, 100, fast, slow, " ms", MS, _WHY_LATER))
        statement = f"Timestamp is faster at 1000 bytes, {which} delay"
        rows.append(_lower(means, statement, figure, 1000, slow, fast, " ms", MS))
        grown = {n: [means.share(figure, name, (1000, 0), n) for name in PROTOCOLS] for n in means.judged}
        shown = "; ".join(
            f"n = {n}: ×{short(a)} against ×{short(b)} ({means.other} ×{short(c)}) from 0 to 1000 bytes"
            for n, (a, b, c) in grown.items()
        )
        statement = f"Overlay is more influenced by data size than Timestamp, {which} delay"
        rows.append(_claim(means, statement, all(a > b for a, b, _ in grown.values()), shown))
        growth = [_ratio([means.mean(figure, name, 0, n) for n in means.growth]) for name in PROTOCOLS]
        shown = _grown(means, growth)
        statement = f"Overlay is more scalable for small messages: {which} delay at 0 bytes grows less with n"
        rows.append(_claim(means, statement, growth[0] < growth[1], shown, _WHY_FAST, len(means.growth) > 1))
    rows.append(_held_row(means))
    return rows


def _ratio(values: Sequence[float]) -> float:
    return values[-1] / values[0] if values and values[0] else math.nan


def _grown(means: MeanFigures, growth: Sequence[float]) -> str:
    if len(means.growth) < 2:
        return ""
    overlay, tree, each = (f"×{short(value)}" for value in growth)
    return (
        f"{overlay} against {tree} ({means.other} {each}) from {means.growth[0]} to {means.growth[-1]} nodes"
    )


def _held_row(means: MeanFigures) -> ScoreRow:
    shares = {
        n: [
            means.mean("held", name, 0, n) * means.mean("hold_mean_ns", name, 0, n)
            / (means.mean("deliveries", name, 0, n) * means.mean("latency_mean_ns", name, 0, n))
            for name in PROTOCOLS
        ]
        for n in means.judged
    }  # fmt: skip
    shown = "; ".join(
        f"n = {n}: {a:.1%} of the delay against {b:.1%} ({means.other} {c:.1%})"
        for n, (a, b, c) in shares.items()
    )
    statement = "Timestamp's messages wait in the nodes too, Overlay's only on links, 0 bytes"
    return _claim(means, statement, all(a == 0 < b for a, b, _ in shares.values()), shown)


def _message_rows(means: MeanFigures) -> list[ScoreRow]:
    rows = []
    for figure, which in ((means.sent, "messages sent"), ("hops", "physical hops")):
        for data in DATA:
            statement = f"Timestamp has fewer {which} at {data} bytes"
            rows.append(_lower(means, statement, figure, data, "Timestamp", "Overlay", " thousand", 1e3))
    bounds = {n: (fmean(means.copies("Overlay", n)), n * math.log2(n)) for n in means.judged}
    shown = "; ".join(f"n = {n}: {short(sent)} of {short(most)}" for n, (sent, most) in bounds.items())
    statement = "Overlay sends a message up to n·log n times"
    rows.append(_claim(means, statement, all(sent <= most for sent, most in bounds.values()), shown))
    counts = {n: fmean(means.copies("Timestamp", n)) for n in means.judged}
    shown = "; ".join(f"n = {n}: {short(sent)}" for n, sent in counts.items())
    statement = "Timestamp's messages count as n sent messages each, 0 bytes"
    why = "a timestamp of more than 367 entries takes two fragments, if those are counted"
    rows.append(_claim(means, statement, all(sent == n - 1 for n, sent in counts.items()), shown, why))
    for size in all_sizes(means):
        pairs = zip(means.copies("Overlay", size), means.copies("Timestamp", size), strict=False)
        ratios = [one / other for one, other in pairs]
        statement = f"Overlay sends a message log n times as often as Timestamp, n = {size}"
        why = "a copy never returns to where it came from, so it is slightly more than log n − 1 times"
        why += "; fragments are counted, and a timestamp takes two" if NUMBER * size > ROOM else ""
        rows.append(number(PAPER, statement, math.log2(size), ratios, why))
    return rows


def _byte_rows(means: MeanFigures) -> list[ScoreRow]:
    rows = [
        _lower(means, f"Overlay sends fewer bytes at {data} bytes of data", "sent_bytes", data, "Overlay",
               "Timestamp", " MB", MB, _WHY_100)
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
    """The size at which both protocols send the same bytes, for each topology."""
    seeds = {run.scenario.seed for run in means.runs("Overlay", 0, size).finished}
    crossovers = []
    for seed in sorted(seeds):
        points = []
        for data in DATA:
            sent = [means.runs(name, data, size).where(seed=seed).values("sent_bytes") for name in PROTOCOLS]
            points += [(float(data), one - other) for one, other in zip(*sent[:2], strict=False)]
        if len(points) == len(DATA):
            crossovers.append(crossing(points))
    if means.whole_copies:  # in entries of a timestamp, as the formula's n is
        return [(data + HEADER + NUMBER) / NUMBER for data in crossovers]
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
    held = all(means.mean(mean, "Timestamp", data, n) > 0 for n in means.judged for data in DATA)
    shown = "; ".join(f"{data} bytes: {means.show(mean, data)}" for data in DATA)
    rows.append(_claim(means, "Timestamp delays messages in delivery queues", held, f"mean, {shown}"))
    for figure, which in ((mean, "mean"), (most, "maximum")):
        spread = {
            n: [
                _spread([means.mean(figure, name, data, n) for data in DATA])
                for name in ("Timestamp", "unicast")
            ]
            for n in means.judged
        }
        shown = "; ".join(
            f"n = {n}: a factor {a:.2f} between them ({means.other} {b:.2f})" for n, (a, b) in spread.items()
        )
        statement = f"data size has little effect on Timestamp's delivery queues, {which}"
        rows.append(_claim(means, statement, all(a <= 2 for a, _ in spread.values()), shown, _WHY_DEPENDS))
        for data in DATA:
            lines = {
                name: [(float(n), means.mean(figure, name, data, n)) for n in means.growth]
                for name in ("Timestamp", "unicast")
            }
            parts = [", ".join(short(y) for _, y in line) for line in lines.values()]
            shown = f"{parts[0]} at n = {', '.join(map(str, means.growth))} ({means.other} {parts[1]})"
            enough = len(means.growth) > 1
            grows = means.rises(figure, "Timestamp", data)
            statement = f"Timestamp's delivery queues become longer with n, {which}, {data} bytes"
            rows.append(_claim(means, statement, grows, shown, _WHY_DEPENDS, enough))
    return rows


def _spread(values: Sequence[float]) -> float:
    return max(values) / min(values) if min(values) else math.inf if max(values) else 1.0


def _link_rows(means: MeanFigures) -> list[ScoreRow]:
    mean, most = "mean_link_queue", "longest_link_queue"
    rows = [
        _lower(means, "Timestamp's mean link queue is larger at 0 bytes", mean, 0, "Overlay", "Timestamp",
               why=_WHY_MESSAGES),
        _lower(means, "Overlay's maximum link queue is high at 0 bytes: above Timestamp's", most, 0,
               "Timestamp", "Overlay"),
    ]  # fmt: skip
    shares = {
        n: [means.mean(mean, name, 0, n) / means.mean(most, name, 0, n) for name in PROTOCOLS]
        for n in means.judged
    }
    shown = "; ".join(
        f"n = {n}: {a:.1%} against {b:.1%} ({means.other} {c:.1%})" for n, (a, b, c) in shares.items()
    )
    statement = "Overlay's mean link queue is low at 0 bytes: a smaller part of its maximum than Timestamp's"
    holds = all(a < b for a, b, _ in shares.values())
    rows.append(_claim(means, statement, holds, shown, "in overload all links fill, not only the senders'"))
    rows.append(_senders_row(means))
    for figure, which in ((mean, "mean"), (most, "maximum")):
        grown = {n: [means.share(figure, name, (1000, 0), n) for name in PROTOCOLS] for n in means.judged}
        shown = "; ".join(
            f"n = {n}: ×{a:.3f} against ×{b:.3f} ({means.other} ×{c:.3f}) from 0 to 1000 bytes"
            for n, (a, b, c) in grown.items()
        )
        statement = f"Overlay's {which} link queue increases with data size in comparison to Timestamp's"
        rows.append(_claim(means, statement, all(a > b for a, b, _ in grown.values()), shown, _WHY_FULL))
    return rows


def _senders_row(means: MeanFigures) -> ScoreRow:
    """Most runs: in a single topology another link may be busier by chance."""
    done = [run for n in means.judged for run in means.runs("Overlay", 0, n).finished]
    at = [run.value("longest_link_queue_at") in run.scenario.sending_peers() for run in done]
    shown = f"the longest queue is at a sender in {sum(at)} of {len(at)} runs"
    statement = "Overlay loads the links of the senders most, 0 bytes"
    return _claim(means, statement, 2 * sum(at) > len(at), shown, _WHY_SENDERS)
