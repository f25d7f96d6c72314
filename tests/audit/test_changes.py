"""Runs with membership changes: which deliveries are owed, and every kind of fault, locally and on Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from antecede.audit.core import RunAudit, judge_run
from antecede.audit.on_spark import audit
from antecede.causality import Verdict
from antecede.errors import InputError
from antecede.membership.catalog import CHANGING
from antecede.sim import scenario
from antecede.sim.record import simulate_to
from antecede.spark.read import members_frame
from antecede.trace.reader import read_trace
from antecede.trace.schema import CHANGE_KINDS, FIELDS, Meta, read_meta
from command_line import antecede

FOUNDERS = {"all": ["a", "b", "c", "e"]}
STORY = """
a send a:1            e send e:1
b deliver a:1         b deliver e:1      b admit b:1 d
d admit b:1 d         d snapshot a:1 a   d snapshot e:1 e   d snapshot b:0 b   d send d:1
a deliver e:1         a admit b:1 d      a deliver d:1
c deliver a:1         c deliver e:1      c admit b:1 d      c deliver d:1      c leave c:1 c
b deliver d:1         b leave c:1 c      b close c:1 c
a leave c:1 c         a close c:1 c      a send a:2
d leave c:1 c         d close c:1 c      d deliver a:2
b deliver a:2         b remove b:2 e     b close e:1 e
a remove b:2 e        a close e:1 e      d remove b:2 e     d close e:1 e
e deliver a:1         e send e:2
"""
"""a, b, c and e are members; b admits d, c leaves, b removes e, which sends e:2 to nobody."""

Event = tuple[str, str, str, int, str | None]


def events(story: str = STORY) -> list[Event]:
    found = []
    words = iter(story.split())
    for process, kind, message in zip(words, words, words, strict=False):
        origin, seq = message.split(":")
        member = next(words) if kind in CHANGE_KINDS else None
        found.append((process, kind, origin, int(seq), member))
    return found


def table(chosen: list[Event], run: str = "story") -> pa.Table:
    rows = []
    for index, (process, kind, origin, seq, member) in enumerate(chosen):
        message = {"process": process, "kind": kind, "origin": origin, "seq": seq, "member": member}
        rows.append(message | {"run": run, "group": "all", "index": index, "time": index})
    return pa.Table.from_pylist(rows, schema=pa.schema([(name, FIELDS[name][0]) for name in rows[0]]))


def without(*lines: str) -> list[Event]:
    gone = [event for line in lines for event in events(line)]
    assert set(gone) <= set(events())
    return [event for event in events() if event not in gone]


def after(line: str, *added: str) -> list[Event]:
    (before,) = events(line)
    place = events().index(before) + 1
    return events()[:place] + [event for each in added for event in events(each)] + events()[place:]


def exchanged(one: str, other: str) -> list[Event]:
    (first,), (second,) = events(one), events(other)
    return [{first: second, second: first}.get(event, event) for event in events()]


SPLIT = ["e remove e:3 b", "e close b:2 b"]
PLANTED: dict[str, tuple[list[Event], dict[str, int], str]] = {
    "owed": (without("d deliver a:2"), {"missing": 1}, "d never delivered a:2"),
    "owed before leaving": (
        without("c deliver e:1"),
        {"missing": 1, "causal_violations": 2},
        "c never delivered e:1",
    ),
    "twice": (after("d deliver a:2", "d deliver a:2"), {"duplicates": 1}, "d delivered a:2 twice"),
    "again after the snapshot": (
        after("d admit b:1 d", "d deliver a:1"),
        {"duplicates": 1},
        "d delivered a:1",
    ),
    "before its cause": (
        exchanged("a admit b:1 d", "a deliver d:1"),
        {"causal_violations": 1},
        "a delivered d:1 before its cause b:1",
    ),
    "through the snapshot": (
        exchanged("c deliver a:1", "c deliver d:1"),
        {"causal_violations": 2},
        "c delivered d:1 before its cause a:1",
    ),
    "another cut": (
        [("d", "close", "e", 0, "e") if each == ("d", "close", "e", 1, "e") else each for each in events()],
        {"different_cuts": 1},
        "d closed the stream of e after e:0, others after e:1",
    ),
    "beyond the cut": (after("b close e:1 e", "b deliver e:2"), {"missing": 2}, "never delivered e:2"),
    "a view lacks": (
        without("a admit b:1 d"),
        {"wrong_views": 1},
        "The view of a lacks d, which is a member",
    ),
    "a view has": (
        without("d leave c:1 c"),
        {"wrong_views": 1},
        "The view of d has c, which is no member any more",
    ),
    "a split group": (
        after("e send e:2", "e deliver d:1", *SPLIT),
        {"split_groups": 1},
        "b and e have removed each other",
    ),
    "a snapshot that lacks": (
        without("d snapshot e:1 e"),
        {"wrong_snapshots": 1},
        "The snapshot of d lacks e:1, which happened before its admission",
    ),
    "a snapshot that has": (
        [
            ("d", "snapshot", "a", 2, "a") if each == ("d", "snapshot", "a", 1, "a") else each
            for each in events()
        ],
        {"wrong_snapshots": 1},
        "The snapshot of d has a:2, which did not happen before its admission",
    ),
    "after its end": (
        after("c leave c:1 c", "c deliver a:2"),
        {"after_end": 1},
        "c goes on after it has left",
    ),
}
"""For each fault: the events with it, the counts that it changes, and the words that name it."""


PHONES = """
p snapshot b:1 b   p snapshot a:1 a   p snapshot e:1 e   p deliver d:1   p send p:1   p deliver a:2
a deliver p:1      b deliver p:1      d deliver p:1
q snapshot b:1 b   q snapshot a:1 a   q snapshot e:1 e   q deliver d:1   q deliver p:1   q leave q:1 q
"""
"""Two phones start behind b with the state b has after admitting d; q leaves before a:2."""
WITHOUT: dict[str, tuple[dict[str, int], str]] = {
    "p deliver a:2": ({"missing": 1}, "p never delivered a:2"),
    "d deliver p:1": ({"missing": 1}, "d never delivered p:1"),
    "q deliver d:1": ({"missing": 1, "causal_violations": 1}, "q never delivered d:1"),
    "p snapshot e:1 e": ({"wrong_snapshots": 1}, "The snapshot of p lacks e:1"),
}
"""What is found if one of these rows is left out."""


def counts(verdict: Verdict) -> dict[str, int]:
    return {name: getattr(verdict, name) for name in Verdict.FAULTS if getattr(verdict, name)}


def texts(judged: RunAudit) -> list[str]:
    return [*(each.text for each in judged.findings), *(each.text for each in judged.faults)]


def judge(chosen: list[Event]) -> RunAudit:
    return judge_run("story", table(chosen), FOUNDERS)


def test_the_story_is_clean() -> None:
    judged = judge(events())
    assert judged.verdict == Verdict.no_faults(processes=5, messages=5, deliveries=11)
    assert (judged.findings, judged.faults) == ([], [])


@pytest.mark.parametrize("fault", PLANTED)
def test_each_fault_is_found_and_named(fault: str) -> None:
    chosen, expected, words = PLANTED[fault]
    judged = judge(chosen)
    found = counts(judged.verdict)
    assert {name: found.get(name) for name in expected} == expected
    assert any(words in text for text in texts(judged))


def test_spark_gives_the_same_verdicts(spark: SparkSession) -> None:
    runs = {name: chosen for name, (chosen, _, _) in PLANTED.items()} | {"clean": events()}
    rows = pa.concat_tables([table(chosen, run) for run, chosen in runs.items()])
    members = members_frame(spark, [Meta(run, FOUNDERS) for run in runs])
    # However small a run counts as large, one task judges it, because its group changes.
    audited = audit(spark.createDataFrame(rows), members, large_run=3)
    try:
        here = {run: judge_run(run, table(chosen, run), FOUNDERS) for run, chosen in runs.items()}
        assert dict(audited.by_run()) == {run: each.verdict for run, each in here.items()}
        texts = {(fault.run, fault.text) for fault in audited.first_faults(100)}
        assert texts == {(run, fault.text) for run, each in here.items() for fault in each.faults}
    finally:
        audited.release()


def test_an_admission_beyond_the_end_of_a_removed_stream_has_no_effect() -> None:
    """e admits f after its end: nobody hears of it, and nothing is owed to f."""
    assert judge(after("e send e:2", "e admit e:3 f", "f admit e:3 f", "f send f:1")).verdict.clean


def test_a_removal_beyond_the_end_of_its_sender_s_stream_has_no_effect() -> None:
    assert judge(after("e send e:2", "e remove e:3 a")).verdict.clean


def test_messages_brought_back_by_a_removed_member_are_owed_to_all() -> None:
    back = ["b deliver e:2", "a deliver e:2"]
    assert counts(judge(after("d close e:1 e", *back, "d deliver e:2")).verdict) == {}
    assert counts(judge(after("d close e:1 e", *back)).verdict) == {"missing": 1}


def test_phones_are_owed_everything_and_are_in_no_view() -> None:
    assert judge(events(STORY + PHONES)).verdict.clean


@pytest.mark.parametrize("line", WITHOUT)
def test_faults_of_phones_are_found(line: str) -> None:
    (gone,) = events(line)
    judged = judge([each for each in events(STORY + PHONES) if each != gone])
    expected, words = WITHOUT[line]
    found = counts(judged.verdict)
    assert {name: found.get(name) for name in expected} == expected
    assert any(words in text for text in texts(judged))


def test_a_snapshot_without_rows_is_not_judged() -> None:
    assert judge([each for each in events() if each[1] != "snapshot"]).verdict.clean


@pytest.mark.parametrize("protocol", CHANGING)
def test_simulated_groups_are_clean_and_a_lost_delivery_is_found(protocol: str, tmp_path: Path) -> None:
    changes: dict[str, Any] = {
        "churn": ["join:200ms", "remove:700ms:1", "leave:1s:4"],
        "faults": ["crash:300ms:2"],
    }
    chosen = scenario(protocol=protocol, peers=6, seconds=1.5, rate=5, seed=3, **changes)
    simulate_to(tmp_path, chosen, receives=False)
    rows, run = read_trace(tmp_path), chosen.key()
    groups = read_meta((tmp_path / "_meta" / "meta.json").read_bytes(), "").groups
    judged = judge_run(run, rows, groups)
    assert judged.verdict.clean, texts(judged)
    kinds = rows.column("kind").to_pylist()
    assert {*kinds} == {"send", "deliver", *CHANGE_KINDS}
    process = rows.column("process").to_pylist()
    lost = [at for at, kind in enumerate(kinds) if kind == "deliver" and process[at] == "p0"][-20]
    assert (
        judge_run(run, rows.take([at for at in range(len(kinds)) if at != lost]), groups).verdict.missing >= 1
    )


def test_audit_of_a_simulated_changing_group_is_clean(tmp_path: Path) -> None:
    options = ["--protocol", "mbcp", "--peers", "4", "--seconds", "0.5", "--churn", "join:100ms"]
    antecede("simulate", *options, "--churn", "leave:200ms:1", "--out", "trace", cwd=tmp_path)
    assert "clean: every message was delivered once" in antecede("audit", "trace", cwd=tmp_path).stdout


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("a", "admit", "b", 1, None), "field member is empty in 1 rows that are changes of the group"),
        (("a", "admit", "b", 0, "d"), "seq 0 is not 1 or more"),
    ],
)
def test_impossible_membership_rows_are_refused(change: Event, words: str) -> None:
    with pytest.raises(InputError, match=words):
        judge([*events(), change])
