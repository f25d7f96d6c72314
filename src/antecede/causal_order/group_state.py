"""What is kept of a group between batches: a book, and parts of what is too much for it."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import msgspec
import pyarrow as pa

from antecede.causal_order.segments import TAIL_BYTES, Piece, Shelf, put_back, take_down
from antecede.errors import InputError

VERSION = 1


class Store(Protocol):
    """Where it is kept: numbered parts of each group, of which the first is the book."""

    def get(self, group: str | None, part: int) -> bytes | None: ...
    def put(self, group: str | None, part: int, data: bytes, new: bool) -> None: ...
    def drop(self, group: str | None, part: int) -> None: ...


class Kept(msgspec.Struct, array_like=True):
    """Spans of numbers that are known: kinds, first and last numbers, and where there are origins, theirs."""

    kinds: bytes = b""
    firsts: bytes = b""
    lasts: bytes = b""
    origins: list[str | None] = []


class Book(msgspec.Struct, array_like=True):
    """What is known of a group."""

    version: int = VERSION
    next_index: int = 0
    next_part: int = 1
    spans: Kept = msgspec.field(default_factory=Kept)
    waiting: Shelf = msgspec.field(default_factory=Shelf)
    ids: Shelf = msgspec.field(default_factory=Shelf)


def read_book(data: bytes) -> Book:
    """A group's book."""
    try:
        book = msgspec.msgpack.decode(data, type=Book)
    except msgspec.DecodeError as error:
        raise InputError(f"the checkpoint holds something else than Antecede's state: {error}") from error
    if book.version > VERSION:
        raise InputError(
            f"the checkpoint is of a newer Antecede (state version {book.version}); upgrade this"
        )
    return book


_CODEC = pa.Codec("zstd", compression_level=1)
_SMALL = 512
"""Bytes that are not worth compressing."""


def _shut(data: bytes) -> bytes:
    """Small, as every byte that goes to the state store and back costs more than to compress it."""
    if len(data) <= _SMALL:
        return b"\0" + data
    return b"\1" + len(data).to_bytes(8, "little") + bytes(_CODEC.compress(data, asbytes=True))


def _opened(data: bytes) -> bytes:
    if data[:1] == b"\0":
        return data[1:]
    return bytes(_CODEC.decompress(data[9:], int.from_bytes(data[1:9], "little"), asbytes=True))


class GroupParts(NamedTuple):
    """The parts of one group."""

    store: Store
    group: str | None

    def book(self) -> Book | None:
        data = self.store.get(self.group, 0)
        return None if data is None else read_book(_opened(data))

    def get(self, part: int) -> bytes:
        data = self.store.get(self.group, part)
        if data is None:
            raise InputError(f"the checkpoint lacks part {part} of group {self.group}; it is damaged")
        return _opened(data)

    def put(self, part: int, data: bytes, new: bool = True) -> None:
        self.store.put(self.group, part, _shut(data), new)

    def drop(self, part: int) -> None:
        self.store.drop(self.group, part)


class Group:
    """A group while a batch is being looked at: its book, and all that it keeps, taken down."""

    def __init__(self, store: Store, name: str | None, tail_bytes: int = TAIL_BYTES) -> None:
        self.tail_bytes = tail_bytes
        self.parts = GroupParts(store, name)
        book = self.parts.book()
        self._is_new = book is None
        self.book = Book() if book is None else book
        self.waiting = take_down(self.book.waiting, self.parts)
        self.ids = take_down(self.book.ids, self.parts)

    def put_back(self, pieces: list[Piece], new: pa.Table) -> Shelf:
        """A shelf of what is left of the pieces, and of what is new."""
        shelf, self.book.next_part = put_back(pieces, new, self.parts, self.book.next_part, self.tail_bytes)
        return shelf

    def write(self) -> None:
        self.parts.put(0, msgspec.msgpack.encode(self.book), new=self._is_new)
