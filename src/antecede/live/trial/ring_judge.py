"""The judge of a ring trial: checks the deliveries to all applications, by their own logs.

It does not depend on protocols. The logs state what each application had of each group when it broadcast;
that is the causal past of the message, across all groups. The judge requires:

- *exactly once*: nothing is delivered to an application that already has it, from its snapshot or an earlier
  delivery, except a message that was in flight when its process was killed, and that is marked as
  redelivered;
- *after causes*: when a message is delivered to an application, it has all of the message's past in its own
  groups;
- *a snapshot is a cut*: an application that restores one has the past of its messages, in all of its groups;
- *nothing is lost* that was accepted on a disk that was not lost;
- *equal states*: in the end the members of a group have the same messages, including all that departed
  members have.

Only messages that exist in the end are required as causes, and no messages that their author rebroadcast
after it was removed: the first copies never reached the others.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from antecede.live.trial.kept_state import KnownMessages, split_id
from antecede.live.trial.ring_log import RingApplication, RingLine, author_of, group_of

_MAX_FAULTS = 1_000

Past = dict[str, int]
"""By stream, the last message. A stream is what one author broadcasts in one group, in its order."""


class RingVerdict(msgspec.Struct):
    accepted: int = 0
    deliveries: int = 0
    redelivered: int = 0
    restored: int = 0
    """How many snapshots were restored."""
    brought_again: int = 0
    """Messages that a removed member had not delivered to the others, and rebroadcast."""
    lost_with_disks: int = 0
    messages: int = 0
    """Messages in the final state of all members."""
    faults: list[str] = []


def judge(logs: Sequence[Sequence[RingLine]]) -> RingVerdict:
    """Judge all lines of each process."""
    return _Judge(logs).judge()


class _Judge:
    def __init__(self, logs: Sequence[Sequence[RingLine]]) -> None:
        self._logs = logs
        self._verdict = RingVerdict(faults=[])
        self._final: dict[str, KnownMessages] = {}
        self._again: set[str] = set()
        """Messages that were rebroadcast after their author was removed."""
        self.past: dict[str, Past] = {}
        """The causal past of each message that was broadcast."""

    def judge(self) -> RingVerdict:
        ends = [_replay(lines) for lines in self._logs]
        self._compare(ends)
        for lines in self._logs:
            self._again |= {each for each in _sent_again(lines) if self.is_final(each)}
        self._verdict.brought_again = len(self._again)
        histories = [_History(self, lines) for lines in self._logs]
        while sum(history.advance() for history in histories):
            pass
        for history in histories:
            if history.waits_for:
                self.fault(f"{history.who} was given {history.waits_for}, which nobody has broadcast")
        self._check_accepted(ends)
        del self._verdict.faults[_MAX_FAULTS:]
        return self._verdict

    def fault(self, text: str) -> None:
        self._verdict.faults.append(text)

    @property
    def verdict(self) -> RingVerdict:
        return self._verdict

    def is_final(self, message: str) -> bool:
        return message in self._final.get(group_of(message), ())

    def is_demanded(self, message: str) -> bool:
        return self.is_final(message) and message not in self._again

    def _compare(self, ends: list[RingApplication]) -> None:
        first: dict[str, str] = {}
        for end in ends:
            for group in sorted(end.present):
                if group not in first:
                    first[group], self._final[group] = end.author, end.have[group]
                elif end.have[group].ranges() != self._final[group].ranges():
                    there, here = set(self._final[group]), set(end.have[group])
                    differ = min(there ^ here)
                    has = end.author if differ in here else first[group]
                    self.fault(
                        f"{end.author} and {first[group]} differ in {len(there ^ here):,} messages of "
                        f"{group}; only {has} has {differ}"
                    )
        self._verdict.messages = sum(map(len, self._final.values()))

    def _check_accepted(self, ends: list[RingApplication]) -> None:
        for end in ends:
            self._verdict.accepted += len(end.accepted)
            for message in sorted(end.accepted):
                if self.is_final(message):
                    continue
                if author_of(message) != end.author:
                    self._verdict.lost_with_disks += 1
                else:
                    self.fault(f"{message} was accepted and is lost")


class _History:
    """The history of one application, as far as it was followed."""

    def __init__(self, judge: _Judge, lines: Sequence[RingLine]) -> None:
        self._judge, self._lines, self._at = judge, lines, 0
        self._application = RingApplication()
        self._past: Past = {}
        self._complete: Past = {}
        """By stream, up to which message it has everything that is required."""
        self._ends = _memberships(lines)
        """By group: ranges of lines in which it may not have been a member."""
        self.waits_for = ""

    @property
    def who(self) -> str:
        return self._application.author

    def advance(self) -> bool:
        """Follow it up to a message whose past is not known yet. False if it made no progress."""
        before = self._at
        while self._at < len(self._lines):
            line = self._lines[self._at]
            new = list(KnownMessages(line.state)) if line.kind == "restore" else []
            if line.kind in ("deliver", "again"):
                new = [line.message]
            self.waits_for = next((each for each in new if each not in self._judge.past), "")
            if self.waits_for:
                break
            self._follow(line, new)
            self._at += 1
        return self._at > before

    def _follow(self, line: RingLine, new: list[str]) -> None:
        application, verdict = self._application, self._judge.verdict
        deliveries, redelivered = application.delivered, application.redelivered
        had = application.have.get(line.group)
        is_new = application.follow(line)
        match line.kind:
            case "begin":
                if not application.have:
                    self._past = {}  # it has lost its knowledge with its disk
                self._complete = {}
            case "send":
                self._judge.past[line.message] = dict(self._past)
                if self._judge.is_demanded(line.message):
                    self._know([line.message])
            case "restore":
                verdict.restored += 1
                self._complete = {}
                self._check(new, "a snapshot with ")
                self._know(new)
            case "left":
                self._complete = {}
                if unknown := [each for each in had or () if not self._judge.is_final(each)]:
                    self._judge.fault(
                        f"{self.who} has left {line.group} with {unknown[0]}, which others lack"
                    )
            case "deliver" | "again":
                if not is_new:
                    self._judge.fault(f"{self.who} was given {line.message} twice")
                verdict.deliveries += application.delivered - deliveries
                verdict.redelivered += application.redelivered - redelivered
                self._check(new, "")
                self._know(new)

    def _check(self, new: list[str], what: str) -> None:
        """Check that it has all causes of these messages, in the groups that it is in."""
        have, demanded = self._application.have, self._judge.is_demanded
        for message in new:
            for stream, last in self._judge.past[message].items():
                known = have.get(group_of(stream))
                if known is None or self._may_be_out_of(group_of(stream)):
                    continue
                for number in range(self._complete.get(stream, 0) + 1, last + 1):
                    cause = f"{stream}:{number}"
                    if cause not in known and demanded(cause):
                        self._judge.fault(f"{self.who} was given {what}{message} before its cause {cause}")
                self._complete[stream] = max(last, self._complete.get(stream, 0))

    def _may_be_out_of(self, group: str) -> bool:
        return any(first < self._at < last for first, last in self._ends.get(group, ()))

    def _know(self, new: list[str]) -> None:
        """These messages, and all before them, precede whatever it broadcasts from now on."""
        past = self._past
        for message in new:
            for stream, last in self._judge.past[message].items():
                past[stream] = max(last, past.get(stream, 0))
            stream, number = message.rpartition(":")[0], split_id(message)[1]
            past[stream] = max(number, past.get(stream, 0))


def _replay(lines: Sequence[RingLine]) -> RingApplication:
    application = RingApplication()
    for line in lines:
        application.follow(line)
    return application


def _memberships(lines: Sequence[RingLine]) -> dict[str, list[tuple[int, int]]]:
    """When an application may have been out of a group: from the time it was about to leave it, or learned of
    its removal, until it was back. It learned of its removal some time after it joined, or after its last
    delivery."""
    found: dict[str, list[tuple[int, int]]] = {}
    last: dict[str, int] = {}
    leaves: dict[str, int] = {}
    for number, line in enumerate(lines):
        group = line.group
        if line.kind == "leave":
            leaves[group] = number
        elif line.kind == "restore":
            first = leaves.pop(group, last.get(group, -1))
            found.setdefault(group, []).append((first, number))
        if line.kind in ("joined", "restore", "deliver", "again", "accepted"):
            last[group] = number
    return found


def _sent_again(lines: Sequence[RingLine]) -> set[str]:
    """What it had broadcast in a group that was missing from the state with which it returned."""
    application, found = RingApplication(), set[str]()
    sent: dict[str, list[str]] = {}
    for line in lines:
        application.follow(line)
        if line.kind == "send":
            sent.setdefault(line.group, []).append(line.message)
        elif line.kind == "restore":
            known = application.have[line.group]
            mine = [each for each in sent.get(line.group, ()) if author_of(each) == application.author]
            found.update(each for each in mine if each not in known)
    return found
