"""Members that are upgraded one after another: no member is sent packets it does not understand, and in the
end all use the later version."""

from __future__ import annotations

import random

import pytest

from antecede.causality import MessageId
from antecede.check.changing.world import ChangingWorld
from antecede.membership.catalog import CHANGING, ChangingMbcp
from antecede.membership.upgrading import UpgradingMember


class UpgradedWorld(ChangingWorld):
    """A group in which processes speak the first version, and are upgraded to the second."""

    def __init__(self, founders: int, size: int, protocol: str = "mbcp") -> None:
        super().__init__(CHANGING[protocol], founders, size)
        self.later: set[MessageId] = set()
        """Packet kinds that only the second version has."""

    def upgrade(self, *addresses: int) -> None:
        for address in addresses:
            self.members[address].speaks = 2
        for address in addresses:
            for other in range(len(self.members)):
                self.meet(address, other)

    def meet(self, one: int, other: int) -> None:
        """The two greet each other."""
        for mine, theirs in ((one, other), (other, one)):
            if mine != theirs and self.can_act(mine):
                version = min(self.members[mine].speaks, self.members[theirs].speaks)
                self._carry_out(mine, self.members[mine].meet(theirs, version))

    def _broadcast(self, address: int, other: int) -> bool:
        done = super()._broadcast(address, other)
        if done and self.members[address].version == 2:
            self.later.add(self.lives[address].sent[-1])
        return done

    def _transmit(self, address: int, other: int) -> bool:
        packet = self.links[address, other][0] if self.links.get((address, other)) else None
        if packet is not None and self.members[other].speaks == 1:
            assert packet.since < 2, f"p{other} is sent a {packet} by p{address}"
            is_later = self.later.intersection(packet.message_ids())
            assert not is_later, f"p{other} is sent a {packet} by p{address}"
        return super()._transmit(address, other)

    def let_all_arrive(self, *addresses: int) -> None:
        everybody = addresses or tuple(range(len(self.members)))
        moved = True
        while moved:
            moved = False
            for link in sorted(self.open_links()):
                if set(link) <= set(everybody):
                    moved |= self.apply(("transmit", *link))
            for address in everybody:
                while self.apply(("deliver", address, -1)):
                    moved = True

    def lacks_quorum(self) -> bool:
        """Whether more are removed than are left with an admission that is stable: that ends no removal."""
        members = [each for each in self.members if each.is_member and each._unclosed()]
        return any(
            not each.removals.has_quorum(len(each.addresses) - len(each.unstable_admissions))
            for each in members
        )

    def versions(self) -> list[int]:
        return [each.version for each in self.members if each.is_member]


def test_the_later_version_is_used_once_the_last_member_is_upgraded() -> None:
    world = UpgradedWorld(3, 3)
    for address in range(3):
        assert world.versions() == [1, 1, 1]
        world.upgrade(address)
        world.let_all_arrive()
    assert world.versions() == [2, 2, 2]


def test_a_newcomer_uses_the_later_version_after_meeting_every_member() -> None:
    world = UpgradedWorld(2, 3)
    world.upgrade(0, 1, 2)
    world.let_all_arrive()
    world.apply(("join", 2, 0))
    world.let_all_arrive()
    assert world.versions() == [2, 2, 2]


def test_a_process_without_the_required_version_is_not_admitted() -> None:
    world = UpgradedWorld(2, 3)
    world.upgrade(0, 1)
    world.apply(("join", 2, 0))
    world.let_all_arrive()
    assert not world.members[2].is_member
    assert not world.members[0].requests


def test_an_upgraded_member_admits_others_while_some_are_not_upgraded() -> None:
    world = UpgradedWorld(2, 3)
    world.upgrade(0)
    world.apply(("join", 2, 0))
    world.let_all_arrive()
    assert world.members[2].is_member


def test_a_member_admitted_elsewhere_that_is_not_upgraded_delays_the_switch() -> None:
    """p1 is the last to be upgraded, and has admitted p3 before, which is not."""
    world = UpgradedWorld(3, 4)
    world.upgrade(0, 2)
    world.apply(("join", 3, 1))
    world.let_all_arrive(1, 3)
    world.upgrade(1)
    world.let_all_arrive()
    assert world.versions() == [1, 1, 1, 1]
    world.upgrade(3)
    world.let_all_arrive()
    assert world.versions() == [2, 2, 2, 2]


def test_a_newcomer_requires_the_version_its_sponsor_requires() -> None:
    """p0 and p1 use the second version. p0 admits p2, which p3 asks before p2 has met p1. p1 knows neither,
    and p3, which is not upgraded, would be owed what p1 has broadcast."""
    world = UpgradedWorld(2, 4)
    for address in range(3):
        world.members[address].speaks = 2
    world.meet(0, 1)
    world.let_all_arrive()
    world.meet(0, 2)
    world.apply(("join", 2, 0))
    world.let_all_arrive(0, 2)
    assert world.members[2].is_member
    world.meet(2, 3)
    world.apply(("join", 3, 2))
    world.let_all_arrive(2, 3)
    assert not world.members[3].is_member
    world.apply(("broadcast", 1, -1))
    world.meet(1, 2)
    world.let_all_arrive()
    assert world.later
    assert world.versions() == [2, 2, 2]


def test_a_removed_member_does_not_delay_the_version_switch() -> None:
    world = UpgradedWorld(4, 4)
    world.upgrade(0, 1, 2)
    world.apply(("crash", 3, 0))
    world.let_all_arrive()
    assert world.versions() == [1, 1, 1, 1]
    world.apply(("remove", 0, 3))
    for _ in range(3):
        world.let_all_arrive(0, 1, 2)
    assert [world.members[each].version for each in range(3)] == [2, 2, 2]


def _run(seed: int, protocol: str = "mbcp") -> UpgradedWorld:
    """Anything may happen in any order, until all are upgraded."""
    rng, size = random.Random(seed), 7
    world = UpgradedWorld(3, size, protocol)
    world.is_encoded = True
    for member in world.members:
        member.speaks = rng.choice((1, 2, 2))
    pairs = [(one, other) for one in range(size) for other in range(one)]
    for step in range(300):
        address, other = rng.randrange(size), rng.randrange(size)
        kind = rng.choices(
            ["transmit", "deliver", "broadcast", "meet", "upgrade", "join", "report", "remove", "leave"],
            [30, 25, 8, 20, 2, 2, 6, 0.3, 0.3],
        )[0]
        if kind == "upgrade" and not world.members[address].requests:
            world.members[address].speaks = 2
        elif kind == "meet":
            world.meet(address, other)
        elif kind == "transmit":
            if links := sorted(world.open_links()):
                world.apply(("transmit", *rng.choice(links)))
        elif kind in ("join", "remove"):
            if address != other and (kind == "join") != world.members[address].is_member:
                world.apply((kind, address, other))
        elif kind != "leave" or step < 200:
            world.apply((kind, address, -1))
    for address in range(size):
        world.members[address].speaks = 2
    for _ in range(6):
        for one, other in pairs:
            world.meet(one, other)
        world.let_all_arrive()
        for address in range(size):
            world.apply(("report", address, -1))
    return world


@pytest.mark.parametrize("protocol", ["mbcp", "vcube"])
def test_no_random_schedule_sends_a_member_an_unknown_packet_kind(protocol: str) -> None:
    later = 0
    for seed in range(60):
        world = _run(seed, protocol)
        assert set(world.versions()) <= {2} or world.lacks_quorum(), seed
        later += len(world.later)
    assert later > 50


def _without_saying_so(self: UpgradingMember) -> int:
    return self.speaks


def test_switching_versions_without_announcing_the_requirement_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ChangingMbcp, "_required_by_others", _without_saying_so)
    with pytest.raises(AssertionError, match="is sent"):
        for seed in range(100):
            _run(seed)


def _at_once(self: UpgradingMember) -> int:
    others = [at for each, at in self.addresses.items() if each != self.stream]
    return min((self.required[at].version if at in self.required else 1 for at in others), default=2)


@pytest.mark.parametrize("is_broken", [False, True])
def test_a_version_requirement_takes_effect_after_earlier_admissions(
    is_broken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """p1 has admitted p3 and requires the second version. p0 hears that and holds the admission, for a
    message of p2 is missing. p3 has admitted p4, which is not upgraded and is owed what p0 broadcasts."""
    if is_broken:
        monkeypatch.setattr(ChangingMbcp, "_required_by_others", _at_once)
    world = UpgradedWorld(3, 5)
    for address in range(4):
        world.members[address].speaks = 2
    world.meet(2, 0)
    world.meet(2, 1)
    world.let_all_arrive()
    world.apply(("broadcast", 2, -1))
    world.let_all_arrive(1, 2)
    world.meet(1, 3)
    world.apply(("join", 3, 1))
    world.let_all_arrive(1, 3)
    world.meet(3, 4)
    world.apply(("join", 4, 3))
    world.let_all_arrive(3, 4)
    assert world.members[4].is_member
    world.meet(0, 1)
    world.let_all_arrive(0, 1)
    assert world.members[0].version == 1 + is_broken
    world.apply(("broadcast", 0, -1))
    if is_broken:
        with pytest.raises(AssertionError, match="p4 is sent"):
            world.let_all_arrive()
    else:
        world.let_all_arrive()
        assert world.versions() == [1] * 5
