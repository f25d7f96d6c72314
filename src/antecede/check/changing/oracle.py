"""Judges a changing group by what its applications saw, and by what its members still remember at the end.

- *Order*: a message is delivered once, after all that happened before it, and not again if it was in the
  snapshot. A snapshot contains the causal past of everything in it.
- *Completeness*: every survivor has, in its snapshot or by delivery, every message of a member that stays,
  leaves or returns, and every message that any survivor has. So survivors have the same messages of a removed
  member: one cut.
- *Agreement*: in the end all views are equal and contain exactly the survivors. There is one group.
- *Forgetting*: in the end members have no state about members that are gone, and hold and retain nothing.
  Members that have left terminate.

The oracle knows nothing of the implementation. Messages are bits, in send order.
"""

from __future__ import annotations

from collections.abc import Iterable

from antecede.causality import MessageId
from antecede.check.changing.quorum import has_quorum
from antecede.check.changing.world import ChangingWorld, IncarnationRecord
from antecede.membership.member import ChangingMember
from antecede.membership.packets import Stream
from antecede.membership.state import Phase


class ChangingOracle:
    """The verdict on a world in which nothing more will happen by itself."""

    def __init__(self, world: ChangingWorld) -> None:
        self.world = world
        self.numbers: dict[MessageId, int] = {}
        self.pasts: list[int] = []
        """For each message, those that happened before it."""
        self.names: dict[MessageId, str] = {}
        """Names of messages that are not named by their ids."""

    def violations(self) -> list[str]:
        found = [*self.judge_order(), *self.world.faults, *self.judge_one_group()]
        if self.has_quorum():
            found += [*self.judge_completeness(), *judge_agreement(self.survivors()), *self.judge_memory()]
        return found

    def survivors(self) -> list[ChangingMember]:
        world = self.world
        return [each for each in world.members if world.is_active(each.me)]

    def has_quorum(self) -> bool:
        """Without a quorum removed members stay where they are, and messages to them are retained."""
        removed = self.world.removed
        alive = sum(each.me < self.world.founders and each.stream not in removed for each in self.survivors())
        return not removed or alive > len(removed) or has_quorum(self.world)

    # Order

    def judge_order(self) -> list[str]:
        if not self.numbers:
            self._number_messages()
        found = []
        for life in self.world.lives:
            seen = self._bits(life.snapshot)
            if lacking := self._closure(seen) & ~seen:
                found.append(f"the snapshot of p{life.address} lacks {self._name(lacking)}")
            for kind, message in life.events:
                number = self.numbers.get(message)
                if number is None:
                    found.append(
                        f"p{life.address} delivers p{message.origin}:{message.seq}, which nobody has sent"
                    )
                    continue
                if kind == "deliver":
                    if seen >> number & 1:
                        found.append(f"p{life.address} delivers {self._name(1 << number)} twice")
                    if missing := self.pasts[number] & ~seen:
                        names = self._name(1 << number), self._name(missing)
                        found.append(f"p{life.address} delivers {names[0]} before {names[1]}")
                seen |= 1 << number
        return found

    def _number_messages(self) -> None:
        """Find what happened before each message: replay every process until it delivers a message that is
        not sent yet, repeatedly."""
        lives = self.world.lives
        place = [0] * len(lives)
        seen: list[int | None] = [None] * len(lives)
        progressed = True
        while progressed:
            progressed = False
            for at, life in enumerate(lives):
                if seen[at] is None:
                    if not all(message in self.numbers for message in life.snapshot):
                        continue
                    seen[at] = self._bits(life.snapshot)
                known = seen[at] or 0
                while place[at] < len(life.events):
                    kind, message = life.events[place[at]]
                    if kind == "send":
                        self.numbers[message] = len(self.pasts)
                        self.pasts.append(known)
                    elif message not in self.numbers:
                        break
                    known |= 1 << self.numbers[message] | self.pasts[self.numbers[message]]
                    place[at] += 1
                    progressed = True
                seen[at] = known

    def _bits(self, messages: tuple[MessageId, ...]) -> int:
        bits = 0
        for message in messages:
            if message in self.numbers:
                bits |= 1 << self.numbers[message]
        return bits

    def _closure(self, bits: int) -> int:
        closure = 0
        for number, past in enumerate(self.pasts):
            if bits >> number & 1:
                closure |= past
        return closure

    def _name(self, bits: int) -> str:
        """The name of the first of some messages, by the address of its sender and its number there."""
        first = (bits & -bits).bit_length() - 1
        message = next(message for message, number in self.numbers.items() if number == first)
        return self.show(message)

    def show(self, message: MessageId) -> str:
        if message in self.names:
            return self.names[message]
        at = next((life.address for life in self.world.lives if life.stream == message.origin), "?")
        return f"p{at}:{message.seq}"

    # Completeness

    def judge_completeness(self) -> list[str]:
        lives = self._living()
        owed = self._owed(lives)
        found = [
            f"p{life.address} never delivers {self._name(missing)}"
            for life in lives
            if (missing := owed & ~self._bits(life.seen))
        ]
        if lives:
            joining = {
                self.world.attempts[each.me][0]
                for each in self.world.members
                if each.phase == Phase.JOINING and each.me not in self.world.crashed
            }
            found += [f"p{each} is never admitted" for each in sorted(joining)]
        return found

    def _living(self) -> list[IncarnationRecord]:
        return [self.world.lives[each.me] for each in self.survivors()]

    def _owed(self, survivors: list[IncarnationRecord]) -> int:
        owed = 0
        for life in survivors:
            owed |= self._bits(life.seen)
        seen_origins = {message.origin for message, n in self.numbers.items() if owed >> n & 1}
        for life in self.world.lives:
            if self._is_back(life):
                owed |= self._bits(life.seen)
            if self._is_owed(life, seen_origins):
                owed |= self._bits(life.sent)
        return owed

    def _is_owed(self, life: IncarnationRecord, seen_origins: set[int]) -> bool:
        """Whether all members must have what a process has sent that has not returned."""
        if life.end not in ("", "left"):
            return False
        is_removed = life.stream in self.world.removed
        return not (self._may_be_cut(life) and (is_removed or life.stream not in seen_origins))

    def _is_back(self, life: IncarnationRecord) -> bool:
        """Whether a removed process has returned and is still present."""
        world, back = self.world, self.world.returned_to.get(life.address)
        while back is not None:
            attempts = world.attempts[back]
            if any(map(world.is_active, attempts)):
                return True
            back = next((world.returned_to[each] for each in attempts if each in world.returned_to), None)
        return False

    def _may_be_cut(self, life: IncarnationRecord) -> bool:
        """Whether a member, or one of its sponsors, was removed: its last messages, or its admission, may be
        lost."""
        if life.stream in self.world.removed:
            return True
        return life.sponsor >= 0 and self._may_be_cut(self.world.lives[life.sponsor])

    def judge_one_group(self) -> list[str]:
        """No two members have both completed removals of each other."""
        return [
            f"p{one.me} and p{other.me} have removed each other"
            for one in self.world.members
            for other in self.world.members
            if one.me < other.me and has_removed(one, other) and has_removed(other, one)
        ]

    # What members remember.

    def judge_memory(self) -> list[str]:
        survivors = self.survivors()
        alive = {member.stream for member in survivors}
        found = []
        for member in survivors:
            for name, streams in _tables(member):
                if gone := set(streams) - alive:
                    found.append(f"p{member.me} never forgets streams that have ended ({name}: {len(gone)})")
            if member.waiting() or member.early:
                found.append(f"p{member.me} holds messages for ever")
            if member.unstable:
                found.append(f"p{member.me} retains messages for ever")
        if survivors:
            found += [f"p{each.me} has left and never terminates" for each in self._leaving()]
        return found

    def _leaving(self) -> list[ChangingMember]:
        members = self.world.members
        return [each for each in members if each.phase is Phase.LEAVING and each.me not in self.world.crashed]


def _tables(member: ChangingMember) -> list[tuple[str, Iterable[Stream]]]:
    """All state of a member indexed by stream, except the tombstones of removed members."""
    order, progress, removals = member.order, member.progress, member.removals
    return [
        ("delivered", order.delivered),
        ("received", order.received),
        ("named", order.forgotten),
        ("view", member.addresses),
        ("places", [each for each in member.stream_at.values() if each not in member.tombstones]),
        ("left", member.gone),
        ("ends", member.ends),
        ("admissions", member.admissions),
        ("unstable admissions", member.unstable_admissions),
        ("forgotten", member.forgotten),
        ("requests", member.early_requests),
        ("heard", member.heard),
        ("lacked", member.lacked),
        ("known", progress.known),
        ("pending", progress.pending),
        ("done", progress.done | progress.announced | progress.coming),
        ("removed", removals.removed),
        ("reports", removals.flushes),
        ("decided", removals.decided),
        ("backlog", member.backlog.admissions),
    ]


def has_removed(member: ChangingMember, other: ChangingMember) -> bool:
    """Whether a member has completed the removal of another."""
    stream = other.stream
    return stream in member.tombstones or (stream in member.removals.removed and stream in member.ends)


def judge_agreement(survivors: list[ChangingMember]) -> list[str]:
    alive = {member.stream for member in survivors}
    return [
        f"the view of p{member.me} is wrong (wrong or missing members: {len(differs)})"
        for member in survivors
        if (differs := member.view ^ alive)
    ]
