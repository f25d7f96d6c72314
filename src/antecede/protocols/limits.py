"""Limits and constants that protocols share with their compiled kernels and with drivers."""

from __future__ import annotations

MAX_AHEAD = 1_000_000
"""How far a sequence number may lie beyond the last one known without gaps. Further ahead is an attack, not a
delay."""

MAX_BATCH_MESSAGES = 1024
"""The most messages in one `MessageBatch`."""

MAX_REMEMBERED = 1000
"""`hcg`: the most messages of each sender that a gateway remembers by vector clock."""

MAX_BUNDLE_BYTES = 1500
"""`vcube-agg`: the largest packet that messages are aggregated in (an Ethernet frame's MTU). A larger message
travels alone."""

MAX_BUFFERED_MESSAGES = 10_000
"""`pc`: the most messages buffered for a link that is not safe yet, or by a newcomer before its snapshot."""

MAX_RECENT_PINGS = 1_000
"""`pc`: how many of a source's latest pings are remembered."""

PONG_TIMEOUT = 5_000_000_000
"""`pc`: how long to wait for a pong before the ping is repeated, in nanoseconds."""
