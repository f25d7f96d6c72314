"""The judge of a churn trial: checks the deliveries to all applications, as recorded in their own files.

It does not depend on members and protocols. `kept_state.py` records what was delivered to each application
and in which order, what was in its snapshots, and which messages were accepted. The judge requires:

- *exactly once*: nothing is delivered to an application that already has it, from its snapshot or an earlier
  delivery, except a message that was in flight when the process was killed, and that is marked as
  redelivered;
- *after causes*: when a message is delivered to an application, it has everything that the author had then;
- *a snapshot is a cut*: it contains the causes of its messages;
- *nothing is lost* that was accepted by a worker whose disk was not lost;
- *equal states*: in the end the applications of all members have the same messages, including all that
  departed members have.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from antecede.live.trial.kept_state import KnownMessages, read_lines

_MAX_FAULTS = 1_000


class KeptFile(msgspec.Struct):
    """The file of one disk."""

    path: Path
    author: str
    is_lost: bool = False
    """Whether the disk was lost, or its process was killed for good."""
    is_member: bool = False
    """Whether its worker is a member in the end, or behind one."""


class ChurnVerdict(msgspec.Struct):
    accepted: int = 0
    deliveries: int = 0
    redelivered: int = 0
    restored: int = 0
    """How many snapshots were restored."""
    lost_with_disks: int = 0
    """Accepted messages that were lost with disks, or with processes that were killed for good."""
    messages: int = 0
    """Messages in the final state of all members."""
    faults: list[str] = []


class _Reading:
    """The content of one file."""

    def __init__(self, file: KeptFile) -> None:
        self.file = file
        self.lines = read_lines(file.path)[0]
        self.have = KnownMessages()
        self.accepted: list[str] = []
        self.has_left = False


def judge(files: list[KeptFile]) -> ChurnVerdict:
    verdict = ChurnVerdict(faults=[])
    readings = [_Reading(file) for file in files]
    causes: dict[str, list[str]] = {}
    for reading in readings:
        for kind, *values in reading.lines:
            if kind == "intend":
                if values[0] in causes:
                    verdict.faults.append(f"{values[0]} was broadcast twice: the trial itself is wrong")
                causes[values[0]] = values[1]
    for reading in readings:
        _follow(reading, causes, verdict)
    _compare(readings, verdict)
    del verdict.faults[_MAX_FAULTS:]
    return verdict


def _follow(reading: _Reading, causes: dict[str, list[str]], verdict: ChurnVerdict) -> None:
    """Follow the history of one application."""
    who, faults, last = reading.file.author, verdict.faults, ""
    for kind, *values in reading.lines:
        if kind == "restore":
            verdict.restored += 1
            reading.have = KnownMessages(values[0]["have"])
            last = ""
            _check_snapshot(who, reading.have, causes, faults)
        elif kind == "deliver":
            identifier, named, redelivered = values
            if named != causes.get(identifier):
                faults.append(f"{who} was given {identifier} with other content than was broadcast")
            if not reading.have.add(identifier):
                if redelivered and identifier == last:
                    verdict.redelivered += 1
                else:
                    faults.append(f"{who} was given {identifier} twice")
                continue
            verdict.deliveries += 1
            last = identifier
            for cause in named:
                if cause not in reading.have:
                    faults.append(f"{who} was given {identifier} before its cause {cause}")
        elif kind == "accept":
            reading.accepted.append(values[0])
        elif kind in ("left", "member"):
            reading.has_left = kind == "left"


def _check_snapshot(who: str, have: KnownMessages, causes: dict[str, list[str]], faults: list[str]) -> None:
    faults += [
        f"the snapshot of {who} has {identifier} and not its cause {cause}"
        for identifier in have
        for cause in causes.get(identifier, ())
        if cause not in have
    ]


def _compare(readings: list[_Reading], verdict: ChurnVerdict) -> None:
    members = [reading for reading in readings if reading.file.is_member]
    if not members:
        verdict.faults.append("nobody is a member in the end")
        return
    final = members[0].have
    verdict.messages = len(final)
    for reading in members[1:]:
        if reading.have.ranges() != final.ranges():
            there, here = set(reading.have), set(final)
            for text, some in (("lacks", here - there), ("has", there - here)):
                if some:
                    verdict.faults.append(
                        f"{reading.file.author} {text} {min(some)}, in all {len(some):,} that differ from "
                        f"what {members[0].file.author} has"
                    )
    for reading in readings:
        verdict.accepted += len(reading.accepted)
        missing = [each for each in reading.accepted if each not in final]
        if reading.file.is_lost:
            verdict.lost_with_disks += len(missing)
        elif missing:
            verdict.faults.append(
                f"{missing[0]} was accepted and is lost, one of {len(missing):,} of {reading.file.author}"
            )
        if reading.has_left and (unknown := [each for each in reading.have if each not in final]):
            verdict.faults.append(
                f"{reading.file.author} has left with {unknown[0]}, which the members do not have"
            )
