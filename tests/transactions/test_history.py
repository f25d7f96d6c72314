"""The history type: rows in any order become sessions of transactions, with the source's own names."""

from __future__ import annotations

import numpy as np

from antecede.transactions import HistoryBuilder, Status
from antecede.transactions.history import Operation, from_columns


def test_rows_of_several_sessions_are_grouped_in_the_order_of_their_first_rows() -> None:
    session = np.array([7, 3, 7, 3, 7])
    transaction = np.array([1, 1, 2, 1, 1])
    write = np.array([True, True, False, False, True])
    history = from_columns(session, transaction, write, np.array([50, 60, 50, 50, 60]), np.arange(5))
    assert (history.sessions, history.transactions, history.operations, history.keys) == (2, 3, 5, 2)
    assert history.session_start.tolist() == [0, 2, 3]
    assert [history.session_name(session) for session in range(2)] == ["7", "3"]
    assert [history.transaction_name(number) for number in range(3)] == ["T1", "T2", "T1"]
    assert history.operations_of(0) == [(True, 0, 0), (True, 1, 4)]
    assert history.operations_of(2) == [(True, 1, 1), (False, 0, 3)]
    assert [history.session_of(number) for number in range(3)] == [0, 0, 1]
    assert history.key_name(1) == "60"


def test_a_builder_takes_any_keys_and_values() -> None:
    builder = HistoryBuilder()
    builder.add("p0", "op 4", [Operation(False, "x", None), Operation(True, ("y", 1), "text")])
    builder.add("p1", "op 5", [Operation(True, "x", 1)], Status.ABORTED)
    builder.add("p0", "op 6", [Operation(True, "x", 2)], Status.UNKNOWN)
    history = builder.build()
    assert history.initial_value == 0
    assert history.status.tolist() == [Status.COMMITTED, Status.UNKNOWN, Status.ABORTED]
    assert history.transaction_name(2) == "op 5"
    assert history.key_name(1) == "('y', 1)"
    assert history.value_name(0) == "nothing"


def test_a_history_may_be_empty() -> None:
    assert HistoryBuilder().build().transactions == 0
