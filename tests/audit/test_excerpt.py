"""Excerpts: the right few events of a violation, out of any number of rows."""

from __future__ import annotations

import random
import xml.etree.ElementTree as ET
from itertools import pairwise

import pyarrow as pa
import pytest

from antecede.audit.core import judge_run
from antecede.audit.diagram import diagram
from antecede.audit.diagram_layout import lay_out
from antecede.audit.excerpt import NEIGHBOURS, build_excerpt, select_rows, split_message_id
from antecede.errors import InputError
from planted import busy, chain, table, violation
from random_executions import any_execution, as_rows


@pytest.mark.parametrize("name", ["n{}", "10.0.0.{}:80", "{}:", ":{}"])
@pytest.mark.parametrize(("hops", "late"), [(2, True), (2, False), (3, True), (15, True), (15, False)])
def test_an_excerpt_contains_the_causal_path_to_the_fault(name: str, hops: int, late: bool) -> None:
    rows = table(chain(hops, late, name))
    names = [name.format(number) for number in range(hops + 1)]
    found = violation(rows, names[-1], f"{names[0]}:1")
    shown = build_excerpt(found, select_rows(rows, [found]))
    assert [hop.message for hop in shown.hops] == found.path == [f"{each}:1" for each in names[:-1]]
    assert [(hop.sent.process, hop.sent.kind) for hop in shown.hops] == [
        (each, "send") for each in names[:-1]
    ]
    assert [(hop.arrived.process, hop.arrived.kind) for hop in shown.hops] == [
        (each, "deliver") for each in names[1:]
    ]
    assert (shown.fault.process, shown.fault.message) == (found.process, found.effect)
    if late:
        assert shown.late is not None
        assert (shown.late.message, shown.late.index) == (found.cause, shown.fault.index + 1)
    else:
        assert shown.late is None


def test_a_path_links_messages_of_one_sender_without_a_delivery() -> None:
    rows = table([("a", "send", "a:1", 0), ("a", "send", "a:2", 1), ("b", "deliver", "a:2", 3)])
    found = violation(rows, "b", "a:1")
    first, second = build_excerpt(found, select_rows(rows, [found])).hops
    assert first.stays
    assert first.arrived == second.sent
    assert not second.stays


def test_an_excerpt_has_only_a_few_neighbouring_events() -> None:
    rows = busy()
    found = violation(rows, "n2", "n0:1")
    few = select_rows(rows, [found])
    assert few.num_rows <= 8 * (2 * NEIGHBOURS + 1)
    shown = build_excerpt(found, few)
    assert shown.late is not None
    assert (shown.fault.place, shown.late.place) == (50, 51)
    beside = [(event.process, event.place) for event in shown.others]
    assert beside == [(p, n) for p in ("n0", "n1", "n2") for n in (48, 49, *_after[p])]


_after = {"n0": (51, 52), "n1": (52, 53), "n2": (52, 53)}


def test_a_trace_that_changed_meanwhile_is_refused() -> None:
    rows = table(chain(2))
    found = violation(rows, "n2", "n0:1")
    with pytest.raises(InputError, match="no more deliver of n0:1 at n1"):
        build_excerpt(
            found, select_rows(rows.filter(pa.array([n != 1 for n in range(rows.num_rows)])), [found])
        )


def test_the_last_colon_separates_origin_and_seq() -> None:
    assert split_message_id("a:b:7") == ("a:b", 7)


def test_violations_of_any_faulty_log_can_be_drawn() -> None:
    drawn = 0
    for seed in range(400):
        source = random.Random(seed)
        rows, members = as_rows(source, any_execution(source))
        if not rows.num_rows:
            continue
        audited = judge_run("r", rows, members)
        findings = audited.findings
        few = select_rows(rows, findings)
        for found in findings:
            shown = build_excerpt(found, few)
            assert (shown.late is not None) == found.late
            assert shown.late is None or shown.late.place > shown.fault.place
            for before, after in pairwise(shown.hops):
                assert before.arrived.process == after.sent.process
                assert before.stays or before.arrived.place < after.sent.place
            placed = lay_out(shown, 800, dict.fromkeys(found.path, 60.0))
            core = [event for hop in shown.hops for event in (hop.sent, hop.arrived)]
            core += [shown.late] if shown.late else []
            for one, other in pairwise(dict.fromkeys(core)):
                assert audited.verdict.impossible or placed.x[one] < placed.x[other]
            for one, other in pairwise(sorted(placed.x, key=lambda event: (event.process, event.place))):
                assert one.process != other.process or placed.x[one] < placed.x[other]
            ET.fromstring(diagram(shown, found.text)[0])  # noqa: S314 (our own text)
            drawn += 1
    assert drawn > 500
