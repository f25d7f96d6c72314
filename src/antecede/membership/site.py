"""A super peer's state about its phones in a dynamic group."""

from __future__ import annotations

import msgspec

from antecede.causality import MessageId
from antecede.membership.backlog import Backlog
from antecede.membership.packets import Counts, Stream
from antecede.membership.site_packets import PhoneArrival, SiteDownlink, Slot
from antecede.protocols.freescale.translation import InternalReport, TranslationTable


class LiveSlot(msgspec.Struct):
    """A phone with a slot."""

    slot: Slot
    last: int
    """The number of its last message in the slot."""
    number: int = 0
    """The super peer's number of that message."""
    has_sent: bool = False
    """Whether it has sent something; its first message follows everything that is delivered here."""
    report: InternalReport = msgspec.field(default_factory=InternalReport)
    seen: int = 0
    """On linear time: the last number that it has delivered."""
    counts: Counts = msgspec.field(default_factory=dict)
    """On linear time: how many messages of each stream it has delivered."""
    release_at: Counts | None = None
    """If it moves: the counts that must be delivered here before it is released."""


class ComingPhone(msgspec.Struct):
    """A phone that is moving here."""

    slot: Slot
    last: int
    number: int
    """The last number at the time its slot was reserved."""
    kept: list[tuple[MessageId, SiteDownlink]] = msgspec.field(default_factory=list)
    """The messages that were numbered since then."""
    has: PhoneArrival | None = None
    """The counts with which it was released."""


class Site(msgspec.Struct):
    """The phones of a super peer, by address, and the numbers of messages."""

    number: int = 0
    slots: dict[int, LiveSlot] = msgspec.field(default_factory=dict)
    coming: dict[int, ComingPhone] = msgspec.field(default_factory=dict)
    free: dict[Slot, int] = msgspec.field(default_factory=dict)
    """Retired slots, with the last number used in each."""
    used: int = 0
    """How many slots there have been."""
    refused: dict[int, int] = msgspec.field(default_factory=dict)
    """By address: phones that were expelled, and the last message that was accepted from each."""
    unannounced: set[Slot] = msgspec.field(default_factory=set)
    """Retired slots of expelled phones that were not announced to the other members yet."""
    table: TranslationTable = msgspec.field(default_factory=TranslationTable)
    latest: dict[Stream, int] = msgspec.field(default_factory=dict)
    """The number of the last message of each stream; of this member's own, without its phones."""
    causes: set[int] = msgspec.field(default_factory=set)
    """The numbers of the immediate dependencies of this member's next message."""
    unstable: list[tuple[int, MessageId]] = msgspec.field(default_factory=list)
    requests: list[tuple[int, Backlog]] = msgspec.field(default_factory=list)
    """Phones that ask for a slot and the application's state."""
    delayed: dict[int, list[bytes]] = msgspec.field(default_factory=dict)
    """By address: packets of returned phones, until everything that precedes them is brought back."""

    def take_slot(self) -> tuple[Slot, int]:
        if self.free:
            slot = min(self.free)
            return slot, self.free.pop(slot)
        self.used += 1
        return self.used, 0

    def retired_for_good(self) -> list[Slot]:
        """The slots that are not reused, mostly those of expelled phones."""
        live = {each.slot for each in self.slots.values()} | {each.slot for each in self.coming.values()}
        return [slot for slot in range(1, self.used + 1) if slot not in self.free and slot not in live]

    def clean_up(self) -> None:
        reports = [each.report for each in self.slots.values()]
        reports += [InternalReport(each.number) for each in self.coming.values()]
        self.table.clean_up([*reports, InternalReport(self.number, self.causes)], self.number)
