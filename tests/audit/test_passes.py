"""The compiled passes agree with the oracle on any log, however faulty."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from antecede.audit import core as judging
from antecede.audit import passes as causality
from antecede.audit.core import judge_run
from antecede.causality import Execution, Kind, MessageId, Step, judge
from antecede.causality.transitive_closure import count_dtype
from antecede.trace.execution_from_rows import execution
from random_executions import any_execution, as_rows


@given(st.integers(0, 1 << 60))
@example(78)
@example(162)
def test_a_log_is_judged_as_the_oracle_judges_it(seed: int) -> None:
    source = random.Random(seed)
    table, members = as_rows(source, any_execution(source))
    judgement = judge(execution(table, members))
    found = judge_run("r", table, members)
    assert found.verdict == judgement.verdict
    pairs = judgement.verdict.causal_pairs_late + judgement.verdict.causal_pairs_never
    assert sum(finding.consequences for finding in found.findings) == pairs


@given(st.integers(0, 1 << 60))
def test_every_root_is_a_violation_with_a_shortest_path(seed: int) -> None:
    source = random.Random(seed)
    table, members = as_rows(source, any_execution(source))
    judgement = judge(execution(table, members))
    given = judgement.execution
    violations = {
        (given.name(each.process), given.show(each.cause), given.show(each.effect), each.late): each
        for each in judgement.violations()
    }
    for finding in judge_run("r", table, members).findings:
        violation = violations[finding.process, finding.cause, finding.effect, finding.late]
        path = judgement.path(violation)
        assert len(path) == len(finding.path)
        assert [finding.path[0], finding.path[-1]] == [finding.cause, finding.effect]


def test_long_streams_use_wider_counters(monkeypatch: pytest.MonkeyPatch) -> None:
    assert count_dtype(np.array([0, 65_534])) == np.uint16
    assert count_dtype(np.array([0, 65_535])) == np.int32
    for module in (causality, judging):
        monkeypatch.setattr(module, "count_dtype", lambda _: np.dtype(np.int32))
    for seed in range(60):
        source = random.Random(seed)
        table, members = as_rows(source, any_execution(source))
        assert judge_run("r", table, members).verdict == judge(execution(table, members)).verdict


def test_one_lost_message_is_one_finding() -> None:
    """p2 never has the first of p0, which everything after it depends on."""
    first, *others = [MessageId(0, seq) for seq in range(1, 51)]
    histories = [
        [Step(Kind.SEND, first), *(Step(Kind.SEND, message) for message in others)],
        [Step(Kind.DELIVER, message) for message in (first, *others)],
        [Step(Kind.DELIVER, message) for message in others],
    ]
    table, members = as_rows(random.Random(1), Execution(histories))
    found = judge_run("r", table, members)
    assert found.verdict.causal_pairs_never == 49
    (finding,) = found.findings
    assert (finding.cause, finding.effect, finding.consequences) == ("p0:1", "p0:2", 49)
    assert finding.text == (
        "p2 delivered p0:2 and never its cause p0:1: p0 sent p0:1 and then sent p0:2. "
        "48 more of its deliveries needed it."
    )
