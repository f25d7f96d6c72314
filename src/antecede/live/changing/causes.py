"""The direct dependencies of the next message, in terms of the application's own messages.

The order of a group with dynamic membership also contains messages that no application sees: admissions,
removals, reports. Applications see dependencies between their own messages only: after `m1`, an admission and
`m2`, `m2` depends on `m1`. Where both relations agree, which is nearly always, a packet of `mbcp` already
states them; where they differ, and with other protocols, the payload does.
"""

from __future__ import annotations

from antecede.causality import MessageId
from antecede.live.envelope import unwrap
from antecede.protocols.base import Delivery

Causes = dict[int, int]
"""Messages by origin."""


def causes_of(delivery: Delivery, is_copy: bool, named_in_packets: bool) -> Causes:
    """The dependencies that a delivered message names, except its sender's previous message.

    The packet of a copy, rebroadcast by a returning member, names the dependencies of the copy instead.
    """
    named = unwrap(delivery.payload).causes
    if named is not None:
        return named
    return delivery.causes or {} if named_in_packets and not is_copy else {}


def follow(causes: Causes, message: MessageId, named: Causes) -> None:
    """A message is delivered: its dependencies are now implied by it."""
    origin, seq = message
    for peer, count in named.items():
        if causes.get(peer) == count:
            del causes[peer]
    causes[origin] = seq


def split_own(causes: Causes, me: int, seq: int, known: dict[int, int]) -> tuple[bool, Causes]:
    """Whether message `seq` of this member directly follows its previous one, and the other causes.

    Streams that are no longer `known` are delivered everywhere.

    >>> split_own({0: 4, 1: 7}, 0, 5, {0: 4, 1: 7})
    (True, {1: 7})
    >>> split_own({0: 3, 1: 7}, 0, 5, {0: 4})  # message 4 was not the application's
    (False, {0: 3})
    """
    named = {peer: count for peer, count in causes.items() if peer in known}
    if follows := named.get(me) == seq - 1:
        del named[me]
    return follows, named
