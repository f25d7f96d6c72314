"""Every schedule of a small group with phones.

The bound on joins applies to phones and their moves; those on leaves and removals apply to phones that leave
and phones that are expelled.
"""

from __future__ import annotations

from antecede.check.changing.explore import ExploredGroup, ExploredProcess, ExploredStep, NumberedWorld
from antecede.check.changing.random_schedules import RandomSchedule
from antecede.check.changing.sites import SiteSchedule, SiteWorld
from antecede.check.changing.world import ChangingWorld
from antecede.membership.freescale import ChangingFreescale
from antecede.membership.member import ChangingMember
from antecede.membership.state import Phase
from antecede.protocols.base import Send


class _NumberedSiteWorld(NumberedWorld, SiteWorld):
    pass


class ExploredSites(ExploredGroup):
    """The first processes are members, the others phones."""

    kind: type[ChangingFreescale]

    @property
    def addresses(self) -> int:
        return self.bounds.peers

    def create_members(self) -> list[ChangingMember]:
        peers = self.bounds.peers
        members: list[ChangingMember] = list(self.kind.founders(peers, peers))
        return members + [self.kind.phone_outside(me, me + 1) for me in range(peers, self.size)]

    def create_world(self) -> ChangingWorld:
        peers = self.bounds.peers
        return _NumberedSiteWorld(self.kind, peers, peers, self.size - peers)

    def create_schedule(self, world: ChangingWorld) -> RandomSchedule:
        return SiteSchedule.of_world(world)

    def _answer_requests(self, member: ChangingMember, snapshot: bytes) -> list[Send]:
        sends = super()._answer_requests(member, snapshot)
        if isinstance(member, ChangingFreescale):
            while member.site.requests and not member.undelivered:
                sends += member.admit_phone(member.site.requests[0][0], snapshot, 0).sends
        return sends

    def _compute(self, before: ExploredProcess, kind: str, about: int) -> ExploredStep | None:
        member = self.kind.restore(before.saved)
        phone = member.phone
        if kind == "report" and phone is not None:
            return None
        if kind == "leave" and phone is not None:
            return None
        if kind == "attach":
            return self._follow(member, before, member.attach(about, 0))
        if kind == "move":
            is_possible = phone is not None and phone.may_move(about)
            return self._follow(member, before, member.move(about, 0)) if is_possible else None
        if kind == "detach":
            is_possible = phone is not None and phone.may_leave()
            return self._follow(member, before, member.detach(0)) if is_possible else None
        if kind == "expel":
            is_possible = about in member.site.slots or about in member.site.coming
            return self._follow(member, before, member.expel(about, 0)) if is_possible else None
        return super()._compute(before, kind, about)

    def _own(self, address: int, number: int) -> list[tuple[str, int]]:
        found = self._own_events.get(number)
        if found is None:
            member = self.kind.restore(self.states[number].saved)
            peers = self.bounds.peers
            possible = [("broadcast", -1), ("deliver", -1)]
            if member.phone is None:
                possible.append(("report", -1))
                possible += [("expel", each) for each in range(peers, self.size)]
            else:
                possible.append(("detach", -1))
                possible += [("move", each) for each in range(peers)]
                if member.phase == Phase.OUTSIDE:
                    possible += [("attach", each) for each in range(peers)]
            found = [each for each in possible if self.step(number, *each) is not None]
            self._own_events[number] = found
        return found
