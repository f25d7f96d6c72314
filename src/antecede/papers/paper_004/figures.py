"""Paper 004's figures, and its tables as charts."""

from __future__ import annotations

from collections.abc import Sequence

from antecede.papers.paper import Figure, FinishedRun, Points, Runs, mean, wire_figure
from antecede.papers.paper_004.nodes import buffered
from antecede.papers.paper_004.runs import (
    AGG,
    CAUSES,
    DETAILED,
    HUGE,
    MESSAGE,
    NAMES,
    NONE,
    SINGLE,
    SMALL_MESSAGE,
    TABLE_1,
    TABLE_2,
    TABLE_3,
    UNIT,
    aggregated,
    by_start,
    line_of,
    packets_of,
    per_run,
    percent,
    percent_saved,
    select,
    sizes_run,
    value_of,
)
from antecede.papers.readings import Joint


def _bars(runs: Runs, names: Sequence[str], at: Sequence[float], of: str) -> Points:
    """Shares of a histogram, in %."""
    if not len(runs):
        return []
    shares = (mean(per_run(runs, percent(name, of))) for name in names)
    return list(zip(at, shares, strict=True))


def figures(runs: Runs, joint: Joint) -> list[Figure]:
    sizes = sizes_run(runs)
    if not sizes:
        return []
    plain = select(runs, NONE)
    both = {"a clock": (plain.line("paper_bytes_mean"), plain.line("control_bytes_mean"))}
    largest = sizes[-1]
    return [
        *_over_sizes(runs),
        *_distributions(runs, joint, min(largest, DETAILED), largest),
        *wire_figure(both, "nodes"),
    ]


def _over_sizes(runs: Runs) -> list[Figure]:
    nodes = "nodes"

    def lines(name: str, *protocols: str) -> dict[str, Points]:
        return {
            NAMES[each]: line_of(select(runs, each), lambda run: run.value(name) / UNIT) for each in protocols
        }

    agg = select(runs, AGG)
    paired = Runs([run for run in agg.finished if run.value("pair_messages")])
    printed = {
        "% fewer packets": [(float(size), row[2]) for size, row in TABLE_1.items()],
        "% with several messages": [(float(size), row[3]) for size, row in TABLE_1.items()],
    }
    several = line_of(agg, lambda run: 100 * aggregated(run) / run.value("packets_sized"))
    received = {f"reception, {name}": line for name, line in lines("reception_mean_ns", AGG, NONE).items()}
    delivered = {f"delivery, {name}": line for name, line in lines("latency_mean_ns", AGG, NONE).items()}

    def in_pairs(held: bool, late: int) -> Points:
        def units(run: FinishedRun) -> float:
            latency = run.value("pair_reception_mean_ns") + held * run.value("pair_held_mean_ns")
            return (latency - late * run.value("pair_late_mean_ns")) / UNIT

        return line_of(paired, units)

    trees = {AGG: "one tree per source", SINGLE: "one tree"}
    counted = {
        f"{what}, {tree}": line_of(select(runs, protocol), figure)
        for what, figure in (("aggregations", aggregated), ("delayed messages", value_of("held")))
        for protocol, tree in trees.items()
    }
    return [
        Figure(
            "1a", "Reception latency with one tree and with one per source", nodes, "units of time",
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


def _distributions(runs: Runs, joint: Joint, detailed: int, largest: int) -> list[Figure]:
    return [
        _latency_over_time(runs, largest),
        _messages_per_packet(runs, detailed),
        _packet_sizes(runs, detailed),
        _dependencies(runs, detailed),
        _most_held(runs, joint, largest),
        _most_packed(runs, largest),
    ]


def _other_size(drawn: int, printed: int) -> str:
    """A note where the paper's points are of another size than ours."""
    return "" if drawn == printed else f"The paper's are of {printed} nodes."


def _latency_over_time(runs: Runs, largest: int) -> Figure:
    return Figure(
        "1b", f"Reception latency by when a message is sent, {largest} nodes", "units of time",
        "units of time",
        {NAMES[protocol]: by_start(select(runs, protocol, largest)) for protocol in (AGG, SINGLE)},
    )  # fmt: skip


def _messages_per_packet(runs: Runs, nodes: int) -> Figure:
    agg = select(runs, AGG, nodes).finished
    shares = [
        (float(i), mean([100 * packets_of(run, row[0]) / run.value("packets_sized") for run in agg]))
        for i, row in enumerate(TABLE_2.values(), 1)
    ]
    printed = [(float(i), row[1]) for i, row in enumerate(TABLE_2.values(), 1)]
    return Figure(
        "T2", f"Table 2, messages in a packet, {nodes} nodes", "messages (6: more than 5)", "% of packets",
        {"aggregation": shares}, {"aggregation": printed}, _other_size(nodes, DETAILED),
    )  # fmt: skip


def _packet_sizes(runs: Runs, nodes: int) -> Figure:
    names, middles = [name for name, _, _ in TABLE_3.values()], (50.0, 150.0, 250.0, 350.0, 450.0)
    rows = list(zip(middles, TABLE_3.values(), strict=True))
    lines = {
        shown: _bars(select(runs, protocol, nodes), names, middles, "packets_sized")
        for shown, protocol in (("no aggregation", NONE), ("aggregation", AGG))
    }
    printed = {
        "no aggregation": [(x, row[1]) for x, row in rows],
        "aggregation": [(x, row[2]) for x, row in rows],
    }
    note = f"The paper's columns are swapped back. {_other_size(nodes, DETAILED)}".strip()
    return Figure(
        "T3", f"Table 3, sizes of packets, {nodes} nodes", "bytes (450: more than 400)", "% of packets",
        lines, printed, note,
    )  # fmt: skip


def _dependencies(runs: Runs, nodes: int) -> Figure:
    names = [f"causes_to_{bound}" for bound in CAUSES] + [f"causes_over_{CAUSES[-1]}"]
    bounds = [float(bound) for bound in (*CAUSES, 59)]
    return Figure(
        "6", f"Causal dependencies of a message, {nodes} nodes", "up to this many (59: more than 54)",
        "% of messages",
        {"aggregation": _bars(select(runs, AGG, nodes), names, bounds, "messages")},
        {"aggregation": [(0.0, 27.0), (4.0, 28.5), (9.0, 18.4)]}, _other_size(nodes, DETAILED),
    )  # fmt: skip


def _most_held(runs: Runs, joint: Joint, nodes: int) -> Figure:
    kind = buffered(joint)
    names = [f"nodes_{kind}_to_{bound}" for bound in (50, 100, 150, 200, 250)] + [f"nodes_{kind}_over_250"]
    return Figure(
        "9", f"Most messages held by a node, {nodes} nodes", "up to this many (300: more than 250)",
        "% of nodes",
        {
            NAMES[protocol]: _shares_of_nodes(
                select(runs, protocol, nodes), names, (50, 100, 150, 200, 250, 300)
            )
            for protocol in (AGG, NONE)
        },
        {"aggregation": [(50.0, 100 * 569 / HUGE), (300.0, 100 * 24 / HUGE)],
         "no aggregation": [(300.0, 100 * 212 / HUGE)]},
        _other_size(nodes, HUGE),
    )  # fmt: skip


def _most_packed(runs: Runs, nodes: int) -> Figure:
    names = [f"nodes_packing_to_{messages}" for messages in range(1, 21)]
    return Figure(
        "10", f"Most messages that a node puts into a packet, {nodes} nodes", "messages", "% of nodes",
        {
            f"{payload} bytes": _shares_of_nodes(select(runs, AGG, nodes, payload), names, range(1, 21))
            for payload in (MESSAGE, SMALL_MESSAGE)
        },
    )  # fmt: skip


def _shares_of_nodes(runs: Runs, names: Sequence[str], at: Sequence[float]) -> Points:
    """A histogram of nodes, in % of them."""
    if not len(runs):
        return []
    return [
        (x, mean(per_run(runs, lambda run, name=name: 100 * run.value(name) / run.scenario.peers)))  # type: ignore[misc]
        for x, name in zip(at, names, strict=True)
    ]
