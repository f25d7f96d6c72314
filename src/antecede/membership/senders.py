"""Who may speak for whom: links say which process sends a packet, and a packet may name another member."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from antecede.causality import MessageId
from antecede.membership.packets import Counts, ProgressReport, Stream, admitted_stream
from antecede.membership.view_flooding import LinkRequest
from antecede.protocols.base import Packet, RemoteError


def check_sender(stream_at: Mapping[int, Stream], addresses: Counts, link: int, packet: Packet) -> None:
    """Raise a `RemoteError` if the process at an address speaks for another member than the one there.

    One that is not known here proves which member it is by the message that admitted it: a stream's id is a
    hash of that and of the address. Its reports name that message as long as some may not have it.
    """
    named: Any = getattr(packet, "member", None)
    if named is None:
        return
    known = stream_at.get(link)
    if known is None and isinstance(packet, ProgressReport | LinkRequest) and not _has_left(packet):
        admission: MessageId | None = packet.admissions.get(named)
        is_proven = admission is not None and admitted_stream(link, admission) == named
    else:
        is_proven = known in (None, named)
    if not is_proven or addresses.get(named, link) != link:
        raise RemoteError("it speaks for another member")


def _has_left(packet: Packet) -> bool:
    """Such a one may be forgotten here, and be known to nobody; it is only answered."""
    return isinstance(packet, ProgressReport) and packet.has_left
