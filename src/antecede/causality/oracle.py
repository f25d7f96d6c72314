"""The oracle: judges from sends and deliveries alone whether an execution respects causal order.

It knows nothing of protocols. A delivery of m' at p is a causal violation if some m that happened before m'
and is addressed to p has not been delivered there yet: *late* if m is delivered afterwards (an inversion),
*never* if it is not delivered at all (a gap).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import MISSING, asdict, dataclass, fields
from itertools import pairwise
from typing import ClassVar, NamedTuple

from antecede.causality.execution import Execution, Kind, MessageId
from antecede.causality.happened_before import CausalOrder


@dataclass(frozen=True)
class Verdict:
    """What was counted; `clean` if none of it is a fault."""

    processes: int
    messages: int
    deliveries: int
    causal_violations: int
    causal_late_deliveries: int
    causal_pairs_late: int
    causal_pairs_never: int
    fifo_violations: int
    missing: int
    duplicates: int
    orphans: int
    impossible: int
    wrong_views: int = 0
    """Counts of groups that change, as the next four: members that a view wrongly contains or lacks in the
    end."""
    different_cuts: int = 0
    """Processes that closed a member's stream at another place than others."""
    split_groups: int = 0
    """Pairs of members that have removed each other."""
    after_end: int = 0
    """Processes that continued after they had left."""
    wrong_snapshots: int = 0
    """Processes whose snapshot was not what happened before their admission."""

    FAULTS: ClassVar[tuple[str, ...]] = (
        "causal_violations",
        "missing",
        "duplicates",
        "orphans",
        "impossible",
        "wrong_views",
        "different_cuts",
        "split_groups",
        "after_end",
        "wrong_snapshots",
    )
    """The counts that must be 0; the others break them down or say how much was judged."""

    DEPRECATED: ClassVar[dict[str, str]] = {
        "causal_deliveries": "causal_violations",
        "fifo_deliveries": "fifo_violations",
    }
    """Former names of counts. JSON and DataFrames carry them beside the new ones for one release."""

    @classmethod
    def no_faults(cls, processes: int, messages: int, deliveries: int) -> Verdict:
        """The verdict on a clean execution of this size."""
        return cls(processes, messages, deliveries, 0, 0, 0, 0, 0, 0, 0, 0, 0)

    @classmethod
    def from_counts(cls, counts: Mapping[str, int]) -> Verdict:
        """A verdict from its counts by name; deprecated names are accepted."""
        renamed = {new: counts[old] for old, new in cls.DEPRECATED.items() if old in counts} | {**counts}
        # Verdicts recorded before groups could change lack the counts of changes.
        known = [field.name for field in fields(cls) if field.name in renamed or field.default is MISSING]
        return cls(**{name: renamed[name] for name in known})

    def counts(self) -> dict[str, int]:
        """Every count by name, for JSON; deprecated names come last."""
        counts: dict[str, int] = asdict(self)
        return counts | {old: counts[new] for old, new in self.DEPRECATED.items()}

    @property
    def clean(self) -> bool:
        return not any(getattr(self, name) for name in self.FAULTS)


class Violation(NamedTuple):
    """`process` delivered `effect` before `cause`, or without ever delivering `cause`."""

    process: int
    cause: MessageId
    effect: MessageId
    late: bool


class _EarlyDelivery(NamedTuple):
    """A delivery before some of its causes, which are bit sets of positions."""

    process: int
    effect: MessageId
    late: int
    never: int


class Judgement:
    """An execution that has been judged: the verdict, every violation, and the reason for each."""

    def __init__(self, execution: Execution) -> None:
        self.execution = execution
        self.order = CausalOrder(execution)
        self._addressed = self._find_addressed()
        self._delivered = [self.order.bits(history) for history in self.order.histories]
        self.verdict = self._count()

    def _find_addressed(self) -> list[int]:
        """For each process, the messages addressed to it, as a bit set. Its own always are."""
        everyone = range(len(self.order.histories))
        addressed = [0] * len(everyone)
        for place, message in enumerate(self.order.messages):
            audience = self.execution.audiences.get(message, everyone)
            for process in {*audience, message.origin}:
                addressed[process] |= 1 << place
        return addressed

    def _early_deliveries(self) -> Iterator[_EarlyDelivery]:
        """Deliveries that happened before some cause addressed to the same process was delivered."""
        past, position = self.order.past, self.order.position
        for process, history in enumerate(self.order.histories):
            so_far = 0
            for kind, message in history:
                if message not in position:
                    continue
                place = position[message]
                missing = past[place] & self._addressed[process] & ~so_far
                if missing and kind is Kind.DELIVER:
                    ever = self._delivered[process]
                    yield _EarlyDelivery(process, message, missing & ever, missing & ~ever)
                if kind is Kind.DELIVER or message not in self.execution.own_deliveries:
                    so_far |= 1 << place

    def _count(self) -> Verdict:
        steps = [step for history in self.execution.histories for step in history]
        distinct = [step for history in self.order.histories for step in history]
        by_origin = [0] * len(self.order.histories)
        for place, message in enumerate(self.order.messages):
            by_origin[message.origin] |= 1 << place
        violations = late_deliveries = pairs_late = pairs_never = fifo = 0
        for early in self._early_deliveries():
            violations += 1
            late_deliveries += early.late != 0
            pairs_late += early.late.bit_count()
            pairs_never += early.never.bit_count()
            fifo += (early.late | early.never) & by_origin[early.effect.origin] != 0
        return Verdict(
            processes=len(self.execution.histories),
            messages=len(self.order.messages),
            deliveries=sum(step.kind is Kind.DELIVER for step in steps),
            causal_violations=violations,
            causal_late_deliveries=late_deliveries,
            causal_pairs_late=pairs_late,
            causal_pairs_never=pairs_never,
            fifo_violations=fifo,
            missing=sum(
                (addressed & ~delivered).bit_count()
                for addressed, delivered in zip(self._addressed, self._delivered, strict=True)
            ),
            duplicates=len(steps) - len(distinct),
            orphans=sum(step.message not in self.order.position for step in distinct),
            impossible=len(self.order.impossible),
        )

    def violations(self) -> Iterator[Violation]:
        """Every violating pair, late ones first. Lazy: one lost message can cause very many."""
        for late in (True, False):
            for early in self._early_deliveries():
                for cause in self.order.members(early.late if late else early.never):
                    yield Violation(early.process, cause, early.effect, late)

    def path(self, violation: Violation) -> list[MessageId]:
        """The shortest chain of messages from the cause to the effect: the minimal witness."""
        return self.order.path(violation.cause, violation.effect)

    def explain(self, violation: Violation) -> str:
        """The violation and its reason as a sentence."""
        show, name = self.execution.show, self.execution.name
        process, cause, effect, late = violation
        links = []
        chain = self.path(violation)
        for before, after in pairwise(chain):
            had = "sent" if before.origin == after.origin else "delivered"
            links.append(f"{name(after.origin)} {had} {show(before)} and then sent {show(after)}")
        fault = (
            f"delivered {show(effect)} before its cause {show(cause)}"
            if late
            else f"delivered {show(effect)} and never its cause {show(cause)}"
        )
        return f"{name(process)} {fault}: {'; '.join(links)}."


def judge(execution: Execution) -> Judgement:
    """Judge a finished execution by the definition of causal order alone.

    >>> late = judge(Execution.from_tuples(
    ...     [("send", 0, 1)],
    ...     [("deliver", 0, 1), ("send", 1, 1)],
    ...     [("deliver", 1, 1), ("deliver", 0, 1)],
    ... ))
    >>> late.verdict.causal_pairs_late
    1
    >>> late.explain(next(late.violations()))
    'p2 delivered p1:1 before its cause p0:1: p1 delivered p0:1 and then sent p1:1.'
    """
    return Judgement(execution)
