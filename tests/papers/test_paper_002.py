"""Paper 002's experiment on few nodes: what is scored, against what can be worked out by hand."""

from __future__ import annotations

import math

import msgspec
import pytest

from antecede.causality import MessageId
from antecede.overlay.hypercube import hypercube
from antecede.papers import paper_002
from antecede.papers.paper import FinishedRun, Runs, Scale
from antecede.papers.paper_002 import open_question, overlays, scores
from antecede.papers.paper_002 import runs as paper_runs
from antecede.papers.scoreboard import ScoreRow
from antecede.papers.verdicts import Holds
from antecede.protocols.timestamp import Timestamp
from antecede.sim.engines import simulate
from antecede.sim.network import RoutedModel
from antecede.sim.probes import HoldBackQueues
from antecede.sim.scenario import Scenario

STUDY = paper_002.STUDY
PLAIN = STUDY.plainest

SIZES: dict[Scale, list[int]] = {"quick": [8, 16], "full": [8, 16]}
PER_SIZE = len(paper_runs.PROTOCOLS) * len(paper_runs.DATA)
"""Runs of one topology; at the largest size one more of each protocol."""


def done(scenarios: list[Scenario]) -> Runs:
    return Runs([FinishedRun(setting, simulate(setting).metrics) for setting in scenarios])


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few nodes and rounds, as if the paper had them."""
    monkeypatch.setattr(paper_runs, "SIZES", SIZES)
    monkeypatch.setattr(paper_runs, "ROUNDS", 3)


@pytest.fixture(scope="module")
def tiny() -> Runs:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(paper_runs, "SIZES", SIZES)
        patch.setattr(paper_runs, "ROUNDS", 3)
        return done(STUDY.plain_grid("quick"))


def row(rows: list[ScoreRow], start: str) -> ScoreRow:
    (row,) = (each for each in rows if each.quantity.startswith(start))
    return row


@pytest.mark.parametrize("scale", ["quick", "full"])
def test_grids_have_every_run_once(scale: Scale) -> None:
    runs = [*STUDY.plain_grid(scale), *open_question.open_grid(scale)]
    assert len({setting.key() for setting in runs}) == len(runs)
    main = STUDY.plain_grid(scale)
    assert {setting.payload for setting in main} == {0, 100, 1000}
    assert {setting.peers for setting in main} == {
        size for size in paper_runs.SIZES[scale] if size <= paper_runs.LARGEST
    }
    assert {(setting.senders, setting.burst, setting.count) for setting in main} == {(10, 10, "paper")}
    assert {round(setting.seconds * setting.rate) for setting in main if setting.rate == 1000} == {10}
    assert len(main) == len({setting.peers for setting in main}) * PER_SIZE * len(STUDY.seeds(scale).judging)


def test_every_run_sends_as_many_messages_as_the_paper(tiny: Runs) -> None:
    assert len(tiny) == len(SIZES["quick"]) * PER_SIZE * 3
    for run in tiny.finished:
        setting, metrics = run.scenario, run.metrics
        assert metrics.messages == (setting.senders or 0) * 10 * 3
        assert (metrics.deliveries, metrics.stuck) == (metrics.messages * (setting.peers - 1), 0)


def test_bytes_and_messages_are_as_calculated(tiny: Runs) -> None:
    """16 nodes have 4 neighbours each: 64 ways, and 15 nodes do not send back, so 49 copies of 36 bytes and
    the data; 15 copies of 32 + 64 bytes and the data."""
    for data in paper_runs.DATA:
        overlay, tree, each = (
            paper_runs.select(tiny, name, data).where(peers=16).finished[0].metrics
            for name in paper_runs.PROTOCOLS
        )
        assert overlay.measured["fragments"] == overlay.messages * 49
        assert overlay.measured["sent_bytes"] == overlay.messages * 49 * (36 + data)
        for metrics in (tree, each):
            assert metrics.measured["sent_bytes"] == metrics.messages * 15 * (96 + data)
        assert tree.measured["hops"] == tree.messages * 15
        assert each.measured["hops"] > tree.measured["hops"]


@pytest.mark.usefixtures("small")
def test_every_number_and_claim_is_scored_where_it_was_run_and_pending_where_not(tiny: Runs) -> None:
    rows, empty = (
        scores.score(tiny, PLAIN),
        scores.score(Runs([]), PLAIN),
    )
    assert [each.quantity for each in rows] == [each.quantity for each in empty]
    assert len({each.quantity for each in rows}) == len(rows)
    assert [each.quantity for each in rows if each.verdict == "pending"] == []
    assert all(each.why for each in rows if each.verdict in ("differs", "fails"))
    assert all(each.measured for each in rows)
    about_shape = overlays.shape_rows() + overlays.order_rows()
    assert [each for each in empty if each.verdict != "pending"] == about_shape
    lone = scores.score(tiny.where(peers=16), PLAIN)
    grows = [each.quantity for each in lone if each.verdict == "pending"]
    assert grows
    assert all("with n" in what or "O(" in what or "n = 8" in what for what in grows)


def test_larger_sizes_are_pending() -> None:
    rows = scores.score(Runs([]), PLAIN)
    for size in (100, 600):
        assert row(rows, f"Overlay sends a message log n times as often as Timestamp, n = {size}").runs == 0


def crossover(size: int) -> float:
    """The data size at which both send the same bytes, if no packet exceeds the MTU: (n − 1)(32 + 4n + d) for
    Timestamp, and for Overlay 36 + d over every link in both directions, except back where it came from."""
    copies = sum(map(len, hypercube(size))) - (size - 1)
    entries = (size - 1) * (paper_runs.HEADER + paper_runs.NUMBER * size)
    return (entries - copies * (paper_runs.HEADER + paper_runs.NUMBER)) / (copies - (size - 1))


@pytest.mark.usefixtures("small")
def test_the_crossover_follows_the_header(tiny: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    """8 nodes: 17 copies of 36 + d against 7 of 64 + d, so d = (448 - 612) / 10. Without a header, 17 of
    4 + d against 7 of 32 + d, so d = (224 - 68) / 10."""
    what = "Overlay needs fewer bytes while d is less than n/(log n − 1), n = 8"
    fewer = "Overlay sends fewer bytes at 0 bytes"
    with_header = scores.score(tiny, PLAIN)
    assert row(with_header, what).measured == pytest.approx(-16.4)
    assert row(with_header, what).published == 4
    assert row(with_header, fewer).verdict == "fails"
    assert crossover(8) == pytest.approx(-16.4)
    # All that a copy carries but the timestamp, in its entries: a header of 32, a number of 4 and the data.
    by_copy = scores.score(tiny, {**PLAIN, "d": "copy"})
    assert row(by_copy, what).measured == pytest.approx((36 - 16.4) / 4)
    for part in (paper_runs, scores):
        monkeypatch.setattr(part, "HEADER", 0)
    without = scores.score(done(STUDY.plain_grid("quick")), PLAIN)
    assert row(without, what).measured == pytest.approx(15.6)
    assert row(without, fewer).verdict == "holds"
    assert crossover(8) == pytest.approx(15.6)


def test_a_message_in_two_fragments_is_one_message() -> None:
    """A timestamp of 368 entries takes two fragments of 1500 bytes."""
    (setting,) = (
        each
        for each in STUDY.grid("full", PLAIN, [1])
        if (each.protocol, each.peers, each.payload) == ("timestamp", 400, 0)
        and isinstance(each.network, RoutedModel)
        and each.network.multicast
    )
    runs = done([msgspec.structs.replace(setting, peers=368, most_messages=2)])
    for counted, sent in (("fragments", 734), ("messages", 367)):
        means = paper_runs.MeanFigures(runs, {**PLAIN, "counted": counted})
        assert means.copies("Timestamp", 368) == [sent]


def test_crossovers_at_the_papers_sizes() -> None:
    assert [round(crossover(size)) for size in (100, 200, 300, 600)] == [40, 93, 141, 274]
    assert crossover(213) < 100 < crossover(220)


@pytest.mark.usefixtures("small")
def test_latency_grows_with_data_size_as_the_rows_state(tiny: Runs) -> None:
    rows = scores.score(tiny, PLAIN)
    delays = [
        paper_runs.select(tiny, "Overlay", data).where(peers=16).values("latency_mean_ns")[0]
        for data in paper_runs.DATA
    ]
    assert delays == sorted(delays)
    said = row(rows, "Overlay is more influenced by data size than Timestamp, mean")
    assert f"×{delays[2] / delays[0]:.3g} against" in str(said.measured)
    assert row(rows, "Timestamp is faster at 1000 bytes, mean").verdict != "fails"


@pytest.mark.usefixtures("small")
def test_figures_have_a_line_for_every_protocol(tiny: Runs) -> None:
    *drawn, wire = paper_002.figures(tiny, PLAIN)
    assert wire.number == "bytes"
    assert {int(figure.number.rstrip("ab")) for figure in drawn} == set(range(3, 18))
    for figure in drawn:
        assert list(figure.lines) == ["Overlay", "Timestamp, tree (judged)", "Timestamp, unicast"]
        assert all([x for x, _ in line] == [8, 16] for line in figure.lines.values())
    assert not any(y for x, y in next(f for f in drawn if f.number == "12b").lines["Overlay"])
    *by_unicasts, _ = paper_002.figures(tiny, PLAIN | {"Timestamp": "unicasts"})
    assert list(by_unicasts[0].lines) == ["Overlay", "Timestamp, tree", "Timestamp, unicast (judged)"]


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ({100: True, 200: True, 300: False}, "holds at 2 of 3 sizes, not at n = 300"),
        ({100: "unlikely", 200: False}, "holds at none of 2 sizes, undecided at n = 100"),
        ({100: False}, ""),
    ],
)
def test_rows_state_the_sizes_at_which_a_claim_fails(parts: dict[int, Holds], said: str) -> None:
    assert scores.at_sizes(parts) == said


def test_hold_back_queues_are_averaged_over_time() -> None:
    """Two members for 10 ns. At member 1 the second of member 0's messages waits from 2 to 6, the third,
    which comes at 5, until 6: 5 ns of waiting. Its own message comes back and does not wait, nor do
    copies."""
    probe = HoldBackQueues()
    member = Timestamp.group(2)[0]
    probe.transmit(member, (1,), member.stamp(1, b""), 0)
    one, two, three = (MessageId(0, seq) for seq in (1, 2, 3))
    probe.receive(1, 0, two, 2)
    probe.receive(1, 0, MessageId(1, 1), 3)
    probe.receive(1, 0, three, 5)
    probe.receive(1, 0, one, 6)
    for message in (one, two, three):
        probe.deliver(1, message, 6)
    probe.receive(1, 0, two, 7)
    probe.receive(0, 1, MessageId(1, 1), 10)
    probe.deliver(0, MessageId(1, 1), 10)
    assert probe.figures() == {"delivery_queue_mean": 5 / 20, "delivery_queue_most": 2}


def test_messages_held_since_before_the_warm_up_count_from_its_end() -> None:
    probe = HoldBackQueues(since=4)
    probe.receive(1, 0, MessageId(0, 2), 1)
    probe.receive(1, 0, MessageId(0, 1), 6)
    probe.deliver(1, MessageId(0, 1), 6)
    assert probe.figures() == {"delivery_queue_mean": 1.0, "delivery_queue_most": 1}


def test_queue_lengths_agree_with_the_metrics(tiny: Runs) -> None:
    waited = 0
    for run in tiny.where(rate=paper_runs.RATE).finished:
        metrics, peers = run.metrics, run.scenario.peers
        expected = metrics.held * metrics.hold_mean_ns / (peers * metrics.simulated_ns)
        assert metrics.measured["delivery_queue_mean"] == pytest.approx(expected)
        assert (metrics.measured["delivery_queue_most"] > 0) is (metrics.held > 0)
        waited += metrics.held
    assert waited > 0


def test_hypercubes_tolerate_one_failure_less_than_the_paper_says() -> None:
    assert [overlays.endured(size) for size in (4, 8, 16)] == [1, 2, 3]
    assert overlays.survives(8, 2)
    assert not overlays.survives(8, 3)
    assert [overlays.diameter(size) for size in (8, 64)] == [3, 6]
    rows = overlays.shape_rows()
    assert row(rows, "a hypercube overcomes log n failures").verdict == "fails"


def test_printed_flooding_and_changing_links_break_causal_order() -> None:
    late, lost = overlays.broken("antecede.papers.paper_002.flooding_variants:FloodingThatDeliversFirst")
    assert late > 0
    assert lost == 0
    assert (
        overlays.broken("flooding")
        == overlays.broken("antecede.papers.paper_002.flooding_variants:FloodingThatCounts")
        == (0, 0)
    )
    assert overlays.broken("flooding", fifo=False)[0] > 0
    assert (
        overlays.broken("antecede.papers.paper_002.flooding_variants:FloodingThatCounts", fifo=False)[1] > 0
    )
    assert (
        overlays.broken("antecede.papers.paper_002.flooding_variants:FloodingWithMovingLinks", churn=50.0)[0]
        > 0
    )
    assert overlays.broken("pc", churn=50.0) == (0, 0)


def test_changing_links_are_scored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_question, "OPEN_SIZES", {"quick": [8], "full": [8]})
    runs = done(open_question.open_grid("quick"))
    rows = open_question.open_score(runs)
    assert {each.verdict for each in rows} == {"holds"}
    assert {each.verdict for each in open_question.open_score(Runs([]))} == {"holds", "pending"}
    packets = row(rows, "packets per delivery")
    # 8 nodes have 3 neighbours each: 24 ways less 7 that go not back, for 7 deliveries.
    assert str(packets.measured).startswith(f"flooding {17 / 7:.3g}; pc {17 / 7:.3g} with 0, ")
    for figure in open_question.open_figures(runs):
        assert [x for x, _ in figure.lines["pc, 8 nodes"]] == [0, 20, 100]
        assert figure.lines["flooding, 8 nodes"][0] == figure.lines["pc, 8 nodes"][0]


def test_where_a_polyline_crosses_zero() -> None:
    assert scores.crossing([(0, -10), (100, -5), (1000, 4)]) == pytest.approx(600)
    assert scores.crossing([(0, -10), (100, -5)]) == pytest.approx(200)
    assert math.isnan(scores._ratio([]))
