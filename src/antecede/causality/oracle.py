"""The oracle: from who sent and delivered what, whether anything came before its cause.

It gets no help from any protocol. A delivery of m' at p is a causal violation if some m that
happened before m', addressed to p, has not been delivered there: *late* if m comes afterwards (an
inversion), *never* if it does not come at all (a gap).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields
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

    FAULTS: ClassVar[tuple[str, ...]] = (
        "causal_violations",
        "missing",
        "duplicates",
        "orphans",
        "impossible",
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
        return cls(**{field.name: renamed[field.name] for field in fields(cls)})

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


class _Lacking(NamedTuple):
    process: int
    effect: MessageId
    late: int
    never: int


class Judgement:
    """An execution that has been judged: the verdict, every violation, and the reason for each."""

    def __init__(self, execution: Execution) -> None:
        self.execution = execution
        self.order = CausalOrder(execution)
        self._addressed = self._addressed_to()
        self._delivered = [self.order.bits(history) for history in self.order.histories]
        self.verdict = self._count()

    def _addressed_to(self) -> list[int]:
        """For each process, the messages meant for it, as bits; its own always are."""
        everyone = range(len(self.order.histories))
        addressed = [0] * len(everyone)
        for place, message in enumerate(self.order.messages):
            audience = self.execution.audiences.get(message, everyone)
            for process in {*audience, message.origin}:
                addressed[process] |= 1 << place
        return addressed

    def _lacking(self) -> Iterator[_Lacking]:
        """The deliveries that came while something before them was still due."""
        past, position = self.order.past, self.order.position
        for process, history in enumerate(self.order.histories):
            so_far = 0
            for kind, message in history:
                if message not in position:
                    continue
                place = position[message]
                lacking = past[place] & self._addressed[process] & ~so_far
                if lacking and kind is Kind.DELIVER:
                    ever = self._delivered[process]
                    yield _Lacking(process, message, lacking & ever, lacking & ~ever)
                so_far |= 1 << place

    def _count(self) -> Verdict:
        given = [step for history in self.execution.histories for step in history]
        kept = [step for history in self.order.histories for step in history]
        by_origin = [0] * len(self.order.histories)
        for place, message in enumerate(self.order.messages):
            by_origin[message.origin] |= 1 << place
        deliveries = late_deliveries = pairs_late = pairs_never = fifo = 0
        for it in self._lacking():
            deliveries += 1
            late_deliveries += it.late != 0
            pairs_late += it.late.bit_count()
            pairs_never += it.never.bit_count()
            fifo += (it.late | it.never) & by_origin[it.effect.origin] != 0
        return Verdict(
            processes=len(self.execution.histories),
            messages=len(self.order.messages),
            deliveries=sum(step.kind is Kind.DELIVER for step in given),
            causal_violations=deliveries,
            causal_late_deliveries=late_deliveries,
            causal_pairs_late=pairs_late,
            causal_pairs_never=pairs_never,
            fifo_violations=fifo,
            missing=sum(
                (due & ~came).bit_count() for due, came in zip(self._addressed, self._delivered, strict=True)
            ),
            duplicates=len(given) - len(kept),
            orphans=sum(step.message not in self.order.position for step in kept),
            impossible=len(self.order.impossible),
        )

    def violations(self) -> Iterator[Violation]:
        """Every violating pair, late ones first; lazily, because one loss can make very many."""
        for late in (True, False):
            for it in self._lacking():
                for cause in self.order.members(it.late if late else it.never):
                    yield Violation(it.process, cause, it.effect, late)

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

    >>> late = judge(Execution.of(
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
