"""Seals: signatures that drivers add to messages, so that members can prove what others have broadcast.

A payload may end with a *seal*, which the driver of its member creates and other drivers verify. To members a
seal is opaque. They pass it on with the message, when that is forwarded, fetched, or sent to a newcomer.
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
    """A payload without its seal, and the seal, which is empty if there is none.

    >>> split_seal(add_seal(b"\\x00hello", b"s" * SEAL_BYTES)) == (b"\\x00hello", b"s" * SEAL_BYTES)
    True
    """
    if not is_sealed(payload):
        return payload, b""
    return bytes((payload[0] & ~SEALED,)) + payload[1:-SEAL_BYTES], payload[-SEAL_BYTES:]


def is_sealed(payload: bytes) -> bool:
    return len(payload) > SEAL_BYTES and bool(payload[0] & SEALED)


class Sealer:
    """The sealer of a group without signatures; drivers have others."""

    def seal(self, origin: int, seq: int, payload: bytes, causes: Mapping[int, Any]) -> bytes:
        """The sealed payload of a message that a member is about to broadcast and that names these causes."""
        return payload

    def accepts(self, packet: Packet) -> bool:
        """Whether messages that arrived before the admission of their origin were broadcast by it."""
        return True

    def statements(self, counts: Mapping[int, int]) -> dict[int, bytes]:
        """By origin, what proves the messages with these numbers to a newcomer that has them in its
        snapshot."""
        return {}


NO_SEALS = Sealer()
