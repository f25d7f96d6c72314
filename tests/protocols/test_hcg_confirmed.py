"""Real time without trusted bounds: whatever links and clocks do, causal order holds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import pytest

from antecede.causality import judge
from antecede.protocols.base import LinkRequirements, LocalError, RemoteError
from antecede.protocols.hcg.clocks import RealTimeClock
from antecede.protocols.hcg.confirmed import BoundedLayout, ConfirmedHcg, ConfirmedTimeClock
from antecede.protocols.hcg.layout import SubgroupLayout
from antecede.protocols.hcg.packets import LinearAck, LocalRank, SubgroupPacket
from antecede.sim.scenario import scenario
from antecede.sim.verify import Histories, VerifyReport, verify
from smallest_run import assert_passed

HCG = "antecede.protocols.hcg.confirmed:ConfirmedHcg"
BASIC = "antecede.protocols.hcg.confirmed:ConfirmedBasic"
KEPT, BROKEN = "test_hcg_confirmed:Kept", "test_hcg_confirmed:Broken"
UNCONFIRMED = "test_hcg_confirmed:Unconfirmed"


class Kept(ConfirmedHcg):
    """Runs on clocks that differ and links that keep to their bounds."""

    links: ClassVar[LinkRequirements] = LinkRequirements(fifo=True, bounded_delays=True)


class Broken(Kept):
    """Bounds promise only a tenth of the real delays and skew."""

    @classmethod
    def _create_real_time(cls, rank: LocalRank, members: int, layout: SubgroupLayout) -> RealTimeClock:
        promised = layout.with_bounds(layout.longest_delay // 10, layout.skew // 10)
        return super()._create_real_time(rank, members, promised)


class WithoutConfirmations(ConfirmedTimeClock, tag="unconfirmed"):
    def _all_confirmed(self) -> int:
        return self.now


class Unconfirmed(Broken):
    """The same without confirmations: time alone decides, as in the paper."""

    clock: Any

    @classmethod
    def _create_real_time(cls, rank: LocalRank, members: int, layout: SubgroupLayout) -> RealTimeClock:
        made = super()._create_real_time(rank, members, layout)
        return WithoutConfirmations(rank, members, wait=made.wait, skew=0, pace=0)


@pytest.mark.parametrize("protocol", [HCG, BASIC, KEPT, BROKEN])
def test_random_runs(protocol: str) -> None:
    """The first two without any promise, and with links that stall now and then."""
    found = VerifyReport(protocol)
    for found in verify(protocol, 80, seed=11):
        if found.failed:
            break
    assert_passed(found)


def run(protocol: str, subgroups: Sequence[str], seed: int) -> bool:
    """Whether a run is in causal order, once, and complete."""
    made = scenario(
        protocol=protocol,
        peers=sum(int(each.partition(":")[2]) for each in subgroups),
        seconds=0.5,
        rate=20.0,
        reply=0.2,
        delay="0-60ms",
        local_delay="0-20ms",
        skew="20ms",
        most_messages=80,
        layout={"subgroups": list(subgroups)},
        seed=seed,
    )
    members, histories = made.members(), Histories(made)
    made.world(members, [histories]).run()
    assert [member.waiting() for member in members] == [[] for _ in members]
    return judge(histories.execution()).verdict.clean


@pytest.mark.parametrize("protocol", [KEPT, BROKEN])
@pytest.mark.parametrize("subgroups", [["rt:4"], ["rt:3", "vt:3"], ["rt:3", "lt:2", "rt:2"]], ids=" ".join)
def test_causal_order_holds_whether_or_not_clock_bounds_do(protocol: str, subgroups: list[str]) -> None:
    assert all(run(protocol, subgroups, seed) for seed in range(20))


def test_without_confirmations_broken_clock_bounds_break_causal_order() -> None:
    assert not all(run(UNCONFIRMED, ["rt:4"], seed) for seed in range(20))


def clock(size: int = 2, rank: int = 1) -> ConfirmedTimeClock:
    return ConfirmedTimeClock(rank, size, wait=100, skew=20, pace=10)


def packet(number: int, stamp: int) -> SubgroupPacket:
    return SubgroupPacket(b"", 0, number, number, [stamp])


def test_a_confirmed_message_is_delivered_when_its_wait_is_over() -> None:
    mine = clock(3)
    mine.receive(0, packet(1, 1000))
    mine.receive_ack(2, LinearAck(0, 1010))
    assert mine.advance_time(1005) == 1010  # to confirm it itself
    assert mine.pending_ack() is None
    assert mine.advance_time(1010) == 1100
    assert mine.pending_ack() == LinearAck(0, 1010)
    assert mine.advance_time(1099) is None  # the wake-up at 1100 was requested above
    assert mine.next_in_order() is None
    mine.advance_time(1100)
    assert mine.next_in_order() == (0, packet(1, 1000))


def test_an_unconfirmed_message_is_held_and_the_awaited_members_are_known() -> None:
    mine = clock(3)
    mine.receive(0, packet(1, 1000))
    mine.advance_time(1100)
    assert mine.next_in_order() is None
    assert mine.awaited(1099) == (0, [])
    assert mine.awaited(1150) == (1100, [2])
    mine.receive_ack(2, LinearAck(0, 1000))
    mine.advance_time(1150)
    assert mine.awaited(1150) == (0, [])
    assert mine.next_in_order() == (0, packet(1, 1000))


def test_one_confirmation_covers_everything_received_so_far() -> None:
    mine = clock()
    for number in range(1, 6):
        mine.receive(0, packet(number, 1000 + number))
    mine.advance_time(1011)
    assert mine.pending_ack() == LinearAck(0, 1011)
    mine.advance_time(1050)
    assert mine.pending_ack() is None


def test_a_message_confirms_everything_received_before_it() -> None:
    mine = clock()
    mine.receive(0, packet(1, 1000))
    assert mine.stamp(1005) == [1005]
    mine.advance_time(1020)
    assert mine.pending_ack() is None


def test_stamps_exceed_confirmed_times_even_if_the_clock_stands_still() -> None:
    mine = clock()
    mine.receive(0, packet(1, 1000))
    mine.advance_time(1010)
    assert mine.pending_ack() == LinearAck(0, 1010)
    assert [mine.stamp(1010), mine.stamp(1010)] == [[1011], [1012]]


@pytest.mark.parametrize("bad", [packet(1, 900), packet(2, 1001), packet(1, 4 * 10**12), packet(1, 1000)])
def test_packets_no_correct_member_sends_are_refused(bad: SubgroupPacket) -> None:
    mine = clock()
    mine.receive_ack(0, LinearAck(0, 1000))
    with pytest.raises(RemoteError):
        mine.validate(0, bad, 1000)
    with pytest.raises(RemoteError):
        mine.receive_ack(0, LinearAck(1, 1001))


def test_a_clock_beyond_its_promised_skew_is_not_refused() -> None:
    clock().validate(0, packet(1, 10_000), 1000)


def test_each_subgroup_has_its_own_bounds() -> None:
    layout = BoundedLayout(["rt:2", "vt:1", "rt:1"], bounds=((40, 9), (0, 0), (400, 90)))
    members = ConfirmedHcg.with_layout(4, layout)
    found = [getattr(each.clock, "wait", None) for each in members]
    assert found == [50, 50, None, 491]
    assert [each.partners() for each in members] == [(1, 2, 3), (0,), (0, 3), (0, 2)]
    assert [each.role() for each in members] == ["gateway", "local", "gateway", "gateway"]
    with pytest.raises(LocalError, match="bounds"):
        ConfirmedHcg.with_layout(3, BoundedLayout(["rt:2", "vt:1"], bounds=((1, 1),)))
