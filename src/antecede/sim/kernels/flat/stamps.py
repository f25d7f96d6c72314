"""Sizes of what messages of the flat protocols carry."""

from __future__ import annotations

from typing import Any

from antecede.jit import njit_plain
from antecede.sim.kernels.runtime.msgpack_sizes import head_bytes, int_bytes

TIMESTAMP, TIMESTAMP_DIFF, MBCP, DEPSEQ = range(4)


@njit_plain
def stamp_bytes(
    protocol: Any, me: Any, number: Any, clock: Any, previous: Any,
    dependencies: Any, count: Any, senders: Any, numbers: Any,
) -> Any:  # fmt: skip
    """Control bytes of a message, without its payload's length: on the wire, and as its paper counts.

    The twin of `stamp` and `paper_bytes` of each flat protocol. `clock` is what the sender has delivered,
    `previous` what it had delivered at its previous message (for `timestamp-diff`); the first `count` of
    `dependencies` are the places of its immediate dependencies in `senders` and `numbers` (for `mbcp`).
    """
    peers = len(clock)
    wire = 2 + int_bytes(me)
    if protocol == TIMESTAMP:
        wire += head_bytes(peers) + int_bytes(number) - int_bytes(clock[me])
        for peer in range(peers):
            wire += int_bytes(clock[peer])
        return wire, 4 * peers
    wire += int_bytes(number)
    if protocol == MBCP:
        for place in range(count):
            message = dependencies[place]
            wire += int_bytes(senders[message]) + int_bytes(numbers[message])
        return wire + head_bytes(count), 8 * count
    entries = 0
    for peer in range(peers):
        if peer != me and clock[peer] > (previous[peer] if protocol == TIMESTAMP_DIFF else 0):
            entries += 1
            wire += int_bytes(peer) + int_bytes(clock[peer])
    wire += head_bytes(entries)
    return (wire, 4 * (1 + entries)) if protocol == TIMESTAMP_DIFF else (wire + 3 * entries, 8 * entries)
