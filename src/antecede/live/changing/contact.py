"""Who a member is, at which address, and where it can be reached.

An *address* identifies one attempt to join. It is a hash of the member's name and a random nonce; founders
have no nonce. Knowing both proves the address, so no table of addresses has to be agreed on.
"""

from __future__ import annotations

import functools
from hashlib import sha256

import msgspec

from antecede.errors import InputError
from antecede.live.settings import address, validate_name
from antecede.protocols.base import RemoteError

NONCE_BYTES = 8
_MAX_AT = 300


class Contact(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One incarnation of a member. `at` is where it listens, host:port; it may change, the rest may not.

    >>> Contact("ana").label, Contact("dana", bytes(range(8))).label
    ('ana', 'dana~00010203')
    """

    name: str
    nonce: bytes = b""
    at: str = ""
    is_phone: bool = False
    """Whether it is a phone behind a super peer, not a member. An address never changes from one to the
    other."""

    @property
    def address(self) -> int:
        kind = b"antecede phone\0" if self.is_phone else b"antecede address\0"
        digest = sha256(kind + self.name.encode() + b"\0" + self.nonce).digest()
        return int.from_bytes(digest[:8], "big") >> 1

    @property
    def label(self) -> str:
        """The application's name for this incarnation."""
        return f"{self.name}~{self.nonce[:4].hex()}" if self.nonce else self.name


_decoder = msgspec.msgpack.Decoder(Contact)
encode_contact = msgspec.msgpack.Encoder().encode


@functools.lru_cache(1 << 12)
def decode_contact(data: bytes) -> Contact:
    """Decode a contact written by another process."""
    try:
        return validated(_decoder.decode(data))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RemoteError(f"not a contact: {error}") from error


def contact_in(data: bytes) -> Contact | None:
    """Decode what a sponsor has written about the process it admitted; None if it is not a contact. Only the
    sponsor may be to blame for that."""
    try:
        return decode_contact(data) if data else None
    except RemoteError:
        return None


def validated(contact: Contact) -> Contact:
    """The contact, if a correct member may have written it; otherwise a `RemoteError`."""
    try:
        validate_name(contact.name)
        if contact.at:
            address(contact.at, "contact")
    except InputError as error:
        raise RemoteError(f"not a contact: {error}") from error
    if "~" in contact.name or len(contact.nonce) not in (0, NONCE_BYTES) or len(contact.at) > _MAX_AT:
        raise RemoteError("not a contact: its name, nonce or place cannot be")
    if contact.is_phone and not contact.nonce:
        raise RemoteError("not a contact: phones are no founders")
    return contact
