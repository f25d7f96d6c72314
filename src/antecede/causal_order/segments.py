"""Rows of a group that are kept between batches, so that what is written grows with what changed.

New rows go to a tail, which is written anew each time. When it is large it becomes a part, which is written
once; of parts of like size one is made. So each row is written a number of times that grows with the
logarithm of what is kept. Rows that are gone are only marked, until most of a part is gone.
"""

from __future__ import annotations

from typing import Protocol

import msgspec
import numpy as np
import pyarrow as pa

TAIL_BYTES = 1 << 16


class Parts(Protocol):
    """Where the parts of a group are."""

    def get(self, part: int) -> bytes: ...
    def put(self, part: int, data: bytes) -> None: ...
    def drop(self, part: int) -> None: ...


class Entry(msgspec.Struct, array_like=True):
    """A part, as the shelf knows it."""

    part: int
    rows: int
    size: int
    gone: bytes = b""
    """A bit for each row; nothing if none is gone."""


class Shelf(msgspec.Struct, array_like=True):
    """A group's rows: parts from old to new, and the tail."""

    parts: list[Entry] = []
    tail: bytes = b""

    @property
    def empty(self) -> bool:
        return not self.parts and not self.tail


class Piece:
    """Rows of one part, or of the tail, while a batch is being looked at."""

    def __init__(self, entry: Entry | None, table: pa.Table) -> None:
        self.entry = entry
        self.table = table
        gone = entry.gone if entry is not None else b""
        bits = np.unpackbits(np.frombuffer(gone, np.uint8), count=table.num_rows).astype(bool)
        self.left = ~bits if gone else np.ones(table.num_rows, bool)
        """Which of the rows are there still."""
        self.before = int(self.left.sum())

    def rows(self) -> pa.Table:
        return self.table if self.left.all() else self.table.filter(pa.array(self.left))

    def leave(self, among: np.ndarray) -> None:
        """Of those that are there, only these stay."""
        self.left[np.flatnonzero(self.left)[~among]] = False


def take_down(shelf: Shelf, parts: Parts) -> list[Piece]:
    """All that is on the shelf."""
    pieces = [Piece(entry, unpack(parts.get(entry.part))) for entry in shelf.parts]
    return [*pieces, Piece(None, unpack(shelf.tail))] if shelf.tail else pieces


def put_back(
    pieces: list[Piece], new: pa.Table, parts: Parts, next_part: int, tail_bytes: int
) -> tuple[Shelf, int]:
    """The shelf with what is left of the pieces and what is new; and the next part's number."""
    entries: list[tuple[Entry, Piece]] = []
    loose: list[pa.Table] = []
    for piece in pieces:
        left = int(piece.left.sum())
        if piece.entry is None or 2 * left < piece.entry.rows:
            if piece.entry is not None:
                parts.drop(piece.entry.part)
            if left:
                loose.append(piece.rows())
        else:
            if left < piece.before:
                piece.entry.gone = np.packbits(~piece.left).tobytes()
            entries.append((piece.entry, piece))
    if new.num_rows:
        loose.append(new)
    if not loose:
        return Shelf([entry for entry, _ in entries]), next_part
    rows = join(loose)
    tail = pack(rows)
    if len(tail) <= tail_bytes:
        return Shelf([entry for entry, _ in entries], tail), next_part
    while entries and entries[-1][0].size < 2 * len(tail):
        entry, piece = entries.pop()
        parts.drop(entry.part)
        rows = join([piece.rows(), rows])
        tail = pack(rows)
    parts.put(next_part, tail)
    made = Entry(next_part, rows.num_rows, len(tail))
    return Shelf([*(entry for entry, _ in entries), made]), next_part + 1


def join(tables: list[pa.Table]) -> pa.Table:
    """One table of all; a column that some lack is null there."""
    if len(tables) == 1:
        return tables[0]
    return pa.concat_tables(tables, promote_options="default")


def pack(table: pa.Table) -> bytes:
    """A table as bytes that say what they are."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table.combine_chunks())
    return bytes(sink.getvalue())


def unpack(data: bytes) -> pa.Table:
    with pa.ipc.open_stream(data) as reader:
        return reader.read_all()
