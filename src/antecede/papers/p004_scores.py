"""Paper 004's scoreboard: its tables, and what it says of clocks and of latency, beside what the runs have.

What it says of packets of two, of single nodes and of one tree for all is `p004_nodes`'.
"""

from __future__ import annotations

import math
from statistics import fmean

from antecede.papers.board import Row, Runs
from antecede.papers.p004_nodes import node_rows, pair_rows, tree_rows
from antecede.papers.p004_runs import (
    AGG,
    DETAILED,
    FIGURE_6,
    HUGE,
    NAMES,
    NONE,
    TABLE_1,
    TABLE_2,
    TABLE_3,
    UNIT,
    aggregated,
    changes,
    claim_row,
    listed,
    more,
    number_row,
    of,
    packets_of,
    per_run,
    percent,
    percent_saved,
    sizes_run,
    value_of,
)

_WHY_ORDER = (
    "with σ = 25 and starts over 500 units fewer messages overtake each other than in the paper's runs; its "
    "steps from size to size are larger than a run's own spread, so some of its rows may be single runs"
)
_WHY_CLOCKS = "the paper does not print when nodes start; 500 units were chosen by the largest clock alone"
_WHY_WAIT = "as fewer messages overtake each other here, fewer wait on their way for something to go with"


def score(runs: Runs) -> list[Row]:
    return [
        *_packets(runs),
        *_clocks_and_sizes(runs),
        *_latencies(runs),
        *pair_rows(runs),
        *node_rows(runs),
        *tree_rows(runs),
    ]


def _packets(runs: Runs) -> list[Row]:
    rows = []
    for nodes, (alone, together, fewer, share) in TABLE_1.items():
        plain, agg = of(runs, NONE, nodes), of(runs, AGG, nodes)
        at = f"Table 1, {nodes} nodes"
        rows += [
            number_row(f"{at}: packets without aggregation", alone, plain.values("packets")),
            number_row(f"{at}: packets with aggregation", together, agg.values("packets"), _WHY_ORDER),
            number_row(f"{at}: % fewer packets", fewer, per_run(agg, percent_saved), _WHY_ORDER),
            number_row(
                f"{at}: % of packets with more than one message", share,
                per_run(agg, lambda run: 100 * aggregated(run) / run.value("packets_sized")), _WHY_ORDER,
            ),
        ]  # fmt: skip
    saved = {nodes: fmean(per_run(of(runs, AGG, nodes), percent_saved)) for nodes in sizes_run(runs)}
    rising = list(saved.values()) == sorted(saved.values()) if len(saved) > 1 else None
    rows.append(
        claim_row("the more nodes, the larger the share of packets saved", rising, listed(saved), runs)
    )
    there = of(runs, AGG, DETAILED)
    for messages, (name, of_all, of_more) in TABLE_2.items():
        what = f"Table 2, {DETAILED} nodes: packets with {messages} message{'s' * (messages != '1')}"
        shares = [100 * packets_of(run, name) / run.value("packets_sized") for run in there.done]
        rows.append(number_row(f"{what}, % of all", of_all, shares, _WHY_ORDER))
        if of_more is not None:
            shares = [100 * packets_of(run, name) / aggregated(run) for run in there.done if aggregated(run)]
            rows.append(number_row(f"{what}, % of those with several", of_more, shares, _WHY_ORDER))
    few = [
        100 * (run.value("packets_of_to_2") + run.value("packets_of_to_3")) / aggregated(run)
        for run in there.done
        if aggregated(run)
    ]
    rows += [
        number_row(f"two or three messages, % of packets with several, {DETAILED} nodes", 79, few),
        number_row(
            f"packets with 15 messages, {DETAILED} nodes", 4, there.values("packets_of_to_15"),
            "so full a packet has messages with few dependencies only; they are rarer here",
        ),
        number_row(
            f"most messages in a packet, {DETAILED} nodes", 15, there.values("packets_of_max"),
            "the largest packets are bounded by the MTU, so by the size of the clocks",
        ),
    ]  # fmt: skip
    return rows


def _clocks_and_sizes(runs: Runs) -> list[Row]:
    rows = []
    agg, plain = of(runs, AGG, DETAILED), of(runs, NONE, DETAILED)
    at = f"{DETAILED} nodes"
    for causes, (name, printed) in FIGURE_6.items():
        what = f"Figure 6, {at}: messages with {causes} causal dependencies, %"
        rows.append(number_row(what, printed, per_run(agg, percent(name, "messages")), _WHY_CLOCKS))
    rows.append(
        number_row(
            f"Figure 6, {at}: most causal dependencies (what the start times were chosen by)", 54,
            agg.values("causes_max"),
        )
    )  # fmt: skip
    apart = {
        name: abs(fmean(per_run(agg, share)) - fmean(per_run(plain, share)))
        for name, share in ((name, percent(name, "messages")) for name, _ in FIGURE_6.values())
        if len(agg) and len(plain)
    }
    rows.append(
        claim_row(
            f"dependencies are the same without aggregation, within 2.73 points, {at}",
            max(apart.values()) <= 2.73 if apart else None,
            f"{max(apart.values(), default=0):.2f} points apart at most", agg,
        )
    )  # fmt: skip
    for size, (name, alone, together) in TABLE_3.items():
        what = f"Table 3 (columns unswapped), {at}: % of packets of {size} bytes"
        rows += [
            number_row(f"{what}, without aggregation", alone, per_run(plain, percent(name)), _WHY_CLOCKS),
            number_row(f"{what}, with aggregation", together, per_run(agg, percent(name)), _WHY_CLOCKS),
        ]
    large = [
        100 * (run.value("packet_bytes_to_400") + run.value("packet_bytes_over_400")) / run.value("packets")
        for run in agg.done
    ]
    few = "fewer packets are as full, as fewer carry more than five messages"
    rows += [
        number_row(f"packets with aggregation of more than 300 bytes, %, {at}", 8.45, large, _WHY_CLOCKS),
        number_row(
            f"packets with aggregation of more than 1400 bytes, %, {at}", 0.29,
            per_run(agg, percent("packets_over_1400_bytes")), few,
        ),
        number_row(f"packets sent because they were full, {at}", 117, agg.values("packets_cut"), few),
    ]  # fmt: skip
    for says, name in (
        ("aggregation reduces the bytes sent", "sent_bytes"),
        ("aggregation makes packets of less than 100 bytes fewer", "packet_bytes_to_100"),
    ):
        known = changes(runs, value_of(name), [nodes for nodes in sizes_run(runs) if nodes > 8])
        holds = all(change < 0 for change in known.values()) if known else None
        rows.append(claim_row(says, holds, f"{listed(known)} %", runs))
    return rows


def _latencies(runs: Runs) -> list[Row]:
    rows = []
    for protocol, mean, longest in ((AGG, 2.1, 3.9), (NONE, 2.2, 4.1)):
        for name, printed, which in (
            ("reception_mean_ns", mean, "average"), ("reception_max_ns", longest, "longest"),
        ):  # fmt: skip
            small = {run.scenario.seed: run.value(name) for run in of(runs, protocol, 8).done}
            grown = [
                run.value(name) / small[run.scenario.seed] - 1
                for run in of(runs, protocol, HUGE).done
                if run.scenario.seed in small
            ]
            what = f"{which} reception latency, by how many times higher at {HUGE} nodes than at 8"
            rows.append(number_row(f"{what}, {NAMES[protocol]}", printed, grown))
    for nodes, name, printed in (
        (256, "reception_mean_ns", 8.1), (HUGE, "reception_mean_ns", -7.4), (HUGE, "latency_mean_ns", -12.2),
    ):  # fmt: skip
        kind = "reception" if name.startswith("reception") else "delivery"
        what = f"{kind} latency with aggregation above that without, %, {nodes} nodes"
        rows.append(number_row(what, printed, more(runs, nodes, value_of(name)), _WHY_WAIT))
    sizes = sizes_run(runs)
    means = {
        nodes: fmean(of(runs, AGG, nodes).values("reception_mean_ns")) / UNIT / math.log2(nodes)
        for nodes in sizes
    }
    even = max(means.values()) <= 1.25 * min(means.values()) if len(means) > 1 else None
    rows.append(
        claim_row(
            "reception latency is near to logarithmic", even, f"units per log₂ N: {listed(means)}", runs
        )
    )
    later = changes(runs, value_of("reception_mean_ns"), [nodes for nodes in sizes if 8 < nodes < HUGE])
    rows.append(
        claim_row(
            "reception latency is higher with aggregation, from 16 to 512 nodes",
            all(change > 0 for change in later.values()) if later else None, f"{listed(later)} %", runs,
            "by less than runs differ: propagation is drawn anew for each protocol",
        )
    )  # fmt: skip
    growing = list(later.values()) == sorted(later.values()) if len(later) > 1 else None
    rows.append(claim_row("and by the more, the more nodes", growing, f"{listed(later)} %", runs, _WHY_WAIT))
    rows += [
        number_row(
            f"time in the sending queue without aggregation above that with, %, {HUGE} nodes", 53.4,
            more(runs, HUGE, value_of("queued_mean_ns"), NONE, AGG),
        ),
        number_row(
            f"time in the sending queue without aggregation, units, {HUGE} nodes", 50,
            [value / UNIT for value in of(runs, NONE, HUGE).values("queued_mean_ns")],
        ),
    ]  # fmt: skip
    delivered = changes(runs, value_of("latency_mean_ns"), [nodes for nodes in sizes if nodes < HUGE])
    apart = max((abs(change) for change in delivered.values()), default=0.0)
    at_32 = more(runs, 32, value_of("latency_mean_ns"))
    at_32 = at_32 if sum(at_32) > 0 else [-change for change in at_32]
    rows += [
        number_row(
            "difference of delivery latency, %, 32 nodes", 3.2, at_32,
            "the paper puts it down to chance; over 30 of our runs chance is less than half a per cent",
        ),
        claim_row(
            "delivery latency differs by no more than 3.2 %, up to 512 nodes",
            apart <= 3.2 if delivered else None, f"{listed(delivered)} %", runs,
        ),
    ]  # fmt: skip
    larger = {nodes: change for nodes, change in delivered.items() if nodes >= 64}
    rows.append(
        claim_row(
            "aggregation does not degrade delivery latency but reduces it (64 nodes and more)",
            all(change < 0 for change in larger.values()) if larger else None, f"{listed(larger)} %", runs,
        )
    )  # fmt: skip
    few = "not known; with 16 nodes only some 7 % of deliveries wait at all, and runs differ much"
    for nodes, printed, why in ((16, 5.0, few), (HUGE, 53.4, _WHY_ORDER)):
        longer = more(runs, nodes, value_of("held_mean_ns"), NONE, AGG)
        what = f"time held before delivery without aggregation above that with, %, {nodes} nodes"
        rows.append(number_row(what, printed, longer, why))
    over_8 = [nodes for nodes in sizes if nodes > 8]
    longer_held = changes(runs, value_of("held_mean_ns"), over_8, NONE, AGG)
    rows.append(
        claim_row(
            "messages are held longer without aggregation, whatever the size",
            all(change > 0 for change in longer_held.values()) if longer_held else None,
            f"{listed(longer_held)} %", runs,
        )
    )  # fmt: skip
    return rows
