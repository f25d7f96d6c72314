"""How a group is divided into subgroups, and the clock of each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

import msgspec

from antecede.protocols.base import Layout, LocalError

CLOCKS = ("rt", "lt", "vt")
"""Real time, linear time and vector clocks."""


class SubgroupLayout(Layout, frozen=True, forbid_unknown_fields=True):
    """The clock and the size of each subgroup; the first member of each is its gateway."""

    subgroups: list[str]
    """Such as rt:3, lt:4 or vt:2: real time, linear time or vectors, and the number of members."""
    longest_delay: int = 0
    """The longest delay within a subgroup, in nanoseconds."""
    skew: int = 0
    """The largest difference between two clocks, in nanoseconds."""

    @classmethod
    def default(cls, size: int) -> Self:
        """Half on real time, a quarter each on linear and vector clocks; small groups all on real time."""
        quarter = size // 4
        half = size - 2 * quarter
        if size < 8:
            return cls([f"rt:{size}"])
        return cls([f"rt:{half}", f"lt:{quarter}", f"vt:{quarter}"])

    @classmethod
    def random(cls, size: int, pick: Callable[[int], int]) -> Self:
        subgroups = []
        while size:
            members = 1 + pick(size)
            subgroups.append(f"{CLOCKS[pick(len(CLOCKS))]}:{members}")
            size -= members
        return cls(subgroups)

    def validate(self, size: int) -> None:
        if min(self.longest_delay, self.skew) < 0:
            raise LocalError("longest_delay and skew cannot be negative")
        members = sum(count for _, count in self.parse())
        if members != size:
            raise LocalError(f"subgroups has {members} members in all, not {size}")

    def parse(self) -> list[tuple[str, int]]:
        """The clock and the size of each subgroup."""
        parsed = []
        for text in self.subgroups:
            clock, _, members = text.partition(":")
            if clock not in CLOCKS or not (members.isascii() and members.isdigit() and int(members)):
                raise LocalError(f"subgroups: '{text}' is not like rt:3, lt:4 or vt:2")
            parsed.append((clock, int(members)))
        return parsed

    def sites(self, size: int) -> list[int]:
        return [site for site, (_, members) in enumerate(self.parse()) for _ in range(members)]

    def with_bounds(self, longest_delay: int, skew: int) -> Self:
        return msgspec.structs.replace(self, longest_delay=longest_delay, skew=skew)
