"""The reports for the papers' authors: what they say, what they draw, and that every link leads somewhere."""

from __future__ import annotations

import re
from html import unescape

import msgspec
import pytest

from antecede.papers import paper_000, paper_003
from antecede.papers.author_page import CITATIONS, author_page, in_short
from antecede.papers.errata import runs_of
from antecede.papers.figure_panels import panels
from antecede.papers.index_page import index_page
from antecede.papers.paper import Figure, Paper, Runs, Scale, mean
from antecede.papers.readings import Agreement, ChosenReading, Seeds
from antecede.papers.reproduce import PAPERS
from antecede.papers.scoreboard import ScoreRow, claim, number
from antecede.papers.scoreboard_page import SMALL, PaperResult, Reproduction, markdown
from antecede.papers.verdict_marks import kinds
from antecede.report.svg import text as escape

ROWS = [
    number("000", "bytes at 900 peers", 100.0, [99.0, 100.0, 101.0]),
    number("000", "bytes at 500 peers", 50.0, [51.0, 50.0, 50.0]),
    number("000", "slope <b>", 1.0, [2.0, 2.1, 2.0], "counted otherwise"),
    number("000", "queue", 5.0, [1.0, 90.0], "too noisy"),
    number("000", "storage at 400 peers", 5.0, []),
    claim("000", "a before b", True, "3 < 4", 2),
    claim("000", "no more than n", False, "n + 1 once", 2, "two at once"),
    claim("000", "ours", True, "5 < 6", 2, own=True),
]


def result(study: Paper = paper_000.STUDY) -> PaperResult:
    joints = [(study.plainest, Agreement(3, 2, 9)), (study.plainest, Agreement(1, 0, 9))]
    choice = ChosenReading(study.plainest, joints, Seeds((101,), (1, 2)))
    rows = [msgspec.structs.replace(row, paper=study.name) for row in ROWS]
    return PaperResult(study, choice, Runs([]), Runs([]), rows)


def html(study: Paper = paper_000.STUDY) -> str:
    return author_page(result(study), ["000", "003"], "All audited.", "report.html", "full")


def section(page: str, anchor: str) -> str:
    return page.split(f'id="{anchor}"')[1].split("</section>")[0]


def test_the_first_sentence_summarises_the_verdicts() -> None:
    rows = [row for row in ROWS if not row.own]
    assert in_short(rows, 1) == (
        "7 printed numbers and claims: 3 confirmed, 2 not confirmed, 1 undecided, 1 not run at these sizes. "
        "Counted apart: 1 rule fails as printed."
    )
    assert in_short(rows[:2], 0) == "2 printed numbers and claims: 2 confirmed, 0 not confirmed."


def test_each_row_is_in_its_verdict_s_section_with_the_command_to_repeat_it() -> None:
    page = html()
    there = {
        "confirmed": ["bytes at 900, 500 peers", "100, 50", "a before b", "3 &lt; 4"],
        "not-confirmed": ["slope &lt;b&gt;", "counted otherwise", "two at once. Measured: n + 1 once"],
        "undecided": ["queue", "too noisy"],
        "not-run": ["storage at 400 peers"],
    }
    for anchor, words in there.items():
        assert all(word in section(page, anchor) for word in words)
        assert "antecede reproduce 000 --full" in section(page, anchor)
    assert "ours" in section(page, "beyond")
    assert "a before b" not in section(page, "undecided")
    assert "2 joint readings" in section(page, "readings")


def test_links_from_contents_squares_and_papers_resolve() -> None:
    page = html()
    inside = set(re.findall(r'href="#([^"]+)"', page))
    assert inside <= set(re.findall(r'id="([^"]+)"', page))
    assert {f"row-{place}" for place in range(1, 8)} <= inside
    assert set(re.findall(r'href="([^"#]+)"', page)) == {"report.html", "paper-003.html"}


def test_rules_that_fail_as_printed_are_drawn_with_the_command_that_finds_them() -> None:
    page = section(html(paper_003.STUDY), "rules")
    runs = runs_of("003", "printed")
    assert len(runs) == page.count('<img class="drawn"') == 8
    for run in runs:
        assert f"./dev python docs/protocols/errata.py {run.name}" in page
    assert "p1: it delivers p0:2 before p0:1, which happened before p0:2. Instead: everybody" in page


def test_the_index_leads_to_every_paper() -> None:
    results = [result(paper_000.STUDY), result(paper_003.STUDY)]
    rows = [row for each in results for row in each.rows]
    found = Reproduction(rows, [], {each.paper.name: each.choice for each in results}, "All audited.")
    page = index_page(results, found, "full")
    assert "antecede reproduce 000 003 --full" in page
    assert set(re.findall(r'href="([^"#]+)"', page)) == {"paper-000.html", "paper-003.html"}
    assert "3 of 7" in page
    assert "Evropeytsev" in page
    assert "6 of 14" in page


def test_a_quick_reproduction_says_first_that_it_is_small() -> None:
    results = [result(paper_000.STUDY), result(paper_003.STUDY)]
    rows = [row for each in results for row in each.rows]
    found = Reproduction(rows, [], {each.paper.name: each.choice for each in results}, "All audited.")
    scales: list[tuple[Scale, bool]] = [("quick", True), ("full", False)]
    for scale, says_so in scales:
        pages = [
            index_page(results, found, scale),
            author_page(results[0], ["000"], "All audited.", "report.html", scale),
            markdown(found, "a machine", scale),
        ]
        assert [SMALL in unescape(page) for page in pages] == [says_so] * 3


def test_every_paper_has_its_authors() -> None:
    assert CITATIONS.keys() == PAPERS.keys()


def test_rows_that_differ_in_numbers_are_one_kind() -> None:
    def row(quantity: str) -> ScoreRow:
        return number("000", quantity, 1.0, [1.0, 1.0])

    found = kinds([row("a, 0–50 ms, 2 bytes"), row("b"), row("a, 50–1,250 ms, 2 bytes")])
    assert [(kind.title, len(kind.rows)) for kind in found] == [
        ("a, 0–50; 50–1,250 ms, 2 bytes", 2),
        ("b", 1),
    ]


def test_grouped_rows_share_verdict_and_reason_and_are_sorted_by_value() -> None:
    def row(quantity: str, measured: float, why: str = "because") -> ScoreRow:
        found = number("000", quantity, 1.0, [measured, measured], why)
        return msgspec.structs.replace(found, tried=f"tried at {measured:g}")

    rows = [row("a, 5 ms", 2.0), row("a, 7 ms", 1.2), row("a, 9 ms", 3.0), row("a, 4 ms", 4.0, "otherwise")]
    found = kinds(rows)
    assert [kind.title for kind in found] == ["a, 5, 9 ms", "a, 7 ms", "a, 4 ms"]
    assert [kind.measured for kind in found] == ["2, 3", "1.2", "4"]
    assert [kind.note for kind in found] == ["because", "because. tried at 1.2", "otherwise. tried at 4"]
    both = kinds([claim("000", f"less at {n} peers", True, f"{n} < 9", 2) for n in (1, 2)])
    assert [(kind.measured, kind.note) for kind in both] == [("holds", "1: 1 < 9; 2: 2 < 9")]


def test_the_tiles_add_up_to_all_rows_and_rules_are_counted_apart() -> None:
    page = html(paper_003.STUDY)
    tiles = re.findall(r'href="#([a-z-]+)"><b>(\d+)</b>', page)
    counts = {where: int(count) for where, count in tiles}
    assert counts.pop("rules") == 8
    assert sum(counts.values()) == len([row for row in ROWS if not row.own])
    titles = {"confirmed": "Confirmed", "not-confirmed": "Not confirmed", "undecided": "Undecided"}
    for anchor, title in titles.items():
        assert f"<h2>{title}: {counts[anchor]}</h2>" in section(page, anchor)


def test_a_long_reason_is_there_in_full() -> None:
    long = " ".join(f"word{place}" for place in range(90))
    rows = [number("000", "a", 1.0, [2.0, 2.0], long)]
    found = msgspec.structs.replace(rows[0], paper="000")
    base = result()
    page = author_page(
        PaperResult(base.paper, base.choice, base.runs, base.open_runs, [found]), [], "", "i", "full"
    )
    for anchor in ("not-confirmed", "rows"):
        assert " ".join(re.sub("<[^>]+>", " ", section(page, anchor)).split()).count(long) == 1


def test_results_of_our_own_have_nothing_published() -> None:
    beyond = section(html(), "beyond")
    assert "<th>ours</th>" in beyond
    assert "published" not in beyond
    assert "ratio" not in beyond


def test_the_chosen_reading_is_described_with_the_rows_it_ignored() -> None:
    base = result()
    joints = [(base.paper.plainest, Agreement(3, 2, 5)), (base.paper.plainest, Agreement(1, 0, 5))]
    choice = ChosenReading(base.paper.plainest, joints, Seeds((101,), (1, 2)))
    found = PaperResult(base.paper, choice, base.runs, base.open_runs, base.rows)
    text = section(author_page(found, [], "", "i", "full"), "readings")
    assert "the best of 2 on seed 101, where 3 of 5 rows" in text
    assert "The other 2 of the 7 rows" in text
    first = next(each for each in base.paper.readings if len(each.alternatives) > 1)
    assert text.count(escape(first.alternatives[0].reading)) >= 2


def test_printed_points_have_the_verdicts_of_their_rows() -> None:
    line = [(100.0, mean([10.0, 10.1, 9.9])), (200.0, mean([20.0, 20.1, 19.9])), (300.0, 30.0)]
    printed = [(100.0, 10.0), (200.0, 40.0), (300.0, 33.0), (400.0, 40.0)]
    drawn = Figure("4a", "Bytes", "peers", "bytes", {"a": line}, {"a": printed}, "A note.")
    rows = [
        number("000", "at 100", 10.0, [10.0, 10.1, 9.9]),
        number("000", "at 200, in thousands", 0.04, [0.02, 0.0201, 0.0199]),
    ]
    shown = panels([drawn], rows)
    verdicts = re.findall(r'<span class="verdict (\w+)">([^<]+)', shown)
    assert verdicts == [
        ("matches", "matches"),
        ("differs", "differs"),
        ("pending", "not judged by this reading"),
        ("pending", "not run"),
    ]
    assert shown.count('class="error"') == 1
    many = msgspec.structs.replace(drawn, published={"a": [*printed, (500.0, 1.0)]})
    assert "2 pending" in panels([many], rows)
    assert "1 not judged by this reading" in panels([many], rows)


def test_lines_that_are_far_apart_are_drawn_on_logarithmic_axes() -> None:
    lines = {"a": [(100.0, 1.0), (200.0, 2.0)], "b": [(100.0, 900.0), (200.0, 2000.0)]}
    drawn = Figure("3", "Delay", "nodes", "ms", lines)
    assert "Both axes are logarithmic." in panels([drawn])
    zero = msgspec.structs.replace(drawn, lines=lines | {"c": [(100.0, 0.0), (200.0, 1.0)]})
    assert "logarithmic" not in panels([zero])


def test_a_constant_published_value_is_a_dashed_line_without_a_verdict() -> None:
    line = [(float(x), float(x)) for x in (1, 2, 3)]
    drawn = Figure("a", "Share", "load", "share", {"a": line}, {"a": [(x, 0.5) for x, _ in line]})
    shown = panels([drawn])
    assert 'class="level s0"' in shown
    assert "verdict" not in shown
    assert panels([msgspec.structs.replace(drawn, lines={"a": []})]) == ""


@pytest.mark.parametrize("name", PAPERS)
def test_every_paper_has_a_page_without_runs(name: str) -> None:
    study = PAPERS[name]
    page = html(study)
    assert f"Paper {name}" in page
    assert study.title in page
