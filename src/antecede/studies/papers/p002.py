"""Paper 002: flooding a hypercube (Overlay) against vector timestamps (Timestamp) on a routed network.

Ten senders, ten messages each every millisecond, ten times; 0, 100 or 1000 bytes of data; 100 to 600 nodes on
a random graph of 10 Mbit/s links. The paper prints no numbers, so what is checked is what it says in words:
where its own sizes were run at each of them, else at the largest. Timestamp runs on a multicast tree, and a
second time with a packet for each node. What the paper left open, links that come and go, is `pc`'s.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from functools import cache
from itertools import combinations, pairwise
from statistics import fmean

from antecede.errors import InputError
from antecede.order import judge
from antecede.overlay.hypercube import hypercube
from antecede.sim.routed import RoutedModel
from antecede.sim.scenario import Scenario, scenario, simulate
from antecede.sim.verify import Histories
from antecede.studies.papers.board import Figure, Paper, Reading, Row, Runs, Scale, claim, number, slope

PAPER = "002"
PROTOCOLS = {
    "Overlay": ("flooding", False),
    "Timestamp": ("timestamp", True),
    "unicast": ("timestamp", False),
}
"""By the paper's names: our protocol, and whether the network multicasts."""
DATA = (0, 100, 1000)
SIZES: dict[Scale, list[int]] = {"quick": [32, 64], "full": [100, 200, 300, 400, 500, 600]}
LARGEST = 300
"""What the plain engine does in reasonable time; larger sizes are pending."""
SEEDS: dict[Scale, tuple[int, ...]] = {"quick": (1,), "full": (1, 2)}
"""Each is another topology."""
SENDERS, BURST, ROUNDS = 10, 10, 10
RATE, CALM = 1000.0, 1.0
"""Rounds a second: as the paper says, and so few that every round has left the links before the next."""
CALM_ROUNDS = 3
HEADER, NUMBER = 32, 4


def _run(name: str, peers: int, data: int, seed: int, rate: float = RATE) -> Scenario:
    protocol, multicast = PROTOCOLS[name]
    rounds = ROUNDS if rate == RATE else CALM_ROUNDS
    return scenario(
        protocol=protocol, peers=peers, seed=seed, payload=data, seconds=rounds / rate, workload="rounds",
        rate=rate, senders=min(SENDERS, peers), burst=BURST, count="paper", probes=("queues",),
        network={"model": "routed", "multicast": multicast, "header": HEADER},
    )  # fmt: skip


def grid(scale: Scale) -> list[Scenario]:
    sizes = [peers for peers in SIZES[scale] if peers <= LARGEST]
    runs = [
        _run(name, peers, data, seed)
        for peers in sizes
        for data in DATA
        for name in PROTOCOLS
        for seed in SEEDS[scale]
    ]
    return runs + [_run(name, sizes[-1], 0, SEEDS[scale][0], CALM) for name in PROTOCOLS]


def senders(made: Scenario) -> set[int]:
    """Who sends, in a run of rounds."""
    count = made.senders or made.peers
    return {place * made.peers // count for place in range(count)}


def of(runs: Runs, name: str, data: int, rate: float = RATE) -> Runs:
    """The runs of one of `PROTOCOLS` with so many bytes of data."""
    protocol, multicast = PROTOCOLS[name]

    def belongs(made: Scenario) -> bool:
        return isinstance(made.network, RoutedModel) and made.network.multicast is multicast

    return runs.where(belongs, protocol=protocol, payload=data, rate=rate)


class _Found:
    """Mean figures of the runs, by protocol, data and size."""

    def __init__(self, runs: Runs) -> None:
        self._by = {
            (name, data, rate): of(runs, name, data, rate).by(lambda made: made.peers)
            for name in PROTOCOLS
            for data in DATA
            for rate in (RATE, CALM)
        }
        main = [set(sizes) for (_, _, rate), sizes in self._by.items() if rate == RATE]
        self.sizes: list[int] = sorted(set.intersection(*main))
        """Those that were run with every protocol and data."""
        within = [size for size in self.sizes if size >= min(SIZES["full"])]
        self.judged = within or self.sizes[-1:]
        self.growth = within if len(within) > 1 else self.sizes
        calm = set.intersection(*(set(self._by[name, 0, CALM]) for name in PROTOCOLS))
        self.calm = [size for size in self.judged if size in calm]
        self.count = sum(len(self.runs(name, data, size)) for name, data, size in self._all())

    def _all(self) -> list[tuple[str, int, int]]:
        return [(name, data, size) for name in PROTOCOLS for data in DATA for size in self.judged]

    def runs(self, name: str, data: int, size: int, rate: float = RATE) -> Runs:
        return self._by[name, data, rate].get(size, Runs([]))

    def mean(self, figure: str, name: str, data: int, size: int, rate: float = RATE) -> float:
        return fmean(self.runs(name, data, size, rate).values(figure))

    def copies(self, name: str, size: int) -> list[float]:
        """How often each message is sent, in each run without data."""
        runs = self.runs(name, 0, size)
        return [f / m for f, m in zip(runs.values("fragments"), runs.values("messages"), strict=True)]

    def lower(self, figure: str, data: int, one: str, other: str, rate: float = RATE) -> bool:
        sizes = self.judged if rate == RATE else self.calm
        return all(
            self.mean(figure, one, data, n, rate) < self.mean(figure, other, data, n, rate) for n in sizes
        )

    def show(self, figure: str, data: int, unit: str = "", scale: float = 1.0, rate: float = RATE) -> str:
        """What each protocol has at each size."""
        parts = []
        for size in self.judged if rate == RATE else self.calm:
            overlay, tree, each = (
                _short(self.mean(figure, name, data, size, rate) / scale) for name in PROTOCOLS
            )
            parts.append(f"n = {size}: {overlay} against {tree}{unit} (unicast {each})")
        return "; ".join(parts)

    def share(self, top: str, name: str, data: tuple[int, int], size: int) -> float:
        """A figure with more data over the same with less."""
        more, less = (self.mean(top, name, each, size) for each in data)
        return more / less if less else math.inf


def _short(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


_MS, _MB = 1e6, 1e6
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
    "links are overloaded at every data size, so as many messages wait; from 118 nodes on Timestamp's with "
    "1000 bytes are two fragments each"
)
_WHY_SENDERS = (
    "in five runs that were looked at it was at a node with a link that is on the way of about three times "
    "as many of the overlay's arcs as links are on average: the topology's doing, it seems, not the senders'"
)


def score(runs: Runs) -> list[Row]:
    found = _Found(runs)
    return [
        *_delay_rows(found),
        *_message_rows(found),
        *_byte_rows(found),
        *_delivery_rows(found),
        *_link_rows(found),
        *_shape_rows(),
        *_order_rows(),
    ]


def _says(found: _Found, says: str, holds: bool, measured: str, why: str = "", enough: bool = True) -> Row:
    known = bool(found.judged) and enough
    runs = found.count if known else 0
    return claim(PAPER, says, holds if known else None, measured, runs, why or "at the sizes run so far")


def _lower(
    found: _Found, says: str, figure: str, data: int, one: str, other: str,
    unit: str = "", scale: float = 1.0, why: str = "",
) -> Row:  # fmt: skip
    """A claim that one protocol has less of something than the other."""
    holds = found.lower(figure, data, one, other)
    return _says(found, says, holds, found.show(figure, data, unit, scale), why)


def _delay_rows(found: _Found) -> list[Row]:
    rows = []
    for figure, which in (("latency_mean_ns", "mean"), ("latency_max_ns", "maximum")):
        fast, slow = "Overlay", "Timestamp"
        says = f"Overlay delivers much faster at 0 bytes, {which} delay"
        rows.append(_lower(found, says, figure, 0, fast, slow, " ms", _MS, _WHY_FAST))
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
        rows.append(_lower(found, says, figure, 100, fast, slow, " ms", _MS, _WHY_LATER))
        says = f"Timestamp is faster at 1000 bytes, {which} delay"
        rows.append(_lower(found, says, figure, 1000, slow, fast, " ms", _MS))
        grown = {n: [found.share(figure, name, (1000, 0), n) for name in PROTOCOLS] for n in found.judged}
        shown = "; ".join(
            f"n = {n}: ×{_short(a)} against ×{_short(b)} (unicast ×{_short(c)}) from 0 to 1000 bytes"
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


def _grown(found: _Found, growth: Sequence[float]) -> str:
    if len(found.growth) < 2:
        return ""
    overlay, tree, each = (f"×{_short(value)}" for value in growth)
    return f"{overlay} against {tree} (unicast {each}) from {found.growth[0]} to {found.growth[-1]} nodes"


def _held_row(found: _Found) -> Row:
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


def _message_rows(found: _Found) -> list[Row]:
    rows = []
    for figure, which in (("fragments", "fragments"), ("hops", "physical hops")):
        for data in DATA:
            says = f"Timestamp has fewer {which} at {data} bytes"
            rows.append(_lower(found, says, figure, data, "Timestamp", "Overlay", " thousand", 1e3))
    bounds = {n: (fmean(found.copies("Overlay", n)), n * math.log2(n)) for n in found.judged}
    shown = "; ".join(f"n = {n}: {_short(sent)} of {_short(most)}" for n, (sent, most) in bounds.items())
    says = "Overlay sends a message up to n·log n times"
    rows.append(_says(found, says, all(sent <= most for sent, most in bounds.values()), shown))
    counts = {n: fmean(found.copies("Timestamp", n)) for n in found.judged}
    shown = "; ".join(f"n = {n}: {_short(sent)}" for n, sent in counts.items())
    says = "Timestamp's messages count as n sent messages each, 0 bytes"
    why = "with more than 367 entries a timestamp takes two fragments"
    rows.append(_says(found, says, all(sent == n - 1 for n, sent in counts.items()), shown, why))
    for size in _sizes(found):
        pairs = zip(found.copies("Overlay", size), found.copies("Timestamp", size), strict=False)
        ratios = [one / other for one, other in pairs]
        says = f"Overlay sends a message log n times as often as Timestamp, n = {size}"
        why = "a copy never goes back to where it came from, so it is log n − 1 times and a little more"
        rows.append(number(PAPER, says, math.log2(size), ratios, why))
    return rows


def _sizes(found: _Found) -> list[int]:
    return sorted({*SIZES["full"], *found.sizes})


def _byte_rows(found: _Found) -> list[Row]:
    rows = [
        _lower(found, f"Overlay sends fewer bytes at {data} bytes of data", "sent_bytes", data, "Overlay",
               "Timestamp", " MB", _MB, _WHY_100)
        for data in (0, 100)
    ]  # fmt: skip
    says = "Overlay sends more bytes at 1000 bytes of data"
    rows.append(_lower(found, says, "sent_bytes", 1000, "Timestamp", "Overlay", " MB", _MB))
    growth = [_ratio([found.mean("sent_bytes", name, 0, n) for n in found.growth]) for name in PROTOCOLS]
    says = "Overlay is more scalable for small messages: bytes at 0 bytes of data grow less with n"
    shown = _grown(found, growth)
    rows.append(_says(found, says, growth[0] < growth[1], shown, "", len(found.growth) > 1))
    for says, name, grows in (
        ("Overlay carries no control information (but a sequence number)", "Overlay", False),
        ("Timestamp carries O(n) control information", "Timestamp", True),
    ):
        carried = {n: found.mean("paper_bytes_mean", name, 0, n) for n in found.judged}
        shown = "; ".join(f"n = {n}: {_short(value)} bytes" for n, value in carried.items())
        holds = all(value == NUMBER * (n if grows else 1) for n, value in carried.items())
        rows.append(_says(found, says, holds, shown))
    rows += _total_rows(found)
    why = (
        "the formula counts an entry as one byte, and neither headers nor that no copy goes back; with them "
        "it is about 4n / (degree − 2) − 37"
    )
    for size in _sizes(found):
        says = f"Overlay needs fewer bytes while data is less than n/(log n − 1) bytes, n = {size}"
        rows.append(number(PAPER, says, size / (math.log2(size) - 1), _crossovers(found, size), why))
    return rows


def _total_rows(found: _Found) -> list[Row]:
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


def _crossovers(found: _Found, size: int) -> list[float]:
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


def _delivery_rows(found: _Found) -> list[Row]:
    mean, most = "delivery_queue_mean", "delivery_queue_most"
    fullest = {n: max(found.mean(most, "Overlay", data, n) for data in DATA) for n in found.judged}
    shown = "; ".join(f"n = {n}: at most {_short(value)}" for n, value in fullest.items())
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
            parts = [", ".join(_short(y) for _, y in line) for line in lines.values()]
            shown = f"{parts[0]} at n = {', '.join(map(str, found.growth))} (unicast {parts[1]})"
            enough = len(found.growth) > 1
            grows = enough and slope(lines["Timestamp"]) > 0
            says = f"Timestamp's delivery queues become longer with n, {which}, {data} bytes"
            rows.append(_says(found, says, grows, shown, _WHY_DEPENDS, enough))
    return rows


def _spread(values: Sequence[float]) -> float:
    return max(values) / min(values) if min(values) else math.inf if max(values) else 1.0


def _link_rows(found: _Found) -> list[Row]:
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


def _senders_row(found: _Found) -> Row:
    """Also calm, where a queue cannot be what earlier rounds left."""
    counted = []
    for rate, sizes in ((RATE, found.judged), (CALM, found.calm)):
        done = [run for n in sizes for run in found.runs("Overlay", 0, n, rate).done]
        at = [run.value("longest_link_queue_at") in senders(run.scenario) for run in done]
        counted.append((sum(at), len(at)))
    (busy, of_busy), (calm, of_calm) = counted
    shown = f"the longest queue is at a sender in {busy} of {of_busy} runs"
    shown += f"; with a round a second, in {calm} of {of_calm}" if of_calm else ""
    says = "Overlay loads the links of the senders most, 0 bytes"
    return _says(found, says, busy == of_busy, shown, _WHY_SENDERS)


def _reached(overlay: Sequence[Sequence[int]], start: int, lost: frozenset[int] = frozenset()) -> list[int]:
    """The distances of all that can be reached, the furthest last."""
    found = {start: 0}
    todo = deque([start])
    while todo:
        peer = todo.popleft()
        for other in overlay[peer]:
            if other not in found and other not in lost:
                found[other] = found[peer] + 1
                todo.append(other)
    return list(found.values())


@cache
def diameter(size: int) -> int:
    overlay = hypercube(size)
    return max(_reached(overlay, peer)[-1] for peer in range(size))


@cache
def survives(size: int, failures: int) -> bool:
    """Whether a hypercube holds together whoever of that many fail: every choice is tried."""
    overlay = hypercube(size)
    for gone in combinations(range(size), failures):
        lost = frozenset(gone)
        start = next((peer for peer in range(size) if peer not in lost), None)
        if start is not None and len(_reached(overlay, start, lost)) < size - failures:
            return False
    return True


def endured(size: int) -> int:
    """How many failures a hypercube survives whoever they are."""
    return next(count for count in range(size) if not survives(size, count + 1))


_CUBES = (64, 100, 300)
_SMALL = (8, 9, 12, 16)


def _shape_rows() -> list[Row]:
    degrees = {n: [len(neighbours) for neighbours in hypercube(n)] for n in (*_CUBES, 600)}
    misprint = "a misprint: O(log n)"
    shown = "; ".join(f"n = {n}: {fmean(d):.1f} on average, at most {max(d)}" for n, d in degrees.items())
    rows = [claim(PAPER, "in a hypercube the degree of a node is O(n)", False, shown, 0, misprint)]
    shown = "; ".join(f"n = {n}: {diameter(n)}" for n in _CUBES)
    rows.append(claim(PAPER, "in a hypercube the diameter is O(n)", False, shown, 0, misprint))
    paths = {n: endured(n) + 1 for n in _SMALL}
    shown = "; ".join(f"n = {n}: {count}" for n, count in paths.items())
    says = "in a hypercube the node-disjoint paths between two nodes are O(n)"
    rows.append(claim(PAPER, says, False, shown, 0, misprint))
    roughly = all(math.log2(n) - 1 <= count <= math.log2(n) + 1 for n, count in paths.items())
    says = "in incomplete hypercubes the node-independent paths are roughly log n"
    rows.append(claim(PAPER, says, roughly, shown, 0))
    roughly = all(math.log2(n) - 1 <= min(d) and max(d) <= 2 * math.log2(n) for n, d in degrees.items())
    shown = "; ".join(
        f"n = {n}: {min(d)} to {max(d)}, log n = {math.log2(n):.1f}" for n, d in degrees.items()
    )
    says = "in incomplete hypercubes the degree of each node is roughly log n"
    rows.append(claim(PAPER, says, roughly, shown, 0))
    full = {n: endured(n) for n in (8, 16)}
    shown = "; ".join(f"n = {n}: any {count}, not any {count + 1}" for n, count in full.items())
    holds = all(count >= math.log2(n) for n, count in full.items())
    why = "who loses all log n neighbours is cut off: at most log n − 1"
    rows.append(claim(PAPER, "a hypercube overcomes log n failures", holds, shown, 0, why))
    sure = {n: endured(n) for n in _SMALL}
    shown = "; ".join(f"n = {n}: any {count}, log n = {math.log2(n):.1f}" for n, count in sure.items())
    holds = all(count + 1 >= math.log2(n) for n, count in sure.items())
    why = "holds for full cubes; of our incomplete ones some are sure of one less"
    rows.append(claim(PAPER, "it runs well as long as fewer than log n nodes fail", holds, shown, 0, why))
    return rows


TRIALS = 25
_PRINTED = "antecede.studies.papers.as_printed"


@cache
def broken(protocol: str, fifo: bool | None = None, churn: float | None = None) -> tuple[int, int]:
    """In how many of `TRIALS` small runs, with answers and wild delays, the oracle finds a message delivered
    before its cause; and in how many one is missing."""
    late = lost = 0
    for seed in range(TRIALS):
        made = scenario(
            protocol=protocol, peers=9, seconds=0.5, seed=seed, reply=0.1, delay="wild:1ms-1s", fifo=fifo,
            churn=churn,
        )  # fmt: skip
        histories = Histories(made)
        simulate(made, [histories])
        verdict = judge(histories.execution()).verdict
        late += verdict.causal_late_deliveries > 0
        lost += verdict.missing > 0
    return late, lost


def _shown(late: int, lost: int) -> str:
    return f"out of order in {late}, incomplete in {lost} of {TRIALS} runs with answers and wild delays"


def _order_rows() -> list[Row]:
    """Theorem 3.1, and what it needs."""
    rows = []
    for says, protocol, why in (
        ("flooding keeps causal order: forward, then deliver, as the text says", "flooding", ""),
        ("flooding keeps causal order: deliver, then forward, as Figure 2 says",
         f"{_PRINTED}:FloodingThatDeliversFirst", "an answer inside the delivery overtakes what it answers"),
        ("numbers alone tell duplicates (Figure 2), over FIFO links", f"{_PRINTED}:FloodingThatCounts", ""),
    ):  # fmt: skip
        late, lost = broken(protocol)
        rows.append(claim(PAPER, says, not (late or lost), _shown(late, lost), TRIALS, why))
    (loose, _), (_, lost) = broken("flooding", False), broken(f"{_PRINTED}:FloodingThatCounts", False)
    shown = (
        f"without it, out of order in {loose} of {TRIALS} runs; numbers as duplicate test then lose in {lost}"
    )
    rows.append(claim(PAPER, "flooding needs FIFO links (assumed)", loose > 0, shown, TRIALS))
    return rows


_FIGURES = (
    # the first of three numbers, one for each size of data; (part, figure, title, unit, scale)
    (3, (("a", "latency_mean_ns", "Mean delay", "ms", _MS),
         ("b", "latency_max_ns", "Maximum delay", "ms", _MS))),
    (6, (("a", "fragments", "Fragments sent", "fragments", 1.0),
         ("b", "sent_bytes", "Bytes sent", "MB", _MB))),
    (9, (("", "hops", "Physical hops", "hops", 1.0),)),
    (12, (("a", "delivery_queue_mean", "Mean delivery queue", "messages", 1.0),
          ("b", "delivery_queue_most", "Longest delivery queue", "messages", 1.0))),
    (15, (("a", "mean_link_queue", "Mean link queue", "fragments", 1.0),
          ("b", "longest_link_queue", "Longest link queue", "fragments", 1.0))),
)  # fmt: skip
_LINES = {"Overlay": "Overlay", "Timestamp": "Timestamp", "unicast": "Timestamp, unicast"}


def figures(runs: Runs) -> list[Figure]:
    """The paper's Figures 3 to 17; it prints no numbers."""
    made = []
    for first, parts in _FIGURES:
        for place, data in enumerate(DATA):
            for part, figure, title, unit, scale in parts:
                lines = {
                    shown: [(x, y / scale) for x, y in of(runs, name, data).line(figure)]
                    for name, shown in _LINES.items()
                }
                title = f"{title}, {data} bytes of data"
                made.append(Figure(f"{first + place}{part}", title, "nodes", unit, lines))
    return made


READINGS = [
    Reading("how long a run is", "10 rounds, and until all has arrived",
            "not printed; the rate is far above what the links carry, so delays and queues grow with it"),
    Reading("“10 new messages every 1 milliseconds”", "10 at once, at the start of each millisecond",
            "it speaks of short loads on the senders' links; a round a second was run besides, at 0 bytes"),
    Reading("GT-ITM with edge probability 0.01 to 0.04",
            "a random graph with probability 4/n, at least 0.01, and links added until it is connected",
            "that is 0.04 at 100 and 0.01 from 400 nodes on; 0.01 at 100 would be one neighbour each"),
    Reading("how Timestamp reaches all", "a multicast tree of shortest paths; a second time as unicasts",
            "“net_multicast”; as unicasts it would not be faster at 1000 bytes (Figure 5)"),
    Reading("routes", "fewest hops, always the same of several", "the links must be FIFO from end to end"),
    Reading("what a fragment is", "what exceeds 1500 bytes is cut, each part with a header of 32",
            "“a real IP network”; the MTU is not printed"),
    Reading("control information", "4 bytes a sequence number: one for Overlay, n for Timestamp", "5.1"),
    Reading("which log", "to base 2", "the dimension of a hypercube"),
    Reading("incomplete hypercubes", "a missing corner is played by the one half the cube below",
            "the paper's construction is in other papers; degrees and disjoint paths are as it says"),
    Reading("messages and bytes sent", "each fragment once a destination, whatever its way",
            "“once for each logical arc it traverses”"),
    Reading("mean network load", "fragments in or before a link, averaged over links and the run",
            "“average number of messages on all links”"),
    Reading("“high maximum queue size and low mean queue size”",
            "above Timestamp's; and a smaller part of that maximum than Timestamp's is of its own",
            "chosen after the first runs: the mean is not below Timestamp's, which is a row of its own, and "
            "against unicasts neither holds at this rate"),
    Reading("“much faster”, “the difference decreases”", "which is less; Timestamp's delay over Overlay's",
            "no factor is printed; where the order turns over is a row of its own"),
    Reading("delivery queue", "messages that arrived and wait, averaged over nodes and the run", "5.1"),
    Reading("who sends", "10 nodes, evenly spread over the ranks", "not printed"),
]  # fmt: skip

OPEN_QUESTION = (
    "“Generalizing the algorithm to overcome dynamic changes directly is an important open problem.” `pc` "
    "floods over links that open and close: the order is kept, a message still carries nothing but its "
    "identity, and what a change costs is a ping over every link, and a pong."
)
CHURN = (0, 20, 100)
"""Links that open or close a second."""
OPEN_SIZES: dict[Scale, list[int]] = {"quick": [32], "full": [32, 64, 128]}


def open_grid(scale: Scale) -> list[Scenario]:
    """Flooding a hypercube that stays, and `pc` on one where links come and go besides."""
    return [
        scenario(
            protocol=protocol, peers=peers, seed=seed, seconds=2, rate=5, delay="1-50ms", churn=churn,
        )
        for peers in OPEN_SIZES[scale]
        for protocol, changes in (("flooding", (None,)), ("pc", CHURN))
        for churn in changes
        for seed in ((1, 2) if scale == "quick" else (1, 2, 3))
    ]  # fmt: skip


def _per_delivery(runs: Runs, figure: str) -> float:
    return fmean(run.value(figure) / run.metrics.deliveries for run in runs.done)


def open_score(runs: Runs) -> list[Row]:
    return [*_moving_rows(), *_cost_rows(runs)]


def _moving_rows() -> list[Row]:
    try:
        scenario(protocol="flooding", churn=20)
        refused = False
    except InputError:
        refused = True
    naive, ours = broken(f"{_PRINTED}:FloodingWithMovingLinks", churn=50.0), broken("pc", churn=50.0)
    shown = f"{'refused' if refused else 'let run'}; using new links at once, {_shown(*naive)}"
    says = "flooding cannot run while links change"
    fixed = claim(PAPER, says, refused and naive[0] > 0, shown, TRIALS)
    says = "open: causal order by flooding while links change (pc)"
    return [fixed, claim(PAPER, says, ours == (0, 0), _shown(*ours), TRIALS)]


def _cost_rows(runs: Runs) -> list[Row]:
    """What changes cost at the largest size, against flooding an overlay that stays."""
    largest = max((run.scenario.peers for run in runs.done), default=0)
    there = runs.where(peers=largest)
    parts = [there.where(protocol="flooding")]
    parts += [there.where(protocol="pc", churn=float(churn)) for churn in CHURN]
    known = all(len(part) for part in parts)

    def row(says: str, values: list[float], unit: str, holds: bool) -> Row:
        pairs = zip(CHURN, values[1:], strict=False)
        moving = ", ".join(f"{value:.3g} with {churn}" for churn, value in pairs)
        shown = (
            f"flooding {values[0]:.3g}{unit}; pc {moving} changes a second, n = {largest}" if known else ""
        )
        return claim(PAPER, says, holds if known else None, shown, len(there) if known else 0)

    parts = parts if known else []
    delays = [fmean(part.values("latency_mean_ns")) / _MS for part in parts]
    carried = [fmean(part.values("control_bytes_mean")) for part in parts]
    packets = [_per_delivery(part, "packets") for part in parts]
    control = [_per_delivery(part, "link_bytes") for part in parts]
    same, more = "as flooding without changes, more with each", "a delivery"
    return [
        row("open: changes do not slow messages down (pc)", delays, " ms", _at_most(delays, 1.1)),
        row(
            "open: a message carries no more when links change (pc)", carried, " bytes", _at_most(carried, 1)
        ),
        row(f"open: packets {more}: {same} (pc)", packets, "", _rises(packets)),
        row(f"open: control bytes {more}: {same} (pc)", control, " bytes", _rises(control)),
    ]


def _at_most(values: Sequence[float], factor: float) -> bool:
    """Of the first."""
    return all(value <= factor * values[0] for value in values)


def _rises(values: Sequence[float]) -> bool:
    """From what the first two have in common."""
    return values[:1] == values[1:2] and list(values[1:]) == sorted(set(values[1:]))


def open_figures(runs: Runs) -> list[Figure]:
    made = []
    for place, (figure, title, unit, scale) in enumerate(
        (("latency_mean_ns", "Mean delay", "ms", _MS), ("packets", "Packets a delivery", "packets", 0.0),
         ("link_bytes", "Control bytes a delivery", "bytes", 0.0)), 1,
    ):  # fmt: skip
        lines = {}
        for name, part in (("pc", runs.where(protocol="pc")), ("flooding", runs.where(protocol="flooding"))):
            for peers, sized in part.by(lambda run: run.peers).items():
                by_churn = sized.by(lambda run: run.churn or 0.0)
                points = [
                    (churn, fmean(each.values(figure)) / scale if scale else _per_delivery(each, figure))
                    for churn, each in by_churn.items()
                ]
                lines[f"{name}, {peers} nodes"] = points
        made.append(Figure(f"beyond {place}", title, "link changes a second", unit, lines))
    return made


STUDY = Paper(
    PAPER, "Flooding a hypercube, against vector timestamps", grid, score, figures, READINGS,
    OPEN_QUESTION, open_grid, open_score, open_figures,
)  # fmt: skip
