"""Paper 004's scoreboard, Figures 1 and 8 to 11: packets of two messages, single nodes, one tree for all."""

from __future__ import annotations

from statistics import fmean

from antecede.papers.paper import FinishedRun, Runs
from antecede.papers.paper_004.runs import (
    AGG,
    HUGE,
    MESSAGE,
    NONE,
    SINGLE,
    SMALL_MESSAGE,
    aggregated,
    broken_at,
    by_start,
    changes,
    claim_row,
    listed,
    more,
    number_row,
    per_run,
    select,
    sizes_run,
    value_of,
)
from antecede.papers.readings import Joint
from antecede.papers.scoreboard import ScoreRow

_WHY_PAIR = (
    "peers wait less to aggregate here, as fewer messages overtake each other; and the comparison is within "
    "one run (see readings)"
)
_WHY_HELD = (
    "messages overtake each other less here than in the paper's runs, so that fewer are held; counting the "
    "set before delivery changes little (see readings)"
)
_WHY_MARGIN = "how a message reaches the root of the one tree is not printed (see readings)"


def pair_rows(runs: Runs) -> list[ScoreRow]:
    eight = select(runs, AGG, 8)
    several = sum(per_run(eight, aggregated))
    some = sum(packets > 0 for packets in per_run(eight, aggregated))
    shown = f"{several:.0f} of {sum(eight.values('packets_sized')):.0f} packets"
    rows = [
        claim_row(
            "Figure 8: nothing is aggregated with 8 nodes", several == 0 if len(eight) else None, shown,
            eight, f"rare, but it happens in {some} of {len(eight)} runs",
        )
    ]  # fmt: skip
    pairs = {nodes: _with_pairs(runs, nodes) for nodes in sizes_run(runs) if nodes > 8}
    later = {nodes: [_later(run) for run in paired] for nodes, paired in pairs.items() if paired}
    most = max(later, key=lambda nodes: fmean(later[nodes]), default=0)
    what = "Figure 8, two messages in a packet: reception latency, % above that of each alone"
    rows.append(number_row(f"{what}, the largest of the sizes run", 13.6, later.get(most, []), _WHY_PAIR))
    for nodes, printed in ((64, 74), (512, 59)):
        what = f"Figure 8, two messages in a packet: time held, % below that of each alone, {nodes} nodes"
        samples = [_sooner(run) for run in pairs.get(nodes, [])]
        rows.append(number_row(what, printed, samples, _WHY_PAIR))
    return rows


def _later(run: FinishedRun) -> float:
    """How much later, in %, messages that came two in a packet arrived than if no peer had waited."""
    late = run.value("pair_late_mean_ns")
    return 100 * late / (run.value("pair_reception_mean_ns") - late)


def _sooner(run: FinishedRun) -> float:
    """How much less, in %, those messages were then held."""
    late = run.value("pair_late_mean_ns")
    return 100 * late / max(1.0, run.value("pair_held_mean_ns") + late)


def _with_pairs(runs: Runs, peers: int) -> list[FinishedRun]:
    return [run for run in select(runs, AGG, peers).finished if run.value("pair_messages")]


def node_rows(runs: Runs, joint: Joint) -> list[ScoreRow]:
    rows = []
    few, many = (f"nodes_{buffered(joint)}_{bound}" for bound in ("to_50", "over_250"))
    agg, plain = select(runs, AGG, HUGE), select(runs, NONE, HUGE)
    at = f"Figure 9, {HUGE} nodes: nodes that hold"
    rows += [
        number_row(f"{at} at most 50 messages, aggregation", 569, agg.values(few), _WHY_HELD),
        claim_row(
            f"{at} at most 50 messages, no aggregation: less than a quarter",
            fmean(plain.values(few)) < HUGE / 4 if len(plain) else None,
            f"{fmean(plain.values(few) or [0]):.0f}", plain,
        ),
        number_row(f"{at} more than 250 messages, aggregation", 24, agg.values(many), _WHY_HELD),
        number_row(
            f"{at} more than 250 messages, no aggregation", 212, plain.values(many), _WHY_HELD,
        ),
    ]  # fmt: skip
    small = select(runs, AGG, HUGE, SMALL_MESSAGE)
    fullest = _why_fullest(agg) + _why_starts(joint)
    at = f"Figure 10, {HUGE} nodes"
    rows += [
        number_row(
            f"{at}, 50 bytes: nodes whose fullest packet has 7 to 11 messages, %", 95.5,
            per_run(agg, lambda run: _packing(run, 7, 11)), fullest,
        ),
        number_row(
            f"{at}, 50 bytes: messages in the fullest packet of all", 14, agg.values("packets_of_max"),
            fullest,
        ),
        number_row(
            f"{at}, 5 bytes: nodes whose fullest packet has 8 to 12 messages, %", 81.3,
            per_run(small, lambda run: _packing(run, 8, 12)), _why_fullest(small),
        ),
    ]  # fmt: skip
    idle = sum(agg.values("nodes_packing_to_1"))
    rows.append(
        claim_row(
            f"{at}: every node aggregates", idle == 0 if len(agg) else None, f"{idle:.0f} never do", agg
        )
    )
    counts = [sum(agg.values(f"nodes_packing_to_{messages}")) for messages in range(1, 21)]
    peak = counts.index(max(counts))
    one_peak = counts[: peak + 1] == sorted(counts[: peak + 1]) and counts[peak:] == sorted(
        counts[peak:], reverse=True
    )
    statement = f"{at}: the fullest packets of nodes are spread like a normal distribution (about one peak)"
    rows.append(claim_row(statement, one_peak if len(agg) else None, f"peak at {peak + 1} messages", agg))
    sizes = [nodes for nodes in sizes_run(runs) if len(select(runs, AGG, nodes, SMALL_MESSAGE))]
    means = {
        payload: fmean(per_run(select(runs, AGG, sizes[-1], payload), _mean_packing))
        for payload in (SMALL_MESSAGE, MESSAGE)
        if sizes
    }
    holds = means[SMALL_MESSAGE] > means[MESSAGE] if means else None
    shown = " and ".join(f"{mean:.2f} for {payload} bytes" for payload, mean in means.items())
    statement = "Figure 10: smaller messages, fuller fullest packets (largest size run)"
    why = "packets that full are rare below 256 nodes, so that the MTU does not yet matter"
    return [*rows, claim_row(statement, holds, shown, runs, why)]


def _why_fullest(runs: Runs) -> str:
    if not len(runs):
        return ""
    fullest = fmean(per_run(runs, _mean_packing))
    return f"the fullest packet of a node has {fullest:.1f} messages on average here"


def _why_starts(joint: Joint) -> str:
    if joint["starts"] == "even":
        return "; we do not know why"
    return (
        ": it depends on when nodes start. Even starts agree with this row, but with fewer of all rows, and "
        "one reading is chosen for all"
    )


def buffered(joint: Joint) -> str:
    """What the probe calls the messages that Figure 9 counts."""
    return "pending" if joint["Figure 9"] == "before delivery" else "holding"


def _packing(run: FinishedRun, low: int, high: int) -> float:
    """% of nodes whose fullest packet has so many messages."""
    count = sum(run.value(f"nodes_packing_to_{messages}") for messages in range(low, high + 1))
    return 100 * count / run.scenario.peers


def _mean_packing(run: FinishedRun) -> float:
    counted = sum(messages * run.value(f"nodes_packing_to_{messages}") for messages in range(1, 21))
    return (counted + 21 * run.value("nodes_packing_over_20")) / run.scenario.peers


def tree_rows(runs: Runs) -> list[ScoreRow]:
    rows = []
    sizes = [nodes for nodes in sizes_run(runs, SINGLE) if nodes > 8]
    for figure, what, nodes, printed in (
        (aggregated, "aggregations", 32, 86), (value_of("held"), "delayed messages", 128, 84),
    ):  # fmt: skip
        statement = f"Figure 11: % fewer {what} with one tree for all"
        samples = [-change for change in more(runs, nodes, figure, SINGLE, AGG)]
        rows.append(number_row(f"{statement}, {nodes} nodes", printed, samples, _WHY_MARGIN))
        fewer = {size: -change for size, change in changes(runs, figure, sizes, SINGLE, AGG).items()}
        least = min(fewer.values()) >= printed if fewer else None
        why = broken_at([size for size, change in fewer.items() if change < printed])
        rows.append(claim_row(f"{statement}: at least {printed}", least, f"{listed(fewer)} %", runs, why))
    before, after = (per_run(select(runs, SINGLE, nodes), aggregated) for nodes in (HUGE // 2, HUGE))
    known = before and after
    rows.append(
        claim_row(
            f"Figure 11: with one tree there are fewer aggregations at {HUGE} nodes than at {HUGE // 2}",
            fmean(after) < fmean(before) if known else None,
            f"{fmean(after):,.0f} at {HUGE} nodes, {fmean(before):,.0f} at {HUGE // 2}" if known else "",
            after, "we do not know why",
        )
    )  # fmt: skip
    slower = changes(runs, value_of("reception_mean_ns"), sizes, SINGLE, AGG)
    rows.append(
        claim_row(
            "Figure 1: reception takes longer with one tree than with one per source, whatever the size",
            all(change > 0 for change in slower.values()) if slower else None,
            f"longer by {listed(slower)} %", runs,
            broken_at([size for size, change in slower.items() if change <= 0]),
        )
    )  # fmt: skip
    largest = max((nodes for nodes in sizes if nodes >= 128), default=0)
    over_time = [by_start(select(runs, protocol, largest)) or [(0.0, 0.0)] for protocol in (SINGLE, AGG)]
    first, last = ([points[end][1] for points in over_time] for end in (0, -1))
    queues, steady = last[0] > 1.5 * first[0], last[1] < 1.1 * first[1]
    kept = [] if queues else ["with one tree it rises by less than the half that is asked for here"]
    kept += [] if steady else ["with one tree per source it rises too, by more than the 10 % allowed here"]
    rows.append(
        claim_row(
            "Figure 1: with one tree its root queues ever longer, with one per source nobody does "
            "(128 nodes and more; with fewer the root keeps up)",
            queues and steady if largest else None,
            f"reception latency of the first and of the last messages with {largest} nodes: with one tree "
            f"{first[0]:,.0f} and {last[0]:,.0f} units, with one per source {first[1]:,.0f} "
            f"and {last[1]:,.0f}",
            select(runs, SINGLE, largest), "; ".join(kept),
        )
    )  # fmt: skip
    return rows
