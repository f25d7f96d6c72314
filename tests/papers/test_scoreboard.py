"""The scoreboard's rules, and paper 000's rows from small real runs."""

from __future__ import annotations

import msgspec
import pytest

from antecede.papers import contest, paper_000
from antecede.papers.paper import FinishedRun, Runs, wire_figure
from antecede.papers.scoreboard import ScoreRow, claim, interval, judge, number, slope
from antecede.papers.scoreboard_page import Reproduction, cells, markdown, tally
from antecede.sim.engines import simulate


def test_verdicts() -> None:
    assert number("p", "q", 10.0, [9.0, 11.0, 12.0]).verdict == "matches"  # inside the interval
    assert number("p", "q", 10.0, [10.9, 10.9, 10.9]).verdict == "matches"  # within 10 %
    assert number("p", "q", 10.0, [11.2, 11.2, 11.2]).verdict == "same shape"
    assert number("p", "q", 10.0, [5.1, 5.1]).verdict == "same shape"
    assert number("p", "q", 10.0, [4.9, 4.9]).verdict == "differs"
    assert number("p", "q", 10.0, [-10.0, -10.0]).verdict == "differs"
    assert number("p", "q", -10.0, [-11.5, -11.5]).verdict == "same shape"
    assert judge(0.0, 0.0, 0.0, 0.0) == "matches"
    assert judge(0.0, 1.0, 0.9, 1.1) == "differs"


def test_a_reason_appears_only_where_a_number_does_not_match() -> None:
    assert number("p", "q", 10.0, [10.0], "because").why == ""
    assert number("p", "q", 10.0, [30.0], "because").why == "because"
    pending = number("p", "q", 10.0, [])
    assert (pending.verdict, pending.measured, pending.runs, pending.ratio) == ("pending", None, 0, None)
    assert claim("p", "says", True, "shown", 3, "because").verdict == "same shape"
    assert claim("p", "says", False, "shown", 3, "because").why == "because"
    assert claim("p", "says", None, "shown", 0).measured is None


def test_intervals_are_students_t() -> None:
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
        paper_000._run(protocol, peers, delay, seed, "quick")
        for protocol in paper_000.PROTOCOLS
        for peers in (4, 8)
        for delay in paper_000.DELAYS
        for seed in (1, 2)
    ]
    setting = [msgspec.structs.replace(run, seconds=run.warmup + 0.4, **changes) for run in runs]
    return Runs([FinishedRun(run, simulate(run).metrics) for run in setting])


@pytest.fixture(scope="module")
def runs() -> Runs:
    return small()


def test_every_number_of_paper_000_has_its_row(runs: Runs) -> None:
    rows = paper_000.score(runs)
    by_name = {row.quantity: row for row in rows}
    assert len(by_name) == len(rows)
    printed = 3 * (7 + 7 + 5) + 4 * (2 + 2 + 1) + 3
    assert len(rows) == printed
    assert {row.verdict for row in rows if " at " in row.quantity} == {"pending"}
    ran = [row for row in rows if "slope per peer," in row.quantity]
    assert all(row.runs == 2 and row.verdict != "pending" for row in ran)
    assert by_name["DS communication, slope per peer, 0–50 ms"].measured == pytest.approx(4, abs=0.8)


def test_a_changed_parameter_moves_a_row(runs: Runs) -> None:
    faster = small(interval="normal:30-50ms")
    before, after = (
        each.where(protocol="freescale", peers=9, delay=paper_000.DELAYS["0–50 ms"]).values(
            "across_paper_bytes"
        )
        for each in (runs, faster)
    )
    assert sum(after) > sum(before) * 1.1


def test_what_has_not_been_run_is_pending() -> None:
    assert {row.verdict for row in paper_000.score(Runs([]))} == {"pending"}
    assert all(not any(figure.lines.values()) for figure in paper_000.figures(Runs([])))


def test_grids_are_valid_and_have_every_run_once() -> None:
    for scale in ("quick", "full"):
        setting = [*paper_000.grid(scale), *paper_000.open_grid(scale), *contest.grid(scale)]
        assert len({each.key() for each in setting}) == len(setting)
        assert max(paper_000.size(each) for each in paper_000.grid(scale)) == (
            40 if scale == "quick" else 900
        )


def test_figures_have_a_line_for_everything_that_was_run(runs: Runs) -> None:
    drawn = {figure.number: figure for figure in paper_000.figures(runs)}
    assert set(drawn) == {"bytes"} | {f"{number}{part}" for number in range(4, 10) for part in "ab"}
    assert [len(points) for points in drawn["4a"].lines.values()] == [2, 2, 2, 2]


def test_the_scoreboard_as_markdown() -> None:
    rows = [
        ScoreRow("000", "a | b", 1234.5, 1300.0, 1200.0, 1400.0, 5, 1.053, "matches", ""),
        ScoreRow("000", "c", 0.0612, None, None, None, 0, None, "pending", "not run"),
        claim("004", "says", True, "3 < 4", 2),
    ]
    assert cells(rows[0]) == ["a | b", "1,234", "1,300 ± 100", "5", "1.05", "matches", ""]
    assert cells(rows[1])[:3] == ["c", "0.0612", "–"]
    assert tally(rows) == "3 numbers and claims: 1 matches, 1 same shape, 0 differs, 1 pending."
    text = markdown(Reproduction(rows, [{"network": "n", "cheapest": "mbcp"}], "All audited."), "today")
    assert "| a \\| b | 1,234 | 1,300 ± 100 | 5 | 1.05 | matches |  |" in text
    assert "## Paper 004" in text
    assert "| n | mbcp |" in text


def test_bytes_on_the_wire_are_drawn_with_bytes_as_the_paper_counts() -> None:
    (figure,) = wire_figure(
        {"one": ([(10, 100.0), (20, 200.0)], [(10, 90.0), (20, 150.0)]), "other": ([], [])}, "nodes"
    )
    assert list(figure.lines) == ["one, as the paper counts", "one, on our wire"]
    assert "one 150 for 200 bytes at 20 (-25 %)." in figure.note
    assert wire_figure({}) == []
