"""Which messages of the application the next one depends on immediately.

The order of a group that changes names messages that no application sees: admissions, removals, reports. What
applications are told of are their own: `m1`, an admission, `m2` is to them `m1`, `m2`. Where both are the
same, which is nearly always, a packet of `mbcp` says it; where not, or with another protocol, the payload
does.
"""

from __future__ import annotations

from antecede.causality import MessageId
from antecede.live.envelope import unwrap
from antecede.protocols.base import Delivery

Causes = dict[int, int]
"""Messages by origin."""


def causes_of(delivery: Delivery, is_copy: bool, named_in_packets: bool) -> Causes:
    """What a delivered message names, its sender's previous message aside.

    The packet of a copy, which a returning member has brought back, names what is before the copy.
    """
    named = unwrap(delivery.payload).causes
    if named is not None:
        return named
    return delivery.causes or {} if named_in_packets and not is_copy else {}


def follow(causes: Causes, message: MessageId, named: Causes) -> None:
    """A message is delivered: what it names is before the next one through it."""
    origin, seq = message
    for peer, count in named.items():
        if causes.get(peer) == count:
            del causes[peer]
    causes[origin] = seq


def split_own(causes: Causes, me: int, seq: int, known: dict[int, int]) -> tuple[bool, Causes]:
    """Whether message `seq` of this member follows its previous one immediately, and the other causes.

    Streams that are not `known` any more are delivered everywhere.

    >>> split_own({0: 4, 1: 7}, 0, 5, {0: 4, 1: 7})
    (True, {1: 7})
    >>> split_own({0: 3, 1: 7}, 0, 5, {0: 4})  # message 4 was none of the application
    (False, {0: 3})
    """
    named = {peer: count for peer, count in causes.items() if peer in known}
    if follows := named.get(me) == seq - 1:
        del named[me]
    return follows, named
