"""Paper 002's claims about hypercubes and flooding that need no run of its experiment."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from functools import cache
from itertools import combinations

from antecede.causality import judge
from antecede.overlay.hypercube import hypercube
from antecede.papers.paper_002.runs import PAPER
from antecede.papers.scoreboard import ScoreRow, claim, smallest
from antecede.sim.engines import simulate
from antecede.sim.scenario import scenario
from antecede.sim.verify import Histories

_CUBES = (64, 100, 300)
_SMALL = (8, 9, 12, 16)

TRIALS = 25
PRINTED = "antecede.papers.paper_002.flooding_variants"


def _reached(overlay: Sequence[Sequence[int]], start: int, lost: frozenset[int] = frozenset()) -> list[int]:
    """The distances of all reachable nodes, in ascending order."""
    distance = {start: 0}
    todo = deque([start])
    while todo:
        peer = todo.popleft()
        for other in overlay[peer]:
            if other not in distance and other not in lost:
                distance[other] = distance[peer] + 1
                todo.append(other)
    return list(distance.values())


@cache
def diameter(size: int) -> int:
    overlay = hypercube(size)
    return max(_reached(overlay, peer)[-1] for peer in range(size))


@cache
def survives(size: int, failures: int) -> bool:
    """Whether a hypercube stays connected whichever nodes fail; every choice is tried."""
    overlay = hypercube(size)
    for gone in combinations(range(size), failures):
        lost = frozenset(gone)
        start = next((peer for peer in range(size) if peer not in lost), None)
        if start is not None and len(_reached(overlay, start, lost)) < size - failures:
            return False
    return True


def endured(size: int) -> int:
    """How many failures a hypercube survives, whichever nodes fail."""
    return next(count for count in range(size) if not survives(size, count + 1))


def in_proportion(values: dict[int, int]) -> bool:
    """Whether values grow by at least half as much as their sizes.

    >>> in_proportion({8: 8, 16: 15}), in_proportion({8: 3, 64: 6})
    (True, False)
    """
    small, large = min(values), max(values)
    return values[large] / values[small] >= 0.5 * large / small


def shape_rows() -> list[ScoreRow]:
    degrees = {n: [len(neighbours) for neighbours in hypercube(n)] for n in (*_CUBES, 600)}
    paths = {n: endured(n) + 1 for n in _SMALL}
    rows = []
    for what, largest in (
        ("the degree of a node is", {n: max(d) for n, d in degrees.items()}),
        ("the diameter is", {n: diameter(n) for n in _CUBES}),
        ("the node-disjoint paths between two nodes are", paths),
    ):
        shown = "; ".join(f"n = {n}: {value}" for n, value in largest.items())
        statement = f"in a hypercube {what} O(n) (grows in proportion to n)"
        holds = in_proportion(largest)
        rows.append(claim(PAPER, statement, holds, shown, 0, "a misprint: it grows as log n"))
    shown = "; ".join(f"n = {n}: {count}" for n, count in paths.items())
    roughly = all(math.log2(n) - 1 <= count <= math.log2(n) + 1 for n, count in paths.items())
    statement = "in incomplete hypercubes the node-independent paths are roughly log n"
    rows.append(claim(PAPER, statement, roughly, shown, 0))
    roughly = all(math.log2(n) - 1 <= min(d) and max(d) <= 2 * math.log2(n) for n, d in degrees.items())
    shown = "; ".join(
        f"n = {n}: {min(d)} to {max(d)}, log n = {math.log2(n):.1f}" for n, d in degrees.items()
    )
    statement = "in incomplete hypercubes the degree of each node is roughly log n"
    rows.append(claim(PAPER, statement, roughly, shown, 0))
    full = {n: endured(n) for n in (8, 16)}
    shown = "; ".join(f"n = {n}: any {count}, not any {count + 1}" for n, count in full.items())
    holds = all(count >= math.log2(n) for n, count in full.items())
    why = "a node that loses all its log n neighbours is cut off: at most log n − 1"
    rows.append(claim(PAPER, "a hypercube overcomes log n failures", holds, shown, 0, why))
    sure = {n: endured(n) for n in _SMALL}
    shown = "; ".join(f"n = {n}: any {count}, log n = {math.log2(n):.1f}" for n, count in sure.items())
    holds = all(count + 1 >= math.log2(n) for n, count in sure.items())
    why = "holds for full cubes; some of our incomplete cubes tolerate one failure less"
    rows.append(claim(PAPER, "it runs well as long as fewer than log n nodes fail", holds, shown, 0, why))
    return rows


@cache
def broken(protocol: str, fifo: bool | None = None, churn: float | None = None) -> tuple[int, int]:
    """In how many of `TRIALS` small runs with replies and log-uniform delays a message is delivered before
    its cause, and in how many one is missing."""
    late = lost = 0
    for seed in range(TRIALS):
        setting = scenario(
            protocol=protocol, peers=9, seconds=0.5, seed=seed, reply=0.1, delay="wild:1ms-1s", fifo=fifo,
            churn=churn,
        )  # fmt: skip
        histories = Histories(setting)
        simulate(setting, [histories])
        verdict = judge(histories.execution()).verdict
        late += verdict.causal_late_deliveries > 0
        lost += verdict.missing > 0
    return late, lost


def in_words(late: int, lost: int) -> str:
    return f"out of order in {late}, incomplete in {lost} of {TRIALS} runs with answers and wild delays"


def order_rows() -> list[ScoreRow]:
    """Theorem 3.1, and its assumptions."""
    rows = []
    overtaken = "a reply within the delivery overtakes what it answers; "
    overtaken += smallest("FloodingThatDeliversFirst")
    for statement, protocol, why in (
        ("flooding keeps causal order: forward, then deliver, as the text says", "flooding", ""),
        ("flooding keeps causal order: deliver, then forward, as Figure 2 says",
         f"{PRINTED}:FloodingThatDeliversFirst", overtaken),
        ("numbers alone tell duplicates (Figure 2), over FIFO links", f"{PRINTED}:FloodingThatCounts", ""),
    ):  # fmt: skip
        late, lost = broken(protocol)
        rows.append(claim(PAPER, statement, not (late or lost), in_words(late, lost), TRIALS, why))
    (loose, _), (_, lost) = broken("flooding", False), broken(f"{PRINTED}:FloodingThatCounts", False)
    shown = (
        f"without it, out of order in {loose} of {TRIALS} runs; numbers as duplicate test then lose in {lost}"
    )
    rows.append(claim(PAPER, "flooding needs FIFO links (assumed)", loose > 0, shown, TRIALS))
    return rows
