"""What an application broadcasts, as bytes and back: bytes, text or any JSON value.

A body that would not round-trip is rejected: it is delivered equal to what was broadcast, with the same types
throughout, or it is not accepted. The check costs about as much as encoding: 0.4 µs for a small dict, 15 µs
for 40 values.

The envelope also carries what the application needs to know of a message and its protocol does not state: its
immediate dependencies, where packets do not name them, and whether its sender's previous message is one; the
broadcast time by its sender's clock; and what its sender's application says about the body (`headers.py`).
"""

from __future__ import annotations

import math
from typing import Any

import msgspec

from antecede.errors import InputError
from antecede.live.headers import NOTHING, About
from antecede.live.transport.frames import MAX_BYTES
from antecede.protocols.base import Delivery

Body = bytes | str | dict[str, Any] | list[Any] | int | float | bool | None
"""The types that a message may hold. Everything but bytes and text is JSON."""

_BYTES, _TEXT, _JSON, ADDRESSED, ENCRYPTED, KEYS = range(6)
"""Kinds of bodies. An addressed body is for some members only (`addressing.py`). In an encrypted group all
others are encrypted, or about keys (`changing/secret_messages.py`)."""
MAX_BODY_BYTES = MAX_BYTES // 2
PHONE_ORIGINS = 3 << 61
"""In dynamic groups, ids from here on are phones as origins (`site_packets.author_id`)."""
_MAX_DEPTH = 100
"""A receiver whose stack is already deep could not decode JSON that is nested deeper."""
_MAX_SHOWN = 40
"""Characters of a key in an error."""
_MAX_INTEGER_BITS = 2048
"""Longer integers need more digits than Python converts under its strictest setting (640)."""


class Envelope(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A message's payload, decoded."""

    kind: int
    after_own: bool
    """Whether its sender's previous message is an immediate dependency."""
    causes: dict[int, int] | None
    """The others by origin, where the protocol's packets do not name them."""
    body: bytes


class PhoneEnvelope(Envelope, frozen=True, array_like=True, gc=False):
    """An envelope with the name of the phone or the label of the member that has broadcast the message, in a
    dynamic group with phones: only its super peer knows a phone otherwise, and phones do not know the
    members.

    Without phones, only messages that a returning member brings back have it: others may never have known the
    incarnation that broadcast them first."""

    author: str = ""


class TimedEnvelope(PhoneEnvelope, frozen=True, array_like=True, gc=False):
    """A `PhoneEnvelope` with the time of the broadcast."""

    time: int = 0
    """In microseconds since 1970, so that a JavaScript client can represent it; 0 if its sender does not
    say."""


class FullEnvelope(TimedEnvelope, frozen=True, array_like=True, gc=False):
    """A `TimedEnvelope` with what the sender's application says about the body."""

    content_type: str = ""
    headers: dict[str, Any] | None = None
    """Text or bytes; values of other types are ignored."""


_AUTHOR = PhoneEnvelope.__struct_fields__.index("author")
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(FullEnvelope)


def wrap(
    body: Body,
    after_own: bool,
    causes: dict[int, int] | None,
    author: str = "",
    now: int = 0,
    about: About = NOTHING,
) -> bytes:
    """The payload of a message with this body, broadcast at `now`, in nanoseconds since 1970; `author` names
    its sender in a group with phones."""
    kind, data = (_BYTES, body) if type(body) is bytes else encode_body(body)
    if len(data) > MAX_BODY_BYTES:
        # No link could carry it, nor anything after it.
        raise InputError(f"body: {len(data):,} bytes; a message has {MAX_BODY_BYTES:,} at most")
    time = now // 1000
    if about.seal is not None:
        outer = ENCRYPTED if about.is_encrypted else ADDRESSED
        return _encoder.encode(TimedEnvelope(outer, after_own, causes, about.seal(kind, data), author, time))
    if about is not NOTHING:
        full = FullEnvelope(kind, after_own, causes, data, author, time, about.content_type, about.headers)
        return _encoder.encode(full)
    if time:
        return _encoder.encode(TimedEnvelope(kind, after_own, causes, data, author, time))
    if author:
        return _encoder.encode(PhoneEnvelope(kind, after_own, causes, data, author))
    return _encoder.encode(Envelope(kind, after_own, causes, data))


def with_author(payload: bytes, author: str) -> bytes:
    """The same payload with its author, unless it names one already. Fields of later versions are kept.

    >>> unwrap(with_author(wrap("hello", False, None), "dana~1f2e3d4c")).author
    'dana~1f2e3d4c'
    """
    try:
        envelope = _decoder.decode(payload)
        elements = msgspec.msgpack.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return payload  # not an envelope: the receiver takes it as bytes
    if envelope.author:
        return payload
    return _encoder.encode([*elements[:_AUTHOR], author, *elements[_AUTHOR + 1 :]])


def encode_body(body: Body) -> tuple[int, bytes]:
    """The kind of a body that is not bytes, and its bytes."""
    try:
        if type(body) is str:
            return _TEXT, body.encode()
        if _round_trips(body, _MAX_DEPTH):
            return _JSON, msgspec.json.encode(body)
    except UnicodeEncodeError:
        pass
    path, reason = _find_fault(body, "body", _MAX_DEPTH) or ("body", "it is no JSON value")
    raise InputError(f"{path}: {reason}")


def _round_trips(value: Any, depth: int) -> bool:
    """Whether a value round-trips through JSON with the same types; the encoder checks texts."""
    kind = type(value)
    if kind is dict or kind is list:
        if not depth:
            return False
        if kind is dict:
            for key in value:
                if type(key) is not str:
                    return False
            value = value.values()
        for each in value:
            kind = type(each)
            if kind is not str and kind is not bool and not _round_trips(each, depth - 1):
                return False
        return True
    if kind is int:
        return bool(value.bit_length() <= _MAX_INTEGER_BITS)
    if kind is float:
        return math.isfinite(value)
    return value is None or kind is bool or kind is str


def _find_fault(value: Any, path: str, depth: int) -> tuple[str, str] | None:
    """Why a body cannot be broadcast, and where in it."""
    kind = type(value)
    if kind is dict or kind is list:
        if not depth:
            return path.partition(".")[0].partition("[")[0], f"it is nested deeper than {_MAX_DEPTH} levels"
        for key, each in value.items() if kind is dict else enumerate(value):
            if kind is dict and type(key) is not str:
                return path, f"a key of type {type(key).__name__} would come back as text, or not at all"
            where = f"{path}[{key}]"
            if isinstance(key, str):
                short = key[:_MAX_SHOWN]
                where = f"{path}.{short}" if short.isidentifier() else f"{path}[{short!r}]"
                if _has_surrogates(key):
                    return where, "the key has half of a surrogate pair, which cannot be encoded"
            if fault := _find_fault(each, where, depth - 1):
                return fault
        return None
    if _round_trips(value, 0) and not (kind is str and _has_surrogates(value)):
        return None
    if kind is float:
        return path, f"{value} is no number of JSON, and would come back as None"
    if kind is int:
        return path, f"an integer of more than {_MAX_INTEGER_BITS} bits"
    if kind is str:
        return path, "the text has half of a surrogate pair, which cannot be encoded"
    name = kind.__name__
    if isinstance(value, bytes | bytearray | memoryview):
        return path, f"{name} inside JSON would come back as text; broadcast bytes alone, or encode them"
    return path, (
        f"a value of type {name} would come back as another type, or not at all; "
        "use text, numbers, booleans, None, lists and dicts"
    )


def _has_surrogates(text: str) -> bool:
    return any("\ud800" <= character <= "\udfff" for character in text)


def unwrap(payload: bytes) -> FullEnvelope:
    """The envelope in a payload; a payload that is not an envelope is taken as a body of bytes."""
    try:
        return _decoder.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return FullEnvelope(_BYTES, False, {}, payload)


def decode_body(envelope: Envelope) -> Body:
    """The body that the sender's application broadcast; the raw bytes if they do not match their kind."""
    try:
        if envelope.kind == _TEXT:
            return envelope.body.decode()
        if envelope.kind == _JSON:
            body: Body = msgspec.json.decode(envelope.body)
            return body
    except (UnicodeDecodeError, msgspec.DecodeError, RecursionError):
        pass
    return envelope.body


def body_in(payload: bytes) -> Body:
    """The body of a message, from its payload."""
    envelope = unwrap(payload)
    return envelope.body if envelope.kind == _BYTES else decode_body(envelope)


def origin_in(delivery: Delivery, names: Any) -> str:
    """The application's name for the origin of a message, given the names of members; a phone's message
    contains it.

    >>> from antecede.causality import MessageId
    >>> origin_in(Delivery(MessageId(PHONE_ORIGINS + 0x1F, 1), wrap(b"", False, None, "tom")), [])
    'tom~0000001f'
    """
    origin = delivery.message.origin
    if origin >= PHONE_ORIGINS:
        return f"{unwrap(delivery.payload).author}~{origin & 0xFFFF_FFFF:08x}"
    label: str = names[origin]
    # A phone knows no labels of members, and nobody knows that of a forgotten stream.
    return unwrap(delivery.payload).author or label if label.startswith("~") else label


def named_causes(delivery: Delivery, size: int) -> dict[int, int]:
    """A message's immediate dependencies by origin, except its sender's previous message."""
    return delivery.causes if delivery.causes is not None else causes_in(delivery.payload, size)


def causes_in(payload: bytes, size: int) -> dict[int, int]:
    """The same, as the sender has written them into the payload."""
    # Written by the sender's application, not by the protocol, so they are not validated yet.
    named = unwrap(payload).causes
    return {peer: seq for peer, seq in named.items() if 0 <= peer < size} if named else {}


def immediate_causes(delivery: Delivery, size: int) -> dict[int, int]:
    """A message's immediate dependencies by origin."""
    origin, seq = delivery.message
    named = named_causes(delivery, size)
    return {**named, origin: seq - 1} if seq > 1 and unwrap(delivery.payload).after_own else named
