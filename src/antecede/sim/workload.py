"""Workloads: when each peer sends, and which deliveries it answers."""

from __future__ import annotations

import abc
from collections.abc import Sequence

from antecede.causality import MessageId
from antecede.sim import counter_rng
from antecede.sim.network import Delay

PHASE, SEND, REPLY, GROUP = 2, 3, 4, 6
NEVER = 1 << 62


class Workload(abc.ABC):
    """Send times of each peer, in order."""

    def __init__(self, seed: int, reply: float = 0.0) -> None:
        self.seed = seed
        self._reply = reply

    @abc.abstractmethod
    def next_send(self, peer: int, number: int, previous: int) -> int:
        """When `peer` sends for the `number`-th time (from 0), its previous time being given."""

    def group(self, peer: int, number: int, groups: Sequence[str | None]) -> str | None:
        """To which of its groups `peer` sends its `number`-th message (from 0), answers included."""
        if len(groups) == 1:
            return groups[0]
        bits = counter_rng.draw(counter_rng.key(self.seed, GROUP, peer), number)
        return groups[counter_rng.between(bits, 0, len(groups))]

    def replies(self, peer: int, message: MessageId) -> bool:
        """Whether `peer` answers `message` in the moment of its delivery."""
        if not self._reply:
            return False
        answers = counter_rng.key(self.seed, REPLY, peer, message.origin)
        return counter_rng.happens(counter_rng.draw(answers, message.seq), self._reply)


class Periodic(Workload):
    """Every `interval` from a random phase, each time up to `jitter` later."""

    def __init__(self, seed: int, interval: int, jitter: int, reply: float = 0.0) -> None:
        super().__init__(seed, reply)
        self.interval = interval
        self.jitter = jitter

    def next_send(self, peer: int, number: int, previous: int) -> int:
        phase = counter_rng.between(counter_rng.key(self.seed, PHASE, peer), 0, self.interval)
        late = counter_rng.draw(counter_rng.key(self.seed, SEND, peer), number)
        planned = phase + number * self.interval + counter_rng.between(late, 0, self.jitter + 1)
        return max(planned, previous)


class Poisson(Workload):
    """At random, independently, every `interval` on average."""

    def __init__(self, seed: int, interval: int, reply: float = 0.0) -> None:
        super().__init__(seed, reply)
        self.interval = interval

    def next_send(self, peer: int, number: int, previous: int) -> int:
        bits = counter_rng.draw(counter_rng.key(self.seed, SEND, peer), number)
        return previous + counter_rng.exponential(bits, self.interval)


class Drawn(Workload):
    """At intervals drawn from a distribution, from a random phase within the first."""

    def __init__(self, seed: int, interval: Delay, reply: float = 0.0) -> None:
        super().__init__(seed, reply)
        self.interval = interval

    def next_send(self, peer: int, number: int, previous: int) -> int:
        drawn = max(1, self.interval.of(counter_rng.draw(counter_rng.key(self.seed, SEND, peer), number)))
        if number:
            return previous + drawn
        return counter_rng.between(counter_rng.key(self.seed, PHASE, peer), 0, drawn)


class Once(Workload):
    """Each peer once, at any time before `until`."""

    def __init__(self, seed: int, until: int, reply: float = 0.0) -> None:
        super().__init__(seed, reply)
        self.until = until

    def next_send(self, peer: int, number: int, previous: int) -> int:
        if number:
            return NEVER
        return counter_rng.between(counter_rng.key(self.seed, PHASE, peer), 0, max(1, self.until))


class Rounds(Workload):
    """Each peer `burst` messages at once at the start of every interval."""

    def __init__(self, seed: int, interval: int, burst: int, reply: float = 0.0) -> None:
        super().__init__(seed, reply)
        self.interval = interval
        self.burst = burst

    def next_send(self, peer: int, number: int, previous: int) -> int:
        return number // self.burst * self.interval


class Given(Workload):
    """Each peer at the times that are given for it, in their order."""

    def __init__(self, seed: int, times: Sequence[Sequence[int]], reply: float = 0.0) -> None:
        super().__init__(seed, reply)
        self.times = times

    def next_send(self, peer: int, number: int, previous: int) -> int:
        mine = self.times[peer]
        return mine[number] if number < len(mine) else NEVER


class Windows(Workload):
    """Each peer once in every interval, at any time up to `spread` after its start."""

    def __init__(self, seed: int, interval: int, spread: int, reply: float = 0.0) -> None:
        super().__init__(seed, reply)
        self.interval = interval
        self.spread = spread

    def next_send(self, peer: int, number: int, previous: int) -> int:
        late = counter_rng.draw(counter_rng.key(self.seed, SEND, peer), number)
        return max(number * self.interval + counter_rng.between(late, 0, self.spread + 1), previous)
