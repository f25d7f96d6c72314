"""Every kind of fault is listed: the same in both engines, bounded, the worst first."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from antecede.audit.core import RunAudit, judge_run, severity
from antecede.audit.faults import KINDS, limit_kinds, worst_first
from antecede.audit.prepared_run import LARGE_RUN
from antecede.cli.main import app
from antecede.spark import audit
from antecede.spark.read import members_frame
from antecede.trace.schema import Meta
from planted import table
from random_executions import any_execution, as_rows

ALL = 100_000
COUNTS = {"missing": "missing", "duplicate": "duplicates", "orphan": "orphans", "impossible": "impossible"}

FAULTY = """process,kind,message,index
ana,send,q,0
ana,send,r,1
ben,deliver,q,0
ben,deliver,q,1
ben,send,s,2
ben,deliver,q,3
ben,deliver,late,4
cleo,deliver,s,0
cleo,deliver,ghost,1
cleo,deliver,ghost,2
ana,deliver,s,2
dan,deliver,t,0
dan,send,t,1
ana,deliver,t,3
ben,deliver,t,5
cleo,deliver,t,3
dan,deliver,q,2
dan,deliver,r,3
dan,deliver,s,4
ana,send,late,4
cleo,deliver,late,4
dan,deliver,late,5
"""


@pytest.fixture
def faulty(tmp_path: Path) -> list[str]:
    (tmp_path / "log.csv").write_text(FAULTY)
    return [str(tmp_path / "log.csv"), "--map", "message=message"]


def invoke(*arguments: str) -> str:
    return CliRunner().invoke(app, ["audit", *arguments]).stdout


def test_every_fault_is_listed_in_json(faulty: list[str]) -> None:
    found = json.loads(invoke(*faulty, "--json"))
    listed = {
        (each["kind"], each["process"], each["message"], each["index"], each["consequences"])
        for each in found["faults"]
    }
    assert listed == {
        ("missing", "cleo", "q", None, 2),
        ("missing", "cleo", "r", None, 1),
        ("missing", "ben", "r", None, 1),
        ("duplicate", "ben", "q", 1, 2),
        ("duplicate", "cleo", "ghost", 2, 1),
        ("orphan", "cleo", "ghost", 1, 2),
        ("impossible", "dan", "t", 0, 1),
    } | {each for each in listed if each[0] == "impossible"}
    for kind, name in COUNTS.items():
        mine = [each for each in found["faults"] if each["kind"] == kind]
        total = len(mine) if kind in ("missing", "orphan") else sum(each["consequences"] for each in mine)
        assert total == found[name], kind
    consequences = [each["consequences"] for each in found["faults"]]
    assert consequences == sorted(consequences, reverse=True)
    texts = {each["text"] for each in found["faults"]}
    assert "cleo never delivered q, which ana sent. 2 of its deliveries needed it." in texts
    assert "ben delivered q 3 times, the second time at index 1." in texts
    assert "cleo delivered ghost at index 1, which nobody sent." in texts
    assert "dan delivered t at index 0, before dan sent it." in texts


def test_every_fault_is_listed_in_text_and_on_the_page(faulty: list[str], tmp_path: Path) -> None:
    shown = invoke(*faulty, "--html", str(tmp_path / "page.html"))
    page = (tmp_path / "page.html").read_text()
    for title in ("missing (3)", "delivered twice (3)", "delivered but never sent (1)"):
        assert title in shown
    titles = "Missing", "Delivered twice", "Delivered, though nobody sent it", "Delivered before it was sent"
    for title in titles:
        assert f">{title}<" in page
    assert "ghost" in shown
    assert "ghost" in page


def test_the_limit_bounds_each_kind(faulty: list[str]) -> None:
    found = json.loads(invoke(*faulty, "--limit", "1", "--json"))
    assert Counter(each["kind"] for each in found["faults"]) == dict.fromkeys(KINDS, 1)
    assert found["faults"][0]["message"] in ("q", "ghost")
    assert "missing (3, the first 1)" in invoke(*faulty, "--limit", "1")
    assert json.loads(invoke(*faulty, "--limit", "0", "--json"))["faults"] == []


def test_the_worst_violation_is_listed_first_whether_late_or_missing() -> None:
    """One message is delivered late and one delivery depended on it; another is lost and three depended on
    it."""
    events = [("a", "send", f"a:{number}", number) for number in range(1, 5)]
    events += [("b", "deliver", f"a:{number}", 9 + number) for number in (2, 3, 4)]
    events += [("c", "deliver", f"a:{number}", 20) for number in (2, 1, 3, 4)]
    found = judge_run("r", table(events), {}).findings
    assert [(each.process, each.late, each.consequences) for each in found] == [
        ("b", False, 3), ("c", True, 1),
    ]  # fmt: skip
    assert judge_run("r", table(events), {}, 1).findings == found[:1]


def test_the_worst_late_cause_is_found_among_very_many() -> None:
    """2,000 messages are slightly late at one process, then one that many deliveries depended on."""
    count = 2_000
    events = [("a", "send", f"a:{number}", 0) for number in range(1, 2 * count + 8)]
    order = [each for pair in range(count) for each in (2 * pair + 2, 2 * pair + 1)]
    order += [2 * count + each for each in (2, 3, 4, 5, 6, 7, 1)]
    events += [("b", "deliver", f"a:{number}", 1) for number in order]
    (worst, *_) = judge_run("r", table(events), {}, 10).findings
    assert (worst.cause, worst.consequences) == (f"a:{2 * count + 1}", 6)


def random_runs(seeds: range) -> dict[str, tuple[pa.Table, dict[str, list[str]]]]:
    runs = {}
    for seed in seeds:
        source = Random(seed)
        rows, members = as_rows(source, any_execution(source))
        place = rows.column_names.index("run")
        named = pa.array([f"r{seed:03}"] * rows.num_rows)
        runs[f"r{seed:03}"] = rows.set_column(place, "run", named), dict(members)
    return runs


def test_the_lists_agree_with_the_counts_and_with_each_other() -> None:
    seen: Counter[str] = Counter()
    for run, (rows, members) in random_runs(range(200)).items():
        found = judge_run(run, rows, members, ALL)
        for kind, name in COUNTS.items():
            mine = [each for each in found.faults if each.kind == kind]
            total = len(mine) if kind in ("missing", "orphan") else sum(each.consequences for each in mine)
            assert total == getattr(found.verdict, name)
            seen[kind] += len(mine)
        never = {(each.process, each.cause): each.consequences for each in found.findings if not each.late}
        missing = [each for each in found.faults if each.kind == "missing" and each.consequences]
        assert never == {(each.process, each.message): each.consequences for each in missing}
        assert found.findings == sorted(found.findings, key=severity)
        shorter = judge_run(run, rows, members, 2)
        assert shorter.findings == found.findings[:2]
        assert shorter.faults == limit_kinds(found.faults, 2)
    assert min(seen[kind] for kind in KINDS) > 20


def described(audits: list[RunAudit], limit: int) -> list[Any]:
    return limit_kinds(worst_first(fault for each in audits for fault in each.faults), limit)


@pytest.mark.parametrize(("large_run", "seeds"), [(LARGE_RUN, range(60)), (0, range(1, 3))])
def test_both_engines_list_the_same(spark: SparkSession, large_run: int, seeds: range) -> None:
    runs = random_runs(seeds)
    known = members_frame(spark, [Meta(run, members) for run, (_, members) in runs.items()])
    events = spark.createDataFrame(pa.concat_tables([rows for rows, _ in runs.values()]))
    for limit in (3, ALL):
        here = [judge_run(run, rows, members, limit) for run, (rows, members) in runs.items()]
        found = audit(events, known, limit, large_run=large_run)
        assert found.first_faults(limit) == described(here, limit)
        violations = sorted(itertools.chain(*(each.findings for each in here)), key=severity)[:limit]
        assert [(f.run, f.process, f.cause, f.effect, f.consequences) for f in found.first(limit)] == [
            (f.run, f.process, f.cause, f.effect, f.consequences) for f in violations
        ]
        assert found.faults.columns[:3] == ["run", "kind", "process"]
        found.release()
