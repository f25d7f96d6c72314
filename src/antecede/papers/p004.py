"""Paper 004: causal broadcast down a tree for each source, with and without aggregation.

Every node broadcasts one message of 50 bytes at some time within 500 units; nodes take a unit to process
and a unit to transmit each packet, one after the other; a link takes 100 ± 25. A unit of time is 1 ms here.
A sample is one run; what compares two protocols compares runs of the same seed.

The runs and what the paper prints are in `p004_runs`, the rows in `p004_scores` and `p004_nodes`, other
sizes in `p004_open`.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from antecede.papers.board import Done, Figure, Paper, Reading, Runs, wire_figure
from antecede.papers.p004_open import open_figures, open_grid, open_score
from antecede.papers.p004_runs import (
    AGG,
    CAUSES,
    DETAILED,
    HUGE,
    MESSAGE,
    NAMES,
    NONE,
    PAPER,
    SINGLE,
    SMALL_MESSAGE,
    TABLE_1,
    TABLE_2,
    TABLE_3,
    UNIT,
    aggregated,
    grid,
    line_of,
    mean_of,
    of,
    packets_of,
    per_run,
    percent,
    percent_saved,
    sizes_run,
    value_of,
)
from antecede.papers.p004_scores import score


def _bars(runs: Runs, names: Sequence[str], at: Sequence[float], of: str) -> list[tuple[float, float]]:
    """Shares of a histogram, in %."""
    if not len(runs):
        return []
    shares = (fmean(per_run(runs, percent(name, of))) for name in names)
    return list(zip(at, shares, strict=True))


def figures(runs: Runs) -> list[Figure]:
    sizes = sizes_run(runs)
    if not sizes:
        return []
    plain = of(runs, NONE)
    both = {"a clock": (plain.line("paper_bytes_mean"), plain.line("control_bytes_mean"))}
    largest = sizes[-1]
    return [
        *_over_sizes(runs),
        *_distributions(runs, min(largest, DETAILED), largest),
        *wire_figure(both, "nodes"),
    ]


def _over_sizes(runs: Runs) -> list[Figure]:
    nodes = "nodes"

    def lines(name: str, *protocols: str) -> dict[str, list[tuple[float, float]]]:
        return {
            NAMES[each]: line_of(of(runs, each), lambda run: run.value(name) / UNIT) for each in protocols
        }

    agg = of(runs, AGG)
    paired = Runs([run for run in agg.done if run.value("pair_messages")])
    printed = {
        "% fewer packets": [(float(size), row[2]) for size, row in TABLE_1.items()],
        "% with several messages": [(float(size), row[3]) for size, row in TABLE_1.items()],
    }
    several = line_of(agg, lambda run: 100 * aggregated(run) / run.value("packets_sized"))
    received = {f"reception, {name}": line for name, line in lines("reception_mean_ns", AGG, NONE).items()}
    delivered = {f"delivery, {name}": line for name, line in lines("latency_mean_ns", AGG, NONE).items()}

    def in_pairs(held: bool, late: int) -> list[tuple[float, float]]:
        def units(run: Done) -> float:
            took = run.value("pair_reception_mean_ns") + held * run.value("pair_held_mean_ns")
            return (took - late * run.value("pair_late_mean_ns")) / UNIT

        return line_of(paired, units)

    trees = {AGG: "a tree a source", SINGLE: "one tree"}
    counted = {
        f"{what}, {tree}": line_of(of(runs, protocol), figure)
        for what, figure in (("aggregations", aggregated), ("delayed messages", value_of("held")))
        for protocol, tree in trees.items()
    }
    return [
        Figure(
            "1a", "Reception latency with one tree and with one a source", nodes, "units of time",
            lines("reception_mean_ns", AGG, SINGLE),
        ),
        Figure(
            "T1", "Table 1, packets saved and packets with several messages", nodes, "%",
            {"% fewer packets": line_of(agg, percent_saved), "% with several messages": several}, printed,
        ),
        Figure("7", "Reception and delivery latency", nodes, "units of time", received | delivered),
        Figure(
            "8", "Messages that travel two in a packet", nodes, "units of time",
            {
                "reception, aggregation": in_pairs(held=False, late=0),
                "reception, each alone": in_pairs(held=False, late=1),
                "delivery": in_pairs(held=True, late=0),
            },
            note="Each alone: had no peer waited for something to send with it. Delivery is then the same.",
        ),
        Figure("11", "Aggregations and delayed messages", nodes, "in a run", counted),
    ]  # fmt: skip


def _distributions(runs: Runs, detailed: int, largest: int) -> list[Figure]:
    agg, plain = of(runs, AGG, detailed), of(runs, NONE, detailed)
    at = f"{detailed} nodes"
    hint = "" if detailed == DETAILED else f"The paper's are of {DETAILED} nodes."
    per_packet = [
        (float(i), fmean(100 * packets_of(run, row[0]) / run.value("packets_sized") for run in agg.done))
        for i, row in enumerate(TABLE_2.values(), 1)
    ]
    sized, middles = [name for name, _, _ in TABLE_3.values()], (50.0, 150.0, 250.0, 350.0, 450.0)
    causes = [f"causes_to_{bound}" for bound in CAUSES] + [f"causes_over_{CAUSES[-1]}"]
    bounds = [float(bound) for bound in (*CAUSES, 59)]
    slices = range(10)
    over_time = {
        NAMES[protocol]: [
            (part * 50.0 + 25, mean_of(values) / UNIT)
            for part in slices
            if (
                values := [v for v in of(runs, protocol, largest).values(f"reception_ns_sent_in_{part}") if v]
            )
        ]
        for protocol in (AGG, SINGLE)
    }
    holding = [f"nodes_holding_to_{bound}" for bound in (50, 100, 150, 200, 250)] + ["nodes_holding_over_250"]
    packing = [f"nodes_packing_to_{messages}" for messages in range(1, 21)]

    def share(those: Runs, names: Sequence[str], x: Sequence[float]) -> list[tuple[float, float]]:
        if not len(those):
            return []
        return [
            (at, fmean(per_run(those, lambda run, name=name: 100 * run.value(name) / run.scenario.peers)))  # type: ignore[misc]
            for at, name in zip(x, names, strict=True)
        ]

    return [
        Figure(
            "1b", f"Reception latency by when a message is sent, {largest} nodes", "units of time",
            "units of time", over_time,
        ),
        Figure(
            "T2", f"Table 2, messages in a packet, {at}", "messages (6: more than 5)", "% of packets",
            {"aggregation": per_packet},
            {"aggregation": [(float(i), row[1]) for i, row in enumerate(TABLE_2.values(), 1)]}, hint,
        ),
        Figure(
            "T3", f"Table 3, sizes of packets, {at}", "bytes (450: more than 400)", "% of packets",
            {
                "no aggregation": _bars(plain, sized, middles, "packets_sized"),
                "aggregation": _bars(agg, sized, middles, "packets_sized"),
            },
            {
                "no aggregation": [(x, row[1]) for x, row in zip(middles, TABLE_3.values(), strict=True)],
                "aggregation": [(x, row[2]) for x, row in zip(middles, TABLE_3.values(), strict=True)],
            },
            f"The paper's columns are swapped back. {hint}".strip(),
        ),
        Figure(
            "6", f"Causal dependencies of a message, {at}", "up to so many (59: more than 54)",
            "% of messages",
            {"aggregation": _bars(agg, causes, bounds, "messages")},
            {"aggregation": [(0.0, 27.0), (4.0, 28.5), (9.0, 18.4)]}, hint,
        ),
        Figure(
            "9", f"Most messages held by a node, {largest} nodes", "up to so many (300: more than 250)",
            "% of nodes",
            {
                NAMES[each]: share(of(runs, each, largest), holding, (50, 100, 150, 200, 250, 300))
                for each in (AGG, NONE)
            },
            {"aggregation": [(50.0, 100 * 569 / HUGE), (300.0, 100 * 24 / HUGE)],
             "no aggregation": [(300.0, 100 * 212 / HUGE)]},
            "" if largest == HUGE else f"The paper's are of {HUGE} nodes.",
        ),
        Figure(
            "10", f"Most messages that a node puts into a packet, {largest} nodes", "messages", "% of nodes",
            {
                f"{payload} bytes": share(of(runs, AGG, largest, payload), packing, range(1, 21))
                for payload in (MESSAGE, SMALL_MESSAGE)
            },
        ),
    ]  # fmt: skip


READINGS = [
    Reading(
        "“random time given by a Poisson distribution with interval rate λ = 1000”, one message a node",
        "each node at any time of the first 500 units",
        "the one number not printed, and chosen because the largest clock of Figure 6 has 54 dependencies. "
        "With 256 nodes ours has about 55; starts spread evenly over 1000 give 140, exponential with mean "
        "1000 give 253, and Poisson-distributed with mean 1000 give 5",
    ),
    Reading(
        "σ of the propagation time", "25 units, as printed", "40 would be nearer to Table 1, and is not used"
    ),
    Reading(
        "propagation",
        "whole units, drawn for each packet copy, again if negative; a link does not keep order",
        "PeerSim's clock is whole; messages must be able to overtake each other on one link (section 5.5)",
    ),
    Reading("processing", "a unit's delay at the receiver, without a queue", "only sending is said to queue"),
    Reading("queue", "one a node, a unit for each copy", "“a copy of it is inserted in the sending queue”"),
    Reading(
        "size of a packet",
        "20 bytes, and for each message its payload and 4 bytes an entry of its clock that changed, its own "
        "included",
        "section 5.2; a packet is cut so that it stays within 1500 bytes by this count, not by our encoding",
    ),
    Reading("order within a received set", "all at once", "other orders are wrong, or take bundles apart"),
    Reading(
        "Figure 6: “for the remaining messages, 28.5 % (18.4 %) of them”",
        "of all messages; 1 to 4, and 5 to 9",
        "of the rest, more messages would have 10 to 12 dependencies than 5 to 9, but the share “continues "
        "to drop”",
    ),
    Reading("Table 3", "its columns are swapped", "the text gives 8.45 = 3.91 + 4.54 % to aggregation"),
    Reading(
        "“2.1 times higher”", "L(1024) / L(8) − 1",
        "trees of 1024 nodes are 2.9 times as deep on average as those of 8, so that 2.1 cannot be the ratio",
    ),
    Reading("maximum increase", "of the longest reception of a run", "not said"),
    Reading(
        "time held", "averaged over all deliveries, those that did not wait included",
        "it is the difference of Figure 7's two latencies; 53.4 % is printed for the sending queue too",
    ),
    Reading(
        "Figure 8: “the individual transmissions of the corresponding messages”",
        "the same message in the same run, less what peers on its way kept it waiting for company",
        "a second run has other delays; by this, delivery is the same by definition, and Figure 7 tests that",
    ),
    Reading("buffered messages (Figure 9)", "what is left after all that can be delivered is", "“held in”"),
    Reading(
        "one tree (Figures 1 and 11)",
        "a message goes to node 0 by one packet and then down the tree of node 0, through its source again",
        "“disseminated from the root of this tree to the other nodes”; node 0 is the bottleneck",
    ),
    Reading("Figure 1", "with aggregation, and the times of Figure 7", "it is another paper's; section 5.5"),
    Reading("aggregations (Figure 11)", "packets with more than one message", "not said"),
    Reading("delayed messages (Figure 11)", "deliveries that waited", "“in buffer waiting for delivery”"),
    Reading(
        "how two protocols are compared",
        "runs with the same seed, so the same start times; what is rare is summed over runs first",
        "with few nodes most runs have nothing to divide by",
    ),
]  # fmt: skip

STUDY = Paper(
    PAPER,
    "VCube: a spanning tree for each source, and aggregation",
    grid,
    score,
    figures,
    READINGS,
    "The paper needs N to be a power of two. What do other sizes cost?",
    open_grid,
    open_score,
    open_figures,
)
