"""Checks that a packet speaks only for its sender: the link identifies the process, the packet a member."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from antecede.causality import MessageId
from antecede.membership.packets import Counts, ProgressReport, Stream, admitted_stream
from antecede.membership.view_flooding import LinkRequest
from antecede.protocols.base import Packet, RemoteError


def check_sender(stream_at: Mapping[int, Stream], addresses: Counts, link: int, packet: Packet) -> None:
    """Raise a `RemoteError` if the process at an address speaks for another member than the one there.

    A member that is not known here proves its identity by the message that admitted it: a stream's id is a
    hash of that message and of the address. Its reports name that message as long as some may not have it.
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
    """A member that has left may be forgotten everywhere; its report is only answered."""
    return isinstance(packet, ProgressReport) and packet.has_left
