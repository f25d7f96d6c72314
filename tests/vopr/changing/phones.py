"""Phones behind super peers in the simulation: they join, leave, move, fail over, are expelled, lose their
store, and crash like everybody else."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

from antecede.live.changing import failover, super_peer
from antecede.live.changing.contact import NONCE_BYTES, Contact
from antecede.live.changing.core import ChangingCore
from antecede.live.changing.events import Expelled, LeaveAsked, MoveAsked, StabilityTold
from antecede.live.changing.failover import Failover
from antecede.live.changing.phone import PhoneCore
from antecede.live.changing.protocols import WITH_PHONES
from antecede.live.changing.super_peer import SuperPeerCore
from antecede.membership.freescale import ChangingFreescale
from antecede.membership.state import Phase
from vopr.changing.host import Host, Process
from vopr.changing.world import World, run_world
from vopr.changing.world import short_times as short_member_times
from vopr.network import MILLISECOND
from vopr.world import Result

_CHANGES = (
    "phone joins",
    "phone joins",
    "phone leaves",
    "phone moves",
    "phone moves",
    "phone moves",
    "phone is expelled",
    "phone loses its store",
)


def kind_of(world: World) -> type[ChangingFreescale]:
    return WITH_PHONES[world.kind.name]


@contextmanager
def short_times() -> Iterator[None]:
    before = failover.PATIENCE, super_peer.TELL_STABLE
    failover.PATIENCE, super_peer.TELL_STABLE = 300 * MILLISECOND, 50 * MILLISECOND
    try:
        with short_member_times():
            yield
    finally:
        failover.PATIENCE, super_peer.TELL_STABLE = before


class SuperPeerHost(Host):
    def create_core(self) -> ChangingCore:
        return self.signing(SuperPeerCore(kind_of(self.world), self.name))

    def create_process(self) -> Process:
        return SuperPeerProcess(self)


class SuperPeerProcess(Process):
    core: SuperPeerCore

    def report(self) -> None:
        super().report()
        if self.core.tells_stable(self.now()):
            self.core.step(StabilityTold(self.now()))

    def expel(self, addresses: set[int]) -> None:
        for address in sorted(addresses & self.core.phones.keys()):
            self.world.tell(self.host.name, f"expels {self.core.phones[address]}")
            self.core.step(Expelled(address, self.now()))
        self.stepped()

    def leave(self) -> bool:
        if self.core.is_started:
            self.core.may_leave(self.now())  # its phones turn to others
            self.stepped()
        return super().leave()


class PhoneHost(Host):
    is_phone = True

    def __init__(self, world: World, rank: int, name: str) -> None:
        super().__init__(world, rank, False, name)
        self.place = ""

    def create_core(self) -> ChangingCore:
        return PhoneCore(kind_of(self.world), self.name)

    def create_process(self) -> Process:
        return PhoneProcess(self)


class PhoneProcess(Process):
    core: PhoneCore

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self.failover = Failover(self.core)

    def create_contact(self) -> Contact:
        return Contact(self.host.name, self.world.random_bytes(NONCE_BYTES), is_phone=True)

    def report(self) -> None:
        """Look after its super peers instead."""
        core = self.core
        if core.phase not in (Phase.MEMBER, Phase.LEAVING):
            return
        connected = {core.links[link][1] for link in self.serving if core.links[link][0] == core.address}
        event = self.failover.check(connected, self.now())
        if event is not None:
            self.world.count("moves" if isinstance(event, MoveAsked) else "gives up a super peer")
            self.world.tell(self.host.name, f"{event}")
            core.step(event)
        if self.failover.seeks:
            self.seek()

    def wants_in(self) -> bool:
        # One that leaves and whose super peer has gone returns, for what it has broadcast, and leaves again.
        return self.host.is_wanted or (bool(self.core.members) and self.core.phase != Phase.ENDED)

    def move(self) -> None:
        """To any super peer to which it has a link; or make one."""
        core = self.core
        for link, (mine, theirs) in core.links.items():
            if mine == core.address and core.phase == Phase.MEMBER and core.phone.may_move(theirs):
                self.world.tell(self.host.name, f"moves to {core.greeted[theirs].label}")
                self.world.count("moves")
                core.step(MoveAsked(link, self.now()))
                self.stepped()
                return
        self.seek()

    def leave(self) -> bool:
        core = self.core
        if not core.may_leave(self.now()):
            return False
        core.step(LeaveAsked(self.now()))
        self.host.is_wanted = False
        self.world.tell(self.host.name, "leaves")
        self.stepped()
        return True


class PhoneWorld(World):
    """One execution with phones, or with gateways and local processes."""

    def __init__(
        self,
        seed: int,
        is_told: bool = False,
        protocol: str = ChangingFreescale.name,
        encrypts: bool = False,
    ) -> None:
        super().__init__(seed, is_told, protocol, encrypts)
        self.hosts = [SuperPeerHost(self, each.rank, each.is_founder) for each in self.hosts]
        self.founders = self.hosts[: len(self.founders)]
        self.by_place = {host.place: host for host in self.hosts}
        first = len(self.hosts)
        self.phones = [PhoneHost(self, 100 + first + rank, f"p{rank}") for rank in range(2 + self.below(4))]

    def create_host(self, name: str) -> Host:
        return SuperPeerHost(self, len(self.hosts), False, name)

    def machines(self) -> list[Host]:
        return [*self.hosts, *self.phones]

    def active_phones(self) -> list[Host]:
        return [
            each
            for each in self.phones
            if each.process and each.process.is_up and each.process.core.is_started
        ]

    def pick_contact(self, host: Host) -> Host:
        others = [each for each in self.hosts if each is not host and not each.is_dead]
        return others[self.below(len(others))]

    def schedule_changes(self, duration: int) -> None:
        super().schedule_changes(duration)
        for phone in self.phones[: 1 + self.below(len(self.phones))]:
            phone.is_wanted = True
            self.push(self._moment(duration) // 4, None, phone.start, None)
        for _ in range(2 + self.below(10)):
            change = _CHANGES[self.below(len(_CHANGES))]
            self.push(self._moment(duration), None, self._change_phone, change)

    def _change_phone(self, kind: str) -> None:
        if kind == "phone joins":
            host = self.pick([each for each in self.phones if not each.is_wanted and not each.is_dead])
            if host is not None:
                host.is_wanted = True
                host.start()
            return
        host = self.pick(self.active_phones())
        if host is None:
            return
        process = cast("PhoneProcess", host.process)
        if kind == "phone moves":
            process.move()
        elif kind == "phone leaves":
            if process.leave():
                self.count(kind)
        elif kind == "phone is expelled":
            self.count(kind)
            self._expel(set(process.core.members))
        else:
            self.count(kind)
            host.is_wanted = False
            host.die("loses its store", for_good=True, notice=self.random() < 0.5)
            new = PhoneHost(self, host.rank + 100, host.name)
            new.is_wanted = True
            self.phones.append(new)
            self.push(self.now + self.below(300) * MILLISECOND, None, new.start, None)

    def _expel(self, addresses: set[int]) -> None:
        for host in self.active():
            cast("SuperPeerProcess", host.process).expel(addresses)

    def _remove_the_dead(self) -> None:
        super()._remove_the_dead()
        self._expel({address for phone in self.phones if phone.is_dead for address in phone.addresses})
        if self.is_mixed and self.is_healing and self._waits_for_upgrade():
            for host in self.hosts:
                host.upgrade()

    def _waits_for_upgrade(self) -> bool:
        """Whether a member waits for a super peer's report on an expelled phone, which members of the first
        version do not understand."""
        processes = [host.process for host in self.hosts if host.process and host.process.core.members]
        hubs = [cast("SuperPeerCore", process.core).hub for process in processes]
        untold = {(hub.stream, slot) for hub in hubs for slot in hub.site.unannounced}
        return any(hub.backlog.entries and hub.backlog.entries[0].author in untold for hub in hubs)

    def unrest(self) -> str | None:
        if (reason := super().unrest()) is not None:
            return reason
        slots: list[str] = []
        for host in self.hosts:
            if host.is_wanted and host.process is not None:
                core = cast("SuperPeerCore", host.process.core)
                slots += core.phones.values()
                site = core.hub.site
                if site.coming or site.requests or site.unstable or core.hub.backlog.entries:
                    return f"{host.name} has {core.hub.site} {core.hub.backlog}"
                links = [core.find_link(core.address, address) for address in core.phones]
                if any(link is not None and core.outboxes[link].packets for link in links):
                    return f"{host.name} has packets for phones"
        for phone in self.phones:
            if phone.is_dead or (phone.process is None and not phone.is_wanted and not phone.lives):
                continue
            if phone.process is None or not phone.process.is_up:
                return f"{phone.name} is down"
            mine = cast("PhoneCore", phone.process.core)
            if not phone.is_wanted:
                if mine.members and mine.phase != Phase.ENDED:
                    return f"{phone.name} is {mine.phase.name}"
                continue
            if not mine.is_started or mine.has_ready or mine.application.unacked or mine.is_moving:
                return f"{phone.name} is {mine.phase.name}, {len(mine.application.unacked)} unacked"
            if mine.phone.late:
                return f"{phone.name} is not given {mine.phone.late}"
            if mine.phone.retained:
                return f"{phone.name} retains {mine.phone.retained}"
        if sorted(slots) != sorted(each.name for each in self.phones if each.is_wanted):
            return f"slots are {slots}"
        return None


def protocol_of(seed: int) -> str:
    return random.Random(f"phones {seed}").choice(sorted(WITH_PHONES))


def execute(seed: int, is_told: bool = False, protocol: str | None = None, encrypts: bool = False) -> Result:
    """Run one execution with phones; any error counts as a violation."""
    return run_world(cast("Any", PhoneWorld(seed, is_told, protocol or protocol_of(seed), encrypts)))
