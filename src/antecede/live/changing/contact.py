"""Who a member is, at which address, and where it can be reached.

An *address* is for one attempt to join. It is a hash of the member's name and a random nonce, which founders
do not have. So whoever shows both proves the address, and nobody has to agree on a table of addresses.
"""

from __future__ import annotations

from hashlib import sha256

import msgspec

from antecede.protocols.base import RemoteError

NONCE_BYTES = 8


class Contact(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One incarnation of a member. `at` is where it listens, host:port; it may change, the rest may not.

    >>> Contact("ana").label, Contact("dana", bytes(range(8))).label
    ('ana', 'dana~00010203')
    """

    name: str
    nonce: bytes = b""
    at: str = ""

    @property
    def address(self) -> int:
        digest = sha256(b"antecede address\0" + self.name.encode() + b"\0" + self.nonce).digest()
        return int.from_bytes(digest[:8], "big") >> 1

    @property
    def label(self) -> str:
        """What applications call this incarnation."""
        return f"{self.name}~{self.nonce[:4].hex()}" if self.nonce else self.name


_decoder = msgspec.msgpack.Decoder(Contact)
encode_contact = msgspec.msgpack.Encoder().encode


def decode_contact(data: bytes) -> Contact:
    try:
        return _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RemoteError(f"not a contact: {error}") from error
