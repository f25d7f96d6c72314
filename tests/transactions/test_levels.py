"""Verdicts: classic anomalies, published histories, and random histories judged by brute force."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from brute_force import BruteForce, brute_force_levels
from random_histories import random_history
from replicated_store import replicated_history

from antecede.errors import InputError
from antecede.transactions import LEVELS, HistoryBuilder, Operation, Status, check, read_history
from antecede.transactions.decide import Decision, violated_levels
from antecede.transactions.definitions import Definitions
from antecede.transactions.levels import IMPLIED, level_named
from antecede.transactions.order_graph import topological_order, with_demands
from antecede.transactions.reads_from import resolve

SAMPLES = Path(__file__).parent / "samples"
ALL = frozenset(LEVELS)
NONE: frozenset[str] = frozenset()

VERDICTS = {
    # What no level allows.
    "dirty_read": (NONE, "AbortedRead"),
    "intermediate_read": (NONE, "IntermediateRead"),
    "thin_air_read": (NONE, "ThinAirRead"),
    "own_write_lost": (NONE, "OwnWriteLost"),
    "future_read": (NONE, "FutureRead"),
    "causal_cycle": (NONE, "CyclicCO"),
    # What causal consistency forbids.
    "non_monotonic_read": (NONE, "WriteCORead"),
    "non_repeatable_read": ({"RC"}, "NonRepeatableRead"),
    "fractured_read": ({"RC"}, "FracturedRead"),
    "forgotten_write": ({"RC"}, "WriteCOInitRead"),
    "lost_causality": ({"RC", "RA"}, "WriteCOInitRead"),
    # What it allows, in some variants.
    "long_fork": (ALL, None),
    "lost_update": (ALL, None),
    "write_skew": (ALL, None),
    "two_orders": ({"CC", "CM"}, "NonMonotonicRead"),
    # Figure 3 of Bouajjani et al., POPL 2017: (a) to (e).
    "memory_not_convergent": ({"RC", "CC", "CM"}, "FracturedRead"),
    "convergent_not_memory": ({"RC", "RA", "CC", "CCv"}, "WriteHBInitRead"),
    "causal_only": ({"RC", "RA", "CC"}, "CyclicHB"),
    "causal_not_sequential": (ALL, None),
    "not_causal": ({"RC", "RA"}, "WriteCORead"),
}
"""The levels that each sample satisfies, and the pattern of the first that it does not."""


def test_every_sample_history_has_an_expected_verdict() -> None:
    assert {path.stem for path in SAMPLES.glob("*.txt")} == VERDICTS.keys()


@pytest.mark.parametrize("name", VERDICTS)
def test_classic_anomalies(name: str) -> None:
    satisfied, pattern = VERDICTS[name]
    history = read_history(SAMPLES / f"{name}.txt")
    verdict = check(history)
    assert {level for level, found in verdict.levels.items() if found.ok} == satisfied
    assert brute_force_levels(history) == {level: level in satisfied for level in LEVELS}
    patterns = [found.violation.pattern for found in verdict.levels.values() if found.violation]
    assert patterns[:1] == ([pattern] if pattern else [])


def test_published_verdicts(real_traces: Path) -> None:
    """AWDIT's folders name the strongest level; its "causal" is causal convergence (see levels.py)."""
    folders = {"read-committed": {"RC"}, "read-atomic": {"RC", "RA"}, "causal": {"RC", "RA", "CCv"}}
    histories = [path for folder in folders for path in (real_traces / "histories" / folder).glob("*.txt")]
    assert len(histories) >= 10
    for path in histories:
        verdict = check(read_history(path))
        satisfied = {level for level in ("RC", "RA", "CCv") if verdict.levels[level].ok}
        assert satisfied == folders[path.parent.name], path


@pytest.mark.parametrize("block", range(10))
def test_random_histories_equal_brute_force(block: int) -> None:
    for seed in range(40 * block, 40 * (block + 1)):
        history = random_history(seed)
        found = {level: verdict.ok for level, verdict in check(history).levels.items()}
        assert found == brute_force_levels(history), seed


def test_no_larger_causal_order_satisfies_more_than_the_least() -> None:
    """The definitions allow any causal order that contains session order; none does better than the least."""
    for seed in range(150):
        history = random_history(seed, transactions=3)
        brute = BruteForce(history)
        least = brute.levels()
        any_order = brute.with_any_causal_order()
        assert any_order == {level: least[level] for level in any_order}, seed


@pytest.mark.parametrize("by_timestamp", [True, False])
@pytest.mark.parametrize("faults", [0, 0.02])
def test_compiled_checkers_equal_the_readable_definitions(by_timestamp: bool, faults: float) -> None:
    """On histories too large for brute force; each level decided alone and together with the others."""
    found = Counter[str]()
    for seed in range(25):
        history = replicated_history(seed, by_timestamp=by_timestamp, faults=faults)
        resolved, _ = resolve(history)
        definitions = Definitions(resolved)
        expected = {level: definitions.violation(level) is None for level in LEVELS}
        together = violated_levels(resolved)
        assert {level: together[level] is None for level in LEVELS} == expected, seed
        alone = {level: violated_levels(resolved, [level])[level] is None for level in LEVELS}
        assert alone == expected, seed
        found.update(level for level in LEVELS if not expected[level])
    if not faults:  # a store with causal delivery is what its way of resolving conflicts makes it
        assert found["CC"] == 0
        assert (found["CCv"] > 0, found["CM"] > 0) == (not by_timestamp, by_timestamp)


def test_levels_imply_others_as_documented() -> None:
    for seed in range(200):
        found = {level: verdict.ok for level, verdict in check(random_history(seed)).levels.items()}
        for level, weaker in IMPLIED.items():
            assert not found[level] or all(found[other] for other in weaker), seed


def test_an_unknown_transaction_counts_as_committed_if_it_was_read() -> None:
    def history(reads: bool) -> bool:
        builder = HistoryBuilder(0)
        builder.add("a", "T1", [Operation(True, "x", 1)], Status.UNKNOWN)
        builder.add("b", "T2", [Operation(False, "x", 1 if reads else 0), Operation(True, "y", 1)])
        builder.add("c", "T3", [Operation(False, "y", 1), Operation(False, "x", 0)])
        return check(builder.build()).levels["CC"].ok

    assert history(reads=False)
    assert not history(reads=True)


def test_a_level_has_several_spellings() -> None:
    assert [level_named(text) for text in ("cc", "CAUSAL", "causal-memory", "read committed")] == [
        "CC",
        "CC",
        "CM",
        "RC",
    ]


def test_an_empty_history_satisfies_everything() -> None:
    assert check(HistoryBuilder().build()).clean


def test_a_sub_history_keeps_sessions_and_internal_reads() -> None:
    resolved, _ = resolve(read_history(SAMPLES / "not_causal.txt"))
    part = resolved.restrict(np.array([True, False, True, False, False, True]))
    assert part.session_start.tolist() == [0, 1, 2, 3]
    assert part.read_writer.tolist() == [0]
    assert part.source.tolist() == [0, 2, 5]


def test_all_faults_are_counted_and_the_first_explained(tmp_path: Path) -> None:
    path = tmp_path / "history.txt"
    rows = [f"r({number},7,1,{number})\n" for number in range(1, 301)]
    path.write_text("w(1,1,0,0)\n" + "".join(rows) + "w(2,5,1,301)\nr(2,6,1,301)\n")
    verdict = check(read_history(path), examples=3)
    assert verdict.faults == {"ThinAirRead": 300, "OwnWriteLost": 1}
    texts = [found.text for found in verdict.fault_examples]
    assert texts == [f"T{number} (session 1) read {number}=7, which nobody wrote" for number in (1, 2, 3)]


def test_more_sessions_than_vector_clocks_can_hold_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("antecede.transactions.decide._MOST_STEPS", 10)
    history = replicated_history(1)
    with pytest.raises(
        InputError, match=r"reads × 4 sessions are too many: .* --level RA or RC can be decided"
    ):
        check(history)
    assert check(history, ["RA"]).clean


def test_sessions_that_clocks_certify_satisfy_causal_memory() -> None:
    """The shortcut that spares sessions a pass over the whole history may be undecided but never wrong."""
    certified = violated = undecided = 0
    for seed in range(120):
        rng = random.Random(seed)
        history = replicated_history(
            seed, sessions=rng.randint(2, 6), transactions=rng.randint(20, 80), keys=rng.randint(2, 8)
        )
        resolved, faults = resolve(history, 1)
        assert not faults.first
        decision = Decision(resolved)
        if decision.convergence is not None:
            continue
        demands = decision.demands.before, decision.demands.after
        decision.order = topological_order(*with_demands(resolved, *demands))
        swept = set(decision.sessions_to_sweep())
        for session in range(len(resolved.session_start) - 1):
            holds = decision.against_session(session) is None
            assert holds or session in swept, (seed, session)
            certified += session not in swept
            violated += not holds
            undecided += holds and session in swept
    assert certified > 300
    assert violated > 10
    assert undecided < certified / 5
