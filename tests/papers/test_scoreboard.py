"""The scoreboard's rules, and paper 000's rows from small real runs."""

from __future__ import annotations

import math

import msgspec
import pytest

from antecede.papers import contest, paper_000
from antecede.papers.paper import FinishedRun, Runs, wire_figure
from antecede.papers.paper_000 import runs as paper_runs
from antecede.papers.paper_000.home_numbers import home_intervals
from antecede.papers.paper_000.scores import is_linear, within
from antecede.papers.readings import Agreement, ChosenReading, Seeds
from antecede.papers.scoreboard import ScoreRow, claim, number, slope, smallest
from antecede.papers.scoreboard_page import Reproduction, cells, markdown, tally
from antecede.papers.verdicts import Holds, all_hold, flat_scale, interval, is_less, judge_number, opposite
from antecede.sim.engines import simulate

STUDY = paper_000.STUDY
PLAIN = STUDY.plainest
_ANSWERS: tuple[Holds, ...] = (True, False, "likely", "unlikely", None)


@pytest.mark.parametrize(
    ("published", "low", "high", "verdict"),
    [
        (100, 90, 110, "matches"),  # both borders of ±10 %
        (100, 89.9, 110, "close"),  # 20.1 wide
        (100, 90, 110.1, "close"),
        (100, 85, 104.9, "matches"),  # contains it and is narrower than 20 %
        (100, 85, 105, "close"),
        (100, 100, 119.9, "matches"),
        (100, 101, 111, "close"),  # narrow, but does not contain it
        (100, 75, 125, "close"),  # both borders of ±25 %
        (100, 74.9, 125, "undecided"),
        (100, 75, 125.1, "undecided"),
        (100, 120, 130, "undecided"),  # across the border
        (100, 125, 130, "undecided"),
        (100, 125.1, 130, "differs"),
        (100, 50, 74.9, "differs"),
        (100, -300, 500, "undecided"),  # contains it, but is too wide to decide
        (5, 26.2 - 85.5, 26.2 + 85.5, "undecided"),  # matched once, because the interval contains 5
        (-100, -110, -90, "matches"),
        (-100, -124, -80, "close"),
        (-100, 90, 110, "differs"),
        (0.0612, -0.0013, -0.0004, "differs"),
        (0, 0, 0, "matches"),
        (0, -0.1, 0.2, "undecided"),
        (0, 0.1, 0.2, "differs"),
        (1, -math.inf, math.inf, "undecided"),
    ],
)
def test_a_number_is_judged_by_its_interval(published: float, low: float, high: float, verdict: str) -> None:
    assert judge_number(published, low, high) == verdict


def test_wider_intervals_never_improve_a_verdict() -> None:
    """Wider intervals around one mean: the verdict of a number only becomes worse."""
    order = ("matches", "close", "undecided")
    widths = [0.1 * step for step in range(1, 1000)]
    places = [order.index(judge_number(100, 103 - width, 103 + width)) for width in widths]
    assert places == sorted(places)
    assert set(places) == {0, 1, 2}
    assert {judge_number(100, 140 - width, 140 + width) for width in widths} == {"differs", "undecided"}


@pytest.mark.parametrize(
    ("published", "low", "high", "verdict"),
    [
        # Lines of 100 bytes over 400 peers: flat below 0.025 a peer, so ±0.0025 and ±0.00625.
        (0.002, -0.0005, 0.0045, "matches"),
        (0.002, -0.0006, 0.0045, "close"),  # wider than 20 % of 0.025
        (0.002, 0.00, 0.0046, "matches"),  # contains it and is narrower
        (0.002, -0.00425, 0.00825, "close"),
        (0.002, -0.0043, 0.00825, "undecided"),
        (0.002, 0.0083, 0.0100, "differs"),
        (0.002, 0.040, 0.046, "differs"),  # 17 % of the quantity is no flat line
        (-0.037, -0.0166, -0.0162, "differs"),  # steeper than a flat line: as any number
        (-0.037, -0.0407, -0.0333, "matches"),
        (0.463, 0.90, 1.00, "differs"),
        (0.0, -0.0025, 0.0025, "matches"),
        (0.0, 0.0063, 0.0070, "differs"),
        (0.002, -0.5, 0.5, "undecided"),  # noise never helps
    ],
)
def test_slopes_of_flat_lines_are_compared_on_the_scale_of_their_quantity(
    published: float, low: float, high: float, verdict: str
) -> None:
    scale = flat_scale([(100, 90.0), (500, 110.0)])
    assert scale == pytest.approx(0.025)
    assert judge_number(published, low, high, scale) == verdict


def test_the_scale_of_flat_lines_does_not_loosen_others() -> None:
    for published, low, high in ((1.0, 0.9, 1.1), (1.0, 0.89, 1.1), (1.0, 0.7, 0.8), (1.0, 1.3, 1.4)):
        assert judge_number(published, low, high, 0.99) == judge_number(published, low, high)
    row = number("p", "q", 0.002, [0.003, 0.003, 0.003], "why", 0.025)
    assert (row.verdict, row.why) == ("matches", "")
    assert Agreement.of([row]) == Agreement(1, 1, 1)
    assert Agreement.of([number("p", "q", 0.002, [0.003, 0.003])]) == Agreement(0, 0, 1)


def test_one_run_decides_nothing() -> None:
    row = number("p", "q", 10.0, [10.0])
    assert (row.verdict, row.measured, row.low, row.high) == ("undecided", 10.0, None, None)
    assert number("p", "q", 10.0, [10.0, 10.0]).verdict == "matches"


def test_only_disagreeing_rows_show_a_reason() -> None:
    assert number("p", "q", 10.0, [10.0, 10.0], "because").why == ""
    assert number("p", "q", 10.0, [30.0, 30.0], "because").why == "because"
    pending = number("p", "q", 10.0, [])
    assert (pending.verdict, pending.measured, pending.runs, pending.ratio) == ("pending", None, 0, None)
    assert claim("p", "says", True, "shown", 3, "because").why == ""
    assert claim("p", "says", False, "shown", 3, "because").why == "because"
    assert claim("p", "says", None, "shown", 0).measured is None


def test_a_claim_holds_or_fails() -> None:
    verdicts = [claim("p", "says", holds, "", 3).verdict for holds in _ANSWERS]
    assert verdicts == ["holds", "fails", "undecided", "undecided", "pending"]


def test_a_failing_claim_names_the_smallest_run_that_shows_it() -> None:
    assert smallest("MbcpAsPrinted") == (
        "the smallest run has 3 messages and 11 steps: ./dev python docs/protocols/errata.py MbcpAsPrinted"
    )


def test_an_order_that_may_be_chance_is_not_confirmed() -> None:
    assert is_less([1.0, 2.0, 9.0], [1.1, 2.1, 9.1]) is True  # by pairs, not by means
    assert is_less([1.1, 2.1, 9.1], [1.0, 2.0, 9.0]) is False
    assert is_less([1.0, 2.0, 9.0], [9.0, 1.0, 3.0]) == "likely"
    assert is_less([9.0, 1.0, 3.0], [1.0, 2.0, 9.0]) == "unlikely"
    assert is_less([1.0], [2.0]) == "likely"
    assert is_less([1.0, 2.0], [2.0, 1.0]) == "unlikely"
    assert is_less([1.0, 1.0], [1.0, 1.0]) is False
    assert is_less([], []) is None
    assert all_hold([True, None]) is True
    assert all_hold([True, "likely"]) == "likely"
    assert all_hold([True, "likely", "unlikely"]) == "unlikely"
    assert all_hold([True, "likely", "unlikely", False]) is False
    assert all_hold([None]) is None


def test_slopes_differ_by_less_than_a_share_if_all_pairs_do() -> None:
    assert within([[100.0, 100.0], [104.9, 104.9]], 0.05) is True
    assert within([[104.9, 104.9], [100.0, 100.0]], 0.05) is True
    assert within([[100.0, 100.0], [105.0, 105.0]], 0.05) is False
    assert within([[100.0, 100.0], [102.0, 102.0], [106.0, 106.0]], 0.05) is False
    assert within([[90.0, 110.0], [110.0, 91.0]], 0.05) == "likely"  # means are near, runs are not
    assert within([[100.0], [101.0]], 0.05) == "likely"  # one run decides nothing
    assert within([[90.0, 110.0], [130.0, 90.0]], 0.05) == "unlikely"


def test_the_linear_part_is_reached_where_a_line_rises_as_before_and_slowly() -> None:
    usual = [4.0, 4.0]
    assert is_linear([1.0, 1.0], [1.0, 1.0], usual) is True
    assert is_linear([1.0, 1.0], [0.5, 0.5], usual) is False  # it still bends
    assert is_linear([3.9, 3.9], [3.9, 3.9], usual) is False  # it does not bend yet
    assert is_linear([1.0, 1.0], [1.0, 1.0], [2.0, 2.0]) is False
    assert is_linear([0.5, 1.5], [1.5, 0.6], usual) == "likely"
    assert is_linear([], [], usual) is None
    assert [opposite(each) for each in _ANSWERS] == [False, True, "unlikely", "likely", None]


def test_confidence_intervals_follow_student_s_t() -> None:
    mean, low, high = interval([1.0, 2.0, 3.0, 4.0])
    assert mean == 2.5
    assert high - mean == pytest.approx(3.182 * 1.2909944487 / 2)
    assert mean - low == pytest.approx(high - mean)
    wide = interval([float(n) for n in range(100)])
    assert wide[2] - wide[0] == pytest.approx(1.96 * 29.011491975882016 / 10)


def test_the_slope_of_least_squares() -> None:
    assert slope([(1, 2.0), (2, 4.1), (3, 5.9)]) == pytest.approx(1.95)


def small(**changes: object) -> Runs:
    runs = [
        paper_runs.run(protocol, peers, delay, seed, "quick")
        for protocol in paper_runs.PROTOCOLS
        for peers in (4, 8)
        for delay in paper_runs.DELAYS
        for seed in (1, 2)
    ]
    setting = [msgspec.structs.replace(run, seconds=run.warmup + 0.4, **changes) for run in runs]
    return Runs([FinishedRun(run, simulate(run).metrics) for run in setting])


@pytest.fixture(scope="module")
def runs() -> Runs:
    return small()


def test_every_number_of_paper_000_has_its_row(runs: Runs) -> None:
    rows = STUDY.score(runs, PLAIN)
    by_name = {row.quantity: row for row in rows}
    assert len(by_name) == len(rows)
    printed = 3 * (7 + 7 + 5) + 4 * (2 + 2 + 1) + 3 + (2 * 3 + 1 + 2)
    assert len(rows) == printed
    assert {row.verdict for row in rows if " at " in row.quantity} == {"pending"}
    ran = [row for row in rows if "slope per peer," in row.quantity]
    assert all(row.runs == 2 and row.verdict != "pending" for row in ran)
    assert by_name["DS communication, slope per peer, 0–50 ms"].measured == pytest.approx(4, abs=0.8)


def test_changing_a_parameter_changes_a_row(runs: Runs) -> None:
    faster = small(interval="normal:30-50ms")
    before, after = (
        each.where(protocol="freescale", peers=9, delay=paper_runs.DELAYS["0–50 ms"]).values(
            "across_paper_bytes"
        )
        for each in (runs, faster)
    )
    assert sum(after) > sum(before) * 1.1


def test_rows_without_runs_are_pending() -> None:
    assert {row.verdict for row in STUDY.score(Runs([]), PLAIN)} == {"pending"}
    assert all(not any(figure.lines.values()) for figure in STUDY.figures(Runs([]), PLAIN))


def test_grids_are_valid_and_have_every_run_once() -> None:
    for scale in ("quick", "full"):
        setting = [
            *STUDY.plain_grid(scale),
            *STUDY.open_grid(scale),
            *contest.grid(scale),
        ]
        assert len({each.key() for each in setting}) == len(setting)
        assert max(paper_runs.size(each) for each in STUDY.plain_grid(scale)) == (
            40 if scale == "quick" else 900
        )


def test_figures_have_a_line_for_everything_that_was_run(runs: Runs) -> None:
    drawn = {figure.number: figure for figure in STUDY.figures(runs, PLAIN)}
    assert set(drawn) == {"bytes a", "bytes b"} | {
        f"{number}{part}" for number in range(4, 10) for part in "ab"
    }
    assert [len(points) for points in drawn["4a"].lines.values()] == [2, 2, 2, 2]


def test_the_scoreboard_as_markdown() -> None:
    rows = [
        ScoreRow("000", "a | b", 1234.5, 1300.0, 1200.0, 1400.0, 5, 1.053, "matches", ""),
        ScoreRow("000", "c", 0.0612, None, None, None, 0, None, "pending", "not run"),
        claim("004", "says", True, "3 < 4", 2),
        claim("004", "ours", True, "5 < 6", 2, own=True),
    ]
    assert cells(rows[0]) == ["a | b", "1,234", "1,300 ± 100", "5", "1.05", "matches", ""]
    assert cells(rows[1])[:3] == ["c", "0.0612", "–"]
    assert tally(rows) == (
        "3 numbers and claims of the papers: 1 match, 1 holds, 1 pending (67 % match, are close or hold). "
        "Results of our own: 1 of 1 hold."
    )
    choice = ChosenReading({}, [], Seeds((), (1, 2)))
    choices = {"000": choice, "004": choice}
    text = markdown(
        Reproduction(rows, [{"network": "n", "cheapest": "mbcp"}], choices, "All audited."), "today"
    )
    assert "| a \\| b | 1,234 | 1,300 ± 100 | 5 | 1.05 | matches |  |" in text
    paper, own = text.split("## Paper 004")[1].split("### Beyond paper 004")
    assert "says" in paper
    assert "| ours | holds" not in paper
    assert "| ours | holds | holds |" in own
    assert "| n | mbcp |" in text


def test_bytes_on_the_wire_are_drawn_with_bytes_as_the_paper_counts() -> None:
    (figure,) = wire_figure(
        {"one": ([(10, 100.0), (20, 200.0)], [(10, 90.0), (20, 150.0)]), "other": ([], [])}, "nodes"
    )
    assert list(figure.lines) == ["one, as the paper counts", "one, on our wire"]
    assert "one 150 for 200 bytes at 20 (-25 %)." in figure.note
    assert wire_figure({}) == []


def test_the_number_of_home_intervals_matches_the_formula() -> None:
    """r ∫ F (1 − F) dt + 1, which for delays spread evenly over w is r w / 6 + 1."""
    peers, rate, width = 60, 12.5, 0.1
    found = home_intervals(peers, "0-100ms", "normal:70-90ms", 1)
    assert found == pytest.approx((peers - 1) * rate * width / 6 + 1, rel=0.1)
    assert home_intervals(peers, "10ms", "normal:70-90ms", 1) == 1.0


def test_the_previous_number_of_a_sender_outside_may_be_one_of_the_bits(runs: Runs) -> None:
    some = runs.where(protocol="freescale", peers=9)
    without, counted = some.values("down_paper_bytes"), some.values("down_last_paper_bytes")
    assert all(less <= more for less, more in zip(without, counted, strict=True))
    assert sum(without) < sum(counted)
    pairs = zip(STUDY.score(runs, PLAIN | {"Last": "bit"}), STUDY.score(runs, PLAIN), strict=True)
    changed = [row.quantity for row, other in pairs if row != other]
    assert changed
    assert all("internal" in quantity for quantity in changed)
