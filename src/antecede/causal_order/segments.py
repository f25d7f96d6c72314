"""Rows of a group on disk between micro-batches: immutable segments and a tail, by size-tiered compaction.

New rows go to the tail, which is part of the group's state and rewritten each time. A tail that has grown
large becomes a segment, which is written once; segments of similar size are merged into one. So each row is
written a number of times that grows with the logarithm of what is held. Deleted rows are only marked in a
bitmap, until more than half of their segment is gone.
"""

from __future__ import annotations

from typing import Protocol

import msgspec
import numpy as np
import pyarrow as pa

TAIL_BYTES = 1 << 16


class SegmentFiles(Protocol):
    """The contents of a group's segments, by number."""

    def get(self, number: int) -> bytes: ...
    def put(self, number: int, data: bytes) -> None: ...
    def drop(self, number: int) -> None: ...


class Segment(msgspec.Struct, array_like=True):
    """An immutable table of rows, as the segment list describes it."""

    number: int
    rows: int
    size: int
    deleted: bytes = b""
    """A bitmap with a bit for each row; empty if no row is deleted."""


class SegmentList(msgspec.Struct, array_like=True):
    """A group's rows: segments from old to new, and the tail."""

    segments: list[Segment] = []
    tail: bytes = b""

    @property
    def empty(self) -> bool:
        return not self.segments and not self.tail


class OpenSegment:
    """The rows of one segment, or of the tail, during a micro-batch."""

    def __init__(self, segment: Segment | None, table: pa.Table) -> None:
        self.segment = segment
        self.table = table
        deleted = segment.deleted if segment is not None else b""
        bits = np.unpackbits(np.frombuffer(deleted, np.uint8), count=table.num_rows).astype(bool)
        self.present = ~bits if deleted else np.ones(table.num_rows, bool)
        """A mask of the rows that are not deleted."""
        self.rows_before = int(self.present.sum())

    def rows(self) -> pa.Table:
        return self.table if self.present.all() else self.table.filter(pa.array(self.present))

    def retain(self, selected: np.ndarray) -> None:
        """Delete all remaining rows except the selected ones."""
        self.present[np.flatnonzero(self.present)[~selected]] = False


def open_segments(listed: SegmentList, files: SegmentFiles) -> list[OpenSegment]:
    """Read all segments, and the tail last."""
    opened = [OpenSegment(segment, unpack(files.get(segment.number))) for segment in listed.segments]
    return [*opened, OpenSegment(None, unpack(listed.tail))] if listed.tail else opened


def compact(
    opened: list[OpenSegment], new: pa.Table, files: SegmentFiles, next_number: int, tail_bytes: int
) -> tuple[SegmentList, int]:
    """Write the remaining rows and the new ones. Returns the new list, and the number of the next segment."""
    stays: list[tuple[Segment, OpenSegment]] = []
    loose: list[pa.Table] = []
    for one in opened:
        left = int(one.present.sum())
        if one.segment is None or 2 * left < one.segment.rows:
            if one.segment is not None:
                files.drop(one.segment.number)
            if left:
                loose.append(one.rows())
        else:
            if left < one.rows_before:
                one.segment.deleted = np.packbits(~one.present).tobytes()
            stays.append((one.segment, one))
    if new.num_rows:
        loose.append(new)
    if not loose:
        return SegmentList([segment for segment, _ in stays]), next_number
    rows = join(loose)
    packed = pack(rows)
    if len(packed) <= tail_bytes:
        return SegmentList([segment for segment, _ in stays], packed), next_number
    while stays and stays[-1][0].size < 2 * len(packed):
        segment, one = stays.pop()
        files.drop(segment.number)
        rows = join([one.rows(), rows])
        packed = pack(rows)
    files.put(next_number, packed)
    written = Segment(next_number, rows.num_rows, len(packed))
    return SegmentList([*(segment for segment, _ in stays), written]), next_number + 1


def join(tables: list[pa.Table]) -> pa.Table:
    """Concatenate tables; a column that one of them lacks is null there."""
    if len(tables) == 1:
        return tables[0]
    return pa.concat_tables(tables, promote_options="default")


def pack(table: pa.Table) -> bytes:
    """A table as an Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table.combine_chunks())
    return bytes(sink.getvalue())


def unpack(data: bytes) -> pa.Table:
    """The table of an Arrow IPC stream."""
    with pa.ipc.open_stream(data) as reader:
        return reader.read_all()
