"""The judge: it knows every broadcast and every delivery, and detects broken promises.

Every body is unique, so a delivery names the very broadcast that it comes from, whatever its id. Causal order
is judged by sets of broadcasts as bits of an integer: what an application had broadcast or been given when it
broadcast a message must be at every other application before that message. `message.causes` is judged by the
same for what the core had delivered, which may be one message ahead of the application. A share of the
executions is judged by the oracle of `antecede.causality` as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from antecede.causality import Execution, Kind, MessageId, Step, judge
from antecede.live.core import Core
from antecede.live.envelope import decode_body, immediate_causes, unwrap
from antecede.protocols.base import Delivery

if TYPE_CHECKING:
    from vopr.world import World

SEND, DELIVER = range(2)


class ViolationError(Exception):
    """A promise was broken."""


class BroadcastRecord:
    """One call of `broadcast`."""

    __slots__ = ("bit", "body", "causes", "core_past", "is_lost", "message", "own", "past")

    def __init__(self, number: int, message: MessageId, body: bytes, own: bool, past: int) -> None:
        self.bit, self.message, self.body, self.own = 1 << number, message, body, own
        self.past = past
        """The messages its author had broadcast or delivered before."""
        self.core_past = 0
        self.causes: dict[int, int] = {}
        self.is_lost = False
        """Its author was killed before it was durable: it must never be delivered."""


def forged(delivery: Delivery) -> BroadcastRecord:
    """Fabricated by a liar, or broadcast by a member with two stores under an id already used."""
    record = BroadcastRecord(0, delivery.message, delivery.payload, False, 0)
    record.bit = 0
    return record


class Witness:
    """The judge's knowledge of one member across all its lives."""

    def __init__(self, world: World, rank: int, name: str) -> None:
        self.world, self.rank, self.name = world, rank, name
        self.is_exact = True
        """Whether all checks apply; not once its store was copied, or if it lies."""
        self.sends: list[BroadcastRecord] = []
        self.accepted = 0
        """How many of them returned."""
        self.is_refused = False
        """The last ones were refused because the store could not be written: they must not reappear."""
        self.observed = 0
        """The messages its application has broadcast or delivered, as bits."""
        self.positions: list[BroadcastRecord] = []
        """The core's deliveries by position, its own messages included."""
        self.yielded: list[BroadcastRecord] = []
        """The application's deliveries by position, without those undone by a power failure."""
        self.given: set[BroadcastRecord] = set()
        self.applied: dict[MessageId, BroadcastRecord] = {}
        """The application's own durable state."""
        self.actions: list[tuple[int, BroadcastRecord, int]] = []
        """Broadcasts and deliveries of the core, with the position; a crash may undo the last ones."""
        self._frontier: dict[int, BroadcastRecord] = {}
        self._core_past = 0
        self.power_failed = False

    def fail(self, text: str) -> None:
        raise ViolationError(f"{self.name}: {text}")

    # While it lives

    def broadcast(self, message: MessageId, body: bytes, own: bool, core: Core) -> None:
        self.see_deliveries(core)
        record = BroadcastRecord(len(self.world.records), message, body, own, self.observed)
        self.world.records.append(record)
        if message != (self.rank, len(self.sends) + 1) and self.is_exact:
            self.fail(f"its broadcast {len(self.sends) + 1} was given the id {message}")
        self.sends.append(record)
        self.observed |= record.bit
        self._act(SEND, record, 0)

    def _act(self, kind: int, record: BroadcastRecord, position: int) -> None:
        frontier = self._frontier
        if kind == SEND:
            record.causes = {origin: each.message.seq for origin, each in frontier.items()}
            record.core_past = self._core_past
            self._frontier = {self.rank: record}
            self._core_past |= record.bit
        else:
            past = record.core_past
            for origin in [origin for origin, each in frontier.items() if each.bit & past]:
                del frontier[origin]
            frontier[record.message.origin] = record
            self._core_past |= record.bit | past
        self.actions.append((kind, record, position))

    def identify(self, delivery: Delivery) -> BroadcastRecord | None:
        """The broadcast that was delivered; None if it may be a lie."""
        body = decode_body(unwrap(delivery.payload))
        records, known = self.world.records, self.world.may_be_forged
        number = -1
        if isinstance(body, bytes):
            head = body.partition(b".")[0]
            number = int(head) if head.isdigit() else -1
        if not 0 <= number < len(records) or records[number].body != body:
            if delivery.message.origin in known:
                return None
            self.fail(f"was delivered {delivery.message} with a body that nobody broadcast: {body!r}")
        record = records[number]
        if record.message != delivery.message or record.is_lost:
            if delivery.message.origin in known:
                return None
            why = "never was durable" if record.is_lost else "differs"
            self.fail(f"was delivered {delivery.message} with the body of {record.message}, which {why}")
        return record

    def see_deliveries(self, core: Core) -> None:
        """Deliveries the core has made since the last call."""
        positions = self.positions
        if len(positions) == core.application.delivered:
            return
        for position in range(len(positions), core.application.delivered):
            delivery = core.application.unacked[position - core.application.acked]
            record = self.identify(delivery)
            if record is None:
                record = forged(delivery)
            elif delivery.message.origin != self.rank:
                self._act(DELIVER, record, position + 1)
            if record.bit and self.world.checks_order:
                causes = immediate_causes(delivery, core.size)
                if causes != record.causes:
                    self.fail(f"{delivery.message} names the causes {causes}, and has {record.causes}")
            positions.append(record)

    def see_yield(self, delivery: Delivery, core: Core) -> BroadcastRecord:
        """Record a delivery to the application."""
        acked = core.application.acked
        self.see_deliveries(core)
        self._see_skipped(acked)
        record, yielded = self.positions[acked], self.yielded
        is_again = record in self.given
        if self.is_exact:
            if len(yielded) - acked not in (0, 1):
                self.fail(f"position {acked + 1} is yielded after {len(yielded)} were")
            if len(yielded) > acked and yielded[acked] is not record:
                self.fail(f"{yielded[acked].message} was in flight, and {record.message} is yielded")
            queue = core.application
            if is_again != (queue.deliveries > 1) and (is_again or acked >= queue.uncertain_until):
                marked = "is not marked as redelivered" if is_again else "is marked as redelivered"
                self.fail(f"{record.message} {marked}")
            missing = record.past & ~self.observed
            if missing and record.message.origin != self.rank and self.world.checks_order:
                first = self.world.records[(missing & -missing).bit_length() - 1]
                self.fail(f"was given {record.message} before {first.message}, on which it depends")
        if len(yielded) == acked:
            yielded.append(record)
        if not is_again:
            self.world.deliveries += 1
            self.given.add(record)
            self.observed |= record.bit
        return record

    def _see_skipped(self, acked: int) -> None:
        """The deliveries before a position that were withheld from the application as duplicates of an id."""
        for record in self.positions[len(self.yielded) : acked] if self.is_exact else ():
            if record.message not in {each.message for each in self.given}:
                self.fail(f"{record.message} is skipped, and no other under its id was given")
            self.yielded.append(record)

    def apply(self, record: BroadcastRecord) -> None:
        """The application's transaction: once for each message."""
        other = self.applied.setdefault(record.message, record)
        if other is not record and (other.bit or record.bit) and self.is_exact:
            self.fail(f"was given two messages as {record.message}")

    # Its deaths

    def restart(self, core: Core, lost_cursor: bool) -> None:
        """A new process has restored itself from the store; `lost_cursor` if the power had failed."""
        durable = core.broadcasts
        if not self.is_exact:
            while len(self.positions) < core.application.acked:
                self.positions.append(forged(Delivery(MessageId(self.rank, 0), b"", None)))
            self._forget(core, core.application.acked)
            return
        if not self.accepted <= durable <= len(self.sends):
            self.fail(f"{durable} broadcasts are in the store, {self.accepted} of {len(self.sends)} returned")
        if self.is_refused and durable != self.accepted:
            self.fail(f"{durable - self.accepted} broadcasts that were refused are in the store")
        self.is_refused = False
        for record in self.sends[durable:]:
            record.is_lost = True
            self.observed &= ~record.bit
        del self.sends[durable:]
        self.accepted = durable
        if not lost_cursor:
            self._see_skipped(core.application.acked)
        if not lost_cursor and core.application.acked + (core.application.attempts > 0) != len(self.yielded):
            self.fail(f"{len(self.yielded)} were yielded, and the store has {core.application.cursor}")
        del self.yielded[core.application.acked + (core.application.attempts > 0) :]
        same = self._same_deliveries(core)
        if not lost_cursor and same < min(core.application.delivered, len(self.positions)):
            self.fail("the store gives back other deliveries than there were")
        self._forget(core, same)

    def _same_deliveries(self, core: Core) -> int:
        """How many deliveries before the crash are unchanged after it. After a power failure, deliveries that
        nothing durable depends on may be reordered."""
        position = core.application.acked
        for delivery, before in zip(core.application.unacked, self.positions[position:], strict=False):
            if before.bit and self.identify(delivery) is not before:
                break
            position += 1
        return position

    def _forget(self, core: Core, same: int) -> None:
        """Undo what the crash has undone: deliveries beyond a count, and lost broadcasts."""
        kept = [
            action
            for action in self.actions
            if (action[2] <= same if action[0] == DELIVER else not action[1].is_lost)
        ]
        self.actions, self._frontier, self._core_past = [], {}, 0
        for kind, record, position in kept:
            causes = record.causes
            self._act(kind, record, position)
            if record.causes != causes and self.world.checks_order:
                self.fail(f"{record.message} is in the store, and not all that it depends on")
        del self.positions[same:]
        for position in range(len(self.positions), core.application.delivered):
            delivery = core.application.unacked[position - core.application.acked]
            record = self.identify(delivery) or forged(delivery)
            self.positions.append(record)
            if record.bit and delivery.message.origin != self.rank:
                self._act(DELIVER, record, position + 1)


def judge_by_oracle(witnesses: list[Witness]) -> None:
    """The whole execution, by the definition of causal order."""
    kinds = (Kind.SEND, Kind.DELIVER)
    histories = [
        [Step(kinds[kind], record.message) for kind, record, _ in each.actions] for each in witnesses
    ]
    judgement = judge(Execution(histories))
    verdict = judgement.verdict
    if verdict.causal_violations or verdict.duplicates or verdict.orphans or verdict.impossible:
        reasons = [judgement.explain(each) for each in judgement.violations()]
        raise ViolationError(f"the oracle: {verdict}; {'; '.join(reasons[:3])}")
