"""What an application broadcasts, as bytes and back: bytes, text or any JSON value.

What would come back as something else is refused: a body is delivered equal to what was broadcast, with the
same types throughout, or it is not accepted. Checking that costs about as much as encoding: 0.4 µs for a
small dict, 15 µs for 40 values.

The envelope also carries what the application is to know of a message and its protocol does not say: its
immediate dependencies, where packets do not name them, and whether its sender's previous message is one; when
it was broadcast, by its sender's clock; and what its sender's application says about the body (`headers.py`).
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
"""What a message may hold. Everything but bytes and text is JSON."""

_BYTES, _TEXT, _JSON, ADDRESSED, ENCRYPTED, KEYS = range(6)
"""Kinds of bodies. One that is addressed is only for some members (`addressing.py`). In an encrypted group
all others are encrypted, or about keys (`changing/secret_messages.py`)."""
MAX_BODY_BYTES = MAX_BYTES // 2
PHONE_ORIGINS = 3 << 61
"""In groups that change, phones are origins from here on (`site_packets.author_id`)."""
_MAX_DEPTH = 100
"""Deeper JSON might not be decoded where the receiver's stack is deep already."""
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
    """The same with the name of the phone that has broadcast it, or the label of the member, in a group that
    changes and has phones: nobody but its super peer knows a phone otherwise, and phones know no members.

    Without phones, only what a returning member brings back has it: others may never have heard of the
    incarnation that broadcast it first."""

    author: str = ""


class TimedEnvelope(PhoneEnvelope, frozen=True, array_like=True, gc=False):
    """The same with the time of the broadcast."""

    time: int = 0
    """In microseconds since 1970, so that a JavaScript client can hold it; 0 if its sender does not say."""


class FullEnvelope(TimedEnvelope, frozen=True, array_like=True, gc=False):
    """The same with what the sender's application says about the body."""

    content_type: str = ""
    headers: dict[str, Any] | None = None
    """Text or bytes; what others send as something else is ignored."""


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
    """The payload of a message with this body, broadcast at `now`, in nanoseconds since 1970; `author` is who
    broadcasts it, in a group with phones."""
    kind, data = (_BYTES, body) if type(body) is bytes else encode_body(body)
    if len(data) > MAX_BODY_BYTES:
        # No link would carry it, nor anything after it.
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
    """The same payload, saying who has broadcast it unless it does. What later versions have added is kept.

    >>> unwrap(with_author(wrap("hello", False, None), "dana~1f2e3d4c")).author
    'dana~1f2e3d4c'
    """
    try:
        envelope = _decoder.decode(payload)
        elements = msgspec.msgpack.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return payload  # no envelope: whoever is given it takes it as bytes
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
    """Whether a value comes back from JSON equal and with the same types; texts aside, which the encoder
    checks."""
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
    """Where a body cannot be broadcast, and why."""
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
    """The envelope in a payload; a payload that is no envelope is taken as a body of bytes."""
    try:
        return _decoder.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return FullEnvelope(_BYTES, False, {}, payload)


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


def body_in(payload: bytes) -> Body:
    """What the sender's application broadcast, from a payload."""
    envelope = unwrap(payload)
    return envelope.body if envelope.kind == _BYTES else decode_body(envelope)


def origin_in(delivery: Delivery, names: Any) -> str:
    """What applications call the origin of a message, by the names of members; a phone's message says it.

    >>> from antecede.causality import MessageId
    >>> origin_in(Delivery(MessageId(PHONE_ORIGINS + 0x1F, 1), wrap(b"", False, None, "tom")), [])
    'tom~0000001f'
    """
    origin = delivery.message.origin
    if origin >= PHONE_ORIGINS:
        return f"{unwrap(delivery.payload).author}~{origin & 0xFFFF_FFFF:08x}"
    label: str = names[origin]
    # A phone knows no labels of members, and of a stream that is forgotten nobody does.
    return unwrap(delivery.payload).author or label if label.startswith("~") else label


def named_causes(delivery: Delivery, size: int) -> dict[int, int]:
    """A message's immediate dependencies by origin, its sender's previous message aside."""
    return delivery.causes if delivery.causes is not None else causes_in(delivery.payload, size)


def causes_in(payload: bytes, size: int) -> dict[int, int]:
    """The same, as the sender has written them into the payload."""
    # Named by the sender's application, not by the protocol: nobody has validated them.
    named = unwrap(payload).causes
    return {peer: seq for peer, seq in named.items() if 0 <= peer < size} if named else {}


def immediate_causes(delivery: Delivery, size: int) -> dict[int, int]:
    """A message's immediate dependencies by origin."""
    origin, seq = delivery.message
    named = named_causes(delivery, size)
    return {**named, origin: seq - 1} if seq > 1 and unwrap(delivery.payload).after_own else named
