"""A finished execution: what each process sent and delivered, in its own order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple


class MessageId(NamedTuple):
    """A message is the `seq`-th (from 1) of its origin; the origin is a process's rank."""

    origin: int
    seq: int


class Kind(IntEnum):
    SEND = 0
    DELIVER = 1


class Step(NamedTuple):
    """One thing a process did that matters to causal order."""

    kind: Kind
    message: MessageId


@dataclass(frozen=True)
class Execution:
    """Histories by rank, and who each message was meant for.

    `audiences` names the destinations of a message where they are not all processes. A send is
    also the sender's own delivery; there is no step for that.
    """

    histories: Sequence[Sequence[Step]]
    audiences: Mapping[MessageId, frozenset[int]] = field(default_factory=dict)
    names: Sequence[str] = ()

    @classmethod
    def of(cls, *histories: Iterable[tuple[str, int, int]], **more: object) -> Execution:
        """From short notes, for tests and talks.

        >>> Execution.of([("send", 0, 1)], [("deliver", 0, 1)]).histories[1]
        [Step(kind=<Kind.DELIVER: 1>, message=MessageId(origin=0, seq=1))]
        """
        kinds = {"send": Kind.SEND, "deliver": Kind.DELIVER}
        return cls(
            [[Step(kinds[kind], MessageId(o, s)) for kind, o, s in history] for history in histories],
            **more,  # type: ignore[arg-type]
        )

    def name(self, process: int) -> str:
        return self.names[process] if self.names else f"p{process}"

    def show(self, message: MessageId) -> str:
        """A message as people write it: ana:3."""
        return f"{self.name(message.origin)}:{message.seq}"
