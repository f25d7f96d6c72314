"""Interpreted versions of `disposition` and `row_digest` for small tables, for which loading a compiler would
take longer.

The same results by the same algorithms on Python's lists, at some microseconds per row and dependency.
"""

from __future__ import annotations

import sys
from heapq import heappop, heappush
from itertools import pairwise
from typing import Any

import numpy as np

from antecede.causal_order.outcomes import (
    CAUSE_QUARANTINED,
    CYCLE,
    HELD,
    ORDERED,
    OVERDUE,
    QUARANTINE_REASONS,
    QUARANTINED,
    RELEASED,
    SATISFIED,
    UNKNOWN,
    UNREADABLE,
)

_MAX_ROWS = 3000
"""Up to this size, importing numba takes longer than doing the work in Python."""


def is_small(rows: int) -> bool:
    """Whether a table is best processed here: it is small, and the compiler is not loaded yet."""
    return rows <= _MAX_ROWS and "numba" not in sys.modules


def match_identities(owner: Any, number: Any, of_owner: Any, of_number: Any) -> tuple[np.ndarray, np.ndarray]:
    """For each row the first row with its identity, and for each dependency the first row it names, or -1."""
    places: dict[tuple[int, int], int] = {}
    rows = zip(owner.tolist(), number.tolist(), strict=True)
    first = [places.setdefault(identity, row) for row, identity in enumerate(rows)]
    named = zip(of_owner.tolist(), of_number.tolist(), strict=True)
    return np.array(first, np.int64), np.array([places.get(identity, -1) for identity in named], np.int64)


def decide_dispositions(
    bounds: Any, offsets: Any, causes: Any, disposition: Any, overdue: Any, release: bool, quarantine: bool
) -> np.ndarray:
    """Decide about every row whose `disposition` is HELD. Returns the rows to emit, in order, by group."""
    decided = disposition.tolist()
    places = offsets.tolist()
    listed = causes.tolist()
    own_causes = [listed[begin:end] for begin, end in pairwise(places)]
    decision = _Decision(decided, own_causes, overdue.tolist(), release, quarantine)
    limits = bounds.tolist()
    for low, high in pairwise(limits):
        decision.decide_group(low, high)
    disposition[:] = decided
    return np.array(decision.order, np.int64)


class _Decision:
    """The rows as a graph, and the decisions so far."""

    def __init__(
        self,
        decided: list[int],
        causes: list[list[int]],
        overdue: list[bool],
        release: bool,
        quarantine: bool,
    ) -> None:
        self._decided, self._causes, self._overdue = decided, causes, overdue
        self._release, self._quarantine = release, quarantine
        self._effects: list[list[int]] = [[] for _ in decided]
        for row, own in enumerate(causes):
            for cause in own if decided[row] == HELD else ():
                if cause >= 0:
                    self._effects[cause].append(row)
        self._unmet = [0] * len(decided)
        self._incomplete = [False] * len(decided)
        self.order: list[int] = []

    def decide_group(self, low: int, high: int) -> None:
        held = [row for row in range(low, high) if self._decided[row] == HELD]
        before = len(self.order)
        self._emit(self._ready(held))
        if len(self.order) - before == len(held):
            return
        on_cycles = self._mark_cycles([row for row in held if self._decided[row] == HELD])
        if not self._release:
            self._quarantine_effects(low, high)
        elif on_cycles:
            self._emit(self._effects_of_cycles(on_cycles))

    def _ready(self, held: list[int]) -> list[int]:
        """The rows that wait for no cause; being sorted, they are a heap."""
        for row in held:
            for cause in self._causes[row]:
                if cause == SATISFIED:
                    continue
                never = cause == QUARANTINED or (cause >= 0 and self._decided[cause] == UNREADABLE)
                if self._release and (never or (cause == UNKNOWN and self._overdue[row])):
                    self._incomplete[row] = True
                else:
                    self._unmet[row] += 1
        return [row for row in held if not self._unmet[row]]

    def _emit(self, ready: list[int]) -> None:
        """Kahn's algorithm."""
        while ready:
            row = heappop(ready)
            self._decided[row] = RELEASED if self._incomplete[row] else ORDERED
            self.order.append(row)
            for effect in self._effects[row]:
                self._unmet[effect] -= 1
                if not self._unmet[effect]:
                    heappush(ready, effect)

    def _mark_cycles(self, held: list[int]) -> list[int]:
        """Mark rows on a CYCLE: those of strongly connected components (Kosaraju), in their order."""
        waiting = set(held)
        finished: list[int] = []
        seen: set[int] = set()
        for root in held:
            path = [(root, iter(self._effects[root]))] if root not in seen else []
            seen.add(root)
            while path:
                row, effects = path[-1]
                effect = next((one for one in effects if one in waiting and one not in seen), None)
                if effect is None:
                    finished.append(row)
                    path.pop()
                else:
                    seen.add(effect)
                    path.append((effect, iter(self._effects[effect])))
        for root in reversed(finished):
            component = self._component(root, waiting)
            if len(component) > 1 or (component and root in self._causes[root]):
                for row in component:
                    self._decided[row] = CYCLE
        return [row for row in held if self._decided[row] == CYCLE]

    def _component(self, root: int, waiting: set[int]) -> list[int]:
        """The remaining rows that lead to `root`; they are removed from those that remain."""
        if root not in waiting:
            return []
        waiting.discard(root)
        found = [root]
        for row in found:
            for cause in self._causes[row]:
                if cause in waiting:
                    waiting.discard(cause)
                    found.append(cause)
        return found

    def _effects_of_cycles(self, on_cycles: list[int]) -> list[int]:
        """Release effects without their causes on cycles. Returns those that are ready then."""
        ready: list[int] = []
        for row in on_cycles:
            for effect in self._effects[row]:
                if self._decided[effect] == HELD:
                    self._incomplete[effect] = True
                    self._unmet[effect] -= 1
                    if not self._unmet[effect]:
                        heappush(ready, effect)
        return ready

    def _quarantine_effects(self, low: int, high: int) -> None:
        """Quarantine the rows that can never be emitted, and everything that depends on them."""
        doomed = []
        for row in range(low, high):
            if self._decided[row] == HELD:
                self._decided[row] = self._by_causes(row)
            if self._decided[row] in QUARANTINE_REASONS:
                doomed.append(row)
        while doomed:
            for effect in self._effects[doomed.pop()]:
                if self._decided[effect] == HELD:
                    self._decided[effect] = CAUSE_QUARANTINED
                    doomed.append(effect)

    def _by_causes(self, row: int) -> int:
        if QUARANTINED in self._causes[row]:
            return CAUSE_QUARANTINED
        is_overdue = self._quarantine and self._overdue[row]
        return OVERDUE if is_overdue and UNKNOWN in self._causes[row] else HELD


# XXH64

_MASK = (1 << 64) - 1
_P1, _P2, _P3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
_P4, _P5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5


def hash_texts(octets: Any, begins: Any, seeds: Any) -> np.ndarray:
    """XXH64 of each text, with its seed."""
    data, places = octets.tobytes(), begins.tolist()
    texts = (data[begin:end] for begin, end in pairwise(places))
    return np.array([_xxh64(*pair) for pair in zip(texts, seeds.tolist(), strict=True)], np.uint64)


def _rotate(value: int, bits: int) -> int:
    value &= _MASK
    return (value << bits | value >> 64 - bits) & _MASK


def _round(lane: int, word: int) -> int:
    return _rotate(lane + word * _P2, 31) * _P1 & _MASK


def _xxh64(text: bytes, seed: int) -> int:
    at, end = 0, len(text)
    if end >= 32:
        lanes = [seed + _P1 + _P2, seed + _P2, seed, seed - _P1]
        while end - at >= 32:
            for lane in range(4):
                lanes[lane] = _round(lanes[lane], int.from_bytes(text[at : at + 8], "little"))
                at += 8
        value = sum(_rotate(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True))
        for lane in lanes:
            value = (value ^ _round(0, lane)) * _P1 + _P4 & _MASK
    else:
        value = seed + _P5
    value = value + end & _MASK
    for place in range(at, end - 7, 8):
        word = int.from_bytes(text[place : place + 8], "little")
        value = _rotate(value ^ _round(0, word), 27) * _P1 + _P4 & _MASK
    at = end - (end & 7)
    if end & 4:
        value = _rotate(value ^ int.from_bytes(text[at : at + 4], "little") * _P1, 23) * _P2 + _P3 & _MASK
        at += 4
    for octet in text[at:]:
        value = _rotate(value ^ octet * _P5, 11) * _P1 & _MASK
    value = (value ^ value >> 33) * _P2 & _MASK
    value = (value ^ value >> 29) * _P3 & _MASK
    return value ^ value >> 32
