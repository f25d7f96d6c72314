"""Inspecting a store without changing it: whether it is intact, whose it is, and its messages.

It takes no lock and writes nothing, so it can run beside a live member, or on a read-only copy.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from antecede.causality import BitWindow, MessageId
from antecede.errors import AntecedeError, InputError
from antecede.live.changing.core import ChangingCore
from antecede.live.changing.phone import PhoneCore
from antecede.live.changing.protocols import WITH_PHONES
from antecede.live.changing.recovery import restore as restore_changing
from antecede.live.changing.super_peer import SuperPeerCore
from antecede.live.changing.undelivered import accepted_messages, held_messages
from antecede.live.core import Core
from antecede.live.envelope import decode_body, unwrap
from antecede.live.events import Broadcast, Cursor
from antecede.live.recovery import CoreState, restore
from antecede.live.settings import Roster
from antecede.live.store.disk import Disk, ViewedFiles
from antecede.live.store.reader import (
    CURSOR,
    Damage,
    DamageError,
    StoreContents,
    generations,
    read_cursor_file,
    read_store,
)
from antecede.live.store.records import (
    MEMBERS_CHANGE,
    UNDECODABLE,
    Commit,
    StoredCheckpoint,
    decode_commit,
    find_records,
)
from antecede.membership.catalog import CHANGING
from antecede.protocols.base import Packet
from antecede.protocols.flat import MessageBatch, MessagePacket
from antecede.protocols.vcube import Bundle

_NONSENSE = (*UNDECODABLE, AntecedeError, LookupError, TypeError, ValueError, AttributeError)
"""The errors that content with valid checksums may raise if no member has written it."""
_TRIES = 20
"""A running member may replace its files while they are read."""


class StoredMessage(msgspec.Struct, frozen=True, omit_defaults=True):
    """A message in a store."""

    origin: str
    seq: int | None
    """None if the number is unknown, because an earlier record is damaged."""
    body: Any
    """The body as it was broadcast; bytes are encoded as base64."""
    is_bytes: bool = False
    accepted: bool = False
    """It was accepted here for broadcast, and is not known to be delivered everywhere."""
    unacked: bool = False
    """It was received, and the application has not acknowledged it."""
    held: bool = False
    """It was received, and waits for a cause."""
    verified: bool = True
    """Whether the checksums of its record and of all before are valid."""


def _changing_core(identity: dict[str, Any]) -> ChangingCore:
    """The core of a dynamic group that writes a store like this one."""
    protocol, name = identity["protocol"], identity["member"]
    if protocol not in WITH_PHONES:
        return ChangingCore(CHANGING[protocol], name)
    return (PhoneCore if identity.get("phone") else SuperPeerCore)(WITH_PHONES[protocol], name)


class StoreInspection:
    """The contents of a store; `damages` is empty if it is intact."""

    def __init__(self, disk: Disk) -> None:
        self.path, self._disk = disk.path, disk
        self.damages: list[Damage] = []
        self.contents: StoreContents | None = None
        """None if the checkpoint cannot be read."""
        self.unverified: list[Commit] = []
        """In that case, what seems to be in the log."""
        for attempt in range(_TRIES):
            try:
                self._read(disk)
                return
            except (FileNotFoundError, NotADirectoryError) as error:
                if not self.path.is_dir() or attempt == _TRIES - 1:
                    raise InputError(f"{self.path} is not a store: {error.strerror}") from error

    def _read(self, disk: Disk) -> None:
        names = disk.names()
        if not (generations(names, "checkpoint") or generations(names, "log")):
            raise InputError(f"{self.path} is not a store: it has no checkpoint and no log")
        # Before the log: what it states about the log was true then, and remains true.
        cursor_file = read_cursor_file(disk, names)
        names = disk.names()
        try:
            self.contents = read_store(disk, names, cursor_file.durable if cursor_file else None)
            if self.contents.damage is not None:
                self.damages.append(self.contents.damage)
        except DamageError as error:
            self.damages.append(error.damage)
            for generation in generations(names, "log")[-1:]:
                self.unverified = _read_unverified(disk.read(f"log-{generation}"))
        if cursor_file is None:
            self.damages.append(Damage(CURSOR, 0, "it is missing or does not match its checksums"))
            self.cursor = self.contents.cursor if self.contents else Cursor(0, 0)
        else:
            self.cursor = cursor_file.read_cursor()[0]

    @property
    def size(self) -> int:
        return self.contents.checkpoint_bytes + self.contents.log_bytes if self.contents else 0

    @property
    def is_changing(self) -> bool:
        """Whether the store belongs to a dynamic group."""
        return (
            self.contents is not None and self.contents.checkpoint.identity.get("members") == MEMBERS_CHANGE
        )

    def core(self) -> Core | ChangingCore | None:
        """The member as of the last readable record; None if it cannot be restored."""
        if self.contents is None:
            return None
        saved = _SavedContents(self.path, self.contents, self._readable_cursor())
        identity = self.contents.checkpoint.identity
        try:
            if self.is_changing:
                changing = _changing_core(identity)
                changing.files = ViewedFiles(self._disk)
                restore_changing(changing, saved)
                return changing
            roster = self._roster(identity)
            core = Core(roster.create_protocol(identity["member"]))
            restore(core, saved)
        except _NONSENSE as error:
            self.damages.append(Damage("checkpoint", 0, f"the member cannot be restored from it: {error}"))
            return None
        return core

    @staticmethod
    def unstable_bytes(core: Core | ChangingCore) -> int:
        """Bytes of messages that are not known to be delivered everywhere."""
        if isinstance(core, Core):
            return core.stability.unstable_bytes
        return core.retained_bytes if core.members else 0

    def _readable_cursor(self) -> Cursor:
        """For a damaged store, the cursor in the last readable record."""
        contents = self.contents
        return contents.cursor if contents is not None and contents.damage is not None else self.cursor

    @staticmethod
    def _roster(identity: dict[str, Any]) -> Roster:
        return Roster.of_lines(identity["protocol"], identity["members"])

    def accepted(self) -> Iterator[StoredMessage]:
        """This member's own messages that may not be delivered everywhere, in order, as far as they are
        readable."""
        if self.contents is None:
            yield from _broadcasts("", None, self.unverified, False)
            return
        stored = self.contents.checkpoint
        member, count = str(stored.identity.get("member")), 0
        if self.is_changing:
            yield from self._accepted_changing(member)
            return
        if stored.checkpoint.state:
            try:
                count, found = self._in_checkpoint(stored, member)
            except _NONSENSE as error:
                raise InputError(f"{self.path} is a damaged store: its checkpoint: {error}") from error
            for seq, payload in found:
                yield _stored_message(member, seq, payload, accepted=True)
        yield from _broadcasts(member, count, self.contents.commits, True)
        yield from _broadcasts(member, None, self.contents.beyond, False)

    def _accepted_changing(self, member: str) -> Iterator[StoredMessage]:
        before, core = len(self.damages), self.core()
        del self.damages[before:]  # callers that request the core itself see them
        if isinstance(core, ChangingCore):
            for message, payload in accepted_messages(core):
                yield _stored_message(core.labels[message.origin], message.seq, payload, accepted=True)
        elif self.contents is not None:
            yield from _broadcasts(member, None, self.contents.commits, True)
        yield from _broadcasts(member, None, self.contents.beyond if self.contents else [], False)

    def _in_checkpoint(self, stored: StoredCheckpoint, member: str) -> tuple[int, list[tuple[int, bytes]]]:
        """How many messages the member had broadcast, and those that were not delivered everywhere."""
        roster, found = self._roster(stored.identity), dict[int, bytes]()
        me = roster.names.index(member)
        state = msgspec.msgpack.decode(stored.checkpoint.state, type=CoreState)
        for packet in stored.checkpoint.packets:
            if packet.data:
                decoded = _payloads(roster.protocol.decode(packet.data))
                found |= {message.seq: payload for message, payload in decoded if message.origin == me}
        return BitWindow.from_bytes(state.windows[me]).base, sorted(found.items())

    def unacked(self, core: Core | ChangingCore) -> list[StoredMessage]:
        """Messages that are deliverable to the application, or in flight to it; in a dynamic group, also
        those that are held."""
        if isinstance(core, ChangingCore):
            return self._unacked_changing(core)
        names = self._roster(self.contents.checkpoint.identity).names if self.contents else []
        try:
            while core.deliver_next(0):
                pass
            return [
                _stored_message(names[origin], seq, delivery.payload, unacked=True)
                for delivery in core.application.unacked
                for origin, seq in [delivery.message]
            ]
        except _NONSENSE as error:
            raise InputError(f"{self.path} is a damaged store: {error}") from error

    def _unacked_changing(self, core: ChangingCore) -> list[StoredMessage]:
        try:
            while core.poll(core.time):
                pass
            deliverable = [(each.message, each.payload) for each in core.application.unacked]
            return [
                *(
                    _stored_message(core.labels[m.origin], m.seq, data, unacked=True)
                    for m, data in deliverable
                ),
                *(
                    _stored_message(core.labels[m.origin], m.seq, data, held=True)
                    for m, data in held_messages(core)
                ),
            ]
        except _NONSENSE as error:
            raise InputError(f"{self.path} is a damaged store: {error}") from error


class _SavedContents:
    """A store under inspection, for `restore`."""

    def __init__(self, path: Path, contents: StoreContents, cursor: Cursor) -> None:
        self.path, self._contents, self.cursor = path, contents, cursor
        self.uncertain_until, self.cursor_is_exact = 0, True

    def contents(self) -> StoreContents:
        return self._contents

    def release(self) -> None:
        pass


def _read_unverified(log: bytes) -> list[Commit]:
    """Without the checkpoint there is no key to verify records with; whatever can be decoded is shown as
    unverified."""
    commits = []
    for record in find_records(log, 0, None):
        try:
            commits.append(decode_commit(record.body))
        except UNDECODABLE:
            continue
    return commits


def _broadcasts(
    member: str, count: int | None, commits: list[Commit], verified: bool
) -> Iterator[StoredMessage]:
    """Messages that were broadcast after `count` others."""
    for commit in commits:
        for record in commit.records:
            if isinstance(record, Broadcast):
                for payload in record.payloads:
                    count = None if count is None else count + 1
                    yield _stored_message(member, count, payload, accepted=True, verified=verified)


def _stored_message(
    origin: str,
    seq: int | None,
    payload: bytes,
    accepted: bool = False,
    unacked: bool = False,
    held: bool = False,
    verified: bool = True,
) -> StoredMessage:
    body = decode_body(unwrap(payload))
    return StoredMessage(origin, seq, body, isinstance(body, bytes), accepted, unacked, held, verified)


def _payloads(packet: Packet) -> Iterator[tuple[MessageId, bytes]]:
    """The messages in a packet."""
    parts: list[Any] = [packet]
    if isinstance(packet, MessageBatch):
        parts = list(packet.split())
    elif isinstance(packet, Bundle):
        parts = list(packet.messages)
    for part in parts:
        if isinstance(part, MessagePacket):
            yield part.message_ids()[0], part.payload
