"""Which write every read saw, and the reads that no level of consistency allows.

A read after a write of the same transaction must return that write (it is *internal*). Every other read is
*external*: it saw the last write of a committed transaction, or the initial value. What is left are faults:

- ThinAirRead: nobody wrote the value (Bouajjani et al., POPL 2017);
- AbortedRead (Adya's G1a, a dirty read): a transaction wrote it that did not commit;
- IntermediateRead (G1b): its transaction overwrote it before it committed;
- OwnWriteLost: the transaction had itself written something else;
- FutureRead: the transaction itself wrote it, afterwards.

Writes are found by a hash table whose seed is random, so that nobody can choose keys and values that collide.
Linear in the number of operations.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from antecede.compiled.splitmix64 import STEP, mix
from antecede.errors import InputError
from antecede.jit import njit_hot
from antecede.transactions.history import Bools, History, Ints, Status

INITIAL = -1
"""The writer of initial values: a transaction before all others."""

_EXTERNAL, _INTERNAL, _OWN_WRITE_LOST = 1, 2, 3

Codes = npt.NDArray[np.int32]


class ReadFault(NamedTuple):
    """A read that no level allows."""

    pattern: str
    operation: int
    """The read, as a number of an operation of the history."""
    write: int
    """The write that the read saw or should have seen, or -1."""


@dataclass(frozen=True)
class ReadFaults:
    """The number of reads with each fault, and the first of them."""

    counts: dict[str, int]
    first: list[ReadFault]


@dataclass(frozen=True, eq=False)
class ReadsFrom:
    """Committed transactions, their final writes, and the transactions they read from.

    Uncommitted transactions are included without operations. Reads are in the order of their transactions,
    written keys are sorted.
    """

    session_start: Ints
    read_start: Ints
    read_key: Codes
    read_writer: Codes
    write_start: Ints
    write_key: Codes
    keys: int
    source: Ints
    """For each transaction, its number in the history."""

    @property
    def transactions(self) -> int:
        return len(self.source)

    def session_of(self) -> Codes:
        """For each transaction, its session."""
        sizes = np.diff(self.session_start)
        return np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)

    def restrict(self, chosen: Bools) -> ReadsFrom:
        """The same without the transactions that were not chosen, and without reads from them.

        Whatever the rest violates, the whole violates: fewer transactions and reads demand less.
        """
        number = np.cumsum(chosen, dtype=np.int64) - 1
        reader = np.repeat(np.arange(self.transactions), np.diff(self.read_start))
        writer = self.read_writer
        reads = chosen[reader] & (chosen[writer] | (writer == INITIAL))
        writes = np.repeat(chosen, np.diff(self.write_start))
        renamed = np.where(writer[reads] == INITIAL, INITIAL, number[writer[reads]])
        before = np.concatenate(([0], np.cumsum(chosen)))
        return replace(
            self,
            session_start=before[self.session_start],
            read_start=_starts(np.bincount(number[reader[reads]], minlength=int(before[-1]))),
            read_key=self.read_key[reads],
            read_writer=renamed.astype(np.int32),
            write_start=_starts(np.diff(self.write_start)[chosen]),
            write_key=self.write_key[writes],
            source=self.source[chosen],
        )


def _starts(sizes: Any) -> Ints:
    return np.concatenate(([0], np.cumsum(sizes))).astype(np.int64)


def resolve(history: History, examples: int = 10) -> tuple[ReadsFrom, ReadFaults]:
    """The transaction from which each committed transaction read, and the faults, with the first `examples`
    of them."""
    owner = np.repeat(np.arange(history.transactions, dtype=np.int64), np.diff(history.operation_start))
    kind, last = np.zeros(history.operations, np.int8), np.ones(history.operations, np.bool_)
    own_write = np.full(history.operations, -1, np.int64)
    _classify(
        history.operation_start,
        history.write,
        history.key,
        history.value,
        np.full(history.keys, -1, np.int64),
        kind,
        last,
        own_write,
    )
    reads = np.flatnonzero((kind == _EXTERNAL) & (history.status[owner] != Status.ABORTED))
    seen = _find_writes(history, owner, reads)
    committed = _committed(history.status, owner, reads, seen)
    external = committed[owner[reads]]
    reads, seen = reads[external], seen[external]
    fault = _fault_codes(owner, committed, last, reads, seen)
    wrong = np.concatenate((reads[fault > 0], np.flatnonzero((kind == _OWN_WRITE_LOST) & committed[owner])))
    write = np.concatenate((seen[fault > 0], own_write[wrong[np.count_nonzero(fault) :]]))
    code = np.concatenate(
        (fault[fault > 0] - 1, np.full(len(wrong) - np.count_nonzero(fault), len(_FAULTS) - 1))
    )
    counts = np.bincount(code, minlength=len(_FAULTS)).tolist()
    faults = ReadFaults(
        {name: count for name, count in zip(_FAULTS, counts, strict=True) if count},
        [
            ReadFault(_FAULTS[code[row]], int(wrong[row]), int(write[row]))
            for row in np.argsort(wrong)[:examples].tolist()
        ],
    )
    right = fault == 0
    writes = np.flatnonzero(history.write & last & committed[owner])
    writes = writes[np.lexsort((history.key[writes], owner[writes]))]
    whole = ReadsFrom(
        session_start=history.session_start,
        read_start=_starts(np.bincount(owner[reads[right]], minlength=history.transactions)),
        read_key=history.key[reads[right]],
        read_writer=np.where(seen[right] < 0, INITIAL, owner[seen[right]]).astype(np.int32),
        write_start=_starts(np.bincount(owner[writes], minlength=history.transactions)),
        write_key=history.key[writes],
        keys=history.keys,
        source=np.arange(history.transactions),
    )
    return whole, faults


_FAULTS = ("ThinAirRead", "AbortedRead", "IntermediateRead", "FutureRead", "OwnWriteLost")
_NOBODY = -2
"""No write of this value was found, and it is not the initial one."""


def _fault_codes(owner: Ints, committed: Bools, last: Bools, reads: Ints, seen: Ints) -> npt.NDArray[np.int8]:
    """For each external read 0, or the index of its fault in `_FAULTS`, from 1."""
    seen_row = np.maximum(seen, 0)
    writer = owner[seen_row]
    conditions = [
        seen == _NOBODY,
        seen == INITIAL,
        writer == owner[reads],
        ~committed[writer],
        ~last[seen_row],
    ]
    return np.select(conditions, [np.int8(code) for code in (1, 0, 4, 2, 3)], np.int8(0))


def _committed(status: npt.NDArray[np.int8], owner: Ints, reads: Ints, seen: Ints) -> Bools:
    """Which transactions committed: an unknown one did if a committed one read from it."""
    committed = np.asarray(status == Status.COMMITTED)
    unknown = status == Status.UNKNOWN
    while unknown.any():
        read = np.zeros(len(status), np.bool_)
        read[owner[seen[committed[owner[reads]] & (seen >= 0)]]] = True
        found = unknown & read
        if not found.any():
            break
        committed, unknown = committed | found, unknown & ~found
    return committed


def _find_writes(history: History, owner: Ints, reads: Ints) -> Ints:
    """For each external read the write that it saw, `INITIAL`, or `_NOBODY`."""
    writes = np.flatnonzero(history.write)
    slots = 1 << max(4, int(len(writes) * 2 - 1).bit_length())
    table, twin = np.full(slots, -1, np.int64), np.full(history.operations, -1, np.int64)
    seed = np.uint64(secrets.randbits(64))
    columns = history.key, history.value
    _index_writes(writes, *columns, owner, history.status, seed, table, twin)
    seen = np.empty(len(reads), np.int64)
    _look_up(reads, *columns, seed, table, seen)
    seen = _initial_reads(history, owner, reads, seen)
    ambiguous = np.flatnonzero((seen >= 0) & (twin[np.maximum(seen, 0)] >= 0))
    if len(ambiguous):
        write = int(seen[ambiguous[0]])
        names = [history.transaction_name(int(owner[row])) for row in (write, int(twin[write]))]
        reader = history.transaction_name(int(owner[reads[ambiguous[0]]]))
        what = f"{history.key_name(int(history.key[write]))}={history.value_name(int(history.value[write]))}"
        raise InputError(
            f"{names[0]} and {names[1]} both wrote {what}, so it is unknown which of them {reader} read; "
            "a history needs a different value for every write of a key"
        )
    return seen


def _initial_reads(history: History, owner: Ints, reads: Ints, seen: Ints) -> Ints:
    """Reads of the initial value saw no transaction's write, unless the first transaction of a session sets
    initial values. Generators write such a transaction (AWDIT's does). Any other committed write of the
    initial value makes a read of it ambiguous."""
    initial = history.initial_value
    seen = np.where(seen < 0, _NOBODY, seen)
    if initial is None:
        return seen
    of_initial = np.asarray(history.value[reads] == initial)
    explicit = of_initial & (seen >= 0) & (history.status[owner[np.maximum(seen, 0)]] == Status.COMMITTED)
    for writer in np.unique(owner[seen[explicit]]).tolist():
        sets_up = writer in history.session_start and all(
            write and value == initial for write, _, value in history.operations_of(writer)
        )
        if not sets_up:
            name, value = history.transaction_name(writer), history.value_name(initial)
            raise InputError(
                f"{name} wrote {value}, which is also the initial value, so reads of it are ambiguous; "
                "a history needs a different value for every write of a key"
            )
    return np.where(of_initial & ~explicit, INITIAL, seen)


@njit_hot
def _classify(
    start: Any, write: Any, key: Any, value: Any, newest: Any, kind: Any, last: Any, own_write: Any
) -> None:
    """Mark each read as internal or external, and each write that its own transaction overwrote."""
    for transaction in range(len(start) - 1):
        for row in range(start[transaction], start[transaction + 1]):
            own = newest[key[row]]
            if own < start[transaction]:
                own = -1  # A write of an earlier transaction.
            if write[row]:
                if own >= 0:
                    last[own] = False
                newest[key[row]] = row
            elif own < 0:
                kind[row] = _EXTERNAL
            elif value[own] == value[row]:
                kind[row] = _INTERNAL
            else:
                kind[row] = _OWN_WRITE_LOST
                own_write[row] = own


@njit_hot
def _slot(key: Any, value: Any, seed: Any, slots: Any) -> Any:
    word = mix(np.uint64(key) + STEP ^ seed)
    return np.int64(mix(word + np.uint64(value)) & np.uint64(slots - 1))


@njit_hot
def _index_writes(
    writes: Any, key: Any, value: Any, owner: Any, status: Any, seed: Any, table: Any, twin: Any
) -> None:
    """Enter every write under its key and value; `twin` names another committed write of the same.

    Of several, a committed transaction's counts before an unknown one's before an aborted one's; of one
    transaction's, the last.
    """
    for row in writes:
        slot = _slot(key[row], value[row], seed, len(table))
        while True:
            other = table[slot]
            if other < 0:
                table[slot] = row
                break
            if key[other] == key[row] and value[other] == value[row]:
                mine, theirs = status[owner[row]], status[owner[other]]
                rank, other_rank = (mine * 2) % 3, (theirs * 2) % 3  # Committed 0, unknown 1, aborted 2.
                if owner[row] == owner[other] or rank < other_rank:
                    table[slot] = row
                    if owner[row] == owner[other]:
                        twin[row] = twin[other]
                elif rank == other_rank and rank < 2:
                    twin[other] = row
                break
            slot = (slot + 1) & (len(table) - 1)


@njit_hot
def _look_up(reads: Any, key: Any, value: Any, seed: Any, table: Any, seen: Any) -> None:
    for place in range(len(reads)):
        row = reads[place]
        slot = _slot(key[row], value[row], seed, len(table))
        seen[place] = -1
        while table[slot] >= 0:
            other = table[slot]
            if key[other] == key[row] and value[other] == value[row]:
                seen[place] = other
                break
            slot = (slot + 1) & (len(table) - 1)
