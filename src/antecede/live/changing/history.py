"""The messages that a member has delivered or broadcast, in that order, in files, for members that join
later.

A *position* is the place of a message in that order. A newcomer continues its sponsor's numbering, and the
log that it has received. A log is a list of segments, which are deleted as a whole, the oldest first; it
never has a gap, so the messages before its beginning form a causal cut, as do those up to any position.

The log is written before the journal, and synced before a checkpoint. After a crash, entries that the journal
does not confirm are truncated, and missing entries are added again by the replay (`HistoryLog.add`).

    history-ADDRESS-POSITION    a segment: what follows this position, of the member at this address

Cost: for each message a write of its own size, and for each checkpoint one more sync.
"""

from __future__ import annotations

import itertools
import re
import struct
import threading
import zlib
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from antecede.errors import InputError
from antecede.live.store.disk import Files
from antecede.protocols.base import RemoteError
from antecede.units import parse_bytes, parse_duration

SEGMENT_BYTES = 1 << 24
_SEGMENTS = 16
"""A byte limit is divided into at least this many segments."""
_HEADER = struct.Struct("<II")
_READ_BYTES, _AT_ONCE = 1 << 18, 1_024
_NAME = re.compile(r"history-([0-9a-f]{16})-(\d{1,19})")
MAX_ENTRY = 1 << 24


class HistoryEntry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A message as its application received it."""

    origin: int
    seq: int
    payload: bytes
    causes: dict[int, int] | None
    names: dict[int, str]
    """The labels of the streams that it names, which may be forgotten by the time it is read."""
    time: int
    """When it was delivered, in nanoseconds."""


class SegmentHeader(msgspec.Struct, frozen=True, array_like=True):
    """The first record of a segment."""

    position: int
    """The position of the last message before the segment."""
    counts: dict[str, int]
    """By origin, the sequence number of the last message up to there."""


encode_entry = msgspec.msgpack.Encoder().encode
_decode_entry = msgspec.msgpack.Decoder(HistoryEntry).decode
_decode_header = msgspec.msgpack.Decoder(SegmentHeader).decode


def decode_entry(data: bytes) -> HistoryEntry:
    """Decode a log entry sent by another process."""
    try:
        return _decode_entry(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RemoteError(f"not a message of a history: {error}") from error


class Retention(NamedTuple):
    """How long, or up to how many bytes, messages are retained; 0 means no such limit."""

    nanoseconds: int = 0
    size: int = 0

    @classmethod
    def parse(cls, text: str) -> Retention:
        """
        >>> Retention.parse("7d").nanoseconds == 7 * 86_400 * 10**9, Retention.parse("100MB").size
        (True, 100000000)
        """
        try:
            return cls(size=parse_bytes(text))
        except InputError:
            pass
        try:
            nanoseconds = parse_duration(text)
        except InputError as error:
            raise InputError(f"retain: '{text}' is no time and no size; write 7d or 100MB") from error
        if nanoseconds <= 0:
            raise InputError("retain: it must be more than 0")
        return cls(nanoseconds)


class HistorySegment:
    """One file of a log."""

    __slots__ = ("last", "name", "newest", "position", "size")

    def __init__(self, name: str, position: int) -> None:
        self.name, self.position = name, position
        """`position` is that of the last message before the segment."""
        self.last = position
        """The position of its last message; after a restart known only for the last segment."""
        self.size = self.newest = 0
        """Its bytes, and when its last message was delivered; 0 if unknown."""


class UnwrittenEntry(NamedTuple):
    """An entry that may not be in the files yet."""

    position: int
    data: bytes
    origin: str
    seq: int
    time: int


class HistoryBatch:
    """The entries that a `Ready` adds to a log."""

    def __init__(self, log: HistoryLog, entries: list[UnwrittenEntry], sync: bool) -> None:
        self._log, self._entries, self._sync = log, entries, sync
        self._generation = log.generation

    def write(self) -> None:
        self._log.write(self._entries, self._generation)
        if self._sync:
            self._log.sync()

    def confirm(self) -> None:
        """The entries are in the files, and the journal contains the records that they derive from."""
        if self._entries:
            self._log.confirm(self._entries[-1].position)


class HistoryLog:
    """The log of the member at one address. `write` and `sync` may be called in another thread."""

    def __init__(self, files: Files, address: int) -> None:
        self._files, self._prefix = files, f"history-{address:016x}-"
        self.segments: list[HistorySegment] = []
        self.counts: dict[str, int] = {}
        """By origin, the sequence number of the last message before the log."""
        self._last_counts: dict[str, int] = {}
        """The same, up to the end of the files."""
        self.first = self.end = self.written = 0
        """Positions: of the last message before the log, of its last message, and of the last one that is in
        files and confirmed."""
        self.exists = False
        self.size = 0
        """Bytes of its files."""
        self.unwritten: deque[UnwrittenEntry] = deque()
        self._taken = 0
        self._is_dirty = False
        self._reader: HistoryReader | None = None
        self.segment_bytes = SEGMENT_BYTES
        self.generation = 0
        """How many times it was cleared."""
        self._writing = threading.Lock()
        self._open()

    # Opening

    def _open(self) -> None:
        found = [name for name in self._files.names() if name.startswith(self._prefix)]
        for name in sorted(found, key=lambda each: int(each.removeprefix(self._prefix))):
            segment = HistorySegment(name, int(name.removeprefix(self._prefix)))
            segment.size = self._files.size(name)
            self.segments.append(segment)
        while self.segments and not self._open_last():
            self._files.remove(self.segments.pop().name)
        if self.segments:
            header = self._header_of(self.segments[0])
            self.exists, self.first = True, self.segments[0].position
            self.counts = {} if header is None else header.counts
            self._is_dirty = True  # a process that was killed may have written the end and not synced it
        self.size = sum(segment.size for segment in self.segments)

    def _open_last(self) -> bool:
        """Find the end of the last segment; returns whether its header is intact."""
        segment = self.segments[-1]
        header = self._header_of(segment)
        if header is None:
            return False
        segment.last, size, counts = segment.position, 0, dict(header.counts)
        for number, (data, end) in enumerate(self.records(segment.name, 0)):
            size = end
            if number:
                entry = decode_entry(data)
                segment.last += 1
                segment.newest = entry.time
                counts[entry.names.get(entry.origin, "")] = entry.seq
        if size < segment.size:
            self._files.truncate(segment.name, size)
            segment.size = size
        self._last_counts = counts
        self.end = self.written = self._taken = segment.last
        return True

    def _header_of(self, segment: HistorySegment) -> SegmentHeader | None:
        record = next(self.records(segment.name, 0), None)
        try:
            header = None if record is None else _decode_header(record[0])
        except (msgspec.DecodeError, UnicodeDecodeError):
            return None
        return header if header is not None and header.position == segment.position else None

    def records(self, name: str, start: int) -> Iterator[tuple[bytes, int]]:
        """The intact records from an offset in a file, and the offset where each ends."""
        buffer, place = b"", 0
        while True:
            while len(buffer) - place >= _HEADER.size:
                size, checksum = _HEADER.unpack_from(buffer, place)
                end = place + _HEADER.size + size
                if size == 0 or size > MAX_ENTRY:
                    return
                if len(buffer) < end:
                    break
                data = buffer[place + _HEADER.size : end]
                if zlib.crc32(data) != checksum:
                    return
                place = end
                yield data, start + place
            start, buffer, place = start + place, buffer[place:], 0
            more = self._files.read_at(name, start + len(buffer), _READ_BYTES)
            if not more:
                return
            buffer += more

    @staticmethod
    def end_of(records: Iterator[tuple[bytes, int]], count: int) -> int:
        """The offset after this many records."""
        return max((end for _, end in itertools.islice(records, count)), default=0)

    # Adding

    def begin(self, position: int, counts: dict[str, int]) -> None:
        """Add what is delivered from now on; earlier messages are not part of the log."""
        self.clear()
        self.exists, self.counts, self._last_counts = True, counts, dict(counts)
        self.first = self.end = self.written = self._taken = position

    def create(self) -> None:
        """Create the files of an empty log, durably."""
        with self._writing:
            if not self.segments:
                self._add_segment(self.first)
        self.sync()

    def clear(self) -> None:
        with self._writing:
            self.generation += 1
            for segment in self.segments:
                self._files.remove(segment.name)
            self.segments, self.size = [], 0
        self.exists, self._reader = False, None
        self.unwritten.clear()
        self._is_dirty = False

    def add(self, position: int, entry: HistoryEntry, data: bytes | None = None) -> None:
        """A message was delivered; in a replay it may be in the log already."""
        if position <= self.end:
            return
        if position > self.end + 1:
            self.clear()  # there is a gap, which makes the messages before it useless
            return
        data = encode_entry(entry) if data is None else data
        self.end = position
        origin = entry.names.get(entry.origin, "")
        self.unwritten.append(UnwrittenEntry(position, data, origin, entry.seq, entry.time))

    @property
    def has_unwritten(self) -> bool:
        return bool(self.unwritten) and self.unwritten[-1].position > self._taken

    def take_batch(self, sync: bool) -> HistoryBatch | None:
        """The entries to write next. They stay in memory until they are confirmed."""
        entries = [entry for entry in self.unwritten if entry.position > self._taken]
        if not entries and not (sync and self._is_dirty):
            return None
        if entries:
            self._taken = entries[-1].position
        self._is_dirty = not sync
        return HistoryBatch(self, entries, sync)

    def write(self, entries: list[UnwrittenEntry], generation: int) -> None:
        """Append to the last segment, or to a new one; unless the log was cleared since."""
        for start in range(0, len(entries), _AT_ONCE):
            with self._writing:
                if generation == self.generation:
                    self._append(entries[start : start + _AT_ONCE])

    def _append(self, entries: list[UnwrittenEntry]) -> None:
        if not self.segments or self.segments[-1].size >= self.segment_bytes:
            self.sync()  # a power failure must not leave a gap between segments
            self._add_segment(entries[0].position - 1)
        segment = self.segments[-1]
        data = b"".join(_record(entry.data) for entry in entries)
        self._files.write_at(segment.name, segment.size, data)
        segment.size += len(data)
        self.size += len(data)
        segment.last, segment.newest = entries[-1].position, entries[-1].time
        self._last_counts.update((entry.origin, entry.seq) for entry in entries)

    def _add_segment(self, position: int) -> None:
        segment = HistorySegment(f"{self._prefix}{position}", position)
        header = _record(encode_entry(SegmentHeader(position, self._last_counts)))
        self._files.write_at(segment.name, 0, header)
        self._files.truncate(segment.name, len(header))
        segment.size = len(header)
        self.size += len(header)
        self.segments.append(segment)

    def sync(self) -> None:
        """Make all files durable, including their names."""
        if self.segments:
            self._files.sync(self.segments[-1].name)
            self._files.sync_folder()

    def confirm(self, position: int) -> None:
        self.written = max(self.written, position)
        while self.unwritten and self.unwritten[0].position <= position:
            self.unwritten.popleft()

    # Reading

    def read(self, position: int) -> HistoryEntry:
        """One entry; fast if it is the one after the last that was read."""
        if self._reader is None or self._reader.position != position - 1:
            self._reader = HistoryReader(self, position - 1)
        return decode_entry(self._reader.read())

    def entries_after(self, position: int) -> list[bytes]:
        """All entries after a position, including those that are not in files yet."""
        reader = HistoryReader(self, position)
        return [reader.read() for _ in range(self.end - position)]

    def beginning_within(self, size: int) -> tuple[int, dict[str, int]]:
        """The first position after which at most `size` bytes follow, and the counts there."""
        sizes = [segment.size for segment in self.segments]
        skipped = next((each for each in range(len(sizes)) if sum(sizes[each:]) <= size), len(sizes) - 1)
        if skipped <= 0 or (header := self._header_of(self.segments[skipped])) is None:
            return self.first, self.counts
        return header.position, header.counts

    # Truncating and deleting

    def cut_off(self, position: int) -> None:
        """After a crash: remove everything beyond this position, which the journal does not contain. If the
        log ends before it, the missing entries are lost, and the log is useless."""
        if self.exists and not self.first <= position <= self.end:
            self.clear()
        elif self.exists and self.written > position:
            while len(self.segments) > 1 and self.segments[-1].position >= position:
                self._files.remove(self.segments.pop().name)
            segment = self.segments[-1]
            segment.size = self.end_of(self.records(segment.name, 0), position - segment.position + 1)
            self._files.truncate(segment.name, segment.size)
            self._open_last()
            self.size = sum(each.size for each in self.segments)

    def trim(self, retention: Retention | None, now: int, needed: int | None) -> None:
        """Delete segments that are beyond the limits and not needed; `needed` is the last position before the
        needed part. Without `retention` only the needed part is kept."""
        if retention is not None and retention.size:
            self.segment_bytes = max(1, min(SEGMENT_BYTES, retention.size // _SEGMENTS))
        while len(self.segments) > 1:
            oldest, following = self.segments[:2]
            is_needed = needed is not None and following.position > needed
            if is_needed or (retention is not None and not self._is_beyond(oldest, retention, now)):
                return
            header = self._header_of(following)
            if header is None:
                return
            with self._writing:
                self._files.remove(oldest.name)
                del self.segments[0]
                self.size -= oldest.size
            self.first, self.counts = following.position, header.counts
        if retention is None and needed is None and self.segments:
            self.clear()

    def _is_beyond(self, oldest: HistorySegment, retention: Retention, now: int) -> bool:
        if retention.size:
            return self.size > retention.size
        if not retention.nanoseconds:
            return False
        if not oldest.newest:
            *_, (data, _) = self.records(oldest.name, 0)
            oldest.newest = decode_entry(data).time
        return now - oldest.newest > retention.nanoseconds


class HistoryReader:
    """Reads a log entry by entry, starting at a position."""

    def __init__(self, log: HistoryLog, position: int) -> None:
        if not log.first <= position <= log.end:
            raise LookupError(f"position {position} is not in a history of {log.first} to {log.end}")
        self._log, self.position = log, position
        self._segment: HistorySegment | None = None
        self._offset = 0
        self._records: Iterator[tuple[bytes, int]] = iter(())

    def read(self) -> bytes:
        """The next entry; it must exist."""
        log, following = self._log, self.position + 1
        if following > log.written:
            first = log.unwritten[0].position if log.unwritten else following + 1
            if not first <= following <= log.end:
                raise LookupError(f"position {following} is not in the history")
            data = log.unwritten[following - first].data
            self._segment = None
        else:
            data, self._offset = self._read_record(following)
        self.position = following
        return data

    @property
    def bytes_left(self) -> int:
        """Bytes that follow, in the files and not written yet."""
        log = self._log
        if self._segment is None:
            self._locate()
        others = [each for each in log.segments if each is not self._segment]
        later = [each for each in others if each.position >= self.position]
        here = 0 if self._segment is None else self._segment.size - self._offset
        unwritten = sum(len(each.data) for each in log.unwritten if each.position > log.written)
        return here + sum(each.size for each in later) + unwritten

    def _locate(self) -> None:
        """Find the offset of the next record in the files."""
        log, position = self._log, self.position
        segment = next((each for each in reversed(log.segments) if each.position <= position), None)
        if segment is not None and position <= log.written:
            self._segment, self._records = segment, log.records(segment.name, 0)
            self._offset = log.end_of(self._records, position - segment.position + 1)

    def _read_record(self, position: int) -> tuple[bytes, int]:
        if self._segment is not None:
            record = next(self._records, None)
            if record is None:  # more may have been written since, to this segment or the next
                self._records = self._log.records(self._segment.name, self._offset)
                record = next(self._records, None)
            if record is not None:
                return record
        self._segment = None
        self._locate()
        if (record := next(self._records, None)) is not None:
            return record
        raise InputError(f"the history is damaged: the message at position {position} is missing")


def _record(data: bytes) -> bytes:
    return _HEADER.pack(len(data), zlib.crc32(data)) + data


def addresses_of(names: list[str]) -> set[int]:
    """The addresses whose histories are among these files."""
    return {int(match[1], 16) for name in names if (match := _NAME.fullmatch(name))}
