"""Lengths of msgpack encodings: the control bytes of packets that kernels never build."""

from __future__ import annotations

from typing import Any

from antecede.jit import njit_plain


@njit_plain
def int_bytes(value: Any) -> Any:
    """The encoded size of a non-negative integer."""
    return 1 + (value >= 128) + (value >= 256) + 2 * (value >= 65536) + 4 * (value >= 1 << 32)


@njit_plain
def head_bytes(length: Any) -> Any:
    """The encoded size of the length of a list or map."""
    return 1 if length < 16 else 3 if length < 65536 else 5


@njit_plain
def payload_head(length: Any) -> Any:
    """The encoded size of the length of a byte string."""
    return 2 if length < 256 else 3 if length < 65536 else 5
