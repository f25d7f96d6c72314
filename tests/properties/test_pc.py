"""Links that come and go, crashes and newcomers: what `pc` promises, and what each of its rules is for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar

import msgspec
import pytest

from antecede.errors import InputError
from antecede.order import Judgement, MessageId, Window, judge
from antecede.order.execution import Execution
from antecede.protocols.base import NOTHING, Effects, LocalError, Packet, Protocol, RemoteError, Send, Waiting
from antecede.protocols.flooding import Flooded, Flooding
from antecede.protocols.mbcp import Mbcp
from antecede.protocols.pc import Hello, Opening, Overlay, Pc, Ping, Pong, Snapshot
from antecede.sim import chance
from antecede.sim.churn import link_changes
from antecede.sim.network import Direct, parse_delay
from antecede.sim.scenario import Scenario, scenario, simulate
from antecede.sim.units import SECOND
from antecede.sim.verify import Histories, Report, verify
from antecede.sim.workload import Periodic
from antecede.sim.world import LinkChange, World
from antecede.studies.papers.as_printed import FloodingWithMovingLinks

LINE = [(1,), (0, 2), (1,)]
"""0 and 2 hear of each other through 1."""
PATIENCE = Pc.patience


class Room:
    """Members and the wires between them; a packet moves when the story says so."""

    def __init__(self, members: Sequence[Protocol]) -> None:
        self.members = members
        self.wires: dict[tuple[int, int], list[Packet]] = {}
        self.heard: list[str] = ["" for _ in members]
        self.wakes: list[tuple[int, int]] = []
        self.now = 0

    def do(self, peer: int, effects: Effects) -> None:
        for send in effects.sends:
            for to in send.to:
                self.wires.setdefault((peer, to), []).append(send.packet)
        if effects.wake_at is not None:
            self.wakes.append((peer, effects.wake_at))
        while (delivery := self.members[peer].deliver(self.now)) is not None:
            self.heard[peer] += delivery.payload.decode()

    def say(self, peer: int, words: str) -> None:
        for word in words:
            self.do(peer, self.members[peer].broadcast(word.encode(), self.now))

    def open(self, one: int, other: int) -> None:
        for here, there in ((one, other), (other, one)):
            self.do(here, self.members[here].link_opened(there, self.now))

    def close(self, one: int, other: int) -> None:
        for here, there in ((one, other), (other, one)):
            self.wires.pop((here, there), None)
            self.do(here, self.members[here].link_closed(there, self.now))

    def under_way(self, source: int, to: int) -> list[Packet]:
        return self.wires.get((source, to), [])

    def carry(self, source: int, to: int) -> Packet:
        """The next packet on a wire arrives."""
        packet = self.wires[source, to].pop(0)
        self.do(to, self.members[to].receive(source, packet, self.now))
        return packet

    def flow(self, *wires: tuple[int, int]) -> None:
        """Everything arrives that is on these wires, and then on all others too if none is named."""
        while full := [wire for wire, packets in self.wires.items() if packets and wire in (wires or [wire])]:
            self.carry(*full[0])

    def wake(self, peer: int, now: int) -> None:
        self.now = now
        self.do(peer, self.members[peer].wake(now))


def final(protocol: str, runs: int, seed: int = 3) -> Report:
    """The report of some runs, or of as many as it takes to see one fail."""
    found = Report(protocol)
    for found in verify(protocol, runs, seed):
        if found.failed:
            break
    return found


# Random runs.


def test_links_that_come_and_go_are_judged_clean() -> None:
    assert final("pc", 700).passed


@pytest.mark.parametrize(
    ("peers", "overlay", "delay", "seed"),
    [
        (16, "hypercube", "wild:1us-1s", 1),
        (16, "line", "wild:1us-100ms", 2),
        (16, "ring", "0-300ms", 3),
        (24, "star", "wild:1us-1s", 4),
        (40, "hypercube", "wild:1us-300ms", 5),
    ],
)
def test_heavy_churn(peers: int, overlay: str, delay: str, seed: int) -> None:
    """Links open, close and open again, 500 times a second, while their pings are under way."""
    heavy = scenario(
        protocol="pc",
        peers=peers,
        layout={"overlay": overlay},
        churn=500.0,
        seconds=1.0,
        rate=10.0,
        delay=delay,
        seed=seed,
        payload=0,
        reply=0.01,
        most_messages=150,
    )
    histories = Histories(heavy)
    members = heavy.members()
    heavy.world(members, [histories]).run()
    assert judge(histories.execution()).verdict.clean
    assert all(isinstance(member, Pc) and not member.openings for member in members)  # all became safe


class SmallBuffers(Pc):
    """Overflows now and then; a ping is soon given up."""

    most_buffered: ClassVar[int] = 3
    patience: ClassVar[int] = 400_000_000


def test_small_buffers_and_little_patience_break_nothing() -> None:
    assert final(f"{__name__}:SmallBuffers", 200).passed


class Dead(Pc):
    """Neither hears nor speaks, and says so to nobody."""

    def broadcast(self, payload: bytes, now: int, group: str | None = None) -> Effects:
        return NOTHING

    def receive(self, link: int, packet: Packet, now: int) -> Effects:
        return NOTHING

    def wake(self, now: int) -> Effects:
        return NOTHING

    def link_opened(self, link: int, now: int) -> Effects:
        return NOTHING

    def link_closed(self, link: int, now: int) -> Effects:
        return NOTHING


@pytest.mark.parametrize("seed", range(30))
def test_a_member_that_crashes_disturbs_no_other(seed: int) -> None:
    drawn = chance.Source(seed)
    size = 4 + drawn.below(9)
    victim, steps = drawn.below(size), drawn.below(300)
    churning = Scenario("pc", size, 0.5, seed, delay="wild:1us-1s", churn=60.0, most_messages=60)
    members, histories = churning.members(), Histories(churning)
    world = churning.world(members, [histories])
    while world.step():
        steps -= 1
        if steps == 0:
            members[victim] = Dead(victim, size, ())
    others = frozenset(range(size)) - {victim}
    found = judge(Execution(histories.steps, dict.fromkeys(sent(histories.steps), others)))
    assert found.verdict.clean, next(found.violations())


def sent(histories: Iterable[Iterable[tuple[int, MessageId]]]) -> set[MessageId]:
    return {message for history in histories for _, message in history}


# Newcomers.


class Joiner(Pc):
    """Remembers its snapshot, and bites its tongue until it has it."""

    taken: dict[int, bytes] | None = None

    def broadcast(self, payload: bytes, now: int, group: str | None = None) -> Effects:
        return NOTHING if self.joining else super().broadcast(payload, now, group)

    def receive(self, link: int, packet: Packet, now: int) -> Effects:
        effects = super().receive(link, packet, now)
        if isinstance(packet, Snapshot):
            self.taken = packet.received
        return effects


class ForgetfulJoiner(Joiner):
    """A newcomer without a snapshot: to it, nothing was ever sent before."""

    def receive(self, link: int, packet: Packet, now: int) -> Effects:
        return super().receive(link, Snapshot({}) if isinstance(packet, Snapshot) else packet, now)


def joins(seed: int, make: type[Joiner], restoring: bool = False) -> tuple[Judgement, Joiner, set[MessageId]]:
    """A run that the member of the highest rank joins; what its snapshot names is not addressed to it."""
    drawn = chance.Source(chance.key(seed, 99))
    size = 3 + drawn.below(6)
    newcomer, contact = size - 1, drawn.below(size - 1)
    overlay = Overlay(["hypercube", "ring", "line", "star"][drawn.below(4)])
    members: list[Protocol] = [*Pc.arranged(newcomer, overlay), make.newcomer(newcomer, size)]
    for member in members:
        member.size = size
    standing = {(one, other) for one, those in enumerate(overlay.joins(newcomer)) for other in those}
    standing.add((contact, newcomer))
    until, at = SECOND // 2, drawn.below(SECOND // 2)
    churn = [
        change
        for change in link_changes(seed, size, until, 80, standing)
        if newcomer not in change[1:3] or change.time > at
    ]
    opens: set[tuple[int, int]] = set()
    links = [LinkChange(at, contact, newcomer, opens=True)]
    for time, one, other, _ in churn:  # some were left out, so open and closed are told again
        links.append(LinkChange(time, one, other, opens=(one, other) not in opens))
        opens ^= {(one, other)}
    histories = Histories(Scenario("pc", size))
    workload = Periodic(seed, SECOND // (5 + drawn.below(20)), SECOND // 10, reply=0.05)
    network = Direct(seed, parse_delay(["wild:1us-1s", "0-200ms"][drawn.below(2)]), fifo=True)
    world = World(members, network, workload, [histories], until=until, most_messages=60, links=links)
    while world.step():
        if restoring:
            members[newcomer] = make.restore(members[newcomer].save())
    joined = members[newcomer]
    assert isinstance(joined, Joiner)
    assert joined.taken is not None
    missed = {MessageId(peer, seq) for peer, data in joined.taken.items() for seq in Window.from_bytes(data)}
    before = dict.fromkeys(missed, frozenset(range(newcomer)))
    return judge(Execution(histories.steps, before)), joined, missed


@pytest.mark.parametrize("seed", range(40))
def test_a_newcomer_gets_all_that_its_snapshot_does_not_name(seed: int) -> None:
    for run in range(seed * 10, seed * 10 + 10):
        judgement, joined, missed = joins(run, Joiner, restoring=run % 10 == 0)
        assert judgement.verdict.clean, (run, next(judgement.violations()))
        assert not {message for _, message in judgement.execution.histories[joined.me]} & missed
        assert joined.waiting() == []
        assert not joined.openings


def test_a_newcomer_without_a_snapshot_delivers_old_messages_after_their_effects() -> None:
    assert any(joins(run, ForgetfulJoiner)[0].verdict.causal_late_deliveries for run in range(200))


# What each rule is for: a run of chance that breaks without it, and a story.


class UsesNewLinksAtOnce(Pc):
    name: ClassVar[str] = "new links used at once"

    def link_opened(self, link: int, now: int) -> Effects:
        self.neighbours += (link,)
        return NOTHING


class TakesAnyPong(Pc):
    name: ClassVar[str] = "any pong will do"
    most_buffered: ClassVar[int] = 3

    def receive(self, link: int, packet: Packet, now: int) -> Effects:
        if isinstance(packet, Pong) and link in self.openings:
            packet = Pong(self.openings[link].since)
        return super().receive(link, packet, now)


class PingsOverTheNewLink(Pc):
    name: ClassVar[str] = "the ping goes over the new link"

    def link_opened(self, link: int, now: int) -> Effects:
        effects = super().link_opened(link, now)
        return Effects(tuple(Send((link,), send.packet) for send in effects.sends), effects.wake_at)


class PassesPingsOnOverAnyLink(Pc):
    name: ClassVar[str] = "pings are passed on over links that are not safe"

    def receive(self, link: int, packet: Packet, now: int) -> Effects:
        effects = super().receive(link, packet, now)
        if not isinstance(packet, Ping) or not effects.sends:
            return effects
        others = tuple(peer for peer in self.openings if peer != packet.source)
        return Effects((*effects.sends, Send(others, packet)))


class ForgetsWhatItKept(Pc):
    name: ClassVar[str] = "nothing is kept for a new link"

    def _settle(self, link: int) -> list[Flooded]:
        super()._settle(link)
        return []


@pytest.mark.parametrize(
    "broken",
    [
        FloodingWithMovingLinks,
        UsesNewLinksAtOnce,
        TakesAnyPong,
        PingsOverTheNewLink,
        PassesPingsOnOverAnyLink,
        ForgetsWhatItKept,
    ],
)
def test_each_rule_is_needed(broken: type[Protocol]) -> None:
    assert final(f"{__name__}:{broken.__name__}", 600).violations > 0


@pytest.mark.parametrize(
    ("protocol", "heard"),
    [
        (FloodingWithMovingLinks, "ba"),
        (UsesNewLinksAtOnce, "ba"),
        (PingsOverTheNewLink, "ba"),
        (Pc, "ab"),
    ],
)
def test_a_new_link_is_a_short_cut_past_what_is_under_way(protocol: type[Flooding], heard: str) -> None:
    """0 says a, which is slow on its way through 1; a link from 0 to 2 opens, and 0 says b."""
    room = Room(protocol.on(LINE))
    room.say(0, "a")
    room.open(0, 2)
    room.flow((0, 2), (2, 0))
    room.say(0, "b")
    room.flow((0, 2), (2, 0))
    room.flow()
    assert room.heard[2] == heard
    room.say(0, "c")
    assert [packet.carries() for packet in room.under_way(0, 2)] == [(MessageId(0, 3),)]  # it is used now


class TakesAnyPongSoon(TakesAnyPong):
    most_buffered: ClassVar[int] = 1


class BuffersOne(Pc):
    most_buffered: ClassVar[int] = 1


@pytest.mark.parametrize(("protocol", "heard"), [(TakesAnyPongSoon, "adbc"), (BuffersOne, "abcd")])
def test_an_old_pong_says_nothing_of_what_was_thrown_away(protocol: type[Pc], heard: str) -> None:
    """A pong is on its way to 0 when b and c are too much for the buffer; they are slow through 1."""
    room = Room(protocol.on(LINE))
    room.say(0, "a")
    room.flow()
    room.open(0, 2)
    room.flow((0, 1), (1, 2))
    room.say(0, "bc")
    assert room.carry(2, 0) == Pong(1)
    room.say(0, "d")
    room.flow((0, 2))
    room.flow()
    assert room.heard[2] == heard


@pytest.mark.parametrize(("protocol", "heard"), [(PassesPingsOnOverAnyLink, "ba"), (Pc, "ab")])
def test_a_ping_over_a_link_that_is_not_safe_proves_nothing(protocol: type[Pc], heard: str) -> None:
    """0, 1, 2, 3 in a line. a has come to 1 and no further when 1 opens a link to 3, and then 0 does."""
    room = Room(protocol.on([(1,), (0, 2), (1, 3), (2,)]))
    room.say(0, "a")
    room.flow((0, 1))
    room.open(1, 3)
    room.open(0, 3)
    room.flow((0, 1), (1, 3), (3, 0), (0, 3))
    room.say(0, "b")
    room.flow((0, 3))
    room.flow()
    assert room.heard[3] == heard


@pytest.mark.parametrize(("joiner", "heard"), [(ForgetfulJoiner, "ba"), (Joiner, "b")])
def test_what_the_contact_had_comes_late_by_another_link(joiner: type[Joiner], heard: str) -> None:
    """0 has said a, slow on its way to 1, when 2 joins by 0; 0 says b; then a link from 1 to 2 opens."""
    room = Room([*Pc.on([(1,), (0,)]), joiner.newcomer(2, 3)])
    for member in room.members:
        member.size = 3
    room.say(0, "a")
    room.open(0, 2)
    room.flow((0, 2), (2, 0))
    room.say(0, "b")
    room.flow((0, 2))
    room.open(1, 2)
    room.flow()
    assert room.heard == ["", "ab", heard]


def test_a_leaf_that_breaks_its_link_before_it_makes_the_new_one_is_cut_off() -> None:
    """What was under way is lost, and no ping can tell: nothing is sent that might come before it."""
    room = Room(Pc.on(LINE))
    room.say(0, "a")
    room.close(0, 1)
    room.open(0, 2)
    room.say(0, "b")
    room.flow()
    assert room.heard == ["", "", ""]


# One member at a time.


def opened(**state: object) -> Pc:
    """Member 0 of a line of four that has said "a" and opened a link to 2, which ping 1 asks about."""
    member = msgspec.structs.replace(Pc.on([(1,), (0, 2), (1, 3), (2,)])[0], **state)
    member.broadcast(b"a", 0)
    effects = member.link_opened(2, 10)
    assert effects == Effects((Send((1,), Ping(0, 2, 1)),), wake_at=10 + PATIENCE)
    return member


class Bounded(Pc):
    most_buffered: ClassVar[int] = 3


def bounded() -> Bounded:
    member = Bounded(0, 4, (1,))
    member.broadcast(b"a", 0)
    member.link_opened(2, 10)
    return member


def flooded(*numbers: int) -> list[Flooded]:
    return [Flooded(b"", 0, number) for number in numbers]


def test_a_pong_makes_a_link_safe_and_sends_what_was_kept_in_order() -> None:
    member = opened()
    assert member.broadcast(b"", 20).sends == (Send((1,), Flooded(b"", 0, 2)),)
    theirs = Flooded(b"x", 1, 1)
    assert member.receive(1, theirs, 30) == NOTHING
    assert member.receive(2, Pong(1), 40).sends == (Send((2,), flooded(2)[0]), Send((2,), theirs))
    assert (member.neighbours, member.openings) == ((1, 2), {})
    assert member.broadcast(b"", 50).sends == (Send((1, 2), Flooded(b"", 0, 3)),)
    assert member.receive(2, Pong(1), 60) == NOTHING
    assert member.neighbours == (1, 2)


def test_a_message_is_not_kept_for_the_one_it_came_from_nor_kept_twice() -> None:
    member = opened()
    message = Flooded(b"x", 2, 1)
    assert member.receive(2, message, 20).sends == (Send((1,), message),)
    assert member.receive(1, message, 30) == NOTHING
    assert member.receive(1, Flooded(b"y", 3, 1), 40) == NOTHING
    assert member.receive(1, Flooded(b"y", 3, 1), 50) == NOTHING
    assert member.openings[2].buffer == [Flooded(b"y", 3, 1)]


def test_a_pong_of_another_link_or_of_an_earlier_opening_is_passed_over() -> None:
    member = opened()
    assert member.receive(3, Pong(1), 20) == NOTHING
    assert member.link_closed(2, 20) == NOTHING
    assert member.receive(2, Pong(1), 20) == NOTHING
    member.broadcast(b"", 30)
    assert member.link_opened(2, 40) == Effects((Send((1,), Ping(0, 2, 2)),))
    assert member.receive(2, Pong(1), 50) == NOTHING
    assert member.openings == {2: Opening(2, 40 + PATIENCE, [])}
    assert member.receive(2, Pong(2), 60) == NOTHING
    assert member.neighbours == (1, 2)


def test_a_buffer_that_overflows_is_begun_anew_and_asks_behind_the_message() -> None:
    member = bounded()
    for _ in range(3):
        member.broadcast(b"", 20)
    assert member.openings[2] == Opening(1, 10 + PATIENCE, flooded(2, 3, 4))
    sends = member.broadcast(b"", 30).sends
    assert sends == (Send((1,), Flooded(b"", 0, 5)), Send((1,), Ping(0, 2, 2)))
    assert member.openings[2] == Opening(2, 30 + PATIENCE, [])
    member.broadcast(b"", 40)
    assert member.receive(2, Pong(1), 50) == NOTHING
    assert member.receive(2, Pong(2), 50).sends == (Send((2,), flooded(6)[0]),)


def test_a_message_that_is_passed_on_overflows_a_buffer_too() -> None:
    member = bounded()
    for number in (1, 2, 3):
        member.receive(1, Flooded(b"", 3, number), 20)
    assert member.receive(1, Flooded(b"", 3, 4), 30).sends == (Send((1,), Ping(0, 2, 2)),)
    assert member.openings[2].buffer == []


def test_out_of_patience_it_asks_again_and_the_pong_of_either_ping_will_do() -> None:
    member = opened()
    member.broadcast(b"", 20)
    late = 10 + PATIENCE
    assert member.wake(late) == Effects((Send((1,), Ping(0, 2, 2)),), wake_at=late + PATIENCE)
    assert member.openings[2] == Opening(1, late + PATIENCE, flooded(2))
    again = Pc.restore(member.save())
    for one, number in ((member, 1), (again, 2)):
        assert one.receive(2, Pong(number), late + 1).sends == (Send((2,), flooded(2)[0]),)
        assert one.wake(late + PATIENCE) == NOTHING


def test_one_call_at_a_time_is_asked_for_however_many_links_there_are() -> None:
    member = opened()
    assert member.link_opened(3, 20) == Effects((Send((1,), Ping(0, 3, 2)),))
    first = 10 + PATIENCE
    assert member.wake(first) == Effects((Send((1,), Ping(0, 2, 3)),), wake_at=20 + PATIENCE)
    assert member.openings[3].since == 2
    member.receive(2, Pong(3), first + 1)
    member.link_closed(3, first + 2)
    assert member.link_opened(3, first + 3).wake_at is None
    member.receive(3, Pong(4), first + 4)
    assert member.wake(20 + PATIENCE) == NOTHING
    member.link_closed(3, 30 + PATIENCE)
    assert member.link_opened(3, 40 + PATIENCE).wake_at == 40 + 2 * PATIENCE


def test_a_link_that_never_becomes_safe_lets_a_run_end() -> None:
    members: list[Protocol] = [*Pc.on([(1,), (0,)]), Dead(2, 3, ())]
    for member in members:
        member.size = 3
    asked = Histories(Scenario("pc", 3))
    links = [LinkChange(SECOND // 2, 0, 2, opens=True)]
    network = Direct(1, parse_delay("1ms"), fifo=True)
    world = World(members, network, Periodic(1, SECOND // 10, 0), [asked], until=SECOND, links=links)
    world.run()
    assert SECOND < world.now <= 61 * SECOND
    assert isinstance(members[0], Pc)
    assert members[0].pings == 1 + (61 * SECOND - SECOND // 2) // PATIENCE


def test_links_are_safe_at_once_while_nothing_was_delivered() -> None:
    alone, other = Pc.on([(), ()])
    assert alone.link_opened(1, 0) == NOTHING
    assert (alone.neighbours, alone.openings) == ((1,), {})
    other.receive(0, alone.broadcast(b"", 0).sends[0].packet, 0)
    assert other.link_opened(0, 0).wake_at == PATIENCE  # it has delivered, and has not sent
    assert list(other.openings) == [0]
    assert alone.link_closed(1, 0) == NOTHING
    assert alone.neighbours == ()
    assert alone.link_opened(1, 0) == Effects(wake_at=PATIENCE)  # it has sent, and not delivered


def test_a_link_that_closed_is_not_used() -> None:
    member = opened()
    member.receive(2, Pong(1), 20)
    member.link_closed(1, 30)
    assert member.neighbours == (2,)
    assert member.broadcast(b"", 40).sends == (Send((2,), Flooded(b"", 0, 2)),)


def test_a_ping_is_passed_on_once_over_safe_links_and_answered_by_its_target() -> None:
    _, one, two, three = Pc.on([(1,), (0, 2), (1, 3), (2,)])
    ping = Ping(0, 2, 1)
    assert one.receive(0, ping, 0).sends == (Send((2,), ping),)
    assert one.receive(0, ping, 0) == NOTHING
    assert one.receive(2, ping, 0) == NOTHING
    assert one.receive(0, Ping(0, 2, 2), 0).sends == (Send((2,), Ping(0, 2, 2)),)
    assert two.receive(1, ping, 0) == NOTHING  # there is no link from 2 to 0
    two.link_opened(0, 0)
    assert two.receive(1, ping, 0) == NOTHING  # that one is gone; 0 will ask again
    assert two.receive(1, Ping(0, 2, 2), 0).sends == (Send((0,), Pong(2)),)
    assert three.receive(2, ping, 0) == NOTHING  # nobody to pass it on to


def test_a_target_answers_over_a_link_that_is_not_safe_on_its_side() -> None:
    member = opened()
    assert member.receive(1, Ping(2, 0, 1), 20).sends == (Send((2,), Pong(1)),)


def test_ones_own_ping_that_comes_back_stops() -> None:
    member = opened()
    member.receive(2, Pong(1), 0)
    assert member.receive(1, Ping(0, 2, 1), 0) == NOTHING
    assert member.pinged == {}
    with pytest.raises(RemoteError, match="not sent"):
        member.receive(1, Ping(0, 2, 2), 0)


class RemembersThree(Pc):
    recent_pings: ClassVar[int] = 3


def test_of_pings_only_the_most_recent_are_remembered() -> None:
    member = RemembersThree.on(LINE)[1]

    def is_new(number: int) -> bool:
        return bool(member.receive(0, Ping(0, 2, number), 0).sends)

    assert [is_new(number) for number in (2, 4)] == [True, True]
    assert member.pinged[0] == Window.of([1, 2, 4])
    assert [is_new(number) for number in (3, 1, 4, 2)] == [True, False, False, False]
    assert is_new(2**64 - 1)
    assert member.pinged[0] == Window(2**64 - 4, 0b100)
    assert [is_new(2**64 - each) for each in (4, 3, 2, 1)] == [False, True, True, False]
    assert member.pinged[0] == Window(2**64 - 1)


def newcomer() -> Pc:
    """Member 0 of four, with its hello to 1 sent and a link to 2 opened besides."""
    member = Pc.newcomer(0, 4)
    assert member.link_opened(1, 0) == Effects((Send((1,), Hello()),), wake_at=PATIENCE)
    assert member.link_opened(2, 1) == NOTHING
    assert member.contact == 1
    return member


SNAPSHOT = Snapshot({2: Window(3).to_bytes(), 1: Window(1).to_bytes(), 3: Window(2).to_bytes()})


def test_a_newcomer_says_nothing_before_its_snapshot() -> None:
    member = newcomer()
    with pytest.raises(LocalError, match="snapshot"):
        member.broadcast(b"", 0)
    assert member.sent == 0
    member.receive(1, SNAPSHOT, 5)
    assert member.broadcast(b"", 6).message == MessageId(0, 1)


def test_a_snapshot_makes_the_contact_safe_and_asks_about_the_other_links() -> None:
    member = newcomer()
    assert member.receive(1, SNAPSHOT, 5).sends == (Send((1,), Ping(0, 2, 3)),)
    assert member.neighbours == (1,)
    assert member.received == {2: Window(3), 1: Window(1), 3: Window(2)}
    assert list(member.openings) == [2]
    assert member.openings[2] == Opening(2, 1 + PATIENCE, [])
    assert member.receive(2, Flooded(b"", 2, 3), 6) == NOTHING
    assert member.deliver(6) is None
    assert member.receive(2, Flooded(b"", 2, 4), 7).sends == (Send((1,), Flooded(b"", 2, 4)),)
    assert member.deliver(7) is not None
    before = member.save()
    with pytest.raises(RemoteError, match="not asked for"):
        member.receive(1, SNAPSHOT, 8)
    assert member.save() == before
    assert member.link_closed(1, 9) == NOTHING  # it needs no other contact


def test_what_comes_before_the_snapshot_is_taken_after_it() -> None:
    member = newcomer()
    early = [Flooded(b"", 2, 3), Flooded(b"", 2, 4), Flooded(b"", 9, 1), Ping(2, 0, 1), Flooded(b"", 2, 5)]
    for packet in early:
        assert member.receive(2, packet, 2) == NOTHING
        assert member.deliver(2) is None
    assert [wait.message.seq for wait in member.waiting()] == [3, 4, 1, 5]
    assert member.waiting()[0] == Waiting(MessageId(2, 3), None)
    member = Pc.restore(member.save())
    sends = member.receive(1, SNAPSHOT, 5).sends
    assert sends == (
        Send((1,), Ping(0, 2, 3)),
        Send((1,), Flooded(b"", 2, 4)),
        Send((2,), Pong(1)),
        Send((1,), Flooded(b"", 2, 5)),
    )
    taken = [member.deliver(5), member.deliver(5)]
    assert [each and each.message for each in taken] == [MessageId(2, 4), MessageId(2, 5)]
    assert member.waiting() == []
    assert member.early == []


def test_no_more_is_kept_before_the_snapshot_than_for_a_link() -> None:
    member = Bounded.newcomer(0, 4)
    member.link_opened(1, 0)
    for number in (1, 2, 3):
        member.receive(1, Flooded(b"", 1, number), 0)
    before = member.save()
    with pytest.raises(RemoteError, match="too much"):
        member.receive(1, Flooded(b"", 1, 4), 0)
    assert member.save() == before


def test_a_newcomer_whose_contact_goes_takes_another() -> None:
    member = newcomer()
    contacts = [member.contact]
    for now, link in enumerate((2, 1)):
        assert member.link_closed(link, now) == NOTHING
        contacts.append(member.contact)
    assert contacts == [1, 1, None]
    assert member.link_opened(3, 4).sends == (Send((3,), Hello()),)
    member.link_opened(2, 5)
    assert member.link_closed(3, 6).sends == (Send((2,), Hello()),)
    with pytest.raises(RemoteError, match="not asked for"):
        member.receive(3, SNAPSHOT, 7)
    member.receive(2, SNAPSHOT, 8)
    assert member.neighbours == (2,)


def test_a_contact_answers_with_all_it_has_and_its_link_is_safe() -> None:
    contact = opened()
    contact.receive(1, Flooded(b"", 3, 1), 20)
    contact.receive(1, Flooded(b"", 3, 3), 20)
    snapshot = Snapshot({3: Window.of([1, 3]).to_bytes(), 0: Window(1).to_bytes()})
    assert contact.receive(2, Hello(), 30).sends == (Send((2,), snapshot),)  # and not what was kept
    assert (contact.neighbours, contact.openings) == ((1, 2), {})
    assert Pc.decode(Pc.encode(snapshot)) == snapshot
    assert contact.receive(2, Hello(), 40).sends == (Send((2,), snapshot),)
    assert contact.neighbours == (1, 2)


def test_a_contact_that_has_nothing_says_so() -> None:
    contact, other = Pc.on([(), ()])
    contact.link_opened(1, 0)
    assert contact.receive(1, Hello(), 0).sends == (Send((1,), Snapshot({})),)
    with pytest.raises(RemoteError, match="not open"):
        other.receive(0, Hello(), 0)


hostile: list[Packet] = [
    Ping(9, 2, 1),
    Ping(-1, 2, 1),
    Ping(1, 9, 1),
    Ping(1, -1, 1),
    Ping(1, 2, 0),
    Ping(0, 2, 2),
    Pong(0),
    Pong(2),
    Snapshot({}),
    Flooded(b"", 9, 1),
]


@pytest.mark.parametrize("packet", hostile, ids=repr)
def test_a_packet_that_no_correct_peer_sends_is_refused(packet: Packet) -> None:
    member = opened()
    before = member.save()
    with pytest.raises(RemoteError):
        member.receive(2, packet, 0)
    assert member.save() == before


def test_a_hello_over_no_link_is_refused() -> None:
    member = opened()
    before = member.save()
    with pytest.raises(RemoteError):
        member.receive(3, Hello(), 0)
    assert member.save() == before


@pytest.mark.parametrize(
    ("link", "packet"),
    [
        (2, SNAPSHOT),
        (1, Snapshot({9: b"\0"})),
        (1, Snapshot({-1: b"\0"})),
        (1, Snapshot({0: b"\0"})),
        (1, Snapshot({2: b""})),
        (1, Mbcp.group(2)[0].broadcast(b"", 0).sends[0].packet),
    ],
    ids=repr,
)
def test_what_no_correct_peer_sends_to_a_newcomer_is_refused(link: int, packet: Packet) -> None:
    member = newcomer()
    before = member.save()
    with pytest.raises(RemoteError):
        member.receive(link, packet, 0)
    assert member.save() == before


@pytest.mark.parametrize("link", [0, -1, 4, 1, 2])
def test_a_link_that_cannot_be_opened_is_the_callers_mistake(link: int) -> None:
    member = opened()
    before = member.save()
    with pytest.raises(LocalError, match="can be opened"):
        member.link_opened(link, 0)
    assert member.save() == before


def test_a_link_that_is_not_open_cannot_be_closed() -> None:
    member = opened()
    with pytest.raises(LocalError, match="is open"):
        member.link_closed(3, 0)


def test_limits_are_far_from_what_a_healthy_group_needs() -> None:
    assert (Pc.most_buffered, Pc.patience, Pc.recent_pings) == (10_000, 5 * SECOND, 1_000)


# Layouts.


def test_overlays_by_name() -> None:
    shapes = {name: Overlay(name).joins(4) for name in ("hypercube", "ring", "line", "star")}
    assert shapes == {
        "hypercube": [(1, 2), (0, 3), (0, 3), (1, 2)],
        "ring": [(1, 3), (0, 2), (1, 3), (0, 2)],
        "line": [(1,), (0, 2), (1, 3), (2,)],
        "star": [(1, 2, 3), (0,), (0,), (0,)],
    }
    assert all(Overlay(name).joins(1) == [()] for name in shapes)
    assert [Overlay.random(4, lambda below, n=n: n % below).overlay for n in range(5)] == [  # type: ignore[misc]
        *shapes,
        "hypercube",
    ]
    assert [member.neighbours for member in Pc.arranged(4, Overlay.usual(4))] == shapes["hypercube"]
    assert [member.neighbours for member in Pc.group(4)] == shapes["hypercube"]
    assert Overlay().sites(3) == [0, 1, 2]


def test_an_overlay_that_is_not_there_is_named() -> None:
    with pytest.raises(InputError, match="layout: overlay: there is no 'torus'; there are hypercube, ring"):
        scenario(protocol="pc", peers=4, layout={"overlay": "torus"})
    with pytest.raises(InputError, match="shape"):
        scenario(protocol="pc", peers=4, layout={"shape": "ring"})
    with pytest.raises(LocalError, match="torus"):
        Overlay("torus").joins(4)


def test_without_churn_it_is_flooding() -> None:
    runs = [
        simulate(scenario(protocol=protocol, peers=11, delay="wild:1ms-1s"))
        for protocol in ("pc", "flooding")
    ]
    assert runs[0] == runs[1]


def test_control_packets_are_small_and_carry_no_message() -> None:
    packets = [Ping(3, 4, 17), Pong(17), Hello(), Snapshot({5: b"x"})]
    assert [Pc.control_bytes(packet) for packet in packets] == [5, 3, 2, 7]
    assert [packet.carries() for packet in packets] == [(), (), (), ()]
    tags = [msgspec.msgpack.decode(Pc.encode(packet))[0] for packet in packets]
    assert tags == [11, 12, 13, 14]
    assert [Pc.decode(Pc.encode(packet)) for packet in packets] == packets
    assert len({*packets[:3], Overlay()}) == 4  # what cannot be changed can be in a set
    with pytest.raises(AttributeError, match="immutable"):
        packets[3].received = {}  # type: ignore[attr-defined]
    assert Pc.group(2)[0].paper_bytes(Flooded(b"", 0, 1)) == 4
