"""What one process can do, computed once for each of its states.

A process is a protocol object together with what its application has seen. Its next state is a function of
its state and one event, so each pair of state and event is computed once, however many schedules contain it:
a group visits millions of states, and its processes a few thousand. States of processes, and packets, have
numbers. The state of a protocol object is its saved state with sorted keys, so equal objects have equal
numbers. Every step begins with `restore` and ends with `save`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from antecede.causality import MessageId
from antecede.check.bounds import Bounds
from antecede.check.events import EventKind
from antecede.protocols.base import NO_EFFECTS, Effects, Packet, Protocol
from antecede.protocols.own_class import WrongResultError, checked_delivery, checked_effects, checked_waiting
from antecede.user_classes import what_was_raised

DELIVER, WAKE, TICK = range(3)
"""Codes of the events of a process. The others follow: a broadcast to each group, the opening or closing of a
link to each peer, and the receipt of each packet."""


NO_CAUSE = -2
_NO_COPY = "it no longer ignores a packet that it would have ignored, and declares `ignores_copies = True`"


class ProcessState(NamedTuple):
    """One process, with what its application has seen."""

    saved: bytes
    delivered: int = 0
    """The messages that it has sent or delivered, as bits."""
    sent: int = 0
    now: int = 0
    """What its clock shows."""
    timers: tuple[int, ...] = ()
    """The times at which it asked to be woken, earliest first."""


class SentPacket(NamedTuple):
    """A packet on its link."""

    source: int
    to: int
    data: bytes
    sent_at: int = 0
    """The time at which it was sent, if time counts."""


class ProcessStep(NamedTuple):
    """The effect of an event on a process."""

    after: int
    """The state that follows."""
    sends: tuple[int, ...] = ()
    """The packets that it sends."""
    message: int = -1
    """The message that was broadcast or delivered."""
    fault: str = ""
    """A violation by the process itself."""
    named: frozenset[int] | None = None
    """The dependencies that a delivered message names, if its protocol names exactly the immediate ones."""


class Influence(NamedTuple):
    """What a process may still send."""

    sent: int
    """How many messages it has broadcast."""
    forwards: tuple[int, ...]
    """For each message, the peers that it may send to because of it, as bits."""


class Processes:
    """The processes of a group: their states, their packets, and what events do to them."""

    def __init__(self, kind: type[Protocol], bounds: Bounds) -> None:
        self.kind, self.bounds, self.size = kind, bounds, bounds.peers
        self.audiences = bounds.audiences()
        self.broadcast_event = TICK + 1
        self.open_event = self.broadcast_event + len(self.audiences)
        self.close_event = self.open_event + self.size
        self.receive_event = self.close_event + self.size
        self.states: list[ProcessState] = []
        self.packets: list[SentPacket] = []
        self.destinations: list[int] = []
        """The destination of each packet."""
        self.links: list[int] = []
        """A number for each packet's link, in order of sources and destinations."""
        self.held: list[tuple[tuple[int, int], ...]] = []
        """For each state, the held messages, each with the cause that it is held for, or `NO_CAUSE`."""
        self._numbers: dict[ProcessState, int] = {}
        self._packet_numbers: dict[SentPacket, int] = {}
        self._steps: dict[tuple[int, int], ProcessStep | None] = {}
        self._own_events: dict[int, list[tuple[int, int, ProcessStep]]] = {}
        self._encoded: dict[bytes, Packet] = {}
        self._influences: dict[int, Influence] = {}
        self._ignored: dict[tuple[int, int], bool] = {}
        self._events_of: dict[int, list[int]] = {}
        """For each state, the events computed so far."""
        self._ignored_in: dict[int, list[int]] = {}
        """For each state, the packets that change nothing there."""
        self.relies_on_forwards = self.relies_on_copies = self.relies_on_receipts = False
        """The protocol's declarations by which schedules are left out; each step is checked against them."""
        self.initial = tuple(
            self._number(ProcessState(b"", now=bounds.clock(each.me)), each) for each in bounds.members(kind)
        )

    def number_of(self, origin: int, seq: int) -> int:
        """The number of a message; -1 if no process can have sent it."""
        is_known = 0 <= origin < self.size and 1 <= seq <= self.bounds.messages
        return origin * self.bounds.messages + seq - 1 if is_known else -1

    def message(self, number: int) -> MessageId:
        origin, before = divmod(number, self.bounds.messages)
        return MessageId(origin, before + 1)

    def step(self, state: int, event: int) -> ProcessStep | None:
        """The effect of an event in a state; None if it is not possible there."""
        key = state, event
        if key not in self._steps:
            step = self._steps[key] = self._compute(state, event)
            if step is None or step.fault or event == TICK:
                return step
            if wrong := self._judge_declarations(state, event, step):
                self._steps[key] = ProcessStep(state, fault=wrong)
        return self._steps[key]

    def own_events(self, state: int) -> list[tuple[int, int, ProcessStep]]:
        """The broadcasts, the delivery and the timer that are possible in a state: kind, group, what it
        does."""
        if (found := self._own_events.get(state)) is None:
            groups = range(len(self.audiences))
            codes = [(int(EventKind.BROADCAST), group, self.broadcast_event + group) for group in groups]
            codes += [(int(EventKind.DELIVER), -1, DELIVER), (int(EventKind.WAKE), -1, WAKE)]
            steps = [(kind, group, self.step(state, code)) for kind, group, code in codes]
            found = [(kind, group, step) for kind, group, step in steps if step is not None]
            self._own_events[state] = found
        return found

    # What a protocol declares, and the reductions that rely on it (`reduction`).

    def influence(self, state: int) -> Influence:
        """What a process may still send."""
        if (found := self._influences.get(state)) is None:
            process = self.kind.restore(self.states[state].saved)
            forwards = []
            for number in range(self.size * self.bounds.messages):
                peers = process.may_forward(self.message(number))
                forwards.append(
                    (1 << self.size) - 1 if peers is None else sum(1 << peer for peer in set(peers))
                )
            found = self._influences[state] = Influence(self.states[state].sent, tuple(forwards))
        return found

    def declares_forwards(self) -> bool:
        """Whether all members say what they may forward."""
        members = [self.kind.restore(self.states[number].saved) for number in self.initial]
        messages = [self.message(number) for number in range(self.size * self.bounds.messages)]
        return all(member.may_forward(message) is not None for member in members for message in messages)

    def ignores(self, state: int, packet: int) -> bool:
        """Whether a packet changes nothing in a state."""
        key = state, packet
        if (found := self._ignored.get(key)) is None:
            step = self.step(state, self.receive_event + packet)
            found = step is not None and not step.fault and not step.sends and step.after == state
            self._ignored[key] = found
            if found:
                self._ignored_in.setdefault(state, []).append(packet)
                for event in self._events_of.get(state, ()):
                    step = self._steps[state, event]
                    if step is not None and not self.ignores(step.after, packet):
                        self._steps[state, event] = ProcessStep(state, fault=_NO_COPY)
                        self._own_events.pop(state, None)
        return found

    def unnamed(self, state: int, packet: int) -> int:
        """A message that a process holds and `waiting()` does not name; -1 if none is found.

        What is delivered after the receipt of a packet that does not carry it was held before, if nothing
        could be delivered then.
        """
        if self.step(state, DELIVER) is not None:
            return -1
        ids = self.kind.decode(self.packets[packet].data).message_ids()
        known = {self.number_of(*each) for each in ids} | {held for held, _ in self.held[state]}
        step = self.step(state, self.receive_event + packet)
        while step is not None and not step.fault:
            step = self.step(step.after, DELIVER)
            if ids and step is not None and not step.fault and step.message not in known:
                return step.message
        return -1

    def _judge_declarations(self, state: int, event: int, step: ProcessStep) -> str:
        """A declaration of the protocol that a step contradicts."""
        packet = event - self.receive_event
        if self.relies_on_forwards and (wrong := self._judge_forwards(state, event, step)):
            return wrong
        if self.relies_on_copies and step.after != state:
            self._events_of.setdefault(state, []).append(event)
            if not all(self.ignores(step.after, each) for each in self._ignored_in.get(state, ())):
                return _NO_COPY
        is_last = self.states[state].sent == self.bounds.messages
        if self.relies_on_receipts and is_last and packet >= 0 and not self._commutes(state, step, packet):
            return "what it receives changes its next delivery, and it declares `delivers_as_received = True`"
        return ""

    def _judge_forwards(self, state: int, event: int, step: ProcessStep) -> str:
        before, after = self.influence(state), self.influence(step.after)
        if any(new & ~old for old, new in zip(before.forwards, after.forwards, strict=True)):
            return "it may forward what it could not before, by its own `may_forward`"
        if self.broadcast_event <= event < self.open_event:
            return ""
        received = self.packets[event - self.receive_event] if event >= self.receive_event else None
        for sent in map(self.packets.__getitem__, step.sends):
            messages = self.kind.decode(sent.data).message_ids()
            if not messages and received is not None:
                messages = self.kind.decode(received.data).message_ids()
            numbers = [self.number_of(*message) for message in messages]
            if not any(number >= 0 and before.forwards[number] >> sent.to & 1 for number in numbers):
                return f"it sends to p{sent.to} what its `may_forward` excludes"
        return ""

    def _commutes(self, state: int, step: ProcessStep, packet: int) -> bool:
        """Whether the ready messages are delivered in the same way before a receipt and after it."""
        here, there = state, step.after
        if self.held[here] or self.held[there]:
            return False
        while (first := self.step(here, DELIVER)) is not None and not first.fault:
            second = self.step(there, DELIVER)
            receipt = self.step(first.after, self.receive_event + packet)
            if second is None or receipt is None or second.message != first.message:
                return False
            if (receipt.after, receipt.sends) != (second.after, step.sends):
                return False
            here, there = first.after, second.after
        return True

    def _compute(self, state: int, event: int) -> ProcessStep | None:
        before = self.states[state]
        if event == TICK:
            return ProcessStep(self._renumber(state, before._replace(now=before.now + 1)))
        try:
            process = self.kind.restore(before.saved)
            if event == DELIVER:
                return self._deliver(process, before)
            if event == WAKE:
                return self._wake(process, before) if self._is_due(before) else None
            if event < self.open_event:
                return self._broadcast(process, before, event - self.broadcast_event)
            if event < self.close_event:
                opened = process.link_opened(event - self.open_event, before.now)
                effects = checked_effects(opened, "link_opened")
            elif event < self.receive_event:
                closed = process.link_closed(event - self.close_event, before.now)
                effects = checked_effects(closed, "link_closed")
            else:
                packet = self.packets[event - self.receive_event]
                received = process.receive(packet.source, self.kind.decode(packet.data), before.now)
                effects = checked_effects(received, "receive")
            step = self._follow(process, before, effects)
            if step.sends and not self.kind.relays:
                return ProcessStep(
                    state, fault="it sends though nothing was broadcast, and declares `relays = False`"
                )
            return step
        except WrongResultError as error:
            return ProcessStep(state, fault=str(error))
        except (Exception, SystemExit) as error:  # An exception is a fault of the protocol.
            return ProcessStep(state, fault=f"it raises {what_was_raised(error)}")

    def _broadcast(self, process: Protocol, before: ProcessState, group: int) -> ProcessStep | None:
        name, members = self.audiences[group]
        is_sender = self.bounds.may_send(process.me) and process.me in members
        if before.sent == self.bounds.messages or not is_sender:
            return None
        number = self.number_of(process.me, before.sent + 1)
        effects = checked_effects(process.broadcast(payload_of(number), before.now, name), "broadcast")
        if effects.message != self.message(number):
            sent = _name(effects.message)
            return ProcessStep(0, fault=f"it broadcasts {sent} as its message {before.sent + 1}")
        after = before._replace(sent=before.sent + 1, delivered=before.delivered | 1 << number)
        return self._follow(process, after, effects, number)

    def _deliver(self, process: Protocol, before: ProcessState) -> ProcessStep | None:
        delivery = checked_delivery(process.deliver(before.now))
        if delivery is None:
            return None
        number = self.number_of(*delivery.message)
        if number < 0:
            return ProcessStep(0, fault=f"it delivers {_name(delivery.message)}, which nobody has sent")
        if delivery.payload != payload_of(number):
            return ProcessStep(0, fault=f"it delivers {_name(delivery.message)} with another body")
        if before.delivered >> number & 1:
            return ProcessStep(0, fault=f"it delivers {_name(delivery.message)} a second time")
        after = before._replace(delivered=before.delivered | 1 << number)
        step = self._follow(process, after, NO_EFFECTS, number)
        if not self.kind.carries_immediate_dependencies or delivery.causes is None:
            return step
        return step._replace(named=frozenset(self.number_of(*cause) for cause in delivery.causes.items()))

    def _wake(self, process: Protocol, before: ProcessState) -> ProcessStep:
        now = max(before.now, before.timers[0])
        effects = checked_effects(process.wake(now), "wake")
        if effects.wake_at is not None and effects.wake_at <= now:
            return ProcessStep(
                0, fault=f"woken at {now}, it asks for {effects.wake_at}: time would stand still"
            )
        return self._follow(process, before._replace(now=now, timers=before.timers[1:]), effects)

    def _is_due(self, state: ProcessState) -> bool:
        """Whether a timer may fire: at its time or, if delays have no bounds, at any time."""
        return bool(state.timers) and (state.timers[0] <= state.now or not self.kind.links.bounded_delays)

    def _follow(
        self, process: Protocol, after: ProcessState, effects: Effects, message: int = -1
    ) -> ProcessStep:
        if effects.wake_at is not None:
            after = after._replace(timers=tuple(sorted({effects.wake_at, *after.timers})))
        sent_at = after.now - self.bounds.clock(process.me) if self.kind.links.bounded_delays else 0
        sends = tuple(
            self._number_packet(SentPacket(process.me, to, self._encode(send.packet), sent_at))
            for send in effects.sends
            for to in send.to
        )
        return ProcessStep(self._number(after, process), sends, message)

    def _encode(self, packet: Packet) -> bytes:
        data = self.kind.encode(packet)
        if data not in self._encoded:
            if self.kind.decode(data) != packet:
                raise ValueError(f"{packet} does not decode to itself")
            self._encoded[data] = packet
        return data

    def _number(self, state: ProcessState, process: Protocol) -> int:
        state = state._replace(saved=canonical_state(process))
        number = self._numbers.setdefault(state, len(self.states))
        if number == len(self.states):
            self.states.append(state)
            self.held.append(
                tuple(
                    (
                        self.number_of(*wait.message),
                        NO_CAUSE if wait.cause is None else self.number_of(*wait.cause),
                    )
                    for wait in checked_waiting(process.waiting())
                )
            )
        return number

    def adopt_state(self, state: ProcessState) -> int:
        """The number of a state that was found elsewhere."""
        known = self._numbers.get(state)
        return self._number(state, self.kind.restore(state.saved)) if known is None else known

    def adopt_packet(self, packet: SentPacket) -> int:
        """The number of a packet that was found elsewhere."""
        return self._number_packet(packet)

    def _renumber(self, state: int, after: ProcessState) -> int:
        """The number of the state in which only the part outside the protocol differs."""
        number = self._numbers.setdefault(after, len(self.states))
        if number == len(self.states):
            self.states.append(after)
            self.held.append(self.held[state])
        return number

    def _number_packet(self, packet: SentPacket) -> int:
        number = self._packet_numbers.setdefault(packet, len(self.packets))
        if number == len(self.packets):
            self.packets.append(packet)
            self.destinations.append(packet.to)
            self.links.append(packet.source * self.size + packet.to)
        return number

    def is_between(self, packet: int, one: int, other: int) -> bool:
        """Whether a packet is on the link between two processes."""
        sent = self.packets[packet]
        return {sent.source, sent.to} == {one, other}


def _name(message: object) -> str:
    """A message as it is written elsewhere."""
    return f"p{message.origin}:{message.seq}" if isinstance(message, MessageId) else repr(message)


def payload_of(message: int) -> bytes:
    return message.to_bytes(1 if message < 256 else 2, "little")


def canonical_state(process: Protocol) -> bytes:
    """The saved state of a process with sorted keys: the same for equal ones, whatever led to them."""
    return msgspec.msgpack.encode(_sorted(msgspec.msgpack.decode(process.save())))


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value)}
    if isinstance(value, list):
        return [_sorted(each) for each in value]
    return value
