"""Workloads: when peers send, and which deliveries they answer."""

from __future__ import annotations

import itertools

import pytest

from antecede.causality import MessageId
from antecede.sim.engines import simulate
from antecede.sim.network import parse_delay
from antecede.sim.scenario import scenario
from antecede.sim.workload import Once, Periodic, Poisson, RandomIntervals, Rounds

MS = 1_000_000


def test_periodic_sends_come_at_their_interval_and_never_backwards() -> None:
    steady = Periodic(1, interval=100, jitter=0)
    times = [steady.next_send(3, n, 0) for n in range(5)]
    assert {late - early for early, late in itertools.pairwise(times)} == {100}
    assert 0 <= times[0] < 100
    wild = Periodic(1, interval=100, jitter=1000)
    previous = 0
    for n in range(50):
        time = wild.next_send(0, n, previous)
        assert time >= previous
        previous = time


def test_poisson_sends_come_at_their_rate() -> None:
    workload, time = Poisson(1, interval=1000), 0
    for n in range(5000):
        time = workload.next_send(0, n, time)
    assert time == pytest.approx(5_000_000, rel=0.05)


def test_replies_depend_on_the_peer_and_the_message_only() -> None:
    half = Poisson(1, 1000, reply=0.5)
    answers = [half.replies(0, MessageId(1, seq)) for seq in range(200)]
    assert answers == [half.replies(0, MessageId(1, seq)) for seq in range(200)]
    assert 60 < sum(answers) < 140
    assert not any(Poisson(1, 1000).replies(0, MessageId(1, seq)) for seq in range(50))


def test_rounds_are_bursts() -> None:
    rounds = Rounds(1, 10 * MS, burst=2)
    assert [rounds.next_send(2, number, 0) for number in range(5)] == [0, 0, 10 * MS, 10 * MS, 20 * MS]


def test_once_sends_once_and_intervals_are_random() -> None:
    once = Once(1, parse_delay("0-50ms"))
    assert all(0 <= once.next_send(peer, 0, 0) <= 50 * MS for peer in range(100))
    assert once.next_send(3, 1, 0) > 10**18
    drawn = RandomIntervals(1, parse_delay("normal:70-90ms"))
    first = [drawn.next_send(peer, 0, 0) for peer in range(200)]
    assert 0 <= min(first) < 5 * MS < 70 * MS < max(first) < 90 * MS
    assert all(70 * MS <= drawn.next_send(1, number, 5) - 5 <= 90 * MS for number in range(1, 100))


@pytest.mark.parametrize("workload", ["periodic", "poisson", "drawn", "once", "starts", "rounds", "windows"])
def test_only_the_chosen_senders_send(workload: str) -> None:
    setting = scenario(protocol="timestamp", peers=6, senders=3, workload=workload, seconds=3)
    assert setting.sending_peers() == [0, 2, 4]
    senders: set[int] = set()

    class Senders:
        def send(self, process: int, *_: object) -> None:
            senders.add(process)

        def receive(self, *_: object) -> None: ...

        def deliver(self, *_: object) -> None: ...

    simulate(setting, [Senders()])
    assert senders == {0, 2, 4}
