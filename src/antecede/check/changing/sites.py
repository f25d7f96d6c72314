"""Changing groups with phones: what happens to them, random schedules, and the verdict.

Phones have addresses of their own, after those of members. Events besides those of members:

- attach: the phone asks the member at the second address for a slot
- detach: it leaves
- move: it asks the member at the second address for a slot, and goes there
- orphan: its super peer was removed or has crashed, so it gives up
- expel: the member at the first address expels the phone at the second
- return: the phone that was expelled, or whose super peer was removed, asks again, at the next free address
"""

from __future__ import annotations

from typing import Any

from antecede.check.changing.oracle import ChangingOracle
from antecede.check.changing.random_schedules import RandomSchedule
from antecede.check.changing.world import ChangingWorld, IncarnationRecord, ScheduleEvent, write_messages
from antecede.membership.freescale import ChangingFreescale
from antecede.membership.member import ChangingMember
from antecede.membership.phone import Phone
from antecede.membership.state import Phase
from antecede.protocols.base import Effects

PHONES = 5
_VERSION = 2
"""The version of the wire format since which super peers report the phones they have expelled, and first
settle what a phone has brought."""
_PHONE_APART = 0.3
"""The probability that a burst leaves out a phone."""


class SiteWorld(ChangingWorld):
    """A group in which the last `phones` addresses belong to phones."""

    def __init__(self, kind: type[ChangingFreescale], founders: int, size: int, phones: int = PHONES) -> None:
        super().__init__(kind, founders, size)
        self.phone_kind = kind
        self.hubs: dict[int, list[int]] = {}
        """The addresses of the super peers that each phone has had or asked."""
        for member in self.members:
            self._upgrade(member)
        for me in range(size, size + phones):
            self._add_phone(me)

    def _upgrade(self, member: ChangingMember) -> None:
        """All members have agreed on the wire version."""
        member.version = _VERSION

    def _begin_attempt(self, process: list[int], contact: int) -> ChangingMember:
        fresh = super()._begin_attempt(process, contact)
        self._upgrade(fresh)
        return fresh

    def _add_phone(self, me: int) -> ChangingFreescale:
        phone = self.phone_kind.phone_outside(me, me + 1)
        phone.speaks = _VERSION
        self.members.append(phone)
        self.lives.append(IncarnationRecord(me))
        self.attempts[me] = [me]
        self.hubs[me] = []
        return phone

    def member(self, address: int) -> ChangingFreescale:
        member = self.members[address]
        assert isinstance(member, ChangingFreescale)  # noqa: S101
        return member

    def is_phone(self, address: int) -> bool:
        return address in self.hubs

    def active(self) -> list[int]:
        return [each for each in super().active() if not self.is_phone(each)]

    def reporting(self) -> list[int]:
        return [each for each in super().reporting() if not self.is_phone(each)]

    def phones(self, *phases: Phase) -> list[int]:
        """The phones that are able to act and are in one of these phases."""
        return [each for each in self.hubs if self.members[each].phase in phases and self.can_act(each)]

    def is_orphan(self, address: int) -> bool:
        """Whether a super peer that the phone relies on is gone."""
        phone = self.member(address).phone
        if phone is None or phone.phase not in (Phase.MEMBER, Phase.JOINING, Phase.LEAVING):
            return False
        return bool(self._gone_hubs(phone)) and (
            not phone.is_giving_up or phone.here is None or self._is_gone(phone.here.hub)
        )

    def _gone_hubs(self, phone: Phone) -> set[int]:
        relied_on = {phone.contact, *(place.hub for place in (phone.here, phone.coming) if place is not None)}
        return {each for each in relied_on if self._is_gone(each)}

    def _is_gone(self, hub: int) -> bool:
        return hub in self.crashed or self.members[hub].phase in (Phase.REMOVED, Phase.ENDED, Phase.LEAVING)

    # Events

    def _attach(self, address: int, hub: int) -> bool:
        if not self.is_phone(address) or self.members[address].phase != Phase.OUTSIDE or self.is_phone(hub):
            return False
        self.hubs[address].append(hub)
        self.member(address).meet(hub, _VERSION)
        self._carry_out(address, self.member(address).attach(hub, 0))
        return True

    def _detach(self, address: int, _: int) -> bool:
        if not self.is_phone(address) or not self.members[address].may_leave():
            return False
        self._carry_out(address, self.member(address).detach(0))
        return True

    def _move(self, address: int, hub: int) -> bool:
        phone = self.member(address).phone
        if phone is None or self.is_phone(hub) or not phone.may_move(hub):
            return False
        self.hubs[address].append(hub)
        self.member(address).meet(hub, _VERSION)
        self._carry_out(address, self.member(address).move(hub, 0))
        return True

    def _orphan(self, address: int, _: int) -> bool:
        phone = self.member(address).phone
        if phone is None or not self.is_orphan(address):
            return False
        self._carry_out(address, self.member(address).give_up(self._gone_hubs(phone), 0))
        return True

    def _expel(self, hub: int, address: int) -> bool:
        member = self.member(hub)
        if not member.is_member or self.is_phone(hub) or address not in self.hubs:
            return False
        if address not in member.site.slots and address not in member.site.coming:
            return False
        self._carry_out(hub, member.expel(address, 0))
        return True

    def _return(self, address: int, contact: int) -> bool:
        if not self.is_phone(address):
            return super()._return(address, contact)
        member, life = self.members[address], self.lives[address]
        if life.end != "removed" or address in self.returned_to or self.is_phone(contact):
            return False
        fresh = self._add_phone(len(self.members))
        fresh.bring_back(member.make_backlog())
        self.returned_to[address] = fresh.me
        return self._attach(fresh.me, contact)

    def _ask(self, address: int, contact: int) -> bool:
        return not self.is_phone(address) and super()._ask(address, contact)

    def _admit(self, member: ChangingMember) -> None:
        super()._admit(member)
        site = self.member(member.me).site
        while site.requests:
            self._deliver_all_counted(member)
            address, seen = site.requests[0][0], self.lives[member.me].seen
            effects = self.member(member.me).admit_phone(address, write_messages(seen), 0)
            self._carry_out(member.me, effects)

    def _deliver_all_counted(self, member: ChangingMember) -> None:
        while member.undelivered and self._deliver(member.me, -1):
            pass

    def _carry_out(self, address: int, effects: Effects) -> None:
        super()._carry_out(address, effects)
        member, life = self.members[address], self.lives[address]
        if self.is_phone(address) and life.stream < 0 and member.phase == Phase.MEMBER:
            life.stream = member.stream
        if self.is_phone(address) and member.phase == Phase.ENDED:
            life.end = "left"


class SiteSchedule(RandomSchedule):
    """Random schedules of members and phones."""

    def __init__(self, kind: type[Any], seed: int | str, steps: int | None = None) -> None:
        super().__init__(kind, seed, steps)
        choose = self.random.choice
        founders = choose([1, 2, 3, 3, 4, 5])
        joins = choose([0, 0, 1, 2])
        self.world: SiteWorld = SiteWorld(kind, founders, founders + joins)
        self.phones = choose([1, 2, 2, 3, PHONES])
        """The number of phones that ever act."""
        self.steps = steps or choose([40, 100, 200, 400])
        self.weights |= {
            "report": choose([0.1, 0.5, 2]),
            "crash": choose([0.0, 0.2, 0.5]),
            "suspect": 0.0,
            "trust": 0.0,
            "attach": choose([1, 4]),
            "detach": choose([0.0, 0.2, 0.5]),
            "move": choose([0.0, 1, 3, 6]),
            "orphan": choose([0.0, 0.5, 2]),
            "expel": choose([0.0, 0.0, 0.3]),
            "phone_broadcast": choose([0.5, 1, 2, 4]),
            "phone_deliver": choose([1, 4, 8, 16]),
            "deliver": choose([2, 8, 16]),
            "transmit": choose([4, 16, 32]),
            "phone_freeze": choose([0.0, 0.2]),
            "phone_crash": choose([0.0, 0.0, 0.2]),
            "thaw": 0.3,
        }
        self.starts_attached = choose([False, True, True])
        self._spread = choose([0, 1, 2, 3, 3])
        if choose([False, True]):
            # Members do not change, so that the behaviour of phones is tested alone.
            self.weights |= dict.fromkeys(("remove", "crash", "leave"), 0.0)

        if self.starts_attached and choose([False, False, True]):
            # Few changes, so that causes and effects of phones meet on slow links.
            self.weights |= dict.fromkeys(("join", "ask", "freeze", "cut", "phone_freeze", "expel"), 0.0)
            self.weights |= {"broadcast": 2.0, "phone_broadcast": 3.0, "move": 0.2, "detach": 0.0}
            self._spread = 3
        elif self.bursts.are_there:
            founders = self.bursts.draw_founders()
            self._replace_world(SiteWorld(kind, founders, founders + self.bursts.draw_joins()))
            self._draw_bursts()
            self.weights |= self.bursts.draw_weights_of_phones()

    def run(self) -> ChangingWorld:
        if self.starts_attached:
            founders = range(self.world.founders)
            for address in self.world.phones(Phase.OUTSIDE)[: self.phones]:
                self.world.apply(("attach", address, self._pick(list(founders))))
            self._let_all_arrive()
        return super().run()

    def draw_attach(self, kind: str) -> ScheduleEvent | None:
        outside = self.world.phones(Phase.OUTSIDE)
        return self._event(kind, self._pick(outside) if self._may_attach(outside) else None, self._contact())

    def _may_attach(self, outside: list[int]) -> bool:
        return len(outside) > PHONES - self.phones

    def draw_move(self, kind: str) -> ScheduleEvent | None:
        return self._event(kind, self._pick(self.world.phones(Phase.MEMBER)), self._contact())

    def draw_detach(self, kind: str) -> ScheduleEvent | None:
        return self._event(kind, self._pick(self.world.phones(Phase.MEMBER)), -1)

    def draw_orphan(self, kind: str) -> ScheduleEvent | None:
        return self._event(kind, self._pick(self._orphans()), -1)

    def _orphans(self) -> list[int]:
        phones = self.world.phones(Phase.MEMBER, Phase.JOINING, Phase.LEAVING)
        return [each for each in phones if self.world.is_orphan(each)]

    def draw_expel(self, kind: str) -> ScheduleEvent | None:
        hub = self._contact()
        if hub is None:
            return None
        site = self.world.member(hub).site
        return self._event(kind, hub, self._pick(sorted({*site.slots, *site.coming})))

    def draw_phone_broadcast(self, kind: str) -> ScheduleEvent | None:
        return self._event("broadcast", self._pick(self.world.phones(Phase.MEMBER)), -1)

    def draw_phone_deliver(self, kind: str) -> ScheduleEvent | None:
        return self._event("deliver", self._pick(self.world.phones(Phase.MEMBER)), -1)

    def draw_phone_freeze(self, kind: str) -> ScheduleEvent | None:
        return self._event("freeze", self._pick(self.world.phones(Phase.MEMBER, Phase.JOINING)), -1)

    def draw_phone_crash(self, kind: str) -> ScheduleEvent | None:
        kept = self.random.choice([0, 1, 99])
        return self._event("crash", self._pick(self.world.phones(Phase.MEMBER, Phase.JOINING)), kept)

    def draw_thaw(self, kind: str) -> ScheduleEvent | None:
        return self._event(kind, self._pick(sorted(self.world.frozen)), -1)

    def draw_freeze(self, kind: str) -> ScheduleEvent | None:
        frozen = [each for each in self.world.frozen if not self.world.is_phone(each)]
        return None if frozen else self.draw_own(kind)

    def _in_phase(self, phase: Phase) -> list[int]:
        return [each for each in super()._in_phase(phase) if not self.world.is_phone(each)]

    def _let_all_arrive(self, apart: frozenset[int] = frozenset()) -> None:
        active = True
        while active:
            super()._let_all_arrive(apart)
            active = False
            for address in self.world.phones(Phase.MEMBER):
                while address not in apart and self.world.apply(("deliver", address, -1)):
                    active = True

    def _with_all_seats(self, addresses: frozenset[int]) -> frozenset[int]:
        """The same for phones; sometimes a phone is included."""
        phones = self.world.phones(Phase.MEMBER, Phase.JOINING)
        draw = self.bursts.random
        return addresses | {draw.choice(phones)} if phones and draw.random() < _PHONE_APART else addresses

    def _let_all_in(self) -> None:
        super()._let_all_in()
        for address in self._orphans():
            self.world.apply(("orphan", address, -1))

    def _remove_the_dead(self, turn: int) -> None:
        super()._remove_the_dead(turn)
        for hub in self.world.active():
            site = self.world.member(hub).site
            for address in sorted({*site.slots, *site.coming} & self.world.crashed):
                self.world.apply(("expel", hub, address))

    def _is_settled(self) -> bool:
        return (
            super()._is_settled()
            and not self._orphans()
            and not self.world.phones(Phase.JOINING, Phase.LEAVING)
        )

    def oracle(self) -> ChangingOracle:
        return SiteOracle(self.world)


class SiteOracle(ChangingOracle):
    """Judges as for members; phones that are present must have everything too, and are in no view."""

    world: SiteWorld

    def survivors(self) -> list[ChangingMember]:
        return [each for each in super().survivors() if not self.world.is_phone(each.me)]

    def _phones(self) -> list[IncarnationRecord]:
        world = self.world
        return [world.lives[each] for each in world.hubs if world.is_active(each)]

    def _living(self) -> list[IncarnationRecord]:
        return [*super()._living(), *self._phones()]

    def _may_be_cut(self, life: IncarnationRecord) -> bool:
        world = self.world
        if not world.is_phone(life.address):
            return super()._may_be_cut(life)
        return any(super(SiteOracle, self)._may_be_cut(world.lives[hub]) for hub in world.hubs[life.address])

    def _is_owed(self, life: IncarnationRecord, seen_origins: set[int]) -> bool:
        if self.world.is_phone(life.address):
            # A phone that was expelled has returned with what its super peer had not accepted.
            return life.end in ("", "left") and not self._may_be_cut(life)
        return super()._is_owed(life, seen_origins)

    def judge_memory(self) -> list[str]:
        found = super().judge_memory()
        alive = {member.stream for member in self.survivors()}
        for each in self.survivors():
            site = self.world.member(each.me).site
            if any(message.origin not in alive for message in site.table.messages.values()):
                found.append(f"p{each.me} translates messages of members that are gone")
            if gone := {address for address in {*site.slots, *site.coming} if not self._has_slot(address)}:
                found.append(f"p{each.me} has slots of {len(gone)} phones that are gone")
            if site.coming:
                found.append(f"p{each.me} waits for phones for ever")
        for life in self._phones():
            phone = self.world.member(life.address).phone
            if phone is not None and (phone.waiting() or phone.coming or phone.queue):
                found.append(f"p{life.address} holds messages for ever, or never arrives")
        return found

    def _has_slot(self, address: int) -> bool:
        return self.world.is_active(address)
