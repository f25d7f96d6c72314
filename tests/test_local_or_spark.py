"""Where an analysis runs: by choice, by the presence of a cluster, or by size."""

from __future__ import annotations

import pytest

from antecede import engine_choice
from antecede.engine_choice import MAX_LOCAL_ROWS, check_engine, free_memory, wants_spark
from antecede.errors import InputError


@pytest.mark.parametrize(
    ("engine", "master", "rows", "expected"),
    [
        ("auto", None, MAX_LOCAL_ROWS, False),
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


def test_what_does_not_fit_into_free_memory_goes_to_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_REMOTE", raising=False)
    assert 1 << 20 < free_memory() < 1 << 50
    assert not wants_spark("auto", None, lambda: 10, lambda rows: rows * free_memory() // 100)
    assert wants_spark("auto", None, lambda: 10, lambda rows: rows * free_memory())
    assert not wants_spark("local", None, lambda: 10, lambda rows: rows * free_memory())
