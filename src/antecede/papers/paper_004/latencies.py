"""Paper 004's scoreboard: reception and delivery latency, and the time messages are held."""

from __future__ import annotations

import math
from statistics import fmean

from antecede.papers.paper import Runs
from antecede.papers.paper_004.runs import (
    AGG,
    HUGE,
    NAMES,
    NONE,
    UNIT,
    WHY_ORDER,
    broken_at,
    changes,
    claim_row,
    falls_at,
    listed,
    more,
    number_row,
    per_run,
    percent,
    select,
    sizes_run,
    value_of,
)
from antecede.papers.scoreboard import ScoreRow
from antecede.papers.verdicts import interval

_WHY_WAIT = "fewer messages overtake each other here, so fewer wait on their way for others to go with"
_WHY_GROWTH = "nodes have more to do with 1024 nodes than the paper's seem to have"
_WHY_LESS = "it grows less here than in the paper; we do not know why"
_WHY_QUEUE = (
    "with one server a node that processes each message of a packet it is nearest, but reception then takes "
    "longer than the paper says: 1,126 units with 1024 nodes, 662 with a queue for sends only (seed 101)"
)


def latency_rows(runs: Runs) -> list[ScoreRow]:
    return [
        *_growth_rows(runs),
        *_reception_rows(runs),
        *_send_queue_rows(runs),
        *_delivery_rows(runs),
        *_hold_rows(runs),
    ]


def _growth_rows(runs: Runs) -> list[ScoreRow]:
    """How much higher reception latency is at the largest size than at the smallest."""
    rows = []
    for protocol, mean, longest in ((AGG, 2.1, 3.9), (NONE, 2.2, 4.1)):
        for name, printed, which in (
            ("reception_mean_ns", mean, "average"), ("reception_max_ns", longest, "longest"),
        ):  # fmt: skip
            small = {run.scenario.seed: run.value(name) for run in select(runs, protocol, 8).finished}
            grown = [
                run.value(name) / small[run.scenario.seed] - 1
                for run in select(runs, protocol, HUGE).finished
                if run.scenario.seed in small
            ]
            what = f"{which} reception latency, by how many times higher at {HUGE} nodes than at 8"
            why = _WHY_GROWTH if grown and fmean(grown) > printed else _WHY_LESS
            rows.append(number_row(f"{what}, {NAMES[protocol]}", printed, grown, why))
    return rows


def _reception_rows(runs: Runs) -> list[ScoreRow]:
    rows = []
    for nodes, name, printed in (
        (256, "reception_mean_ns", 8.1), (HUGE, "reception_mean_ns", -7.4), (HUGE, "latency_mean_ns", -12.2),
    ):  # fmt: skip
        kind = "reception" if name.startswith("reception") else "delivery"
        what = f"{kind} latency with aggregation above that without, %, {nodes} nodes"
        rows.append(number_row(what, printed, more(runs, nodes, value_of(name)), _WHY_WAIT))
    sizes = sizes_run(runs)
    means = {
        nodes: fmean(select(runs, AGG, nodes).values("reception_mean_ns")) / UNIT / math.log2(nodes)
        for nodes in sizes
    }
    even = max(means.values()) <= 1.25 * min(means.values()) if len(means) > 1 else None
    later = changes(runs, value_of("reception_mean_ns"), [nodes for nodes in sizes if 8 < nodes < HUGE])
    growing = list(later.values()) == sorted(later.values()) if len(later) > 1 else None
    return [
        *rows,
        claim_row(
            "reception latency is near to logarithmic", even, f"units per log₂ N: {listed(means)}", runs
        ),
        claim_row(
            "reception latency is higher with aggregation, from 16 to 512 nodes",
            all(change > 0 for change in later.values()) if later else None, f"{listed(later)} %", runs,
            "by less than runs differ: propagation is drawn anew for each protocol",
        ),
        claim_row(
            "reception latency is higher with aggregation by the more, the more nodes", growing,
            f"{listed(later)} %", runs, f"{falls_at(later)}: {_WHY_WAIT}",
        ),
    ]  # fmt: skip


def _send_queue_rows(runs: Runs) -> list[ScoreRow]:
    return [
        number_row(
            f"time in the sending queue without aggregation above that with, %, {HUGE} nodes", 53.4,
            more(runs, HUGE, value_of("queued_mean_ns"), NONE, AGG), _WHY_QUEUE,
        ),
        number_row(
            f"time in the sending queue without aggregation, units, {HUGE} nodes", 50,
            [value / UNIT for value in select(runs, NONE, HUGE).values("queued_mean_ns")], _WHY_QUEUE,
        ),
    ]  # fmt: skip


def _delivery_rows(runs: Runs) -> list[ScoreRow]:
    sizes = [nodes for nodes in sizes_run(runs) if nodes < HUGE]
    delivered = changes(runs, value_of("latency_mean_ns"), sizes)
    apart = max((abs(change) for change in delivered.values()), default=0.0)
    larger = {nodes: change for nodes, change in delivered.items() if nodes >= 64}
    at_32 = more(runs, 32, value_of("latency_mean_ns"))
    at_32 = at_32 if sum(at_32) > 0 else [-change for change in at_32]
    return [
        number_row(
            "difference of delivery latency, %, 32 nodes", 3.2, at_32,
            f"the paper attributes it to chance; over {len(at_32)} of our runs the 95 % interval is "
            f"±{(interval(at_32)[2] - interval(at_32)[0]) if at_32 else 0:.1f} points",
        ),
        claim_row(
            "delivery latency differs by no more than 3.2 %, up to 512 nodes",
            apart <= 3.2 if delivered else None, f"{listed(delivered)} %", runs,
            broken_at([nodes for nodes, change in delivered.items() if abs(change) > 3.2]),
        ),
        claim_row(
            "aggregation does not degrade delivery latency but reduces it (64 nodes and more)",
            all(change < 0 for change in larger.values()) if larger else None, f"{listed(larger)} %", runs,
            broken_at([nodes for nodes, change in larger.items() if change >= 0]),
        ),
    ]  # fmt: skip


def _hold_rows(runs: Runs) -> list[ScoreRow]:
    rows = []
    waiting = per_run(select(runs, NONE, 16), percent("held", "deliveries"))
    few = "we do not know why; "
    few += f"with 16 nodes only {fmean(waiting or [0]):.0f} % of deliveries wait at all, and runs vary widely"
    for nodes, printed, why in ((16, 5.0, few), (HUGE, 53.4, WHY_ORDER)):
        longer = more(runs, nodes, value_of("held_mean_ns"), NONE, AGG)
        what = f"time held before delivery without aggregation above that with, %, {nodes} nodes"
        rows.append(number_row(what, printed, longer, why))
    over_8 = [nodes for nodes in sizes_run(runs) if nodes > 8]
    longer_held = changes(runs, value_of("held_mean_ns"), over_8, NONE, AGG)
    statement = "messages are held longer without aggregation, whatever the size"
    holds = all(change > 0 for change in longer_held.values()) if longer_held else None
    why = broken_at([nodes for nodes, change in longer_held.items() if change <= 0])
    return [*rows, claim_row(statement, holds, f"{listed(longer_held)} %", runs, why)]
