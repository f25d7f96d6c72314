"""Snapshots as files, and how a welcome refers to the state that a newcomer starts with.

A state consists of an optional snapshot, and the messages that its sponsor delivered between it and the
admission. A small one is in the welcome. A large one is transferred before (`transfer.py`): until it has
arrived, only the sponsor knows of the newcomer, and nobody waits for it.

    snapshot-DIGEST            at a sponsor, as long as somebody fetches it
    received-ADDRESS-DIGEST    at a newcomer, complete and verified; with .tmp, what has arrived so far
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256

import msgspec

from antecede.live.store.disk import Files
from antecede.protocols.base import LocalError, RemoteError

MAX_INLINE = 1 << 20
"""Bytes of a snapshot that fits into the welcome."""
MAX_STATE = 1 << 32
"""Maximum bytes of a snapshot, and of the messages after it."""
MAX_IN_MEMORY = 1 << 28
"""The same for a newcomer without a store."""
CHUNK = 1 << 20
DIGEST_BYTES = 32
_UNFINISHED = ".tmp"
_NOTHING, _SNAPSHOT, _STATE = b"", b"\x01", b"\x02"


class SnapshotTransfer(msgspec.Struct, frozen=True, array_like=True):
    """The state that a sponsor offers a newcomer before admitting it."""

    digest: bytes
    """SHA-256 of the snapshot; empty if there are only messages."""
    length: int
    is_stream: bool
    """Whether the application gave its snapshot in parts; it is restored the same way."""
    first: int
    """The position of the last message in the snapshot."""
    counts: dict[str, int]
    """By origin, the sequence number of the last message in it."""


class WelcomeState(msgspec.Struct, frozen=True, array_like=True):
    """A welcome's reference to a state that was transferred before."""

    transfer: SnapshotTransfer
    after: int
    """The position after which the sponsor's messages are in the welcome."""
    tail: list[bytes]
    """These messages, as entries of a history."""

    @property
    def last(self) -> int:
        return self.after + len(self.tail)


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(WelcomeState)


def encode_inline(snapshot: bytes | None) -> bytes:
    return _NOTHING if snapshot is None else _SNAPSHOT + snapshot


def encode_state(state: WelcomeState) -> bytes:
    return _STATE + _encoder.encode(state)


def inline_snapshot(data: bytes | None) -> bytes | None:
    """The snapshot in a welcome, if there is one."""
    return data[1:] if data and data[:1] == _SNAPSHOT else None


def decode_state(data: bytes | None) -> WelcomeState | None:
    """A welcome's reference to a state that was transferred before; None if the welcome contains the
    state."""
    if not data or data[:1] == _SNAPSHOT:
        return None
    try:
        state = _decoder.decode(data[1:])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RemoteError(f"not a state to start with: {error}") from error
    if data[:1] != _STATE or not 0 <= state.transfer.first <= state.after:
        raise RemoteError("not a state to start with")
    return state


class SnapshotWriter:
    """Writes the snapshot of a sponsor's application, in parts."""

    def __init__(self, files: Files, number: int) -> None:
        self._files, self._name = files, f"snapshot-{number:x}{_UNFINISHED}"
        self._hash, self.length = sha256(), 0

    def add(self, data: bytes) -> None:
        if self.length + len(data) > MAX_STATE:
            raise LocalError(f"the snapshot has more than {MAX_STATE:,} bytes")
        for start in range(0, len(data), CHUNK):
            part = data[start : start + CHUNK]
            self._files.write_at(self._name, self.length, part)
            self.length += len(part)
            self._hash.update(part)

    def finish(self) -> bytes:
        """Make it durable under its final name, and return its digest."""
        digest = self._hash.digest()
        if not self.length:
            self._files.write_at(self._name, 0, b"")
        self._files.sync(self._name)
        self._files.replace(self._name, snapshot_name(digest))
        self._files.sync_folder()
        return digest

    def discard(self) -> None:
        if self._name in self._files.names():
            self._files.remove(self._name)


def snapshot_name(digest: bytes) -> str:
    return f"snapshot-{digest.hex()}"


def received_name(address: int, digest: bytes) -> str:
    return f"received-{address:016x}-{digest.hex()}"


def unfinished(name: str) -> str:
    return name + _UNFINISHED


def read_parts(files: Files, name: str) -> Iterator[bytes]:
    """A file in parts."""
    start = 0
    while part := files.read_at(name, start, CHUNK):
        yield part
        start += len(part)


def digest_of(files: Files, name: str) -> bytes:
    hashed = sha256()
    for part in read_parts(files, name):
        hashed.update(part)
    return hashed.digest()


def other_snapshots(files: Files, kept: set[str]) -> list[str]:
    """The names of all snapshot files except these."""
    return [
        name for name in files.names() if name.startswith(("snapshot-", "received-")) and name not in kept
    ]
