"""Seals: each message is signed at its origin, so relays and repairs are authenticated end to end.

In a group with signatures every payload ends with a *seal*. Messages that travel in one packet share a
signature: the seal of the last one contains it, and those of the others are empty. The signature covers a
`Statement`: the messages from `first` to `last` of an origin lead from one chain value to another. So a
packet proves itself, whichever member supplies it, and whatever preceded it.

An honest member signs each of its messages once. Two different statements about the same message are
therefore proof of *equivocation*, whatever ranges they cover: anybody can verify it, and nobody can fake it.

Cost: one signature for each packet broadcast, one verification for each packet received (Ed25519: about 40
and 110 µs), and 97 bytes a packet. The last 256 statements of each origin are remembered.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from typing import NamedTuple, Protocol

import msgspec

from antecede.protocols.base import RemoteError
from antecede.protocols.limits import MAX_BATCH_MESSAGES

CHAIN_BYTES = 32
_SIGNATURE_BYTES = 64
_EMPTY, _SIGNED = b"\0", b"\1"
_SEAL_BYTES = CHAIN_BYTES + _SIGNATURE_BYTES + 1
_MAX_STATEMENTS = 256
MAX_EVIDENCE = 32
"""Statements in one frame of evidence: each may have to be verified."""
_MESSAGES, _PROGRESS = b"antecede messages", b"antecede progress"
_encode = msgspec.msgpack.Encoder().encode


class Signatures(Protocol):
    """Signs for one member, and verifies for all; implemented in `security/signing.py`."""

    def sign(self, statement: bytes) -> bytes: ...

    def signer(self, member: int, statement: bytes, signature: bytes) -> bytes | None:
        """The member's key that has made this signature; None if none of the known ones has."""

    def is_revoked(self, member: int, key: bytes) -> bool:
        """Whether a key of the member was revoked, since somebody else may have it."""

    def check_partner(self, member: int, certificates: list[bytes]) -> None:
        """Raise if a partner shows certificates of its own, and none of them is currently valid."""
        ...

    def learn(self, certificate: bytes, trusted: bool = False) -> bool:
        """A certificate has arrived; returns whether it is new. Raises a `RemoteError` if it is invalid.

        A `trusted` one was verified before a restart. It may have expired since, or have been revoked, but
        messages signed with it must still be forwarded.
        """

    @property
    def certificates(self) -> list[bytes]:
        """All known certificates, in the order in which they were learned; empty where one was forgotten."""


class Statement(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An origin's signed statement on some of its messages."""

    first: int
    last: int
    previous: bytes
    """The chain value of the message before `first`."""
    value: bytes
    """The chain value of `last`."""
    signature: bytes


class EquivocationError(RemoteError):
    """A member has signed two statements that cannot both be true."""

    def __init__(self, origin: int, statements: tuple[Statement, Statement]) -> None:
        super().__init__(f"member {origin} has sent different messages under the same ids")
        self.origin, self.statements = origin, statements


class RevokedKeyError(RemoteError):
    """A message was signed with a revoked key, after its member had begun to use another one."""


class KeyStart(NamedTuple):
    """A member has signed with this key only messages after this number."""

    member: int
    key: bytes
    after: int


def contradict(one: Statement, other: Statement) -> bool:
    """Whether no honest member could have signed both.

    Chain values are known only where a statement begins and ends. But each message is signed once, so of an
    honest member two overlapping statements are equal, and a statement that begins where another ends begins
    with its value.
    """
    before, after = sorted((one, other), key=lambda statement: statement.first)
    if before.last >= after.first:
        return _content_of_statement(one) != _content_of_statement(other)
    return before.last + 1 == after.first and before.value != after.previous


def chain_value(previous: bytes, content: bytes) -> bytes:
    """The chain value of a message: a hash of the origin's messages up to it."""
    return sha256(previous + content).digest()


def content_of(payload: bytes) -> bytes:
    """A payload without its seal."""
    return payload[:-_SEAL_BYTES] if payload[-1:] == _SIGNED else payload[:-1]


def read_statement(origin: int, first: int, payloads: Sequence[bytes]) -> Statement:
    """The statement that an origin claims to have signed on these messages, which arrived in one packet."""
    seal = payloads[-1][-_SEAL_BYTES:]
    if len(seal) < _SEAL_BYTES or seal[-1:] != _SIGNED or any(p[-1:] != _EMPTY for p in payloads[:-1]):
        raise RemoteError(f"messages of member {origin} without its signature")
    previous, signature = seal[:CHAIN_BYTES], seal[CHAIN_BYTES:-1]
    value = previous
    for payload in payloads:
        value = chain_value(value, content_of(payload))
    return Statement(first, first + len(payloads) - 1, previous, value, signature)


class Seals:
    """Seals one member's messages, and verifies those of the others."""

    def __init__(self, signatures: Signatures) -> None:
        self._signatures = signatures
        self._by_first: defaultdict[int, dict[int, Statement]] = defaultdict(dict)
        """The last statements of each origin, by first message, the oldest first."""
        self._firsts: defaultdict[int, list[int]] = defaultdict(list)
        """Their first messages, in ascending order."""
        self.key_starts: dict[tuple[int, bytes], KeyStart] = {}
        self.unlogged: list[KeyStart] = []
        """Those of them that are not logged yet."""

    # Messages

    def seal(
        self, me: int, first: int, contents: Sequence[bytes], previous: bytes, in_one_packet: bool
    ) -> list[bytes]:
        """The sealed payloads of messages that were broadcast in a row."""
        payloads: list[bytes] = []
        start, value = first, previous
        for seq, content in enumerate(contents, first):
            value = chain_value(value, content)
            if in_one_packet and seq < first + len(contents) - 1:
                payloads.append(content + _EMPTY)
                continue
            signature = self.sign(me, start, seq, previous, value).signature
            payloads.append(content + previous + signature + _SIGNED)
            start, previous = seq + 1, value
        return payloads

    def sign(self, me: int, first: int, last: int, previous: bytes, value: bytes) -> Statement:
        """This member's statement on some of its messages."""
        signature = self._signatures.sign(_message_statement(me, first, last, previous, value))
        statement = Statement(first, last, previous, value, signature)
        self._remember(me, statement)
        return statement

    def verify(self, origin: int, first: int, payloads: Sequence[bytes], trusted: bool = False) -> None:
        """Raise a `RemoteError` unless the origin has signed these messages, which arrived in one packet.

        `trusted` messages were verified before a restart.
        """
        statement = read_statement(origin, first, payloads)
        if self.knows(origin, statement):
            return  # it arrived on another path before
        if not trusted:
            self.verify_statement(origin, statement)
        self.add(origin, statement)

    def knows(self, origin: int, statement: Statement) -> bool:
        """Whether a statement is remembered: then it was verified before."""
        return self._by_first[origin].get(statement.first) == statement

    def is_signed(self, origin: int, statement: Statement) -> bool:
        """Whether an origin has signed a statement, with any of its keys."""
        signed = _signed_part(origin, statement)
        return self._signatures.signer(origin, signed, statement.signature) is not None

    def verify_statement(self, origin: int, statement: Statement) -> None:
        if not 1 <= statement.first <= statement.last < statement.first + MAX_BATCH_MESSAGES:
            raise RemoteError(f"a statement on messages {statement.first} to {statement.last}")
        signed = _signed_part(origin, statement)
        key = self._signatures.signer(origin, signed, statement.signature)
        if key is None:
            raise RemoteError(f"messages of member {origin} with a signature that is not its own")
        self._check_key(origin, key, statement)

    # Replaced keys

    def _check_key(self, member: int, key: bytes, statement: Statement) -> None:
        """Raise if a key was revoked, and the member has signed an earlier message with a valid key: members
        use their keys one after the other, so somebody else must have signed this."""
        if self._signatures.is_revoked(member, key):
            starts = [start for start in self.key_starts.values() if start.member == member]
            valid = [start.after for start in starts if not self._signatures.is_revoked(member, start.key)]
            if valid and statement.last > min(valid):
                raise RevokedKeyError(
                    f"message {statement.last} of member {member} is signed with a revoked key"
                )
            return
        known = self.key_starts.get((member, key))
        if known is None or statement.first <= known.after:
            self.record_key_start(start := KeyStart(member, key, statement.first - 1))
            self.unlogged.append(start)

    def record_key_start(self, start: KeyStart) -> None:
        self.key_starts[start.member, start.key] = start

    def _is_by_revoked_key(self, origin: int, statement: Statement) -> bool:
        try:
            key = self._signatures.signer(origin, _signed_part(origin, statement), statement.signature)
        except RemoteError:
            return False  # its certificate is not known yet
        return key is not None and self._signatures.is_revoked(origin, key)

    # Equivocation

    def add(self, origin: int, statement: Statement) -> None:
        """Remember a statement; an `EquivocationError` if it contradicts another one."""
        if self.compare(origin, statement, self._near(origin, statement.first, statement.last)):
            self._remember(origin, statement)

    def compare(self, origin: int, statement: Statement, others: Iterable[Statement]) -> bool:
        """Whether a statement agrees with others; an `EquivocationError` if they prove that the origin has
        equivocated.

        A signature by a revoked key proves nothing: somebody else may have made it.
        """
        for other in others:
            if contradict(other, statement):
                if any(self._is_by_revoked_key(origin, each) for each in (other, statement)):
                    return False
                raise EquivocationError(origin, (other, statement))
        return True

    def _near(self, origin: int, first: int, last: int) -> Iterator[Statement]:
        """The remembered statements on messages from just before the first to just after the last."""
        by_first, firsts = self._by_first[origin], self._firsts[origin]
        for place in range(bisect_right(firsts, last + 1) - 1, -1, -1):
            statement = by_first[firsts[place]]
            if statement.last < first - 1:
                return
            yield statement

    def _remember(self, origin: int, statement: Statement) -> None:
        by_first, firsts = self._by_first[origin], self._firsts[origin]
        if statement.first not in by_first:
            insort(firsts, statement.first)
        by_first[statement.first] = statement
        if len(by_first) > _MAX_STATEMENTS:
            oldest = next(iter(by_first))
            del by_first[oldest], firsts[bisect_left(firsts, oldest)]

    def forget(self, origin: int) -> None:
        """No more messages of an origin will arrive."""
        self._by_first.pop(origin, None)
        self._firsts.pop(origin, None)
        self.key_starts = {key: start for key, start in self.key_starts.items() if start.member != origin}

    def find(self, origin: int, seq: int) -> Statement | None:
        """The remembered statement on one message."""
        return next((each for each in self._near(origin, seq, seq) if each.first <= seq <= each.last), None)

    def statements(self, origin: int) -> list[Statement]:
        """The last statements that this member has received of an origin: evidence for others."""
        return list(self._by_first[origin].values())

    def evidence(self, origin: int, differing: int) -> list[Statement]:
        """Evidence for a member that differs from this one at message `differing` of an origin: the last
        statements up to there, which that member has in another form, or else the next ones."""
        known = sorted(self.statements(origin), key=lambda statement: statement.first)
        end = max(sum(statement.first <= differing for statement in known), MAX_EVIDENCE)
        return known[max(0, end - MAX_EVIDENCE) : end]

    def examine(self, origin: int, statements: Sequence[Statement]) -> None:
        """Another member's evidence; an `EquivocationError` if it contradicts itself or this member's."""
        if len(statements) > MAX_EVIDENCE:
            raise RemoteError(f"{len(statements)} statements; {MAX_EVIDENCE} at most")
        for statement in statements:
            if not self.knows(origin, statement):
                try:
                    self.verify_statement(origin, statement)
                except RevokedKeyError:
                    continue  # the partner may not know of the revocation
                self.add(origin, statement)

    # Progress

    def sign_progress(self, member: int, counts: dict[int, tuple[int, bytes]]) -> bytes:
        return self._signatures.sign(_progress_statement(member, counts))

    def verify_progress(self, member: int, counts: dict[int, tuple[int, bytes]], signature: bytes) -> bool:
        """Whether a report counts: the member must have signed it, with a key that is not revoked."""
        key = self._signatures.signer(member, _progress_statement(member, counts), signature)
        if key is None:
            raise RemoteError(f"it reports progress of member {member} that this one has not signed")
        return not self._signatures.is_revoked(member, key)


def _message_statement(origin: int, first: int, last: int, previous: bytes, value: bytes) -> bytes:
    return _encode((_MESSAGES, origin, first, last, previous, value))


def _signed_part(origin: int, statement: Statement) -> bytes:
    return _message_statement(origin, statement.first, statement.last, statement.previous, statement.value)


def _progress_statement(member: int, counts: dict[int, tuple[int, bytes]]) -> bytes:
    return _encode((_PROGRESS, member, sorted((origin, *reported) for origin, reported in counts.items())))


def _content_of_statement(statement: Statement) -> tuple[int, int, bytes, bytes]:
    return statement.first, statement.last, statement.previous, statement.value
