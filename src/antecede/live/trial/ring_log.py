"""The logs of the applications in a ring trial, and the messages that each application has according to its
log.

A process has one log, which survives the process and its disks. A line is written before the next message is
requested. It consists of a kind, an id, a group, and a time, with a dash for what does not apply:

    begin AUTHOR - TIME            the process is there, with this disk
    joined - GROUP TIME            it is a member, or still is
    restore - GROUP TIME STATE     a snapshot takes the place of all that it had of the group
    leave - GROUP TIME             it is about to leave
    left - GROUP TIME
    send ID GROUP TIME             it is about to broadcast
    accepted ID GROUP TIME         `broadcast` has returned
    refused ID GROUP TIME          `broadcast` has raised an error
    deliver ID GROUP TIME          a message
    again ID GROUP TIME            a message that is redelivered
    stable - GROUP TIME           all members are there, and none is on the way in or out, as it sees them
    unstable - GROUP TIME
    change - WHAT TIME             a command of the supervisor begins
    changed - WHAT TIME            ... and has ended

An id is `author/group:number`. An author is one disk of one process, so that no id occurs twice.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from antecede.live.trial.kept_state import KnownMessages, split_id

Ranges = dict[str, list[list[int]]]
"""A state, as in a snapshot: `KnownMessages.ranges`."""


class RingLine(NamedTuple):
    kind: str
    message: str
    group: str
    time: int
    state: Ranges | None = None


def group_of(message: str) -> str:
    """The group of a message, by its id or by its stream, which is an id without the number.

    >>> group_of("p1.0/g2:7"), group_of("p1.0/g2")
    ('g2', 'g2')
    """
    return message.rpartition("/")[2].partition(":")[0]


def author_of(message: str) -> str:
    return message.rpartition("/")[0]


def read_lines(path: Path, start: int = 0) -> tuple[list[RingLine], int]:
    """The complete lines from an offset, and where they end."""
    if not path.exists():
        return [], start
    with path.open("rb") as file:
        file.seek(start)
        data = file.read()
    complete = data.rfind(b"\n") + 1
    found = []
    for text in data[:complete].decode().splitlines():
        kind, message, group, now, *state = text.split(" ", 4)
        found.append(RingLine(kind, message, group, int(now), json.loads(state[0]) if state else None))
    return found, start + complete


class RingApplication:
    """The state of one application, according to its log."""

    def __init__(self) -> None:
        self.author = ""
        self.begun = self.sent = self.delivered = self.redelivered = 0
        self.accepted: set[str] = set()
        self.have: dict[str, KnownMessages] = {}
        """The messages that it has, by group, while it is a member."""
        self.present: set[str] = set()
        """Groups that it has joined since its process started."""
        self.stable: set[str] = set()
        self.left: set[str] = set()
        """Groups that it has left at any time, or was about to leave."""
        self.restored: Counter[str] = Counter()
        self.last_number: Counter[str] = Counter()
        self.is_broadcasting = self.is_changing = False
        self._last = ""

    def follow(self, line: RingLine) -> bool:
        """Apply a line; False if it is a message that the application already has, unless it was in flight
        when its process ended."""
        kind, message, group = line.kind, line.message, line.group
        match kind:
            case "begin":
                if message != self.author:
                    self.have, self.last_number = {}, Counter()
                self.author, self.begun = message, self.begun + 1
                self.present, self.stable = set(), set()
                self.is_broadcasting = self.is_changing = False
            case "joined":
                self.have.setdefault(group, KnownMessages())
                self.present.add(group)
            case "restore":
                self.have[group] = KnownMessages(line.state)
                self.restored[group] += 1
                self._last = ""
            case "leave":
                self.present.discard(group)
                self.left.add(group)
            case "left":
                self.have.pop(group, None)
            case "send":
                self.sent += 1
                self.last_number[group] = split_id(message)[1]
                self.is_broadcasting = True
            case "accepted":
                self.accepted.add(message)
                self.is_broadcasting = False
            case "refused":
                self.is_broadcasting = False
            case "stable":
                self.stable.add(group)
            case "unstable":
                self.stable.discard(group)
            case "change" | "changed":
                self.is_changing = kind == "change"
            case _:
                return self._deliver(message, group, kind == "again")
        return True

    def _deliver(self, message: str, group: str, is_again: bool) -> bool:
        # Deliveries to a founder may begin before `join` has returned.
        if not self.have.setdefault(group, KnownMessages()).add(message):
            is_in_flight = is_again and message == self._last
            self.redelivered += is_in_flight
            return is_in_flight
        self.delivered += 1
        self._last = message
        return True


class RingLog:
    """The log of a process: writes it, and tracks the application's state."""

    def __init__(self, path: Path, author: str) -> None:
        lines, complete = read_lines(path)
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.ftruncate(self._file, complete)  # a kill may have truncated the last line
        self.application = RingApplication()
        for line in lines:
            self.application.follow(line)
        self.write("begin", author)

    def write(self, kind: str, message: str = "-", group: str = "-", state: Ranges | None = None) -> None:
        now = time.time_ns()
        text = "" if state is None else " " + json.dumps(state)
        os.write(self._file, f"{kind} {message} {group} {now}{text}\n".encode())
        self.application.follow(RingLine(kind, message, group, now, state))
