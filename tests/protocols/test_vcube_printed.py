"""Paper 004's Algorithms 1 and 2, line by line: right once corrected, and wrong with each line as printed."""

from __future__ import annotations

from typing import Any

import pytest

from antecede.causality import MessageId, judge
from antecede.sim.scenario import scenario
from antecede.sim.verify import Histories
from printed_protocols import vcube as printed
from printed_protocols.vcube import Algorithm2


class Arrived(Histories):
    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.times: dict[tuple[int, MessageId], int] = {}

    def receive(self, process: int, link: int, message: MessageId, time: int) -> None:
        self.times[process, message] = self.times.get((process, message), 0) + 1


def wrong(kind: type[Algorithm2], seed: int) -> bool:
    """Whether a run loses, duplicates or misorders anything."""
    made = scenario(
        protocol="timestamp", peers=(4, 8)[seed % 2], seed=seed, rate=8, seconds=0.5, delay="wild:1ms-1s",
        reply=0.1, most_messages=30,
    )  # fmt: skip
    seen = Arrived(made)
    made.world(kind.group(made.peers), [seen]).run()
    return not judge(seen.execution()).verdict.clean or set(seen.times.values()) - {1} != set()


def test_the_corrected_algorithm_passes() -> None:
    assert not any(wrong(Algorithm2, seed) for seed in range(150))


@pytest.mark.parametrize(
    ("line", "least"),
    [
        (printed.ChildrenAsPrinted, 40),
        (printed.DeliversInLoop, 40),
        (printed.TestsAllEntries, 40),
        (printed.DeliversBeforeItForwards, 40),
        (printed.ForwardsInWhile, 5),
        (printed.NoFirstCondition, 5),
        (printed.TakesAllFirst, 1),
    ],
)
def test_each_line_as_printed_breaks_the_algorithm(line: type[Algorithm2], least: int) -> None:
    assert sum(wrong(line, seed) for seed in range(40)) >= least
