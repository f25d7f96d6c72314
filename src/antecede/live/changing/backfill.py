"""States in files: transfers to newcomers, and the past messages that a newcomer's application receives
before anything else (*backfill*)."""

from __future__ import annotations

from antecede.causality import MessageId
from antecede.live.changing.events import Declined, Sponsored, TransferBegun
from antecede.live.changing.forgetting import ForgettingCore
from antecede.live.changing.history import HistoryEntry, HistoryLog, addresses_of, decode_entry
from antecede.live.changing.snapshots import (
    SnapshotTransfer,
    WelcomeState,
    decode_state,
    other_snapshots,
    received_name,
    unfinished,
)
from antecede.live.changing.transfer import has_state
from antecede.live.envelope import origin_in
from antecede.live.store.disk import Files, MemoryFiles
from antecede.membership.member import ChangingMember
from antecede.membership.packets import HistoryRequest, Welcome
from antecede.membership.state import Phase
from antecede.protocols.base import Delivery, LocalError, Packet


class BackfillCore(ForgettingCore):
    """Positions are those of a `HistoryLog`: they count what this member has delivered or broadcast, starting
    from its sponsor's count."""

    is_replaying, is_durable = False, True

    def __init__(self, kind: type[ChangingMember], name: str) -> None:
        super().__init__(kind, name)
        self.files: Files = MemoryFiles()
        """For snapshots and histories."""
        self.retains = False
        """Whether messages are retained for those who join later."""
        self.position = 0
        self.backfilled = self.backfill_end = 0
        """Positions in the sponsor's history: of the last message that the application received, and of the
        last one that it is to receive."""
        self.backfill_first = 0
        self.replayed: set[int] = set()
        """Addresses of this process whose history a replay would read: their applications received a backfill
        since the last checkpoint."""
        self.counts_before: dict[str, int] = {}
        """The last message of each origin before the first one that this member receives: these messages are
        in its snapshot, if it had one."""
        self.transfers: dict[int, SnapshotTransfer] = {}
        """States that newcomers fetch before they are admitted, by address."""
        self.caught_up: dict[int, int] = {}
        """Newcomers that are nearly caught up, and the position they have reached."""
        self.wants_history: set[int] = set()
        """Newcomers that ask for messages instead of a snapshot."""
        self.takes_snapshot = False
        """Whether the application is taking a snapshot: nothing is delivered meanwhile."""
        self.snapshot_from: int | None = None
        """The position of the snapshot being written."""
        self.unneeded: dict[str, int] = {}
        """Snapshot files that are obsolete, and the number of the `Ready` after which they may be deleted."""
        self._histories: dict[int, HistoryLog] = {}
        self._syncs_history = False

    # Histories

    @property
    def history(self) -> HistoryLog:
        """The history of the current member."""
        return self.history_at(self.address)

    def history_at(self, address: int) -> HistoryLog:
        log = self._histories.get(address)
        if log is None:
            log = self._histories[address] = HistoryLog(self.files, address)
        return log

    @property
    def has_backfill(self) -> bool:
        """Whether messages of the past are still to be delivered to the application."""
        return self.backfilled < self.backfill_end

    @property
    def keeps_history(self) -> bool:
        """Whether delivered messages are added to the history."""
        is_fetched = self.retains or bool(self.transfers) or self.snapshot_from is not None
        if is_fetched or self.has_backfill or self.address in self.replayed:
            return True
        return self.is_replaying and self.history.exists

    def add_to_history(self, delivery: Delivery, now: int) -> None:
        """A message was delivered or broadcast."""
        self.position += 1
        if not self.keeps_history:
            return
        log, (origin, seq) = self.history, delivery.message
        names = {each: self.labels[each] for each in (origin, *(delivery.causes or ()))}
        names[origin] = origin_in(delivery, names)
        if not log.exists:
            counts = self.count_delivered(self.position - 1)
            log.begin(self.position - 1, {**counts, names[origin]: seq - 1} if counts else {})
        entry = HistoryEntry(origin, seq, delivery.payload, delivery.causes, names, now)
        log.add(self.position, entry)

    def count_delivered(self, position: int = -1) -> dict[str, int]:
        """The sequence number of the last delivered message of each origin, by label; empty if no application
        message was delivered. `position` is that of the last message to count, if not the current one."""
        if not (self.position if position < 0 else position) and not self.counts_before:
            return {}
        delivered = self.member.order.delivered
        return {self.labels[stream]: count for stream, count in delivered.items() if count}

    @property
    def needed_position(self) -> int | None:
        """The last position before the part of the history that newcomers or a replay still need."""
        needed = [transfer.first for transfer in self.transfers.values()]
        if self.snapshot_from is not None:
            needed.append(self.snapshot_from)
        if self.has_backfill or self.address in self.replayed:
            needed.append(self.backfill_first)
        return min(needed, default=None)

    def finish_replay(self) -> None:
        """The journal has been replayed completely."""
        self.forget_histories()
        if self.members and self.phase in (Phase.MEMBER, Phase.LEAVING):
            self.history.cut_off(self.position)
        self._syncs_history = False

    def forget_histories(self) -> None:
        """Delete the histories of this process's former addresses that no replay needs."""
        kept = {self.address, *self.replayed}
        for address in addresses_of(self.files.names()) - kept:
            self.history_at(address).clear()
        self._histories = {each: log for each, log in self._histories.items() if each in kept}

    def resume_backfill(self, position: int, first: int, backfilled: int, end: int) -> None:
        """Restore these positions from a checkpoint."""
        self.position, self.backfill_first = position, first
        self.backfilled, self.backfill_end = backfilled, end
        if self.has_backfill:
            self.replayed.add(self.address)

    # At a sponsor

    @property
    def join_requests(self) -> list[int]:
        if self.has_backfill or self.snapshot_from is not None:
            return []  # its state does not yet match its counts; or the newcomers share a snapshot
        waiting = super().join_requests
        return [each for each in waiting if each not in self.transfers or each in self.caught_up]

    def catch_up(self, address: int, position: int) -> None:
        """A newcomer has everything up to a position, and may be admitted."""
        self.caught_up[address] = position

    def _on_transfer_begun(self, event: TransferBegun) -> None:
        if event.address not in self.member.requests:
            raise LocalError("nobody at that address asks to be admitted")
        self._log(event)
        self.transfers[event.address] = event.transfer
        if (link := self.find_link(self.address, event.address)) is not None:
            self.touched.add(link)
        self._after(self.member)

    def _on_declined(self, event: Declined) -> None:
        super()._on_declined(event)
        self._forget_requests(self.member)

    def _encode_sponsored(self, event: Sponsored) -> bytes:
        return event.state or super()._encode_sponsored(event)

    def _forget_requests(self, member: ChangingMember) -> None:
        """Forget the requests of processes that were admitted or no longer ask; all of them, once this
        process is not a member that could admit anybody."""
        requests = set(member.requests) if member.phase == Phase.MEMBER else set()
        self.transfers = {each: value for each, value in self.transfers.items() if each in requests}
        self.caught_up = {each: value for each, value in self.caught_up.items() if each in self.transfers}
        self.wants_history &= requests

    def _note_request(self, link: int, packet: Packet) -> None:
        mine, theirs = self.links[link]
        if isinstance(packet, HistoryRequest) and mine == self.address:
            self.wants_history.add(theirs)

    # At a newcomer

    def begin_fetch(self, offer: SnapshotTransfer) -> None:
        """The sponsor of the current attempt offers a state. Only one is stored: parts received for other
        attempts are deleted, even if a former attempt may still be welcomed to its state."""
        self.forget_histories()
        name = received_name(self.address, offer.digest)
        for other in other_snapshots(self.files, {name, unfinished(name)}):
            self.files.remove(other)

    def lacks_state(self, link: int, packet: Packet) -> bool:
        """Whether a welcome refers to a state that this process does not have: it was replaced by that of
        another attempt, or never arrived. Nobody can start from it, however often it is repeated."""
        mine = self.links[link][0]
        if not isinstance(packet, Welcome) or self.members[mine].phase != Phase.JOINING:
            return False
        state = decode_state(packet.snapshot)
        if state is None or self.is_replaying:
            return False
        for data in state.tail:
            decode_entry(data)
        return not has_state(self.files, mine, self.history_at(mine), state)

    def wanted_place(self, link: int) -> str:
        """A newcomer calls every contact that it has asked, until it has its state."""
        if (place := super().wanted_place(link)) or link not in self.links or link in self.void:
            return place
        mine, theirs = self.links[link]
        is_asked = mine == self.address and self.phase == Phase.JOINING and self.sent[link] > 0
        return self.greeted[theirs].at if is_asked and theirs in self.greeted else ""

    @property
    def received_state(self) -> WelcomeState | None:
        """The state that the application is to start with, if it was transferred in files."""
        return decode_state(self.member.snapshot)

    def _on_admitted(self, member: ChangingMember, now: int) -> None:
        super()._on_admitted(member, now)
        self.transfers, self.caught_up, self.wants_history = {}, {}, set()
        state = decode_state(member.snapshot)
        if state is None:
            self.position = 0
            delivered = member.order.delivered
            self.counts_before = {self.labels[stream]: count for stream, count in delivered.items() if count}
        else:
            self.position = state.last
            self.counts_before = state.transfer.counts
            self._take_over(state)
        first = self.position if state is None else state.transfer.first
        self.backfilled = self.backfill_first = first
        self.backfill_end = self.position
        if self.has_backfill and self.is_durable:
            self.replayed.add(self.address)

    def _take_over(self, state: WelcomeState) -> None:
        """Continue the sponsor's history as this member's own."""
        if state.last == state.transfer.first and not self.retains:
            return
        log = self.history
        if not log.exists:
            log.begin(state.transfer.first, state.transfer.counts)
        for position, data in enumerate(state.tail, state.after + 1):
            log.add(position, decode_entry(data), data)
        self._syncs_history = True

    def take_backfill(self) -> Delivery:
        """The next message of the backfill."""
        self.backfilled += 1
        entry = self.history.read(self.backfilled)
        self.labels.learn(entry.names)
        message = MessageId(entry.origin, entry.seq)
        self.application.past.add(message)
        return Delivery(message, entry.payload, entry.causes)
