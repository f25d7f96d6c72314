"""The compiled passes agree with the oracle on any log, however faulty."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from antecede import jit
from antecede.audit import core as judging
from antecede.audit import passes as causality
from antecede.audit.core import RunAudit, judge_run
from antecede.causality import Execution, Kind, MessageId, Step, judge
from antecede.causality.transitive_closure import count_dtype
from antecede.jit import interpreted
from antecede.trace.execution_from_rows import execution
from random_executions import any_execution, as_rows

jit.import_numba()  # so that only runs explicitly set to be interpreted are


@given(st.integers(0, 1 << 60))
@example(78)
@example(162)
def test_compiled_passes_agree_with_the_oracle(seed: int) -> None:
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


@given(st.integers(0, 1 << 60))
@example(78)
@example(162)
def test_without_a_compiler_the_verdict_is_the_same(seed: int) -> None:
    source = random.Random(seed)
    table, members = as_rows(source, any_execution(source))
    with interpreted():
        found = judge_run("r", table, members)
    assert found == judge_run("r", table, members)


def test_the_amount_of_interpreted_work_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "numba", raising=False)
    interpreter = jit._Interpreter()
    assert interpreter.takes(1_500_000)
    assert not interpreter.takes(600_000)
    assert interpreter.takes(500_000)
    monkeypatch.setitem(sys.modules, "numba", ModuleType("numba"))
    assert not jit._Interpreter().takes(1)


def test_interpretation_switches_to_compiled_code_when_it_takes_too_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compiled = [judged(seed) for seed in range(20)]
    monkeypatch.setattr(jit, "_MAX_CALLS", 20)
    monkeypatch.setattr(jit._Interpreter, "takes", lambda *_: True)
    assert [judged(seed) for seed in range(20)] == compiled


def judged(seed: int) -> RunAudit:
    source = random.Random(seed)
    table, members = as_rows(source, any_execution(source))
    return judge_run("r", table, members)


def test_a_small_audit_needs_no_compiler(tmp_path: Path) -> None:
    log = "".join(
        f"{process},{index},{kind},{message}\n"
        for process, index, kind, message in (
            ("process", "index", "kind", "message"),
            ("ana", 1, "send", "question"),
            ("bo", 1, "deliver", "question"),
            ("bo", 2, "send", "answer"),
            ("cleo", 1, "deliver", "answer"),
            ("cleo", 2, "deliver", "question"),
        )
    )
    (tmp_path / "log.csv").write_text(log)
    code = (
        "import sys; sys.modules['numba'] = None; from antecede.cli.main import main;"
        "sys.argv[1:] = ['audit', 'log.csv', '--map', 'message=message']; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (1, "")
    assert "cleo delivered answer before its cause question" in done.stdout


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
    """p2 never delivers p0's first message, on which everything later depends."""
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
