"""Logs of Cobra: a folder with one binary `.log` file for each session, or a single such file.

All numbers are big-endian words of 64 bits. A record is `S` id (start), `C` id (commit), `A` id (abort), `W`
write key value, or `R` transaction write key value. Keys and values are hashes; a write's own number, which
is unique, is taken for its value, so that a read names the write that it saw. A read of 0xbebeebee (initial)
or 0xdeadbeef (null) saw what was there at first.
"""

from __future__ import annotations

import struct
from array import array
from pathlib import Path

import numpy as np

from antecede.errors import InputError
from antecede.trace.foreign.open_files import open_bytes
from antecede.transactions.history import History, Status, from_columns

NAME = "cobra"
_INITIAL_WRITES = {0xBEBEEBEE, 0xDEADBEEF}
_COLLECTED_WRITES = {0x23332333, 0x66666666}
"""What garbage collection reads; only together with the initial transaction."""
_INITIAL_TRANSACTIONS = {0xBEBEEBEE, 0xDEADBEEF}
_WORDS = {ord("S"): 1, ord("C"): 1, ord("A"): 1, ord("W"): 3, ord("R"): 4}


def recognise(head: bytes) -> str | None:
    """Whether a file begins with a start record, and all complete records of its head are in a possible
    order."""
    if len(head) < 10 or head[0] != ord("S"):
        return None
    place, started = 0, False
    while place < len(head):
        kind = head[place]
        if kind not in _WORDS or (kind == ord("S")) == started:
            return None
        started = kind in b"SWR"
        place += 1 + 8 * _WORDS[kind]
    return NAME


def logs_of(folder: Path) -> list[Path]:
    """The logs of a folder, T2.log before T10.log."""
    logs = [path for path in folder.glob("*.log") if path.is_file()]
    return sorted(logs, key=lambda path: (len(path.name), path.name))


class _Rows:
    """Operations of all sessions, as columns."""

    def __init__(self) -> None:
        self.columns = {name: array("q") for name in ("session", "transaction", "write", "key", "value")}
        self.status: list[tuple[int, int]] = []
        """After this many rows, the transaction that they belong to ended with this status."""

    def add(self, **cells: int) -> None:
        for name, cell in cells.items():
            self.columns[name].append(cell)

    def end(self, status: Status) -> None:
        self.status.append((len(self.columns["key"]), status))


def read(path: Path, max_bytes: int | None = None) -> History:
    """Read a folder of logs, or one log."""
    files = [path] if path.is_file() else logs_of(path)
    rows = _Rows()
    for session, file in enumerate(files):
        _read_log(file, session, rows, max_bytes)
    if not rows.columns["key"]:
        raise InputError(f"{path} has no reads or writes")
    columns = {name: np.array(column, np.int64) for name, column in rows.columns.items()}
    status = np.empty(len(columns["key"]), np.int8)
    begin = 0
    for end, ended in rows.status:
        status[begin:end] = ended
        begin = end
    return from_columns(
        columns["session"],
        columns["transaction"],
        columns["write"].astype(np.bool_),
        columns["key"],
        columns["value"],
        status=status,
        initial_value=0,
        session_names=[file.stem for file in files],
    )


def _read_log(file: Path, session: int, rows: _Rows, max_bytes: int | None) -> None:
    current: int | None = None
    with open_bytes(file, max_bytes) as stream:
        place = 0
        while kind := stream.read(1):
            words = _WORDS.get(kind[0])
            data = stream.read(8 * words) if words else b""
            if not words or len(data) < 8 * words:
                what = "an incomplete record" if words else f"a record of unknown kind {kind!r}"
                raise InputError(f"{file}, byte {place}: {what}; is it a log of {NAME}?")
            numbers = struct.unpack(f">{words}q", data)
            if (kind == b"S") != (current is None) or (kind in (b"C", b"A") and numbers[0] != current):
                raise InputError(f"{file}, byte {place}: record {kind.decode()} is out of place")
            if kind == b"S":
                current = numbers[0]
            elif kind == b"W":
                write, key, _ = numbers
                rows.add(session=session, transaction=current or 0, write=1, key=key, value=write)
            elif kind == b"R":
                source, write, key, _ = numbers
                collected = write in _COLLECTED_WRITES and source in _INITIAL_TRANSACTIONS
                seen = 0 if write in _INITIAL_WRITES or collected else write
                rows.add(session=session, transaction=current or 0, write=0, key=key, value=seen)
            else:
                rows.end(Status.COMMITTED if kind == b"C" else Status.ABORTED)
                current = None
            place += 1 + 8 * words
    if current is not None:  # The log ends within a transaction.
        rows.end(Status.UNKNOWN)
