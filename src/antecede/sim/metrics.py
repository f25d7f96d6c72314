"""What a run cost. Sums are integers, counted as events happen, so they are the same on every machine."""

from __future__ import annotations

from collections import defaultdict

import msgspec

from antecede.causality import MessageId


class Metrics(msgspec.Struct, frozen=True):
    """The figures of one run. Bytes are for one message, times in nanoseconds."""

    messages: int
    deliveries: int
    packets: int
    """Packets sent, once for each destination."""
    link_bytes: int
    """Control bytes of all those packets."""
    control_bytes_mean: float
    """Control bytes of the packet in which a message leaves its sender, as encoded."""
    control_bytes_max: int
    paper_bytes_mean: float
    """The same, as the protocol's paper counts."""
    paper_bytes_max: int
    latency_mean_ns: float
    latency_max_ns: int
    held: int
    """Deliveries that had to wait for a cause in the hold-back queue."""
    hold_mean_ns: float
    """The average time for which those waited."""
    stuck: int
    """Messages still held when no more events could happen."""
    simulated_ns: int
    measured: dict[str, float] = msgspec.field(default_factory=dict)
    """Further figures by name: those of the network model and of probes."""


class Meter:
    """The observer that counts a run's `Metrics`."""

    def __init__(self) -> None:
        self._sent_at: dict[MessageId, int] = {}
        self._arrived: defaultdict[int, dict[MessageId, int]] = defaultdict(dict)
        self._delivered: defaultdict[int, dict[int, int]] = defaultdict(dict)
        self._control = self._control_max = self._paper = self._paper_max = 0
        self._deliveries = self._latency = self._latency_max = 0
        self._held = self._hold = 0

    def send(
        self, process: int, message: MessageId, time: int, control: int, paper: int, group: str | None
    ) -> None:
        self._sent_at[message] = time
        self._delivered[process][process] = message.seq  # A copy that returns to its sender is not held.
        self._control += control
        self._control_max = max(self._control_max, control)
        self._paper += paper
        self._paper_max = max(self._paper_max, paper)

    def receive(self, process: int, link: int, message: MessageId, time: int) -> None:
        if message.seq <= self._delivered[process].get(message.origin, 0):
            return
        self._arrived[process].setdefault(message, time)

    def deliver(self, process: int, message: MessageId, time: int) -> None:
        arrived = self._arrived[process].pop(message, time)
        self._delivered[process][message.origin] = message.seq
        latency = time - self._sent_at.get(message, time)
        self._deliveries += 1
        self._latency += latency
        self._latency_max = max(self._latency_max, latency)
        if time > arrived:
            self._held += 1
            self._hold += time - arrived

    def metrics(
        self, packets: int, link_bytes: int, stuck: int, simulated: int, measured: dict[str, float]
    ) -> Metrics:
        messages = len(self._sent_at)
        return Metrics(
            messages=messages,
            deliveries=self._deliveries,
            packets=packets,
            link_bytes=link_bytes,
            control_bytes_mean=mean(self._control, messages),
            control_bytes_max=self._control_max,
            paper_bytes_mean=mean(self._paper, messages),
            paper_bytes_max=self._paper_max,
            latency_mean_ns=mean(self._latency, self._deliveries),
            latency_max_ns=self._latency_max,
            held=self._held,
            hold_mean_ns=mean(self._hold, self._held),
            stuck=stuck,
            simulated_ns=simulated,
            measured=measured,
        )


def mean(total: int, count: int) -> float:
    """The mean; 0 if there is nothing to average."""
    return total / count if count else 0.0
