"""Direct links: every pair of peers has one, and each packet an independent delay."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from antecede.sim import counter_rng
from antecede.sim.network.base import Arrival, Network
from antecede.sim.network.delays import Delay
from antecede.sim.network.faults import Fault


class _Link:
    __slots__ = ("delay", "key", "last", "sent")

    def __init__(self, key: int, delay: Callable[[int], int]) -> None:
        self.key = key
        self.delay = delay
        self.sent = 0
        self.last = 0


class DirectNetwork(Network):
    """A link between every two peers, FIFO or not, with faults.

    Peers that share one of `sites` have the `local` delay between them.
    """

    def __init__(
        self,
        seed: int,
        delay: Delay,
        fifo: bool,
        faults: Sequence[Fault] = (),
        local: Delay | None = None,
        sites: Sequence[int] = (),
    ) -> None:
        self._seed = seed
        self._delay = delay.sample
        self._local = (local or delay).sample
        self._sites = sites
        self._fifo = fifo
        self._faults = [(fault, number) for number, fault in enumerate(faults)]
        self._links: dict[tuple[int, int], _Link] = {}

    def transmit(self, source: int, to: Sequence[int], size: int, now: int) -> list[Arrival]:
        arrivals = []
        for destination in to:
            link = self._links.get((source, destination)) or self._open(source, destination)
            times = [now + link.delay(counter_rng.draw(link.key, link.sent))]
            times = self._apply_faults(times, now, link, breaks_order=False)
            if self._fifo and times:
                times = [max(time, link.last) for time in times]
                link.last = times[-1]
            times = self._apply_faults(times, now, link, breaks_order=True)
            # Duplicates keep the packet's number and follow it, however late they arrive.
            arrivals += [Arrival(t, destination, link.sent << 8 | i) for i, t in enumerate(times)]
            link.sent += 1
        return arrivals

    def _open(self, source: int, destination: int) -> _Link:
        local = bool(self._sites) and self._sites[source] == self._sites[destination]
        key = counter_rng.key(self._seed, counter_rng.LINK, source, destination)
        link = self._links[source, destination] = _Link(key, self._local if local else self._delay)
        return link

    def _apply_faults(self, times: list[int], now: int, link: _Link, breaks_order: bool) -> list[int]:
        for fault, number in self._faults:
            if fault.breaks_order is breaks_order:
                bits = counter_rng.draw(counter_rng.key(link.key, number), link.sent)
                times = fault.apply(times, now, bits)
        return times
