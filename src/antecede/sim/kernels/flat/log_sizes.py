"""What the messages of a log would carry under each flat protocol, computed from their causal pasts alone."""

from __future__ import annotations

from typing import Any

import numpy as np

from antecede.jit import njit_plain
from antecede.sim.kernels.flat.stamps import stamp_bytes
from antecede.sim.kernels.runtime.msgpack_sizes import payload_head


@njit_plain
def control_sizes(
    protocol: Any, peers: Any, payload: Any, senders: Any, numbers: Any, columns: Any,
    vectors: Any, previous: Any, start: Any, cause: Any,
) -> Any:  # fmt: skip
    """Control bytes of every message on the wire.

    By message: `senders` and `numbers` identify it; `vectors` is its vector clock, with the peers of its
    columns in `columns`; `previous` is its sender's previous message (-1: none); `cause` from `start` on
    are its immediate dependencies.
    """
    sizes = np.zeros(len(senders), np.int64)
    clock, last_clock = np.zeros(peers, np.int64), np.zeros(peers, np.int64)
    chosen = np.empty(peers, np.int64)
    for message in range(len(senders)):
        me, before = senders[message], previous[message]
        for column in range(len(columns)):
            clock[columns[column]] = vectors[message, column]
            last_clock[columns[column]] = vectors[before, column] if before >= 0 else 0
        count = 0
        for place in range(start[message], start[message + 1]):
            if senders[cause[place]] != me:  # its sender's previous message is implied
                chosen[count] = cause[place]
                count += 1
        wire, _ = stamp_bytes(
            protocol, me, numbers[message], clock, last_clock, chosen, count, senders, numbers
        )
        sizes[message] = wire + payload_head(payload)
    return sizes
