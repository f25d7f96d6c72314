"""The groups and schedules of the diagrams."""

from __future__ import annotations

from typing import Any

from play import Names, Story, waits

from antecede.protocols.depseq import DepSeq
from antecede.protocols.flooding import Flooding
from antecede.protocols.freescale import Freescale, FreescaleLayout
from antecede.protocols.freescale.packets import (
    DownlinkPacket,
    ExternalPacket,
    NumberAssignment,
    UplinkPacket,
)
from antecede.protocols.hcg import Basic, GatewayPacket, Hcg, SubgroupLayout
from antecede.protocols.hcg.packets import SubgroupPacket
from antecede.protocols.mbcp import Mbcp
from antecede.protocols.multigroup import Multigroup
from antecede.protocols.pc import OverlayLayout, Pc
from antecede.protocols.timestamp import Timestamp, TimestampDiff
from antecede.protocols.vcube import Vcube, VcubeAgg

_TWO_IN_A_ROW = """
    1 ana sends m1
    3 m1: ana > bo
    4 bo sends m2
    6 m2: bo > cleo
    7 bo sends m3
    8 m2: bo > ana
    9 m3: bo > cleo
    10 m3: bo > ana
    11 m1: ana > cleo
"""

_AFTER_BOTH = """
    1 ana sends m1
    3 m1: ana > bo
    3 m1: ana > cleo
    5 m1: ana > dan
    5 bo sends m2
    5 cleo sends m3
    7 m2: bo > cleo
    7 m2: bo > ana
    7 m3: cleo > dan
    8 m2: bo > dan
    9 m3: cleo > ana
    10 dan sends m4
    12 m4: dan > bo
    12 m4: dan > ana
    12 m4: dan > cleo
    14 m3: cleo > bo
"""


def _pairs(packet: Any, names: Names) -> str:
    return names.pairs(packet.causes)


def _clock(packet: Any, _names: Names) -> str:
    return str(packet.clock)


def _intervals(packet: Any, names: Names) -> str:
    named = (
        f"{names.peers[peer]} {first}–{last}"
        for peer, intervals in packet.before.items()
        for first, last in intervals
    )
    return "{" + ", ".join(named) + "}"


def _groups(packet: Any, names: Names) -> str:
    named = ", ".join(names.message(sender, seq) for sender, _, seq in packet.causes)
    return f"to {('red', 'blue', 'green')[packet.group]} {{{named}}}"


def _numbers(packet: Any, names: Names) -> str:
    """Inside, numbers of the super peer; outside, pairs."""
    match packet:
        case UplinkPacket():
            return "{" + _listed(packet.causes.numbers()) + "}"
        case DownlinkPacket():
            return f"= #{packet.number} {{{_listed(packet.causes.numbers())}}}"
        case NumberAssignment():
            return f"{names.message(names.peers.index('pat'), packet.seq)} = #{packet.number}"
        case ExternalPacket():
            pairs = [f"{names.peers[peer]}:{count}" for peer, count in packet.peers.items()]
            pairs += [f"sue:{_listed(row.numbers())}" for row in packet.supers.values()]
            number = f"= #{packet.number} " if packet.origin < 3 else ""
            return f"{number}{{{', '.join(pairs)}}}"
    return ""


def _listed(numbers: list[int]) -> str:
    return ", ".join(f"#{number}" for number in numbers)


def _bundled(packet: Any, names: Names) -> str:
    return " ".join(names.pairs(message.causes) for message in packet.messages)


def _forwarding(member: Any, names: Names) -> dict[str, str]:
    """The messages waiting to be forwarded to a child; otherwise the held ones."""
    held = {}
    for cause, messages in member.blocked.items():
        for message in messages:
            held[names.message(*message)] = f"waits at this relay for {names.message(*cause)}"
    return held or waits(member, names)


def _buffered(member: Any, names: Names) -> dict[str, str]:
    return {
        names.packet(packet): f"is buffered for {names.peers[link]}"
        for link, unsafe in member.unsafe_links.items()
        for packet in unsafe.buffer
    }


def _stamps(packet: Any, _names: Names) -> str:
    match packet:
        case SubgroupPacket():
            return f"at {packet.stamp[0]}" if len(packet.stamp) == 1 else str(packet.stamp)
        case GatewayPacket():
            return f"= #{packet.number} after {packet.counts}"
    return ""


def _turns(member: Any, names: Names) -> dict[str, str]:
    """The messages waiting for a time or, at a gateway, for their dependencies."""
    here = {
        names.packet(packet): f"waits until {packet.stamp[0] + member.clock.wait}"
        for packet, _ in member.clock.held()
        if packet.origin != member.me
    }
    for (_, packet), need in member.holdback.waiting():
        here[names.packet(packet)] = f"waits for #{need.number} of subgroup {need.source + 1}"
    return here


_CUBE = """
    1 p2 sends m1
    3 m1: p2 > p0
    3 m1: p2 > p6
    4 p0 sends m2
    6 m2: p0 > p4
    6 m2: p0 > p2
"""
_CUBE_PEERS = "p0 p1 p2 p3 p4 p5 p6 p7"
_CUBE_DRAWN = "p0 p2 p6 p4 p5"

_SUBGROUPS = """
    1 pia sends x
    2 x: pia > gil
    4 x: gil > gus
    5 x: gus > pam
    6 pam sends y
    7 y: pam > gus
    10 y: gus > gil
    10 y: gus > geo
    11 y: gil > pia
    12 x: gil > geo
"""


def _sites(kind: type[Hcg]) -> Any:
    return lambda: kind.with_layout(5, SubgroupLayout(["rt:2", "vt:2", "vt:1"], longest_delay=2))


STORIES: dict[str, Story] = {
    "timestamp": Story(lambda: Timestamp.group(3), "ana bo cleo", _TWO_IN_A_ROW, _clock),
    "timestamp-diff": Story(lambda: TimestampDiff.group(3), "ana bo cleo", _TWO_IN_A_ROW, _pairs),
    "mbcp": Story(lambda: Mbcp.group(4), "ana bo cleo dan", _AFTER_BOTH, _pairs),
    "depseq": Story(lambda: DepSeq.group(4), "ana bo cleo dan", _AFTER_BOTH, _intervals),
    "multigroup": Story(
        lambda: Multigroup.with_groups({"red": (0, 1, 3), "blue": (1, 2), "green": (2, 3)}, 4),
        "ana bo cleo dan",
        """
        1 ana sends m1 to red
        3 m1: ana > bo
        4 bo sends m2 to blue
        6 m2: bo > cleo
        7 cleo sends m3 to green
        9 m3: cleo > dan
        11 m1: ana > dan
        """,
        _groups,
    ),
    "freescale": Story(
        lambda: Freescale.with_layout(5, FreescaleLayout([2])),
        "sue pat quin eve ed",
        """
        1 eve sends m1
        3 m1: eve > sue
        5 m1: sue > pat
        5 m1: sue > quin
        6 pat sends m2
        8 m2: pat > sue
        10 m2: sue > ed
        10 m2: sue > quin
        11 m2: sue > eve
        11 number: sue > pat
        13 m1: eve > ed
        """,
        _numbers,
        drawn="pat quin sue eve ed",
    ),
    "flooding": Story(
        lambda: Flooding.group(4),
        "ana bo cleo dan",
        """
        1 ana sends m1
        3 m1: ana > bo
        4 bo sends m2
        5 m1: bo > dan
        6 m2: bo > dan
        6 m2: bo > ana
        7 m1: dan > cleo
        9 m2: dan > cleo
        9 m1: cleo > ana
        11 m1: ana > cleo
        11 m2: cleo > ana
        12 m2: ana > cleo
        """,
    ),
    "vcube": Story(
        lambda: Vcube.group(8),
        _CUBE_PEERS,
        _CUBE
        + """
    8 m2: p4 > p5
    8 m2: p4 > p6
    10 m1: p6 > p4
    12 m1: p4 > p5
""",
        _pairs,
        drawn=_CUBE_DRAWN,
    ),
    "vcube-agg": Story(
        lambda: VcubeAgg.group(8),
        _CUBE_PEERS,
        _CUBE
        + """
    8 m2: p4 > p6
    10 m1: p6 > p4
    12 m1+m2: p4 > p5
""",
        _bundled,
        _forwarding,
        drawn=_CUBE_DRAWN,
    ),
    "pc": Story(
        lambda: Pc.with_layout(3, OverlayLayout("line")),
        "ana bo cleo",
        """
        1 ana sends m1
        3 link ana cleo opens
        5 ana sends m2
        6 m1: ana > bo
        7 ping: ana > bo
        8 m2: ana > bo
        9 m1: bo > cleo
        10 ping: bo > cleo
        11 m1: cleo > ana
        12 pong: cleo > ana
        14 m2: ana > cleo
        15 m2: bo > cleo
        16 m2: cleo > bo
        """,
        holds=_buffered,
    ),
    "hcg": Story(_sites(Hcg), "gus pam gil pia geo", _SUBGROUPS, _stamps, _turns, "pam gus gil pia geo"),
    "basic": Story(_sites(Basic), "gus pam gil pia geo", _SUBGROUPS, _stamps, _turns, "pam gus gil pia geo"),
}
