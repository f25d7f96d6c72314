"""How a large state is transferred to a newcomer, without clock or socket: in chunks that the newcomer
requests.

Frames, which are not packets and therefore not logged:

    StateOffer       by the sponsor: there is a state, of which it says digest, length and position
    StateRequest     by the newcomer: so much is here, durably; the next chunk, please
    SnapshotChunk, HistoryChunk    by the sponsor, one for each request

Received parts are in files at the newcomer, so after a lost connection or a restart it requests only the
rest. When the state is nearly complete, the sponsor admits the newcomer, and the rest is in the welcome. Only
one chunk is in transit at a time, which bounds the memory that a transfer takes at either side.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import msgspec

from antecede.live.changing import snapshots
from antecede.live.changing.history import HistoryLog, HistoryReader, decode_entry
from antecede.live.changing.snapshots import (
    DIGEST_BYTES,
    SnapshotTransfer,
    WelcomeState,
    digest_of,
    received_name,
    snapshot_name,
    unfinished,
)
from antecede.live.store.disk import Files
from antecede.protocols.base import RemoteError

if TYPE_CHECKING:
    from antecede.live.changing.core import ChangingCore

MAX_TAIL = 1 << 22
"""Maximum bytes of messages in a welcome."""
MAX_LAG = 1 << 28
"""How many bytes of messages may wait for a newcomer, if that is more than at first, before it is given
up."""
MAX_COUNTS = 1 << 17


class StateOffer(msgspec.Struct, frozen=True, array_like=True, tag=50):
    """A sponsor has a state for the newcomer at the other end."""

    transfer: SnapshotTransfer


class StateRequest(msgspec.Struct, frozen=True, array_like=True, tag=51):
    """How much of an offered state is stored; requests what follows."""

    digest: bytes
    first: int
    offset: int
    """Bytes of the snapshot received."""
    position: int
    """The position of the last message; -1 until the snapshot is verified."""


class SnapshotChunk(msgspec.Struct, frozen=True, array_like=True, tag=52):
    """The next bytes of a snapshot."""

    offset: int
    data: bytes


class HistoryChunk(msgspec.Struct, frozen=True, array_like=True, tag=53):
    """The next messages after a snapshot."""

    after: int
    entries: list[bytes]


StateFrame = StateOffer | StateRequest | SnapshotChunk | HistoryChunk


class OutgoingState:
    """What a sponsor has sent to one newcomer on the current connection."""

    def __init__(self) -> None:
        self.is_offered = False
        self.request: StateRequest | None = None
        """The request to answer."""
        self.reader: HistoryReader | None = None


class StateSource:
    """The states that this member offers to newcomers, by address."""

    def __init__(self, core: ChangingCore, files: Files) -> None:
        self._core, self._files = core, files
        self._outgoing: dict[int, OutgoingState] = {}
        self._allowed: dict[int, int] = {}
        """The maximum lag of each newcomer, in bytes."""
        self.heard_at: dict[int, float] = {}

    def open(self, address: int) -> None:
        """A connection is established."""
        if address in self._core.transfers:
            self._outgoing[address] = OutgoingState()

    def receive(self, address: int, request: StateRequest, now: float) -> None:
        transfer, outgoing = self._core.transfers.get(address), self._outgoing.get(address)
        if transfer is None or outgoing is None or not outgoing.is_offered:
            return  # the offer was withdrawn meanwhile
        if (request.digest, request.first) != (transfer.digest, transfer.first):
            raise RemoteError("it asks for a state that was not offered")
        log = self._core.history
        is_complete = request.offset == transfer.length
        end = max(log.written, transfer.first)  # the last messages of the state may not be written yet
        if not 0 <= request.offset <= transfer.length or request.position > end:
            raise RemoteError("it asks for what is beyond the end of a state")
        if request.position != -1 and (not is_complete or request.position < transfer.first):
            raise RemoteError("it asks for messages before it has the snapshot")
        outgoing.request = request
        self.heard_at[address] = now

    def next_frame(self, address: int, now: float) -> StateFrame | None:
        """The next frame for a newcomer, if its connection can take it."""
        transfer = self._core.transfers.get(address)
        if transfer is None or self._is_lost(transfer):
            for table in (self._outgoing, self._allowed):
                table.pop(address, None)
            return None
        outgoing = self._outgoing.setdefault(address, OutgoingState())
        if not outgoing.is_offered:
            outgoing.is_offered = True
            self.heard_at[address] = now
            return StateOffer(transfer)
        request = outgoing.request
        if request is None:
            return None
        if request.offset < transfer.length:
            outgoing.request = None
            name = snapshot_name(transfer.digest)
            return SnapshotChunk(request.offset, self._files.read_at(name, request.offset, snapshots.CHUNK))
        return self._next_messages(address, outgoing, request) if request.position >= 0 else None

    def _next_messages(
        self, address: int, outgoing: OutgoingState, request: StateRequest
    ) -> HistoryChunk | None:
        log, reader = self._core.history, outgoing.reader
        if request.position > log.written:
            return None
        if reader is None or reader.position != request.position:
            reader = outgoing.reader = HistoryReader(log, request.position)
        if (left := reader.bytes_left) <= MAX_TAIL:
            self._core.catch_up(address, request.position)
            return None
        self._allowed.setdefault(address, max(MAX_LAG, left))
        entries: list[bytes] = []
        size = 0
        while reader.position < log.written and size < snapshots.CHUNK:
            entries.append(reader.read())
            size += len(entries[-1])
        if not entries:
            return None
        outgoing.request = None
        return HistoryChunk(request.position, entries)

    def _is_lost(self, transfer: SnapshotTransfer) -> bool:
        """Whether messages that belong to a state were lost, for example because the disk was full."""
        log = self._core.history
        return not (log.exists and log.first <= transfer.first)

    def has_work(self, address: int) -> bool:
        """Whether a newcomer may be waiting for a frame."""
        outgoing = self._outgoing.get(address)
        return address in self._core.transfers and (
            outgoing is None or not outgoing.is_offered or outgoing.request is not None
        )

    def overdue(self, now: float, patience: float) -> list[int]:
        """Newcomers that have not sent a request for this many seconds, or do not keep up."""
        found = []
        self.heard_at = {each: at for each, at in self.heard_at.items() if each in self._core.transfers}
        for address, transfer in self._core.transfers.items():
            outgoing = self._outgoing.get(address)
            reader = None if outgoing is None else outgoing.reader
            lags = reader is not None and reader.bytes_left > self._allowed.get(address, MAX_LAG)
            is_late = lags or self._is_lost(transfer)
            if is_late or now - self.heard_at.setdefault(address, now) > patience:
                found.append(address)
        return found


class StateTooLargeError(RemoteError):
    """A state is larger than this process accepts."""


class StateFetch:
    """The state that a newcomer fetches, for its attempt at one address. `receive` writes to files, and may
    block for as long as the disk takes."""

    def __init__(self, files: Files, max_bytes: int) -> None:
        self._files, self._max_bytes = files, max_bytes
        self._address = -1
        self._offer: SnapshotTransfer | None = None
        self._offset = 0
        self._is_verified = self._is_resumed = False

    def close(self) -> None:
        """The connection has ended; the next one begins with an offer."""
        self._offer = None

    def receive(self, address: int, log: HistoryLog, frame: StateFrame) -> StateRequest | None:
        """The next request."""
        if isinstance(frame, StateOffer):
            self._address, self._offer = address, frame.transfer
            self._on_offer(address, log, frame.transfer)
        elif self._offer is None or address != self._address:
            raise RemoteError("it sends a state that it has not offered")
        elif isinstance(frame, SnapshotChunk):
            self._on_chunk(log, self._offer, frame)
        elif isinstance(frame, HistoryChunk):
            self._on_messages(log, self._offer, frame)
        else:
            raise RemoteError("it asks a newcomer for a state")
        position = log.end if self._is_verified else -1
        return StateRequest(self._offer.digest, self._offer.first, self._offset, position)

    def _on_offer(self, address: int, log: HistoryLog, offer: SnapshotTransfer) -> None:
        if offer.length > self._max_bytes:
            raise StateTooLargeError(f"a state of {offer.length:,} bytes; {self._max_bytes:,} at most")
        if len(offer.digest) not in (0, DIGEST_BYTES) or offer.length < 0:
            raise RemoteError("it offers an invalid state")
        if offer.first < 0 or len(offer.counts) > MAX_COUNTS or (offer.length and not offer.digest):
            raise RemoteError("it offers an invalid state")
        if log.exists and log.first != offer.first:
            log.clear()
        self._is_verified, self._is_resumed = False, True
        name = received_name(address, offer.digest)
        names = self._files.names()
        if not offer.digest or name in names:
            self._offset = offer.length
            return self._begin_messages(log, offer)
        self._offset = self._files.size(unfinished(name)) if unfinished(name) in names else 0
        if self._offset > offer.length:
            self._start_again(offer)
        if self._offset == offer.length:
            self._verify(log, offer)
        return None

    def _start_again(self, offer: SnapshotTransfer) -> None:
        with contextlib.suppress(FileNotFoundError, KeyError):
            self._files.remove(unfinished(received_name(self._address, offer.digest)))
        self._offset, self._is_resumed = 0, False

    def _on_chunk(self, log: HistoryLog, offer: SnapshotTransfer, chunk: SnapshotChunk) -> None:
        if self._is_verified or chunk.offset != self._offset:
            raise RemoteError(f"it sends byte {chunk.offset} of a snapshot, and {self._offset} is the next")
        if not chunk.data or self._offset + len(chunk.data) > offer.length:
            raise RemoteError("it sends a chunk that is empty, or beyond the end of the snapshot")
        if not self._offset:
            self._is_resumed = False
        name = unfinished(received_name(self._address, offer.digest))
        self._files.write_at(name, self._offset, chunk.data)
        self._offset += len(chunk.data)
        if self._offset == offer.length:
            self._verify(log, offer)

    def _verify(self, log: HistoryLog, offer: SnapshotTransfer) -> None:
        """The snapshot is complete: check its digest. Parts received before a restart may be damaged."""
        name = received_name(self._address, offer.digest)
        if not offer.length:
            self._files.write_at(unfinished(name), 0, b"")
        if digest_of(self._files, unfinished(name)) != offer.digest:
            is_resumed = self._is_resumed
            self._start_again(offer)
            if not is_resumed or not offer.length:
                raise RemoteError("its snapshot has another digest than the one that it has offered")
            return
        self._files.sync(unfinished(name))
        self._files.replace(unfinished(name), name)
        self._files.sync_folder()
        self._begin_messages(log, offer)

    def _begin_messages(self, log: HistoryLog, offer: SnapshotTransfer) -> None:
        self._is_verified = True
        if not log.exists:
            log.begin(offer.first, offer.counts)
            log.create()

    def _on_messages(self, log: HistoryLog, offer: SnapshotTransfer, chunk: HistoryChunk) -> None:
        if not self._is_verified or chunk.after != log.end:
            raise RemoteError(f"it sends messages after position {chunk.after} that nobody has asked for")
        size = offer.length + log.size + sum(map(len, chunk.entries))
        if not chunk.entries:
            raise RemoteError("it sends messages, and there are none")
        if size > self._max_bytes:
            raise StateTooLargeError(f"a state of more than {self._max_bytes:,} bytes")
        for position, data in enumerate(chunk.entries, chunk.after + 1):
            log.add(position, decode_entry(data), data)
        # Durable before the sponsor learns of it, since the welcome will not contain it.
        log.write(list(log.unwritten), log.generation)
        log.sync()
        log.confirm(log.end)


def has_state(files: Files, address: int, log: HistoryLog, state: WelcomeState) -> bool:
    """Whether the state that a welcome refers to is stored here."""
    transfer = state.transfer
    if transfer.digest and received_name(address, transfer.digest) not in files.names():
        return False
    if state.after == transfer.first:
        return True
    return log.exists and log.first == transfer.first and log.end >= state.after
