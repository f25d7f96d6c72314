"""What a process that is in several groups must name: its causal past, as far as somebody may lack it.

For each stream of each group that is the last message that the process has delivered there, or knows of
through others. What everybody has been given is taken out. A message to a group names what no message to it
has named before.

In a fixed group fewer names suffice: a message stands for those that precede it in its group. Here it may be
lost with a member that is removed, and what precedes it not.
"""

from __future__ import annotations

import msgspec

from antecede.membership.group_packets import Cause, Causes
from antecede.membership.packets import Stream


class PastMessage(msgspec.Struct):
    """The last message of a stream in the past of a process."""

    cause: Cause
    named_in: set[Stream]
    """The process's own streams in groups of which a message has named it."""


class ProcessPast(msgspec.Struct):
    """The past of one process, which the members of its groups share."""

    entries: dict[str, dict[Stream, PastMessage]] = msgspec.field(default_factory=dict)

    def to_name(self, group: str, stream: Stream) -> Causes:
        """What a message to a group must name; `stream` is the process's own there."""
        found: Causes = {}
        for each, entries in self.entries.items():
            if each != group:
                causes = {s: entry.cause for s, entry in entries.items() if stream not in entry.named_in}
                if causes:
                    found[each] = causes
        return found

    def mark_named(self, group: str, stream: Stream) -> None:
        """A message to a group has named all that it must."""
        for each, entries in self.entries.items():
            if each != group:
                for entry in entries.values():
                    entry.named_in.add(stream)

    def add(self, group: str, stream: Stream, cause: Cause, named_in: set[Stream]) -> None:
        entries = self.entries.setdefault(group, {})
        known = entries.get(stream)
        if known is None or known.cause.seq < cause.seq:
            entries[stream] = PastMessage(cause, named_in)
        elif known.cause.seq == cause.seq:
            known.named_in |= named_in

    def drop(self, group: str, stream: Stream) -> bool:
        """A stream need not be named any more; whether it would have been."""
        entries = self.entries.get(group, {})
        found = entries.pop(stream, None) is not None
        if not entries:
            self.entries.pop(group, None)
        return found

    def of(self, group: str) -> dict[Stream, Cause]:
        return {stream: entry.cause for stream, entry in self.entries.get(group, {}).items()}

    def without(self, group: str) -> Causes:
        return {each: self.of(each) for each in self.entries if each != group}

    def forget_streams_but(self, streams: set[Stream]) -> None:
        """These are the process's own streams now."""
        for entries in self.entries.values():
            for entry in entries.values():
                entry.named_in &= streams
