"""How members of a group that changes notice that they have different messages under one id.

Each member tells one other, in turn, the chain value of the last message that it has of each stream, as it
was a while ago, so that the other has it too. Chain values cover all that came before: if two members have
ever accepted different messages, their values differ from there on, or the origin has contradicted itself in
what a single member has. Who finds that a value differs shows what the origin has signed; who has another
statement on that message has the proof, and shows it to all.

It costs one frame a second, of some 25 bytes for each stream of which there is something new. It is no part
of the log, and changes nothing but what is known of liars.
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
    """By stream: the number of a message, and the beginning of its chain value."""

    digests: Digests


class DigestExchange:
    """What one process tells others, and compares. Times are seconds of a monotonic clock."""

    def __init__(self, core: ChangingCore) -> None:
        self._core = core
        self._before: Digests = {}
        """As it was one interval ago."""
        self._sent: dict[int, Digests] = {}
        """By link, on the present connection."""
        self._shown: dict[int, set[Stream]] = {}
        """By link, the streams of which the proof was shown since its last turn."""
        self._due_at = 0.0
        self._turn = 0

    def open(self, link: int) -> None:
        """A connection begins."""
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
                self._shown[link] = set()  # it may not have known the stream when it was shown
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
        """Not of this process's own streams: what is not durable may be undone by a crash."""
        own = {member.stream for member in self._core.members.values()}
        return {
            stream: (each.last, each.value[:_DIGEST_BYTES])
            for stream, each in self._core.sealing.latest.items()
            if stream not in own
        }

    def compare(self, link: int, frame: StreamDigests) -> list[Evidence]:
        """What a member has; what to show it."""
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
