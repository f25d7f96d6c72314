"""Operations of phones in a changing group, and how long they take."""

from __future__ import annotations

from statistics import fmean

from antecede.units import SECOND

_MS = SECOND / 1000


class SiteMeter:
    """Counts and durations of phone operations. Durations are 0 if the operation did not occur."""

    def __init__(self) -> None:
        self.left = self.moves = self.returned = 0
        self._asked: dict[int, int] = {}
        self._waits: list[int] = []

    def asked(self, address: int, since: int) -> None:
        """The phone at an address asks for admission; it first asked at `since`."""
        self._asked[address] = since

    def asked_at(self, address: int) -> int:
        return self._asked[address]

    def let_in(self, address: int, time: int) -> None:
        self._waits.append(time - self._asked[address])

    def figures(self) -> dict[str, float]:
        return {
            "phone_joins": len(self._waits),
            "phone_leaves": self.left,
            "phone_moves": self.moves,
            "phone_returns": self.returned,
            "phone_join_mean_ms": fmean(self._waits) / _MS if self._waits else 0.0,
            "phone_join_max_ms": max(self._waits, default=0) / _MS,
        }
