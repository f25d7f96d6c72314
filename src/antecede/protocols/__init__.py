"""Every causal broadcast protocol behind one interface: state machines that do no I/O.

    effects = member.broadcast(payload, now)         # the application broadcasts
    effects = member.receive(link, packet, now)      # a packet arrived
    for send in effects.sends: ...                   # the driver carries these out first
    while (delivery := member.deliver(now)): ...     # then asks what to deliver

The simulator, the live node and the tests are drivers of the same objects. To write a protocol, subclass
`Protocol`; every command that takes a protocol's name also takes `module:Class`.
"""

from antecede.protocols.base import (
    NO_EFFECTS,
    Delivery,
    Effects,
    HoldBackQueue,
    Layout,
    LinkRequirements,
    LocalError,
    Packet,
    Protocol,
    RemoteError,
    Send,
    Waiting,
)
from antecede.protocols.catalog import PROTOCOLS, find

__all__ = [
    "NO_EFFECTS",
    "PROTOCOLS",
    "Delivery",
    "Effects",
    "HoldBackQueue",
    "Layout",
    "LinkRequirements",
    "LocalError",
    "Packet",
    "Protocol",
    "RemoteError",
    "Send",
    "Waiting",
    "find",
]
