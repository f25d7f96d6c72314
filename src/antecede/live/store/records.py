"""The format of a store's files: records with checksums, chained to each other.

A record is a header and a body. Its *digest* covers both, and the digest of the previous record, so that a
record that is damaged, missing, out of order or from another store is detected. The digests of the log use a
secret key of the store, so that no received body can pass for a record. Records are numbered from the
beginning of the store. A checkpoint is a record too: the file `checkpoint-N` contains it alone, and `log-N`
those that follow it, one for each group commit. Time and bytes: O(body), and 48 bytes for the header.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from hashlib import sha256
from typing import Any

import msgspec

from antecede.live.events import LogRecord
from antecede.live.trace_rows import TraceRow
from antecede.protocols.base import Span

MAGIC = b"antecede store %d\n"
"""The beginning of a checkpoint file, followed by the version."""
MEMBERS_CHANGE = "they change"
"""The value in a store's identity for a group with dynamic membership."""
LATER_IDENTITY = {"encryption": "none"}
"""The defaults of fields that a store's identity omits."""
NO_DIGEST = bytes(16)
_MARKER = b"\xa7rec"
_HEADER = struct.Struct("<4sIQ16s")
_DIGEST_BYTES = 16
HEADER_BYTES = _HEADER.size + _DIGEST_BYTES
_MAX_BODY = (1 << 32) - 1


class StoredPacket(msgspec.Struct, array_like=True):
    """A packet that is kept beyond the log, and why it is needed."""

    data: bytes
    sent: list[tuple[int, int]] = []
    """By link, its number there: needed until it is acknowledged."""
    spans: list[Span] = []
    """The messages in it: needed until they are stable."""


class Checkpoint(msgspec.Struct, frozen=True, array_like=True):
    """A member's whole state, which replaces the log."""

    state: bytes
    """A `CoreState`; empty in a new store."""
    packets: list[StoredPacket]
    trace_first: int = 0
    """The index of the first row."""
    trace: list[TraceRow] = []
    """Rows that are not in the trace's folder yet."""


class StoredCheckpoint(msgspec.Struct, frozen=True, array_like=True):
    """The body of a checkpoint's record."""

    identity: dict[str, Any]
    store: str
    """The store's own identifier, random."""
    key: bytes
    """The key of the digests of the log's records."""
    acked: int
    attempts: int
    """The application's cursor."""
    checkpoint: Checkpoint


class Commit(msgspec.Struct, frozen=True, array_like=True):
    """The body of a record in the log: what one group commit made durable."""

    records: list[LogRecord]
    acked: int
    attempts: int
    """The application's cursor at that moment."""


class Link(msgspec.Struct, frozen=True):
    """A position in the chain: the number and the digest of a record."""

    number: int = 0
    digest: bytes = NO_DIGEST


class RecordView(msgspec.Struct, frozen=True):
    """A record as stored in a file."""

    start: int
    end: int
    previous: bytes
    link: Link
    body: memoryview

    def follows(self, link: Link) -> bool:
        return self.link.number == link.number + 1 and self.previous == link.digest


UNDECODABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What decoding a record's body may raise."""
_encoder = msgspec.msgpack.Encoder()
decode_commit = msgspec.msgpack.Decoder(Commit).decode
decode_checkpoint = msgspec.msgpack.Decoder(StoredCheckpoint).decode


def encode_checkpoint(after: Link, version: int, body: StoredCheckpoint) -> tuple[bytearray, Link]:
    """A checkpoint's file content, and its position in the chain."""
    return encode_record(after, checkpoint_key(version), body, MAGIC % version)


def checkpoint_key(version: int) -> bytes:
    """The key of a checkpoint's digest, so that it covers the version; the key of version 8 does not depend
    on it."""
    return b"" if version == 8 else MAGIC % version


def encode_record(after: Link, key: bytes, body: Any, prefix: bytes = b"") -> tuple[bytearray, Link]:
    """A record that follows `after`, and its own position in the chain; the body is encoded once, in
    place."""
    start = len(prefix) + HEADER_BYTES
    data = bytearray(prefix)
    _encoder.encode_into(body, data, start)
    size, number = len(data) - start, after.number + 1
    if size > _MAX_BODY:
        raise OverflowError(f"{size:,} bytes do not fit a record of a store")
    header = _HEADER.pack(_MARKER, size, number, after.digest)
    with memoryview(data) as view:
        digest = _digest(key, header, view[start:])
    data[len(prefix) : start] = header + digest
    return data, Link(number, digest)


def read_record(data: memoryview, start: int, key: bytes | None) -> RecordView | None:
    """The intact record at an offset in a file, if there is one; without a key, a record that seems to be
    one."""
    if len(data) - start < HEADER_BYTES:
        return None
    marker, size, number, previous = _HEADER.unpack_from(data, start)
    body_start = start + HEADER_BYTES
    end = body_start + size
    if marker != _MARKER or end > len(data):
        return None
    header, body = data[start : start + _HEADER.size], data[body_start:end]
    digest = bytes(data[start + _HEADER.size : body_start])
    if key is not None and _digest(key, header, body) != digest:
        return None
    return RecordView(start, end, previous, Link(number, digest), body)


def find_records(data: bytes, start: int, key: bytes | None) -> Iterator[RecordView]:
    """Intact records anywhere after a damaged one, whatever bytes are between them."""
    view = memoryview(data)
    while (start := data.find(_MARKER, start)) >= 0:
        record = read_record(view, start, key)
        if record is None:
            start += 1
        else:
            yield record
            start = record.end


def _digest(key: bytes, header: bytes | memoryview, body: memoryview) -> bytes:
    hashed = sha256(key)
    hashed.update(header)
    hashed.update(body)
    return hashed.digest()[:_DIGEST_BYTES]
