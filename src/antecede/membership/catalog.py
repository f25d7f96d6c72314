"""The protocols with dynamic groups, by their names in fixed groups."""

from __future__ import annotations

from typing import Any, ClassVar

from antecede.membership.freescale import ChangingFreescale
from antecede.membership.gateways import ChangingBasic, ChangingHcg
from antecede.membership.member import ChangingMember
from antecede.membership.multigroup import ChangingMultigroup
from antecede.membership.packets import MembershipPacket
from antecede.membership.view_flooding import ViewFlooding
from antecede.protocols.depseq import DepSeq
from antecede.protocols.mbcp import Mbcp
from antecede.protocols.pc import Pc
from antecede.protocols.timestamp import Timestamp, TimestampDiff
from antecede.protocols.vcube import Vcube, VcubeAgg


class ChangingMbcp(ChangingMember):
    name: ClassVar[str] = Mbcp.name
    kernel: ClassVar[str] = "changing"
    summary: ClassVar[str] = Mbcp.summary
    control: ClassVar[str] = Mbcp.control
    ordering: ClassVar[type[Any]] = Mbcp
    packets: ClassVar[Any] = Mbcp.packets | MembershipPacket

    order: Mbcp


class ChangingTimestamp(ChangingMember):
    name: ClassVar[str] = Timestamp.name
    summary: ClassVar[str] = Timestamp.summary
    control: ClassVar[str] = Timestamp.control
    ordering: ClassVar[type[Any]] = Timestamp
    packets: ClassVar[Any] = Timestamp.packets | MembershipPacket

    order: Timestamp


class ChangingTimestampDiff(ChangingMember):
    name: ClassVar[str] = TimestampDiff.name
    kernel: ClassVar[str] = "changing"
    summary: ClassVar[str] = TimestampDiff.summary
    control: ClassVar[str] = TimestampDiff.control
    ordering: ClassVar[type[Any]] = TimestampDiff
    packets: ClassVar[Any] = TimestampDiff.packets | MembershipPacket

    order: TimestampDiff


class ChangingDepSeq(ChangingMember):
    name: ClassVar[str] = DepSeq.name
    summary: ClassVar[str] = DepSeq.summary
    control: ClassVar[str] = DepSeq.control
    ordering: ClassVar[type[Any]] = DepSeq
    packets: ClassVar[Any] = DepSeq.packets | MembershipPacket

    order: DepSeq


class ChangingVcube(ChangingMember):
    name: ClassVar[str] = Vcube.name
    kernel: ClassVar[str] = "changing"
    summary: ClassVar[str] = Vcube.summary
    control: ClassVar[str] = Vcube.control
    ordering: ClassVar[type[Any]] = Vcube
    reroutes: ClassVar[bool] = True
    packets: ClassVar[Any] = Vcube.packets | MembershipPacket

    order: Vcube


class ChangingVcubeAgg(ChangingMember):
    name: ClassVar[str] = VcubeAgg.name
    summary: ClassVar[str] = VcubeAgg.summary
    control: ClassVar[str] = VcubeAgg.control
    ordering: ClassVar[type[Any]] = VcubeAgg
    reroutes: ClassVar[bool] = True
    packets: ClassVar[Any] = VcubeAgg.packets | MembershipPacket

    order: VcubeAgg


class ChangingPc(ChangingMember):
    name: ClassVar[str] = Pc.name
    kernel: ClassVar[str] = "changing"
    summary: ClassVar[str] = "its identity; FIFO links of a hypercube that follows the view"
    control: ClassVar[str] = "none; n counts when a link opens"
    ordering: ClassVar[type[Any]] = ViewFlooding
    packets: ClassVar[Any] = ViewFlooding.packets | MembershipPacket

    order: ViewFlooding


CHANGING: dict[str, type[ChangingMember]] = {
    each.name: each
    for each in (
        ChangingMbcp,
        ChangingTimestamp,
        ChangingTimestampDiff,
        ChangingDepSeq,
        ChangingVcube,
        ChangingVcubeAgg,
        ChangingPc,
        ChangingFreescale,
        ChangingHcg,
        ChangingBasic,
        ChangingMultigroup,
    )
}

MEMBERS = "members join, leave, are removed, return"
SITES = f"{MEMBERS}; so do %s, which also move"

CHANGES: dict[str, str] = {
    **dict.fromkeys(CHANGING, MEMBERS),
    "flooding": "becomes pc",
    "freescale": SITES % "phones",
    "hcg": f"{SITES % 'local processes'}; subgroups on linear time only",
    "basic": f"{SITES % 'local processes'}; subgroups on linear time only",
    "multigroup": f"{MEMBERS}, in each group; one joined at a time",
}
"""What may change in a group of each protocol."""
