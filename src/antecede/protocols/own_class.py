"""What a user-defined protocol must declare and return: a mistake is reported in one sentence, before any
run."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from numbers import Real
from typing import Any, cast, get_args

from antecede.causality import MessageId
from antecede.errors import ProtocolError
from antecede.protocols.base import Delivery, Effects, LinkRequirements, Packet, Protocol, Waiting


class WrongResultError(ProtocolError):
    """A method of a protocol returned something else than it must."""

    def __init__(self, method: str, must: str, found: object) -> None:
        super().__init__(f"{method} must return {must}, got {found!r:.80}")


def checked_effects(found: object, method: str) -> Effects:
    """What a method returned, if it is `Effects`: a forgotten return statement is the usual mistake."""
    if not isinstance(found, Effects):
        raise WrongResultError(method, "Effects (or NO_EFFECTS)", found)
    return found


def checked_delivery(found: object) -> Delivery | None:
    if found is not None and not isinstance(found, Delivery):
        raise WrongResultError("deliver", "a Delivery or None", found)
    return found


def checked_waiting(found: object) -> Sequence[Waiting]:
    if not isinstance(found, list | tuple) or not all(isinstance(each, Waiting) for each in found):
        raise WrongResultError("waiting", "a list of Waiting", found)
    return found


def checked_paper_bytes(found: object) -> int:
    if not isinstance(found, Real):
        raise WrongResultError("paper_bytes", "a number of bytes", found)
    return cast(int, found)


@lru_cache(maxsize=64)
def find_mistake(kind: type[Protocol]) -> str:
    """What is missing or wrong in a protocol's class, after its name; empty if nothing is found."""
    if not isinstance(getattr(kind, "links", None), LinkRequirements):
        return "does not declare its links: links = LinkRequirements(fifo=...)"
    name = getattr(kind, "name", None)
    if not isinstance(name, str) or not name:
        return 'does not declare its name: name: ClassVar[str] = "mine"'
    packets = _packet_types(getattr(kind, "packets", None))
    if not packets:
        return (
            "does not declare its packets: packets: ClassVar[Any] = MyPacket, which is a subclass of "
            "antecede.protocols.Packet, or a union of several"
        )
    if all(packet.message_ids is Packet.message_ids for packet in packets):
        return (
            f"has packets that name no messages: {packets[0].__name__} must define message_ids(), which "
            "returns the MessageIds of the messages that it carries"
        )
    return _try_out(kind)


def _packet_types(packets: Any) -> list[type[Packet]]:
    """The types in a type or a union; none if one of them is not a packet."""
    kinds = get_args(packets) or (packets,)
    are_packets = all(isinstance(each, type) and issubclass(each, Packet) for each in kinds)
    return list(kinds) if are_packets else []


def _try_out(kind: type[Protocol]) -> str:
    """Check the values that two members return for the first message. Exceptions are left to the run that
    follows, which reports them with their location."""
    try:
        sender, receiver = kind.group(2)
        effects = sender.broadcast(b"", 0)
        if wrong := _wrong_id(effects.message):
            return (
                f"{wrong} as the message of broadcast: return Effects(sends, message=MessageId(me, number))"
            )
        for send in effects.sends:
            if ids := [wrong for each in send.packet.message_ids() if (wrong := _wrong_id(each))]:
                return f"{ids[0]} in message_ids() of a packet: it takes MessageIds"
            checked_paper_bytes(sender.paper_bytes(send.packet))
            receiver.receive(sender.me, send.packet, 0)
        delivery = checked_delivery(receiver.deliver(0))
        checked_waiting(receiver.waiting())
    except WrongResultError as error:
        return f"has a method with a wrong result: {error}"
    except (Exception, SystemExit):
        return ""
    if delivery is not None and (wrong := _wrong_id(delivery.message)):
        return f"{wrong} as the message of a delivery: return Delivery(MessageId(origin, number), payload)"
    return ""


def _wrong_id(value: object) -> str:
    if isinstance(value, MessageId):
        return ""
    return "returns nothing" if value is None else f"returns {value!r:.80}, a {type(value).__name__},"
