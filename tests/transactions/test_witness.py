"""Witnesses: small, minimal, and in words that a person can verify in the history."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from random_histories import random_history
from replicated_store import replicated_history

from antecede.transactions import LEVELS, HistoryBuilder, Operation, check, read_history
from antecede.transactions.decide import violated_levels
from antecede.transactions.reads_from import resolve

SAMPLES = Path(__file__).parent / "samples"

SENTENCES = {
    ("dirty_read", "CC"): "T1 (session 1) read 1=1 from T-1 (session 0), which did not commit",
    (
        "intermediate_read",
        "CC",
    ): "T1 (session 1) read 1=1 from T0 (session 0), which overwrote it before it committed",
    ("thin_air_read", "CC"): "T1 (session 1) read 1=7, which nobody wrote",
    ("own_write_lost", "CC"): "T1 (session 1) read 1=1 after it had itself written 1=2",
    ("future_read", "CC"): "T0 (session 0) read 1=1 before it wrote it itself",
    ("causal_cycle", "CC"): "T1 (session 1) and T2 (session 2) precede each other in a circle",
    ("non_repeatable_read", "CC"): "T3 (session 3) read x=1 from T2, and also x=0 from T1",
    (
        "lost_causality",
        "CC",
    ): "T4 (session 2) read 1=0, its initial value, although it had seen T0, which wrote 1=1",
    (
        "not_causal",
        "CC",
    ): "T5 (session 2) read 1=1 from T0, although it had seen T3, which overwrote it after T0",
    (
        "fractured_read",
        "CC",
    ): "T1 (session 1) and T2 (session 2) cannot be put in one order that explains what T3 (session 3) read",
    (
        "memory_not_convergent",
        "CCv",
    ): "T0 (session 0) and T2 (session 1) cannot be put in one order on which all "
    "sessions agree that explains what T1 (session 0) and T3 (session 1) read",
}


@pytest.mark.parametrize(("name", "level"), SENTENCES)
def test_each_sample_violation_is_described_in_a_sentence(name: str, level: str) -> None:
    violation = check(read_history(SAMPLES / f"{name}.txt")).levels[level].violation
    assert violation is not None
    assert violation.text == SENTENCES[name, level]


def test_a_violation_lists_the_supporting_facts() -> None:
    violation = check(read_history(SAMPLES / "not_causal.txt")).levels["CC"].violation
    assert violation is not None
    assert violation.because == [
        "T1 came after T0 in session 0",
        "T2 read 2=1 from T1",
        "T3 came after T2 in session 1",
        "T4 read 1=2 from T3",
        "T5 came after T4 in session 2",
    ]
    assert [(found.name, found.session, found.operations) for found in violation.transactions[:2]] == [
        ("T0", "0", ["wrote 1=1"]),
        ("T1", "0", ["wrote 2=1"]),
    ]


def test_derived_facts_are_listed_after_their_premises() -> None:
    """Causal memory: T4 saw z=0, so what T5 saw cannot have been there."""
    violation = check(read_history(SAMPLES / "convergent_not_memory.txt")).levels["CM"].violation
    assert violation is not None
    assert (
        violation.text
        == "T4 (session 1) read 3=0, its initial value, although it had seen T0, which wrote 3=1"
    )
    assert violation.because == [
        "T6 (session 1) read 1=2 from T3, and had seen T1, which wrote 1=1 (T2 came after T1 in session 0; "
        "T5 read 2=1 from T2; T6 came after T5 in session 1), so T1 has to come before T3",
        "T1 came after T0 in session 0",
        "T1 has to come before T3",
        "T4 came after T3 in session 1",
    ]


def test_a_witness_is_as_small_as_any_part_that_violates_the_level() -> None:
    """Tried against every part of small histories; only a cycle of the causal order is always named first."""
    judged = 0
    for seed in range(250):
        history = random_history(seed)
        resolved, faults = resolve(history)
        if faults.counts:
            continue
        for level, verdict in check(history).levels.items():
            if verdict.violation is None or verdict.violation.pattern == "CyclicCO":
                continue
            judged += 1
            size = len(verdict.violation.transactions)
            for chosen in combinations(range(resolved.transactions), size - 1):
                mask = np.isin(np.arange(resolved.transactions), chosen)
                assert violated_levels(resolved.restrict(mask), [level])[level] is None, (seed, level)
    assert judged > 100


@pytest.mark.parametrize("by_timestamp", [True, False])
def test_no_transaction_of_a_witness_can_be_left_out(by_timestamp: bool) -> None:
    """Of histories in which the search is compiled, since they are too large for the readable one."""
    levels = set()
    for seed in range(12):
        history = replicated_history(
            seed, transactions=400, by_timestamp=by_timestamp, faults=0.002 * (seed % 3)
        )
        resolved, _ = resolve(history)
        names = [history.transaction_name(number) for number in range(history.transactions)]
        for level, verdict in check(history).levels.items():
            if verdict.violation is None:
                continue
            levels.add(level)
            witness = {found.name for found in verdict.violation.transactions}
            assert len(witness) <= 12
            for left_out in (None, *witness):
                mask = np.array([name in witness and name != left_out for name in names])
                violated = violated_levels(resolved.restrict(mask), [level])[level] is not None
                assert violated == (left_out is None), (seed, level, left_out)
    assert levels >= ({"CM"} if by_timestamp else {"CCv", "RA"})


def test_a_long_cycle_does_not_hide_a_shorter_one() -> None:
    """Two violations in a large history: a cycle through many sessions, and one of two transactions."""
    builder = HistoryBuilder(0)
    for number in range(80):
        here, there = number, (number + 1) % 80
        operations = [Operation(False, f"k{here}", here + 1), Operation(True, f"k{there}", there + 1)]
        builder.add(number, f"A{number}", operations)
    builder.add("p", "P", [Operation(False, "q", "q"), Operation(True, "p", "p")])
    builder.add("q", "Q", [Operation(False, "p", "p"), Operation(True, "q", "q")])
    for verdict in check(builder.build()).levels.values():
        assert verdict.violation is not None
        assert {found.name for found in verdict.violation.transactions} == {"P", "Q"}


def test_foreign_names_are_shown_unchanged() -> None:
    builder = HistoryBuilder()
    builder.add("worker-7", "index 12", [Operation(True, "account/3", 5)])
    builder.add("worker-8", "index 13", [Operation(False, "account/3", 5)])
    builder.add("worker-8", "index 14", [Operation(False, "account/3", None)])
    violation = check(builder.build(), ["CC"]).levels["CC"].violation
    assert violation is not None
    assert violation.text == (
        "index 14 (session worker-8) read account/3=nothing, its initial value, although it had seen "
        "index 12, which wrote account/3=5"
    )


def test_levels_that_were_not_asked_for_are_not_decided() -> None:
    history = read_history(SAMPLES / "not_causal.txt")
    assert list(check(history, ["RA"]).levels) == ["RA"]
    assert check(history, ["RA"]).clean
    assert list(check(history).levels) == list(LEVELS)


def test_a_witness_against_a_weaker_level_is_one_against_the_stronger() -> None:
    """A witness against CC is also one against CM and CCv, unless a smaller one exists."""
    for seed in range(12):
        history = replicated_history(seed, transactions=400, by_timestamp=False, faults=0.01)
        levels = check(history).levels
        for weaker, stronger in (("CC", "CM"), ("CC", "CCv"), ("RA", "CCv"), ("RC", "RA")):
            weak, strong = levels[weaker].violation, levels[stronger].violation
            if weak is not None:
                assert strong is not None
                assert len(strong.transactions) <= len(weak.transactions)
