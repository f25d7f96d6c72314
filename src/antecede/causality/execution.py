"""A finished execution: what each process sent and delivered, in its own order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple


class MessageId(NamedTuple):
    """A message: the rank of the process it originates from, and its sequence number there, from 1."""

    origin: int
    seq: int


class Kind(IntEnum):
    SEND = 0
    DELIVER = 1


class Step(NamedTuple):
    """A send or a delivery in the history of one process."""

    kind: Kind
    message: MessageId


@dataclass(frozen=True)
class Execution:
    """The history of each process by rank, and the destinations of each message.

    `audiences` has an entry for each message that is not addressed to all processes. A send counts as the
    sender's own delivery and is the only step for it; except for messages of `own_deliveries`, which their
    senders deliver in a step of its own.
    """

    histories: Sequence[Sequence[Step]]
    audiences: Mapping[MessageId, frozenset[int]] = field(default_factory=dict)
    names: Sequence[str] = ()
    own_deliveries: frozenset[MessageId] = frozenset()

    @classmethod
    def from_tuples(cls, *histories: Iterable[tuple[str, int, int]], **more: object) -> Execution:
        """From (kind, origin, seq) for each step of each process: a short form for examples.

        >>> Execution.from_tuples([("send", 0, 1)], [("deliver", 0, 1)]).histories[1]
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
        """A message in short notation: ana:3."""
        return f"{self.name(message.origin)}:{message.seq}"
