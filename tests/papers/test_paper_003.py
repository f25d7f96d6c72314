"""Paper 003's experiment on few windows: what a gateway names, against what can be worked out by hand."""

from __future__ import annotations

from statistics import fmean

import msgspec
import pytest

from antecede.papers import paper_003
from antecede.papers.paper import FinishedRun, Runs, Scale
from antecede.papers.paper_003 import runs as paper_runs
from antecede.papers.paper_003 import scores, theorems
from antecede.papers.paper_003.runs import closed_form, closed_form_basic, run
from antecede.papers.verdicts import interval
from antecede.sim.engines import simulate
from antecede.sim.scenario import Scenario, scenario
from antecede.sim.workload import OncePerWindow

STUDY = paper_003.STUDY
PLAIN = STUDY.plainest

SHARE = "p1_after_p2"


def done(*scenarios: Scenario) -> Runs:
    return Runs([FinishedRun(setting, simulate(setting).metrics) for setting in scenarios])


def share(protocol: str, lam: int, delay: int, windows: int = 300) -> float:
    return done(run(protocol, lam, delay, windows, seed=1)).values(SHARE)[0]


@pytest.fixture(scope="module")
def tiny() -> Runs:
    """Every point of the quick grid, few windows each, two seeds."""
    points = dict.fromkeys(
        (
            setting.protocol,
            round(paper_runs.window_of(setting)),
            round(paper_runs.delay_of(setting)),
            setting.silent == (2,),
        )
        for setting in STUDY.plain_grid("quick")
    )
    return done(
        *(
            run(protocol, lam, delay, 40, seed, own=own)
            for protocol, lam, delay, own in points
            for seed in (1, 2)
        )
    )


def test_every_peer_sends_once_in_every_window() -> None:
    load = OncePerWindow(seed=3, interval=1000, spread=100)
    times = [[load.next_send(peer, number, 0) for number in range(200)] for peer in (0, 1)]
    assert all(0 <= time - 1000 * number <= 100 for sent in times for number, time in enumerate(sent))
    assert times[0] != times[1]
    late = [time % 1000 for time in times[0]]
    assert min(late) < 10
    assert max(late) > 90
    assert fmean(late) == pytest.approx(50, abs=7)
    setting = scenario(protocol="mbcp", peers=2, workload="windows", rate=10, jitter=0.1, seconds=1)
    assert simulate(setting).metrics.messages == 20


@pytest.mark.parametrize("scale", ["quick", "full"])
def test_grids_have_every_run_once(scale: Scale) -> None:
    runs = STUDY.plain_grid(scale)
    assert len({setting.key() for setting in runs}) == len(runs)
    assert {paper_runs.window_of(setting) for setting in runs} == set(paper_runs.LAMBDAS)
    assert {paper_runs.delay_of(setting) for setting in runs} == set(paper_runs.FIGURE_8_DELAYS[scale])
    assert {setting.protocol for setting in runs} == {"hcg", "basic"}


def test_windows_do_not_overlap() -> None:
    """A window is over, forwarded and delivered, before the next begins."""
    for setting in STUDY.plain_grid("full"):
        assert 1e6 / setting.rate > paper_runs.window_of(setting) + 2 * paper_runs.delay_of(setting) + 1


def test_shares_agree_with_the_closed_form() -> None:
    point = (10_000, 1000)
    for protocol, expected in (("hcg", closed_form(*point)), ("basic", closed_form_basic(*point))):
        values = done(*(run(protocol, *point, 200, seed) for seed in range(1, 9))).values(SHARE)
        _, low, high = interval(values)
        assert low <= expected <= high
        assert high - low < 0.1


def test_each_pair_is_ordered_as_the_rules_say() -> None:
    """Window by window, from the times alone: HCG if b is later by more than δl, B if a is there by then."""
    lam, delay, windows = 3000, 1000, 300
    setting = run("hcg", lam, delay, windows, seed=5)
    load = setting.build_workload()
    later = [load.next_send(1, window, 0) - load.next_send(2, window, 0) for window in range(windows)]
    expected = {
        "hcg": sum(gap > 1000 * delay for gap in later),
        "basic": sum(gap >= -1000 * delay - 1 for gap in later),
    }
    for protocol, count in expected.items():
        run_here = done(msgspec.structs.replace(setting, protocol=protocol))
        assert run_here.values(SHARE) == [count / windows]
        assert run_here.finished[0].metrics.stuck == 0


def test_a_longer_delay_leaves_hcg_less_to_order_and_basic_more() -> None:
    hcg = [share("hcg", 10_000, delay) for delay in (100, 1000, 3000)]
    basic = [share("basic", 10_000, delay) for delay in (100, 1000, 3000)]
    assert hcg[0] > hcg[1] > hcg[2] > 0
    assert basic[0] < basic[1] < basic[2] < 1


def test_pairs_within_the_delay_are_never_ordered_by_hcg_and_always_by_basic() -> None:
    assert share("hcg", 100, 1000, 50) == 0
    assert share("basic", 100, 1000, 50) == 1


def test_there_is_a_row_for_every_claim(tiny: Runs) -> None:
    rows = scores.score(tiny, PLAIN)
    assert [row.quantity for row in rows] == [row.quantity for row in scores.score(Runs([]), PLAIN)]
    assert len({row.quantity for row in rows}) == len(rows) == 9 + 4
    assert {row.paper for row in rows} == {"003"}
    assert all(row.verdict != "pending" and row.runs for row in rows)
    empty = scores.score(Runs([]), PLAIN)
    assert all(row.verdict == "pending" and row.measured is None for row in empty[:9])
    assert empty[9:] == rows[9:] == theorems.theorem_rows()
    verdicts = [row.verdict for row in theorems.theorem_rows()]
    assert verdicts == ["holds", "fails", "holds", "fails"]  # docs/protocols/hcg.md has the counterexamples
    by_name = {row.quantity: row for row in rows}
    assert by_name["HCG: a precedes b only if b.LT − a.LT > δj"].verdict == "holds"
    assert (
        by_name["B: a precedes b if b reaches the gateway after a, even if b was sent first"].verdict
        == "holds"
    )


def test_rows_have_the_values_of_their_runs(tiny: Runs) -> None:
    here = tiny.where(
        lambda setting: (paper_runs.window_of(setting), paper_runs.delay_of(setting)) == (30_000, 1000),
        silent=(0,),
    )
    hcg, basic = (here.where(protocol=protocol).values(SHARE) for protocol in ("hcg", "basic"))
    ratio = fmean(100 * one / other for one, other in zip(hcg, basic, strict=True))
    for reading, expected in (
        ("share", 100 * fmean(hcg)), ("HCG over B", ratio), ("saved of B", 100 - ratio),
    ):  # fmt: skip
        rows = {row.quantity: row for row in scores.score(tiny, PLAIN | {"ratio": reading})}
        measured = rows["Figure 7: at λ = 30,000 µs, δl = 1,000 µs, %"].measured
        assert measured == pytest.approx(expected)


def test_figures_show_the_closed_form_next_to_measurements(tiny: Runs) -> None:
    drawn = {figure.number: figure for figure in STUDY.figures(tiny, PLAIN)}
    assert list(drawn) == ["7", "7, second reading", "8", "8, second reading"]
    for figure in drawn.values():
        assert set(figure.published) <= set(figure.lines)
        assert all(figure.lines.values())
    eight = drawn["8"]
    assert dict(eight.lines["HCG, closed form"])[1000] == pytest.approx(46.72, abs=0.01)
    assert [x for x, _ in eight.lines["HCG"]] == list(paper_runs.FIGURE_8_DELAYS["quick"])
    assert all(not any(figure.lines.values()) for figure in STUDY.figures(Runs([]), PLAIN))
