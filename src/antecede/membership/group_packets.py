"""Packets of members of overlapping groups, in addition to those of members of one group.

A message names messages of other groups. A member that is in none of these groups forwards the names.
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
    """The message that admitted its sender, the one that admitted the sender of that, and so on, as far as
    some members may not have delivered them. A member that has delivered them, and does not know the stream,
    has forgotten it."""


Causes = dict[str, dict[Stream, Cause]]
"""By group and stream."""
RemovedMembers = dict[str, Counts]
"""By group: the removed members, and where their streams end."""


class GroupPayload(msgspec.Struct, frozen=True, array_like=True):
    """The payload of a message that names messages of other groups."""

    payload: bytes
    across: Causes = {}
    removed: RemovedMembers = {}
    """Removed members of groups that may not know of their removal yet. `across` omits messages that only
    they have not received."""


class GroupSnapshot(msgspec.Struct, frozen=True, array_like=True):
    """The state with which a new member of a group starts."""

    state: bytes
    """The application's."""
    past: dict[Stream, Cause]
    """The messages in the state that some members may lack."""
    across: Causes
    """The messages of other groups that the sponsor has delivered, or knows of."""
    removed: RemovedMembers
    """See `GroupPayload`."""


class GroupJoinRequest(JoinRequest, frozen=True, array_like=True, tag=80):
    """As `JoinRequest`, for a process that may be in other groups."""

    past: dict[Stream, Cause] = {}  # noqa: RUF012
    """The messages of this group that it knows of; its sponsor must have all of them."""
    removed: Counts = {}  # noqa: RUF012
    """Members that were removed from this group, and where their streams end: they must not act as
    sponsors."""


_PLAIN, _NAMES = b"\x00", b"\x01"
_payloads = msgspec.msgpack.Decoder(GroupPayload)
_snapshots = msgspec.msgpack.Decoder(GroupSnapshot)


def encode_payload(payload: bytes, across: Causes, removed: RemovedMembers) -> bytes:
    """A payload with the causes that it names; one byte longer if there are none."""
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
        raise RemoteError(f"not the initial state of a member of a group: {error}") from error
