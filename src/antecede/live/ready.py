"""What a core asks of its driver: one read-only value, and the one way to carry it out."""

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
    """All that follows from the events so far, to persist and to send. Read-only."""

    number: int = 0
    """Of this `Ready` among those that persist something; 0 if there is nothing to persist."""
    records: Sequence[LogRecord] = ()
    """To append to the log."""
    checkpoint: Checkpoint | None = None
    """To take the place of the log. Then there are no records: it includes them."""
    packets: Mapping[int, Packets] = _EMPTY
    """To send to each partner, once the records are durable."""
    received: Mapping[int, int] = _EMPTY
    """The last packet of each partner that is durable with the records: it may be acknowledged."""
    received_chain: Mapping[int, bytes] = _EMPTY
    """The chain values of these packets."""
    broadcasts: int = 0
    """How many messages of this member are durable with the records."""
    parked: int = 0
    """The position of a message that is put aside durably with the records."""
    repaired: Sequence[tuple[MessageId, int]] = ()
    """Messages that were missing, and the partner that supplied them."""
    trace_length: int = 0
    """Rows of the trace before this index are durable with the records, or follow from them."""
    history: HistoryBatch | None = None
    """What is to be in the member's history before the records are durable."""


def send_and_advance(core: Core, ready: Ready) -> None:
    """Carry out a `Ready` that is durable: its packets go into the outboxes, and the core learns of it."""
    digests: dict[int, bytes] = {}
    for peer, packets in ready.packets.items():
        if (box := core.outboxes.get(peer)) is not None:  # or the link is no more, in a group that changes
            box.extend(packets.first, packets.bodies, digests)
    core.advance(ready)
