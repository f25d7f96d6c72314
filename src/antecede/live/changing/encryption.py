"""End-to-end encryption, as a group drives it: which messages about keys it broadcasts, and what newcomers
get.

A newcomer receives the group's readers and the application's state in one byte string, the readers first.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from typing import Any

from antecede.errors import require
from antecede.live.changing.core import ChangingCore
from antecede.live.changing.events import ReadingBegun
from antecede.live.changing.secret_messages import OFFER_PREFIX, decode_offer, offer_length
from antecede.live.changing.snapshots import read_parts, received_name
from antecede.live.changing.sponsor import Snapshot, SnapshotParts
from antecede.live.events import Broadcast
from antecede.live.problems import Problems
from antecede.live.security.identity import Security
from antecede.live.settings import Settings
from antecede.membership.state import Phase
from antecede.protocols.base import LocalError, RemoteError

_PATIENCE = 3.0
"""Seconds that a broadcast waits for the keys of members that have just joined."""


class Encryption:
    """The encryption of one process. It does nothing unless the group is encrypted."""

    def __init__(self, core: ChangingCore, settings: Settings, security: Security) -> None:
        self._core = core
        self._waited_for: set[int] = set()
        """Members that had time to announce their keys."""
        if settings.encrypt:
            secrecy: Any = require("antecede.live.changing.secrecy", "live")
            core.secrecy = secrecy.Secrecy(core, settings.group, security, not settings.relay)

    @property
    def is_on(self) -> bool:
        return self._core.secrecy is not None

    # States

    def with_offer(self, snapshot: Snapshot | None) -> Snapshot | None:
        """The application's snapshot, if it has one, prefixed with the offer of keys for newcomers."""
        secrecy = self._core.secrecy
        if secrecy is None:
            return snapshot

        def take() -> bytes | SnapshotParts:
            state = snapshot() if snapshot is not None and secrecy.reads else None
            offer = secrecy.offer(state is not None)
            if state is None:
                return offer
            if isinstance(state, Iterator):
                return itertools.chain([offer], state)
            if isinstance(state, AsyncIterator):
                return _chain(offer, state)
            return offer + state

        return take

    def take_offer(self, state: bytes | Iterator[bytes] | None, now: int) -> bytes | Iterator[bytes] | None:
        """Take the contact's offer of the group's readers, and return the application's state."""
        if not self.is_on:
            return state
        if state is None:
            self._core.step(ReadingBegun(b"", True, now))
            return None
        try:
            offer, rest = _split(iter([state]) if isinstance(state, bytes) else state)
            has_state = decode_offer(offer).has_state
        except RemoteError as error:
            raise LocalError(f"this member cannot start from the state of its contact: {error}") from error
        self._core.step(ReadingBegun(offer, False, now))
        if not has_state:
            return None
        return b"".join(rest) if isinstance(state, bytes) else rest

    # Messages about keys

    def speak(self, now: Callable[[], int]) -> bool:
        """Broadcast pending messages about keys; returns whether there were any."""
        core, secrecy = self._core, self._core.secrecy
        if secrecy is None or core.phase != Phase.MEMBER or not core.is_started or core.brings_back:
            return False
        if (made := secrecy.new_key(now())) is not None:
            core.step(made)
        said = False
        for payload in (secrecy.announcement(now()), secrecy.departures(now()), secrecy.question(now())):
            said |= self._broadcast([payload] if payload is not None else [], now)
        return self._broadcast(secrecy.gifts(now()), now) or said

    async def wait(
        self, now: Callable[[], int], changed: Callable[[], Awaitable[None]], timeout: float | None
    ) -> None:
        """Give members that have just joined a moment to announce their keys. A member that does not do so
        receives this member's key later, if this member is still connected then."""
        core, secrecy = self._core, self._core.secrecy
        self.speak(now)
        if secrecy is None or not secrecy.has_keys or secrecy.silent <= self._waited_for:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE if timeout is None else min(timeout, _PATIENCE)):
                while not secrecy.silent <= self._waited_for:
                    # The awaited announcements are deliveries, so polling continues, perhaps within the
                    # handling of a message.
                    while core.is_started and core.poll(now()):
                        pass
                    self.speak(now)
                    await changed()
        self._waited_for = secrecy.silent

    def _broadcast(self, payloads: list[bytes], now: Callable[[], int]) -> bool:
        for payload in payloads:
            self._core.step(Broadcast([payload], now(), False))
        return bool(payloads)

    def report(self, problems: Problems, notify: Callable[[Any, str, str], None]) -> None:
        """Report messages that cannot be read."""
        secrecy = self._core.secrecy
        if secrecy is None:
            return
        for name, text in secrecy.problems.items():
            if problems.begin(("unreadable", name), "unreadable", name, text):
                notify("unreadable", name, text)
        for key in problems.keys("unreadable") - {("unreadable", name) for name in secrecy.problems}:
            problems.end(key)


def received_snapshot(core: ChangingCore) -> bytes | Iterator[bytes] | None:
    """The state that a new member's application starts with, as its contact sent it: as bytes, or in
    parts."""
    state = core.received_state
    if state is None:
        return core.snapshot
    if not state.transfer.digest:
        return None
    parts = read_parts(core.files, received_name(core.address, state.transfer.digest))
    return parts if state.transfer.is_stream else b"".join(parts)


async def _chain(first: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    async for part in rest:
        yield part


def _split(parts: Iterator[bytes]) -> tuple[bytes, Iterator[bytes]]:
    """Split off the contact's offer of readers from the state after it."""
    data = _at_least(OFFER_PREFIX, b"", parts)
    end = OFFER_PREFIX + offer_length(data[:OFFER_PREFIX])
    data = _at_least(end, data, parts)
    if len(data) < end:
        raise RemoteError("its state is truncated")
    return data[OFFER_PREFIX:end], itertools.chain([data[end:]] if data[end:] else [], parts)


def _at_least(length: int, data: bytes, parts: Iterable[bytes]) -> bytes:
    """The data, extended by parts until it has at least this length, if there are enough."""
    while len(data) < length:
        part = next(iter(parts), None)
        if part is None:
            break
        data += part
    return data
