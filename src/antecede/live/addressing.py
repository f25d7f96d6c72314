"""Messages addressed to some members only: `send(body, to=[...])`.

Such a message is broadcast, ordered, repaired and made stable like any other, and takes part in removals. Its
body lists the recipients, and only their applications receive it. In a group with keys the content is
encrypted for the recipients, so members that forward or store the message cannot read it. Decision 32
explains why it is sent to every member.
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
    """The body of an envelope that is addressed to some members only."""

    to: list[str]
    """Their labels."""
    content: bytes
    """An encoded `AddressedContent`; in a group with keys, a `SealedBox` that contains it."""
    is_sealed: bool
    sender: str
    """The label of the origin, which may have been forgotten by the time the message is read."""


class AddressedContent(msgspec.Struct, frozen=True, array_like=True):
    """The part that only the recipients read: the rest of the envelope."""

    kind: int
    body: bytes
    content_type: str = ""
    headers: dict[str, Any] | None = None


_decoder = msgspec.msgpack.Decoder(Addressed)
_content_decoder = msgspec.msgpack.Decoder(AddressedContent)
_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def is_for(payload: bytes, names: Iterable[str]) -> bool:
    """Whether a message is addressed to one of `names`. One byte identifies messages to everybody."""
    if payload[1:2] != _KIND:
        return True
    addressed = _read(unwrap(payload))
    return addressed is None or not set(addressed.to).isdisjoint(names)


def _read(envelope: FullEnvelope) -> Addressed | None:
    """The addressed content of an envelope; None if it has none, because the body is plain bytes."""
    if envelope.kind != ADDRESSED:
        return None
    try:
        return _decoder.decode(envelope.body)
    except _ERRORS:
        return None


class Addressing:
    """Addresses the messages of one member, and opens those addressed to it. `signatures` has the members'
    keys by name; None if the group has no keys. `called` returns the current names of this member, its label
    first."""

    def __init__(
        self, group: str, security: Security, signatures: Any, called: Callable[[], tuple[str, ...]]
    ) -> None:
        self._group, self._security, self._signatures, self._called = group, security, signatures, called
        self._boxes: Any = None
        self.decrypt: Callable[[Delivery], Delivery] | None = None
        """In a group that is encrypted end to end: the part that all members may read."""
        if signatures is not None:
            self._boxes = require("antecede.live.security.sealed_boxes", "live")

    def address(self, about: About, to: Sequence[str]) -> About:
        """The same metadata, addressed to the members with these labels. The sender can read the message,
        too."""
        if self._signatures is None and self._security.is_on:
            raise LocalError(
                "send: it needs keys with which members sign, so no phone here, nor sign = false"
            )

        def seal(kind: int, body: bytes) -> bytes:
            # Called when the message gets its number: only then is its sender certain.
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
        """Binds the box to its sender and recipients, so that nobody can replay it as their own or to
        others."""
        return msgspec.msgpack.encode([self._group, sender, to])

    def open(self, delivery: Delivery, sender: str) -> Delivery:
        """The delivery as if it were addressed to everybody; unchanged if this member cannot read it.
        `sender` is the label of its origin; it begins with ~ if the origin has been forgotten."""
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
