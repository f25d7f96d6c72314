"""The network of nodes with send queues of paper 004, on cases worked out by hand."""

from __future__ import annotations

from antecede.sim.network import Arrival, Fixed, QueuedNodes

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
