"""Messages for some members: `send(body, to=[...])`.

Such a message takes part in everything like any other: packets, order, stability, repair, removals. Its body
says for whom it is; only their applications are given it. In a group with keys what they are given is
encrypted for them, so whoever passes it on or retains it cannot read it. Decision 32 says why it travels to
everybody.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from antecede.errors import require
from antecede.live.envelope import ADDRESSED, FullEnvelope, unwrap
from antecede.live.headers import About
from antecede.live.security.identity import Security
from antecede.protocols.base import Delivery, LocalError

_KIND = bytes([ADDRESSED])


class Addressed(msgspec.Struct, frozen=True, array_like=True):
    """The body of an envelope that is for some members."""

    to: list[str]
    """Their labels."""
    content: bytes
    """An `AddressedContent`, encoded; in a group with keys, a `SealedBox` with it."""
    is_sealed: bool
    sender: str
    """The label of its origin, which may be forgotten before the message is read."""


class AddressedContent(msgspec.Struct, frozen=True, array_like=True):
    """What is for them: the rest of the envelope."""

    kind: int
    body: bytes
    content_type: str = ""
    headers: dict[str, Any] | None = None


_decoder = msgspec.msgpack.Decoder(Addressed)
_content_decoder = msgspec.msgpack.Decoder(AddressedContent)
_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def is_for(payload: bytes, names: Iterable[str]) -> bool:
    """Whether a message is for a member that is called so. That it is for everybody is seen at one byte."""
    if payload[1:2] != _KIND:
        return True
    addressed = _read(unwrap(payload))
    return addressed is None or not set(addressed.to).isdisjoint(names)


def _read(envelope: FullEnvelope) -> Addressed | None:
    """What is in an envelope that is for some; None if that is no such thing, and so a body of bytes."""
    if envelope.kind != ADDRESSED:
        return None
    try:
        return _decoder.decode(envelope.body)
    except _ERRORS:
        return None


class Addressing:
    """Addresses the messages of one member, and opens those that are for it. `signatures` has the keys of
    members, by name; None if the group has none. `called` says what this member is called now, its label
    first."""

    def __init__(
        self, group: str, security: Security, signatures: Any, called: Callable[[], tuple[str, ...]]
    ) -> None:
        self._group, self._security, self._signatures, self._called = group, security, signatures, called
        self._boxes: Any = None
        self.decrypt: Callable[[Delivery], Delivery] | None = None
        """In a group that is encrypted from end to end: what all members may read."""
        if signatures is not None:
            self._boxes = require("antecede.live.security.sealed_boxes", "live")

    def address(self, about: About, to: Sequence[str]) -> About:
        """The same for members with these labels. This one can read it, too."""
        if self._signatures is None and self._security.is_on:
            raise LocalError(
                "send: it needs keys with which members sign, so no phone here, nor sign = false"
            )

        def seal(kind: int, body: bytes) -> bytes:
            # Called when the message gets its number, for only then is it sure who sends it.
            return self._wrap(AddressedContent(kind, body, about.content_type, about.headers), list(to))

        return msgspec.structs.replace(about, seal=seal)

    def _wrap(self, inner: AddressedContent, to: list[str]) -> bytes:
        content = msgspec.msgpack.encode(inner)
        sender = self._called()[0]
        if self._signatures is not None:
            keys = [self._key_of(label) for label in (*to, sender)]
            content = msgspec.msgpack.encode(self._boxes.seal(content, keys, self._context(sender, to)))
        return msgspec.msgpack.encode(Addressed(to, content, self._signatures is not None, sender))

    def _key_of(self, label: str) -> bytes:
        key = self._signatures.newest_key(label.partition("~")[0])
        if key is None:
            raise LocalError(
                f"send: no signing certificate of {label} that is not revoked is known here; "
                "nothing was broadcast"
            )
        return bytes(key)

    def _context(self, sender: str, to: list[str]) -> bytes:
        """Who has sent it to whom, so that nobody can send it on as its own, or to others."""
        return msgspec.msgpack.encode([self._group, sender, to])

    def open(self, delivery: Delivery, sender: str) -> Delivery:
        """The same as if it were for everybody; as it is if it cannot be read here. `sender` is the label of
        its origin, or begins with ~ if that is forgotten."""
        if self.decrypt is not None:
            delivery = self.decrypt(delivery)
        if delivery.payload[1:2] != _KIND:
            return delivery
        envelope = unwrap(delivery.payload)
        addressed = _read(envelope)
        if addressed is None or (addressed.sender != sender and not sender.startswith("~")):
            return delivery
        content = self._content(addressed)
        if content is None:
            return delivery
        try:
            inner = _content_decoder.decode(content)
        except _ERRORS:
            return delivery
        opened = FullEnvelope(
            inner.kind,
            envelope.after_own,
            envelope.causes,
            inner.body,
            envelope.author,
            envelope.time,
            inner.content_type,
            inner.headers,
        )
        return Delivery(delivery.message, msgspec.msgpack.encode(opened), delivery.causes)

    def _content(self, addressed: Addressed) -> bytes | None:
        if not addressed.is_sealed:
            return addressed.content
        if self._signatures is None:
            return None
        try:
            box = msgspec.msgpack.decode(addressed.content, type=self._boxes.SealedBox)
        except _ERRORS:
            return None
        called = self._called()
        position = next((n for n, each in enumerate(addressed.to) if each in called), len(addressed.to))
        context = self._context(addressed.sender, addressed.to)
        found: bytes | None = self._boxes.open_box(box, position, self._security.signing_key, context)
        return found
