"""What an application broadcasts, as bytes and back: bytes, text or any JSON value.

The envelope also carries what the application is to know of a message and its protocol does not say: its
immediate dependencies, where packets do not name them, and whether its sender's previous message is one.
"""

from __future__ import annotations

from typing import Any

import msgspec

from antecede.errors import InputError
from antecede.live.transport.frames import MAX_BYTES
from antecede.protocols.base import Delivery

Body = bytes | str | dict[str, Any] | list[Any] | int | float | bool | None
"""What a message may hold. Everything but bytes and text is JSON."""

_BYTES, _TEXT, _JSON = range(3)
MAX_BODY_BYTES = MAX_BYTES // 2


class Envelope(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A message's payload, decoded."""

    kind: int
    after_own: bool
    """Whether its sender's previous message is an immediate dependency."""
    causes: dict[int, int] | None
    """The others by origin, where the protocol's packets do not name them."""
    body: bytes


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Envelope)


def wrap(body: Body, after_own: bool, causes: dict[int, int] | None) -> bytes:
    """The payload of a message with this body."""
    kind, data = (_BYTES, body) if type(body) is bytes else _encode_body(body)
    if len(data) > MAX_BODY_BYTES:
        # No link would carry it, nor anything after it.
        raise InputError(f"body: {len(data):,} bytes; a message has {MAX_BODY_BYTES:,} at most")
    return _encoder.encode(Envelope(kind, after_own, causes, data))


def _encode_body(body: Body) -> tuple[int, bytes]:
    if isinstance(body, bytes | bytearray | memoryview):
        return _BYTES, bytes(body)
    if isinstance(body, str):
        try:
            return _TEXT, body.encode()
        except UnicodeEncodeError as error:
            raise InputError(f"body: {error}") from error
    try:
        return _JSON, msgspec.json.encode(body)
    except (TypeError, ValueError, OverflowError, msgspec.MsgspecError, RecursionError) as error:
        raise InputError(f"body: it must be bytes, text or a JSON value; {error}") from error


def unwrap(payload: bytes) -> Envelope:
    """The envelope in a payload; a payload that is no envelope is taken as a body of bytes."""
    try:
        return _decoder.decode(payload)
    except (msgspec.DecodeError, RecursionError):
        return Envelope(_BYTES, False, {}, payload)


def decode_body(envelope: Envelope) -> Body:
    """What the sender's application broadcast; its bytes if they are not of the kind that they claim to
    be."""
    try:
        if envelope.kind == _TEXT:
            return envelope.body.decode()
        if envelope.kind == _JSON:
            body: Body = msgspec.json.decode(envelope.body)
            return body
    except (UnicodeDecodeError, msgspec.DecodeError, RecursionError):
        pass
    return envelope.body


def named_causes(delivery: Delivery, size: int) -> dict[int, int]:
    """A message's immediate dependencies by origin, its sender's previous message aside."""
    if delivery.causes is not None:
        return delivery.causes
    # Named by the sender's application, not by the protocol: nobody has validated them.
    named = unwrap(delivery.payload).causes or {}
    return {peer: seq for peer, seq in named.items() if 0 <= peer < size}


def immediate_causes(delivery: Delivery, size: int) -> dict[int, int]:
    """A message's immediate dependencies by origin."""
    origin, seq = delivery.message
    named = named_causes(delivery, size)
    return {**named, origin: seq - 1} if seq > 1 and unwrap(delivery.payload).after_own else named
