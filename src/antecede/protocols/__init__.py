"""Every causal broadcast protocol behind one interface: state machines that do no I/O.

    effects = member.broadcast(payload, now)         # the application broadcasts
    effects = member.receive(link, packet, now)      # a packet arrived
    for send in effects.sends: ...                   # the driver carries these out first
    while (delivery := member.deliver(now)): ...     # then asks what to deliver

The simulator, the live node and the tests are drivers of the same objects. To write a protocol, subclass
`Protocol`; every command that takes a protocol's name also takes `module:Class`.
"""

from antecede.causality import MessageId
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
from antecede.protocols.catalog import PROTOCOLS, find_protocol
from antecede.protocols.depseq import DepSeq
from antecede.protocols.flat import Flat
from antecede.protocols.flooding import Flooding
from antecede.protocols.freescale import Freescale, FreescaleLayout
from antecede.protocols.hcg import Basic, Hcg, SubgroupLayout
from antecede.protocols.mbcp import Mbcp
from antecede.protocols.multigroup import Multigroup
from antecede.protocols.pc import OverlayLayout, Pc
from antecede.protocols.timestamp import Timestamp, TimestampDiff
from antecede.protocols.vcube import Vcube, VcubeAgg

__all__ = [
    "NO_EFFECTS",
    "PROTOCOLS",
    "Basic",
    "Delivery",
    "DepSeq",
    "Effects",
    "Flat",
    "Flooding",
    "Freescale",
    "FreescaleLayout",
    "Hcg",
    "HoldBackQueue",
    "Layout",
    "LinkRequirements",
    "LocalError",
    "Mbcp",
    "MessageId",
    "Multigroup",
    "OverlayLayout",
    "Packet",
    "Pc",
    "Protocol",
    "RemoteError",
    "Send",
    "SubgroupLayout",
    "Timestamp",
    "TimestampDiff",
    "Vcube",
    "VcubeAgg",
    "Waiting",
    "find_protocol",
]


def __dir__() -> list[str]:
    return __all__
