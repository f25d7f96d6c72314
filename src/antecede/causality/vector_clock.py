"""Vector clocks: for each process, how many of its messages are known.

A clock is a sequence of counts. Every function here costs O(processes).
"""

from __future__ import annotations

from collections.abc import Sequence


def missing_entries(have: Sequence[int], need: Sequence[int]) -> list[tuple[int, int]]:
    """The entries of `need` that `have` does not reach, as (process, count)."""
    return [(process, need[process]) for process in range(len(need)) if have[process] < need[process]]


def covers(have: Sequence[int], need: Sequence[int]) -> bool:
    """Whether every entry of `have` is at least that of `need`."""
    return not missing_entries(have, need)


def happened_before(earlier: Sequence[int], later: Sequence[int]) -> bool:
    """Whether `later` covers `earlier`, and they differ."""
    return covers(later, earlier) and not covers(earlier, later)
