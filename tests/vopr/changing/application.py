"""An application with a durable, transactional state, which is also its snapshot, and the judge of it.

Every body is unique, so a delivery names the broadcast that it comes from. What an application had applied or
broadcast when it broadcast a message must be applied by every other application before that message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from antecede.live.envelope import body_in
from antecede.protocols.base import Delivery
from vopr.judge import ViolationError
from vopr.network import MILLISECOND

if TYPE_CHECKING:
    from vopr.changing.host import Host, Process


class SentMessage:
    """One call of `broadcast`."""

    __slots__ = ("bit", "body", "is_lost", "past", "sender")

    def __init__(self, number: int, sender: str, body: bytes, past: int) -> None:
        self.bit, self.sender, self.body, self.past = 1 << number, sender, body, past
        self.is_lost = False
        """Its sender was killed before it was durable: it must never be delivered."""


class Witness:
    """An application's disk and the judge's knowledge of it, across all lives."""

    def __init__(self, host: Host) -> None:
        self.host, self.name = host, host.name
        self.sends: list[SentMessage] = []
        self.accepted = 0
        """How many of them returned."""
        self.applied: dict[bytes, None] = {}
        self.observed = 0
        """The messages it has applied or broadcast, as bits."""
        self.last_own = 0
        """The bit of the last own message delivered to it, if it is a phone's."""

    def fail(self, text: str) -> None:
        raise ViolationError(f"{self.name}: {text}")

    def broadcast(self, body: bytes) -> None:
        world = self.host.world
        record = SentMessage(len(world.records), self.name, body, self.observed)
        world.records[body] = record
        self.sends.append(record)
        self.observed |= record.bit
        if not world.is_honest(self.name):
            world.unjudged |= record.bit

    def apply(self, body: bytes, is_again: bool) -> None:
        """The application's transaction: once for each message."""
        record = self.host.world.records[body]
        if record.is_lost:
            self.fail(f"is given {body!r}, which its sender had not accepted")
        if body in self.applied:
            if not is_again:
                self.fail(f"is given {body!r} twice")
            return
        if record in self.sends:
            self._check_own(record)
        missing = record.past & ~self.observed & ~self.host.world.unjudged
        if missing:
            self.fail(f"is given {body!r} before {self.host.world.body_of(missing)!r}, on which it depends")
        self.applied[body] = None
        self.observed |= record.bit

    def _check_own(self, record: SentMessage) -> None:
        """A phone is given its own messages in the order in which it has broadcast them. Super peers of the
        first version do not tell it when what it has brought back comes before its next one."""
        world = self.host.world
        if record.bit < self.last_own and self.host.is_phone and not world.is_mixed:
            self.fail(f"is given its own {record.body!r} after {world.body_of(self.last_own)!r}")
        self.last_own = record.bit

    def snapshot(self) -> bytes:
        return b" ".join(self.applied)

    def restore(self, snapshot: bytes) -> None:
        self.applied = dict.fromkeys(snapshot.split())
        self.last_own = 0
        self.observed = 0
        records = self.host.world.records
        for body in self.applied:
            self.observed |= records[body].bit
        for body in self.applied:
            if records[body].past & ~self.observed & ~self.host.world.unjudged or records[body].is_lost:
                self.fail(f"gets a snapshot with {body!r}, and not all that it depends on")

    def restart(self, durable: int) -> None:
        """A new process has restored itself from the store, with so many broadcasts."""
        if not self.accepted <= durable <= len(self.sends):
            self.fail(f"{durable} broadcasts are in the store, {self.accepted} of {len(self.sends)} returned")
        for record in self.sends[durable:]:
            record.is_lost = True
            self.observed &= ~record.bit
        del self.sends[durable:]
        self.accepted = durable


class Application:
    """One life of an application: it reads with pauses, fails now and then, and replies."""

    def __init__(self, process: Process) -> None:
        self.process, self.world, self.witness = process, process.world, process.host.witness
        self._holds = False
        self._is_scheduled = False
        self._processing: tuple[bytes, bool] | None = None

    def forget(self) -> None:
        """Its state was replaced: earlier deliveries are part of it or will be repeated."""
        self._processing, self._holds = None, False

    def wake(self) -> None:
        if not self._is_scheduled:
            self._schedule(0)

    def _schedule(self, milliseconds: int) -> None:
        self._is_scheduled = True
        self.world.push(self.world.now + milliseconds * MILLISECOND, self.process, self._run, None)

    def _run(self, _: object) -> None:
        self._is_scheduled = False
        for _ in range(1 + self.world.below(30)):
            if self._processing is not None:
                self.witness.apply(*self._processing)
                self._processing = None
            acks, self._holds = self._holds, False
            delivery = self.process.next_delivery(acks)
            if delivery is None:
                return
            self._holds = True
            if not self._take(delivery):
                return
        self._schedule(0)

    def _take(self, delivery: Delivery) -> bool:
        """Process a message in some way; returns whether to continue now."""
        world, queue = self.world, self.process.core.application
        body = body_in(delivery.payload)
        assert isinstance(body, bytes)
        is_again = queue.deliveries > 1
        core = self.process.core
        if body in world.later and core.speaks == 1 and not core.is_phone_core:
            raise ViolationError(f"{self.witness.name} is sent {body.decode()}, which it does not understand")
        if world.is_told:
            world.tell(self.witness.name, f"is given {body.decode()}{' again' * is_again}")
        chance = world.random()
        if chance < 0.1:  # a pause before it is processed
            self._processing = body, is_again
            self._schedule(world.below(60))
            return False
        if chance < 0.15:  # an exception; a new iteration
            self._holds = False
            return True
        self.witness.apply(body, is_again)
        world.deliveries += 1
        if chance < 0.2:  # an exception after it was applied
            self._holds = False
        elif chance < 0.3 and not world.is_healing:
            self.process.broadcast()
        return True
