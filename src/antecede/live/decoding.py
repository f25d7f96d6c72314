"""Decoding what a partner sends: a packet whose messages can exist, or a `RemoteError`."""

from __future__ import annotations

from antecede.causality import BitWindow
from antecede.live.transport.frames import MAX_BYTES
from antecede.protocols.base import Packet, Protocol, RemoteError, Span
from antecede.protocols.limits import MAX_AHEAD

MAX_PACKET = MAX_BYTES // 2 + (1 << 20)
"""The longest body with its control information: it fits a frame, whoever forwards it."""


def decode_packet(
    protocol: Protocol, received: list[BitWindow], data: bytes
) -> tuple[Packet, tuple[Span, ...]]:
    """A packet and the messages in it, which can exist; the protocol validates the rest."""
    if len(data) > MAX_PACKET:
        raise RemoteError(f"a packet of {len(data)} bytes; the longest is {MAX_PACKET}")
    packet = protocol.decode(data)
    spans = packet.spans()
    for origin, first, last in spans:
        if not 0 <= origin < len(received) or first < 1 or last > received[origin].base + MAX_AHEAD:
            raise RemoteError(f"message {first} of member {origin} cannot exist")
    return packet, spans
