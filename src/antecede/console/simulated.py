"""Reports of members of a simulated run, in the form in which live members report to the console."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from antecede.causality import MessageId
from antecede.console.run_notes import ProcessNotes, RunNotes
from antecede.live import messages
from antecede.live.changing.inspection import ChangingInspection
from antecede.live.inspection import DeliveredUpTo, Inspection
from antecede.live.operations import state
from antecede.live.operations.state import MemberMessages, MemberReport
from antecede.live.view import ViewMember
from antecede.membership.member import ChangingMember
from antecede.membership.state import Phase
from antecede.protocols.base import Protocol, Waiting
from antecede.sim.changing_world import ChangingGroupWorld
from antecede.sim.scenario import Scenario
from antecede.sim.world import World

_SHOWN_MESSAGES = 60
_STATES = {Phase.MEMBER: "open", Phase.LEAVING: "leaving"}


class FixedMemberInspection(Inspection):
    """Reports on a member of a fixed group. It does not know how far others have delivered, since members
    report that only in live groups. In overlapping groups, messages do not go to all members, so its own
    progress is not reported either."""

    def __init__(self, member: Protocol, notes: RunNotes, now: float, overlaps: bool) -> None:
        self._member, self._all, self._now, self._overlaps = member, notes, now, overlaps
        self._notes = notes.of(member.me)

    def count_held(self) -> int:
        return self._member.count_held()

    def held_seconds(self) -> float:
        since = (self._since(wait.message) for wait in self.waits())
        return max((self._now - each for each in since), default=0.0)

    def waits(self) -> list[Waiting]:
        return self._member.waiting()

    def describe(self, wait: Waiting) -> messages.HeldMessage:
        cause = None if wait.cause is None else self._id(wait.cause)
        holders = () if cause is None else (cause.origin,)
        return messages.HeldMessage(self._id(wait.message), cause, self._since(wait.message), holders)

    def progress(self) -> list[DeliveredUpTo]:
        if self._overlaps:
            return []
        found, notes = [], self._notes
        for origin in range(self._member.size):
            delivered = notes.delivered_up_to.get(origin, 0)
            received = max(delivered, notes.received_up_to(origin))
            found.append(DeliveredUpTo(self._all.names[origin], received, delivered, 0))
        return found

    def behind_by(self) -> dict[str, int]:
        return {}

    def _since(self, message: MessageId) -> float:
        arrived = self._notes.arrived.get(message)
        return self._now if arrived is None else self._all.seconds(arrived)

    def _id(self, message: MessageId) -> messages.MessageId:
        return messages.MessageId(self._all.names[message.origin], message.seq)


class _Inspected(NamedTuple):
    member: ChangingMember
    labels: Mapping[int, str]

    @property
    def phase(self) -> Phase:
        return self.member.phase

    @property
    def me(self) -> int:
        return self.member.stream


class ChangingMemberInspection(ChangingInspection):
    """Reports on a member of a changing group, which knows from progress reports how far others have
    delivered."""

    def __init__(self, inspected: _Inspected, notes: RunNotes, world: ChangingGroupWorld, now: float) -> None:
        super().__init__(inspected, lambda: now)
        arrived = notes.of(inspected.member.me).arrived
        for wait in self.waits():
            # The observer does not record states of members, so a state is dated from the first time it is
            # seen.
            named = MessageId(world.addresses[wait.message.origin], wait.message.seq)
            if named in arrived:
                self._held_since[wait.message] = notes.seconds(arrived[named])


class SimulatedGroup:
    """The members of a run in their present state."""

    def __init__(self, scenario: Scenario, world: World, notes: RunNotes) -> None:
        self._scenario, self._world, self._notes = scenario, world, notes
        self._overlaps = scenario.groups is not None and len(scenario.groups) > 1

    def present(self) -> list[int]:
        """The addresses of members, including those that have crashed and that others still count as
        members."""
        world = self._world
        if not isinstance(world, ChangingGroupWorld):
            return list(range(len(world.members)))
        seen = {
            address
            for member in world.members
            if member.is_member and not world.is_down(member.me)
            for address in member.addresses.values()
        }
        return [
            member.me
            for member in world.members
            if member.phase in _STATES and (member.me in seen or not world.is_down(member.me))
        ]

    def is_down(self, address: int) -> bool:
        return self._world.is_down(address)

    def name(self, address: int) -> str:
        return self._notes.names[address]

    def messages(self, address: int) -> MemberMessages:
        return MemberMessages(self.name(address), list(self._notes.of(address).recent))

    def report(self, address: int, now: float) -> MemberReport:
        member, notes = self._world.members[address], self._notes.of(address)
        if isinstance(member, ChangingMember) and isinstance(self._world, ChangingGroupWorld):
            return self._changing_report(member, self._world, notes, now)
        names, partners = self._notes.names, member.partners()
        inspection = FixedMemberInspection(member, self._notes, now, self._overlaps)
        view = [
            ViewMember(name, name, "", self._is_linked(address, other))
            for other, name in enumerate(names[: member.size])
        ]
        connected = [names[other] for other in partners if self._is_linked(address, other)]
        links = [names[other] for other in partners]
        return self._report(address, notes, now, inspection, view, (links, connected))

    def _changing_report(
        self, member: ChangingMember, world: ChangingGroupWorld, notes: ProcessNotes, now: float
    ) -> MemberReport:
        names = self._notes.names
        labels = {stream: names[address] for stream, address in world.addresses.items()}
        inspection = ChangingMemberInspection(_Inspected(member, labels), self._notes, world, now)
        suspected = world.suspected_by(member.me)
        view = []
        for stream, address in sorted(member.addresses.items()):
            since = suspected.get(stream)
            joined = world.joined_at(address)
            view.append(
                ViewMember(
                    labels[stream],
                    labels[stream],
                    "",
                    self._is_linked(member.me, address),
                    None if since is None else self._notes.seconds(since),
                    None if joined is None else self._notes.seconds(joined),
                )
            )
        others = [address for address in sorted(member.addresses.values()) if address != member.me]
        links = [names[other] for other in others]
        connected = [names[other] for other in others if self._is_linked(member.me, other)]
        removing = [labels[stream] for stream in sorted(member.removals.removed - member.ends.keys())]
        retained = (each for by_seq in member.unstable.values() for each in by_seq.values())
        unstable_bytes = sum(len(each.packet) for each in retained)
        return self._report(
            member.me, notes, now, inspection, view, (links, connected), removing, unstable_bytes
        )

    def _report(
        self,
        address: int,
        notes: ProcessNotes,
        now: float,
        inspection: Inspection,
        view: list[ViewMember],
        links: tuple[list[str], list[str]],
        removing: list[str] | None = None,
        unstable_bytes: int = 0,
    ) -> MemberReport:
        world, scenario = self._world, self._scenario
        is_changing = isinstance(world, ChangingGroupWorld)
        member = world.members[address]
        opened = world.joined_at(address) if isinstance(world, ChangingGroupWorld) else 0
        return MemberReport(
            version=state.VERSION,
            opened=self._notes.seconds(opened or 0),
            group=f"simulated, seed {scenario.seed}{', ended' if world.next_time is None else ''}",
            protocol=scenario.protocol,
            me=self.name(address),
            state=_STATES[member.phase] if isinstance(member, ChangingMember) else "open",
            changes_members=is_changing,
            members=view,
            removing=removing or [],
            partners=links[0],
            connected=links[1],
            timeouts={},
            broadcast=notes.broadcast,
            delivered=notes.delivered,
            for_application=0,
            held=inspection.count_held(),
            held_seconds=inspection.held_seconds(),
            missing=state.missing(inspection),
            progress=inspection.progress(),
            behind=inspection.behind_by(),
            unstable_bytes=unstable_bytes,
            limit=0,
            problems=[],
            changes=list(notes.changes),
            notices=[],
            messages=list(notes.recent)[-_SHOWN_MESSAGES:],
            time=now,
            knows_stability=is_changing,
        )

    def _is_linked(self, one: int, other: int) -> bool:
        """Whether packets between the two arrive now, in both directions."""
        world = self._world
        return not (world.is_down(other) or world.is_cut(one, other))
