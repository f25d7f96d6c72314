"""Judges causal order across groups that overlap and change, after each group has been judged by itself.

Once a process has a message, by delivery or in a snapshot, no message that happened before it may be
delivered to that process later, in any group. Violations within one membership of a process are counted with
its group, so they do not count here again.

A message may be lost with a removed member and be rebroadcast later under its original id. The copy is a
message of its own: it follows everything that preceded the original, and no process had to wait for it.

A copy may in turn be lost with another removed member, which a trace does not record. So the delivery of a
copy at a removed member does not count: no process has to wait for that copy.

Cost: one vector operation per row, with an entry for each member of each group.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from antecede.errors import InputError

MAX_BYTES = 4 << 30
"""Bytes of memory for the causal pasts of a run's messages."""
_NEVER = 1 << 62


class LateMessage(NamedTuple):
    """A message that a process received after a message that it precedes."""

    of_process: str
    process: str
    """The member of the process at which the message was delivered."""
    cause: tuple[str, int]
    effects: list[tuple[str, int]]
    """What the process already had, earliest first; for a snapshot, the last message of a member in it."""
    path: list[tuple[str, int]]
    """A chain of messages from the cause to the first effect; each happened before the next."""


class _Event(NamedTuple):
    """A row of a process, in the order of that process over all its groups."""

    kind: str
    member: str
    """The member of the process at which the event happened."""
    origin: str
    seq: int
    """The message; for a snapshot, the last message of one member that the snapshot contains."""
    is_copy: bool
    """Whether the message is a copy that was rebroadcast after a loss."""
    may_be_lost: bool
    """Whether the member was removed: a copy delivered there may be lost again."""

    @property
    def message(self) -> tuple[str, int]:
        return self.origin, self.seq


class _Streams(NamedTuple):
    """Indices in vectors: one for the messages of each member, and one for rebroadcast copies of them."""

    places: Mapping[str, int]

    def of(self, event: _Event) -> int:
        return self.places[event.origin] + event.is_copy * len(self.places)


def has_several_groups(rows: pa.Table) -> bool:
    return len(rows.column("group").unique()) > 1


def find_late(rows: pa.Table, ends: Mapping[str, int]) -> list[LateMessage]:
    """What each process received too late. `ends` says where the streams of members end that were removed, or
    never admitted: messages beyond the end were lost, and may have been rebroadcast."""
    return _Replay(_events_by_process(rows, ends)).find()


def _events_by_process(rows: pa.Table, ends: Mapping[str, int]) -> dict[str, list[_Event]]:
    names = ["process", "index", "kind", "origin", "seq", "member"]
    whole = "of_process" if "of_process" in rows.column_names else "process"
    rows = rows.filter(pc.is_in(rows.column("kind"), pa.array(["send", "deliver", "snapshot", "close"])))
    process = pc.coalesce(rows.column(whole), rows.column("process"))
    rows = rows.select(names).append_column("whole", process)
    rows = rows.sort_by([("whole", "ascending"), ("index", "ascending")])
    sent = _sent(rows)
    found: dict[str, list[_Event]] = defaultdict(list)
    closed: set[tuple[str, str]] = set()
    for row in rows.to_pylist():
        kind, member, origin, seq = row["kind"], row["process"], row["origin"], row["seq"]
        if kind == "close":
            closed.add((member, row["member"]))
            continue
        # A removed member may itself have delivered messages that are lost to the others.
        may_be_copy = kind != "send" and (member not in ends or (member, origin) in closed)
        if kind != "snapshot":
            messages = [seq] if _last_sent(sent, origin, seq) == seq else []
        else:
            origin = row["member"]
            may_be_copy = member not in ends
            whole_part = min(seq, ends.get(origin, seq)) if may_be_copy else seq
            messages = sorted({_last_sent(sent, origin, whole_part), _last_sent(sent, origin, seq)} - {0})
        end = ends.get(origin, _NEVER) if may_be_copy else _NEVER
        found[row["whole"]] += [
            _Event(kind, member, origin, each, each > end, member in ends) for each in messages
        ]
    return found


def _sent(rows: pa.Table) -> dict[str, list[int]]:
    """The sequence numbers that each member has sent, ascending."""
    sends = rows.filter(pc.equal(rows.column("kind"), "send"))
    found: dict[str, list[int]] = defaultdict(list)
    for origin, seq in zip(sends["origin"].to_pylist(), sends["seq"].to_pylist(), strict=True):
        found[origin].append(seq)
    return {origin: sorted(seqs) for origin, seqs in found.items()}


def _last_sent(sent: Mapping[str, list[int]], origin: str, seq: int) -> int:
    """The last message of a member up to this number; 0 if there is none."""
    seqs = sent.get(origin, [])
    place = bisect_right(seqs, seq)
    return seqs[place - 1] if place else 0


class _Replay:
    """Replays all processes together: a delivery waits until its message has been sent."""

    def __init__(self, by_process: Mapping[str, list[_Event]]) -> None:
        self._names, self._processes = list(by_process), list(by_process.values())
        processes = self._processes
        names = sorted({each.origin for events in processes for each in events})
        self._streams = _Streams({name: place for place, name in enumerate(names)})
        sends = [each.message for events in processes for each in events if each.kind == "send"]
        self._number = {message: number for number, message in enumerate(sends)}
        width = 2 * len(names)
        if (size := 8 * width * len(sends)) > MAX_BYTES:
            raise InputError(
                f"its groups change, and the pasts of {len(sends):,} messages would take {size >> 30:,} "
                f"GiB; up to {MAX_BYTES >> 30} GiB can be judged"
            )
        self._pasts = np.zeros((len(sends), width), np.int64)
        """The causal past of each message: the last message of each stream in it."""
        self._is_sent = np.zeros(len(sends), np.bool_)
        self._known = np.zeros((len(processes), width), np.int64)
        self._in_snapshots = np.zeros((len(processes), width), np.int64)
        self._has: list[set[tuple[int, int]]] = [set() for _ in processes]
        self._place = [0] * len(processes)
        self._sent_at: dict[tuple[str, int], tuple[int, int]] = {}
        """The process and the index of each send."""
        self._found: list[LateMessage] = []

    def find(self) -> list[LateMessage]:
        waiting: dict[int, list[int]] = defaultdict(list)
        ready = list(range(len(self._processes)))
        while ready:
            at = ready.pop()
            blocked = self._follow(at, waiting, ready)
            if blocked is not None:
                waiting[blocked].append(at)
            if not ready and waiting:
                # A cycle: its deliveries are impossible, which is reported elsewhere.
                _, ready = waiting.popitem()
                for each in ready:
                    self._place[each] += 1
        return self._found

    def _follow(self, at: int, waiting: dict[int, list[int]], ready: list[int]) -> int | None:
        """Replay a process until it needs a message that has not been sent yet, and return that message."""
        events = self._processes[at]
        while self._place[at] < len(events):
            event = events[self._place[at]]
            number = self._number[event.message]
            if event.kind == "send":
                self._pasts[number] = self._known[at]
                self._is_sent[number] = True
                self._sent_at[event.message] = at, self._place[at]
                ready += waiting.pop(number, [])
            elif not self._is_sent[number]:
                return number
            self._take(at, event, number)
            self._place[at] += 1
        return None

    def _take(self, at: int, event: _Event, number: int) -> None:
        stream, seq = self._streams.of(event), event.seq
        if event.kind == "snapshot":
            self._in_snapshots[at, stream] = max(seq, self._in_snapshots[at, stream])
        elif (stream, seq) not in self._has[at]:
            self._has[at].add((stream, seq))
            is_new = event.kind == "deliver" and seq > self._in_snapshots[at, stream]
            if is_new and self._known[at, stream] >= seq:
                self._note_late(at, event, stream)
        known = self._known[at]
        np.maximum(known, self._pasts[number], out=known)
        if not (event.is_copy and event.may_be_lost):
            known[stream] = max(seq, known[stream])

    def _note_late(self, at: int, event: _Event, stream: int) -> None:
        before = self._processes[at][: self._place[at]]
        effects = [
            each.message
            for each in before
            if each.member != event.member
            and each.kind != "send"
            and self._pasts[self._number[each.message], stream] >= event.seq
        ]
        if effects:
            path = self._path(event, stream, effects[0])
            found = LateMessage(self._names[at], event.member, event.message, effects, path)
            self._found.append(found)

    def _path(self, cause: _Event, stream: int, effect: tuple[str, int]) -> list[tuple[str, int]]:
        path = [effect]
        while path[0] != cause.message and path[0] in self._sent_at:
            at, place = self._sent_at[path[0]]
            path.insert(0, self._first_with(self._processes[at][:place], cause, stream))
        return path

    def _first_with(self, events: Sequence[_Event], cause: _Event, stream: int) -> tuple[str, int]:
        """The first message the process had that is the cause itself or happened before it."""
        for each in events:
            is_it = self._streams.of(each) == stream and each.seq >= cause.seq
            if is_it or self._pasts[self._number[each.message], stream] >= cause.seq:
                return cause.message if is_it else each.message
        return cause.message


def count_effects(late: Iterable[LateMessage]) -> tuple[int, int]:
    """How many deliveries preceded one of their causes, and how many pairs of cause and effect there are."""
    pairs = [(each.of_process, effect) for each in late for effect in each.effects]
    return len({*pairs}), len(pairs)
