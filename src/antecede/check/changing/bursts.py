"""Schedules in which much changes, and in which some members know everything while others know nothing of it.

Where packets arrive one by one, at random, a member rarely knows nothing of what all others have long agreed
on, and forgotten. So some schedules have *bursts*: everything arrives, with some rounds of reports, except at
and from a few processes, which stay the same for a while. Such schedules have fewer founders, more joins and
leaves, and removals one after the other as long as there is a quorum.
"""

from __future__ import annotations

import random

_SHARE = 0.5
"""The share of schedules with bursts."""
_STAYS_APART = 0.7
"""How often a burst leaves out the same processes as the burst before."""


class Bursts:
    """How such a schedule differs, drawn from random numbers of its own: other schedules are not affected."""

    def __init__(self, seed: int | str) -> None:
        self.random = random.Random(f"{seed}:bursts")
        self.are_there = self.random.random() < _SHARE
        self.is_coarse = False
        self._apart: frozenset[int] = frozenset()

    def draw_founders(self) -> int:
        return self.random.choice([2, 3, 3, 4, 4, 5])

    def draw_joins(self) -> int:
        return self.random.choice([2, 4, 6])

    def draw_steps(self) -> int:
        """In half of these schedules hardly anything arrives outside bursts; they have fewer steps."""
        choose = self.random.choice
        self.is_coarse = choose([False, True])
        return choose([15, 30, 60]) if self.is_coarse else choose([30, 60, 120])

    def draw_weights(self) -> dict[str, float]:
        choose = self.random.choice
        weights = {
            "broadcast": choose([0.5, 1, 2]),
            "report": choose([0.1, 0.5, 1]),
            "join": choose([0.2, 0.5, 1]),
            "ask": choose([0.0, 0.1]),
            "leave": choose([0.0, 0.1, 0.3, 0.6]),
            "remove": choose([0.0, 0.2, 0.5, 1]),
            "crash": choose([0.0, 0.0, 0.1, 0.2]),
            "return": choose([0.1, 0.5, 1]),
            "cut": choose([0.0, 0.1, 0.3]),
            "burst": choose([0.1, 0.3, 0.6]),
        }
        if self.is_coarse:
            weights |= {
                "transmit": choose([0.2, 1]),
                "deliver": choose([0.2, 1]),
                "join": choose([0.5, 2]),
                "leave": choose([0.0, 0.5, 1]),
                "remove": choose([0.5, 1, 2]),
                "return": choose([0.5, 2]),
                "burst": choose([1, 2, 4]),
                "suspect": 0.0,
                "trust": 0.0,
            }
        return weights

    def draw_weights_of_phones(self) -> dict[str, float]:
        choose = self.random.choice
        weights = {
            "attach": choose([0.5, 2]),
            "move": choose([0.2, 1, 3]),
            "expel": choose([0.0, 0.2, 0.5]),
            "orphan": choose([0.2, 1]),
        }
        if self.is_coarse:
            weights |= {
                "phone_broadcast": choose([0.5, 1, 2]),
                "phone_deliver": choose([0.2, 1]),
                "attach": choose([0.5, 2]),
                "move": choose([0.0, 1, 2]),
                "expel": choose([0.0, 0.5, 1]),
                "thaw": 0.1,
            }
        return weights

    def draw_rounds(self) -> int:
        """The number of rounds of reports in a burst."""
        return self.random.choice([0, 0, 1, 2, 3])

    def draw_apart(self, addresses: list[int]) -> frozenset[int]:
        """The processes that a burst leaves out."""
        if not self._apart or self.random.random() > _STAYS_APART:
            count = min(len(addresses), self.random.choice([0, 1, 1, 2]))
            self._apart = frozenset(self.random.sample(addresses, count))
        return self._apart
