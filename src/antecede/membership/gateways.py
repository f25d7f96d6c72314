"""`hcg` and `basic` in a dynamic group: gateways are members, local processes join and leave as phones do.

A dynamic subgroup is on linear time, and its gateway is the clock: local processes send only to the gateway,
which assigns the next number to every message. So within the subgroup a message names one time: the last
number that its sender has delivered. Between gateways it names a count for each, as in a fixed group: with
`hcg`, what its sender had delivered, which is what may precede it; with `basic`, everything that its gateway
had. Subgroups on real time or vector clocks cannot be dynamic: their members send to each other, and would
have to agree on the membership.
"""

from __future__ import annotations

from typing import Any, ClassVar

from antecede.membership.freescale import ChangingFreescale
from antecede.membership.packets import Counts, MembershipPacket
from antecede.membership.site import LiveSlot
from antecede.membership.site_packets import SitePacket
from antecede.protocols.freescale.packets import InternalAck, NumberAssignment, UplinkPacket
from antecede.protocols.hcg import Basic, Hcg
from antecede.protocols.timestamp import Timestamp


class GatewayOrder(Timestamp):
    """A count for each gateway, except that a member may broadcast for others, with their counts."""

    named: dict[int, int] | None = None

    def next_causes(self) -> dict[int, int]:
        if self.named is None or not self.delivered[self.me]:
            return super().next_causes()  # the first one names the message that admitted this member
        return dict(sorted(self.named.items()))

    def stamp(self, seq: int, payload: bytes) -> Any:
        packet = super().stamp(seq, payload)
        self.named = None
        return packet


class ChangingHcg(ChangingFreescale, kw_only=True):
    """A gateway or a local process."""

    name: ClassVar[str] = Hcg.name
    summary: ClassVar[str] = "one time in a subgroup, k counts between k gateways"
    control: ClassVar[str] = "1 number in a subgroup, k counts between k gateways"
    ordering: ClassVar[type[Any]] = GatewayOrder
    packets: ClassVar[Any] = (
        GatewayOrder.packets | MembershipPacket | SitePacket | UplinkPacket | NumberAssignment | InternalAck
    )
    is_linear: ClassVar[bool] = True

    order: GatewayOrder  # type: ignore[assignment]

    def _on_progress_of(self, place: LiveSlot, delivered_up_to: int) -> None:
        """Everything numbered up to there may precede its next message."""
        messages = self.site.table.messages
        for number in range(place.seen + 1, delivered_up_to + 1):
            if (message := messages.get(number)) is not None:
                place.counts[message.origin] = max(message.seq, place.counts.get(message.origin, 0))
        place.seen = max(place.seen, delivered_up_to)

    def _named_by(self, place: LiveSlot, packet: UplinkPacket) -> Counts | None:
        place.counts = self._known_only(place.counts)
        return place.counts


class ChangingBasic(ChangingHcg, kw_only=True):
    name: ClassVar[str] = Basic.name
    summary: ClassVar[str] = "as hcg, but a message follows all that its gateway had before it"

    def _named_by(self, place: LiveSlot, packet: UplinkPacket) -> Counts | None:
        return None
