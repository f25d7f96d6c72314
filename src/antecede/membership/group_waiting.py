"""An index of waiting messages in a member of overlapping groups, by the message for which each waits.

A message waits for one other message at a time, and is checked again when that has been given to the
application: first for one of its own group that immediately precedes it, then for one that it names of
another group. So its cost depends on the number of causes that it names, however many messages wait.

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
"""A message that another names: its group, its stream, and where in it."""


class WaitingMessage(msgspec.Struct):
    """A message that its group has delivered, and that waits for others."""

    message: MessageId
    """As the application knows it."""
    payload: bytes
    across: Causes
    is_ordered: bool
    """Whether it waits for all waiting messages that precede it in its group. If messages waited where it was
    broadcast, its group orders it after them although they are not its causes. Then this is false, and the
    message names its causes in its own group too."""
    copies: list[MessageId] = msgspec.field(default_factory=list)
    """The same message, broadcast again by others."""


class WaitingIndex:
    """`held` are the messages that wait, and `behind` says for each message that its group has delivered
    which before it do so, or are themselves behind some: those that precede it immediately."""

    def __init__(
        self, held: Mapping[MessageId, WaitingMessage], behind: dict[MessageId, set[MessageId]]
    ) -> None:
        self._held, self._behind = held, behind
        self._places: dict[MessageId, int] = {}
        """The order in which messages have begun to wait."""
        self._next_place = 0
        self._ready: list[tuple[int, MessageId]] = []
        """Those that wait for nothing that is known; the first is at the top."""
        self._named: dict[tuple[str, Stream, tuple[MessageId, ...]], list[tuple[int, int, MessageId]]] = {}
        """Those that wait for a message which they name. Where its sender was admitted by the same messages,
        an earlier one is given first, and is at the top."""
        self._followers: dict[MessageId, list[MessageId]] = {}
        """The reverse of `behind`."""
        self._ends: set[MessageId] = set()
        """Messages that wait, or are behind some, and that none is behind."""
        self._shown: dict[MessageId, MessageId] = {}
        """Those that wait, by the ids that the application knows."""
        self._unsettled: set[MessageId] = set()
        """Those that wait, and copies of them."""
        self._by_stream: dict[Stream, list[int]] = {}
        """Their numbers, the lowest at the top, and perhaps of some that do not wait any more."""
        self._counts: Counter[Stream] = Counter()
        for message, causes in behind.items():
            self._note_behind(message, causes)
        self._ends.update(behind.keys() - self._followers.keys())
        for message, waiting in held.items():
            self.hold(message, waiting)
            for copy in waiting.copies:
                self._note_unsettled(copy)

    # What waits

    def hold(self, message: MessageId, waiting: WaitingMessage) -> None:
        """A message begins to wait; what it is behind is known already."""
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
        """The same message was broadcast again; the one that waits, if it still does."""
        message = self._shown.get(original)
        if message is not None:
            self._held[message].copies.append(copy)
            self._note_unsettled(copy)
        return message

    def _note_unsettled(self, message: MessageId) -> None:
        self._unsettled.add(message)
        heappush(self._by_stream.setdefault(message.origin, []), message.seq)

    def first_of(self, stream: Stream) -> int | None:
        """The first message of a stream that waits, or is a copy of one that does."""
        numbers = self._by_stream.get(stream)
        while numbers:
            if MessageId(stream, numbers[0]) in self._unsettled:
                return numbers[0]
            heappop(numbers)
        self._by_stream.pop(stream, None)
        return None

    def streams(self) -> set[Stream]:
        """Those of which something waits."""
        return {stream for stream in list(self._by_stream) if self.first_of(stream) is not None}

    def count_of(self, stream: Stream) -> int:
        """How many messages of a stream wait; copies of others do not count."""
        return self._counts[stream]

    # What is behind others

    def causes_that_wait(self, causes: Iterable[MessageId]) -> set[MessageId]:
        """Which of these wait, or are behind some that do."""
        return {each for each in causes if each in self._held or each in self._behind}

    def ends(self) -> set[MessageId]:
        """All that waits is one of these, or they are behind it."""
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
        """A message that waits and that this one is behind."""
        while (causes := self._behind.get(message)) is not None:
            message = min(causes)
            if message in self._held:
                return message
        return None

    # What waits no more

    def take_ready(
        self,
        has: Callable[[str, Stream, Cause], bool],
        first_lacking: Callable[[Causes], NamedCause | None],
    ) -> MessageId | None:
        """The message that has waited longest of those that wait for nothing any more."""
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
        """A message that was ready does not wait any more, and is not held."""
        del self._places[message]
        self._counts[message.origin] -= 1
        self._shown.pop(waiting.message, None)
        self._unsettled.difference_update((message, *waiting.copies))
        if message not in self._behind:
            self._release(message)

    def _release(self, message: MessageId) -> None:
        """A message neither waits nor is behind any that does."""
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
