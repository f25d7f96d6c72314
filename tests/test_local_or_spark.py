"""Where an analysis runs: by choice, by the presence of a cluster, or by size."""

from __future__ import annotations

import pytest

from antecede import engine_choice
from antecede.engine_choice import MAX_LOCAL_ROWS, EngineCosts, check_engine, free_memory, wants_spark
from antecede.errors import InputError


@pytest.mark.parametrize(
    ("engine", "master", "rows", "expected"),
    [
        ("auto", None, 20_000_000, False),
        ("auto", None, MAX_LOCAL_ROWS + 1, True),
        ("auto", "sc://host:15002", 1, True),
        ("local", "sc://host:15002", MAX_LOCAL_ROWS + 1, False),
        ("spark", None, 1, True),
    ],
)
def test_choice_then_cluster_then_size(
    engine: str, master: str | None, rows: int, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SPARK_REMOTE", raising=False)
    monkeypatch.setattr(engine_choice, "free_memory", lambda: 1 << 50)
    assert wants_spark(engine, master, lambda: rows) == expected


def test_a_remote_session_is_a_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_REMOTE", "sc://host:15002")
    assert wants_spark("auto", None, lambda: 1)


def test_an_unknown_engine_is_refused() -> None:
    with pytest.raises(InputError, match="no engine 'flink'; choose auto, local or spark"):
        check_engine("flink")


def test_input_larger_than_free_memory_goes_to_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_REMOTE", raising=False)
    free = free_memory()
    assert 1 << 20 < free < 1 << 50
    assert not wants_spark("auto", None, lambda: 10, count_bytes=lambda: free // 10)
    assert wants_spark("auto", None, lambda: 10, count_bytes=lambda: 10 * free)
    assert not wants_spark("local", None, lambda: 10, count_bytes=lambda: 10 * free)


def test_spark_is_chosen_when_its_cores_outweigh_its_startup_time() -> None:
    costs = EngineCosts(row_bytes=100, here=4.0, spark_start=20, on_spark=10.0)
    assert costs.crossover(2) == float("inf")
    assert costs.crossover(10) == pytest.approx(20e6 / 3)
    for rows in (1e5, 1e6, 1e7, 1e8):
        for cores in (1, 2, 4, 16, 64):
            here, there = rows / 1e6 * 4.0, 20 + rows / 1e6 * 10.0 / cores
            chosen = there if rows > costs.crossover(cores) else here
            assert chosen <= 1.2 * min(here, there)
