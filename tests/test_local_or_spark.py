"""Where an analysis runs: by choice, by the presence of a cluster, or by size."""

from __future__ import annotations

import pytest

from antecede.engine_choice import MAX_LOCAL_ROWS, check_engine, wants_spark
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
    assert wants_spark(engine, master, lambda: rows) == expected


def test_a_remote_session_is_a_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_REMOTE", "sc://host:15002")
    assert wants_spark("auto", None, lambda: 1)


def test_an_unknown_engine_is_refused() -> None:
    with pytest.raises(InputError, match="no engine 'flink'; choose auto, local or spark"):
        check_engine("flink")
