"""A simulated network: connections whose frames stay in order, are late, and do not arrive.

Each connection has two ends. Either side may believe that it is up while the other knows better (half-open);
frames with packets may be lost, as `FaultyWire` loses them; a greeting may arrive after its sender has given
up and greeted again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vopr.node import Process
    from vopr.world import World

MILLISECOND = 1_000_000
_PACKETS_TAG = 2


class Network:
    """How bad the network is now."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.delay = 2 * MILLISECOND
        """Of a frame, at most."""
        self.loss = 0.0
        self.late_greetings = 0.0
        """The share of greetings that are late by up to half a second."""
        self.severed: set[tuple[int, int]] = set()
        """Pairs of ranks that cannot reach each other."""
        self.ends: dict[End, None] = {}
        """Of connections that somebody believes to be up."""

    def connect(self, caller: Process, called: Process) -> tuple[End, End]:
        near, far = End(self, caller, called.rank, True), End(self, called, caller.rank, False)
        near.other, far.other = far, near
        self.ends[near] = self.ends[far] = None
        return near, far

    def can_reach(self, one: int, other: int) -> bool:
        return (one, other) not in self.severed and (other, one) not in self.severed


class End:
    """One side's view of a connection."""

    __slots__ = ("dialled", "due", "is_closed", "is_dumb", "network", "other", "peer", "process")
    other: End

    def __init__(self, network: Network, process: Process, peer: int, dialled: bool) -> None:
        self.network, self.process, self.peer, self.dialled = network, process, peer, dialled
        self.due = 0
        self.is_closed = False
        self.is_dumb = False
        """Nothing that is written here arrives, the end of the connection included."""

    def write(self, frames: list[bytes], is_greeting: bool = False) -> None:
        if self.is_closed or self.is_dumb:
            return
        network = self.network
        world = network.world
        random = world.random
        if network.loss:
            frames = [data for data in frames if data[1] != _PACKETS_TAG or random() >= network.loss]
            if not frames:
                return
        due = world.now + int(random() * network.delay)
        if is_greeting and random() < network.late_greetings:
            due += int(random() * 500) * MILLISECOND
            world.count("late greeting")
        if due < self.due:
            due = self.due
        self.due = due
        world.push(due, self.other.process, self.other.arrive, frames)

    def arrive(self, frames: list[bytes]) -> None:
        if not self.is_closed:
            self.process.receive(self, frames)

    def abort(self) -> None:
        """This side closes the connection; the other learns of it, after what was written before."""
        if self.is_closed:
            return
        self.forget()
        if not self.is_dumb and not self.other.is_closed:
            world = self.network.world
            due = max(self.due, world.now + int(world.random() * self.network.delay))
            world.push(due, self.other.process, self.other.break_off, None)

    def break_off(self, _: object = None) -> None:
        """This side learns that the connection is over."""
        if not self.is_closed:
            self.forget()
            self.process.on_broken(self)

    def forget(self) -> None:
        self.is_closed = True
        self.network.ends.pop(self, None)
