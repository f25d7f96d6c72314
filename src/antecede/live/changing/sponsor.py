"""How a member admits others: with its application's state, taken between two messages.

A small state is in the welcome. A large one is written to a file, and the newcomer fetches it before it is
admitted (`transfer.py`): deliveries pause only until the application has given its state. Newcomers that
arrive meanwhile share the file, so there is one file at a time.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from typing import cast

from antecede.errors import AntecedeError
from antecede.live.changing import snapshots, transfer
from antecede.live.changing.core import ChangingCore
from antecede.live.changing.events import Declined, Sponsored, TransferBegun
from antecede.live.changing.history import HistoryReader, Retention
from antecede.live.changing.membership import MAX_SNAPSHOT
from antecede.live.changing.snapshots import (
    SnapshotTransfer,
    SnapshotWriter,
    WelcomeState,
    encode_state,
    other_snapshots,
    received_name,
    snapshot_name,
)
from antecede.live.clock import Clock
from antecede.live.messages import NoticeKind
from antecede.live.operations.logs import Log
from antecede.live.problems import Problems
from antecede.live.versions import STATES_SINCE
from antecede.membership.state import Phase
from antecede.protocols.base import LocalError

SnapshotParts = Iterator[bytes] | AsyncIterator[bytes]
Snapshot = Callable[[], bytes | SnapshotParts]

_numbers = itertools.count(1)
_SLOW_SECONDS = 10.0
"""How long a snapshot may take before it is reported as a problem."""
_FAILED_SECONDS = 60.0
"""How long a failed snapshot stays a problem, if nobody asks again."""


class Sponsor:
    """Admits processes that have asked. `snapshot` is the application's, if it has one; `answer` is called
    with the address of a newcomer that is declined, and the reason; `stepped` is called when the core has
    taken an event that no caller has requested."""

    def __init__(
        self,
        core: ChangingCore,
        snapshot: Snapshot | None,
        clock: Clock,
        log: Log,
        answer: Callable[[int, str], None] = lambda _address, _reason: None,
        stepped: Callable[[], None] = lambda: None,
    ) -> None:
        self._core, self.snapshot, self._clock, self._log = core, snapshot, clock, log
        self._answer, self._stepped = answer, stepped
        self._storing: asyncio.Task[None] | None = None
        """The task that writes a snapshot."""
        self._storing_since = self._failed_at = 0.0
        self._failure = ""
        self._is_closed = False

    def report(self, problems: Problems, notify: Callable[[NoticeKind, str, str], None], me: str) -> None:
        """Report the state of the application's snapshots: without one nobody is admitted here."""
        text, now = "", time.monotonic()
        if self._storing is not None and now - self._storing_since > _SLOW_SECONDS:
            text = (
                f"the snapshot that the application gives has not ended after {_SLOW_SECONDS:.0f} s; until "
                "then the application is delivered nothing"
            )
        elif self._failure and now - self._failed_at < _FAILED_SECONDS:
            text = self._failure
        if not text:
            problems.end("snapshot")
        elif problems.begin("snapshot", "snapshot", me, text):
            notify("snapshot", me, text)

    def admit(self) -> None:
        """Admit the processes that have asked, if the application is between two messages."""
        core = self._core
        while self._storing is None and core.may_sponsor:
            address = core.join_requests[0]
            try:
                self._begin(address)
            except (Exception, asyncio.CancelledError) as error:
                # Whatever the application raises: the group continues, and the newcomer asks elsewhere.
                self._fail(address, error)

    def decline(self, addresses: Iterable[int], reason: str) -> None:
        """Decline newcomers that do not fetch their state."""
        for address in addresses:
            self._decline(address, reason, reason)

    def close(self) -> None:
        self._is_closed = True
        if self._storing is not None:
            self._storing.cancel()

    def _fail(self, address: int, error: BaseException) -> None:
        """The application has returned no snapshot, or an unusable one."""
        reason = str(error) or type(error).__name__
        self._failed_at, self._failure = time.monotonic(), f"{self._name(address)} is not admitted: {reason}"
        public = reason
        if not isinstance(error, AntecedeError):  # details of the application's own errors stay in its log
            me = self._core.name
            public = f"{me}'s snapshot() failed with {type(error).__name__}; {me}'s log says more"
        self._decline(address, reason, public)

    def _decline(self, address: int, reason: str, public: str) -> None:
        who = self._name(address)
        self._log.error("%s is not admitted: %s", who, reason, extra={"peer": who})
        self._core.step(Declined(address, self._clock.now()))
        self._answer(address, public)

    def _name(self, address: int) -> str:
        contact = self._core.greeted.get(address)
        return contact.label if contact is not None else "somebody"

    def _begin(self, address: int) -> None:
        core, now = self._core, self._clock.now()
        if address in core.transfers:
            event: Sponsored | TransferBegun | None = finish_transfer(core, address, now)
        elif address in core.wants_history:
            event = offer_history(core, address, now)
        elif self.snapshot is None:
            event = Sponsored(address, None, now)
        elif (shared := shared_snapshot(core)) is not None and self._fetches(address):
            event = TransferBegun(address, shared, now)
        else:
            event = self._take_snapshot(address, self.snapshot(), now)
        if event is not None:
            core.step(event)
            self._failure = ""
            who = self._name(address)
            text = "admitted %s" if isinstance(event, Sponsored) else "%s fetches its state first"
            self._log.info(text, who, extra={"peer": who})

    def _fetches(self, address: int) -> bool:
        """Whether a newcomer can fetch a state that is too large for a welcome."""
        contact = self._core.greeted.get(address)
        is_phone = contact is not None and contact.is_phone
        return not is_phone and self._core.member.speaks_with(address) >= STATES_SINCE

    def _take_snapshot(self, address: int, snapshot: object, now: int) -> Sponsored | None:
        """Admit a newcomer with a small snapshot; write a large one, or one in parts, to a file first."""
        fetches = self._fetches(address)
        if isinstance(snapshot, bytes | bytearray | memoryview):
            if len(snapshot) <= (snapshots.MAX_INLINE if fetches else MAX_SNAPSHOT):
                return Sponsored(address, bytes(snapshot), now)
        elif not isinstance(snapshot, Iterator | AsyncIterator):
            raise LocalError(f"a snapshot is bytes, or an iterator of bytes, not {type(snapshot).__name__}")
        if not fetches:
            raise LocalError(f"a phone's snapshot has {MAX_SNAPSHOT:,} bytes at most, and no parts")
        self._storing_since = time.monotonic()
        self._storing = asyncio.create_task(self._store(address, cast("bytes | SnapshotParts", snapshot)))
        return None

    async def _store(self, address: int, snapshot: bytes | SnapshotParts) -> None:
        """Write a snapshot to a file. Deliveries wait until the application has produced it."""
        core = self._core
        writer = SnapshotWriter(core.files, next(_numbers))
        is_stream = isinstance(snapshot, Iterator | AsyncIterator)
        try:
            first, counts = begin_transfer(core)
            core.takes_snapshot = is_stream
            async for part in _parts(snapshot):
                await asyncio.to_thread(writer.add, part)
            core.takes_snapshot = False
            self._stepped()
            digest = await asyncio.to_thread(writer.finish)
            await asyncio.to_thread(core.history.create)
            state = SnapshotTransfer(digest, writer.length, is_stream, first, counts)
            core.step(TransferBegun(address, state, self._clock.now()))
            self._failure = ""
        except (Exception, asyncio.CancelledError) as error:
            writer.discard()
            if self._is_closed:
                raise
            self._fail(address, error)
        finally:
            core.takes_snapshot, core.snapshot_from, self._storing = False, None, None
        self._stepped()


async def _parts(snapshot: bytes | SnapshotParts) -> AsyncIterator[bytes]:
    """The application's snapshot, in parts that are small enough to write at once."""
    if isinstance(snapshot, AsyncIterator):
        async for part in snapshot:
            yield bytes(part)
    elif isinstance(snapshot, Iterator):
        for part in snapshot:
            yield bytes(part)
    else:
        yield bytes(snapshot)


# Helpers without an event loop


def begin_transfer(core: ChangingCore) -> tuple[int, dict[str, int]]:
    """The application takes its snapshot now: from now on deliveries are kept for newcomers. Returns the
    position, and the counts of what the snapshot contains."""
    log, counts = core.history, core.count_delivered()
    if not log.exists or log.end != core.position:
        log.begin(core.position, counts)
    core.snapshot_from = core.position
    return core.position, counts


def shared_snapshot(core: ChangingCore) -> SnapshotTransfer | None:
    """A snapshot that another newcomer is fetching already."""
    return next((each for each in core.transfers.values() if each.digest), None)


def offer_history(core: ChangingCore, address: int, now: int) -> Sponsored | TransferBegun:
    """Admit a newcomer with the messages that are retained here, or let it fetch them first."""
    log = core.history
    if not log.exists or log.end != core.position:
        state = SnapshotTransfer(b"", 0, False, core.position, core.count_delivered())
        return Sponsored(address, None, now, encode_state(WelcomeState(state, core.position, [])))
    first, counts = log.beginning_within(snapshots.MAX_STATE // 2)
    state = SnapshotTransfer(b"", 0, False, first, counts)
    if HistoryReader(log, first).bytes_left > transfer.MAX_TAIL:
        return TransferBegun(address, state, now)
    tail = log.entries_after(first)
    return Sponsored(address, None, now, encode_state(WelcomeState(state, first, tail)))


def finish_transfer(core: ChangingCore, address: int, now: int) -> Sponsored | None:
    """Admit a newcomer that has nearly all of its state; None if the rest has grown too large again."""
    state, position = core.transfers[address], core.caught_up.pop(address)
    tail = core.history.entries_after(position)
    if sum(map(len, tail)) > 2 * transfer.MAX_TAIL:
        return None
    return Sponsored(address, None, now, encode_state(WelcomeState(state, position, tail)))


def remove_unneeded(core: ChangingCore, retention: Retention | None, now: int) -> None:
    """Periodically delete files that are no longer needed."""
    files = core.files
    if not core.members or core.snapshot_from is not None:
        return
    kept = {snapshot_name(each.digest) for each in core.transfers.values()}
    if core.phase == Phase.MEMBER:
        if not core.is_started and (state := core.received_state) is not None:
            kept.add(received_name(core.address, state.transfer.digest))
        core.forget_histories()
        core.history.trim(retention, now, core.needed_position)
        # A restart may need them until that is durable.
        core.unneeded = {
            name: core.unneeded.get(name, core.pending_number) for name in other_snapshots(files, kept)
        }
        for name, number in core.unneeded.items():
            if core.is_persisted(number):
                files.remove(name)
