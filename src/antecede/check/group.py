"""The states of a whole group, the events possible in each, and the violations.

A state is the processes, the packets in flight, and the oracle's part: for each message, which messages
happened before it. So a delivery can be judged at the moment it happens.

- A message is delivered after every message that happened before it and goes to the same process.
- Nothing is delivered twice, changed, or without having been sent, and no protocol raises an error.
- A message that is held waits for one that happened before it and is not delivered.
- When nothing more can happen, everything is delivered everywhere, and nothing is held.

A process saves its state before it sends or delivers anything, or returns from a broadcast. After a crash it
has its last saved state, and everything received since then arrives again.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any, NamedTuple, cast

from antecede.check.bounds import Bounds
from antecede.check.events import Event, EventKind
from antecede.check.processes import NO_CAUSE, TICK, Processes, ProcessStep, SentPacket
from antecede.errors import InputError
from antecede.protocols.base import Protocol
from antecede.protocols.catalog import PROTOCOLS
from antecede.protocols.program import ProgramMember

_RECEIVE, _DELIVER, _BROADCAST = int(EventKind.RECEIVE), int(EventKind.DELIVER), int(EventKind.BROADCAST)

NAMES_ITS_CAUSES = (
    "it declares carries_immediate_dependencies = True, so a message must name exactly its immediate causes"
)
WAITS = "waiting() must give for each held message an undelivered one that happened before it"


class Rest(NamedTuple):
    """The part of a state that most explorations do not need."""

    groups: tuple[int, ...] = ()
    """For each message the group it was sent to, if there are several; -1 if it is not sent yet."""
    links: frozenset[tuple[int, int]] = frozenset()
    """Links that were opened, for protocols whose links change."""
    unsaved: tuple[tuple[int, tuple[int, ...]], ...] = ()
    """For each process that may still crash: its saved state, and what it has received since."""
    losses: int = 0
    duplicates: int = 0
    crashes: int = 0
    link_changes: int = 0
    wakes: int = 0
    """How many of each bounded event have happened."""


class CheckState(NamedTuple):
    """A whole group at one moment."""

    processes: tuple[int, ...]
    in_flight: tuple[int, ...]
    """Packets: sorted, on FIFO links by link and in the order in which it carries them."""
    pasts: tuple[int, ...]
    """For each message the messages that happened before it, as bits; -1 if it is not sent yet."""
    rest: Rest | None = None


class CheckViolation(NamedTuple):
    """A violation, and where it occurred."""

    process: int
    text: str
    message: int = -1
    """The message concerned, if any."""
    claim: str = ""
    """A claim of the protocol about itself that is false, where that breaks no causal order."""


class CheckedGroup:
    """A group within bounds: its initial state, the events possible in a state, and the states they lead
    to."""

    def __init__(self, kind: type[Protocol], bounds: Bounds) -> None:
        self.kind, self.bounds, self.size = kind, bounds, bounds.peers
        self.processes = Processes(kind, bounds)
        self.is_fifo, self.is_timed = kind.links.fifo, kind.links.bounded_delays
        self.members = [frozenset(members) for _, members in bounds.audiences()]
        self.has_equal_members = len(self.members) == 1 and bounds.senders is None and not bounds.clocks
        if bounds.link_changes and not kind.dynamic_links:
            raise InputError(f"check: link changes: the links of {kind.name} neither open nor close")
        layout = bounds.resolved_layout(kind)
        self._sites = layout.sites(self.size) if layout is not None else [0] * self.size
        self._permanent = self._find_permanent_links()
        self._everybody = range(self.size)
        self._judges_claims = bounds.claims
        # A program need not answer requests for what it holds.
        names_held = not issubclass(kind, ProgramMember) or "waiting" in kind.ops
        self._judges_unnamed = names_held and not issubclass(kind, tuple(PROTOCOLS.values()))
        self.leaves_out_copies = False
        """Whether packets that change nothing stay in flight, because nothing depends on their receipt."""
        self._has_faults = bool(bounds.losses or bounds.duplicates or bounds.crashes or bounds.link_changes)
        unsent = (-1,) * (self.size * bounds.messages)
        self.initial = CheckState(self.processes.initial, (), unsent, self._initial_rest())

    def _find_permanent_links(self) -> frozenset[tuple[int, int]]:
        """Links that stay open, so that the group stays connected."""
        if not self.kind.dynamic_links:
            return frozenset()
        members = cast(list[Any], self.bounds.members(self.kind))
        return frozenset((one.me, other) for one in members for other in one.neighbours if one.me < other)

    def _initial_rest(self) -> Rest | None:
        if not self._has_faults and len(self.members) == 1:
            return None
        count = self.size * self.bounds.messages if len(self.members) > 1 else 0
        unsaved = tuple((number, ()) for number in self.processes.initial) if self.bounds.crashes else ()
        return Rest((-1,) * count, unsaved=unsaved)

    # The events that are possible.

    def events(self, state: CheckState, processes: Sequence[int] | None = None) -> list[Event]:
        """The events possible in a state, or only those at some processes."""
        known, numbers = self.processes, state.processes
        chosen = self._everybody if processes is None else processes
        events: list[Event] = []
        for process in chosen:
            for kind, detail, step in known.own_events(numbers[process]):
                if self._may_or_deliver(state, kind):
                    events.append((kind, process, detail, step))
        for packet in self._arriving(state):
            to = known.destinations[packet]
            if to in chosen:
                events.append((_RECEIVE, to, packet, known.step(numbers[to], known.receive_event + packet)))
        if self._has_faults:
            events += self._faults(state, chosen, events)
        if self.is_timed and self._may_tick(state):
            events.append((EventKind.TICK, -1, -1, None))
        return events

    def event(self, state: CheckState, kind: int, process: int, detail: int) -> Event | None:
        """One event, if it is possible in a state: cheaper than finding all possible events."""
        known, rest = self.processes, state.rest or Rest()
        if kind in (_RECEIVE, EventKind.REPEAT):
            if detail not in state.in_flight or (self.is_fifo and detail not in self._arriving(state)):
                return None
            if kind == EventKind.REPEAT and rest.duplicates >= self.bounds.duplicates:
                return None
            return kind, process, detail, known.step(state.processes[process], known.receive_event + detail)
        if kind in (EventKind.OPEN, EventKind.CLOSE):
            is_open = (process, detail) in rest.links
            may_change = (process, detail) not in self._permanent and is_open == (kind == EventKind.CLOSE)
            return (kind, process, detail, None) if may_change else None
        for own, about, step in known.own_events(state.processes[process]):
            if own == kind and (kind != _BROADCAST or about == detail) and self._may_or_deliver(state, kind):
                return kind, process, about, step
        return None

    def _may_or_deliver(self, state: CheckState, kind: int) -> bool:
        return kind == _DELIVER or self._may(state, kind)

    def _may(self, state: CheckState, kind: int) -> bool:
        """Whether one more broadcast, or timer that fires, is allowed."""
        if kind == _BROADCAST:
            return self.may_broadcast(state)
        return self.is_timed or state.rest is None or state.rest.wakes < self.bounds.wakes

    def may_broadcast(self, state: CheckState) -> bool:
        """Whether the group as a whole has something left to broadcast."""
        total = self.bounds.total
        return total is None or sum(past >= 0 for past in state.pasts) < total

    def _arriving(self, state: CheckState) -> Sequence[int]:
        """The packets that may be the next to arrive."""
        in_flight: Sequence[int] = state.in_flight
        if self.leaves_out_copies:
            to, ignores = self.processes.destinations, self.processes.ignores
            in_flight = [each for each in in_flight if not ignores(state.processes[to[each]], each)]
        if not self.is_fifo:
            return list(dict.fromkeys(in_flight))
        links, arriving, last = self.processes.links, [], -1
        for packet in in_flight:
            if links[packet] != last:
                last = links[packet]
                arriving.append(packet)
        return arriving

    def _faults(self, state: CheckState, chosen: Sequence[int], events: list[Event]) -> list[Event]:
        rest, bounds, faults = state.rest or Rest(), self.bounds, list[Event]()
        for kind, process, packet, step in events:
            if kind == _RECEIVE and rest.duplicates < bounds.duplicates:
                faults.append((EventKind.REPEAT, process, packet, step))
            if kind == _RECEIVE and rest.losses < bounds.losses:
                faults.append((EventKind.LOSE, process, packet, None))
        for process, (_, received) in enumerate(rest.unsaved):
            if received and process in chosen:
                faults.append((EventKind.CRASH, process, -1, None))
        if rest.link_changes < bounds.link_changes:
            for link in combinations(range(self.size), 2):
                if link not in self._permanent:
                    faults.append((EventKind.CLOSE if link in rest.links else EventKind.OPEN, *link, None))
        return faults

    def _may_tick(self, state: CheckState) -> bool:
        """Whether time may advance: something waits for it, and no event is due before."""
        known = self.processes
        own = [known.states[number] for number in state.processes]
        now = own[0].now - self.bounds.clock(0)
        local = [
            packet for packet in map(known.packets.__getitem__, state.in_flight) if self._is_local(packet)
        ]
        if any(each.timers and each.timers[0] <= each.now for each in own):
            return False
        if any(packet.sent_at + self.bounds.longest_delay <= now for packet in local):
            return False
        return bool(local) or any(each.timers for each in own)

    def _is_local(self, packet: SentPacket) -> bool:
        return self._sites[packet.source] == self._sites[packet.to]

    # What an event leads to.

    def apply(self, state: CheckState, event: Event) -> CheckState | CheckViolation:
        """The state after an event, or the violation."""
        kind, process, detail, step = event
        if step is None:
            return self._apply_to_all(state, event)
        if step.fault:
            return CheckViolation(process, step.fault)
        processes, in_flight, pasts, rest = state
        if kind == _RECEIVE:
            at = in_flight.index(detail)
            in_flight = in_flight[:at] + in_flight[at + 1 :]
        elif kind == _DELIVER:
            if (violation := self._judge_delivery(state, process, step)) is not None:
                return violation
        elif kind == _BROADCAST:
            message = step.message
            pasts = (*pasts[:message], self._observed(state, process), *pasts[message + 1 :])
        if step.sends:
            in_flight = self.arrange(in_flight + step.sends)
        processes = (*processes[:process], step.after, *processes[process + 1 :])
        if rest is not None or kind == EventKind.WAKE:
            rest = self._follow(rest or Rest(), event, step)
        if self._judges_claims and self._judges_unnamed and kind == _RECEIVE:
            held = self.processes.unnamed(state.processes[process], detail)
            if held >= 0:
                text = f"it held {self.name(held)}, which waiting() did not name"
                return CheckViolation(process, text, held, WAITS)
        if (
            self._judges_claims
            and self.processes.held[step.after]
            and (wrong := self._judge_held(pasts, process, step.after))
        ):
            return wrong
        return CheckState(processes, in_flight, pasts, rest)

    def _observed(self, state: CheckState, process: int) -> int:
        """Everything that has happened before the next event of a process, as bits."""
        observed = delivered = self.processes.states[state.processes[process]].delivered
        for message, past in enumerate(state.pasts):
            if delivered >> message & 1:
                observed |= past
        return observed

    def arrange(self, packets: tuple[int, ...]) -> tuple[int, ...]:
        """Packets in flight in the order of `CheckState.in_flight`; those of a link stay in their order."""
        return tuple(sorted(packets, key=self.processes.links.__getitem__ if self.is_fifo else None))

    def _follow(self, rest: Rest, event: Event, step: ProcessStep) -> Rest:
        """Further changes caused by an event at a process."""
        kind, process, detail, _ = event
        if kind == _BROADCAST and rest.groups:
            rest = rest._replace(groups=_with(rest.groups, step.message, detail))
        elif kind == EventKind.REPEAT:
            rest = rest._replace(duplicates=rest.duplicates + 1)
        elif kind == EventKind.WAKE and not self.is_timed:
            rest = rest._replace(wakes=rest.wakes + 1)
        if rest.unsaved:
            saved, received = rest.unsaved[process]
            is_unsaved = kind in (EventKind.RECEIVE, EventKind.REPEAT) and not step.sends
            kept = (saved, (*received, detail)) if is_unsaved else (step.after, ())
            rest = rest._replace(unsaved=_with(rest.unsaved, process, kept))
        return rest

    def _apply_to_all(self, state: CheckState, event: Event) -> CheckState | CheckViolation:
        """An event that is not a step of a single process."""
        kind, process, detail, _ = event
        rest = state.rest or Rest()
        if kind == EventKind.TICK:
            return self._tick(state)
        if kind == EventKind.LOSE:
            at = state.in_flight.index(detail)
            left = state.in_flight[:at] + state.in_flight[at + 1 :]
            return state._replace(in_flight=left, rest=rest._replace(losses=rest.losses + 1))
        if kind == EventKind.CRASH:
            return self._crash(state, rest, process)
        return self._change_link(state, rest, event)

    def _tick(self, state: CheckState) -> CheckState:
        """Time advances, and every process saves its state before. Otherwise a packet received earlier would
        arrive again after its time, which no protocol that relies on bounded delays allows."""
        steps = [self.processes.step(number, TICK) for number in state.processes]
        processes = tuple(step.after for step in steps if step is not None)
        rest = state.rest
        if rest is not None and rest.unsaved:
            rest = rest._replace(unsaved=tuple((number, ()) for number in processes))
        return state._replace(processes=processes, rest=rest)

    def _crash(self, state: CheckState, rest: Rest, process: int) -> CheckState:
        saved, received = rest.unsaved[process]
        crashes = rest.crashes + 1
        may_again = crashes < self.bounds.crashes
        unsaved = _with(rest.unsaved, process, (saved, ())) if may_again else ()
        return state._replace(
            processes=_with(state.processes, process, saved),
            in_flight=self.arrange(received + state.in_flight),
            rest=rest._replace(crashes=crashes, unsaved=unsaved),
        )

    def _change_link(self, state: CheckState, rest: Rest, event: Event) -> CheckState | CheckViolation:
        """Both ends are notified; packets in flight on a link that closes are lost."""
        kind, one, other, _ = event
        known, in_flight = self.processes, state.in_flight
        if kind == EventKind.CLOSE:
            in_flight = tuple(each for each in in_flight if not known.is_between(each, one, other))
        processes = state.processes
        for here, there in ((one, other), (other, one)):
            change = known.open_event if kind == EventKind.OPEN else known.close_event
            step = known.step(processes[here], change + there)
            if step is None or step.fault:
                return CheckViolation(here, step.fault if step is not None else "it cannot change a link")
            processes = _with(processes, here, step.after)
            in_flight = self.arrange(in_flight + step.sends)
        rest = rest._replace(links=rest.links ^ {(one, other)}, link_changes=rest.link_changes + 1)
        return CheckState(processes, in_flight, state.pasts, rest)

    # Violations.

    def missing_causes(self, state: CheckState, process: int, step: ProcessStep) -> list[int]:
        """The messages for a process that happened before the one that it delivers, and that it lacks."""
        missing = state.pasts[step.message] & ~self.processes.states[step.after].delivered
        causes = (cause for cause in range(missing.bit_length()) if missing >> cause & 1)
        return [cause for cause in causes if self.goes_to(state, cause, process)]

    def _judge_delivery(self, state: CheckState, process: int, step: ProcessStep) -> CheckViolation | None:
        past = state.pasts[step.message]
        if past < 0:
            return CheckViolation(process, f"it delivers {self.name(step.message)}, which nobody has sent")
        if missing := self.missing_causes(state, process, step):
            early, cause = self.name(step.message), self.name(missing[0])
            text = f"it delivers {early} before {cause}, which happened before {early}"
            return CheckViolation(process, text, step.message)
        if (
            self._judges_claims
            and step.named is not None
            and step.named != (needed := self._immediate_of_others(state, step.message))
        ):
            named, needs = (
                ", ".join(map(self.name, sorted(each))) or "nothing" for each in (step.named, needed)
            )
            text = f"{self.name(step.message)} names {named}; its immediate causes are: {needs}"
            return CheckViolation(process, text, step.message, NAMES_ITS_CAUSES)
        return None

    def _immediate_of_others(self, state: CheckState, message: int) -> frozenset[int]:
        """The immediate dependencies of a message, without its sender's previous one."""
        own = self.processes.message(message).origin
        immediate = immediate_causes(state.pasts, message)
        return frozenset(cause for cause in immediate if self.processes.message(cause).origin != own)

    def _judge_held(self, pasts: tuple[int, ...], process: int, number: int) -> CheckViolation | None:
        delivered = self.processes.states[number].delivered
        for held, cause in self.processes.held[number]:
            if held < 0 or pasts[held] < 0:
                return CheckViolation(process, "it holds a message that nobody has sent", claim=WAITS)
            name = self.name(held)
            if delivered >> held & 1:
                return CheckViolation(process, f"it holds {name}, which it has delivered", held, WAITS)
            if cause == NO_CAUSE:
                continue
            if cause < 0 or not pasts[held] >> cause & 1:
                text = f"it holds {name} for what did not happen before it"
                return CheckViolation(process, text, held, WAITS)
            if delivered >> cause & 1:
                text = f"it holds {name} for {self.name(cause)}, which it has delivered"
                return CheckViolation(process, text, held, WAITS)
        return None

    def judge_end(self, state: CheckState) -> CheckViolation | None:
        """The violation in a state in which nothing more can happen, if any."""
        if state.rest is not None and state.rest.losses:
            return None
        for process, number in enumerate(state.processes):
            own = self.processes.states[number]
            if own.timers and not self.is_timed:
                return None  # More timers would have fired.
            for message, past in enumerate(state.pasts):
                is_delivered = own.delivered >> message & 1
                if past >= 0 and not is_delivered and self.goes_to(state, message, process):
                    return CheckViolation(process, f"it never delivers {self.name(message)}", message)
            if self.processes.held[number]:
                held = self.processes.held[number][0][0]
                return CheckViolation(process, f"it holds {self.name(held)} for ever", held)
        return None

    def goes_to(self, state: CheckState, message: int, process: int) -> bool:
        """Whether a message that was sent is addressed to a process."""
        groups = state.rest.groups if state.rest is not None else ()
        return process in self.members[groups[message] if groups else 0]

    def name(self, message: int) -> str:
        origin, seq = self.processes.message(message)
        return f"p{origin}:{seq}"


def _with(values: tuple[Any, ...], index: int, value: Any) -> tuple[Any, ...]:
    return (*values[:index], value, *values[index + 1 :])


def immediate_causes(pasts: tuple[int, ...], message: int) -> list[int]:
    """The messages that happened before a message with nothing in between."""
    past = [cause for cause in range(len(pasts)) if pasts[message] >> cause & 1]
    return [cause for cause in past if not any(pasts[other] >> cause & 1 for other in past)]
