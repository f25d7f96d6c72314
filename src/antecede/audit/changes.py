"""Membership changes in an audit: which messages are owed to which process, and whether all members agree.

A change is a message too: an `admit`, `leave` or `remove` row is a send at the process that made the change
and a delivery elsewhere. So happened-before includes changes, and a change delivered before its cause is a
violation like any other.

- *Owed.* The snapshot of an admitted process contains what happened before its admission. The process is owed
  everything else that any surviving or departed member has, with all its causes. A member that left or was
  removed is owed what happened before its last event: its deliveries are causally closed. So surviving
  members deliver the same messages of a removed member.
- *Exactly once*: messages in the snapshot are not delivered again.
- *One cut*: all members that close a stream close it after the same message.
- *Views agree*: in the end every view contains exactly the surviving members.
- *One group*: no two members have each removed the other, and closed its stream.
- *The snapshot is a cut*: if a process's rows describe its snapshot, it contains exactly what happened before
  its admission.
- *The end*: a member that has left sends and delivers nothing more.
- *Phones*, and local processes of a gateway, are in no view. A process that begins with a snapshot without
  having been admitted is one of them. It is owed everything that its snapshot lacks, and the snapshot must
  contain the causes of everything in it.

Overlapping groups are judged one by one, and then the order across them (`audit.across_groups`). There, a
change counts as a message only where it was made, and an admission also where it takes effect: members learn
of changes without waiting for messages that their applications have not delivered.

A removal or an admission whose message lies beyond the end of its sender's stream did not take effect.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from antecede.audit.encoding import EncodedRun
from antecede.audit.faults import DeliveryFault
from antecede.audit.passes import DELIVER, DELIVERIES, DUPLICATE, DUPLICATES, AuditState
from antecede.errors import InputError
from antecede.trace.schema import CHANGE_KINDS, COUNT_KINDS, Members

MAX_ROWS = 20_000_000
"""The most rows of a run whose group changes: one task judges it."""

_Message = tuple[str, int]


class Change(NamedTuple):
    """A membership change that a process has seen: one of its rows."""

    process: str
    at: int
    """The index of the row."""
    kind: str
    origin: str
    seq: int
    member: str

    @property
    def message(self) -> _Message:
        return self.origin, self.seq


def has_changes(rows: pa.Table) -> bool:
    """Whether the membership of a run's group changes."""
    if "member" not in rows.column_names:
        return False
    return bool(pc.any(pc.is_in(rows.column("kind"), pa.array(CHANGE_KINDS))).as_py())


class ChangingGroup:
    """The membership changes in one run's rows."""

    def __init__(self, rows: pa.Table, members: Members, overlaps: bool = False) -> None:
        """With `overlaps`, this is one group of several that overlap."""
        if rows.num_rows > MAX_ROWS:
            raise InputError(
                f"its group changes, and it has {rows.num_rows:,} rows; up to {MAX_ROWS:,} can be judged"
            )
        groups = rows.column("group").unique()
        is_change = pc.fill_null(pc.is_in(rows.column("kind"), pa.array(CHANGE_KINDS)), False)
        chosen = rows.filter(is_change).select(["process", "index", "kind", "origin", "seq", "member"])
        if empty := chosen.column("member").null_count:
            raise InputError(f"field member is empty in {empty:,} rows that are changes of the group")
        changes = (Change(*row.values()) for row in chosen.to_pylist())
        self.changes = sorted(changes, key=lambda each: (each.process, each.at))
        present = set(rows.column("process").unique().to_pylist())
        concerned = {each.member for each in self.changes}
        admitted = {each.member for each in self.changes if each.kind == "admit"}
        self.founders = set().union(*members.values()) if members else present - admitted
        names = sorted(present | concerned | self.founders)
        self.members: Members = dict.fromkeys(groups.to_pylist(), names)
        self.table = _as_messages(_at_their_makers(rows) if overlaps else rows)
        self._snapshots: dict[str, dict[str, int]] = defaultdict(dict)
        for each in self.changes:
            if each.kind == "snapshot":
                self._snapshots[each.process][each.member] = each.seq
        self._wrong_snapshots: dict[str, tuple[list[_Message], list[_Message]]] = {}
        """What each process's snapshot contains or lacks wrongly."""
        self._find_ends()

    # Who is a member in the end.

    def _find_ends(self) -> None:
        closings: dict[str, Counter[int]] = defaultdict(Counter)
        for each in self.changes:
            if each.kind == "close":
                closings[each.member][each.seq] += 1
        self.cuts = {member: most_common(seqs) for member, seqs in closings.items()}
        removals = [each for each in self.changes if each.kind == "remove"]
        removed = {each.member for each in removals}
        for _ in range(len(removed) + 1):
            valid = {each.member for each in removals if not self._is_void(each.message, removed)}
            if valid == removed:
                break
            removed = valid
        self.removed = removed
        admissions: dict[str, set[_Message]] = defaultdict(set)
        for each in self.changes:
            if each.kind == "admit":
                admissions[each.member].add(each.message)
        self.admissions = {member: min(messages) for member, messages in admissions.items()}
        for each in self.changes:
            if each.kind == "admit" and each.process == each.member:
                self.admissions[each.member] = each.message
        void = {
            member
            for member, messages in admissions.items()
            if member not in self.founders and all(self._is_void(each, removed) for each in messages)
        }
        self.left = {
            each.member: each
            for each in self.changes
            if each.kind == "leave" and each.process == each.member and each.member not in removed
        }
        gone = {each.member for each in self.changes if each.kind == "leave"} | removed | void
        self.outside = removed | void
        """Processes that were removed, or never were members."""
        self.ends = dict.fromkeys(void, 0) | {each: self.cuts[each] for each in removed & self.cuts.keys()}
        """Where their streams end, as far as that is known."""
        self.staying = (self.founders | admissions.keys()) - gone
        """The members that stay."""
        self.phones = self._snapshots.keys() - self.founders - admissions.keys() - gone
        """The phones that stay."""

    def _is_void(self, message: _Message, removed: set[str]) -> bool:
        """Whether a message lies beyond the end of its sender's stream, so that nobody else delivers it."""
        origin, seq = message
        return origin in removed and seq > self.cuts.get(origin, seq)

    # Which messages are owed.

    def adjust(self, encoded: EncodedRun, state: AuditState, vectors: np.ndarray) -> None:
        """Count messages that are not owed to a process as ones it has, before violations are counted."""
        names, streams, rows = encoded.names, encoded.streams, encoded.rows
        of = streams.of_messages()
        number = np.arange(streams.messages) - streams.first[of] + 1
        places = {
            (names[origin], int(seq)): message
            for message, (origin, seq) in enumerate(zip(encoded.origins, encoded.seqs, strict=True))
        }
        is_change = np.zeros(streams.messages, np.bool_)
        mine = {each.message for each in self.changes if each.kind not in COUNT_KINDS}
        is_change[[places[each] for each in mine if each in places]] = True
        pasts = [_closed_past(state.vector_clock[rank], streams.first, vectors) for rank in range(len(names))]
        everything = [
            pasts[rank]
            for rank, name in enumerate(names)
            if name in self.staying | self.phones | self.left.keys()
        ]
        owed = np.maximum.reduce(everything) if everything else np.zeros(len(streams.origin), np.int64)
        for rank, name in enumerate(names):
            ever = _as_bools(state.delivered_ever[rank], streams.messages)
            limit = owed if name in self.staying or name in self.phones else pasts[rank]
            had = ((number > limit[of]) | is_change) & ~ever
            admission = places.get(self.admissions.get(name, ("", 0)))
            in_snapshot = None
            if admission is not None:
                in_snapshot = number <= vectors[admission].astype(np.int64)[of]
                self._compare_snapshot(name, encoded, in_snapshot, is_change)
            elif name in self._snapshots and name not in self.founders:
                in_snapshot = self._contained(name, encoded)
                past = vectors[np.flatnonzero(in_snapshot)].max(axis=0, initial=0).astype(np.int64)
                self._compare_snapshot(name, encoded, in_snapshot | (number <= past[of]), is_change)
            if in_snapshot is not None:
                had |= in_snapshot
                self._mark_repeated(encoded, state, rank, in_snapshot & ever)
            mask = _as_words(had, state.delivered.shape[1])
            state.delivered[rank] |= mask
            state.delivered_ever[rank] |= mask
            here = slice(rows.start[rank], rows.start[rank + 1])
            changes = (rows.kind[here] == DELIVER) & is_change[rows.message[here]] & (rows.message[here] >= 0)
            state.counts[rank, DELIVERIES] -= int(changes.sum())
        self.messages = int(streams.messages - is_change.sum())

    def _compare_snapshot(
        self, name: str, encoded: EncodedRun, past: np.ndarray, is_change: np.ndarray
    ) -> None:
        if name not in self._snapshots:
            return
        contained = self._contained(name, encoded)
        wrong = (contained != past) & ~is_change
        if wrong.any():
            extra, lacking = (
                [(encoded.names[encoded.origins[each]], int(encoded.seqs[each])) for each in chosen]
                for chosen in (np.flatnonzero(wrong & contained), np.flatnonzero(wrong & past))
            )
            self._wrong_snapshots[name] = extra, lacking

    def _contained(self, name: str, encoded: EncodedRun) -> np.ndarray:
        """What the snapshot of a process contains, according to its rows."""
        counts = self._snapshots[name]
        last = np.array([counts.get(each, 0) for each in encoded.names], np.int64)
        contained: np.ndarray = np.asarray(encoded.seqs) <= last[np.asarray(encoded.origins)]
        return contained

    def _mark_repeated(self, encoded: EncodedRun, state: AuditState, rank: int, repeated: np.ndarray) -> None:
        """Mark deliveries of messages that were in the snapshot."""
        rows = encoded.rows
        if not repeated.any():
            return
        here = np.arange(rows.start[rank], rows.start[rank + 1])
        here = here[(rows.message[here] >= 0) & (rows.kind[here] == DELIVER)]
        again = here[repeated[rows.message[here]] & (rows.fault[here] & DUPLICATE == 0)]
        rows.fault[again] |= DUPLICATE
        state.counts[rank, DUPLICATES] += len(again)

    # What all members must agree on.

    def faults(self, run: str, encoded: EncodedRun) -> list[DeliveryFault]:
        """Faults: wrong views, streams closed at different places, members that removed each other, events of
        a process after it left, and snapshots that are not cuts."""
        return [
            *self._wrong_views(run),
            *self._different_cuts(run),
            *self._split_groups(run),
            *self._after_end(run, encoded),
            *self._as_faults(run),
        ]

    def _as_faults(self, run: str) -> Iterable[DeliveryFault]:
        for process, (extra, lacking) in sorted(self._wrong_snapshots.items()):
            origin, seq = (lacking or extra)[0]
            how = "lacks" if lacking else "has"
            why = "happened" if lacking else "did not happen"
            text = f"The snapshot of {process} {how} {origin}:{seq}, which {why} before its admission."
            count = len(extra) + len(lacking)
            yield DeliveryFault("snapshot", run, process, f"{origin}:{seq}", process, None, count, text)

    def _wrong_views(self, run: str) -> Iterable[DeliveryFault]:
        views = self._final_views()
        for process in sorted(self.staying):
            view = views.get(process, set())
            for member in sorted(view ^ self.staying):
                how = "has" if member in view else "lacks"
                why = "is no member any more" if member in view else "is a member"
                text = f"The view of {process} {how} {member}, which {why}."
                yield DeliveryFault("view", run, process, member, None, None, 1, text)

    def _final_views(self) -> dict[str, set[str]]:
        """The view of each process after its last change; a process that joined starts with its sponsor's
        view."""
        by_process: dict[str, list[Change]] = defaultdict(list)
        for each in self.changes:
            by_process[each.process].append(each)
        sponsor = {
            member: message[0] for member, message in self.admissions.items() if member not in self.founders
        }
        views: dict[str, set[str]] = {}
        at_admission: dict[str, set[str]] = {}
        waiting = sorted(self.founders | sponsor.keys())
        while waiting:
            ready = [each for each in waiting if each in self.founders or each in at_admission]
            # A process whose admission is not in the trace starts with itself.
            for process in ready or waiting:
                view = set(
                    self.founders if process in self.founders else at_admission.get(process, {process})
                )
                for each in by_process[process]:
                    if each.kind == "admit":
                        view.add(each.member)
                        if each.origin == process:
                            at_admission[each.member] = set(view)
                    elif each.kind in ("leave", "remove"):
                        view.discard(each.member)
                views[process] = view
            waiting = [each for each in waiting if each not in views]
        return views

    def _different_cuts(self, run: str) -> Iterable[DeliveryFault]:
        closings = [
            each for each in self.changes if each.kind == "close" and each.process not in self.outside
        ]
        ends: dict[str, Counter[int]] = defaultdict(Counter)
        for each in closings:
            ends[each.member][each.seq] += 1
        usual = {member: most_common(seqs) for member, seqs in ends.items()}
        for each in closings:
            if each.seq != usual[each.member]:
                message, others = f"{each.member}:{each.seq}", f"{each.member}:{usual[each.member]}"
                text = f"{each.process} closed the stream of {each.member} after {message}, others after "
                text += f"{others}."
                yield DeliveryFault("cut", run, each.process, message, each.member, each.at, 1, text)

    def _split_groups(self, run: str) -> Iterable[DeliveryFault]:
        removed = {(each.process, each.member) for each in self.changes if each.kind == "remove"}
        closed = {(each.process, each.member) for each in self.changes if each.kind == "close"}
        both = removed & closed
        for one, other in sorted(both):
            if one < other and (other, one) in both:
                text = f"{one} and {other} have removed each other: there are two groups."
                yield DeliveryFault("split", run, one, other, None, None, 1, text)

    def _after_end(self, run: str, encoded: EncodedRun) -> Iterable[DeliveryFault]:
        rows = encoded.rows
        for rank, name in enumerate(encoded.names):
            if name in self.left:
                index = encoded.positions[rows.start[rank] : rows.start[rank + 1]]
                later = index[index > self.left[name].at]
                if len(later):
                    text = f"{name} goes on after it has left, at index {later[0]}."
                    end = f"{name}:{self.left[name].seq}"
                    yield DeliveryFault("ended", run, name, end, name, int(later[0]), len(later), text)


def count_faults(faults: Iterable[DeliveryFault]) -> Mapping[str, int]:
    """The counts of a verdict that concern changes."""
    by_kind = Counter(fault.kind for fault in faults)
    return {
        "wrong_views": by_kind["view"],
        "different_cuts": by_kind["cut"],
        "split_groups": by_kind["split"],
        "after_end": by_kind["ended"],
        "wrong_snapshots": by_kind["snapshot"],
    }


def most_common(seqs: Counter[int]) -> int:
    """The most common value; of several, the highest."""
    return max(seqs, key=lambda seq: (seqs[seq], seq))


def _at_their_makers(rows: pa.Table) -> pa.Table:
    """The rows without changes made by other processes; a process's own admission stays.

    A change takes effect as soon as its group delivers it. The application may deliver it later, after its
    causes in other groups.
    """
    kind, process = rows.column("kind"), rows.column("process")
    others = pc.is_in(kind, pa.array([each for each in CHANGE_KINDS if each not in COUNT_KINDS]))
    others = pc.and_(others, pc.not_equal(process, rows.column("origin")))
    own_admission = pc.and_(pc.equal(kind, "admit"), pc.equal(process, rows.column("member")))
    others = pc.and_not(others, pc.fill_null(own_admission, False))
    return rows.filter(pc.fill_null(pc.invert(others), True))


def _as_messages(rows: pa.Table) -> pa.Table:
    """The rows, with changes as sends and deliveries. Closings and snapshots are not messages."""
    rows = rows.filter(pc.fill_null(pc.invert(pc.is_in(rows.column("kind"), pa.array(COUNT_KINDS))), True))
    kind = rows.column("kind")
    changes = pc.fill_null(pc.is_in(kind, pa.array(CHANGE_KINDS)), False)
    sent = pc.fill_null(pc.equal(rows.column("process"), rows.column("origin")), False)
    as_message = pc.if_else(sent, "send", "deliver")
    return rows.set_column(rows.column_names.index("kind"), "kind", pc.if_else(changes, as_message, kind))


def _closed_past(clock: np.ndarray, first: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    """How many messages of each stream happened before a process's last event, that event included."""
    last = (first[:-1] + clock - 1)[clock > 0]
    past = clock.astype(np.int64)
    return np.maximum(past, vectors[last].max(axis=0)) if len(last) else past


def _as_bools(words: np.ndarray, count: int) -> np.ndarray:
    bits: np.ndarray = np.unpackbits(words.view(np.uint8), bitorder="little")[:count].astype(np.bool_)
    return bits


def _as_words(bools: np.ndarray, words: int) -> np.ndarray:
    packed = np.zeros(words * 8, np.uint8)
    bits = np.packbits(bools, bitorder="little")
    packed[: len(bits)] = bits
    return packed.view(np.uint64)
