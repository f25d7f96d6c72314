"""Dependency logs on Spark: the same verdict, word for word, as in one process and as by brute force."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from test_dependency_log import Record, brute_force, log
from typer.testing import CliRunner

from antecede import engine_choice
from antecede.audit.dependency_log import judge_dependency_log
from antecede.audit.dependency_log_on_spark import judge_dependency_log_on_spark
from antecede.cli.main import app

SAMPLES = Path(__file__).parent.parent / "sources" / "samples"


def random_log(rng: random.Random, prefix: str, ordered: bool) -> list[Record]:
    """A few records of a few processes: in a possible order, or in any, with everything that can be wrong."""
    ids = [f"{prefix}{name}" for name in "abcdefgh"[: rng.randint(1, 8)]]
    records: list[Record] = []
    for number in range(rng.randint(0, 10)):
        known = ids[:number] if ordered else ids
        name = ids[number % len(ids)] if ordered else rng.choice(ids)
        causes = rng.sample(known, min(len(known), rng.randint(0, 3)))
        seq = rng.choice([None, number if ordered else rng.randint(-2, 4)])
        time = rng.choice([None, -(2**63), -5, 0, 3, 7, 2**63 - 1])
        process = f"{prefix}{rng.choice('pqr')}"
        records.append((name, process, seq, causes, None if ordered else time))
    return records


def interleaved(rng: random.Random, logs: list[list[Record]]) -> list[Record]:
    """The records of all logs, of each in its order."""
    queues = [list(reversed(each)) for each in logs if each]
    records = []
    while queues:
        queue = rng.choice(queues[:3])  # so that a log's records are near each other
        records.append(queue.pop())
        if not queue:
            queues.remove(queue)
    return records


@pytest.mark.parametrize(
    ("seed", "logs", "part_rows"), [(1, 150, 16), (2, 150, 1 << 20), (3, 40, 1), (4, 0, 16), (5, 1, 4)]
)
def test_random_logs_equal_brute_force_on_both_engines(
    spark: SparkSession, seed: int, logs: int, part_rows: int
) -> None:
    """Many small logs that have nothing to do with each other, in one."""
    rng = random.Random(seed)
    parts = [random_log(rng, f"{number}/", number % 4 == 0) for number in range(logs)]
    records = interleaved(rng, parts)
    for limit in (10_000, 3):
        here = judge_dependency_log(log(records, 50), limit)
        there = judge_dependency_log_on_spark(log(records, 50), limit, part_rows=part_rows)
        assert there == here
    whole = judge_dependency_log(log(records, 50), 10_000)
    expected = [brute_force(each) for each in parts]
    for name in ("missing_ids", "missing_causes", "duplicate_records"):
        assert getattr(whole, name) == sum(each[name] for each in expected)
    assert whole.cycles == sum(len(each["cycles"]) for each in expected)
    assert {found.effect for found in whole.before_causes} == {e for each in expected for e in each["early"]}
    assert whole.skewed_pairs == sum(count for each in expected for count, _ in each["skew"].values())


def test_a_log_with_the_newest_record_first_is_one_block(spark: SparkSession) -> None:
    """A chain of causes against the order of the log, with a cycle at each end."""
    size = 60
    records: list[Record] = [
        (f"m{number}", f"p{number % 2}", -number, [f"m{number + 1}"], None) for number in range(size)
    ]
    records.append((f"m{size}", "p0", 5, [f"m{size - 1}"], None))
    records.append((f"m{size}", "p0", 6, [], None))
    here = judge_dependency_log(log(records), 100)
    assert (here.cycles, here.duplicate_records) == (1, 1)
    assert judge_dependency_log_on_spark(log(records), 100, part_rows=7) == here


def audited(*words: str | Path) -> dict[str, Any]:
    done = CliRunner().invoke(app, ["audit", *map(str, words), "--json"])
    assert done.exit_code in (0, 1), done.output
    found: dict[str, Any] = json.loads(done.output)
    return found


@pytest.mark.parametrize("name", ["otlp.json", "jaeger.json", "kcat.jsonl", "debezium.jsonl", "graph.jsonl"])
def test_sources_are_judged_alike_on_both_engines(spark: SparkSession, name: str) -> None:
    here, there = audited(SAMPLES / name), audited(SAMPLES / name, "--engine", "spark")
    assert (here.pop("engine"), there.pop("engine")) == ("local", "spark")
    assert (here["lineage"].pop("engine"), there["lineage"].pop("engine")) == ("local", "spark")
    assert there == here


def test_a_log_that_does_not_fit_goes_to_spark(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "graph.jsonl"
    rows = [{"id": f"m{n}", "author": "ana", "parents": [f"m{n - 1}"] if n else []} for n in range(40_000)]
    file.write_text("\n".join(map(json.dumps, rows)))
    monkeypatch.setattr(engine_choice, "free_memory", lambda: 10_000_000)
    found = audited(file)
    assert (found["engine"], found["records"], found["causes"], found["clean"]) == (
        "spark",
        40_000,
        39_999,
        True,
    )
    assert found["lineage"]["files"][0]["rows"] == 40_000
    assert audited(file, "--engine", "local")["engine"] == "local"
