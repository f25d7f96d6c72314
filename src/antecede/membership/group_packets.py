"""What members of overlapping groups send each other, besides what members of one group do.

A message names messages of other groups. A member that is in none of them passes these names on.
"""

from __future__ import annotations

import msgspec

from antecede.causality import MessageId
from antecede.membership.packets import Counts, JoinRequest, Stream
from antecede.protocols.base import RemoteError


class Cause(msgspec.Struct, frozen=True, array_like=True):
    """The last message of a stream in another group that precedes a message."""

    seq: int
    admissions: tuple[MessageId, ...] = ()
    """What admitted its sender, what admitted the sender of that, and so on, as far as some members may not
    have delivered it. Whoever has, and does not know the stream, has forgotten it."""


Causes = dict[str, dict[Stream, Cause]]
"""By group and stream."""
RemovedMembers = dict[str, Counts]
"""By group: the members that were removed, and where their streams end."""


class GroupPayload(msgspec.Struct, frozen=True, array_like=True):
    """The payload of a message that names messages of other groups."""

    payload: bytes
    across: Causes = {}
    removed: RemovedMembers = {}
    """Who was removed from groups. What is named need not be given to them; they may not know yet."""


class GroupSnapshot(msgspec.Struct, frozen=True, array_like=True):
    """What a new member of a group starts with."""

    state: bytes
    """The application's."""
    past: dict[Stream, Cause]
    """What is in it that somebody may lack."""
    across: Causes
    """What the sponsor has been given, or knows of, in other groups."""
    removed: RemovedMembers
    """See `GroupPayload`."""


class GroupJoinRequest(JoinRequest, frozen=True, array_like=True, tag=80):
    """As `JoinRequest`, of a process that may be in other groups."""

    past: dict[Stream, Cause] = {}  # noqa: RUF012
    """What it knows of in this group: its sponsor must have all of it."""
    removed: Counts = {}  # noqa: RUF012
    """Who was removed from this group, and where their streams end: not to be asked."""


_PLAIN, _NAMES = b"\x00", b"\x01"
_payloads = msgspec.msgpack.Decoder(GroupPayload)
_snapshots = msgspec.msgpack.Decoder(GroupSnapshot)


def encode_payload(payload: bytes, across: Causes, removed: RemovedMembers) -> bytes:
    """A payload and what it names: one byte more if that is nothing."""
    if not across and not removed:
        return _PLAIN + payload
    return _NAMES + msgspec.msgpack.encode(GroupPayload(payload, across, removed))


def decode_payload(data: bytes) -> GroupPayload:
    try:
        return GroupPayload(data[1:]) if data[:1] == _PLAIN else _payloads.decode(data[1:])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RemoteError(f"not a message to a group: {error}") from error


def decode_snapshot(data: bytes) -> GroupSnapshot:
    try:
        return _snapshots.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RemoteError(f"not what a member of a group starts with: {error}") from error
