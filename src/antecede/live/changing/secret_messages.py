"""What readers of an encrypted group send each other, and what they remember of it.

All of it travels in the bodies of ordinary messages, so it is causally ordered with them, and as durable and
repairable as they are.
"""

from __future__ import annotations

import hmac
import itertools
from collections.abc import Iterable
from typing import Any

import msgspec

from antecede.causality import MessageId
from antecede.live.envelope import ENCRYPTED, KEYS, FullEnvelope, unwrap
from antecede.protocols.base import Delivery, RemoteError

ReaderId = bytes
"""A hash of a reader's public keys."""
EpochId = bytes
"""A hash of the beginning of a sender's chain."""
MAX_INDEX = 4_096
"""Maximum number of messages under one chain. It bounds the cost of reaching the end of a chain that a
malicious member names."""
MAX_WANTED = 64
"""Maximum number of epochs in one request for keys."""
MAX_READERS = 4_096
"""Maximum number of readers in a group."""
ID_BYTES, KEY_BYTES, SIGNATURE_BYTES = 16, 32, 64
_WRAPPED_BYTES = KEY_BYTES + 16
_MAX_CERTIFICATE = 4_096
_MAX_GIFT = 1 << 22


class ChainLink(msgspec.Struct, frozen=True, array_like=True):
    """A link of a sender's chain: decrypts the message with this index and all later ones.

    >>> ChainLink(0, bytes(32)).at(2) == ChainLink(0, bytes(32)).at(1).at(2)
    True
    """

    index: int
    key: bytes

    def at(self, index: int) -> ChainLink:
        """A later link."""
        key = self.key
        for _ in range(index - self.index):
            key = hmac.digest(key, b"chain", "sha256")
        return ChainLink(index, key)


class Reader(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """Announces a reader: its public keys, for which its signing certificate vouches."""

    name: str
    certificate: bytes
    decryption_key: bytes
    signing_key: bytes
    address: int
    """The address of the incarnation."""
    behind: int
    """The address of its super peer, if it is a phone; otherwise 0."""
    version: int
    """Incremented whenever its keys are announced again."""
    signature: bytes = b""
    """Made with the certificate's key."""


class ReadersGone(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """Readers that have left, as announced by a member that knows of it, since phones do not. Each receiver
    begins a new epoch."""

    readers: dict[ReaderId, int]
    """With the version that has left."""
    addresses: list[int] = []
    """Addresses without a reader: of relays, and of departed processes that may have keys, announced or
    not."""


class KeysGiven(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """Keys for a reader that joined while their epochs began."""

    giver: ReaderId
    to: ReaderId
    epochs: list[tuple[ReaderId, EpochId]]
    """The epochs, with their senders."""
    ephemeral: bytes
    links: bytes
    """For each epoch, the first link that the receiver may have, encrypted; None if the giver lacks it too,
    or does not owe it."""
    signature: bytes = b""


class Cut(msgspec.Struct, frozen=True, array_like=True):
    """The position at which a newcomer's state was taken, signed by its contact: keys of later messages are
    owed."""

    contact: ReaderId
    epochs: list[tuple[ReaderId, EpochId, int]]
    """For each sender, its last epoch and the index of its next message."""
    signature: bytes = b""


class KeysWanted(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """A request for keys whose givers have left. All members answer."""

    reader: ReaderId
    epochs: list[tuple[ReaderId, EpochId]]
    """By sender."""
    cut: Cut | None
    """Proves that the requester is owed the keys, if its contact would have given them."""
    signature: bytes = b""


class Due(msgspec.Struct, frozen=True, array_like=True):
    """A key that this reader owes to another one."""

    to: ReaderId
    sender: ReaderId
    epoch: EpochId
    """Empty if there is nothing to give, which is to be stated."""
    first: int = 0
    """The index from which the other reader may decrypt; -1 if it may not have the key."""
    is_asked: bool = False
    """Whether the other reader has requested it from everybody."""


class EncryptedBody(msgspec.Struct, frozen=True, array_like=True):
    """The body of an envelope in an encrypted group."""

    sender: ReaderId
    epoch: EpochId
    index: int
    ephemeral: bytes
    wrapped: dict[ReaderId, bytes]
    """The key from this message on, for readers that do not have it yet."""
    owed: list[int]
    """Addresses of members whose keys the sender does not know yet. It gives them its key once it does."""
    content: bytes
    signature: bytes = b""


class EncryptedContent(msgspec.Struct, frozen=True, array_like=True):
    """The encrypted part: the rest of the envelope."""

    kind: int
    body: bytes
    content_type: str = ""
    headers: dict[str, Any] | None = None


class Offer(msgspec.Struct, array_like=True):
    """The keys that a newcomer's contact sends along with the application's state."""

    readers: list[Reader]
    gone: dict[ReaderId, int]
    keys: list[tuple[ReaderId, EpochId, ChainLink | None, int]]
    """For each sender: its epoch, the next link, if the contact can decrypt, and the next index."""
    is_reader: bool
    """Whether the contact is a reader, and so gives missing keys."""
    has_state: bool
    silent: list[int]
    """The addresses of members that have not announced any keys."""
    cut: Cut | None = None
    """The same as `keys`, without the links."""


class Epoch(msgspec.Struct):
    """What this reader knows of a sender's epoch."""

    position: int
    """This reader's position when it began."""
    link: ChainLink | None = None
    """The first link that this reader received."""
    first: int = 0
    """The index of the first message that this reader is to decrypt."""
    next: int = 0
    """The index of the sender's next message."""
    is_owed: bool = False
    """Whether the sender has promised its key to this reader."""
    is_lost: bool = False
    """Whether the reader that should give its key does not have it."""
    is_past: bool = False
    """Whether it was first seen in messages of the past."""
    recipients: set[ReaderId] = msgspec.field(default_factory=set)
    """For this reader's own epoch: the readers that have its key."""
    owed: dict[int, int] = msgspec.field(default_factory=dict)
    """The addresses to which its sender has promised the key, and from which index on."""
    asked: list[ReaderId] | None = None
    """The readers that were asked for it and have not answered."""

    @property
    def is_complete(self) -> bool:
        """Whether this reader can decrypt all that it is to read."""
        return self.link is not None and self.link.index <= self.first


class SecrecyState(msgspec.Struct):
    """The part of the encryption that a checkpoint contains."""

    seed: bytes = b""
    version: int = 0
    announced: tuple[int, int] = (0, 0)
    """This reader's address, and that of its super peer, in its last announcement."""
    readers: dict[ReaderId, Reader] = {}
    gone: dict[ReaderId, int] = {}
    epochs: dict[ReaderId, dict[EpochId, Epoch]] = {}
    current: EpochId = b""
    """This reader's current epoch."""
    cuts: dict[int, int] = {}
    """By address, the position at which newcomers received their state here, until they announce their keys;
    -1 if they have the history."""
    departed: set[int] = set()
    """Addresses of departed processes, until their departure is announced."""
    is_exposed: bool = False
    """Whether somebody has left since this reader's epoch began."""
    sponsored: dict[ReaderId, int] = {}
    """Newcomers to which this reader gives missing keys."""
    due: list[Due] = []
    relays: set[int] = set()
    """Addresses of members that do not read."""
    silent: set[int] = set()
    """At a phone: addresses of members that may still announce their keys."""
    admitted: dict[int, int] = {}
    """By address: the position at which members of the view were admitted."""
    contact: int = 0
    """The address of this reader's own contact, if the contact gives it missing keys."""
    cut: Cut | None = None
    has_history: bool = False
    refused: dict[MessageId, str] = {}
    """Messages that are not given to the application, and why."""


AboutKeys = Reader | ReadersGone | KeysGiven | KeysWanted
_about_keys = msgspec.msgpack.Decoder(AboutKeys)
_encrypted = msgspec.msgpack.Decoder(EncryptedBody)
_content = msgspec.msgpack.Decoder(EncryptedContent)
_offer = msgspec.msgpack.Decoder(Offer)
_links = msgspec.msgpack.Decoder(list[ChainLink | None])
encode = msgspec.msgpack.Encoder().encode
_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_ENCRYPTED_KIND, _KEYS_KIND = bytes([ENCRYPTED]), bytes([KEYS])


def is_encrypted(payload: bytes) -> bool:
    return payload[1:2] == _ENCRYPTED_KIND


def is_about_keys(payload: bytes) -> bool:
    return payload[1:2] == _KEYS_KIND


def envelope_about_keys(message: AboutKeys, author: str, now: int) -> bytes:
    """The payload of a message about keys, which no application receives."""
    return encode(FullEnvelope(KEYS, False, None, encode(message), author, now // 1000))


def read_about_keys(payload: bytes) -> AboutKeys:
    """Decode a payload about keys, or raise a `RemoteError`."""
    try:
        found: AboutKeys = _about_keys.decode(unwrap(payload).body)
    except _ERRORS as error:
        raise RemoteError(f"its message about keys cannot be decoded: {error}") from error
    match found:
        case Reader():
            _check_reader(found)
        case ReadersGone():
            _require(found.readers, ID_BYTES)
            if max(len(found.readers), len(found.addresses)) > MAX_READERS:
                raise RemoteError(f"{len(found.readers):,} readers; a group has {MAX_READERS:,} at most")
        case KeysWanted():
            _require((found.reader, *itertools.chain(*found.epochs)), ID_BYTES)
            _check_cut(found.cut)
            if len(found.epochs) > MAX_WANTED:
                raise RemoteError(f"it asks for {len(found.epochs):,} keys; {MAX_WANTED} at most")
        case KeysGiven():
            _require((found.giver, found.to, *itertools.chain(*found.epochs)), ID_BYTES)
            if len(found.links) > _MAX_GIFT:
                raise RemoteError("too many keys at a time")
    return found


def _check_cut(cut: Cut | None) -> None:
    if cut is not None:
        _require((cut.contact, *(part for each in cut.epochs for part in each[:2])), ID_BYTES)
        if any(not 0 <= index <= MAX_INDEX for _, _, index in cut.epochs):
            raise RemoteError("an index beyond the end of its epoch")


def _check_reader(reader: Reader) -> None:
    _require((reader.decryption_key, reader.signing_key), KEY_BYTES)
    if len(reader.certificate) > _MAX_CERTIFICATE:
        raise RemoteError(f"a certificate of {len(reader.certificate):,} bytes")


def read_encrypted(payload: bytes) -> EncryptedBody:
    """Decode an encrypted body, or raise a `RemoteError`."""
    try:
        body = _encrypted.decode(unwrap(payload).body)
    except _ERRORS as error:
        raise RemoteError(f"an encrypted message that cannot be decoded: {error}") from error
    _require((body.sender, body.epoch, *body.wrapped), ID_BYTES)
    _require(body.wrapped.values(), _WRAPPED_BYTES)
    if not 0 <= body.index < MAX_INDEX or max(len(body.wrapped), len(body.owed)) > MAX_READERS:
        raise RemoteError("an encrypted message beyond the end of its epoch, or for too many readers")
    return body


def read_content(data: bytes) -> EncryptedContent:
    try:
        return _content.decode(data)
    except _ERRORS as error:
        raise RemoteError(f"an encrypted content that cannot be decoded: {error}") from error


def opened(delivery: Delivery, content: EncryptedContent) -> Delivery:
    """The message as if it had not been encrypted."""
    outer = unwrap(delivery.payload)
    envelope = FullEnvelope(
        content.kind,
        outer.after_own,
        outer.causes,
        content.body,
        outer.author,
        outer.time,
        content.content_type,
        content.headers,
    )
    return Delivery(delivery.message, encode(envelope), delivery.causes)


def read_links(data: bytes) -> list[ChainLink | None]:
    try:
        found: list[ChainLink | None] = _links.decode(data)
    except _ERRORS as error:
        raise RemoteError(f"keys that cannot be decoded: {error}") from error
    for each in found:
        _check_link(each)
    return found


def _check_link(link: ChainLink | None) -> None:
    if link is not None:
        _require((link.key,), KEY_BYTES)
        if not 0 <= link.index <= MAX_INDEX:
            raise RemoteError("a key beyond the end of its epoch")


# The offer beside the application's state


_MAGIC = b"antecede keys\0"
OFFER_PREFIX = len(_MAGIC) + 4


def encode_offer(offer: Offer) -> bytes:
    data = encode(offer)
    return _MAGIC + len(data).to_bytes(4, "big") + data


def offer_length(prefix: bytes) -> int:
    """The length of an offer without its prefix, or a `RemoteError`."""
    if len(prefix) < OFFER_PREFIX or not prefix.startswith(_MAGIC):
        raise RemoteError("its state comes without the group's readers")
    return int.from_bytes(prefix[len(_MAGIC) : OFFER_PREFIX], "big")


def decode_offer(data: bytes) -> Offer:
    """Decode an offer, given without its prefix."""
    try:
        offer = _offer.decode(data)
    except _ERRORS as error:
        raise RemoteError(f"the group's readers cannot be decoded: {error}") from error
    for reader in offer.readers:
        _check_reader(reader)
    _check_cut(offer.cut)
    for sender, epoch, link, _ in offer.keys:
        _require((sender, epoch), ID_BYTES)
        _check_link(link)
    return offer


def _require(values: Iterable[bytes], length: int) -> None:
    if any(len(value) != length for value in values):
        raise RemoteError("a key or an id of another length")
