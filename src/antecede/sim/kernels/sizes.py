"""How long msgpack writes things: the control bytes of packets that kernels never make."""

from __future__ import annotations

from typing import Any

from antecede.sim.kernels.jit import compiled


@compiled
def int_bytes(value: Any) -> Any:
    """Of a whole number from 0 up."""
    return 1 + (value >= 128) + (value >= 256) + 2 * (value >= 65536) + 4 * (value >= 1 << 32)


@compiled
def head_bytes(length: Any) -> Any:
    """Of the length of a list or map."""
    return 1 if length < 16 else 3 if length < 65536 else 5


@compiled
def payload_head(length: Any) -> Any:
    """Of the length of bytes."""
    return 2 if length < 256 else 3 if length < 65536 else 5
