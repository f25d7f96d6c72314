"""The state that a stream stores for each group between micro-batches.

A group is a few entries of a `StateStore`, by number: entry 0 is its `GroupState`, the others are the
segments of its held rows and of its recent ids. `stream_on_spark` keeps them in Spark's state store.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import msgspec
import pyarrow as pa

from antecede.causal_order.merge import MergeProgress
from antecede.causal_order.segments import TAIL_BYTES, OpenSegment, SegmentList, compact, open_segments
from antecede.errors import InputError

VERSION = 1


class StateStore(Protocol):
    """Where the state of groups is stored: numbered entries for each group; entry 0 is its GroupState."""

    def get(self, group: str | None, number: int) -> bytes | None: ...
    def put(self, group: str | None, number: int, data: bytes, new: bool) -> None: ...
    def drop(self, group: str | None, number: int) -> None: ...


class StoredSpans(msgspec.Struct, array_like=True):
    """Ranges of sequence numbers with a known outcome, as columns; `origins` only if rows have origins."""

    outcomes: bytes = b""
    firsts: bytes = b""
    lasts: bytes = b""
    origins: list[str | None] = []


class GroupState(msgspec.Struct, array_like=True):
    """All that a stream remembers about a group, apart from the contents of the listed segments."""

    version: int = VERSION
    next_index: int = 0
    next_segment: int = 1
    spans: StoredSpans = msgspec.field(default_factory=StoredSpans)
    held: SegmentList = msgspec.field(default_factory=SegmentList)
    ids: SegmentList = msgspec.field(default_factory=SegmentList)
    merge: MergeProgress | None = None
    """Set only if the stream merges topics."""


def decode_group_state(data: bytes) -> GroupState:
    """The state of a group from its stored bytes, which may come from another version."""
    try:
        state = msgspec.msgpack.decode(data, type=GroupState)
    except msgspec.DecodeError as error:
        raise InputError(f"the checkpoint does not hold Antecede's state: {error}") from error
    if state.version > VERSION:
        raise InputError(
            f"the checkpoint was written by a newer Antecede (state version {state.version}, this one reads "
            f"up to {VERSION}); upgrade Antecede"
        )
    return state


_CODEC = pa.Codec("zstd", compression_level=1)
_MIN_COMPRESSED = 512
"""Below this many bytes, compression is not worth its time."""


def _compress(data: bytes) -> bytes:
    """Compress an entry: moving bytes to the state store and back costs more than compressing them."""
    if len(data) <= _MIN_COMPRESSED:
        return b"\0" + data
    return b"\1" + len(data).to_bytes(8, "little") + bytes(_CODEC.compress(data, asbytes=True))


def _decompress(data: bytes) -> bytes:
    if data[:1] == b"\0":
        return data[1:]
    return bytes(_CODEC.decompress(data[9:], int.from_bytes(data[1:9], "little"), asbytes=True))


class GroupEntries(NamedTuple):
    """The entries of one group in a state store, compressed."""

    store: StateStore
    group: str | None

    def read_state(self) -> GroupState | None:
        data = self.store.get(self.group, 0)
        return None if data is None else decode_group_state(_decompress(data))

    def write_state(self, state: GroupState, new: bool) -> None:
        self.store.put(self.group, 0, _compress(msgspec.msgpack.encode(state)), new)

    def get(self, number: int) -> bytes:
        data = self.store.get(self.group, number)
        if data is None:
            raise InputError(f"the checkpoint is damaged: segment {number} of group {self.group} is missing")
        return _decompress(data)

    def put(self, number: int, data: bytes) -> None:
        self.store.put(self.group, number, _compress(data), new=True)

    def drop(self, number: int) -> None:
        self.store.drop(self.group, number)


class OpenGroup:
    """A group during a micro-batch: its state, and the segments read so far."""

    def __init__(self, store: StateStore, name: str | None, tail_bytes: int = TAIL_BYTES) -> None:
        self._tail_bytes = tail_bytes
        self._entries = GroupEntries(store, name)
        stored = self._entries.read_state()
        self._is_new = stored is None
        self.state = GroupState() if stored is None else stored
        self.held = open_segments(self.state.held, self._entries)
        self.ids = open_segments(self.state.ids, self._entries)

    def write_held(self, new: pa.Table) -> None:
        """Write the held rows: the remaining rows of `held`, and the new ones."""
        self.state.held = self._compact(self.held, new)

    def write_ids(self, new: pa.Table) -> None:
        """Write the recent ids: the remaining ones of `ids`, and the new ones."""
        self.state.ids = self._compact(self.ids, new)

    def write_state(self) -> None:
        self._entries.write_state(self.state, self._is_new)

    def _compact(self, opened: list[OpenSegment], new: pa.Table) -> SegmentList:
        listed, self.state.next_segment = compact(
            opened, new, self._entries, self.state.next_segment, self._tail_bytes
        )
        return listed
