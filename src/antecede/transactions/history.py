"""A history of transactions: what each session read and wrote, in which order, and what was committed.

Everything is in flat arrays, so that millions of operations fit in memory (14 bytes each, and 33 for each
transaction) and compiled code can walk them. Sessions, transactions and keys are numbered from 0. A session's
transactions are contiguous and in the order in which the session executed them, as are their operations.

A read does not say which transaction wrote what it saw. That follows from the value, so no two transactions
may write the same value to a key that is then read (such histories are called *differentiated*).
"""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


class Status(IntEnum):
    """How a transaction ended."""

    COMMITTED = 0
    ABORTED = 1
    UNKNOWN = 2
    """The client got no answer: it counts as committed if a committed transaction read one of its writes."""


class Operation(NamedTuple):
    """A read or a write of one key."""

    write: bool
    key: Hashable
    value: Hashable


@dataclass(frozen=True, eq=False)
class History:
    """Sessions of transactions, as arrays. Make one with `HistoryBuilder` or `from_columns`."""

    session_start: Ints
    """For each session its first transaction; at the end the number of transactions."""
    operation_start: Ints
    """For each transaction its first operation; at the end the number of operations."""
    status: npt.NDArray[np.int8]
    """For each transaction its `Status`."""
    write: Bools
    """For each operation whether it is a write."""
    key: npt.NDArray[np.int32]
    """For each operation its key, as a number from 0."""
    value: Ints
    """For each operation the value read or written; only equality counts."""
    initial_value: int | None
    """The initial value of every key; None if a read of something unwritten is an error."""
    session_ids: Ints
    transaction_ids: Ints
    key_ids: Ints
    """The names in the source: a number, or an index into the names below."""
    session_names: Sequence[str] | None = None
    transaction_names: Sequence[str] | None = None
    key_names: Sequence[str] | None = None
    value_names: Sequence[str] | None = None
    records: int | None = None
    """The number of records in the file, if these are not operations: invocations and their ends."""
    records_left_out: Sequence[int] = ()
    """Records that do not belong to a client, such as actions of a nemesis, by number."""

    @property
    def sessions(self) -> int:
        return len(self.session_start) - 1

    @property
    def transactions(self) -> int:
        return len(self.operation_start) - 1

    @property
    def operations(self) -> int:
        return len(self.key)

    @property
    def keys(self) -> int:
        return len(self.key_ids)

    def session_of(self, transaction: int) -> int:
        return int(np.searchsorted(self.session_start, transaction, side="right")) - 1

    def operations_of(self, transaction: int) -> list[tuple[bool, int, int]]:
        """The operations of a transaction as (is write, key, value)."""
        begin, end = self.operation_start[transaction : transaction + 2].tolist()
        columns = self.write[begin:end], self.key[begin:end], self.value[begin:end]
        return list(zip(*(column.tolist() for column in columns), strict=True))

    def session_name(self, session: int) -> str:
        return _name(self.session_ids[session], self.session_names)

    def transaction_name(self, transaction: int) -> str:
        number = self.transaction_ids[transaction]
        return f"T{number}" if self.transaction_names is None else self.transaction_names[number]

    def key_name(self, key: int) -> str:
        return _name(self.key_ids[key], self.key_names)

    def value_name(self, value: int) -> str:
        return _name(value, self.value_names)


def _name(number: Any, names: Sequence[str] | None) -> str:
    return str(number) if names is None else names[number]


def from_columns(
    session: Ints,
    transaction: Ints,
    write: Bools,
    key: Ints,
    value: Ints,
    *,
    status: npt.NDArray[np.int8] | None = None,
    initial_value: int | None = None,
    **names: Sequence[str] | None,
) -> History:
    """A history from one row per operation: its session, transaction, kind, key, value and, if given, status.

    A transaction is named by its session and its own number. Sessions, transactions and operations are in the
    order of their first rows. The `Status` of a transaction is that of its first row.
    """
    session, session_ids = _number_by_first_row(session)
    _, transactions = np.unique(transaction, return_inverse=True)
    span = int(transactions.max(initial=0)) + 1
    owner, first_rows = _transactions_by_session(session * span + transactions, session)
    status = np.zeros(len(session), np.int8) if status is None else status
    # Rows already in order, as in most files, need no sorting.
    rows = slice(None) if np.all(owner[1:] >= owner[:-1]) else np.argsort(owner, kind="stable")
    codes, keys = _number_by_first_row(key)
    operations = np.bincount(owner, minlength=len(first_rows))
    return History(
        session_start=np.searchsorted(session[first_rows], np.arange(len(session_ids) + 1)).astype(np.int64),
        operation_start=np.concatenate(([0], np.cumsum(operations))).astype(np.int64),
        status=status[first_rows].astype(np.int8),
        write=write[rows],
        key=codes[rows].astype(np.int32),
        value=value[rows].astype(np.int64),
        initial_value=initial_value,
        session_ids=session_ids,
        transaction_ids=transaction[first_rows],
        key_ids=keys,
        records=None,
        records_left_out=(),
        **names,
    )


def _number_by_first_row(ids: Ints) -> tuple[Ints, Ints]:
    """For each row a number from 0, in the order of first rows; and the id that each number stands for."""
    unique, first, codes = np.unique(ids, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    return rank[codes], unique[order].astype(np.int64)


def _transactions_by_session(names: Ints, session: Ints) -> tuple[Ints, Ints]:
    """For each row its transaction, numbered by session and then by first row; and those first rows."""
    _, first, codes = np.unique(names, return_index=True, return_inverse=True)
    order = np.lexsort((first, session[first]))
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    return rank[codes], first[order]


class HistoryBuilder:
    """Collects transactions, one after the other; keys and values may be anything hashable.

    A session's transactions are added in the order in which it executed them; sessions may alternate. A
    transaction without operations leaves no trace.

    >>> builder = HistoryBuilder(initial_value=None)
    >>> builder.add("ana", "T1", [Operation(True, "x", 1)])
    >>> builder.add("bo", "T2", [Operation(False, "x", 1)])
    >>> history = builder.build()
    >>> history.transactions, history.key_name(0), history.operations_of(1)
    (2, 'x', [(False, 0, 1)])
    """

    def __init__(self, initial_value: Hashable = None, *, has_initial_value: bool = True) -> None:
        self._sessions: dict[Hashable, int] = {}
        self._keys: dict[Hashable, int] = {}
        self._values: dict[Hashable, int] = {}
        self._transactions: list[str] = []
        self._columns = [array("q") for _ in range(6)]
        self._initial = self._values.setdefault(initial_value, 0) if has_initial_value else None

    def add(
        self,
        session: Hashable,
        transaction: str,
        operations: Iterable[Operation],
        status: Status = Status.COMMITTED,
    ) -> None:
        """Append a transaction to a session; `transaction` is its name in explanations."""
        number = len(self._transactions)
        self._transactions.append(transaction)
        place = self._sessions.setdefault(session, len(self._sessions))
        keys, values = self._keys, self._values
        for write, key, value in operations:
            row = place, number, int(write), keys.setdefault(key, len(keys))
            for column, cell in zip(
                self._columns, (*row, values.setdefault(value, len(values)), int(status)), strict=True
            ):
                column.append(cell)

    def build(self) -> History:
        session, transaction, write, key, value, status = (
            np.array(column, np.int64) for column in self._columns
        )
        return from_columns(
            session,
            transaction,
            write.astype(np.bool_),
            key,
            value,
            status=status.astype(np.int8),
            initial_value=self._initial,
            session_names=list(map(str, self._sessions)),
            transaction_names=self._transactions,
            key_names=list(map(str, self._keys)),
            value_names=["nothing" if value is None else str(value) for value in self._values],
        )
