"""Faults planted at random in simulated runs of 200 peers: the audit reports just what the oracle does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from antecede.audit.core import MAX_VIOLATIONS, Finding, judge_run
from antecede.causality import Judgement, judge
from antecede.sim.record import simulate_to
from antecede.sim.scenario import scenario
from antecede.trace.execution_from_rows import execution
from antecede.trace.reader import read_metas
from antecede.trace.schema import Members, Meta
from planted import spoil

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PEERS = 200
FAULTS = (1, 10, 1_000)
NEAR, FAR = 30, 1 << 30
"""How far events are displaced. Far-displaced deliveries often precede their own send and create cycles."""
ALL = 100_000
"""The limit on findings, high enough that none is cut off."""
OVERLAPPING = {f"g{number}": tuple(range(30 * number, 30 * number + 60)) for number in range(5)}
SMALL = {
    "timestamp": scenario(protocol="timestamp", peers=PEERS, workload="poisson", rate=0.3, seconds=1),
    "mbcp": scenario(protocol="mbcp", peers=PEERS, senders=20, rate=4, seconds=0.5, delay="wild:1us-1s"),
    "multigroup": scenario(
        protocol="multigroup", peers=PEERS, workload="poisson", rate=0.5, seconds=1, groups=OVERLAPPING
    ),
}
LARGE = scenario(protocol="timestamp", peers=PEERS, seconds=0.5)


class Run(NamedTuple):
    rows: pa.Table
    members: Members


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    folder = tmp_path_factory.mktemp("small")
    for name, each in SMALL.items():
        simulate_to(folder / name, each)
    return {name: read(folder / name) for name in SMALL}


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Sends and deliveries, about 190,000 of them, with a thousand faults."""
    folder = tmp_path_factory.mktemp("large")
    simulate_to(folder, LARGE, receives=False, engine="event")
    run = read(folder)
    return run._replace(rows=spoil(run.rows, seed=1, faults=FAULTS[-1], reach=200).rows)


def read(trace: Path) -> Run:
    parts = (pq.read_table(part) for part in sorted(trace.glob("*.parquet")))
    (meta,) = read_metas(trace)
    return Run(pa.concat_tables(parts), meta.groups)


@given(
    st.integers(0, 1 << 60),
    st.sampled_from(sorted(SMALL)),
    st.sampled_from(FAULTS),
    st.sampled_from((NEAR, FAR)),
)
def test_the_audit_and_the_oracle_agree_on_planted_faults(
    small: dict[str, Run], seed: int, which: str, faults: int, reach: int
) -> None:
    run = small[which]
    spoilt = spoil(run.rows, seed, faults, reach)
    judgement = judge(execution(spoilt.rows, run.members))
    found = judge_run("r", spoilt.rows, run.members, ALL)
    assert found.verdict == judgement.verdict
    assert (found.verdict.missing, found.verdict.duplicates) == (spoilt.dropped, spoilt.repeated)
    check_findings(found.findings, judgement)


def check_findings(findings: Iterable[Finding], judgement: Judgement) -> None:
    """Every cause that was late or missing, with the first delivery that needed it and how many did."""
    given, verdict = judgement.execution, judgement.verdict
    needed: Counter[tuple[str, str, bool]] = Counter()
    first: dict[tuple[str, str, bool], str] = {}
    for process, cause, effect, late in judgement.violations():
        root = given.name(process), given.show(cause), late
        needed[root] += 1
        first.setdefault(root, given.show(effect))
    told = {(each.process, each.cause, each.late): each for each in findings}
    assert {root: each.consequences for root, each in told.items()} == needed
    assert {root: each.effect for root, each in told.items()} == first
    assert sum(needed.values()) == verdict.causal_pairs_late + verdict.causal_pairs_never


def test_a_large_run_with_a_thousand_faults(large: Run) -> None:
    judgement = judge(execution(large.rows, large.members))
    found = judge_run("r", large.rows, large.members, ALL)
    assert found.verdict == judgement.verdict
    assert min(found.verdict.causal_pairs_late, found.verdict.causal_pairs_never) > 10_000
    assert found.verdict.impossible
    check_findings(found.findings, judgement)


def test_many_tasks_judge_a_large_run_with_a_thousand_faults(spark: SparkSession, large: Run) -> None:
    from antecede.audit.on_spark import audit
    from antecede.spark.read import members_frame

    (run,) = large.rows.column("run").unique().to_pylist()
    alone = judge_run(run, large.rows, large.members, ALL)
    members = members_frame(spark, [Meta(run, dict(large.members))])
    shared = audit(spark.createDataFrame(large.rows), members, large_run=0)
    assert shared.total() == alone.verdict
    assert shared.tally(run) == alone.tally
    told = {root_of(each): len(each.path) for each in alone.findings}
    worst = shared.first(MAX_VIOLATIONS)
    assert len(worst) == MAX_VIOLATIONS
    assert all(told[root_of(each)] == len(each.path) for each in worst)
    shared.release()


def root_of(finding: Finding) -> tuple[str, str, str, bool, int]:
    return finding.process, finding.cause, finding.effect, finding.late, finding.consequences
