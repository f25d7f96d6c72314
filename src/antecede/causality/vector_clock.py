"""Vector clocks: one counter a process, saying how many of its messages are known.

A clock is a plain sequence of counts, cheap to copy and to send. Every function here costs
O(processes).
"""

from __future__ import annotations

from collections.abc import Sequence


def missing_entries(have: Sequence[int], need: Sequence[int]) -> list[tuple[int, int]]:
    """The entries of `need` that `have` does not cover, as (process, count)."""
    return [(process, need[process]) for process in range(len(need)) if have[process] < need[process]]


def covers(have: Sequence[int], need: Sequence[int]) -> bool:
    """Whether `have` knows at least everything `need` knows."""
    return not missing_entries(have, need)


def happened_before(earlier: Sequence[int], later: Sequence[int]) -> bool:
    """Covered, and not the same."""
    return covers(later, earlier) and not covers(earlier, later)
