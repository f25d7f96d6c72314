"""An index of waiting messages in a member of overlapping groups, by the message for which each waits.

A message waits for one other message at a time, and is checked again when that one was delivered to the
application: first for one of its own group that immediately precedes it, then for one that it names of
another group. So its cost depends on the number of its causes, not on the number of waiting messages.

The index can be rebuilt from the member's saved state, and is not saved itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from heapq import heappop, heappush

import msgspec

from antecede.causality import MessageId
from antecede.membership.group_packets import Cause, Causes
from antecede.membership.packets import Stream

NamedCause = tuple[str, Stream, Cause]
"""A message that another names: its group, its stream, and its position there."""


class WaitingMessage(msgspec.Struct):
    """A message that its group has delivered, and that waits for others."""

    message: MessageId
    """The id that the application knows."""
    payload: bytes
    across: Causes
    is_ordered: bool
    """Whether it waits for all waiting messages that precede it in its group. If messages waited where it was
    broadcast, its group orders it after them although they are not its causes. Then this is false, and the
    message names its causes in its own group too."""
    copies: list[MessageId] = msgspec.field(default_factory=list)
    """The same message, rebroadcast by others."""


class WaitingIndex:
    """`held` contains the waiting messages. `behind` contains, for each message that its group has delivered,
    those of its immediate predecessors that wait or are themselves behind waiting messages."""

    def __init__(
        self, held: Mapping[MessageId, WaitingMessage], behind: dict[MessageId, set[MessageId]]
    ) -> None:
        self._held, self._behind = held, behind
        self._places: dict[MessageId, int] = {}
        """The order in which messages have begun to wait."""
        self._next_place = 0
        self._ready: list[tuple[int, MessageId]] = []
        """A heap of those that wait for nothing that is known."""
        self._named: dict[tuple[str, Stream, tuple[MessageId, ...]], list[tuple[int, int, MessageId]]] = {}
        """Heaps of those that wait for a message which they name. Among senders admitted by the same
        messages, the earlier message is delivered first."""
        self._followers: dict[MessageId, list[MessageId]] = {}
        """The reverse of `behind`."""
        self._ends: set[MessageId] = set()
        """Messages that wait, or are behind waiting messages, and that no other is behind."""
        self._shown: dict[MessageId, MessageId] = {}
        """Waiting messages, by the ids that the application knows."""
        self._unsettled: set[MessageId] = set()
        """By stream, messages that wait, and copies of them."""
        self._by_stream: dict[Stream, list[int]] = {}
        """A heap of their numbers, possibly including some that no longer wait."""
        self._counts: Counter[Stream] = Counter()
        for message, causes in behind.items():
            self._note_behind(message, causes)
        self._ends.update(behind.keys() - self._followers.keys())
        for message, waiting in held.items():
            self.hold(message, waiting)
            for copy in waiting.copies:
                self._note_unsettled(copy)

    # Waiting messages

    def hold(self, message: MessageId, waiting: WaitingMessage) -> None:
        """A message begins to wait; its entry in `behind` exists already."""
        self._places[message] = self._next_place
        self._next_place += 1
        self._counts[message.origin] += 1
        self._shown[waiting.message] = message
        self._note_unsettled(message)
        if message not in self._followers:
            self._ends.add(message)
        if not (waiting.is_ordered and message in self._behind):
            self._set_ready(message)

    def add_copy(self, original: MessageId, copy: MessageId) -> MessageId | None:
        """The same message was rebroadcast; returns the one that waits, if it still does."""
        message = self._shown.get(original)
        if message is not None:
            self._held[message].copies.append(copy)
            self._note_unsettled(copy)
        return message

    def _note_unsettled(self, message: MessageId) -> None:
        self._unsettled.add(message)
        heappush(self._by_stream.setdefault(message.origin, []), message.seq)

    def first_of(self, stream: Stream) -> int | None:
        """The first message of a stream that waits, or is a copy of a waiting one."""
        numbers = self._by_stream.get(stream)
        while numbers:
            if MessageId(stream, numbers[0]) in self._unsettled:
                return numbers[0]
            heappop(numbers)
        self._by_stream.pop(stream, None)
        return None

    def streams(self) -> set[Stream]:
        """The streams with waiting messages."""
        return {stream for stream in list(self._by_stream) if self.first_of(stream) is not None}

    def count_of(self, stream: Stream) -> int:
        """How many messages of a stream wait; copies of others do not count."""
        return self._counts[stream]

    # Messages behind waiting ones

    def causes_that_wait(self, causes: Iterable[MessageId]) -> set[MessageId]:
        """Which of these wait, or are behind waiting messages."""
        return {each for each in causes if each in self._held or each in self._behind}

    def ends(self) -> set[MessageId]:
        """Every waiting message is one of these, or one of these is behind it."""
        return self.causes_that_wait(self._ends)

    def put_behind(self, message: MessageId, causes: set[MessageId]) -> None:
        if causes:
            self._behind[message] = causes
            self._note_behind(message, causes)
            if message not in self._followers:
                self._ends.add(message)

    def _note_behind(self, message: MessageId, causes: Collection[MessageId]) -> None:
        for each in causes:
            self._followers.setdefault(each, []).append(message)
            self._ends.discard(each)

    def first_before(self, message: MessageId) -> MessageId | None:
        """A waiting message that this one is behind."""
        while (causes := self._behind.get(message)) is not None:
            message = min(causes)
            if message in self._held:
                return message
        return None

    # Releasing messages

    def take_ready(
        self,
        has: Callable[[str, Stream, Cause], bool],
        first_lacking: Callable[[Causes], NamedCause | None],
    ) -> MessageId | None:
        """Take the message that has waited longest among those that no longer wait for anything."""
        for key in list(self._named):
            group, stream, admissions = key
            waiting = self._named[key]
            while waiting and has(group, stream, Cause(waiting[0][0], admissions)):
                self._set_ready(heappop(waiting)[2])
            if not waiting:
                del self._named[key]
        while self._ready:
            place, message = heappop(self._ready)
            lacking = first_lacking(self._held[message].across)
            if lacking is None:
                return message
            group, stream, cause = lacking
            heappush(
                self._named.setdefault((group, stream, cause.admissions), []), (cause.seq, place, message)
            )
        return None

    def _set_ready(self, message: MessageId) -> None:
        heappush(self._ready, (self._places[message], message))

    def give(self, message: MessageId, waiting: WaitingMessage) -> None:
        """A message that was ready no longer waits, and is not held."""
        del self._places[message]
        self._counts[message.origin] -= 1
        self._shown.pop(waiting.message, None)
        self._unsettled.difference_update((message, *waiting.copies))
        if message not in self._behind:
            self._release(message)

    def _release(self, message: MessageId) -> None:
        """A message neither waits nor is behind a waiting one."""
        released = [message]
        while released:
            one = released.pop()
            self._ends.discard(one)
            for each in self._followers.pop(one, ()):
                causes = self._behind.get(each)
                if causes is None:
                    continue
                causes.discard(one)
                if causes:
                    continue
                del self._behind[each]
                waiting = self._held.get(each)
                if waiting is None:
                    released.append(each)
                elif waiting.is_ordered:
                    self._set_ready(each)
