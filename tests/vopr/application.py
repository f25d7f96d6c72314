"""An application: it consumes with pauses, acks, refuses, parks, fails and replies, as chance says.

Its own state is durable and transactional, as in `examples/todo.py`: one transaction applies a message and
records that it is applied, and only then is the message acked. What was applied already is skipped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vopr.judge import BroadcastRecord
from vopr.network import MILLISECOND

if TYPE_CHECKING:
    from vopr.node import Process


class Application:
    """One life of an application."""

    def __init__(self, process: Process) -> None:
        self.process, self.world, self.witness = process, process.world, process.witness
        self._holds = False
        """Whether this iteration was given the message in flight, and acks it by asking for the next."""
        self._processing: BroadcastRecord | None = None
        """Delivered but not applied yet."""
        self._is_scheduled = False

    def wake(self) -> None:
        """Wake the application: a delivery may be available."""
        if not self._is_scheduled:
            self._schedule(0)

    def _schedule(self, milliseconds: int) -> None:
        self._is_scheduled = True
        self.world.push(self.world.now + milliseconds * MILLISECOND, self.process, self._run, None)

    def _run(self, _: object) -> None:
        self._is_scheduled = False
        process, world = self.process, self.world
        for _ in range(1 + world.below(30)):
            if self._processing is not None:
                self.witness.apply(self._processing)
                self._processing = None
            acks, self._holds = self._holds, False
            delivery = process.next_delivery(acks)
            if delivery is None:
                return
            self._holds = True
            record = self.witness.see_yield(delivery, process.core)
            if world.is_told:
                again = " again" if process.core.application.deliveries > 1 else ""
                world.tell(process.name, f"is given {record.message.origin}:{record.message.seq}{again}")
            chance = world.random()
            if chance < world.calm:
                self.witness.apply(record)
            elif not self._act_otherwise(record, (chance - world.calm) / (1 - world.calm)):
                return
        self._schedule(0)

    def _act_otherwise(self, record: BroadcastRecord, chance: float) -> bool:
        """Do something other than process it at once; returns whether to continue now."""
        witness, process, world = self.witness, self.process, self.world
        if chance < 0.2:  # a pause before it is processed
            self._processing = record
            self._schedule(world.below(60))
            return False
        if chance < 0.4:  # a pause before the next
            witness.apply(record)
            self._schedule(world.below(60))
            return False
        if chance < 0.5:
            witness.apply(record)
            process.ack()
            self._holds = False
        elif chance < 0.6:  # an exception; a new iteration
            self._holds = False
        elif chance < 0.65:  # an exception after it was applied
            witness.apply(record)
            self._holds = False
        elif chance < 0.75:  # nack with a delay
            self._holds = False
            self._schedule(world.below(40))
            return False
        elif chance < 0.85 and not world.is_healing:
            self._holds = False
            process.park()
            return False
        else:
            witness.apply(record)
            if not world.is_healing:
                self.broadcast(1 + world.below(3))
        return True

    def broadcast(self, count: int) -> None:
        """A burst of messages, each with a body of its own."""
        for _ in range(count):
            self.process.broadcast(self.world.new_body())

    def tick(self) -> None:
        """Now and then, process and unpark parked messages."""
        core, world = self.process.core, self.world
        if core.application.parked and (world.is_healing or world.random() < 0.3):
            position = next(iter(core.application.parked))
            if position <= core.application.acked:
                self.witness.apply(self.witness.positions[position - 1])
                self.process.unpark(position)
        if core.application.unacked and not self._is_scheduled:
            self._schedule(0)
