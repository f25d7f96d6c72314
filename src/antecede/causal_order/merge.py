"""Topics of one change data capture connector, merged into the order in which it wrote them.

A connector reads one log and writes one sequence of records. Kafka divides it among topics and partitions;
what remains of the sequence is the order within each partition and the topic of transaction markers. From
these the sequence is restored, by a k-way merge driven by the markers:

- a partition is a queue by offset; copies of an earlier record are dropped;
- a transaction is emitted, its events one after another, once the END of every earlier transaction has been
  emitted, its own END and all events that this END counts have arrived, and only rows outside transactions
  precede its events in their partitions. Those rows are emitted first, except rows between two of its events:
  they stay where the connector put them, as does the tombstone that follows a deletion;
- other rows, such as those of snapshots, are emitted when they are first in their partition. If a transaction
  is ready too, the lower position in the database's log comes first; a transaction at exactly the position of
  a snapshot is contained in it, and precedes it;
- no transaction is emitted between the arrival of a snapshot's first row and that of its last.

The set of records that have arrived determines what is emitted and in which order; the order of arrival does
not matter. Cost: linear in the rows that are new or held, a few microseconds each.
"""

from __future__ import annotations

import heapq
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec

from antecede.errors import InputError

_FIRST, _LAST = "first", "last"
_FIRST_OF_TABLE, _LAST_OF_TABLE = "first_in_data_collection", "last_in_data_collection"
_INCREMENTAL = "incremental"
"""Values of `source.snapshot`."""
_BEGIN, _END, _DELETE, _TOMBSTONE = "BEGIN", "END", "delete", "tombstone"
_NO_POSITION = -1
_NEVER = 1 << 64
_MAX_MISSING = 100
"""The number of missing records of a transaction that a reason names."""


class MergeRules(msgspec.Struct, array_like=True, frozen=True):
    """How to merge."""

    consecutive: bool = False
    """Whether offsets have no gaps, so that a late record is known to be missing."""
    first_offsets: dict[str, int] = {}
    """First offsets of partitions that do not begin at 0, if offsets are consecutive."""
    snapshot_of: list[str] = []
    """Topics that begin with a snapshot, even if no row of it has arrived."""


class SnapshotProgress(msgspec.Struct, array_like=True):
    """The parts of snapshots that have begun, and those that are complete."""

    begun: bool = False
    ended: bool = False
    marks_tables: bool = False
    """Whether the connector marks the last row of each table; old versions mark only the last row of the
    snapshot."""
    begun_topics: set[str] = set()
    ended_topics: set[str] = set()

    def see(self, topic: str, flag: str) -> None:
        if flag == _INCREMENTAL:
            return
        self.begun = True
        self.ended |= flag == _LAST
        self.marks_tables |= flag in (_FIRST, _FIRST_OF_TABLE, _LAST_OF_TABLE)
        if flag in (_LAST, _LAST_OF_TABLE):
            self.ended_topics.add(topic)
        elif flag != _FIRST:  # A table's only row has this flag too.
            self.begun_topics.add(topic)

    def missing(self, snapshot_of: Iterable[str]) -> list[str]:
        """The records that must arrive before a transaction may be emitted."""
        topics = set(snapshot_of) | (self.begun_topics if self.marks_tables else set())
        missing = [f"last row of the snapshot of {topic}" for topic in sorted(topics - self.ended_topics)]
        return ["last row of the snapshot", *missing] if self.begun and not self.ended else missing


class MergeProgress(msgspec.Struct, array_like=True):
    """The state of a merge besides its held records and the ids of emitted records."""

    rules: MergeRules = msgspec.field(default_factory=MergeRules)
    next_offsets: dict[str, int] = {}
    """For each partition, the first offset that has not arrived yet."""
    markers: str | None = None
    """The partition of the transaction markers."""
    snapshot: SnapshotProgress = msgspec.field(default_factory=SnapshotProgress)
    last_position: int = _NO_POSITION
    """The log position of the last emitted transaction."""


class ChangeRecord(NamedTuple):
    """A record of a topic; the meaning of most fields is that of `sources.debezium.Change`."""

    row: int
    topic: str
    partition: str
    """The topic and the partition's number."""
    offset: int
    """Negative if the record has no offset."""
    kind: str | None
    """None if it is no change event."""
    id: str | None
    transaction: str | None
    order: int | None
    events: int | None
    position: int | None
    snapshot: str | None
    is_repeated: bool
    """Whether the record was emitted before."""

    @property
    def is_marker(self) -> bool:
        return self.kind in (_BEGIN, _END)


class HeldRecord(NamedTuple):
    """Why a record is held."""

    reason: str
    waits_for: list[str]
    missing: list[str]
    """The missing records that it waits for, directly or transitively."""


class Merged(NamedTuple):
    """The outcome of records, by row."""

    emitted: list[int]
    """The emitted rows, in order."""
    late: set[int]
    """The emitted rows that belong to a snapshot and came after one of its later transactions."""
    duplicates: list[int]
    unreadable: list[int]
    held: dict[int, HeldRecord]


def merge(records: Iterable[ChangeRecord], held_before: int, progress: MergeProgress) -> Merged:
    """Merge records: the first `held_before` rows were held, the others are new. Updates `progress`."""
    merging = _Merging(progress)
    merging.admit(records, held_before)
    merging.run()
    merging.explain()
    return merging.result


class _Merging:
    def __init__(self, progress: MergeProgress) -> None:
        self._progress, self._rules = progress, progress.rules
        self.result = Merged([], set(), [], [], {})
        self._queues: dict[str, deque[ChangeRecord]] = {}
        self._markers: deque[ChangeRecord] = deque()
        self._begins: dict[str, ChangeRecord] = {}
        self._ends: dict[str, ChangeRecord] = {}
        self._events: dict[str, dict[int, ChangeRecord]] = defaultdict(dict)
        self._after_gap: list[tuple[ChangeRecord, str]] = []
        """Records after a gap, with the name of the first record missing there."""
        self._gaps: dict[str, str] = {}
        """The same records by their ids."""
        self._heads: list[tuple[int, str, int]] = []
        """A heap of the records that are first in their partition and outside transactions: position,
        partition, offset; it may contain some that have left since."""

    def admit(self, records: Iterable[ChangeRecord], held_before: int) -> None:
        """Put records into the queues of their partitions, up to the first gap of each."""
        partitions: dict[str, dict[int, ChangeRecord]] = defaultdict(dict)
        next_offsets = self._progress.next_offsets
        for record in records:
            if record.offset < 0:
                self.result.unreadable.append(record.row)
                continue
            is_old = record.row >= held_before and record.offset < next_offsets.get(record.partition, 0)
            if is_old or record.offset in partitions[record.partition]:
                self.result.duplicates.append(record.row)
            else:
                partitions[record.partition][record.offset] = record
        ids: set[str] = set()
        for partition in sorted(partitions):
            for record in self._until_gap(partition, partitions[partition]):
                self._admit(record, ids)
        for partition in self._queues:
            self._push_head(partition)

    def _until_gap(self, partition: str, by_offset: dict[int, ChangeRecord]) -> Iterator[ChangeRecord]:
        next_offsets, rules = self._progress.next_offsets, self._rules
        begin = next_offsets.get(partition, rules.first_offsets.get(partition, 0))
        for offset in sorted(by_offset):
            if rules.consecutive and offset > begin:
                self._after_gap.append((by_offset[offset], f"{partition}@{begin}"))
                continue
            begin = max(begin, offset + 1)
            yield by_offset[offset]
        next_offsets[partition] = begin

    def _admit(self, record: ChangeRecord, ids: set[str]) -> None:
        if record.snapshot is not None:
            self._progress.snapshot.see(record.topic, record.snapshot)
        if record.is_marker:
            self._refuse_other_markers(record.partition)
        if record.kind is None:
            self.result.unreadable.append(record.row)
        elif record.is_repeated or record.id in ids:
            self.result.duplicates.append(record.row)
        elif record.is_marker:
            self._markers.append(record)
            (self._ends if record.kind == _END else self._begins)[str(record.transaction)] = record
        else:
            self._queues.setdefault(record.partition, deque()).append(record)
            if record.transaction is not None and record.order is not None:
                self._events[record.transaction][record.order] = record
        if record.id is not None:
            ids.add(record.id)

    def _refuse_other_markers(self, partition: str) -> None:
        before = self._progress.markers
        if before not in (None, partition):
            raise InputError(
                f"transaction markers are in {before} and in {partition}: their order is that of one "
                "partition; merge the topics of one connector, whose transaction topic has one partition"
            )
        self._progress.markers = partition

    def run(self) -> None:
        while (end := self._next_end()) is not None and self._is_ready(end):
            self._emit_free_rows(self._position(end))
            self._emit_transaction(end)
        self._emit_free_rows(_NEVER)

    def _next_end(self) -> ChangeRecord | None:
        while self._markers and self._markers[0].kind == _BEGIN:
            self._markers.popleft()
        return self._markers[0] if self._markers else None

    def _is_ready(self, end: ChangeRecord) -> bool:
        if self._progress.snapshot.missing(self._rules.snapshot_of) or self._missing_events(end):
            return False
        return self._blocking(end) is None

    def _missing_events(self, end: ChangeRecord) -> list[str]:
        there, count = self._events.get(str(end.transaction), {}), end.events or 0
        if len(there) >= count:
            return []
        if any(order > count for order in there):  # The END does not count all tables.
            return [f"{count - len(there)} more of {end.transaction}"]
        places = (order for order in range(1, count + 1) if order not in there)
        return [f"{end.transaction}:{order}" for order, _ in zip(places, range(_MAX_MISSING), strict=False)]

    def _blocking(self, end: ChangeRecord) -> ChangeRecord | None:
        """An event of another transaction that precedes an event of this one in its partition."""
        last: dict[str, int] = {}
        for event in self._events.get(str(end.transaction), {}).values():
            last[event.partition] = max(last.get(event.partition, 0), event.offset)
        for partition, offset in last.items():
            for record in self._queues[partition]:
                if record.transaction not in (None, end.transaction):
                    return record
                if record.offset == offset:
                    break
        return None

    def _position(self, end: ChangeRecord) -> int:
        if end.position is not None:
            return end.position
        events = self._events.get(str(end.transaction), {}).values()
        return max((event.position or _NO_POSITION for event in events), default=_NO_POSITION)

    def _push_head(self, partition: str) -> None:
        queue = self._queues[partition]
        if queue and queue[0].transaction is None:
            position = queue[0].position
            key = _NO_POSITION if position is None else position
            heapq.heappush(self._heads, (key, partition, queue[0].offset))

    def _emit_free_rows(self, before: int) -> None:
        """Emit rows outside transactions that are first in their partition and precede a position."""
        while self._heads and self._heads[0][0] < before:
            _, partition, offset = heapq.heappop(self._heads)
            queue = self._queues[partition]
            if queue and queue[0].offset == offset:
                self._emit(queue.popleft())
                self._push_head(partition)

    def _emit(self, record: ChangeRecord) -> None:
        self.result.emitted.append(record.row)
        if (
            record.snapshot not in (None, _INCREMENTAL)
            and record.position is not None
            and record.position < self._progress.last_position
        ):
            self.result.late.add(record.row)

    def _emit_transaction(self, end: ChangeRecord) -> None:
        name = str(end.transaction)
        events = self._events.pop(name, {})
        partitions = sorted({event.partition for event in events.values()})
        following: dict[int, list[ChangeRecord]] = {}
        for partition in partitions:
            own = sum(event.partition == partition for event in events.values())
            following |= self._take_events(partition, own)
        if name in self._begins:
            self._emit(self._begins.pop(name))
        for order in sorted(events):
            self._emit(events[order])
            for record in following[events[order].row]:
                self._emit(record)
        self._emit(self._markers.popleft())
        del self._ends[name]
        self._progress.last_position = max(self._progress.last_position, self._position(end))
        for partition in partitions:
            self._push_head(partition)

    def _take_events(self, partition: str, count: int) -> dict[int, list[ChangeRecord]]:
        """Take a transaction's next events out of the queue of a partition, with the rows that follow each.
        Rows before them are emitted."""
        queue = self._queues[partition]
        while queue[0].transaction is None:
            self._emit(queue.popleft())
        following: dict[int, list[ChangeRecord]] = {}
        event = queue[0]
        while count or (queue and queue[0].kind == _TOMBSTONE and event.kind == _DELETE):
            record = queue.popleft()
            if record.transaction is None:
                following[event.row].append(record)
            else:
                event = record
                following[event.row] = []
                count -= 1
        return following

    def explain(self) -> None:
        """Report for every remaining record what it waits for."""
        held = self.result.held
        for record, gap in self._after_gap:
            held[record.row] = HeldRecord(f"waits for {gap}", [gap], [gap])
            if record.id is not None:
                self._gaps[record.id] = gap
        end = self._next_end()
        first = None if end is None else self._waiting(end)
        by_transaction: dict[str, HeldRecord] = {}

        def of_transaction(name: str) -> HeldRecord:
            if name not in by_transaction:
                own = self._ends.get(name)
                if own is None:
                    missing = f"{name}:{_END}"
                    by_transaction[name] = HeldRecord(
                        f"waits for {missing}", [missing], self._absent([missing])
                    )
                elif self._missing_events(own) or own is end or end is None or first is None:
                    by_transaction[name] = self._waiting(own)
                else:
                    by_transaction[name] = HeldRecord(f"waits for {end.id}", [str(end.id)], first.missing)
            return by_transaction[name]

        for marker in (*self._begins.values(), *self._ends.values()):
            held[marker.row] = of_transaction(str(marker.transaction))
        for queue in self._queues.values():
            before: ChangeRecord | None = None
            for record in queue:
                if record.transaction is not None:
                    held[record.row] = of_transaction(record.transaction)
                    before = record
                elif before is not None:
                    missing = of_transaction(str(before.transaction)).missing
                    held[record.row] = HeldRecord(f"waits for {before.id}", [str(before.id)], missing)

    def _waiting(self, end: ChangeRecord) -> HeldRecord:
        """What a transaction waits for whose END has arrived, and no earlier END is waiting."""
        missing = self._missing_events(end) or self._progress.snapshot.missing(self._rules.snapshot_of)
        if missing:
            return HeldRecord(_words(missing), missing, self._absent(missing))
        other = self._blocking(end) or end
        own = self._ends.get(str(other.transaction))
        missing = [f"{other.transaction}:{_END}"] if own is None else self._missing_events(own)
        # With both, the order of the markers contradicts that of the partition: a marker was lost.
        missing = missing or [f"{other.transaction}:{_END} before {end.id}"]
        return HeldRecord(f"waits for {other.id}", [str(other.id)], self._absent(missing))

    def _absent(self, names: list[str]) -> list[str]:
        """The names of what has to arrive, or the gaps after which the records are held."""
        return list(dict.fromkeys(self._gaps.get(name, name) for name in names))


def _words(missing: list[str], shown: int = 5) -> str:
    more = len(missing) - shown
    return f"waits for {', '.join(missing[:shown])}" + (f" and {more} more" if more > 0 else "")
