"""Paper 004: causal broadcast down a tree for each source, with and without aggregation.

Every node broadcasts one message of 50 bytes at some time within 500 units; nodes take a unit to process
and a unit to transmit each packet, one after the other; a link takes 100 ± 25. A unit of time is 1 ms here.
A sample is one run; what compares two protocols compares runs of the same seed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from statistics import fmean

from antecede.sim.scenario import Scenario, scenario
from antecede.studies.papers.board import Done, Figure, Paper, Reading, Row, Runs, Scale, claim, number

PAPER = "004"
NONE = "vcube"
AGG = "antecede.studies.papers.single_tree:Counted"
SINGLE = "antecede.studies.papers.single_tree:SingleTree"
NAMES = {NONE: "no aggregation", AGG: "aggregation", SINGLE: "one tree for all"}

LARGEST = 256
"""What the plain engine does in reasonable time; larger sizes are pending."""
SIZES: dict[Scale, list[int]] = {"quick": [8, 16, 32, 64], "full": [8, 16, 32, 64, 128, 256, 512, 1024]}
SEEDS: dict[Scale, int] = {"quick": 5, "full": 30}
SMALL_SEEDS: dict[Scale, int] = {"quick": 3, "full": 10}
"""Runs with messages of 5 bytes; a run has as many samples as nodes."""
MESSAGE, SMALL_MESSAGE = 50, 5
WINDOW = 0.5
"""Seconds within which everybody sends once."""

UNIT = 1e6
"""Nanoseconds."""

TABLE_1 = {
    # nodes: packets without and with aggregation, % fewer, % of packets with more than one message
    16: (240, 232, 3.33, 3.02),
    32: (992, 919, 7.36, 5.77),
    64: (4032, 3513, 12.87, 9.05),
    128: (16256, 13759, 15.36, 11.04),
    256: (65280, 49262, 24.54, 15.41),
    512: (261632, 191528, 26.79, 16.70),
    1024: (1047552, 745943, 28.79, 19.14),
}
TABLE_2 = {
    # messages: the probe's name for it, % of all packets, % of packets with more than one message
    "1": ("packets_of_to_1", 84.59, None),
    "2": ("packets_of_to_2", 9.16, 59.46),
    "3": ("packets_of_to_3", 3.12, 20.25),
    "4": ("packets_of_to_4", 1.26, 8.18),
    "5": ("packets_of_to_5", 0.66, 4.31),
    "more than 5": ("", 1.2, 7.8),
}
TABLE_3 = {
    # bytes: the probe's name for it, % of packets without and with aggregation: the columns are swapped in
    # the paper, whose text says that nothing without aggregation is as large as 8.45 % of packets with it
    "up to 100": ("packet_bytes_to_100", 63.67, 52.66),
    "100–200": ("packet_bytes_to_200", 30.30, 31.28),
    "200–300": ("packet_bytes_to_300", 6.03, 7.62),
    "300–400": ("packet_bytes_to_400", 0.0, 3.91),
    "more than 400": ("packet_bytes_over_400", 0.0, 4.54),
}
FIGURE_6 = {
    "no": ("causes_to_0", 27.0),
    "1 to 4": ("causes_to_4", 28.5),
    "5 to 9": ("causes_to_9", 18.4),
    "more than 12": ("causes_over_12", 23.0),
}
CAUSES = (0, 4, 9, 14, 19, 24, 29, 34, 39, 44, 49, 54)
DETAILED = 256
"""Tables 2 and 3 and Figure 6 are of this size; Figures 9 and 10 of 1024."""
HUGE = 1024

_WHY_ORDER = (
    "with σ = 25 and starts over 500 units fewer messages overtake each other than in the paper's runs; its "
    "steps from size to size are larger than a run's own spread, so some of its rows may be single runs"
)
_WHY_CLOCKS = "the paper does not print when nodes start; 500 units were chosen by the largest clock alone"
_WHY_WAIT = "as fewer messages overtake each other here, fewer wait on their way for something to go with"
_WHY_PAIR = (
    "peers wait less for company here, as fewer messages overtake each other; and the comparison is within "
    "one run (see readings)"
)
_WHY_MARGIN = "how a message gets to the root of the one tree is not printed (see readings)"


def _run(protocol: str, peers: int, seed: int, payload: int = MESSAGE) -> Scenario:
    return scenario(
        protocol=protocol, peers=peers, seed=seed, payload=payload, workload="once", seconds=WINDOW,
        network={"model": "nodes"}, count="paper", probes=("bundles",),
    )  # fmt: skip


def grid(scale: Scale) -> list[Scenario]:
    sizes = [peers for peers in SIZES[scale] if peers <= LARGEST]
    runs = [
        _run(protocol, peers, seed)
        for peers in sizes
        for protocol in NAMES
        for seed in range(1, SEEDS[scale] + 1)
    ]
    return runs + [_run(AGG, sizes[-1], seed, SMALL_MESSAGE) for seed in range(1, SMALL_SEEDS[scale] + 1)]


# Asking the runs


Figured = Callable[[Done], float]


def _of(runs: Runs, protocol: str, peers: int | None = None, payload: int = MESSAGE) -> Runs:
    return runs.where(lambda made: peers is None or made.peers == peers, protocol=protocol, payload=payload)


def _sizes(runs: Runs, protocol: str = AGG) -> list[int]:
    return sorted({run.scenario.peers for run in _of(runs, protocol).done})


def _each(runs: Runs, figure: Figured) -> list[float]:
    return [figure(run) for run in runs.done]


def _value(name: str) -> Figured:
    return lambda run: run.value(name)


def _percent(name: str, of: str = "packets_sized") -> Figured:
    return lambda run: 100 * run.value(name) / run.value(of)


def _aggregated(run: Done) -> float:
    """Packets with more than one message."""
    return run.value("packets_sized") - run.value("packets_of_to_1")


def _packets_of(run: Done, name: str) -> float:
    """How many packets have so many messages, by a row of Table 2."""
    if name:
        return run.value(name)
    return run.value("packets_sized") - sum(run.value(each) for each, _, _ in TABLE_2.values() if each)


def _saved(run: Done) -> float:
    """% fewer packets than a tree for each message has."""
    nodes = run.scenario.peers
    return 100 - 100 * run.value("packets") / (nodes * (nodes - 1))


def _pairs(runs: Runs, peers: int, one: str = AGG, other: str = NONE) -> Iterator[tuple[Done, Done]]:
    """Runs of two protocols with the same seed."""
    seeds = {run.scenario.seed: run for run in _of(runs, other, peers).done}
    for run in _of(runs, one, peers).done:
        if run.scenario.seed in seeds:
            yield run, seeds[run.scenario.seed]


def _ratios(pairs: Sequence[tuple[float, float]]) -> list[float]:
    """The ratio of two sums as samples, one a pair, whose spread is its own (a jackknife's pseudo-values).

    A ratio for each pair would not do: at small sizes hardly anything is held or aggregated.

    >>> _ratios([(1.0, 2.0), (2.0, 4.0)]), _ratios([(1.0, 0.0)])
    ([0.5, 0.5], [])
    """
    above, below = sum(a for a, _ in pairs), sum(b for _, b in pairs)
    if not below:
        return []
    if any(b == below for _, b in pairs):
        return [above / below]
    count = len(pairs)
    return [count * above / below - (count - 1) * (above - a) / (below - b) for a, b in pairs]


def _more(runs: Runs, peers: int, figure: Figured, one: str = AGG, other: str = NONE) -> list[float]:
    """By how many % a figure is larger with one protocol than with another."""
    pairs = [(figure(a), figure(b)) for a, b in _pairs(runs, peers, one, other)]
    return [100 * ratio - 100 for ratio in _ratios(pairs)]


def _changes(
    runs: Runs, figure: Figured, sizes: Sequence[int], one: str = AGG, other: str = NONE
) -> dict[int, float]:
    """The same at each size, on average."""
    found = {nodes: _more(runs, nodes, figure, one, other) for nodes in sizes}
    return {nodes: fmean(samples) for nodes, samples in found.items() if samples}


def _later(run: Done) -> float:
    """Of messages that came two in a packet: how much later, in %, than if nobody had waited."""
    late = run.value("pair_late_mean_ns")
    return 100 * late / (run.value("pair_reception_mean_ns") - late)


def _sooner(run: Done) -> float:
    """Of the same: how much less they were then held."""
    late = run.value("pair_late_mean_ns")
    return 100 * late / max(1.0, run.value("pair_held_mean_ns") + late)


def _with_pairs(runs: Runs, peers: int) -> list[Done]:
    return [run for run in _of(runs, AGG, peers).done if run.value("pair_messages")]


# The scoreboard


def score(runs: Runs) -> list[Row]:
    return [
        *_packets(runs),
        *_clocks_and_sizes(runs),
        *_latencies(runs),
        *_two_in_a_packet(runs),
        *_nodes(runs),
        *_one_tree(runs),
    ]


def _number(quantity: str, published: float, samples: Sequence[float], why: str = "") -> Row:
    return number(PAPER, quantity, published, samples, why)


def _claim(says: str, holds: bool | None, measured: str, runs: Runs | Sequence[object], why: str = "") -> Row:
    return claim(PAPER, says, holds, measured, len(runs), why)


def _listed(values: dict[int, float]) -> str:
    return ", ".join(f"{nodes}: {value:.1f}" for nodes, value in values.items())


def _packets(runs: Runs) -> list[Row]:
    rows = []
    for nodes, (alone, together, fewer, share) in TABLE_1.items():
        plain, agg = _of(runs, NONE, nodes), _of(runs, AGG, nodes)
        at = f"Table 1, {nodes} nodes"
        rows += [
            _number(f"{at}: packets without aggregation", alone, plain.values("packets")),
            _number(f"{at}: packets with aggregation", together, agg.values("packets"), _WHY_ORDER),
            _number(f"{at}: % fewer packets", fewer, _each(agg, _saved), _WHY_ORDER),
            _number(
                f"{at}: % of packets with more than one message", share,
                _each(agg, lambda run: 100 * _aggregated(run) / run.value("packets_sized")), _WHY_ORDER,
            ),
        ]  # fmt: skip
    saved = {nodes: fmean(_each(_of(runs, AGG, nodes), _saved)) for nodes in _sizes(runs)}
    rising = list(saved.values()) == sorted(saved.values()) if len(saved) > 1 else None
    rows.append(_claim("the more nodes, the larger the share of packets saved", rising, _listed(saved), runs))
    there = _of(runs, AGG, DETAILED)
    for messages, (name, of_all, of_more) in TABLE_2.items():
        what = f"Table 2, {DETAILED} nodes: packets with {messages} message{'s' * (messages != '1')}"
        shares = [100 * _packets_of(run, name) / run.value("packets_sized") for run in there.done]
        rows.append(_number(f"{what}, % of all", of_all, shares, _WHY_ORDER))
        if of_more is not None:
            shares = [
                100 * _packets_of(run, name) / _aggregated(run) for run in there.done if _aggregated(run)
            ]
            rows.append(_number(f"{what}, % of those with several", of_more, shares, _WHY_ORDER))
    few = [
        100 * (run.value("packets_of_to_2") + run.value("packets_of_to_3")) / _aggregated(run)
        for run in there.done
        if _aggregated(run)
    ]
    rows += [
        _number(f"two or three messages, % of packets with several, {DETAILED} nodes", 79, few),
        _number(
            f"packets with 15 messages, {DETAILED} nodes", 4, there.values("packets_of_to_15"),
            "so full a packet has messages with few dependencies only; they are rarer here",
        ),
        _number(
            f"most messages in a packet, {DETAILED} nodes", 15, there.values("packets_of_max"),
            "the largest packets are bounded by the MTU, so by the size of the clocks",
        ),
    ]  # fmt: skip
    return rows


def _clocks_and_sizes(runs: Runs) -> list[Row]:
    rows = []
    agg, plain = _of(runs, AGG, DETAILED), _of(runs, NONE, DETAILED)
    at = f"{DETAILED} nodes"
    for causes, (name, printed) in FIGURE_6.items():
        what = f"Figure 6, {at}: messages with {causes} causal dependencies, %"
        rows.append(_number(what, printed, _each(agg, _percent(name, "messages")), _WHY_CLOCKS))
    rows.append(
        _number(
            f"Figure 6, {at}: most causal dependencies (what the start times were chosen by)", 54,
            agg.values("causes_max"),
        )
    )  # fmt: skip
    apart = {
        name: abs(fmean(_each(agg, share)) - fmean(_each(plain, share)))
        for name, share in ((name, _percent(name, "messages")) for name, _ in FIGURE_6.values())
        if len(agg) and len(plain)
    }
    rows.append(
        _claim(
            f"dependencies are the same without aggregation, within 2.73 points, {at}",
            max(apart.values()) <= 2.73 if apart else None,
            f"{max(apart.values(), default=0):.2f} points apart at most", agg,
        )
    )  # fmt: skip
    for size, (name, alone, together) in TABLE_3.items():
        what = f"Table 3 (columns unswapped), {at}: % of packets of {size} bytes"
        rows += [
            _number(f"{what}, without aggregation", alone, _each(plain, _percent(name)), _WHY_CLOCKS),
            _number(f"{what}, with aggregation", together, _each(agg, _percent(name)), _WHY_CLOCKS),
        ]
    large = [
        100 * (run.value("packet_bytes_to_400") + run.value("packet_bytes_over_400")) / run.value("packets")
        for run in agg.done
    ]
    few = "fewer packets are as full, as fewer carry more than five messages"
    rows += [
        _number(f"packets with aggregation of more than 300 bytes, %, {at}", 8.45, large, _WHY_CLOCKS),
        _number(
            f"packets with aggregation of more than 1400 bytes, %, {at}", 0.29,
            _each(agg, _percent("packets_over_1400_bytes")), few,
        ),
        _number(f"packets sent because they were full, {at}", 117, agg.values("packets_cut"), few),
    ]  # fmt: skip
    for says, name in (
        ("aggregation reduces the bytes sent", "sent_bytes"),
        ("aggregation makes packets of less than 100 bytes fewer", "packet_bytes_to_100"),
    ):
        known = _changes(runs, _value(name), [nodes for nodes in _sizes(runs) if nodes > 8])
        holds = all(change < 0 for change in known.values()) if known else None
        rows.append(_claim(says, holds, f"{_listed(known)} %", runs))
    return rows


def _latencies(runs: Runs) -> list[Row]:
    rows = []
    for protocol, mean, longest in ((AGG, 2.1, 3.9), (NONE, 2.2, 4.1)):
        for name, printed, which in (
            ("reception_mean_ns", mean, "average"), ("reception_max_ns", longest, "longest"),
        ):  # fmt: skip
            small = {run.scenario.seed: run.value(name) for run in _of(runs, protocol, 8).done}
            grown = [
                run.value(name) / small[run.scenario.seed] - 1
                for run in _of(runs, protocol, HUGE).done
                if run.scenario.seed in small
            ]
            what = f"{which} reception latency, by how many times higher at {HUGE} nodes than at 8"
            rows.append(_number(f"{what}, {NAMES[protocol]}", printed, grown))
    for nodes, name, printed in (
        (256, "reception_mean_ns", 8.1), (HUGE, "reception_mean_ns", -7.4), (HUGE, "latency_mean_ns", -12.2),
    ):  # fmt: skip
        kind = "reception" if name.startswith("reception") else "delivery"
        what = f"{kind} latency with aggregation above that without, %, {nodes} nodes"
        rows.append(_number(what, printed, _more(runs, nodes, _value(name)), _WHY_WAIT))
    sizes = _sizes(runs)
    means = {
        nodes: fmean(_of(runs, AGG, nodes).values("reception_mean_ns")) / UNIT / math.log2(nodes)
        for nodes in sizes
    }
    even = max(means.values()) <= 1.25 * min(means.values()) if len(means) > 1 else None
    rows.append(
        _claim("reception latency is near to logarithmic", even, f"units per log₂ N: {_listed(means)}", runs)
    )
    later = _changes(runs, _value("reception_mean_ns"), [nodes for nodes in sizes if 8 < nodes < HUGE])
    rows.append(
        _claim(
            "reception latency is higher with aggregation, from 16 to 512 nodes",
            all(change > 0 for change in later.values()) if later else None, f"{_listed(later)} %", runs,
            "by less than runs differ: propagation is drawn anew for each protocol",
        )
    )  # fmt: skip
    growing = list(later.values()) == sorted(later.values()) if len(later) > 1 else None
    rows.append(_claim("and by the more, the more nodes", growing, f"{_listed(later)} %", runs, _WHY_WAIT))
    rows += [
        _number(
            f"time in the sending queue without aggregation above that with, %, {HUGE} nodes", 53.4,
            _more(runs, HUGE, _value("queued_mean_ns"), NONE, AGG),
        ),
        _number(
            f"time in the sending queue without aggregation, units, {HUGE} nodes", 50,
            [value / UNIT for value in _of(runs, NONE, HUGE).values("queued_mean_ns")],
        ),
    ]  # fmt: skip
    delivered = _changes(runs, _value("latency_mean_ns"), [nodes for nodes in sizes if nodes < HUGE])
    apart = max((abs(change) for change in delivered.values()), default=0.0)
    at_32 = _more(runs, 32, _value("latency_mean_ns"))
    at_32 = at_32 if sum(at_32) > 0 else [-change for change in at_32]
    rows += [
        _number(
            "difference of delivery latency, %, 32 nodes", 3.2, at_32,
            "the paper puts it down to chance; over 30 of our runs chance is less than half a per cent",
        ),
        _claim(
            "delivery latency differs by no more than 3.2 %, up to 512 nodes",
            apart <= 3.2 if delivered else None, f"{_listed(delivered)} %", runs,
        ),
    ]  # fmt: skip
    larger = {nodes: change for nodes, change in delivered.items() if nodes >= 64}
    rows.append(
        _claim(
            "aggregation does not degrade delivery latency but reduces it (64 nodes and more)",
            all(change < 0 for change in larger.values()) if larger else None, f"{_listed(larger)} %", runs,
        )
    )  # fmt: skip
    few = "not known; with 16 nodes only some 7 % of deliveries wait at all, and runs differ much"
    for nodes, printed, why in ((16, 5.0, few), (HUGE, 53.4, _WHY_ORDER)):
        longer = _more(runs, nodes, _value("held_mean_ns"), NONE, AGG)
        what = f"time held before delivery without aggregation above that with, %, {nodes} nodes"
        rows.append(_number(what, printed, longer, why))
    over_8 = [nodes for nodes in sizes if nodes > 8]
    longer_held = _changes(runs, _value("held_mean_ns"), over_8, NONE, AGG)
    rows.append(
        _claim(
            "messages are held longer without aggregation, whatever the size",
            all(change > 0 for change in longer_held.values()) if longer_held else None,
            f"{_listed(longer_held)} %", runs,
        )
    )  # fmt: skip
    return rows


def _two_in_a_packet(runs: Runs) -> list[Row]:
    eight = _of(runs, AGG, 8)
    several = sum(_each(eight, _aggregated))
    shown = f"{several:.0f} of {sum(eight.values('packets_sized')):.0f} packets"
    rows = [
        _claim(
            "Figure 8: nothing is aggregated with 8 nodes", several == 0 if len(eight) else None, shown,
            eight, "rare, but some runs have it",
        )
    ]  # fmt: skip
    pairs = {nodes: _with_pairs(runs, nodes) for nodes in _sizes(runs) if nodes > 8}
    later = {nodes: [_later(run) for run in those] for nodes, those in pairs.items() if those}
    most = max(later, key=lambda nodes: fmean(later[nodes]), default=0)
    what = "Figure 8, two messages in a packet: reception latency, % above that of each alone"
    rows.append(_number(f"{what}, the largest of the sizes run", 13.6, later.get(most, []), _WHY_PAIR))
    for nodes, printed in ((64, 74), (512, 59)):
        what = f"Figure 8, two messages in a packet: time held, % below that of each alone, {nodes} nodes"
        those = [_sooner(run) for run in pairs.get(nodes, [])]
        rows.append(_number(what, printed, those, _WHY_PAIR))
    return rows


def _nodes(runs: Runs) -> list[Row]:
    rows = []
    agg, plain = _of(runs, AGG, HUGE), _of(runs, NONE, HUGE)
    at = f"Figure 9, {HUGE} nodes: nodes that hold"
    rows += [
        _number(f"{at} at most 50 messages, aggregation", 569, agg.values("nodes_holding_to_50")),
        _claim(
            f"{at} at most 50 messages, no aggregation: less than a quarter",
            fmean(plain.values("nodes_holding_to_50")) < HUGE / 4 if len(plain) else None,
            f"{fmean(plain.values('nodes_holding_to_50') or [0]):.0f}", plain,
        ),
        _number(f"{at} more than 250 messages, aggregation", 24, agg.values("nodes_holding_over_250")),
        _number(f"{at} more than 250 messages, no aggregation", 212, plain.values("nodes_holding_over_250")),
    ]  # fmt: skip
    small = _of(runs, AGG, HUGE, SMALL_MESSAGE)
    at = f"Figure 10, {HUGE} nodes"
    rows += [
        _number(f"{at}, 50 bytes: nodes whose fullest packet has 7 to 11 messages, %", 95.5,
                _each(agg, lambda run: _packing(run, 7, 11))),
        _number(f"{at}, 50 bytes: messages in the fullest packet of all", 14, agg.values("packets_of_max")),
        _number(f"{at}, 5 bytes: nodes whose fullest packet has 8 to 12 messages, %", 81.3,
                _each(small, lambda run: _packing(run, 8, 12))),
        _number(f"{at}, 5 bytes: nodes whose fullest packet has 8 to 12 messages", 833,
                _each(small, lambda run: _packing(run, 8, 12) * run.scenario.peers / 100)),
    ]  # fmt: skip
    idle = sum(agg.values("nodes_packing_to_1"))
    rows.append(
        _claim(f"{at}: every node aggregates", idle == 0 if len(agg) else None, f"{idle:.0f} never do", agg)
    )
    counts = [sum(agg.values(f"nodes_packing_to_{messages}")) for messages in range(1, 21)]
    peak = counts.index(max(counts))
    one_peak = counts[: peak + 1] == sorted(counts[: peak + 1]) and counts[peak:] == sorted(
        counts[peak:], reverse=True
    )
    says = f"{at}: the fullest packets of nodes are spread like a normal distribution (about one peak)"
    rows.append(_claim(says, one_peak if len(agg) else None, f"peak at {peak + 1} messages", agg))
    sizes = [nodes for nodes in _sizes(runs) if len(_of(runs, AGG, nodes, SMALL_MESSAGE))]
    means = {
        payload: fmean(_each(_of(runs, AGG, sizes[-1], payload), _mean_packing))
        for payload in (SMALL_MESSAGE, MESSAGE)
        if sizes
    }
    holds = means[SMALL_MESSAGE] > means[MESSAGE] if means else None
    shown = " and ".join(f"{mean:.2f} for {payload} bytes" for payload, mean in means.items())
    says = "Figure 10: smaller messages, fuller fullest packets (largest size run)"
    why = "packets that full are rare below 256 nodes, so that the MTU does not yet matter"
    return [*rows, _claim(says, holds, shown, runs, why)]


def _packing(run: Done, low: int, high: int) -> float:
    """% of nodes whose fullest packet has so many messages."""
    those = sum(run.value(f"nodes_packing_to_{messages}") for messages in range(low, high + 1))
    return 100 * those / run.scenario.peers


def _mean_packing(run: Done) -> float:
    counted = sum(messages * run.value(f"nodes_packing_to_{messages}") for messages in range(1, 21))
    return (counted + 21 * run.value("nodes_packing_over_20")) / run.scenario.peers


def _one_tree(runs: Runs) -> list[Row]:
    rows = []
    sizes = [nodes for nodes in _sizes(runs, SINGLE) if nodes > 8]
    for figure, what, nodes, printed in (
        (_aggregated, "aggregations", 32, 86), (_value("held"), "delayed messages", 128, 84),
    ):  # fmt: skip
        says = f"Figure 11: % fewer {what} with one tree for all"
        samples = [-change for change in _more(runs, nodes, figure, SINGLE, AGG)]
        rows.append(_number(f"{says}, {nodes} nodes", printed, samples, _WHY_MARGIN))
        fewer = {size: -change for size, change in _changes(runs, figure, sizes, SINGLE, AGG).items()}
        least = min(fewer.values()) >= printed if fewer else None
        why = "not with the fewest nodes: one tree then loses less than the paper says, with more nodes more"
        rows.append(_claim(f"{says}: at least {printed}", least, f"{_listed(fewer)} %", runs, why))
    before, after = (_each(_of(runs, SINGLE, nodes), _aggregated) for nodes in (HUGE // 2, HUGE))
    known = before and after
    rows.append(
        _claim(
            f"Figure 11: with one tree there are fewer aggregations at {HUGE} nodes than at {HUGE // 2}",
            fmean(after) < fmean(before) if known else None,
            f"{fmean(after):,.0f} and {fmean(before):,.0f}" if known else "", after,
        )
    )  # fmt: skip
    slower = _changes(runs, _value("reception_mean_ns"), sizes, SINGLE, AGG)
    rows.append(
        _claim(
            "Figure 1: reception takes longer with one tree than with one a source, whatever the size",
            all(change > 0 for change in slower.values()) if slower else None,
            f"longer by {_listed(slower)} %", runs,
        )
    )  # fmt: skip
    largest = max((nodes for nodes in sizes if nodes >= 128), default=0)
    first, last = (
        [_mean(_of(runs, protocol, largest).values(f"reception_ns_sent_in_{part}")) / UNIT
         for protocol in (SINGLE, AGG)]
        for part in (0, 9)
    )  # fmt: skip
    rows.append(
        _claim(
            "Figure 1: with one tree its root queues ever longer, with one a source nobody does "
            "(128 nodes and more; with fewer the root keeps up)",
            last[0] > 1.5 * first[0] and last[1] < 1.1 * first[1] if largest else None,
            f"from {first[0]:.0f} to {last[0]:.0f} units; from {first[1]:.0f} to {last[1]:.0f}",
            _of(runs, SINGLE, largest),
        )
    )  # fmt: skip
    return rows


def _mean(values: Sequence[float]) -> float:
    return fmean(values) if values else 0.0


# The pictures


def _line(runs: Runs, figure: Figured) -> list[tuple[float, float]]:
    by_size = runs.by(lambda made: made.peers)
    return [(float(nodes), fmean(_each(those, figure))) for nodes, those in by_size.items()]


def _bars(runs: Runs, names: Sequence[str], at: Sequence[float], of: str) -> list[tuple[float, float]]:
    """Shares of a histogram, in %."""
    if not len(runs):
        return []
    shares = (fmean(_each(runs, _percent(name, of))) for name in names)
    return list(zip(at, shares, strict=True))


def figures(runs: Runs) -> list[Figure]:
    sizes = _sizes(runs)
    if not sizes:
        return []
    return [*_over_sizes(runs), *_distributions(runs, min(sizes[-1], DETAILED), sizes[-1])]


def _over_sizes(runs: Runs) -> list[Figure]:
    nodes = "nodes"

    def lines(name: str, *protocols: str) -> dict[str, list[tuple[float, float]]]:
        return {NAMES[each]: _line(_of(runs, each), lambda run: run.value(name) / UNIT) for each in protocols}

    agg = _of(runs, AGG)
    paired = Runs([run for run in agg.done if run.value("pair_messages")])
    printed = {
        "% fewer packets": [(float(size), row[2]) for size, row in TABLE_1.items()],
        "% with several messages": [(float(size), row[3]) for size, row in TABLE_1.items()],
    }
    several = _line(agg, lambda run: 100 * _aggregated(run) / run.value("packets_sized"))
    received = {f"reception, {name}": line for name, line in lines("reception_mean_ns", AGG, NONE).items()}
    delivered = {f"delivery, {name}": line for name, line in lines("latency_mean_ns", AGG, NONE).items()}

    def in_pairs(held: bool, late: int) -> list[tuple[float, float]]:
        def of(run: Done) -> float:
            took = run.value("pair_reception_mean_ns") + held * run.value("pair_held_mean_ns")
            return (took - late * run.value("pair_late_mean_ns")) / UNIT

        return _line(paired, of)

    trees = {AGG: "a tree a source", SINGLE: "one tree"}
    counted = {
        f"{what}, {tree}": _line(_of(runs, protocol), figure)
        for what, figure in (("aggregations", _aggregated), ("delayed messages", _value("held")))
        for protocol, tree in trees.items()
    }
    return [
        Figure(
            "1a", "Reception latency with one tree and with one a source", nodes, "units of time",
            lines("reception_mean_ns", AGG, SINGLE),
        ),
        Figure(
            "T1", "Table 1, packets saved and packets with several messages", nodes, "%",
            {"% fewer packets": _line(agg, _saved), "% with several messages": several}, printed,
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
    agg, plain = _of(runs, AGG, detailed), _of(runs, NONE, detailed)
    at = f"{detailed} nodes"
    hint = "" if detailed == DETAILED else f"The paper's are of {DETAILED} nodes."
    per_packet = [
        (float(i), fmean(100 * _packets_of(run, row[0]) / run.value("packets_sized") for run in agg.done))
        for i, row in enumerate(TABLE_2.values(), 1)
    ]
    sized, middles = [name for name, _, _ in TABLE_3.values()], (50.0, 150.0, 250.0, 350.0, 450.0)
    causes = [f"causes_to_{bound}" for bound in CAUSES] + [f"causes_over_{CAUSES[-1]}"]
    bounds = [float(bound) for bound in (*CAUSES, 59)]
    slices = range(10)
    over_time = {
        NAMES[protocol]: [
            (part * 50.0 + 25, _mean(values) / UNIT)
            for part in slices
            if (
                values := [
                    v for v in _of(runs, protocol, largest).values(f"reception_ns_sent_in_{part}") if v
                ]
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
            (at, fmean(_each(those, lambda run, name=name: 100 * run.value(name) / run.scenario.peers)))  # type: ignore[misc]
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
                NAMES[each]: share(_of(runs, each, largest), holding, (50, 100, 150, 200, 250, 300))
                for each in (AGG, NONE)
            },
            {"aggregation": [(50.0, 100 * 569 / HUGE), (300.0, 100 * 24 / HUGE)],
             "no aggregation": [(300.0, 100 * 212 / HUGE)]},
            "" if largest == HUGE else f"The paper's are of {HUGE} nodes.",
        ),
        Figure(
            "10", f"Most messages that a node puts into a packet, {largest} nodes", "messages", "% of nodes",
            {
                f"{payload} bytes": share(_of(runs, AGG, largest, payload), packing, range(1, 21))
                for payload in (MESSAGE, SMALL_MESSAGE)
            },
        ),
    ]  # fmt: skip


# What the paper leaves out: sizes that are no power of two

ODD_SIZES: dict[Scale, list[int]] = {"quick": [12, 20, 48], "full": [12, 20, 48, 100, 200]}
ODD_SEEDS: dict[Scale, int] = {"quick": 3, "full": 10}


def _neighbours(nodes: int) -> tuple[int, int]:
    """The powers of two around a size.

    >>> _neighbours(20), _neighbours(16)
    ((16, 32), (16, 32))
    """
    below = 1 << nodes.bit_length() - 1
    return below, 2 * below


def open_grid(scale: Scale) -> list[Scenario]:
    odd = [nodes for nodes in ODD_SIZES[scale] if nodes <= LARGEST]
    sizes = sorted({*odd, *(even for nodes in odd for even in _neighbours(nodes))})
    seeds = range(1, ODD_SEEDS[scale] + 1)
    return [_run(protocol, nodes, seed) for nodes in sizes for protocol in (NONE, AGG) for seed in seeds]


def _is_power(nodes: int) -> bool:
    return nodes & (nodes - 1) == 0


def open_score(runs: Runs) -> list[Row]:
    rows = []
    odd = [nodes for nodes in _sizes(runs) if not _is_power(nodes)]
    plain = {nodes: set(_of(runs, NONE, nodes).values("packets")) for nodes in odd}
    one_each = all(found == {nodes * (nodes - 1)} for nodes, found in plain.items()) if odd else None
    shown = ", ".join(f"{nodes}: {max(found, default=0):,.0f}" for nodes, found in plain.items())
    rows.append(
        _claim("beyond: any number of nodes gets each message by N − 1 packets", one_each, shown, runs)
    )
    for figure, what in (
        (_saved, "% fewer packets"),
        (_value("reception_mean_ns"), "reception latency"),
        (_value("latency_mean_ns"), "delivery latency"),
    ):
        scale = 1 if figure is _saved else UNIT
        means = {n: fmean(_each(_of(runs, AGG, n), figure)) / scale for n in _sizes(runs)}
        for nodes in odd:
            low, high = (means.get(each) for each in _neighbours(nodes))
            holds = None if low is None or high is None else low <= means[nodes] <= high
            between = " and ".join(str(each) for each in _neighbours(nodes))
            shown = f"{low or 0:.4g}, {means[nodes]:.4g}, {high or 0:.4g}"
            says = f"beyond: {what} with {nodes} nodes is between that with {between}"
            why = "an incomplete cube has other trees"
            rows.append(_claim(says, holds, shown, _of(runs, AGG, nodes), why))
    return rows


def open_figures(runs: Runs) -> list[Figure]:
    def lines(figure: Figured) -> dict[str, list[tuple[float, float]]]:
        return {
            "powers of two": _line(_of(runs, AGG).where(lambda made: _is_power(made.peers)), figure),
            "other sizes": _line(_of(runs, AGG).where(lambda made: not _is_power(made.peers)), figure),
        }

    late = "A message for a rank that nobody has goes to the nearest that somebody has: VCube's own rule."
    return [
        Figure("open a", "Packets saved by aggregation", "nodes", "%", lines(_saved), note=late),
        Figure(
            "open b", "Reception latency", "nodes", "units of time",
            lines(lambda run: run.value("reception_mean_ns") / UNIT),
        ),
        Figure(
            "open c", "Delivery latency", "nodes", "units of time",
            lines(lambda run: run.value("latency_mean_ns") / UNIT),
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
