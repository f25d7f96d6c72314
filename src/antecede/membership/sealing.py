"""What a driver adds to messages so that members can prove what others have broadcast.

A payload may end with a *seal*, which its member's driver has made and other drivers verify. Members only
carry it along: with the message, wherever that is forwarded, fetched, or passed on to a newcomer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from antecede.protocols.base import Packet

SEAL_BYTES = 96
SEALED = 2
"""Added to the first byte of a payload that has a seal."""


def add_seal(payload: bytes, seal: bytes) -> bytes:
    return bytes((payload[0] | SEALED,)) + payload[1:] + seal


def split_seal(payload: bytes) -> tuple[bytes, bytes]:
    """A payload without its seal, and that; empty if it has none.

    >>> split_seal(add_seal(b"\\x00hello", b"s" * SEAL_BYTES)) == (b"\\x00hello", b"s" * SEAL_BYTES)
    True
    """
    if not is_sealed(payload):
        return payload, b""
    return bytes((payload[0] & ~SEALED,)) + payload[1:-SEAL_BYTES], payload[-SEAL_BYTES:]


def is_sealed(payload: bytes) -> bool:
    return len(payload) > SEAL_BYTES and bool(payload[0] & SEALED)


class Sealer:
    """Of a group in which nothing is proven; drivers have others."""

    def seal(self, origin: int, seq: int, payload: bytes, causes: Mapping[int, Any]) -> bytes:
        """The payload of a message that a member is about to broadcast, and that names these causes."""
        return payload

    def accepts(self, packet: Packet) -> bool:
        """Whether the origin of messages that came before its admission has broadcast them."""
        return True

    def statements(self, counts: Mapping[int, int]) -> dict[int, bytes]:
        """What proves messages with these numbers, by origin, to a newcomer that has them in its snapshot."""
        return {}


NO_SEALS = Sealer()
