"""Messages of a process in a dynamic group that may not have been delivered, for inspecting its store."""

from __future__ import annotations

from antecede.causality import MessageId
from antecede.live.changing.core import ChangingCore
from antecede.membership.member import ChangingMember
from antecede.membership.packets import ApplicationData, decode_content
from antecede.membership.state import Phase, RetainedMessage

StoredPayload = tuple[MessageId, bytes]


def accepted_messages(core: ChangingCore) -> list[StoredPayload]:
    """Messages broadcast here that are not known to be delivered everywhere: those of this incarnation, and
    those that it has brought back. For a removed process that is not a member again yet: those of its last
    incarnation."""
    if not core.members:
        return []
    current = core.member
    members = [each for each in core.members.values() if each is not current and each.phase == Phase.REMOVED]
    found: dict[MessageId, bytes] = {}
    for member in (*(members if current.phase != Phase.MEMBER else ()), current):
        for entry in member.backlog.entries:
            found[entry.original] = entry.payload
        own = member.unstable.get(member.stream, {})
        for seq in sorted(own):
            _add(found, member, MessageId(member.stream, seq), own[seq])
    return list(found.items())


def held_messages(core: ChangingCore) -> list[StoredPayload]:
    """Messages that have arrived and wait for a cause, in the order of arrival."""
    found: dict[MessageId, bytes] = {}
    if core.members:
        member = core.member
        entries = [
            (entry.arrived, MessageId(stream, seq), entry)
            for stream, retained in member.unstable.items()
            for seq, entry in retained.items()
            if not entry.place and seq > member.order.delivered.get(stream, 0)
        ]
        for _, message, entry in sorted(entries, key=lambda each: each[0]):
            _add(found, member, message, entry)
    return list(found.items())


def _add(
    found: dict[MessageId, bytes], member: ChangingMember, message: MessageId, entry: RetainedMessage
) -> None:
    """Add application messages only, under the ids that applications see."""
    packet = member.decode(entry.packet)
    for (origin, first, _), payloads in zip(packet.spans(), packet.payloads_by_span(), strict=True):
        if origin == message.origin and first <= message.seq < first + len(payloads):
            content = decode_content(payloads[message.seq - first])
            if isinstance(content, ApplicationData):
                found[content.original or message] = content.payload
