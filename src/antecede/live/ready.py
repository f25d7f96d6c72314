"""The work that a core requests from its driver: one read-only value, and the one way to carry it out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import msgspec

from antecede.causality import MessageId
from antecede.live.events import LogRecord
from antecede.live.store.records import Checkpoint
from antecede.live.transport.frames import Packets

if TYPE_CHECKING:
    from antecede.live.changing.history import HistoryBatch
    from antecede.live.core import Core

_EMPTY: Mapping[int, Any] = MappingProxyType({})


class Ready(msgspec.Struct, frozen=True, gc=False):
    """Everything to persist and to send after the events so far. Read-only."""

    number: int = 0
    """Its number among the `Ready`s that persist something; 0 if there is nothing to persist."""
    records: Sequence[LogRecord] = ()
    """Append these to the log."""
    checkpoint: Checkpoint | None = None
    """Replace the log with this. Then there are no records: the checkpoint includes them."""
    packets: Mapping[int, Packets] = _EMPTY
    """Send these to each partner, once the records are durable."""
    received: Mapping[int, int] = _EMPTY
    """The last packet of each partner that becomes durable with the records, and may be acknowledged then."""
    received_chain: Mapping[int, bytes] = _EMPTY
    """The chain values of these packets."""
    broadcasts: int = 0
    """How many messages of this member become durable with the records."""
    parked: int = 0
    """The position of a message whose parking becomes durable with the records."""
    repaired: Sequence[tuple[MessageId, int]] = ()
    """Missing messages, with the partner that supplied each."""
    trace_length: int = 0
    """Rows of the trace before this index become durable with the records, or derive from them."""
    history: HistoryBatch | None = None
    """What must be in the member's history before the records are durable."""


def send_and_advance(core: Core, ready: Ready) -> None:
    """Finish a durable `Ready`: its packets go into the outboxes, and the core is notified."""
    digests: dict[int, bytes] = {}
    for peer, packets in ready.packets.items():
        if (box := core.outboxes.get(peer)) is not None:  # otherwise the link was dropped, in a dynamic group
            box.extend(packets.first, packets.bodies, digests)
    core.advance(ready)
