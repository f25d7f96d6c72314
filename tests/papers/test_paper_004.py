"""Paper 004's experiments, at sizes that run in a moment; the probe and the variants worked out by hand."""

from __future__ import annotations

from functools import cache

import msgspec
import pytest

from antecede.causality import MessageId
from antecede.papers import paper_004
from antecede.papers.paper import FinishedRun, Runs, Scale
from antecede.papers.paper_004 import open_question, scores
from antecede.papers.paper_004 import runs as paper_runs
from antecede.papers.scoreboard import ScoreRow
from antecede.protocols.flat import DependencyPacket
from antecede.protocols.vcube import Bundle, Vcube, VcubeAgg
from antecede.protocols.vcube_variants import VcubeAggPaperSizes, VcubeAggSingleTree
from antecede.sim.engines import simulate
from antecede.sim.network import NodesModel
from antecede.sim.probes import Bundles
from antecede.sim.scenario import Scenario

STUDY = paper_004.STUDY
PLAIN = STUDY.plainest

MS = 1_000_000


@cache
def tiny() -> Runs:
    """The quick study's runs with 8 and 16 nodes, and 16 nodes with small messages."""
    settings = [each for each in STUDY.plain_grid("quick") if each.peers <= 16 and each.seed <= 3]
    settings += [paper_runs.run(paper_runs.AGG, 16, 1, paper_runs.SMALL_MESSAGE)]
    return done(settings)


def done(scenarios: list[Scenario]) -> Runs:
    return Runs([FinishedRun(each, simulate(each).metrics) for each in scenarios])


def row(rows: list[ScoreRow], quantity: str) -> ScoreRow:
    (row,) = (each for each in rows if each.quantity == quantity)
    return row


@pytest.mark.parametrize("scale", ["quick", "full"])
def test_grids_have_every_run_once(scale: Scale) -> None:
    for grid in (STUDY.plain_grid, open_question.open_grid):
        settings = grid(scale)
        assert settings
        assert len({each.key() for each in settings}) == len(settings)
        assert {each.protocol for each in settings} <= set(paper_runs.NAMES)
    assert {each.peers for each in STUDY.plain_grid(scale)} == set(paper_runs.SIZES[scale])
    assert set(open_question.ODD_SIZES[scale]) < {each.peers for each in open_question.open_grid(scale)}


def test_rows_have_a_verdict_where_runs_exist_and_are_pending_elsewhere() -> None:
    rows = scores.score(tiny(), PLAIN)
    assert len({each.quantity for each in rows}) == len(rows) > 70
    pending = {each.quantity for each in rows if each.verdict == "pending"}
    tables = [each.quantity for each in rows if each.quantity.startswith("Table 1, ")]
    assert {quantity for quantity in tables if "16 nodes" not in quantity} == pending & set(tables)
    for each in rows:
        if each.quantity.startswith(("Table 2", "Table 3", "Figure 6", "Figure 9")):
            assert each.quantity in pending
        if each.quantity.endswith((" 16 nodes", " 8 nodes", "whatever the size")):
            assert each.quantity not in pending
    saved = row(rows, "Table 1, 16 nodes: % fewer packets")
    assert (saved.published, saved.runs) == (3.33, 3)
    assert {each.verdict for each in scores.score(Runs([]), PLAIN)} == {"pending"}
    assert len(scores.score(Runs([]), PLAIN)) == len(rows)


def test_changing_a_parameter_changes_a_paper_004_row() -> None:
    """Varying link speeds let more messages overtake each other; uniform links fewer."""
    usual = [
        each for each in STUDY.plain_grid("quick") if each.protocol == paper_runs.AGG and each.peers == 16
    ]

    def saved(propagation: str) -> float:
        network = NodesModel(propagation=propagation)
        rows = scores.score(
            done([msgspec.structs.replace(each, network=network) for each in usual[:3]]),
            PLAIN,
        )
        measured = row(rows, "Table 1, 16 nodes: % fewer packets").measured
        assert isinstance(measured, float)
        return measured

    assert saved("100ms") < saved("gauss:100ms,25ms,1ms") < saved("gauss:100ms,80ms,1ms")


def test_every_figure_is_drawn_from_its_runs() -> None:
    drawn = {figure.number: figure for figure in STUDY.figures(tiny(), PLAIN)}
    assert set(drawn) == {"1a", "1b", "T1", "T2", "T3", "6", "7", "8", "9", "10", "11", "bytes"}
    for figure in drawn.values():
        assert all(figure.lines.values()), figure.number
    for shares in (drawn["T2"], drawn["T3"], drawn["6"], drawn["9"], drawn["10"]):
        for line in shares.lines.values():
            assert sum(y for _, y in line) == pytest.approx(100), shares.number
    assert STUDY.figures(Runs([]), PLAIN) == []


def test_group_sizes_need_not_be_powers_of_two() -> None:
    settings = [each for each in open_question.open_grid("quick") if each.peers <= 16 and each.seed == 1]
    runs = done(settings)
    rows = open_question.open_score(runs)
    assert "pending" not in {each.verdict for each in rows}
    assert row(rows, "any number of nodes gets each message by N − 1 packets").measured == "12: 132"
    assert [figure.number for figure in open_question.open_figures(runs)] == ["open a", "open b", "open c"]


def test_the_probe_on_a_case_worked_out_by_hand() -> None:
    """Node 4 gets m0 at 100, which has 13 causes; keeps it for 5 until m2 comes at 130; then sends both, and
    another packet because the first is full. Node 5 gets both at 230, and delivers m2 first, at once."""
    probe = Bundles()
    node = VcubeAgg.group(8)[4]
    m2, m6 = (DependencyPacket(bytes(50), origin, 1, {}) for origin in (2, 6))
    m0 = DependencyPacket(bytes(50), 0, 1, dict.fromkeys(range(1, 14), 1))
    first, second = MessageId(2, 1), MessageId(0, 1)
    probe.send(2, first, 0, 0, 4, None)
    probe.send(0, second, 60 * MS, 0, 4 * 14, None)
    probe.receive(4, 0, second, 100 * MS)
    probe.receive(4, 6, first, 130 * MS)
    probe.transmit(node, (5,), Bundle([m2, m0]), 130 * MS)
    probe.transmit(node, (5,), Bundle([m6]), 130 * MS)
    probe.deliver(4, first, 130 * MS)
    probe.deliver(4, second, 130 * MS)
    probe.receive(5, 4, first, 230 * MS)
    probe.receive(5, 4, second, 230 * MS)
    probe.deliver(5, first, 230 * MS)
    probe.deliver(5, second, 250 * MS)
    probe.receive(5, 4, first, 260 * MS)  # once more, which nobody counts
    figures = probe.figures()
    expected = {
        "packets_of_to_1": 1, "packets_of_to_2": 1, "packets_of_to_3": 0, "packets_of_max": 2,
        "packets_sized": 2, "packets_cut": 1, "packet_bytes_max": 20 + 54 + 50 + 56,
        "packet_bytes_to_100": 1, "packet_bytes_to_200": 1, "packets_over_1400_bytes": 0,
        "sent_bytes": 180 + 74, "causes_to_0": 1, "causes_to_14": 1, "causes_over_12": 1, "causes_max": 13,
        "nodes_packing_to_2": 1, "nodes_packing_max": 2, "nodes_holding_to_50": 2, "nodes_holding_max": 1,
        "reception_mean_ns": (40 + 130 + 230 + 170) * MS / 4, "reception_max_ns": 230 * MS,
        "held_mean_ns": (30 + 20) * MS / 4, "reception_ns_sent_in_0": 180 * MS,
        "reception_ns_sent_in_1": 105 * MS, "pair_messages": 2,
    }  # fmt: skip
    assert {name: figures[name] for name in expected} == expected


def test_the_probe_measures_the_delay_by_aggregation() -> None:
    """As above, without the second packet: m0 was 30 late, m2 not at all."""
    probe = Bundles()
    node = VcubeAgg.group(8)[4]
    messages = [DependencyPacket(b"", 2, 1, {}), DependencyPacket(b"", 0, 1, {2: 1})]
    first, second = MessageId(2, 1), MessageId(0, 1)
    probe.send(2, first, 0, 0, 4, None)
    probe.send(0, second, 60 * MS, 0, 8, None)
    probe.receive(4, 0, second, 100 * MS)
    probe.receive(4, 6, first, 130 * MS)
    probe.transmit(node, (5,), Bundle(messages), 130 * MS)
    for message, time in ((first, 230), (second, 250)):
        probe.receive(5, 4, message, 230 * MS)
        probe.deliver(5, message, time * MS)
    figures = probe.figures()
    assert figures["pair_messages"] == 2
    assert figures["pair_reception_mean_ns"] == (230 + 170) * MS / 2
    assert figures["pair_held_mean_ns"] == 20 * MS / 2
    assert figures["pair_late_mean_ns"] == 30 * MS / 2


def test_the_probe_measures_nothing_before_the_warm_up() -> None:
    probe = Bundles(since=10)
    node = Vcube.group(2)[0]
    probe.send(0, MessageId(0, 1), 9, 0, 4, None)
    probe.transmit(node, (1,), DependencyPacket(b"", 0, 1, {}), 9)
    probe.receive(1, 0, MessageId(0, 1), 12)
    probe.deliver(1, MessageId(0, 1), 12)
    figures = probe.figures()
    assert (figures["packets_sized"], figures["causes_to_0"], figures["reception_max_ns"]) == (0, 0, 0)


def test_packets_are_cut_as_the_paper_counts() -> None:
    """54 bytes per message: 27 of them plus the header take 1478 bytes, 28 would take 1532."""
    node = VcubeAggPaperSizes.group(64)[0]
    messages = [DependencyPacket(bytes(50), origin, 1, {}) for origin in range(1, 31)]
    assert [len(part) for part in node._split(messages)] == [27, 3]
    assert [len(part) for part in VcubeAgg.group(64)[0]._split(messages)] != [27, 3]


def test_the_single_tree_variant_routes_through_node_0_and_back_through_the_source() -> None:
    members = VcubeAggSingleTree.group(8)
    (up,) = members[6].broadcast(b"x", 0).sends
    assert up.to == (0,)
    passed = {0: members[0].receive(6, up.packet, 0)}
    for parent, child in ((0, 4), (4, 6)):
        passed[child] = members[child].receive(parent, up.packet, 0)
    to = {peer: [send.to for send in effects.sends] for peer, effects in passed.items()}
    assert to == {0: [(1,), (2,), (4,)], 4: [(5,), (6,)], 6: [(7,)]}
    assert members[6].deliver(0) is None
    assert members[6].receive(4, up.packet, 0).sends == ()


def test_the_single_tree_variant_delivers_every_message_everywhere() -> None:
    runs = tiny().where(protocol=paper_runs.SINGLE, peers=16)
    for run in runs.finished:
        assert (run.metrics.deliveries, run.metrics.stuck) == (16 * 15, 0)
        assert 200 < run.metrics.packets <= 15 + 15 * 16
