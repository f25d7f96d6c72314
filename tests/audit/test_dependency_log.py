"""The verdict on dependency logs, beside a brute force that follows the definitions."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from antecede.audit.dependency_log import judge_dependency_log
from antecede.sources.dependency_log import SCHEMA

Record = tuple[str, str, int | None, list[str], int | None]


def log(records: list[Record], batch: int = 3) -> list[pa.Table]:
    """A log in several batches, as readers yield it."""
    rows = [
        {"id": i, "process": p, "seq": s, "causes": c, "time": t, "file": f"f{n % 2}", "row": n + 1}
        for n, (i, p, s, c, t) in enumerate(records)
    ]
    return [pa.Table.from_pylist(rows[at : at + batch], schema=SCHEMA) for at in range(0, len(rows), batch)]


names = st.sampled_from("abcdefgh")
records_strategy = st.lists(
    st.tuples(
        names,
        st.sampled_from("pqr"),
        st.none() | st.integers(-2, 4),
        st.lists(names, max_size=3, unique=True),
        st.none() | st.sampled_from([-(2**63), -5, 0, 3, 7, 2**63 - 1]),
    ),
    max_size=9,
)


def brute_force(records: list[Record]) -> dict[str, Any]:
    first = {record[0]: record for record in reversed(records)}
    edges = {(c, e) for e, record in first.items() for c in record[3] if c in first}
    missing = [(e, c) for e, record in first.items() for c in record[3] if c not in first]

    def closure(pairs: set[tuple[str, str]]) -> set[tuple[str, str]]:
        while more := {(a, d) for a, b in pairs for c, d in pairs if b == c} - pairs:
            pairs = pairs | more
        return pairs

    reach = closure(edges)
    cycles = {frozenset(b for b in first if (a, b) in reach and (b, a) in reach) for a in first} - {
        frozenset()
    }
    around = {(a, b) for a, b in edges if any(a in each and b in each for each in cycles)}
    causal = closure(edges - around)
    early = set()
    for a, b in causal:
        cause, effect = first[a], first[b]
        if cause[1] == effect[1] and cause[2] is not None and effect[2] is not None and effect[2] < cause[2]:
            early.add(b)
    skew: dict[tuple[str, str], list[int]] = {}
    for a, b in edges:
        before, after = first[a][4], first[b][4]
        if before is not None and after is not None and after < before:
            skew.setdefault((first[a][1], first[b][1]), []).append(before - after)
    return {
        "missing_ids": len({c for _, c in missing}),
        "missing_causes": len(missing),
        "duplicate_records": len(records) - len(first),
        "cycles": cycles,
        "early": early,
        "skew": {pair: (len(behind), max(behind)) for pair, behind in skew.items()},
        "reach": causal,
    }


@given(records_strategy)
def test_the_verdict_equals_a_brute_force(records: list[Record]) -> None:
    found = judge_dependency_log(log(records), limit=100)
    expected = brute_force(records)
    for name in ("missing_ids", "missing_causes", "duplicate_records"):
        assert getattr(found, name) == expected[name]
    assert sum(each.effects for each in found.missing) == found.missing_causes
    assert sum(each.records - 1 for each in found.duplicates) == found.duplicate_records
    assert found.cycles == len(expected["cycles"]) == len(found.cycle_list)
    edges = {(c, e) for e, record in reversed([(r[0], r) for r in records]) for c in record[3]}
    for cycle in found.cycle_list:
        steps = zip(cycle.path, [*cycle.path[1:], cycle.path[0]], strict=True)
        assert all(step in edges for step in steps)
        assert any(set(cycle.path) <= each and len(each) == cycle.records for each in expected["cycles"])
    assert {each.effect for each in found.before_causes} == expected["early"]
    assert found.effects_before_causes == len(expected["early"])
    first = {record[0]: record for record in reversed(records)}
    for each in found.before_causes:
        assert (each.path[0], each.path[-1]) == (each.cause, each.effect)
        assert all(a in first[b][3] for a, b in zip(each.path, each.path[1:], strict=False))
        cause, effect = first[each.cause], first[each.effect]
        assert cause[1] == effect[1] == each.process
        assert cause[2] is not None
        assert effect[2] is not None
        assert effect[2] < cause[2]
    skew = {(each.cause_process, each.effect_process): (each.effects, each.largest) for each in found.skew}
    assert skew == expected["skew"]
    assert found.clean is not bool(
        expected["missing_ids"] or expected["duplicate_records"] or expected["cycles"] or expected["early"]
    )


def test_witnesses_are_sentences() -> None:
    records: list[Record] = [
        ("effect", "orders-0", 3, ["between"], 10),
        ("between", "stock-0", 1, ["cause"], 20),
        ("cause", "orders-0", 5, ["lost"], 30),
        ("cause", "orders-0", 5, [], 30),
        ("x", "loop", None, ["y"], None),
        ("y", "loop", None, ["x"], None),
    ]
    found = judge_dependency_log(log(records))
    assert found.missing[0].text == "lost is missing: it is a cause of cause of orders-0 (f0, row 3)"
    assert found.duplicates[0].text == "cause of orders-0 occurs 2 times: f0, row 3 and f1, row 4"
    assert found.cycle_list[0].text == "2 records are causes of each other: x → y → x"
    assert found.before_causes[0].text == (
        "orders-0 has effect at 3 (f0, row 1) before its cause cause at 5 (f0, row 3), through "
        "cause → between → effect"
    )
    assert [each.text for each in found.skew] == [
        "1 of 1 effects at stock-0 have a time before their cause's at orders-0, by up to 10 ns: between "
        "before cause",
        "1 of 1 effects at orders-0 have a time before their cause's at stock-0, by up to 10 ns: effect "
        "before between",
    ]
    assert not found.clean


def test_a_skew_of_clocks_is_no_violation() -> None:
    found = judge_dependency_log(log([("a", "p", None, [], 9), ("b", "q", None, ["a"], 2)]))
    assert found.clean
    assert found.skewed_pairs == 1


def test_many_records_with_equal_numbers_are_not_compared_pairwise() -> None:
    """100,000 records of one process that share two numbers are not compared pairwise."""
    records: list[Record] = [(str(n), "p", n % 2, [], None) for n in range(100_000)]
    records[0] = ("0", "p", 0, ["1"], None)
    found = judge_dependency_log(log(records, 50_000))
    assert [(each.effect, each.cause) for each in found.before_causes] == [("0", "1")]


def test_an_empty_log_is_clean() -> None:
    assert judge_dependency_log([]).clean
