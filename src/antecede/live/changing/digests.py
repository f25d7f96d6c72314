"""How members of a dynamic group detect that they hold different messages under one id.

Each member sends one other member, in turn, the chain value of the last message that it has of each stream,
as of one interval ago, so that the receiver has the message too. Chain values cover everything before: if two
members have ever accepted different messages, their values differ from there on, or the origin has
contradicted itself within what a single member has. A member that sees a different value sends what the
origin has signed; a member that has another statement on that message has the proof, and sends it to all.

This costs one frame a second, of some 25 bytes for each stream with new messages. It is not logged, and
changes only the set of known liars.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

import msgspec

from antecede.live.seals import Statement
from antecede.live.transport.frames import Evidence
from antecede.membership.packets import Stream
from antecede.membership.state import Phase
from antecede.protocols.base import RemoteError

if TYPE_CHECKING:
    from antecede.live.changing.core import ChangingCore

INTERVAL = 1.0
"""Seconds between two frames of digests."""
_DIGEST_BYTES = 8
_MAX_DIGESTS = 10_000
Digests = dict[Stream, tuple[int, bytes]]


class StreamDigests(msgspec.Struct, frozen=True, array_like=True, tag=61):
    """By stream: the sequence number of a message, and the beginning of its chain value."""

    digests: Digests


class DigestExchange:
    """The digests that one process sends and compares. Times are seconds of a monotonic clock."""

    def __init__(self, core: ChangingCore) -> None:
        self._core = core
        self._before: Digests = {}
        """The digests of one interval ago."""
        self._sent: dict[int, Digests] = {}
        """By link: the digests sent on the present connection."""
        self._shown: dict[int, set[Stream]] = {}
        """By link: the streams whose proof was sent since its last turn."""
        self._due_at = 0.0
        self._turn = 0

    def open(self, link: int) -> None:
        """A connection is established."""
        self._sent[link], self._shown[link] = {}, set()

    def close(self, link: int) -> None:
        self._sent.pop(link, None)
        self._shown.pop(link, None)

    def due(self, now: float, links: Collection[int]) -> list[tuple[int, StreamDigests | Evidence]]:
        """What to send now to members on these links, which are connected."""
        core = self._core
        if not core.sealing.is_on or core.phase != Phase.MEMBER:
            return []
        frames: list[tuple[int, StreamDigests | Evidence]] = []
        if now >= self._due_at:
            self._due_at = now + INTERVAL
            before, self._before = self._before, self._current()
            if links:
                self._turn += 1
                link = sorted(links)[self._turn % len(links)]
                self._shown[link] = set()  # it may not have known the stream at the time
                sent = self._sent.setdefault(link, {})
                new = {stream: each for stream, each in before.items() if sent.get(stream) != each}
                self._sent[link] = before
                if new:
                    frames.append((link, StreamDigests(dict(list(new.items())[:_MAX_DIGESTS]))))
        for link in links:
            shown = self._shown.setdefault(link, set())
            for stream in core.sealing.liars.keys() - shown:
                shown.add(stream)
                frames.append((link, Evidence(stream, core.sealing.liars[stream])))
        return frames

    def _current(self) -> Digests:
        """Excludes this process's own streams: a crash may undo what is not durable."""
        own = {member.stream for member in self._core.members.values()}
        return {
            stream: (each.last, each.value[:_DIGEST_BYTES])
            for stream, each in self._core.sealing.latest.items()
            if stream not in own
        }

    def compare(self, link: int, frame: StreamDigests) -> list[Evidence]:
        """Compare another member's digests; returns the evidence to send it."""
        if len(frame.digests) > _MAX_DIGESTS:
            raise RemoteError(f"{len(frame.digests)} digests; {_MAX_DIGESTS} at most")
        if not self._core.sealing.is_on:
            raise RemoteError("it sends digests, and nothing is signed here")
        return [
            Evidence(stream, [mine])
            for stream, (seq, value) in frame.digests.items()
            if (mine := self._differing(stream, seq, value)) is not None
        ]

    def _differing(self, stream: Stream, seq: int, value: bytes) -> Statement | None:
        if stream not in self._core.sealing.latest or stream in self._core.sealing.liars:
            return None
        mine = self._core.sealing.find(stream, seq)
        return mine if mine is not None and mine.value[:_DIGEST_BYTES] != value else None
