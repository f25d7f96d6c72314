"""Paper 003's theorems about clocks, on random runs of a subgroup with real time.

A subgroup of four on real time whose members answer what they deliver, and a remote process. Every pair of
local messages of which one happened before the other is looked at: LT is the sender's clock when it sends.
δj is the longest delay in the subgroup, δc the largest difference of two clocks.
"""

from __future__ import annotations

from functools import cache
from itertools import combinations
from typing import NamedTuple

from antecede.causality import MessageId
from antecede.causality.happened_before import CausalOrder
from antecede.papers.paper_003.runs import PAPER
from antecede.papers.scoreboard import ScoreRow, claim, smallest
from antecede.sim.engines import simulate
from antecede.sim.scenario import scenario
from antecede.sim.verify import Histories

TRIALS = 10
_LOCAL = 4
_DELAY_MS, _SKEW_MS = 5, 2
_MS = 1e6


class _SendTimes:
    def __init__(self) -> None:
        self.at: dict[MessageId, int] = {}

    def send(self, process: int, message: MessageId, time: int, *_: object) -> None:
        self.at[message] = time

    def receive(self, *_: object) -> None:
        pass

    def deliver(self, *_: object) -> None:
        pass


class Pair(NamedTuple):
    """Two local messages of which the first happened before the second."""

    later_by: float
    """The difference of their LT, in ms."""
    same_sender: bool


@cache
def precedences() -> tuple[Pair, ...]:
    """All such pairs, of all runs."""
    found = []
    for seed in range(1, TRIALS + 1):
        setting = scenario(
            protocol="hcg", peers=_LOCAL + 1, layout={"subgroups": [f"rt:{_LOCAL}", "vt:1"]}, seed=seed,
            seconds=0.4, rate=20, reply=0.15, delay="1-20ms", local_delay=f"0-{_DELAY_MS}ms",
            skew=f"{_SKEW_MS}ms",
        )  # fmt: skip
        histories, times = Histories(setting), _SendTimes()
        simulate(setting, [histories, times], engine="reference")
        order, ahead = CausalOrder(histories.execution()), setting.clock_offsets()
        local = sorted((at, message) for message, at in times.at.items() if message.origin < _LOCAL)
        for (first, one), (second, other) in combinations(local, 2):
            if order.happened_before(one, other):
                stamps = first + ahead[one.origin], second + ahead[other.origin]
                found.append(Pair((stamps[1] - stamps[0]) / _MS, one.origin == other.origin))
    return tuple(found)


def _later(least: float) -> str:
    return f"{least:.3f} ms later" if round(least, 3) else "sent at the same time"


def theorem_rows() -> list[ScoreRow]:
    everyone = precedences()
    others = [pair.later_by for pair in everyone if not pair.same_sender]
    least, apart = min(pair.later_by for pair in everyone), min(others)
    at = f"of {len(everyone):,} pairs, δj = {_DELAY_MS} ms, δc = {_SKEW_MS} ms"
    statements = (
        (
            "Theorem: m1 precedes m2 only if m1.LT < m2.LT (or equal, as one process may send two at once)",
            least >= 0, f"the closest is {_later(least)}, {at}", "",
        ),
        (
            "Property: m1 and m2 are concurrent if |m1.LT − m2.LT| < δc", least >= _SKEW_MS,
            f"one precedes another that is {_later(least)}, {at}",
            "two messages of one sender may be as close as it likes: the smallest run is one process that "
            "sends twice",
        ),
        (
            "Theorem: m1, received by the sender of m2, precedes it only if m2.LT − m1.LT > δj",
            apart > _DELAY_MS, f"at least {apart:.3f} ms later, {at}", "",
        ),
        (
            "Theorem: m1 precedes m2 of another process only if m2.LT − m1.LT > 2δj", apart > 2 * _DELAY_MS,
            f"{sum(each <= 2 * _DELAY_MS for each in others):,} of {len(others):,} are not that late; "
            f"at least {apart:.3f} ms, {at}",
            "who delivers m1 may answer at once: it is then one longest delay later, not two; "
            + smallest("TwiceTheWait"),
        ),
    )  # fmt: skip
    return [claim(PAPER, text, holds, shown, TRIALS, why) for text, holds, shown, why in statements]
