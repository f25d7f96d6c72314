"""Validation of packets before the protocol sees them, whoever sends or supplies them.

An invalid packet raises a `RemoteError`, and changes nothing. The protocol validates the rest. Time O(spans
in the packet) besides decoding.
"""

from __future__ import annotations

from collections.abc import Sequence

from antecede.live.stability import Stability
from antecede.live.transport.frames import MAX_BYTES
from antecede.protocols.base import Packet, Protocol, RemoteError, Span

MAX_PACKET = MAX_BYTES // 2 + (1 << 20)
"""The longest body with its control information: it fits into a frame, whichever member forwards it."""
MAX_GAP = 1 << 16
"""How far a sequence number may lie beyond the last one without a gap. A longer gap is an attack, since each
missing message costs time."""


def decode_packet(protocol: Protocol, stability: Stability, data: bytes) -> tuple[Packet, tuple[Span, ...]]:
    """A packet and the messages in it, whose ids are possible."""
    if len(data) > MAX_PACKET:
        raise RemoteError(f"a packet of {len(data)} bytes; the longest is {MAX_PACKET}")
    packet = protocol.decode(data)
    spans = packet.spans()
    size, received = stability.size, stability.received
    for origin, first, last in spans:
        if not 0 <= origin < size or first < 1 or last > received[origin].base + MAX_GAP:
            raise RemoteError(f"message {first} of member {origin} cannot exist")
    return packet, spans


def check_author(stability: Stability, link: int, spans: Sequence[Span]) -> None:
    """In a mesh, only its author sends a message; others supply it in repairs."""
    if stability.is_mesh and any(origin != link for origin, _, _ in spans):
        raise RemoteError(f"it sends a message of member {spans[0][0]} as its own")


def check_asked_for(spans: Sequence[Span], wanted: Sequence[Span]) -> None:
    """A repair must contain at least one requested message."""
    if not any(
        origin == asked and first <= high and low <= last
        for origin, first, last in spans
        for asked, low, high in wanted
    ):
        raise RemoteError("it sends a repair of messages that nobody has asked it for")
