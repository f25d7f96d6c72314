"""The network of nodes with send queues of paper 004, on cases worked out by hand."""

from __future__ import annotations

import pytest

from antecede.causality import MessageId
from antecede.sim.network import Arrival, Fixed, QueuedNodes, parse_delay
from antecede.sim.network.queued_nodes import Queue

MS = 1_000_000


def nodes(mtu: int = 120) -> QueuedNodes:
    return QueuedNodes(3, 1, Fixed(100 * MS), processing=MS, transmission=2 * MS, header=20, mtu=mtu)


def test_copies_wait_in_the_senders_queue() -> None:
    """Two copies: out at 2 and 4 ms, there 100 ms later and processed in 1. A third waits for both."""
    network = nodes()
    times = [arrival.time for arrival in network.transmit(0, [1, 2], 50, 0)]
    assert times == [103 * MS, 105 * MS]
    (third,) = network.transmit(0, [1], 50, MS)
    assert third.time == 107 * MS
    (other,) = network.transmit(1, [0], 50, MS)
    assert other.time == 104 * MS
    assert network.figures(0) == {"packets": 4, "queued_mean_ns": (2 + 3) * MS / 4}


def test_a_message_above_the_mtu_takes_several_transmissions() -> None:
    network = nodes()
    (arrival,) = network.transmit(0, [1], 201, 0)
    assert (arrival.time, network.packets) == (107 * MS, 3)
    (exact,) = nodes().transmit(0, [1], 100, 0)
    assert exact == Arrival(103 * MS, 1, 1)


def test_one_server_handles_arrivals_and_sends_in_turn() -> None:
    """Peer 2 is busy with two packets and then sends; without one server it sends at once."""
    network = QueuedNodes(
        3, 1, Fixed(100 * MS), processing=MS, transmission=2 * MS, header=20, mtu=120, queue="node"
    )
    (first,), (second,) = network.transmit(0, [2], 50, 0), network.transmit(1, [2], 50, 0)
    assert (first.time, second.time) == (102 * MS, 102 * MS)
    (one,), (other,) = (network.forward(each.transit, each.time) for each in (first, second))
    assert (one.time, other.time, one.destination) == (103 * MS, 104 * MS, 2)
    (sent,) = network.transmit(2, [0], 50, 103 * MS)
    assert sent.time == (104 + 2 + 100) * MS
    assert network.figures(0)["queued_mean_ns"] == MS / 3


@pytest.mark.parametrize(("queue", "until"), [("node", 103), ("messages", 105)])
def test_one_server_processes_packets_or_each_of_their_messages(queue: Queue, until: int) -> None:
    network = QueuedNodes(
        3, 1, Fixed(100 * MS), processing=MS, transmission=2 * MS, header=20, mtu=120, queue=queue
    )
    (there,) = network.carry([MessageId(0, number) for number in (1, 2, 3)], 0, [2], 50, 0)
    (processed,) = network.forward(there.transit, there.time)
    assert processed.time == until * MS
    (one,) = network.transmit(2, [0], 50, there.time)
    assert one.time == (until + 2 + 100) * MS


def test_a_message_takes_the_same_time_on_all_of_its_ways() -> None:
    network = QueuedNodes(
        9, 1, parse_delay("gauss:100ms,25ms,1ms"), processing=0, transmission=0, header=20, mtu=120,
        drawn="message",
    )  # fmt: skip
    times = {
        message: {
            each.time for sender in (0, 4) for each in network.carry([message], sender, [1, 2, 3], 50, 0)
        }
        for message in (MessageId(0, 1), MessageId(0, 2), MessageId(7, 1))
    }
    assert [len(each) for each in times.values()] == [1, 1, 1]
    assert len(set.union(*times.values())) == 3


def test_a_link_takes_the_same_time_always_and_in_both_directions() -> None:
    network = QueuedNodes(
        9, 1, parse_delay("gauss:100ms,25ms,1ms"), processing=0, transmission=0, header=20, mtu=120,
        drawn="link",
    )  # fmt: skip
    times = {
        (one, other): {
            network.carry(messages, here, [there], 50, 0)[0].time
            for messages in ([MessageId(0, 1)], [MessageId(7, 1)], [])
            for here, there in ((one, other), (other, one))
        }
        for one, other in ((0, 1), (0, 2), (1, 2))
    }
    assert [len(each) for each in times.values()] == [1, 1, 1]
    assert len(set.union(*times.values())) == 3
