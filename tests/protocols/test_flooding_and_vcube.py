"""Protocols on overlays: how often messages are sent, and what breaks them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antecede.causality import MessageId, judge
from antecede.protocols import catalog
from antecede.protocols.base import Delivery, RemoteError
from antecede.protocols.flooding import Flooding
from antecede.sim.engines import simulate
from antecede.sim.scenario import scenario
from antecede.sim.verify import Histories, VerifyReport, verify

PRINTED = "antecede.papers.paper_002.flooding_variants"


class Arrivals:
    """How often each message arrives at each process, and when it is delivered there."""

    def __init__(self) -> None:
        self.count: dict[tuple[int, MessageId], int] = {}
        self.delivered: set[tuple[int, MessageId]] = set()

    def send(
        self, process: int, message: MessageId, time: int, control: int, paper: int, group: str | None
    ) -> None:
        pass

    def receive(self, process: int, link: int, message: MessageId, time: int) -> None:
        self.count[process, message] = self.count.get((process, message), 0) + 1

    def deliver(self, process: int, message: MessageId, time: int) -> None:
        self.delivered.add((process, message))


@pytest.mark.parametrize("protocol", ["vcube", "vcube-agg"])
@given(peers=st.integers(1, 40), seed=st.integers(0, 2**32), reply=st.sampled_from([0.0, 0.05]))
def test_every_message_reaches_every_peer_exactly_once_down_a_tree(
    protocol: str, peers: int, seed: int, reply: float
) -> None:
    seen = Arrivals()
    given_scenario = scenario(
        protocol=protocol, peers=peers, seed=seed, reply=reply, seconds=0.3, delay="1-300ms", most_messages=30
    )
    metrics = simulate(given_scenario, [seen]).metrics
    assert metrics.stuck == 0
    assert set(seen.count.values()) <= {1}
    assert len(seen.count) == len(seen.delivered) == metrics.messages * (peers - 1)
    if protocol == "vcube":
        assert metrics.packets == metrics.messages * (peers - 1)
    else:
        assert metrics.packets <= metrics.messages * (peers - 1)


@given(peers=st.integers(1, 20), seed=st.integers(0, 2**32), rate=st.sampled_from([2.0, 10.0]))
def test_aggregation_does_not_change_what_is_delivered(peers: int, seed: int, rate: float) -> None:
    delivered = []
    for protocol in ("vcube", "vcube-agg"):
        made = scenario(
            protocol=protocol, peers=peers, seed=seed, rate=rate, seconds=0.5, delay="wild:1us-1s"
        )
        histories = Histories(made)
        simulate(made, [histories])
        assert judge(histories.execution()).verdict.clean
        delivered.append([sorted(steps) for steps in histories.steps])
    assert delivered[0] == delivered[1]


def test_aggregation_saves_packets_increasingly_with_group_size() -> None:
    saved = []
    for peers in (16, 64):
        runs = [
            simulate(
                scenario(
                    protocol=protocol, peers=peers, seconds=1, rate=2, delay="normal:50-150ms", seed=seed
                )
            ).metrics.packets
            for protocol in ("vcube", "vcube-agg")
            for seed in range(3)
        ]
        saved.append(1 - sum(runs[3:]) / sum(runs[:3]))
    assert 0 < saved[0] < saved[1]


def final(protocol: str, runs: int) -> VerifyReport:
    found = VerifyReport(protocol)
    for found in verify(protocol, runs, seed=2):  # noqa: B007
        pass
    return found


def test_a_reply_inside_a_delivery_breaks_flooding_that_delivers_first() -> None:
    found = final(f"{PRINTED}:FloodingThatDeliversFirst", 150)
    assert found.violations > 0
    assert final("flooding", 150).passed


def test_flooding_breaks_without_fifo_links_and_a_counter_loses_messages_there() -> None:
    late = lost = 0
    for seed in range(20):
        for protocol in ("flooding", f"{PRINTED}:FloodingThatCounts"):
            loose = scenario(
                protocol=protocol, peers=8, seed=seed, delay="wild:1ms-1s", fifo=False, seconds=0.5
            )
            histories = Histories(loose)
            simulate(loose, [histories])
            verdict = judge(histories.execution()).verdict
            late += verdict.causal_late_deliveries
            if protocol == "flooding":
                assert verdict.missing == 0
            lost += verdict.missing
    assert late > 0
    assert lost > 0


def test_nothing_is_ever_held_by_flooding() -> None:
    (one,) = Flooding.group(1)
    assert one.waiting() == []
    assert one.deliver(0) is None
    metrics = simulate(scenario(protocol="flooding", peers=11, delay="wild:1ms-1s")).metrics
    assert (metrics.held, metrics.stuck) == (0, 0)


def test_flooding_works_on_any_connected_overlay() -> None:
    ring = Flooding.on_overlay([(4, 1), (0, 2), (1, 3), (2, 4), (3, 0)])
    packet = ring[0].broadcast(b"x", 0).sends[0].packet
    effects = ring[1].receive(0, packet, 1)
    assert [send.to for send in effects.sends] == [(2,)]
    assert ring[1].deliver(1) == Delivery(MessageId(0, 1), b"x")


@pytest.mark.parametrize("protocol", ["vcube", "vcube-agg"])
def test_a_packet_is_forwarded_once_and_must_come_from_another_member(protocol: str) -> None:
    members = catalog.find_protocol(protocol).group(8)
    packet = members[0].broadcast(b"", 0).sends[0].packet
    for nobody in (-1, 4, 8):
        with pytest.raises(RemoteError):
            members[4].receive(nobody, packet, 0)
    assert members[4].receive(0, packet, 0).sends
    assert members[4].receive(0, packet, 0).sends == ()
