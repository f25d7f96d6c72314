"""Bringing a member back after a crash: a checkpoint of its core, and a replay of the log since."""

from __future__ import annotations

import contextlib
from collections import deque
from typing import TYPE_CHECKING

import msgspec

from antecede.causality import BitWindow
from antecede.errors import AntecedeError, InputError
from antecede.live.events import Delivered, LogRecord, RepairReceived
from antecede.live.ready import send_and_advance
from antecede.live.store.journal import Checkpoint, Journal, StoredPacket
from antecede.protocols.base import Delivery, RemoteError

if TYPE_CHECKING:
    from antecede.live.core import Core


class CoreState(msgspec.Struct):
    """A core at one moment, without its packets."""

    protocol: bytes
    causes: dict[int, int]
    sent: dict[int, int]
    acked_packets: dict[int, int]
    received: dict[int, int]
    windows: list[bytes]
    """Of the sequence numbers received from each origin."""
    delivered_counts: list[int]
    """This member's row of the matrix clock."""
    stable: list[int]
    delivered: int
    unacked: list[Delivery]
    trace_length: int
    wake_at: int | None


def take_checkpoint(core: Core) -> Checkpoint:
    """The core as it is, and what has changed in the tables beside it since the last checkpoint."""
    stability = core.stability
    acked_packets = {link: box.acked for link, box in core.outboxes.items()}
    stable = list(stability.stable)
    state = CoreState(
        protocol=core.protocol.save(),
        causes=core.causes,
        sent=core.sent,
        acked_packets=acked_packets,
        received=core.received,
        windows=[window.to_bytes() for window in stability.received],
        delivered_counts=stability.matrix_clock[core.me],
        stable=stable,
        delivered=core.delivered,
        unacked=list(core.unacked),
        trace_length=core.trace.length,
        wake_at=core.wake_at,
    )
    packets, trace = _take_unstored(core), core.trace.take()
    return Checkpoint(
        msgspec.msgpack.encode(state),
        packets,
        acked_packets,
        stable,
        (trace[0], msgspec.msgpack.encode(trace[1])) if trace else None,
    )


def _take_unstored(core: Core) -> list[StoredPacket]:
    """Packets that are still needed and only in the log; each once, whoever it is for."""
    stored: dict[int, StoredPacket] = {}
    for link, box in core.outboxes.items():
        queued = {
            number: box.packets[number] for number in range(max(box.stored, box.acked) + 1, box.last + 1)
        }
        unsent = core.packets.get(link, [])
        queued |= enumerate(unsent, core.sent[link] - len(unsent) + 1)
        for number, data in queued.items():
            if number > box.stored:
                stored.setdefault(id(data), StoredPacket(data)).sent.append((link, number))
        box.stored = core.sent[link]
    for span in core.newly_unstable:
        origin, _, last = span
        entry = core.stability.unstable[origin].get(last)
        if entry is not None and entry.packet is not None:
            stored.setdefault(id(entry.packet), StoredPacket(entry.packet)).spans.append(span)
    core.newly_unstable = []
    return list(stored.values())


def restore(core: Core, journal: Journal) -> None:
    """Make a new core what the journal says that this member was."""
    try:
        _restore(core, journal)
    except InputError:
        raise
    except (AntecedeError, msgspec.DecodeError, LookupError, TypeError, ValueError) as error:
        raise InputError(f"{journal.path} is a damaged store: {error}") from error


def _restore(core: Core, journal: Journal) -> None:
    cursor = journal.cursor
    if data := journal.state():
        _load_state(core, msgspec.msgpack.decode(data, type=CoreState))
    checkpoint_acked = core.acked
    for stored in journal.packets():
        for link, number in stored.sent:
            core.outboxes[link].put(number, stored.data)
        for span in stored.spans:
            core.stability.restore(span, stored.data)
    last = 0
    for record in journal.records():
        _replay(core, record, journal)
        last = record.time
    # After a power failure the cursor may be older than the checkpoint.
    acked = max(cursor.acked, checkpoint_acked)
    yielded = acked + cursor.in_flight
    _deliver_until(core, yielded, last, journal)
    for position, delivery in enumerate(core.unacked, core.acked + 1):
        if position <= yielded:
            origin, seq = delivery.message
            core.stability.record_delivered(core.me, origin, seq)
    while core.acked < acked:
        core.unacked.popleft()
    core.yielded = acked
    core.redelivered = cursor.acked + 1 if cursor.in_flight else 0
    # What the replay asks for was persisted before.
    send_and_advance(core, core.ready())


def _load_state(core: Core, state: CoreState) -> None:
    stability = core.stability
    core.protocol = type(core.protocol).restore(state.protocol)
    core.causes, core.sent, core.received = state.causes, state.sent, state.received
    core.delivered = core.logged_deliveries = state.delivered
    core.unacked = deque(state.unacked)
    core.trace.length, core.wake_at = state.trace_length, state.wake_at
    for link, box in core.outboxes.items():
        box.last = box.stored = state.sent[link]
        box.acked = state.acked_packets[link]
    stability.received = [BitWindow.from_bytes(data) for data in state.windows]
    stability.stable = state.stable
    core.broadcasts = stability.received[core.me].base
    for origin, count in enumerate(state.delivered_counts):
        stability.record_delivered(core.me, origin, count)


def _replay(core: Core, record: LogRecord, journal: Journal) -> None:
    if isinstance(record, Delivered):
        _deliver_until(core, record.count, record.time, journal)
    elif isinstance(record, RepairReceived):
        with contextlib.suppress(RemoteError):  # raised by a later part, as it was then
            core.step(record)
    else:
        core.step(record)


def _deliver_until(core: Core, count: int, now: int, journal: Journal) -> None:
    while core.delivered < count:
        if not core.deliver_next(now):
            raise InputError(
                f"{journal.path}: {count} messages were delivered and only {core.delivered} are in it: "
                "the store is damaged, or its files are from different times"
            )
