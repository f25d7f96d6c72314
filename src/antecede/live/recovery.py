"""Recovery of a member after a crash: a checkpoint of its core, and a replay of the log since."""

from __future__ import annotations

import contextlib
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import msgspec

from antecede.causality import BitWindow
from antecede.errors import AntecedeError, InputError
from antecede.live.application import ParkedDelivery
from antecede.live.events import (
    Cursor,
    Delivered,
    ForkNoticed,
    KeyStarted,
    Life,
    LogRecord,
    RepairReceived,
)
from antecede.live.ready import send_and_advance
from antecede.live.seals import KeyStart, Statement
from antecede.live.stability import Divergence
from antecede.live.store.reader import StoreContents
from antecede.live.store.records import Checkpoint, StoredPacket
from antecede.protocols.base import Delivery, RemoteError
from antecede.protocols.limits import MAX_BATCH_MESSAGES

if TYPE_CHECKING:
    from antecede.live.core import Core


class CoreState(msgspec.Struct):
    """A core at one moment, without its packets."""

    protocol: bytes
    causes: dict[int, int]
    sent: dict[int, int]
    acked_packets: dict[int, tuple[int, bytes]]
    """For each partner, the number of the last packet that it has acknowledged, and its chain value."""
    received: dict[int, int]
    received_chain: dict[int, bytes]
    certificates: list[bytes]
    """The certificates of members' signing keys."""
    key_starts: list[KeyStart]
    """From which message on each member has signed with each of its keys."""
    equivocators: dict[int, list[Statement]]
    signed_order: tuple[list[int], list[Delivery]] | None
    """In a group with signatures: its counts and held messages."""
    lineage: list[Life]
    partner_lineages: dict[int, list[Life]]
    windows: list[bytes]
    """The sequence numbers received from each origin."""
    delivered_counts: list[int]
    """This member's row of the matrix clock."""
    chain: list[bytes]
    """The chain values of the messages that it has delivered and broadcast."""
    history: list[dict[int, bytes]]
    """By count, chain values from the last stable message on; the reported part is enough."""
    forks: list[Divergence]
    """Members that have delivered different messages under the same ids."""
    stable: list[int]
    out_of_order: dict[int, bytes]
    delivered: int
    unacked: list[Delivery]
    parked: dict[int, ParkedDelivery]
    parking: int
    timers: list[int]
    time: int
    """The last time in the log before the checkpoint."""


def take_checkpoint(core: Core) -> Checkpoint:
    """The current state of a core, with its packets: each once, however many need it, and by reference."""
    stability = core.stability
    stability.settle()
    state = CoreState(
        protocol=core.protocol.save(),
        causes=core.causes,
        sent=core.sent,
        acked_packets={link: (box.acked, box.chain[box.acked]) for link, box in core.outboxes.items()},
        received=core.received,
        received_chain=core.received_chain,
        certificates=list(core.signatures.certificates) if core.signatures else [],
        key_starts=list(core.seals.key_starts.values()) if core.seals else [],
        equivocators=core.equivocators,
        signed_order=(core.signed_order.counts, core.signed_order.held()) if core.signed_order else None,
        lineage=core.lineage,
        partner_lineages=core.partner_lineages,
        windows=[window.to_bytes() for window in stability.received],
        delivered_counts=stability.matrix_clock[core.me],
        chain=stability.chain,
        history=stability.history,
        forks=list(stability.lasting.values()),
        stable=stability.stable,
        out_of_order={origin: each.to_bytes() for origin, each in stability.out_of_order.items()},
        delivered=core.application.delivered,
        unacked=list(core.application.unacked),
        parked=core.application.parked,
        parking=core.application.parking,
        timers=core.timers,
        time=core.time,
    )
    trace = core.trace
    return Checkpoint(msgspec.msgpack.encode(state), _needed_packets(core), trace.first, trace.rows.copy())


def _needed_packets(core: Core) -> list[StoredPacket]:
    """Packets that a partner has not acknowledged, or whose messages are not stable."""
    stored: dict[int, StoredPacket] = {}

    def needed(data: bytes) -> StoredPacket:
        if (packet := stored.get(id(data))) is None:
            packet = stored[id(data)] = StoredPacket(data, [], [])
        return packet

    for link, box in core.outboxes.items():
        for number, data in box.packets.items():
            needed(data).sent.append((link, number))
        unsent = core.packets.get(link, [])
        for number, data in enumerate(unsent, core.sent[link] - len(unsent) + 1):
            needed(data).sent.append((link, number))
    for origin, entries in enumerate(core.stability.unstable):
        for seq, entry in entries.items():
            if entry.packet is not None:
                spans = needed(entry.packet).spans
                if spans and spans[-1][0] == origin and spans[-1][2] == seq - 1:
                    spans[-1] = (origin, spans[-1][1], seq)
                else:
                    spans.append((origin, seq, seq))
    return list(stored.values())


class SavedStore(Protocol):
    """A store as a member is restored from it: a journal, or a store that is only inspected."""

    path: Path
    uncertain_until: int

    @property
    def cursor(self) -> Cursor: ...

    @property
    def cursor_is_exact(self) -> bool: ...

    def contents(self) -> StoreContents: ...

    def release(self) -> None: ...


def restore(core: Core, store: SavedStore) -> None:
    """Restore a new core to the state that the journal records."""
    try:
        _restore(core, store)
    except InputError:
        raise
    except (AntecedeError, msgspec.DecodeError, LookupError, TypeError, ValueError, RecursionError) as error:
        raise InputError(f"{store.path} is a damaged store: {error}") from error


def _restore(core: Core, store: SavedStore) -> None:
    cursor, contents = store.cursor, store.contents()
    checkpoint = contents.checkpoint.checkpoint
    if checkpoint.state:
        _load_state(core, msgspec.msgpack.decode(checkpoint.state, type=CoreState))
    core.trace.first, core.trace.rows = checkpoint.trace_first, list(checkpoint.trace)
    checkpoint_acked = core.application.acked
    sent: dict[int, list[tuple[int, bytes]]] = {link: [] for link in core.outboxes}
    for stored in checkpoint.packets:
        for link, number in stored.sent:
            sent[link].append((number, stored.data))
        for span in stored.spans:
            if not 1 <= span[1] <= span[2] < span[1] + MAX_BATCH_MESSAGES:
                raise ValueError(f"a packet cannot contain messages {span[1]} to {span[2]}")
            core.stability.restore(span, stored.data)
    for link, packets in sent.items():
        for number, data in sorted(packets):  # each extends the chain value of the one before
            core.outboxes[link].extend(number, [data])
    last = 0
    core.is_replaying = True
    for record in contents.records():
        _replay(core, record, store)
        last = record.time
    core.is_replaying = False
    # After a power failure the cursor may be older than the checkpoint; a message that was being parked when
    # the process ended is no longer in flight.
    queue = core.application
    acked = max(cursor.acked, checkpoint_acked, queue.parking)
    attempts = cursor.attempts if cursor.acked == acked else 0
    yielded = acked + (attempts > 0)
    _deliver_until(core, yielded, last, store)
    for position, delivery in enumerate(queue.unacked, queue.acked + 1):
        origin, seq = delivery.message
        if position <= yielded and origin != core.me:
            core.stability.deliver(origin, seq, delivery.payload)
    queue.resume(acked, attempts)
    if not store.cursor_is_exact:
        # Every deliverable message may have been yielded before the power failed.
        store.uncertain_until = _deliverable(core)
    queue.uncertain_until = store.uncertain_until
    # Later broadcasts depend on these messages, and follow them.
    while queue.delivered < queue.uncertain_until and core.deliver_next(last):
        pass
    # The requests of a replay were persisted before.
    send_and_advance(core, core.ready())
    store.release()


def _deliverable(core: Core) -> int:
    """How many messages could have been delivered to the application in all, determined on a copy."""
    count, protocol = core.application.delivered, type(core.protocol).restore(core.protocol.save())
    while protocol.deliver(0) is not None:
        count += 1
    return count


def _load_state(core: Core, state: CoreState) -> None:
    stability = core.stability
    core.protocol = type(core.protocol).restore(state.protocol)
    core.causes, core.sent = state.causes, state.sent
    core.received, core.received_chain = state.received, state.received_chain
    core.equivocators = state.equivocators
    if core.seals is not None:
        for start in state.key_starts:
            core.seals.record_key_start(start)
    if core.signed_order is not None and state.signed_order is not None:
        core.signed_order.restore(*state.signed_order)
    if core.signatures is not None:
        for certificate in state.certificates:
            core.signatures.learn(certificate, trusted=True)
    core.lineage, core.partner_lineages = state.lineage, state.partner_lineages
    core.application.delivered = core.logged_deliveries = state.delivered
    core.logged_held = core.held_for_signed_causes
    queue = core.application
    queue.unacked, queue.parking = deque(state.unacked), state.parking
    queue.resume_parked(state.parked)
    core.timers, core.time = state.timers, state.time
    for link, box in core.outboxes.items():
        box.resume(*state.acked_packets[link])
    stability.received = [BitWindow.from_bytes(data) for data in state.windows]
    stability.stable = state.stable
    stability.out_of_order = {
        origin: BitWindow.from_bytes(data) for origin, data in state.out_of_order.items()
    }
    core.broadcasts = stability.received[core.me].base
    stability.resume(state.delivered_counts, state.chain, state.history)
    for fork in state.forks:
        stability.resume_divergence(fork)


def _replay(core: Core, record: LogRecord, store: SavedStore) -> None:
    if isinstance(record, Delivered):
        _deliver_until(core, record.count, record.time, store)
        if core.held_for_signed_causes < record.held:
            core.deliver_next(record.time)  # nothing is deliverable, but more are held
        core.logged_deliveries, core.logged_held = core.application.delivered, core.held_for_signed_causes
    elif isinstance(record, ForkNoticed):
        core.stability.resume_divergence(record.divergence)
    elif isinstance(record, KeyStarted):
        if core.seals is not None:
            core.seals.record_key_start(record.start)
    elif isinstance(record, RepairReceived):
        with contextlib.suppress(RemoteError):  # raised by a later part, as before the crash
            core.step(record)
    else:
        core.step(record)


def _deliver_until(core: Core, count: int, now: int, store: SavedStore) -> None:
    while core.application.delivered < count:
        if not core.deliver_next(now):
            raise InputError(
                f"{store.path}: {count} messages were delivered and only {core.application.delivered} "
                "are in it: the store is damaged, or its files are from different times"
            )
