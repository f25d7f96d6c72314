"""The causal past of a process in several groups, as far as some application may lack it.

The past has one entry for each stream of each group: the last message that the process has delivered there,
or that it knows of through others. A message to a group names the entries that no earlier message to that
group has named. An entry is dropped once its message was delivered to every application.

Removed members do not count for that. A removed process that does not know of its removal may still deliver
messages in that group. So each removal is named too, once in every group: the process learns of it before any
message that depends on it is delivered there.

In a fixed group fewer names suffice, because a message implies those that precede it in its group. Here it
may be lost with a removed member while its predecessors are not.
"""

from __future__ import annotations

import msgspec

from antecede.membership.group_packets import Cause, Causes, RemovedMembers
from antecede.membership.packets import Counts, Stream

Seat = tuple[str, Stream]
"""A group, and the process's own stream there. Streams of different groups may have the same id."""


class PastMessage(msgspec.Struct):
    """The last message of a stream in the past of a process."""

    cause: Cause
    named_in: set[Seat]
    """The seats in whose groups messages of the process have named it."""


class PastRemoval(msgspec.Struct):
    """A member was removed from a group."""

    end: int
    """The end of its stream."""
    named_in: set[Seat]
    """As in `PastMessage`."""


class ProcessPast(msgspec.Struct):
    """The past of one process, which the members of its groups share."""

    entries: dict[str, dict[Stream, PastMessage]] = msgspec.field(default_factory=dict)
    removed: dict[str, dict[Stream, PastRemoval]] = msgspec.field(default_factory=dict)
    """Kept as long as tombstones, since removed members do not report that they know of their removal."""

    def to_name(self, group: str, stream: Stream) -> Causes:
        """The entries that a message to a group must name; `stream` is the process's own there."""
        found: Causes = {}
        seat = group, stream
        for each, entries in self.entries.items():
            if each != group:
                causes = {s: entry.cause for s, entry in entries.items() if seat not in entry.named_in}
                if causes:
                    found[each] = causes
        return found

    def removed_to_name(self, group: str, stream: Stream) -> RemovedMembers:
        """As `to_name`, for members that were removed from other groups."""
        found: RemovedMembers = {}
        seat = group, stream
        for each, entries in self.removed.items():
            if each != group:
                ends = {s: entry.end for s, entry in entries.items() if seat not in entry.named_in}
                if ends:
                    found[each] = ends
        return found

    def mark_named(self, group: str, stream: Stream) -> None:
        """A message to a group has named everything required."""
        for table in (self.entries, self.removed):
            for each, entries in table.items():
                if each != group:
                    for entry in entries.values():
                        entry.named_in.add((group, stream))

    def add(self, group: str, stream: Stream, cause: Cause, named_in: set[Seat]) -> None:
        entries = self.entries.setdefault(group, {})
        known = entries.get(stream)
        if known is None or known.cause.seq < cause.seq:
            entries[stream] = PastMessage(cause, named_in)
        elif known.cause.seq == cause.seq:
            known.named_in |= named_in

    def add_removed(self, group: str, stream: Stream, end: int, named_in: set[Seat]) -> None:
        entries = self.removed.setdefault(group, {})
        if stream in entries:
            entries[stream].named_in |= named_in
        else:
            entries[stream] = PastRemoval(end, named_in)

    def ends_of_removed(self, group: str) -> Counts:
        return {stream: entry.end for stream, entry in self.removed.get(group, {}).items()}

    def drop(self, group: str, stream: Stream) -> bool:
        """A stream need not be named any more; returns whether it would have been."""
        entries = self.entries.get(group, {})
        found = entries.pop(stream, None) is not None
        if not entries:
            self.entries.pop(group, None)
        return found

    def of(self, group: str) -> dict[Stream, Cause]:
        return {stream: entry.cause for stream, entry in self.entries.get(group, {}).items()}

    def without(self, group: str) -> Causes:
        return {each: self.of(each) for each in self.entries if each != group}

    def forget_seats_but(self, seats: set[Seat]) -> None:
        """These are now the process's own streams."""
        for table in (self.entries, self.removed):
            for entries in table.values():
                for entry in entries.values():
                    entry.named_in &= seats
