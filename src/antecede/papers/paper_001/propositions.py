"""Paper 001's propositions, minimality and the relation between groups, on random executions.

Propositions 1 and 3 say that deliveries which respect the immediate relation respect causal order. So small
executions are drawn in which every process delivers in *any* order; where the premise holds, the conclusion
must too. A counterexample would be shown. Proposition 2 and minimality are checked on the dependencies that
`mbcp` names.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from functools import cache
from typing import ClassVar, NamedTuple

from antecede.causality import MessageId
from antecede.causality.happened_before import CausalOrder
from antecede.papers.scoreboard import ScoreRow, claim, smallest
from antecede.protocols.base import Packet, Protocol
from antecede.protocols.flat import DependencyPacket, StampedPacket
from antecede.protocols.mbcp import Mbcp
from antecede.sim.engines import reference
from antecede.sim.kernels.contract import ObserverFeed
from antecede.sim.probes import Probe
from antecede.sim.scenario import scenario
from antecede.sim.verify import Histories

PAPER = "001"
DRAWN = 20_000
"""Random executions."""
TRIALS = 20
"""Runs of a protocol."""
PROCESSES, MESSAGES = 3, 4
_ONE = ((0, 1, 2),)
_OVERLAPPING = ((0, 1, 2), (0, 1), (1, 2))


class Sent(NamedTuple):
    """A message of a small execution: to whom, and what happened before it."""

    group: int
    past: frozenset[int]


class SmallExecution:
    """Processes send to their groups, and deliver what is addressed to them in any order."""

    def __init__(self, groups: Sequence[Sequence[int]], bits: random.Random) -> None:
        self.groups = groups
        self.sent: list[Sent] = []
        self.delivered: list[list[int]] = [[] for _ in range(PROCESSES)]
        self._past: list[set[int]] = [set() for _ in range(PROCESSES)]
        waiting: list[list[int]] = [[] for _ in range(PROCESSES)]
        while len(self.sent) < MESSAGES or any(waiting):
            process = bits.randrange(PROCESSES)
            if waiting[process] and (len(self.sent) == MESSAGES or bits.random() < 0.6):
                message = waiting[process].pop(bits.randrange(len(waiting[process])))
                self._deliver(process, message)
            elif len(self.sent) < MESSAGES:
                mine = [number for number, members in enumerate(groups) if process in members]
                message = len(self.sent)
                self.sent.append(Sent(bits.choice(mine), frozenset(self._past[process])))
                self._deliver(process, message)
                for other in groups[self.sent[message].group]:
                    if other != process:
                        waiting[other].append(message)

    def _deliver(self, process: int, message: int) -> None:
        self.delivered[process].append(message)
        self._past[process] |= self.sent[message].past | {message}

    def ordered_pairs(self) -> Iterator[tuple[int, int]]:
        """All pairs of which the first happened before the second."""
        return ((one, other) for other, sent in enumerate(self.sent) for one in sent.past)

    def immediate(self, one: int, other: int) -> bool:
        """Definition 7: nothing between them went to the group of either. With one group, Definition 5."""
        ends = {self.sent[one].group, self.sent[other].group}
        between = (each for each in self.sent[other].past if one in self.sent[each].past)
        return not any(self.sent[each].group in ends for each in between)

    def respects(self, one: int, other: int) -> bool:
        """Whether everybody who gets both delivers them in this order."""
        return all(
            order.index(one) < order.index(other)
            for order in self.delivered
            if one in order and other in order
        )


@cache
def counterexamples(groups: tuple[tuple[int, ...], ...]) -> tuple[int, int, str]:
    """The number of executions in which the premise holds and some message happened before another; the
    number of those in which the conclusion does not hold; and the first of those."""
    bits, premises, found, first = random.Random(1), 0, 0, ""
    for _ in range(DRAWN):
        drawn = SmallExecution(groups, bits)
        pairs = list(drawn.ordered_pairs())
        if not pairs or not all(drawn.respects(*pair) for pair in pairs if drawn.immediate(*pair)):
            continue
        premises += 1
        if not all(drawn.respects(*pair) for pair in pairs):
            found += 1
            first = first or f"; the first: {drawn.sent}, delivered {drawn.delivered}"
    return premises, found, first


class MbcpAsPrinted(Mbcp):
    """Table 1: a delivered message's own dependencies stay among those of the next message."""

    name: ClassVar[str] = "mbcp as printed"
    kernel: ClassVar[str] = ""

    def on_delivered(self, packet: StampedPacket) -> None:
        self.causes[packet.origin] = packet.seq


class _Named(Probe):
    """What each message names."""

    def __init__(self) -> None:
        super().__init__()
        self.causes: dict[MessageId, set[MessageId]] = {}

    def transmit(self, member: Protocol, to: Sequence[int], packet: Packet, now: int) -> None:
        if isinstance(packet, DependencyPacket):
            named = {MessageId(peer, seq) for peer, seq in packet.causes.items()}
            self.causes[MessageId(packet.origin, packet.seq)] = named


@cache
def named_by(protocol: str) -> tuple[int, int, int]:
    """Counts over runs with replies and widely varying delays: messages; those that name anything but their
    immediate predecessors, less the sender's own; those that name two messages of which one happened before
    the other."""
    messages = wrong = ordered = 0
    for seed in range(TRIALS):
        setting = scenario(protocol=protocol, peers=4, seconds=0.5, seed=seed, reply=0.2, delay="wild:1ms-1s")
        histories, probe = Histories(setting), _Named()
        reference.run(setting, ObserverFeed([histories]), None, [probe])
        order = CausalOrder(histories.execution())
        for message, named in probe.causes.items():
            immediate = {
                each for each in order.immediate_dependencies(message) if each.origin != message.origin
            }
            messages += 1
            wrong += named != immediate
            ordered += any(order.happened_before(one, other) for one in named for other in named)
    return messages, wrong, ordered


def proposition_rows() -> list[ScoreRow]:
    rows = []
    for statement, groups in (
        ("Proposition 1: deliveries that respect ↓ respect causal order", _ONE),
        ("Proposition 3: deliveries that respect ↑, between groups, respect causal order", _OVERLAPPING),
    ):
        premises, found, first = counterexamples(groups)
        shown = f"{found} counterexamples in {premises:,} of {DRAWN:,} random executions{first}"
        rows.append(claim(PAPER, statement, found == 0, shown, premises))
    messages, wrong, ordered = named_by("mbcp")
    statement = "Proposition 2: immediate predecessors are mutually concurrent (what mbcp names)"
    shown = f"{ordered} of {messages:,} messages name two of which one precedes the other"
    rows.append(claim(PAPER, statement, ordered == 0, shown, TRIALS))
    statement = "a message names exactly its immediate predecessors, as in the example of section 4.2"
    rows.append(claim(PAPER, statement, wrong == 0, f"{wrong} of {messages:,} do not", TRIALS))
    messages, wrong, _ = named_by(f"{__name__}:MbcpAsPrinted")
    statement = "a message names exactly its immediate predecessors, as Table 1 prints the protocol"
    why = "Table 1 omits the step that removes what a delivered message names; " + smallest("MbcpAsPrinted")
    rows.append(claim(PAPER, statement, wrong == 0, f"{wrong} of {messages:,} do not", TRIALS, why))
    return rows
