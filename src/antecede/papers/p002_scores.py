"""Paper 002's scoreboard: what it says of delays, messages, bytes and queues, beside what the runs have.

What it says of hypercubes and of the order that flooding keeps is `p002_overlays`'.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean

from antecede.overlay.hypercube import hypercube
from antecede.papers.board import Row, Runs, claim, number, slope
from antecede.papers.p002_overlays import order_rows, shape_rows
from antecede.papers.p002_runs import (
    CALM,
    DATA,
    HEADER,
    MB,
    MS,
    NUMBER,
    PAPER,
    PROTOCOLS,
    RATE,
    ROOM,
    Found,
    all_sizes,
    short,
)

_WHY_FAST = "below the paper's sizes a timestamp is still small beside the copies that flooding makes"
_WHY_LATER = (
    "Overlay's copies go each their own way, Timestamp's share a tree: bytes times links crossed are 3 to 6 "
    "times Timestamp's"
)
_WHY_100 = (
    "with headers and 4-byte entries both send the same at 40 bytes of data with 100 nodes, 93 with 200 and "
    "141 with 300; only from about 215 nodes on is it more than 100"
)
_WHY_MESSAGES = (
    "a queue counts messages: Overlay has many more of them, each small, and the stated rate is far above "
    "what the links carry, so they pile up"
)
_WHY_DEPENDS = (
    "at the stated rate all rounds are sent before much has come; the longer a message takes, because of its "
    "data or its timestamp, the fewer others its sender has delivered, so the fewer it waits for; topologies "
    "of one size, five of 32, 64 and 100 nodes each, differ by about 4 to 12 times"
)
_WHY_FULL = (
    "links are overloaded at every data size, so as many messages wait; Timestamp's are more fragments with "
    "1000 bytes, but for 100 and 400 nodes: two from 118 and three from 485 nodes on, else two from 368 on"
)
_WHY_SENDERS = (
    "in five runs that were looked at it was at a node with a link that is on the way of about three times "
    "as many of the overlay's arcs as links are on average: the topology's doing, it seems, not the senders'"
)


def score(runs: Runs) -> list[Row]:
    found = Found(runs)
    return [
        *_delay_rows(found),
        *_message_rows(found),
        *_byte_rows(found),
        *_delivery_rows(found),
        *_link_rows(found),
        *shape_rows(),
        *order_rows(),
    ]


def _says(found: Found, says: str, holds: bool, measured: str, why: str = "", enough: bool = True) -> Row:
    known = bool(found.judged) and enough
    runs = found.count if known else 0
    return claim(PAPER, says, holds if known else None, measured, runs, why or "at the sizes run so far")


def _lower(
    found: Found, says: str, figure: str, data: int, one: str, other: str,
    unit: str = "", scale: float = 1.0, why: str = "",
) -> Row:  # fmt: skip
    """A claim that one protocol has less of something than the other."""
    holds = found.lower(figure, data, one, other)
    return _says(found, says, holds, found.show(figure, data, unit, scale), why)


def _delay_rows(found: Found) -> list[Row]:
    rows = []
    for figure, which in (("latency_mean_ns", "mean"), ("latency_max_ns", "maximum")):
        fast, slow = "Overlay", "Timestamp"
        says = f"Overlay delivers much faster at 0 bytes, {which} delay"
        rows.append(_lower(found, says, figure, 0, fast, slow, " ms", MS, _WHY_FAST))
        gained = {
            n: [found.mean(figure, slow, d, n) / found.mean(figure, fast, d, n) for d in (0, 100)]
            for n in found.judged
        }
        shown = "; ".join(
            f"n = {n}: Timestamp over Overlay {a:.2f}, then {b:.2f}" for n, (a, b) in gained.items()
        )
        says = f"the difference decreases from 0 to 100 bytes, {which} delay"
        rows.append(_says(found, says, all(b < a for a, b in gained.values()), shown))
        says = f"Overlay is still the faster at 100 bytes, {which} delay (implied)"
        rows.append(_lower(found, says, figure, 100, fast, slow, " ms", MS, _WHY_LATER))
        says = f"Timestamp is faster at 1000 bytes, {which} delay"
        rows.append(_lower(found, says, figure, 1000, slow, fast, " ms", MS))
        grown = {n: [found.share(figure, name, (1000, 0), n) for name in PROTOCOLS] for n in found.judged}
        shown = "; ".join(
            f"n = {n}: ×{short(a)} against ×{short(b)} (unicast ×{short(c)}) from 0 to 1000 bytes"
            for n, (a, b, c) in grown.items()
        )
        says = f"Overlay is more influenced by data size than Timestamp, {which} delay"
        rows.append(_says(found, says, all(a > b for a, b, _ in grown.values()), shown))
        growth = [_ratio([found.mean(figure, name, 0, n) for n in found.growth]) for name in PROTOCOLS]
        shown = _grown(found, growth)
        says = f"Overlay is more scalable for small messages: {which} delay at 0 bytes grows less with n"
        rows.append(_says(found, says, growth[0] < growth[1], shown, _WHY_FAST, len(found.growth) > 1))
    rows.append(_held_row(found))
    return rows


def _ratio(values: Sequence[float]) -> float:
    return values[-1] / values[0] if values and values[0] else math.nan


def _grown(found: Found, growth: Sequence[float]) -> str:
    if len(found.growth) < 2:
        return ""
    overlay, tree, each = (f"×{short(value)}" for value in growth)
    return f"{overlay} against {tree} (unicast {each}) from {found.growth[0]} to {found.growth[-1]} nodes"


def _held_row(found: Found) -> Row:
    shares = {
        n: [
            found.mean("held", name, 0, n) * found.mean("hold_mean_ns", name, 0, n)
            / (found.mean("deliveries", name, 0, n) * found.mean("latency_mean_ns", name, 0, n))
            for name in PROTOCOLS
        ]
        for n in found.judged
    }  # fmt: skip
    shown = "; ".join(
        f"n = {n}: {a:.1%} of the delay against {b:.1%} (unicast {c:.1%})" for n, (a, b, c) in shares.items()
    )
    says = "Timestamp's messages wait in the nodes too, Overlay's only on links, 0 bytes"
    return _says(found, says, all(a == 0 < b for a, b, _ in shares.values()), shown)


def _message_rows(found: Found) -> list[Row]:
    rows = []
    for figure, which in (("fragments", "fragments"), ("hops", "physical hops")):
        for data in DATA:
            says = f"Timestamp has fewer {which} at {data} bytes"
            rows.append(_lower(found, says, figure, data, "Timestamp", "Overlay", " thousand", 1e3))
    bounds = {n: (fmean(found.copies("Overlay", n)), n * math.log2(n)) for n in found.judged}
    shown = "; ".join(f"n = {n}: {short(sent)} of {short(most)}" for n, (sent, most) in bounds.items())
    says = "Overlay sends a message up to n·log n times"
    rows.append(_says(found, says, all(sent <= most for sent, most in bounds.values()), shown))
    counts = {n: fmean(found.copies("Timestamp", n)) for n in found.judged}
    shown = "; ".join(f"n = {n}: {short(sent)}" for n, sent in counts.items())
    says = "Timestamp's messages count as n sent messages each, 0 bytes"
    why = "with more than 367 entries a timestamp takes two fragments"
    rows.append(_says(found, says, all(sent == n - 1 for n, sent in counts.items()), shown, why))
    for size in all_sizes(found):
        pairs = zip(found.copies("Overlay", size), found.copies("Timestamp", size), strict=False)
        ratios = [one / other for one, other in pairs]
        says = f"Overlay sends a message log n times as often as Timestamp, n = {size}"
        why = "a copy never goes back to where it came from, so it is log n − 1 times and a little more"
        why += "; fragments are counted, and a timestamp takes two" if NUMBER * size > ROOM else ""
        rows.append(number(PAPER, says, math.log2(size), ratios, why))
    return rows


def _byte_rows(found: Found) -> list[Row]:
    rows = [
        _lower(found, f"Overlay sends fewer bytes at {data} bytes of data", "sent_bytes", data, "Overlay",
               "Timestamp", " MB", MB, _WHY_100)
        for data in (0, 100)
    ]  # fmt: skip
    says = "Overlay sends more bytes at 1000 bytes of data"
    rows.append(_lower(found, says, "sent_bytes", 1000, "Timestamp", "Overlay", " MB", MB))
    growth = [_ratio([found.mean("sent_bytes", name, 0, n) for n in found.growth]) for name in PROTOCOLS]
    says = "Overlay is more scalable for small messages: bytes at 0 bytes of data grow less with n"
    shown = _grown(found, growth)
    rows.append(_says(found, says, growth[0] < growth[1], shown, "", len(found.growth) > 1))
    for says, name, grows in (
        ("Overlay carries no control information (but a sequence number)", "Overlay", False),
        ("Timestamp carries O(n) control information", "Timestamp", True),
    ):
        carried = {n: found.mean("paper_bytes_mean", name, 0, n) for n in found.judged}
        shown = "; ".join(f"n = {n}: {short(value)} bytes" for n, value in carried.items())
        holds = all(value == NUMBER * (n if grows else 1) for n, value in carried.items())
        rows.append(_says(found, says, holds, shown))
    rows += _total_rows(found)
    why = (
        "the formula counts an entry as one byte, and neither headers nor that no copy goes back; with them "
        "it is about 4n / (degree − 2) − 37"
    )
    for size in all_sizes(found):
        says = f"Overlay needs fewer bytes while data is less than n/(log n − 1) bytes, n = {size}"
        rows.append(number(PAPER, says, size / (math.log2(size) - 1), _crossovers(found, size), why))
    return rows


def _total_rows(found: Found) -> list[Row]:
    """Table 1's orders of growth: measured over expected, from the smallest to the largest size."""
    rows = []
    for name, order in (("Overlay", "n·log n·d"), ("Timestamp", "n² + n·d")):
        kept = []
        for data in DATA:
            each = [
                found.mean("sent_bytes", name, data, n) / found.mean("messages", name, data, n) / expected
                for n in found.growth
                for expected in [
                    n * math.log2(n) * (data + HEADER + NUMBER)
                    if name == "Overlay"
                    else n * (NUMBER * n + HEADER + data)
                ]
            ]
            kept.append(_ratio(each))
        shown = ", ".join(f"{value:.2f} at {data} bytes" for value, data in zip(kept, DATA, strict=True))
        shown = f"bytes over that change by a factor {shown}, n = {', '.join(map(str, found.growth))}"
        says = f"{name} sends O({order}) bytes for a message"
        rows.append(_says(found, says, all(0.5 <= k <= 2 for k in kept), shown, "", len(found.growth) > 1))
    return rows


def _crossovers(found: Found, size: int) -> list[float]:
    """The data at which both protocols send the same bytes, in each topology."""
    seeds = {run.scenario.seed for run in found.runs("Overlay", 0, size).done}
    made = []
    for seed in sorted(seeds):
        points = []
        for data in DATA:
            sent = [found.runs(name, data, size).where(seed=seed).values("sent_bytes") for name in PROTOCOLS]
            points += [(float(data), one - other) for one, other in zip(*sent[:2], strict=False)]
        if len(points) == len(DATA):
            made.append(crossing(points))
    return made


def crossing(points: Sequence[tuple[float, float]]) -> float:
    """Where lines through rising points cross zero; before the first and after the last they go on.

    >>> crossing([(0, -10), (100, 10), (1000, 100)]), crossing([(0, 5), (10, 10)])
    (50.0, -10.0)
    """
    pairs = list(pairwise(points))
    (x0, y0), (x1, y1) = next((pair for pair in pairs if pair[1][1] >= 0), pairs[-1])
    return x0 - y0 * (x1 - x0) / (y1 - y0)


def crossover(size: int) -> float:
    """The same worked out, if nothing is larger than the MTU: (n − 1)(32 + 4n + d) bytes for Timestamp, and
    36 + d over every link in both directions, but once from each node not back, for Overlay."""
    copies = sum(map(len, hypercube(size))) - (size - 1)
    entries = (size - 1) * (HEADER + NUMBER * size)
    return (entries - copies * (HEADER + NUMBER)) / (copies - (size - 1))


def _delivery_rows(found: Found) -> list[Row]:
    mean, most = "delivery_queue_mean", "delivery_queue_most"
    fullest = {n: max(found.mean(most, "Overlay", data, n) for data in DATA) for n in found.judged}
    shown = "; ".join(f"n = {n}: at most {short(value)}" for n, value in fullest.items())
    rows = [_says(found, "Overlay's delivery queues are always empty", not any(fullest.values()), shown)]
    held = all(found.mean(mean, "Timestamp", data, n) > 0 for n in found.judged for data in DATA)
    shown = "; ".join(f"{data} bytes: {found.show(mean, data)}" for data in DATA)
    rows.append(_says(found, "Timestamp delays messages in delivery queues", held, f"mean, {shown}"))
    for figure, which in ((mean, "mean"), (most, "maximum")):
        spread = {
            n: [
                _spread([found.mean(figure, name, data, n) for data in DATA])
                for name in ("Timestamp", "unicast")
            ]
            for n in found.judged
        }
        shown = "; ".join(
            f"n = {n}: a factor {a:.2f} between them (unicast {b:.2f})" for n, (a, b) in spread.items()
        )
        says = f"data size has little effect on Timestamp's delivery queues, {which}"
        rows.append(_says(found, says, all(a <= 2 for a, _ in spread.values()), shown, _WHY_DEPENDS))
        for data in DATA:
            lines = {
                name: [(float(n), found.mean(figure, name, data, n)) for n in found.growth]
                for name in ("Timestamp", "unicast")
            }
            parts = [", ".join(short(y) for _, y in line) for line in lines.values()]
            shown = f"{parts[0]} at n = {', '.join(map(str, found.growth))} (unicast {parts[1]})"
            enough = len(found.growth) > 1
            grows = enough and slope(lines["Timestamp"]) > 0
            says = f"Timestamp's delivery queues become longer with n, {which}, {data} bytes"
            rows.append(_says(found, says, grows, shown, _WHY_DEPENDS, enough))
    return rows


def _spread(values: Sequence[float]) -> float:
    return max(values) / min(values) if min(values) else math.inf if max(values) else 1.0


def _link_rows(found: Found) -> list[Row]:
    mean, most = "mean_link_queue", "longest_link_queue"
    calm = found.show(mean, 0, rate=CALM) if found.calm else ""
    why = f"{_WHY_MESSAGES}; with a round a second instead, {calm}" if calm else _WHY_MESSAGES
    rows = [
        _lower(found, "Timestamp's mean link queue is larger at 0 bytes", mean, 0, "Overlay", "Timestamp",
               why=why),
        _lower(found, "Overlay's maximum link queue is high at 0 bytes: above Timestamp's", most, 0,
               "Timestamp", "Overlay"),
    ]  # fmt: skip
    shares = {
        n: [found.mean(mean, name, 0, n) / found.mean(most, name, 0, n) for name in PROTOCOLS]
        for n in found.judged
    }
    shown = "; ".join(
        f"n = {n}: {a:.1%} against {b:.1%} (unicast {c:.1%})" for n, (a, b, c) in shares.items()
    )
    says = "Overlay's mean link queue is low at 0 bytes: a smaller part of its maximum than Timestamp's"
    holds = all(a < b for a, b, _ in shares.values())
    rows.append(_says(found, says, holds, shown, "in overload all links fill, not only the senders'"))
    rows.append(_senders_row(found))
    for figure, which in ((mean, "mean"), (most, "maximum")):
        grown = {n: [found.share(figure, name, (1000, 0), n) for name in PROTOCOLS] for n in found.judged}
        shown = "; ".join(
            f"n = {n}: ×{a:.3f} against ×{b:.3f} (unicast ×{c:.3f}) from 0 to 1000 bytes"
            for n, (a, b, c) in grown.items()
        )
        says = f"Overlay's {which} link queue increases with data size in comparison to Timestamp's"
        rows.append(_says(found, says, all(a > b for a, b, _ in grown.values()), shown, _WHY_FULL))
    return rows


def _senders_row(found: Found) -> Row:
    """Also calm, where a queue cannot be what earlier rounds left."""
    counted = []
    for rate, sizes in ((RATE, found.judged), (CALM, found.calm)):
        done = [run for n in sizes for run in found.runs("Overlay", 0, n, rate).done]
        at = [run.value("longest_link_queue_at") in run.scenario.sending_peers() for run in done]
        counted.append((sum(at), len(at)))
    (busy, of_busy), (calm, of_calm) = counted
    shown = f"the longest queue is at a sender in {busy} of {of_busy} runs"
    shown += f"; with a round a second, in {calm} of {of_calm}" if of_calm else ""
    says = "Overlay loads the links of the senders most, 0 bytes"
    return _says(found, says, busy == of_busy, shown, _WHY_SENDERS)
