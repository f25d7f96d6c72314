"""How a member that was removed wrongly returns, and brings back what others may have lost."""

from __future__ import annotations

from antecede.causality import MessageId
from antecede.membership.backlog import Backlog, BacklogEntry, Fate, fate
from antecede.membership.packets import ApplicationData, Stream, decode_content
from antecede.membership.receiving import ReceivingMember
from antecede.protocols.base import Delivery


class ReturningMember(ReceivingMember, kw_only=True):
    """Brings back messages of its former incarnation that others may have lost."""

    def make_backlog(self) -> Backlog:
        """The messages that a new incarnation of this removed member is to bring back.

        Messages that it has delivered come first. The rest of its former incarnation's backlog depends on
        them, or on nothing that is lost, and nothing here depends on that rest.
        """
        delivered = (
            (entry.place, MessageId(stream, seq), entry.packet)
            for stream, messages in self.unstable.items()
            for seq, entry in messages.items()
            if entry.place
        )
        entries: dict[MessageId, BacklogEntry] = {}
        for _, message, data in sorted(delivered):
            content = decode_content(self._payload(message, data))
            if isinstance(content, ApplicationData) and self._was_delivered(content):
                original, author = self._identify(content, message)
                is_lost = content.original is not None  # where it was first broadcast
                entries[original] = BacklogEntry(original, content.payload, author, is_lost)
        entries |= {entry.original: entry for entry in self.backlog.entries}
        # One more than it has broadcast: wherever that is lost, this removal is complete.
        awaited = {**self.backlog.awaited, self.stream: self.order.delivered[self.stream] + 1}
        return Backlog(list(entries.values()), self.backlog.admissions | self.admissions, awaited)

    def _was_delivered(self, content: ApplicationData) -> bool:
        """Whether a message was given to the application; a void copy was not."""
        return content.original is None or content.original in self.originals

    def bring_back(self, backlog: Backlog) -> None:
        """Set the backlog of this process's former incarnation, to bring it back when this one is
        admitted."""
        self.backlog = Backlog(list(backlog.entries), dict(backlog.admissions), dict(backlog.awaited))

    def expire(self, tombstones: set[Stream], originals: set[MessageId]) -> None:
        """Forget where these streams of removed members ended, and that these messages were brought back.

        A member that returns later cannot bring back messages that it alone had. If two members return with
        the same message, one before and one after this call, it is delivered twice.
        """
        self.originals -= originals
        expired = {each for each in tombstones & self.tombstones.keys() if each not in self.order.delivered}
        if expired:
            self.stream_at = {at: stream for at, stream in self.stream_at.items() if stream not in expired}
        for stream in expired:
            del self.tombstones[stream]
            self.contacts.pop(stream, None)
            self.gone.discard(stream)

    def _rebroadcast_lost(self, now: int) -> None:
        entries = self.backlog.entries
        if entries and not self._has_what_was_stable():
            return
        while entries and self.is_member:
            entry = entries[0]
            known = self._fate(entry)
            if known is Fate.OPEN:
                return
            del entries[0]
            if known is Fate.LOST and self._is_new(entry.original):
                content = ApplicationData(entry.payload, entry.original, entry.author)
                message = self._broadcast(content, now)
                self._on_application(content, message, {})
                self._hold_own_copy(message, entry)
        if not entries:
            self.backlog.admissions.clear()
            self.backlog.awaited.clear()

    def _hold_own_copy(self, message: MessageId, entry: BacklogEntry) -> None:
        """A message that this member brings back is delivered to its own application like any other."""
        self.undelivered.append(Delivery(entry.original, entry.payload))

    def _has_what_was_stable(self) -> bool:
        """Whether this member has the messages on which entries may depend and that are not entries."""
        return all(
            fate(message, self.backlog.admissions, self.order.delivered, self._end_of) is not Fate.OPEN
            for message in map(MessageId._make, self.backlog.awaited.items())
        )

    def _fate(self, entry: BacklogEntry) -> Fate:
        if entry.is_lost:
            return Fate.LOST
        return fate(entry.original, self.backlog.admissions, self.order.delivered, self._end_of)

    def _is_new(self, original: MessageId | None) -> bool:
        if original is None:
            return True
        is_new = original not in self.originals
        self.originals.add(original)
        return is_new
