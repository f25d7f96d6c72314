"""Paper 004's scoreboard: its tables of packets, clocks and sizes. Latency is in `latencies`; packets of two
messages, single nodes and one tree for all are in `nodes`."""

from __future__ import annotations

from statistics import fmean

from antecede.papers.paper import Runs
from antecede.papers.paper_004.latencies import latency_rows
from antecede.papers.paper_004.nodes import node_rows, pair_rows, tree_rows
from antecede.papers.paper_004.runs import (
    AGG,
    DETAILED,
    FIGURE_6,
    NONE,
    TABLE_1,
    TABLE_2,
    TABLE_3,
    WHY_ORDER,
    aggregated,
    broken_at,
    changes,
    claim_row,
    falls_at,
    listed,
    number_row,
    packets_of,
    per_run,
    percent,
    percent_saved,
    select,
    sizes_run,
    value_of,
)
from antecede.papers.readings import Joint
from antecede.papers.scoreboard import ScoreRow

_WHY_CLOCKS = (
    "the paper does not print when nodes start; of three ways (see readings) the one with which most rows "
    "agree is judged, not the nearest for this row"
)


def score(runs: Runs, joint: Joint) -> list[ScoreRow]:
    return [
        *_packets(runs),
        *_clocks_and_sizes(runs),
        *latency_rows(runs),
        *pair_rows(runs),
        *node_rows(runs, joint),
        *tree_rows(runs),
    ]


def _packets(runs: Runs) -> list[ScoreRow]:
    rows = []
    for nodes, (_, _, fewer, share) in TABLE_1.items():
        # Counts of packets are not scored: N(N − 1) without aggregation whatever is run, and with few nodes
        # nearly as many with it, so that they would agree even if nothing were aggregated.
        agg = select(runs, AGG, nodes)
        at = f"Table 1, {nodes} nodes"
        rows += [
            number_row(f"{at}: % fewer packets", fewer, per_run(agg, percent_saved), WHY_ORDER),
            number_row(
                f"{at}: % of packets with more than one message", share,
                per_run(agg, lambda run: 100 * aggregated(run) / run.value("packets_sized")), WHY_ORDER,
            ),
        ]  # fmt: skip
    saved = {nodes: fmean(per_run(select(runs, AGG, nodes), percent_saved)) for nodes in sizes_run(runs)}
    rising = list(saved.values()) == sorted(saved.values()) if len(saved) > 1 else None
    rows.append(
        claim_row(
            "the more nodes, the larger the share of packets saved",
            rising,
            listed(saved),
            runs,
            falls_at(saved),
        )
    )
    there = select(runs, AGG, DETAILED)
    for messages, (name, of_all, of_more) in TABLE_2.items():
        what = f"Table 2, {DETAILED} nodes: packets with {messages} message{'s' * (messages != '1')}"
        shares = [100 * packets_of(run, name) / run.value("packets_sized") for run in there.finished]
        rows.append(number_row(f"{what}, % of all", of_all, shares, WHY_ORDER))
        if of_more is not None:
            shares = [
                100 * packets_of(run, name) / aggregated(run) for run in there.finished if aggregated(run)
            ]
            rows.append(number_row(f"{what}, % of those with several", of_more, shares, WHY_ORDER))
    few = [
        100 * (run.value("packets_of_to_2") + run.value("packets_of_to_3")) / aggregated(run)
        for run in there.finished
        if aggregated(run)
    ]
    rows += [
        number_row(f"two or three messages, % of packets with several, {DETAILED} nodes", 79, few),
        number_row(
            f"packets with 15 messages, {DETAILED} nodes", 4, there.values("packets_of_to_15"),
            "only messages with few dependencies fit into so full a packet; they are rarer here",
        ),
        number_row(
            f"most messages in a packet, {DETAILED} nodes", 15, there.values("packets_of_max"),
            "the MTU, and so the size of the clocks, limits the largest packets",
        ),
    ]  # fmt: skip
    return rows


def _clocks_and_sizes(runs: Runs) -> list[ScoreRow]:
    rows = []
    agg, plain = select(runs, AGG, DETAILED), select(runs, NONE, DETAILED)
    at = f"{DETAILED} nodes"
    for causes, (name, printed) in FIGURE_6.items():
        what = f"Figure 6, {at}: messages with {causes} causal dependencies, %"
        rows.append(number_row(what, printed, per_run(agg, percent(name, "messages")), _WHY_CLOCKS))
    rows.append(
        number_row(
            f"Figure 6, {at}: most causal dependencies (even starts were fitted to it)", 54,
            agg.values("causes_max"), _WHY_CLOCKS,
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
        for run in agg.finished
    ]
    few = "fewer packets are that full, as fewer carry more than five messages"
    rows += [
        number_row(f"packets with aggregation of more than 300 bytes, %, {at}", 8.45, large, _WHY_CLOCKS),
        number_row(
            f"packets with aggregation of more than 1400 bytes, %, {at}", 0.29,
            per_run(agg, percent("packets_over_1400_bytes")), few,
        ),
        number_row(f"packets sent because they were full, {at}", 117, agg.values("packets_cut"), few),
    ]  # fmt: skip
    for statement, name in (
        ("aggregation reduces the bytes sent", "sent_bytes"),
        ("aggregation makes packets of less than 100 bytes fewer", "packet_bytes_to_100"),
    ):
        known = changes(runs, value_of(name), [nodes for nodes in sizes_run(runs) if nodes > 8])
        holds = all(change < 0 for change in known.values()) if known else None
        why = broken_at([nodes for nodes, change in known.items() if change >= 0])
        rows.append(claim_row(statement, holds, f"{listed(known)} %", runs, why))
    return rows
