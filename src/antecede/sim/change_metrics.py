"""The cost and the duration of membership changes."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from antecede.membership.packets import PLAIN, MembershipPacket, decode_content
from antecede.protocols.base import Packet
from antecede.protocols.freescale.packets import InternalAck, NumberAssignment, NumberedPacket
from antecede.units import SECOND

QUARTERS = 4
_MS = SECOND / 1000

_COST_OF = {
    "join": "join", "welcome": "join", "AdmitMember": "join", "Disowning": "join", "nobody": "join",
    "Departure": "leave", "departed": "leave", "farewell": "leave",
    "Removal": "removal", "FlushReport": "removal", "refused": "removal", "unnumbered": "removal",
    "progress": "report", "fetch": "repair", "fetched": "repair",
    "test": "test", "test_answer": "test",
    "phone_join": "phone", "phone_welcome": "phone", "phone_leave": "phone", "phone_refused": "phone",
    "move": "phone", "move_ready": "phone", "release": "phone", "released": "phone", "arrival": "phone",
    "stable": "report", "Expulsion": "phone",
}  # fmt: skip
"""The purpose of a packet, by its metric name or by the type of what it broadcasts; other packets belong to
links."""
_COSTS = ("join", "leave", "removal", "report", "repair", "linking", "test", "phone")


class ChangeMeter:
    """Counts and durations of changes. Figures are 0 if the event they measure did not occur."""

    def __init__(self, until: int) -> None:
        self._until = max(1, until)
        self.counts = dict.fromkeys(
            ("joins", "leaves", "removals", "crashes", "returns", "suspicions", "false_suspicions"), 0
        )
        self._costs = {purpose: [0, 0] for purpose in _COSTS}
        """The number of packets, once for each destination, and their bytes including what they broadcast."""
        self._asked: dict[int, int] = {}
        self._admitted: dict[int, int] = {}
        self._first_delivered: dict[int, int] = {}
        self._detected: list[int] = []
        self._heard_of: dict[int, int] = {}
        self._closed: dict[int, int] = {}
        self._control = [[0, 0] for _ in range(QUARTERS)]
        self._link_bytes = [0] * QUARTERS
        self.state_bytes = [0.0] * QUARTERS

    # Costs.

    def sent(self, time: int, control: int) -> None:
        """A message leaves its sender with this many control bytes."""
        quarter = self._control[self._quarter(time)]
        quarter[0] += 1
        quarter[1] += control

    def transmitted(self, packet: Packet, copies: int, control: int, time: int) -> None:
        self._link_bytes[self._quarter(time)] += control * copies
        purpose = purpose_of(packet)
        if purpose is not None:
            costs = self._costs[purpose]
            costs[0] += copies
            costs[1] += copies * (control + packet.payload_bytes())

    def _quarter(self, time: int) -> int:
        return min(QUARTERS - 1, time * QUARTERS // self._until)

    # Times.

    def asked(self, address: int, since: int) -> None:
        """The process at an address asks to be admitted; it first asked at `since`."""
        self._asked[address] = since

    def asked_at(self, address: int) -> int:
        return self._asked[address]

    def admitted(self, address: int, time: int) -> None:
        self.counts["joins"] += 1
        self._admitted[address] = time - self._asked[address]

    def delivered(self, address: int, time: int) -> None:
        if address in self._admitted and address not in self._first_delivered:
            self._first_delivered[address] = time - self._asked[address]

    def suspected(self, down_for: int | None) -> None:
        """A member suspects another, which has been down for this long; None if it is not down."""
        self.counts["suspicions"] += 1
        if down_for is None:
            self.counts["false_suspicions"] += 1
        else:
            self._detected.append(down_for)

    def changed(self, kind: str, member: int, time: int) -> None:
        """Some member has seen a change of the view."""
        if kind == "remove":
            self._heard_of[member] = time
        elif kind == "close" and member in self._heard_of:
            self._closed[member] = time

    def figures(self) -> dict[str, float]:
        counts = self.counts
        counts["removals"] = len(self._heard_of)
        figures: dict[str, float] = dict(counts)
        figures |= _times("join_welcome", list(self._admitted.values()))
        figures |= _times("join_first_delivery", list(self._first_delivered.values()))
        figures |= _times("detection", self._detected)
        after = [
            self._closed[member] - heard for member, heard in self._heard_of.items() if member in self._closed
        ]
        figures |= _times("removal_after_heard", after)
        per = {"join": counts["joins"], "leave": counts["leaves"], "removal": counts["removals"]}
        for purpose, (packets, size) in self._costs.items():
            number = max(1, per.get(purpose, 1))
            figures[f"{purpose}_packets"], figures[f"{purpose}_bytes"] = packets / number, size / number
        for quarter in range(QUARTERS):
            messages, control = self._control[quarter]
            figures[f"control_bytes_quarter_{quarter + 1}"] = control / max(1, messages)
            figures[f"link_bytes_quarter_{quarter + 1}"] = self._link_bytes[quarter]
            figures[f"state_bytes_quarter_{quarter + 1}"] = self.state_bytes[quarter]
        return figures


def purpose_of(packet: Packet) -> str | None:
    """The purpose of a packet, if it carries more than the application's messages."""
    if isinstance(packet, MembershipPacket):
        return _COST_OF[packet.metric_prefix()]
    if isinstance(packet, NumberedPacket | NumberAssignment | InternalAck):
        return None
    contents = [each for payloads in packet.payloads_by_span() for each in payloads]
    if not contents:
        return _COST_OF.get(packet.metric_prefix(), "linking")
    changes = [each for each in contents if each[:1] != PLAIN]
    if not changes:
        return None
    return _COST_OF.get(type(decode_content(changes[0])).__name__)


def _times(name: str, times: Sequence[int]) -> dict[str, float]:
    mean, longest = (fmean(times), max(times)) if times else (0.0, 0)
    return {f"{name}_mean_ms": mean / _MS, f"{name}_max_ms": longest / _MS}
