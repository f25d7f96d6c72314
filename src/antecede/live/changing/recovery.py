"""Recovery of a process after a crash: a checkpoint of its core, and a replay of the log since."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, cast

import msgspec

from antecede.causality import MessageId
from antecede.errors import AntecedeError, InputError
from antecede.live.application import ParkedDelivery
from antecede.live.changing.contact import Contact
from antecede.live.changing.seals import SealState
from antecede.live.changing.secret_messages import SecrecyState
from antecede.live.changing.snapshots import SnapshotTransfer
from antecede.live.events import Delivered, Life
from antecede.live.ready import send_and_advance
from antecede.live.recovery import SavedStore
from antecede.live.store.records import Checkpoint, StoredPacket
from antecede.membership.packets import ProgressReport
from antecede.membership.state import Phase
from antecede.protocols.base import Delivery

if TYPE_CHECKING:
    from antecede.live.changing.core import ChangingCore


class ChangingCoreState(msgspec.Struct):
    """A core at one moment, without its packets."""

    members: dict[int, bytes]
    address: int
    identities: dict[int, Contact]
    greeted: dict[int, Contact]
    links: dict[int, tuple[int, int]]
    next_link: int
    strangers: set[int]
    void: set[int]
    sent: dict[int, int]
    acked_packets: dict[int, tuple[int, bytes]]
    """For each link, the number of the last acknowledged packet, and its chain value."""
    received: dict[int, int]
    received_chain: dict[int, bytes]
    lineage: list[Life]
    partner_lineages: dict[int, list[Life]]
    broadcasts: int
    polls: int
    delivered: int
    unacked: list[Delivery]
    parked: dict[int, ParkedDelivery]
    parking: int
    time: int
    aged_at: int
    old_tombstones: set[int]
    old_originals: set[MessageId]
    reports_heard: dict[int, ProgressReport] = {}
    since: dict[int, int] = {}
    position: int = 0
    backfilled: int = 0
    backfill_end: int = 0
    backfill_first: int = 0
    past: set[MessageId] = set()
    counts_before: dict[str, int] = {}
    transfers: dict[int, SnapshotTransfer] = {}
    wants_history: set[int] = set()
    trace_names: list[str] = []
    speaks: int = 1
    causes: dict[int, int] = {}
    seals: SealState = msgspec.field(default_factory=SealState)
    secrecy: SecrecyState | None = None


def take_checkpoint(core: ChangingCore) -> Checkpoint:
    """The current state of a core, with its unacknowledged packets."""
    queue = core.application
    state = ChangingCoreState(
        members={address: member.save() for address, member in core.members.items()},
        address=core.address,
        identities=core.identities,
        greeted=core.greeted,
        links=core.links,
        next_link=core.next_link,
        strangers=core.strangers,
        void=core.void,
        sent=core.sent,
        acked_packets={link: (box.acked, box.chain[box.acked]) for link, box in core.outboxes.items()},
        received=core.received,
        received_chain=core.received_chain,
        reports_heard=core.reports_heard,
        lineage=core.lineage,
        partner_lineages=core.partner_lineages,
        broadcasts=core.broadcasts,
        causes=core.causes,
        polls=core.polls,
        delivered=queue.delivered,
        unacked=list(queue.unacked),
        parked=queue.parked,
        parking=queue.parking,
        time=core.time,
        since=core.since,
        trace_names=core.trace_rows.names,
        speaks=core.speaks,
        aged_at=core.aged_at,
        old_tombstones=core.old_tombstones,
        old_originals=core.old_originals,
        position=core.position,
        backfilled=core.backfilled,
        backfill_end=core.backfill_end,
        backfill_first=core.backfill_first,
        past=queue.past,
        counts_before=core.counts_before,
        transfers=core.transfers,
        wants_history=core.wants_history,
        seals=core.sealing.save(),
        secrecy=None if core.secrecy is None else core.secrecy.state,
    )
    rows = core.trace.rows.copy()
    return Checkpoint(msgspec.msgpack.encode(state), _needed_packets(core), core.trace.first, rows)


def _needed_packets(core: ChangingCore) -> list[StoredPacket]:
    stored: dict[int, StoredPacket] = {}
    for link, box in core.outboxes.items():
        unsent = core.packets.get(link, [])
        first = core.sent[link] - len(unsent) + 1
        for number, data in (*box.packets.items(), *enumerate(unsent, first)):
            stored.setdefault(id(data), StoredPacket(data, [], [])).sent.append((link, number))
    return list(stored.values())


def restore(core: ChangingCore, store: SavedStore) -> None:
    """Restore a new core to the state that the journal records."""
    try:
        _restore(core, store)
    except InputError:
        raise
    except (AntecedeError, msgspec.DecodeError, LookupError, TypeError, ValueError, RecursionError) as error:
        raise InputError(f"{store.path} is a damaged store: {error}") from error


def _restore(core: ChangingCore, store: SavedStore) -> None:
    cursor, contents = store.cursor, store.contents()
    checkpoint = contents.checkpoint.checkpoint
    core.is_replaying = True
    if checkpoint.state:
        state = msgspec.msgpack.decode(checkpoint.state, type=ChangingCoreState)
        _load(core, state, checkpoint.packets)
        core.trace_rows.resume(state.trace_names, checkpoint.trace_first, list(checkpoint.trace))
    last = core.time
    for record in contents.records():
        last = record.time
        if isinstance(record, Delivered):
            while core.polls < record.count:
                _poll(core, last, store)
        else:
            core.step(record)
    # The requests of a replay were persisted before.
    core.finish_replay()
    ready = core.ready()
    if ready.history is not None:
        ready.history.write()
    send_and_advance(cast("Any", core), ready)
    core.sealing.end_replay()
    core.is_replaying = False
    core.dropped.clear()
    queue = core.application
    acked = max(cursor.acked, queue.acked, queue.parking)
    attempts = cursor.attempts if cursor.acked == acked else 0
    while queue.delivered < acked + (attempts > 0):
        _poll(core, last, store)
    queue.resume(acked, attempts)
    if not store.cursor_is_exact:
        # Every deliverable message may have been yielded before the power failed.
        store.uncertain_until = _deliverable(core)
    queue.uncertain_until = store.uncertain_until
    while queue.delivered < queue.uncertain_until and core.poll(last):
        pass
    store.release()


def _poll(core: ChangingCore, now: int, store: SavedStore) -> None:
    if not core.poll(now):
        raise InputError(
            f"{store.path}: more messages were delivered than are in it: the store is damaged, or its files "
            "are from different times"
        )


def _deliverable(core: ChangingCore) -> int:
    """How many messages could have been delivered to the application in all, determined on a copy."""
    count = core.application.delivered
    if core.phase == Phase.MEMBER and core.is_started:
        copy = core.kind.restore(core.member.save())
        count += core.backfill_end - core.backfilled
        while copy.deliver(0) is not None:
            count += 1
    return count


def _load(core: ChangingCore, state: ChangingCoreState, packets: list[StoredPacket]) -> None:
    load_members(core, state, packets)
    queue = core.application
    queue.delivered, queue.unacked, queue.parking = state.delivered, deque(state.unacked), state.parking
    queue.resume_parked(state.parked)


def load_members(core: ChangingCore, state: ChangingCoreState, packets: list[StoredPacket]) -> None:
    """Everything but the application's queue."""
    core.members = {address: core.kind.restore(saved) for address, saved in state.members.items()}
    for member in core.members.values():
        member.use_sealer(core.sealing)
    core.address, core.identities, core.greeted = state.address, state.identities, state.greeted
    core.sealing.load(state.seals)
    if core.secrecy is not None and state.secrecy is not None:
        core.secrecy.load(state.secrecy)
    for link, (mine, theirs) in state.links.items():
        core.resume_link(link, mine, theirs)
    core.next_link, core.strangers, core.void = state.next_link, state.strangers, state.void
    core.aged_at = state.aged_at
    core.old_tombstones, core.old_originals = state.old_tombstones, state.old_originals
    core.sent, core.received, core.received_chain = state.sent, state.received, state.received_chain
    core.arrivals = set(core.received)
    core.lineage, core.partner_lineages = state.lineage, state.partner_lineages
    core.broadcasts, core.causes, core.time = state.broadcasts, state.causes, state.time
    core.since, core.speaks = state.since, state.speaks
    core.reports_heard = state.reports_heard
    core.resume_polls(state.polls)
    for link, box in core.outboxes.items():
        box.resume(*state.acked_packets[link])
    sent: dict[int, list[tuple[int, bytes]]] = {link: [] for link in core.outboxes}
    for stored in packets:
        for link, number in stored.sent:
            sent[link].append((number, stored.data))
    for link, numbered in sent.items():
        for number, data in sorted(numbered):  # each extends the chain value of the one before
            core.outboxes[link].extend(number, [data])
    core.application.past = state.past
    core.resume_backfill(state.position, state.backfill_first, state.backfilled, state.backfill_end)
    core.counts_before, core.transfers = state.counts_before, state.transfers
    core.wants_history = state.wants_history
    if core.members:
        core.application.belong_to(core.me)
        core.forgets = core.member.forgets
