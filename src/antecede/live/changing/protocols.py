"""Which protocols dynamic live groups may use."""

from __future__ import annotations

from antecede.errors import InputError
from antecede.membership.catalog import (
    ChangingDepSeq,
    ChangingMbcp,
    ChangingPc,
    ChangingTimestamp,
    ChangingTimestampDiff,
    ChangingVcube,
    ChangingVcubeAgg,
)
from antecede.membership.freescale import ChangingFreescale
from antecede.membership.gateways import ChangingBasic, ChangingHcg
from antecede.membership.member import ChangingMember
from antecede.protocols.catalog import find_protocol
from antecede.protocols.flooding import Flooding

LIVE: dict[str, type[ChangingMember]] = {
    each.name: each
    for each in (
        ChangingMbcp,
        ChangingFreescale,
        ChangingVcube,
        ChangingVcubeAgg,
        ChangingPc,
        ChangingTimestamp,
        ChangingTimestampDiff,
        ChangingDepSeq,
        ChangingHcg,
        ChangingBasic,
    )
}
"""By name, as the setting `protocol` states it."""

WITH_PHONES: dict[str, type[ChangingFreescale]] = {
    name: kind for name, kind in LIVE.items() if issubclass(kind, ChangingFreescale)
}
"""Protocols whose members may have processes behind them: phones of super peers, local processes of
gateways."""


def live_kind(name: str) -> type[ChangingMember]:
    """The class of a group's members, or an `InputError` that suggests an alternative."""
    if name in LIVE:
        return LIVE[name]
    protocol = find_protocol(name)
    if protocol.overlapping_groups:
        why = "it is for several groups at once; write antecede.connect"
    elif name == Flooding.name:
        why = f"its links never change; write {ChangingPc.name}"
    else:
        why = "it is for groups with a fixed list of members, which have peers"
    raise InputError(f"protocol: {name} cannot be used here: {why}")
