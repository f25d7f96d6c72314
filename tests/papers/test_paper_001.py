"""Paper 001's worst case on short runs: immediate predecessors, counted twice."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from antecede.causality import MessageId
from antecede.papers import paper_001
from antecede.papers.paper import FinishedRun, Runs, Scale
from antecede.papers.paper_001 import each_once, figure_5, propositions, reached, run, serial
from antecede.papers.verdicts import interval
from antecede.sim.engines import simulate
from antecede.sim.scenario import Scenario, scenario

STUDY = paper_001.STUDY
PLAIN = STUDY.plainest


def done(*scenarios: Scenario) -> Runs:
    return Runs([FinishedRun(setting, simulate(setting).metrics) for setting in scenarios])


@pytest.fixture(scope="module")
def tiny() -> Runs:
    """Every point of the quick grid, few messages each, two seeds."""
    random = [setting for setting in STUDY.plain_grid("quick") if setting.workload == "poisson"]
    points = dict.fromkeys((setting.peers, paper_001.load_of(setting), setting.delay) for setting in random)
    runs = [run(size, load, 150, seed, delay) for size, load, delay in points for seed in (1, 2)]
    return done(*runs, figure_5(), serial())


@pytest.mark.parametrize("scale", ["quick", "full"])
def test_grids_have_every_run_once(scale: Scale) -> None:
    runs = STUDY.plain_grid(scale)
    assert len({setting.key() for setting in runs}) == len(runs)
    random = [setting for setting in runs if setting.workload == "poisson"]
    assert {paper_001.load_of(setting) for setting in random} == set(paper_001.LOADS)
    assert {setting.peers for setting in random} == set(paper_001.SIZES)


class Histories:
    """Everything that happened before each message, and from it the immediate predecessors."""

    def __init__(self, peers: int) -> None:
        self._past: list[set[MessageId]] = [set() for _ in range(peers)]
        self.before: dict[MessageId, frozenset[MessageId]] = {}

    def send(self, process: int, message: MessageId, *_: object) -> None:
        self.before[message] = frozenset(self._past[process])
        self._past[process].add(message)

    def receive(self, *_: object) -> None:
        pass

    def deliver(self, process: int, message: MessageId, time: int) -> None:
        self._past[process] |= self.before[message] | {message}

    def immediate(self) -> list[tuple[MessageId, set[MessageId]]]:
        """By the definition: the causes with nothing between."""
        return [
            (message, {one for one in past if not any(one in self.before[other] for other in past)})
            for message, past in self.before.items()
        ]


@pytest.mark.parametrize("load", [0.2, 1.0, 3.0])
@pytest.mark.parametrize("delay", [paper_001.DELAY, paper_001.VARIED])
def test_the_probe_counts_immediate_predecessors_as_defined(load: float, delay: str) -> None:
    setting = scenario(
        protocol="mbcp", peers=3, workload="poisson", rate=100 * load, delay=delay, seconds=0.5 / load,
        probes=("immediate",),
    )  # fmt: skip
    histories = Histories(3)
    figures = simulate(setting, [histories]).metrics.measured
    predecessors = histories.immediate()
    counts = [len(causes) for _, causes in predecessors]
    named = [sum(one.origin != message.origin for one in causes) for message, causes in predecessors]
    assert figures["immediate_mean"] == sum(counts) / len(counts)
    assert figures["immediate_most"] == max(counts)
    assert figures["named_mean"] == sum(named) / len(named)
    assert figures["worst_share"] == _share(counts, 3)
    assert figures["named_all_share"] == _share(named, 2)


def _share(counts: Sequence[int], wanted: int) -> float:
    return sum(count == wanted for count in counts) / len(counts)


def test_the_papers_example_is_always_the_worst_case() -> None:
    assert done(figure_5()).values("worst_share") == [1.0]


def test_serial_messages_are_always_the_best_case() -> None:
    runs = done(serial())
    assert runs.values("immediate_mean") == runs.values("immediate_most") == [1.0]
    assert runs.values("worst_share") == [0.0]


def test_two_random_senders_reach_the_worst_case_half_the_time() -> None:
    """Under a high load the worst case is that the other sent since: one time in two."""
    _, low, high = interval(done(*(run(2, 8.0, 600, seed) for seed in range(1, 6))).values("worst_share"))
    assert low <= 0.5 <= high
    assert high - low < 0.15


def test_the_load_decides_and_not_the_rate() -> None:
    slow, fast = (
        scenario(
            protocol="mbcp", peers=3, workload="poisson", rate=rate, delay=delay, seconds=seconds,
            probes=("immediate",),
        )
        for rate, delay, seconds in ((10, "100ms", 30), (1000, "1ms", 0.3))
    )  # fmt: skip
    shares = [simulate(setting).metrics.measured["worst_share"] for setting in (slow, fast)]
    assert shares[0] == pytest.approx(shares[1], abs=0.01)


def test_there_is_a_row_for_every_claim(tiny: Runs) -> None:
    rows = paper_001.score(tiny, PLAIN)
    assert [row.quantity for row in rows] == [row.quantity for row in paper_001.score(Runs([]), PLAIN)]
    assert len({row.quantity for row in rows}) == len(rows) == 7 + 5
    assert {row.paper for row in rows} == {"001"}
    assert all(row.verdict != "pending" and row.runs for row in rows)
    empty = paper_001.score(Runs([]), PLAIN)
    assert all(row.verdict == "pending" and row.measured is None for row in empty[:7])
    assert empty[7:] == rows[7:] == propositions.proposition_rows()
    assert all(row.verdict == "holds" for row in rows if "|CI|" in row.quantity)
    assert rows[0].published == 0.0497


def test_the_worst_case_is_likelier_under_load_and_rarer_in_larger_groups(tiny: Runs) -> None:
    of_load, of_size, _ = paper_001.figures(tiny, PLAIN)
    line = dict(of_load.lines["n = 3"])
    assert line[0.1] < line[0.5] < line[1.0] < line[4.0]
    assert all(line[load] <= named for load, named in of_load.lines["n = 3, all others named"])
    sizes = dict(of_size.lines["n predecessors"])
    assert sizes[2] > sizes[3] > sizes[5] > sizes[10]
    assert of_size.published == {"n predecessors": [(3.0, 0.0497)]}
    of_load, of_size, _ = paper_001.figures(tiny, PLAIN | {"worst case": "named"})
    assert list(of_load.published) == ["n = 3, all others named"]
    assert of_size.published == {"n − 1 named": [(3.0, 0.0497)]}
    assert all(not any(figure.lines.values()) for figure in paper_001.figures(Runs([]), PLAIN))


def test_where_a_line_reaches_a_value() -> None:
    line = [(1.0, 0.0), (2.0, 4.0), (3.0, 4.0), (4.0, 2.0)]
    assert (reached(line, 1.0), reached(line, 3.0), reached(line[1:], 3.0)) == (1.25, 1.75, 3.5)
    assert reached(line, 5.0) is None
    assert reached([], 1.0) is None


def test_each_once_probability_follows_poisson_for_one_and_bernoulli_for_all() -> None:
    assert f"{each_once(3):.4f}" == "0.0498"
    assert each_once(3, 0.5) < each_once(3) > each_once(3, 2.0)


def test_the_propositions_hold_and_table_1_as_printed_is_not_minimal() -> None:
    verdicts = {row.quantity: row.verdict for row in propositions.proposition_rows()}
    (printed,) = (quantity for quantity in verdicts if "Table 1" in quantity)
    assert verdicts.pop(printed) == "fails"
    assert set(verdicts.values()) == {"holds"}


def test_a_proposition_can_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """If nothing between two messages mattered, too little would be respected."""
    monkeypatch.setattr(propositions.SmallExecution, "immediate", lambda *_: False)
    premises, found, first = propositions.counterexamples.__wrapped__(((0, 1, 2),))
    assert 0 < found < premises
    assert "delivered" in first
