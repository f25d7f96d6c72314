"""The translation table of a super peer in a changing group: messages by the number that it assigns."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from antecede.causality import MessageId


class InternalReport(msgspec.Struct):
    """What an internal peer has delivered, and of that what it may still name."""

    delivered_up_to: int = 0
    causes: set[int] = msgspec.field(default_factory=set)


class TranslationTable(msgspec.Struct):
    """External messages by number, and the inverse. An entry is dropped when every internal peer has reported
    that it will not name it again."""

    messages: dict[int, MessageId] = msgspec.field(default_factory=dict)
    """By number."""
    numbers: dict[MessageId, int] = msgspec.field(default_factory=dict)
    """The inverse."""
    cleaned_up_to: int = 0
    retained: list[int] = msgspec.field(default_factory=list)
    """Up to `cleaned_up_to`, the table holds only these entries."""

    def add(self, number: int, message: MessageId) -> None:
        self.messages[number] = message
        self.numbers[message] = number

    def outwards(self, numbers: Iterable[int]) -> dict[int, int]:
        """The last message of each stream among these numbers."""
        found: dict[int, int] = {}
        for number in numbers:
            if (message := self.messages.get(number)) is not None:
                found[message.origin] = max(message.seq, found.get(message.origin, 0))
        return found

    def inwards(self, causes: dict[int, int]) -> set[int]:
        """The numbers of these messages. Every internal peer has those no longer in the table."""
        found = (self.numbers.get(MessageId(*cause)) for cause in causes.items())
        return {number for number in found if number is not None}

    def clean_up(self, reports: list[InternalReport], last: int) -> None:
        """`last` is the last number assigned."""
        delivered_by_all = min((report.delivered_up_to for report in reports), default=last)
        in_use = set[int]().union(*(report.causes for report in reports))
        candidates = [*self.retained, *range(self.cleaned_up_to + 1, delivered_by_all + 1)]
        self.retained = [number for number in candidates if number in in_use]
        for number in candidates:
            if number not in in_use and number in self.messages:
                del self.numbers[self.messages.pop(number)]
        self.cleaned_up_to = max(self.cleaned_up_to, delivered_by_all)

    def drop_stream(self, stream: int) -> None:
        """A stream is forgotten: no message names it again."""
        for number in [number for number, (origin, _) in self.messages.items() if origin == stream]:
            del self.numbers[self.messages.pop(number)]
