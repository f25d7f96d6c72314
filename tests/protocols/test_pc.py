"""Links that open and close, and crashes: what `pc` guarantees, and why each of its rules is needed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

import pytest
from pc_network import LINE, PONG_TIMEOUT, ManualNetwork

from antecede.causality import MessageId, judge
from antecede.causality.execution import Execution
from antecede.papers.paper_002.flooding_variants import FloodingWithMovingLinks
from antecede.protocols.base import NO_EFFECTS, Effects, Packet, Protocol
from antecede.protocols.flooding import Flooding
from antecede.protocols.pc import Pc, Pong
from antecede.sim import counter_rng
from antecede.sim.network import DirectNetwork, parse_delay
from antecede.sim.scenario import Scenario, scenario
from antecede.sim.verify import Histories, VerifyReport, verify
from antecede.sim.workload import Periodic
from antecede.sim.world import LinkChange, World
from antecede.units import SECOND
from printed_protocols import pc as printed
from smallest_run import assert_passed


def final(protocol: str, runs: int, seed: int = 3) -> VerifyReport:
    """The report of these runs, up to the first that fails."""
    found = VerifyReport(protocol)
    for found in verify(protocol, runs, seed):
        if found.failed:
            break
    return found


# Random runs


def test_causal_order_holds_while_links_open_and_close() -> None:
    assert_passed(final("pc", 700))


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
def test_causal_order_holds_under_heavy_link_churn(peers: int, overlay: str, delay: str, seed: int) -> None:
    """Links open, close and open again, 500 times a second, while their pings are in flight."""
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
    assert all(isinstance(member, Pc) and not member.unsafe_links for member in members)  # all became safe


class SmallBuffers(Pc):
    """Overflows sometimes; pings are repeated soon."""

    max_buffered: ClassVar[int] = 3
    pong_timeout: ClassVar[int] = 400_000_000


def test_small_buffers_and_short_timeouts_break_nothing() -> None:
    assert final(f"{__name__}:SmallBuffers", 200).passed


class Dead(Pc):
    """A crashed member: it receives and sends nothing."""

    def broadcast(self, payload: bytes, now: int, group: str | None = None) -> Effects:
        return NO_EFFECTS

    def receive(self, link: int, packet: Packet, now: int) -> Effects:
        return NO_EFFECTS

    def wake(self, now: int) -> Effects:
        return NO_EFFECTS

    def link_opened(self, link: int, now: int) -> Effects:
        return NO_EFFECTS

    def link_closed(self, link: int, now: int) -> Effects:
        return NO_EFFECTS


@pytest.mark.parametrize("seed", range(30))
def test_a_member_that_crashes_disturbs_no_other(seed: int) -> None:
    drawn = counter_rng.RandomStream(seed)
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


def test_a_link_that_never_becomes_safe_lets_a_run_end() -> None:
    members: list[Protocol] = [*Pc.on_overlay([(1,), (0,)]), Dead(2, 3, ())]
    for member in members:
        member.size = 3
    asked = Histories(Scenario("pc", 3))
    links = [LinkChange(SECOND // 2, 0, 2, opens=True)]
    network = DirectNetwork(1, parse_delay("1ms"), fifo=True)
    world = World(members, network, Periodic(1, SECOND // 10, 0), [asked], until=SECOND, link_changes=links)
    world.run()
    assert SECOND < world.now <= 61 * SECOND
    assert isinstance(members[0], Pc)
    assert members[0].pings_sent == 1 + (61 * SECOND - SECOND // 2) // PONG_TIMEOUT


# Why each rule is needed: a random run that breaks without it, and the smallest scenario


@pytest.mark.parametrize(
    "broken",
    [
        FloodingWithMovingLinks,
        printed.UsesNewLinksAtOnce,
        printed.TakesAnyPong,
        printed.PingsOverTheNewLink,
        printed.PassesPingsOnOverAnyLink,
        printed.ForgetsWhatItKept,
    ],
)
def test_each_rule_is_needed(broken: type[Protocol]) -> None:
    assert final(f"{broken.__module__}:{broken.__name__}", 600).violations > 0


@pytest.mark.parametrize(
    ("protocol", "heard"),
    [
        (FloodingWithMovingLinks, "ba"),
        (printed.UsesNewLinksAtOnce, "ba"),
        (printed.PingsOverTheNewLink, "ba"),
        (Pc, "ab"),
    ],
)
def test_a_new_link_is_a_short_cut_past_messages_in_flight(protocol: type[Flooding], heard: str) -> None:
    """0 sends a, which is slow through 1; a link from 0 to 2 opens, and 0 sends b."""
    network = ManualNetwork(protocol.on_overlay(LINE))
    network.broadcast(0, "a")
    network.open(0, 2)
    network.flow((0, 2), (2, 0))
    network.broadcast(0, "b")
    network.flow((0, 2), (2, 0))
    network.flow()
    assert network.delivered[2] == heard
    network.broadcast(0, "c")
    assert [packet.message_ids() for packet in network.in_flight(0, 2)] == [
        (MessageId(0, 3),)
    ]  # it is used now


class BuffersOne(Pc):
    max_buffered: ClassVar[int] = 1


@pytest.mark.parametrize(("protocol", "heard"), [(printed.TakesAnyPongSoon, "adbc"), (BuffersOne, "abcd")])
def test_an_old_pong_proves_nothing_about_a_discarded_buffer(protocol: type[Pc], heard: str) -> None:
    """A pong is in flight to 0 when b and c exceed the buffer; they are slow through 1."""
    network = ManualNetwork(protocol.on_overlay(LINE))
    network.broadcast(0, "a")
    network.flow()
    network.open(0, 2)
    network.flow((0, 1), (1, 2))
    network.broadcast(0, "bc")
    assert network.arrive(2, 0) == Pong(1)
    network.broadcast(0, "d")
    network.flow((0, 2))
    network.flow()
    assert network.delivered[2] == heard


@pytest.mark.parametrize(("protocol", "heard"), [(printed.PassesPingsOnOverAnyLink, "ba"), (Pc, "ab")])
def test_a_ping_over_a_link_that_is_not_safe_proves_nothing(protocol: type[Pc], heard: str) -> None:
    """0, 1, 2, 3 in a line. a has arrived at 1 and no further when 1 opens a link to 3, and then 0 does."""
    network = ManualNetwork(protocol.on_overlay([(1,), (0, 2), (1, 3), (2,)]))
    network.broadcast(0, "a")
    network.flow((0, 1))
    network.open(1, 3)
    network.open(0, 3)
    network.flow((0, 1), (1, 3), (3, 0), (0, 3))
    network.broadcast(0, "b")
    network.flow((0, 3))
    network.flow()
    assert network.delivered[3] == heard


def test_a_leaf_that_closes_its_link_before_it_opens_the_new_one_is_cut_off() -> None:
    """What was in flight is lost, and no ping can prove otherwise: nothing is sent that might arrive before
    it."""
    network = ManualNetwork(Pc.on_overlay(LINE))
    network.broadcast(0, "a")
    network.close(0, 1)
    network.open(0, 2)
    network.broadcast(0, "b")
    network.flow()
    assert network.delivered == ["", "", ""]
