"""How members agree to use a later version of the wire format during a rolling upgrade.

A packet for a single process may use a later version if that process speaks it, as stated in its greeting.
But messages are retained and forwarded by others, also to members that their sender does not know yet. So
messages use a later version only when no member can be of an earlier one:

1. A member that knows that everyone in its view speaks a version *requires* it: from then on it admits nobody
   who does not speak it. It tells the others.
2. That statement takes effect, as reports do, when everything that its sender had broadcast before is
   delivered. The members that the sender had admitted before are known by then, and have to require the same.
3. When all members of the view require the version, and all removed members whose streams may continue, it is
   used.

The version never decreases, because every later member is admitted by one that requires it. A newcomer
requires from the start what its sponsor requires, and the sponsor announces this before the welcome: others
may use the version before they know of the newcomer, and a member that the newcomer admits has to understand
them. Until it knows what all members require, the newcomer's own messages use the first version, which
everyone understands.
"""

from __future__ import annotations

import msgspec

from antecede.membership.packets import Stream, VersionRequired
from antecede.membership.reporting import ReportingMember
from antecede.protocols.base import Effects

FIRST = 1
"""The version of every process that has not stated another."""


class UpgradingMember(ReportingMember, kw_only=True):
    """Agrees with the other members on the version of what they broadcast."""

    speaks: int = FIRST
    """The greatest version that this process speaks; set by its driver."""
    requires: int = FIRST
    """This member admits only processes that speak this version."""
    version: int = FIRST
    """Everyone speaks this version, and so will all who join later: messages may use all of it."""
    spoken: dict[int, int] = msgspec.field(default_factory=dict)
    """By address, the greatest version that the process there shares with this one."""
    required: dict[int, VersionRequired] = msgspec.field(default_factory=dict)
    """By address, the version that the process there requires."""
    informed: dict[Stream, int] = msgspec.field(default_factory=dict)
    """By stream, the last required version that this member has announced to its member."""
    may_agree: bool = False
    """Whether an event since the last check may change the version."""

    def speaks_with(self, address: int) -> int:
        """The version of packets for the process at an address only."""
        return min(self.speaks, self.spoken.get(address, FIRST))

    def meet(self, address: int, version: int) -> Effects:
        """The process at an address has greeted; `version` is the greatest that both speak."""
        self.spoken[address], self.may_agree = version, True
        if self.is_member:
            self._agree()
        return self._effects()

    def part_with(self, address: int) -> None:
        """The link to an address no longer exists."""
        self.spoken.pop(address, None)
        self.required.pop(address, None)

    def _on_version_required(self, address: int, packet: VersionRequired) -> None:
        self.required[address], self.may_agree = packet, True
        admission = self.admissions.get(self.stream)
        if admission is not None and self.stream_at.get(address) == admission.origin:
            self._require(min(packet.version, self.speaks))

    def _require(self, version: int) -> None:
        if version > self.requires:
            self.requires = version
            self.requests = [each for each in self.requests if self.speaks_with(each) >= version]

    def _inform(self, stream: Stream, address: int) -> None:
        self.informed[stream] = self.requires
        self._send(address, VersionRequired(self.requires, self.order.delivered[self.stream]))

    def _announce_view(self) -> None:
        super()._announce_view()
        self.may_agree = True

    def _agree(self) -> None:
        """Determine what everyone requires by now. O(members), and only when that may have changed."""
        self.may_agree = False
        if self.speaks == FIRST or self.stream not in self.addresses:
            return  # a phone broadcasts through its super peer
        if self.requires == FIRST and self._has_not_met_all():
            return
        others = {each: at for each, at in self.addresses.items() if each != self.stream}
        shared = min((self.speaks_with(at) for at in others.values()), default=self.speaks)
        self._require(shared)
        self.informed = {each: version for each, version in self.informed.items() if each in others}
        for each in sorted(others):
            if self.requires > self.informed.get(each, FIRST) and self.speaks_with(others[each]) > FIRST:
                self._inform(each, others[each])
        self.version = max(self.version, min(self.requires, self._required_by_others()))

    def _has_not_met_all(self) -> bool:
        return any(at not in self.spoken for at in self.addresses.values() if at != self.me)

    def _required_by_others(self) -> int:
        """The greatest version that all other potential sponsors require, as far as their statements have
        taken effect."""
        address_of = {stream: address for address, stream in self.stream_at.items()}
        found = self.speaks
        for each in self._required():
            packet = self.required.get(address_of.get(each, -1))
            if packet is not None and packet.broadcasts > self.order.delivered.get(each, 0):
                self.may_agree, packet = True, None  # once that is delivered
            found = min(found, FIRST if packet is None else packet.version)
        return found
