"""An observer that tests compare engines by."""

from __future__ import annotations

from antecede.causality import MessageId


class EventLog:
    """All events that an observer is shown, in order."""

    def __init__(self) -> None:
        self.events: list[tuple[object, ...]] = []

    def send(
        self, process: int, message: MessageId, time: int, control: int, paper: int, group: str | None
    ) -> None:
        self.events.append(("send", process, message, time, control))

    def receive(self, process: int, link: int, message: MessageId, time: int) -> None:
        self.events.append(("receive", process, link, message, time))

    def deliver(self, process: int, message: MessageId, time: int) -> None:
        self.events.append(("deliver", process, message, time))
