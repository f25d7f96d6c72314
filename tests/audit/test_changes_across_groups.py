"""Overlapping groups with membership changes: each is judged on its own, then the order across groups."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from antecede.audit.core import RunAudit, judge_run
from antecede.audit.on_spark import audit
from antecede.causality import Verdict
from antecede.spark.read import members_frame
from antecede.trace.schema import CHANGE_KINDS, FIELDS, Meta
from command_line import antecede

FOUNDERS = {
    "a": ["x.a", "y.a", "z.a"],
    "b": ["x.b", "y.b", "z.b", "v.b"],
    "c": ["w.c", "z.c", "y.c"],
}

CHAIN = """
x.a send x.a:1       y.a deliver x.a:1    y.b send y.b:1       v.b deliver y.b:1
z.a deliver x.a:1    z.b deliver y.b:1    x.b deliver y.b:1
y.c send y.c:1       w.c deliver y.c:1    w.c send w.c:1       y.c deliver w.c:1
z.c deliver y.c:1    z.c deliver w.c:1
y.a remove y.a:1 x.a   z.a remove y.a:1 x.a   y.a close x.a:1 x.a   z.a close x.a:1 x.a
"""
"""y passes on x.a:1 in b and c; w, which is not in a, in c. Then y and z remove x from a."""

JOIN = """
x.b send x.b:1       x.a send x.a:1       y.b deliver x.b:1    y.a deliver x.a:1
z.b deliver x.b:1    z.a deliver x.a:1    v.b deliver x.b:1
y.a admit y.a:1 v.a  v.a admit y.a:1 v.a  v.a snapshot x.a:1 x.a   v.a snapshot y.a:0 y.a
z.a admit y.a:1 v.a  x.a admit y.a:1 v.a
v.a send v.a:1       x.a deliver v.a:1    y.a deliver v.a:1    z.a deliver v.a:1
"""
"""v, which is in b, joins a with a snapshot that follows x.b:1."""

LOST = """
x.a send x.a:1       x.b send x.b:1       y.a send y.a:1
y.a remove y.a:2 x.a y.a close x.a:0 x.a  z.a remove y.a:2 x.a   z.a close x.a:0 x.a   z.a deliver y.a:1
y.b deliver x.b:1    z.b deliver x.b:1    v.b deliver x.b:1
y.a admit y.a:3 x.a.2    x.a.2 admit y.a:3 x.a.2    x.a.2 snapshot y.a:1 y.a    z.a admit y.a:3 x.a.2
x.a.2 deliver x.a:1  y.a deliver x.a:1    z.a deliver x.a:1    z.b send z.b:1
x.b deliver z.b:1    y.b deliver z.b:1    v.b deliver z.b:1
"""
"""x.a:1 is lost, and so follows x.b:1; x returns and brings it back. z applies the removal before y.a:1,
which waits for something in another group."""

LOST_AGAIN = """
x.a send x.a:1
y.a remove y.a:1 x.a     y.a close x.a:0 x.a      z.a remove y.a:1 x.a     z.a close x.a:0 x.a
y.a admit y.a:2 x.a.2    x.a.2 admit y.a:2 x.a.2  x.a.2 snapshot y.a:0 y.a x.a.2 close x.a:0 x.a
z.a admit y.a:2 x.a.2    x.a.2 deliver x.a:1      x.b send x.b:1
y.a remove y.a:3 x.a.2   y.a close x.a.2:0 x.a.2  z.a remove y.a:3 x.a.2   z.a close x.a.2:0 x.a.2
y.b deliver x.b:1        z.b deliver x.b:1        v.b deliver x.b:1
y.a admit y.a:4 x.a.3    x.a.3 admit y.a:4 x.a.3  x.a.3 snapshot y.a:0 y.a z.a admit y.a:4 x.a.3
x.a.3 deliver x.a:1      y.a deliver x.a:1        z.a deliver x.a:1        z.b send z.b:1
x.b deliver z.b:1        y.b deliver z.b:1        v.b deliver z.b:1
"""
"""x.a:1 is lost, and so is the copy that x.a.2 brings back, which x.b:1 follows. x.a.3 brings it back once
more."""

Event = tuple[str, str, str, int, str | None]


def events(story: str) -> list[Event]:
    found = []
    words = iter(story.split())
    for process, kind, message in zip(words, words, words, strict=False):
        origin, seq = message.split(":")
        found.append((process, kind, origin, int(seq), next(words) if kind in CHANGE_KINDS else None))
    return found


def table(chosen: list[Event], run: str = "story") -> pa.Table:
    rows = []
    for index, (process, kind, origin, seq, member) in enumerate(chosen):
        place = {"run": run, "group": process.split(".")[1], "process": process, "index": index}
        what = {"kind": kind, "origin": origin, "seq": seq, "time": index, "member": member}
        rows.append({**place, **what, "of_process": process.split(".")[0]})
    return pa.Table.from_pylist(rows, schema=pa.schema([(name, FIELDS[name][0]) for name in rows[0]]))


def judge(chosen: list[Event]) -> RunAudit:
    return judge_run("story", table(chosen), FOUNDERS)


def counts(verdict: Verdict) -> dict[str, int]:
    return {name: getattr(verdict, name) for name in Verdict.FAULTS if getattr(verdict, name)}


def moved(story: str, line: str, before: str) -> list[Event]:
    (event,), (other,) = events(line), events(before)
    found = [each for each in events(story) if each != event]
    return [*found[: found.index(other)], event, *found[found.index(other) :]]


PLANTED: dict[str, tuple[list[Event], int, str]] = {
    "in another group": (
        moved(CHAIN, "z.b deliver y.b:1", "z.a deliver x.a:1"),
        1,
        "z.a delivered x.a:1 after its process had y.b:1 in another group: x.a:1 before y.b:1.",
    ),
    "in two other groups": (
        moved(CHAIN, "z.a deliver x.a:1", "y.a remove y.a:1 x.a"),
        3,
        "x.a:1 before y.b:1. 2 more of its deliveries needed it.",
    ),
    "through one that is not in it": (
        moved(
            "x.a send x.a:1 y.a deliver x.a:1 y.b send y.b:1 x.b deliver y.b:1 z.b deliver y.b:1 "
            "v.b deliver y.b:1 v.d send v.d:1 z.d deliver v.d:1 y.d close y.d:0 y.d z.a deliver x.a:1",
            "z.b deliver y.b:1",
            "y.d close y.d:0 y.d",
        ),
        2,
        "after its process had v.d:1 in another group: x.a:1 before y.b:1 before v.d:1. 1 more",
    ),
    "of a snapshot": (
        moved(JOIN + "w.c send w.c:1", "v.b deliver x.b:1", "w.c send w.c:1"),
        1,
        "v.b delivered x.b:1 after its process had x.a:1 in another group: x.b:1 before x.a:1.",
    ),
    "of what was brought back": (
        moved(LOST, "y.a deliver x.a:1", "v.b deliver z.b:1"),
        1,
        "y.a delivered x.a:1 after its process had z.b:1 in another group: x.a:1 before z.b:1.",
    ),
    "of what was brought back again": (
        moved(LOST_AGAIN, "y.a deliver x.a:1", "v.b deliver z.b:1"),
        1,
        "y.a delivered x.a:1 after its process had z.b:1 in another group: x.a:1 before z.b:1.",
    ),
}


@pytest.mark.parametrize("story", [CHAIN, JOIN, LOST, LOST_AGAIN])
def test_the_stories_are_clean(story: str) -> None:
    judged = judge(events(story))
    assert judged.verdict.clean, (judged.findings, judged.faults)


@pytest.mark.parametrize("fault", PLANTED)
def test_order_across_groups_is_judged(fault: str) -> None:
    chosen, expected, words = PLANTED[fault]
    judged = judge(chosen)
    assert judged.verdict.causal_late_deliveries == expected
    assert judged.verdict.causal_violations >= expected
    assert any(words in each.text for each in judged.findings), judged.findings


def test_a_message_lost_by_removal_is_not_required_of_others() -> None:
    """Without the removal x.a:1 is late at y and at z."""
    kept = [each for each in events(LOST) if each[1] in ("send", "deliver") and each[0] != "x.a.2"]
    row: Event = ("w.c", "close", "z.c", 0, "z.c")  # some change
    assert judge([*kept, row]).verdict.causal_late_deliveries == 2


def test_each_group_is_judged_by_itself() -> None:
    chosen = [each for each in events(JOIN) if each != ("z.a", "deliver", "v.a", 1, None)]
    assert counts(judge(chosen).verdict) == {"missing": 1}
    chosen = [each for each in events(JOIN) if each != ("z.a", "admit", "y.a", 1, "v.a")]
    assert counts(judge(chosen).verdict) == {"wrong_views": 1}
    chosen = [each for each in events(JOIN) if each != ("v.a", "snapshot", "x.a", 1, "x.a")]
    assert counts(judge(chosen).verdict) == {"wrong_snapshots": 1}


def test_cyclic_deliveries_do_not_loop_forever() -> None:
    circle = events("x.a deliver z.b:1 x.a send x.a:1 z.b deliver x.b:1 z.b send z.b:1 x.b send x.b:1")
    judged = judge([*circle, ("y.a", "close", "z.a", 0, "z.a")])
    assert judged.verdict.messages == 3


def test_the_page_describes_violations_it_cannot_draw(tmp_path: Path) -> None:
    chosen, _, words = PLANTED["in another group"]
    pq.write_table(table(chosen), tmp_path / "story.parquet")
    told = antecede("audit", "story.parquet", "--html", "page.html", cwd=tmp_path)
    assert words in told.stdout
    page = (tmp_path / "page.html").read_text()
    assert words.rstrip(".") in page
    assert "--violation 1 draws" not in page


def test_spark_gives_the_same_verdicts(spark: SparkSession) -> None:
    runs = {name: chosen for name, (chosen, _, _) in PLANTED.items()} | {"clean": events(LOST)}
    rows = pa.concat_tables([table(chosen, run) for run, chosen in runs.items()])
    members = members_frame(spark, [Meta(run, FOUNDERS) for run in runs])
    audited = audit(spark.createDataFrame(rows), members, large_run=3)
    try:
        here = {run: judge_run(run, table(chosen, run), FOUNDERS) for run, chosen in runs.items()}
        assert dict(audited.by_run()) == {run: each.verdict for run, each in here.items()}
        found = {(each.run, each.text) for each in audited.first(100)}
        assert found == {(run, each.text) for run, judged in here.items() for each in judged.findings}
    finally:
        audited.release()
