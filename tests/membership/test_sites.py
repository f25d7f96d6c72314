"""Phones that join, leave, move, crash, are expelled and return, behind super peers that are members."""

from __future__ import annotations

import pytest
from broken_sites import (
    BROKEN_SITES,
    BringsBackUnsorted,
    ForgetsWhatIsNotSettled,
    KeepsNothing,
    LateByOne,
    ReleasesAtOnce,
    SaysTooEarlyWhatIsStable,
    SendsAllThatWasKept,
    TellsNobodyOfTheExpelled,
)

from antecede.check.changing.explore import ChangeBounds
from antecede.check.changing.kinds import judge_random
from antecede.check.changing.run import check_changing
from antecede.check.changing.sites import SiteSchedule, SiteWorld
from antecede.membership.freescale import ChangingFreescale
from antecede.membership.gateways import ChangingBasic, ChangingHcg
from antecede.membership.packets import MembershipPacket
from antecede.protocols.base import LocalError


@pytest.mark.parametrize("kind", [ChangingFreescale, ChangingHcg, ChangingBasic])
def test_random_schedules_of_phones_and_super_peers(kind: type[ChangingFreescale]) -> None:
    for seed in range(50):
        assert judge_random(kind, seed) == [], f"seed {seed}"


def test_schedules_have_every_kind_of_event() -> None:
    seen = set[str]()
    for seed in range(60):
        seen |= {event[0] for event in SiteSchedule(ChangingFreescale, seed).run().schedule}
    assert seen >= {"attach", "detach", "move", "expel", "orphan", "return", "remove", "crash", "freeze"}


@pytest.mark.parametrize("kind", list(BROKEN_SITES))
def test_each_broken_rule_is_found(kind: type[ChangingFreescale]) -> None:
    def fails(seed: int) -> bool:
        try:
            return bool(judge_random(kind, seed))
        except Exception:  # whatever a member raises is its fault
            return True

    first = BROKEN_SITES[kind]
    assert any(map(fails, range(first, first + 100)))


def test_a_process_continues_from_its_saved_state() -> None:
    """The same schedule, with processes that are saved and restored, ends in the same way."""
    world = SiteSchedule(ChangingFreescale, 11).run()
    again = SiteWorld(ChangingFreescale, world.founders, world.size)
    for number, event in enumerate(world.schedule):
        again.apply(event)
        if number % 5 == 0:
            again.members = [ChangingFreescale.restore(each.save()) for each in again.members]
    assert [life.events for life in again.lives] == [life.events for life in world.lives]
    assert again.members == world.members


@pytest.mark.parametrize("kind", [ChangingFreescale, ChangingHcg, ChangingBasic])
@pytest.mark.parametrize(
    "bounds",
    [
        ChangeBounds(2, 1, joins=2, total=1),
        ChangeBounds(1, 1, joins=2, leaves=1, total=2),
        ChangeBounds(1, 1, joins=1, removals=1, total=1),
    ],
)
def test_every_schedule_of_two_phones_up_to_a_bound(
    kind: type[ChangingFreescale], bounds: ChangeBounds
) -> None:
    *_, report = check_changing(kind, kind.name, bounds, max_states=6_000)
    assert report.passed, report.violation
    assert report.states > 30


def _settled(*events: tuple[str, int, int], kind: type[ChangingFreescale] = ChangingFreescale) -> SiteWorld:
    """Two super peers, p0 and p1, and a phone, p2, after all that was sent has arrived."""
    world = SiteWorld(kind, 2, 2, 1)
    for event in events:
        assert world.apply(event), event
        schedule = SiteSchedule.of_world(world)
        schedule._let_all_arrive()
    return world


def test_a_phone_joining_and_moving_sends_nothing_to_uninvolved_members() -> None:
    world = SiteWorld(ChangingFreescale, 3, 3, 1)
    heard: list[int] = []
    for event in [("attach", 3, 0), ("move", 3, 1), ("detach", 3, -1)]:
        assert world.apply(event)
        while links := world.open_links():
            heard += [to for link in links for to in link if to == 2]
            for link in links:
                world.apply(("transmit", *link))
    assert heard == []
    assert all(each.order.delivered == {0: 0, 1: 0, 2: 0} for each in world.members[:3])


def test_a_moved_phone_has_another_id_and_misses_nothing() -> None:
    world = _settled(("attach", 2, 0), ("broadcast", 2, -1), ("broadcast", 1, -1), ("move", 2, 1))
    assert world.apply(("broadcast", 2, -1))
    assert world.apply(("broadcast", 0, -1))
    SiteSchedule.of_world(world).settle()
    first, second = (message for kind, message in world.lives[2].events if kind == "send")
    assert first.origin != second.origin
    assert set(world.lives[2].seen) == set(world.lives[0].seen) == set(world.lives[1].seen)
    assert world.member(0).site.slots == {}
    assert list(world.member(1).site.slots) == [2]


def test_a_returned_phone_s_new_messages_follow_those_it_brings_back() -> None:
    """p0 crashes with the phone's first message. Whether it is lost is unknown until p1 has p2's report."""
    world = SiteWorld(ChangingFreescale, 3, 3, 1)
    assert world.apply(("attach", 3, 0))
    SiteSchedule.of_world(world)._let_all_arrive()
    returns = [("crash", 0, 1), ("remove", 1, 0), ("orphan", 3, -1), ("return", 3, 1)]
    again = [("transmit", 4, 1), ("transmit", 1, 4), ("broadcast", 4, -1), ("transmit", 4, 1)]
    for event in [("broadcast", 3, -1), ("transmit", 3, 0), *returns, *again]:
        assert world.apply(event), event
    assert world.member(1).site.delayed
    SiteSchedule.of_world(world).settle()
    sent = [message for life in (3, 4) for kind, message in world.lives[life].events if kind == "send"]
    for life in (1, 2):
        assert [message for kind, message in world.lives[life].events if kind == "deliver"] == sent
    assert world.member(1).site.delayed == {}


@pytest.mark.parametrize("returns_to", [0, 1])
@pytest.mark.parametrize("kind", [ChangingFreescale, ChangingHcg, ChangingBasic, TellsNobodyOfTheExpelled])
def test_an_expelled_phone_that_was_not_told_brings_back_its_unsent_messages(
    kind: type[ChangingFreescale], returns_to: int
) -> None:
    """p0 expels p2 before it has the phone's message; meanwhile p2 gives up on p0 and is not informed."""
    world = _settled(("attach", 2, 0), ("broadcast", 2, -1), kind=kind)
    assert world.apply(("broadcast", 2, -1))
    assert world.apply(("expel", 0, 2))
    world._carry_out(2, world.member(2).give_up({0}, 0))
    assert world.apply(("return", 2, returns_to))
    schedule = SiteSchedule.of_world(world)
    schedule._let_all_arrive()
    assert world.apply(("broadcast", 3, -1))
    schedule.settle()
    found = schedule.oracle().violations()
    if kind is TellsNobodyOfTheExpelled:
        assert "p0 never delivers p2:2" in found
        return
    assert found == []
    sent = [message for life in world.lives[2:4] for kind, message in life.events if kind == "send"]
    assert len(sent) == 3
    for life in world.lives[:2]:
        assert [message for kind, message in life.events if kind == "deliver"] == sent
    assert world.member(returns_to).site.delayed == {}
    assert all(not world.member(each).backlog.entries for each in (0, 1))


def test_a_super_peer_with_phones_does_not_leave() -> None:
    world = _settled(("attach", 2, 0))
    with pytest.raises(LocalError, match="phones have to move or leave first"):
        world.member(0).leave(0)
    assert not world.apply(("leave", 0, -1))
    assert _settled(("attach", 2, 0), ("move", 2, 1), ("leave", 0, -1))


def test_slots_are_used_again_and_tables_do_not_grow() -> None:
    """200 phones pass through one super peer: no trace of them remains at any member."""
    world = SiteWorld(ChangingFreescale, 2, 2, 200)
    schedule = SiteSchedule.of_world(world)
    sizes = []
    for phone in range(2, 202):
        for event in [("attach", phone, 0), ("broadcast", phone, -1), ("detach", phone, -1)]:
            assert world.apply(event)
            schedule._let_all_arrive()
        for member in (0, 1, 0, 1):
            world.apply(("report", member, -1))
            schedule._let_all_arrive()
        sizes.append(tuple(len(world.members[each].save()) for each in (0, 1)))
    assert sizes[-1][0] <= sizes[5][0] * 1.1 + 16
    assert sizes[-1][1] <= sizes[5][1] * 1.1 + 16
    assert not any(isinstance(each, MembershipPacket) for queue in world.links.values() for each in queue)


@pytest.mark.parametrize(
    "kind", [ChangingFreescale, ForgetsWhatIsNotSettled, SaysTooEarlyWhatIsStable, BringsBackUnsorted]
)
@pytest.mark.parametrize("is_settled", [False, True])
def test_messages_a_phone_brought_back_survive_the_next_super_peer_s_crash(
    kind: type[ChangingFreescale], is_settled: bool
) -> None:
    """p0 crashes with what the phone has sent. At p1 it broadcasts again, and p1 crashes too: before it has
    brought back the first message, or after, but before another member has anything of it."""
    world = SiteWorld(kind, 5, 5, 1)
    assert world.apply(("attach", 5, 0))
    assert world.apply(("broadcast", 2, -1))
    schedule = SiteSchedule.of_world(world)
    schedule._let_all_arrive()
    for member in (0, 2, 3, 4):
        assert world.apply(("report", member, -1))
        assert world.apply(("transmit", member, 1))
    first = [("broadcast", 5, -1), ("transmit", 5, 0), ("crash", 0, 0), ("remove", 1, 0)]
    returns = [("orphan", 5, -1), ("return", 5, 1), ("transmit", 6, 1), ("transmit", 1, 6)]
    for event in [*first, *returns, ("report", 1, -1), ("broadcast", 6, -1), ("transmit", 6, 1)]:
        assert world.apply(event), event
    while world.apply(("transmit", 1, 6)):
        pass
    assert world.member(1).site.delayed
    if is_settled:
        schedule._let_all_arrive(frozenset({1, 6}))
        for member in (2, 3, 4):
            while world.apply(("transmit", 1, member)) or world.apply(("transmit", member, 1)):
                world.apply(("deliver", member, -1))
        while world.apply(("deliver", 1, -1)):
            pass
        while world.apply(("transmit", 1, 6)):
            pass
        assert not world.member(1).site.delayed
    assert world.apply(("crash", 1, 0))
    schedule.settle()
    sent = [message for life in (5, 6) for kind_, message in world.lives[life].events if kind_ == "send"]
    assert len(sent) == 2
    given = [message for message in world.lives[2].seen if message in sent]
    is_broken = kind is not ChangingFreescale and (is_settled or kind is not BringsBackUnsorted)
    assert (given != sent) == is_broken, given


@pytest.mark.parametrize("answer", ["assigns", "releases", "reports"])
def test_the_state_of_a_phone_does_not_grow_with_repeated_returns(answer: str) -> None:
    """It is expelled a hundred times. What it brings back is the next super peer's concern, once that has
    answered: it has numbered a message of the phone, has released it, or says what is stable."""
    world = _settled(("attach", 2, 0))
    schedule, phone = SiteSchedule.of_world(world), 2
    sizes = []
    for turn in range(100):
        moves = answer == "releases"
        here = 0 if moves else turn % 2
        actions: dict[str, list[tuple[str, int, int]]] = {
            "assigns": [("broadcast", phone, -1)],
            "releases": [("move", phone, 1)],
            "reports": [("report", 1 - here, -1), ("report", here, -1), ("broadcast", 1 - here, -1)],
        }
        for event in [("broadcast", 1 - here, -1), *actions[answer]]:
            assert world.apply(event), event
            schedule._let_all_arrive()
        assert world.apply(("expel", 1 if moves else here, phone))
        schedule._let_all_arrive()
        assert world.apply(("return", phone, 0 if moves else 1 - here))
        phone = world.returned_to[phone]
        schedule._let_all_arrive()
        sizes.append(len(world.member(phone).make_backlog().entries))
        if turn % 10 == 9:
            schedule.settle()
    assert sizes[80:] == sizes[:20]
    schedule.settle()
    assert schedule.oracle().violations() == []


@pytest.mark.parametrize("kind", [KeepsNothing, ReleasesAtOnce, SendsAllThatWasKept])
def test_the_smallest_schedule_of_a_broken_move_is_found_and_shown(kind: type[ChangingFreescale]) -> None:
    bounds = ChangeBounds(2, 1, joins=2, total=1)
    *_, report = check_changing(kind, "freescale", bounds, max_states=20_000)
    assert report.counter_example is not None
    assert any("moves to" in step.text for step in report.counter_example.steps)


def test_basic_names_causes_the_gateway_has_and_hcg_those_the_sender_had() -> None:
    """p2 is at p0 and has not delivered what p1 has broadcast; p0 has."""
    for kind, named in ((ChangingHcg, {}), (ChangingBasic, {1: 1})):
        world = SiteWorld(kind, 2, 2, 1)
        for event in [("attach", 2, 0), ("transmit", 2, 0), ("transmit", 0, 2), ("broadcast", 2, -1)]:
            assert world.apply(event)
        for event in [("transmit", 2, 0), ("broadcast", 1, -1), ("transmit", 1, 0), ("deliver", 0, -1)]:
            assert world.apply(event)
        while world.apply(("deliver", 0, -1)):
            pass
        for event in [("broadcast", 2, -1), ("transmit", 2, 0)]:
            assert world.apply(event)
        assert world.links[0, 1][-1].causes == named  # type: ignore[attr-defined]


_OVERTAKEN: list[tuple[str, int, int]] = [
    ("attach", 3, 0),
    ("transmit", 3, 0),
    ("transmit", 0, 3),
    ("broadcast", 3, -1),
    ("transmit", 3, 0),
    ("deliver", 0, -1),
    ("transmit", 0, 2),
    ("transmit", 0, 3),
    ("broadcast", 1, -1),
    ("transmit", 1, 0),
    ("deliver", 0, -1),
    ("transmit", 0, 3),
    ("deliver", 3, -1),
    ("broadcast", 3, -1),
    ("transmit", 3, 0),
    ("transmit", 0, 2),
]
"""p3, at p0, answers what p1 has broadcast; the answer arrives at p2 first."""


@pytest.mark.parametrize("kind", [ChangingFreescale, ChangingHcg, ChangingBasic, LateByOne])
def test_a_reply_from_behind_a_super_peer_is_held_until_its_cause_arrives(
    kind: type[ChangingFreescale],
) -> None:
    world = SiteWorld(kind, 3, 3, 1)
    for event in _OVERTAKEN:
        assert world.apply(event), event
    while world.apply(("deliver", 2, -1)):
        pass
    schedule = SiteSchedule.of_world(world)
    schedule.settle()
    found = schedule.oracle().violations()
    assert found == (["p2 delivers p3:2 before p1:1"] if kind is LateByOne else [])
