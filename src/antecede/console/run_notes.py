"""What the console shows of a simulated run besides the members' own state, recorded by an observer."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from antecede.causality import BitWindow, MessageId
from antecede.live.operations.recent import MAX_MESSAGES, RecentMessage
from antecede.live.operations.state import Happened

_KINDS = {
    "admit": "joined",
    "leave": "left",
    "disown": "left",
    "remove": "removing",
    "close": "removed",
}
"""Changes as the console calls them."""
_MAX_CHANGES = 200
_MAX_CAUSES = 200_000
"""How many messages' causes are kept. A message delivered after its causes were dropped is shown without
any."""


class ProcessNotes:
    """Records of one process."""

    def __init__(self) -> None:
        self.broadcast = self.delivered = 0
        self.delivered_up_to: dict[int, int] = {}
        self.received: dict[int, BitWindow] = {}
        self.arrived: dict[MessageId, int] = {}
        """Arrival times of messages that are not delivered yet."""
        self.latest: set[MessageId] = set()
        """Messages broadcast or delivered here that no other of them depends on: the immediate dependencies
        of the next message."""
        self.recent: deque[RecentMessage] = deque(maxlen=MAX_MESSAGES)
        self.changes: deque[Happened] = deque(maxlen=_MAX_CHANGES)

    def receive(self, message: MessageId) -> bool:
        """Record an arrival; returns whether this is the first copy."""
        return self.received.setdefault(message.origin, BitWindow()).add(message.seq)

    def received_up_to(self, origin: int) -> int:
        window = self.received.get(origin)
        return 0 if window is None else window.base


class RunNotes:
    """Records of all processes, which have these names. `seconds` converts a simulated time to seconds since
    1970."""

    def __init__(self, names: Sequence[str], seconds: Callable[[int], float]) -> None:
        self.names = names
        self.seconds = seconds
        self._processes: dict[int, ProcessNotes] = {}
        self._causes: dict[MessageId, tuple[MessageId, ...]] = {}
        self._snapshots: dict[int, set[MessageId]] = {}

    def of(self, process: int) -> ProcessNotes:
        if process not in self._processes:
            self._processes[process] = ProcessNotes()
        return self._processes[process]

    def id(self, message: MessageId) -> str:
        return f"{self.names[message.origin]}:{message.seq}"

    # As an observer.

    def send(
        self, process: int, message: MessageId, time: int, control: int, paper: int, group: str | None
    ) -> None:
        notes = self.of(process)
        notes.broadcast += 1
        notes.receive(message)
        notes.delivered_up_to[message.origin] = message.seq
        causes = self._causes[message] = tuple(sorted(notes.latest))
        if len(self._causes) > _MAX_CAUSES:
            del self._causes[next(iter(self._causes))]
        notes.latest = {message}
        self._note(notes, message, causes, time)

    def receive(self, process: int, link: int, message: MessageId, time: int) -> None:
        notes = self.of(process)
        if notes.receive(message):
            notes.arrived[message] = time

    def deliver(self, process: int, message: MessageId, time: int) -> None:
        notes = self.of(process)
        notes.delivered += 1
        notes.arrived.pop(message, None)
        notes.delivered_up_to[message.origin] = message.seq
        causes = self._causes.get(message, ())
        # In causal order, an immediate dependency of a message is one that no other message delivered here
        # depends on.
        notes.latest.difference_update(causes)
        notes.latest.add(message)
        self._note(notes, message, causes, time)

    def change(self, process: int, kind: str, member: int, message: MessageId, time: int) -> None:
        by = "" if kind == "close" else self.names[message.origin]
        text = "its last message is known to all" if kind == "close" else ""
        happened = Happened(_KINDS[kind], self.names[member], text, self.seconds(time), by, self.id(message))
        changes = self.of(process).changes
        is_end = kind == "close" and not any(
            each.kind == "removing" and each.about == happened.about for each in changes
        )
        if not is_end:  # For a process that has left, there is nothing more to report.
            changes.append(happened)

    def take_snapshot(self, sponsor: int, process: int) -> None:
        self._snapshots[process] = set(self.of(sponsor).latest)

    def start(self, process: int, time: int) -> None:
        self.of(process).latest = self._snapshots.pop(process)

    def _note(self, notes: ProcessNotes, message: MessageId, causes: Sequence[MessageId], time: int) -> None:
        named = [self.id(cause) for cause in causes]
        notes.recent.append(RecentMessage(self.id(message), self.seconds(time), named))
