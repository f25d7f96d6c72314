"""What a run cost, counted as it happens and in whole numbers, so that it is the same everywhere."""

from __future__ import annotations

import msgspec

from antecede.causality import MessageId


class Metrics(msgspec.Struct, frozen=True):
    """The figures of one run. Bytes are a message's; times are nanoseconds."""

    messages: int
    deliveries: int
    packets: int
    """Copies sent over links."""
    link_bytes: int
    """Control bytes of all those copies."""
    control_bytes_mean: float
    """Of a message's own packet, as its sender sends it."""
    control_bytes_max: int
    paper_bytes_mean: float
    paper_bytes_max: int
    latency_mean_ns: float
    latency_max_ns: int
    held: int
    """Deliveries that had to wait for a cause."""
    hold_mean_ns: float
    """How long those waited."""
    stuck: int
    """Messages still held when nothing more could come."""
    simulated_ns: int
    measured: dict[str, float] = msgspec.field(default_factory=dict)
    """What else there was to measure, by name: the network's own figures, and those of probes."""


class Meter:
    """Counts what the world shows it."""

    def __init__(self, peers: int) -> None:
        self._sent_at: dict[MessageId, int] = {}
        self._arrived: list[dict[MessageId, int]] = [{} for _ in range(peers)]
        self._delivered: list[dict[int, int]] = [{} for _ in range(peers)]
        self._control = self._control_max = self._paper = self._paper_max = 0
        self._deliveries = self._latency = self._latency_max = 0
        self._held = self._hold = 0

    def send(
        self, process: int, message: MessageId, time: int, control: int, paper: int, group: str | None
    ) -> None:
        self._sent_at[message] = time
        self._delivered[process][process] = message.seq  # it may come back, and is not held then
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
    """Nothing, of nothing."""
    return total / count if count else 0.0
