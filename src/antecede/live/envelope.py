"""What an application sends, as bytes and back: bytes, text or anything that JSON can say.

An envelope also carries what the application is to know of a message and its protocol does not say: its
immediate dependencies, where packets do not name them, and whether its sender's own last message is one.
"""

from __future__ import annotations

from typing import Any

import msgspec

from antecede.errors import InputError
from antecede.live.transport.frames import MAX_BYTES

Body = bytes | str | dict[str, Any] | list[Any] | int | float | bool | None
"""What a message may hold. Everything but bytes and text is JSON."""

_BYTES, _TEXT, _JSON = range(3)
LONGEST_BODY = MAX_BYTES // 2


class Envelope(msgspec.Struct, frozen=True, array_like=True, gc=False):
    kind: int
    after_own: bool
    """Whether its sender's own last message is an immediate dependency."""
    causes: dict[int, int] | None
    """The others by origin, where the protocol's packets do not name them."""
    body: bytes


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Envelope)


def wrap(body: Body, after_own: bool, causes: dict[int, int] | None) -> bytes:
    """The payload for a message that says `body`."""
    kind, data = (_BYTES, body) if type(body) is bytes else _closed(body)
    if len(data) > LONGEST_BODY:
        # No link would carry it, and nothing after it either.
        raise InputError(f"body: {len(data):,} bytes; a message has {LONGEST_BODY:,} at most")
    return _encoder.encode(Envelope(kind, after_own, causes, data))


def _closed(body: Body) -> tuple[int, bytes]:
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
        raise InputError(f"body: bytes, text or what JSON can say; {error}") from error


def unwrap(payload: bytes) -> Envelope:
    """What a payload holds; one without an envelope is from a stranger to this code, and is bytes."""
    try:
        return _decoder.decode(payload)
    except (msgspec.DecodeError, RecursionError):
        return Envelope(_BYTES, False, {}, payload)


def opened(envelope: Envelope) -> Body:
    """What the sender's application said."""
    try:
        if envelope.kind == _TEXT:
            return envelope.body.decode()
        if envelope.kind == _JSON:
            said: Body = msgspec.json.decode(envelope.body)
            return said
    except (UnicodeDecodeError, msgspec.DecodeError, RecursionError):
        pass  # a sender that says one thing and does another: what came is still the message
    return envelope.body
