"""The application state of a churn trial, in a file of its own beside the member's store.

A trial is judged by this file: not by the member's own records, but by what was delivered to its application,
and what was reported to it as accepted. A line is written before the next message is requested, and survives
SIGKILL; a line that a kill has truncated counts as not written. Lines are JSON arrays:

    ["restore", state]                      a snapshot takes the place of all that there was
    ["deliver", id, causes, redelivered]    a message
    ["intend", id, causes]                  the application is about to broadcast it
    ["accept", id]                          `broadcast` has returned
    ["member", label]                       it is this incarnation
    ["left"], ["removed"]

An *id* is `author:number`. An author is one disk of one worker, so that no id occurs twice even if disks are
lost. The *causes* of a message are the last messages that its application had when it was broadcast: those
that are not causes of another one.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any


def split_id(identifier: str) -> tuple[str, int]:
    author, _, number = identifier.rpartition(":")
    return author, int(number)


class KnownMessages:
    """A set of message ids, stored by author as ranges of numbers, since most have no gaps.

    >>> known = KnownMessages()
    >>> [known.add(each) for each in ("a:1", "a:2", "a:4", "a:2")]
    [True, True, True, False]
    >>> known.ranges()
    {'a': [[1, 2], [4, 4]]}
    """

    def __init__(self, ranges: dict[str, list[list[int]]] | None = None) -> None:
        self._up_to: dict[str, int] = {}
        self._beyond: dict[str, set[int]] = {}
        for author, spans in (ranges or {}).items():
            for first, last in spans:
                if first == self._up_to.get(author, 0) + 1:
                    self._up_to[author] = last
                else:
                    self._beyond.setdefault(author, set()).update(range(first, last + 1))

    def __contains__(self, identifier: str) -> bool:
        author, number = split_id(identifier)
        return number <= self._up_to.get(author, 0) or number in self._beyond.get(author, ())

    def __len__(self) -> int:
        return sum(self._up_to.values()) + sum(map(len, self._beyond.values()))

    def add(self, identifier: str) -> bool:
        """Add an id; returns whether it is new."""
        if identifier in self:
            return False
        author, number = split_id(identifier)
        beyond = self._beyond.setdefault(author, set())
        beyond.add(number)
        last = self._up_to.get(author, 0)
        while last + 1 in beyond:
            last += 1
            beyond.remove(last)
        if last:
            self._up_to[author] = last
        if not beyond:
            del self._beyond[author]
        return True

    def ranges(self) -> dict[str, list[list[int]]]:
        """Sorted, so that equal sets are equal texts."""
        found: dict[str, list[list[int]]] = {}
        for author in sorted(self._up_to.keys() | self._beyond.keys()):
            spans = [[1, self._up_to[author]]] if author in self._up_to else []
            for number in sorted(self._beyond.get(author, ())):
                if spans and spans[-1][1] == number - 1:
                    spans[-1][1] = number
                else:
                    spans.append([number, number])
            found[author] = spans
        return found

    def __iter__(self) -> Iterator[str]:
        for author, spans in self.ranges().items():
            for first, last in spans:
                yield from (f"{author}:{number}" for number in range(first, last + 1))


def read_lines(path: Path) -> tuple[list[list[Any]], int]:
    """The complete lines of a file, and how many bytes they take."""
    data = path.read_bytes() if path.exists() else b""
    complete = data.rfind(b"\n") + 1
    return [json.loads(line) for line in data[:complete].splitlines()], complete


class KeptState:
    """The application of one worker: which messages it has, and the last of them."""

    def __init__(self, path: Path, author: str) -> None:
        lines, complete = read_lines(path)
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.ftruncate(self._file, complete)
        self.author, self.next_number = author, 1
        self.messages, self.frontier = KnownMessages(), set[str]()
        self.accepted = 0
        for kind, *values in lines:
            self._repeat(kind, values)

    def _repeat(self, kind: str, values: list[Any]) -> None:
        if kind == "restore":
            self._take(values[0])
        elif kind == "deliver":
            self._add(values[0], values[1])
        elif kind == "intend":
            self.next_number = split_id(values[0])[1] + 1
        elif kind == "accept":
            self.accepted += 1

    def _write(self, *line: Any) -> None:
        os.write(self._file, json.dumps(line).encode() + b"\n")

    def note(self, kind: str, *values: Any) -> None:
        """Record an event other than a message."""
        self._write(kind, *values)

    # Messages

    def deliver(self, identifier: str, causes: list[str], redelivered: bool) -> None:
        self._write("deliver", identifier, causes, redelivered)
        self._add(identifier, causes)

    def _add(self, identifier: str, causes: Iterable[str]) -> None:
        self.messages.add(identifier)
        self.frontier.difference_update(causes)
        self.frontier.add(identifier)

    def intend(self) -> tuple[str, list[str]]:
        """The id and the causes of a new message."""
        identifier, causes = f"{self.author}:{self.next_number}", sorted(self.frontier)
        self.next_number += 1
        self._write("intend", identifier, causes)
        return identifier, causes

    def accept(self, identifier: str) -> None:
        self._write("accept", identifier)
        self.accepted += 1

    # Snapshots

    def dump(self) -> bytes:
        return json.dumps({"have": self.messages.ranges(), "frontier": sorted(self.frontier)}).encode()

    def load(self, state: bytes) -> None:
        decoded = json.loads(state)
        self._write("restore", decoded)
        self._take(decoded)

    def _take(self, state: dict[str, Any]) -> None:
        self.messages, self.frontier = KnownMessages(state["have"]), set(state["frontier"])
