"""Decides which levels a history satisfies, with the evidence for each that it does not.

Levels imply others (`levels.IMPLIED`), so the strong ones come first: of a history that is causally
convergent, only causal memory remains to be decided. Evidence is a few demands that cannot hold together;
`witness` turns it into sentences.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from antecede.causality.components import component_numbers
from antecede.errors import InputError
from antecede.transactions import memory
from antecede.transactions.causal import causal_demands, cyclic_demands, writers_by_key
from antecede.transactions.isolation import read_atomic_demands, read_committed_demands
from antecede.transactions.levels import LEVELS
from antecede.transactions.memory_by_clocks import SessionsByClocks, Transactions
from antecede.transactions.order_graph import causal_graph, topological_order, with_demands
from antecede.transactions.reads_from import INITIAL, Codes, ReadsFrom

_CLOCK_BYTES_AT_ONCE = 1 << 30
"""Bytes of clocks while CC is decided; if they do not suffice, readers are judged in several passes."""
_MOST_STEPS = 10**11
"""The most reads × sessions to try: the clocks alone take minutes, and CM needs them several times."""


class Demands(NamedTuple):
    """Columns of demands: `reader` read `key` from `after`, and had seen `before`, which also writes it."""

    before: Codes
    after: Codes
    reader: Codes
    key: Codes

    @classmethod
    def from_table(cls, table: Any) -> Demands:
        """Build from rows of the four columns."""
        return cls(*np.ascontiguousarray(table.T))

    def take(self, rows: Any) -> Demands:
        return Demands(*(column[rows] for column in self))


_NO_DEMANDS = Demands(*(np.zeros(0, np.int32) for _ in range(4)))


@dataclass
class LevelEvidence:
    """Why a level is violated: these demands and the causal order have a cycle, or one is before initial
    values."""

    demands: Demands = field(default_factory=lambda: _NO_DEMANDS)
    session: int | None = None
    """Only the reads of this session are involved."""
    separate: bool = False
    """Whether each of the demands is a violation by itself."""


class Decision:
    """What has been derived about one history; every part is computed when it is first needed."""

    def __init__(self, resolved: ReadsFrom) -> None:
        self.resolved = resolved
        self.session_of = resolved.session_of()
        self.causal_order = topological_order(*causal_graph(resolved))
        self.causally_cyclic = len(self.causal_order) < resolved.transactions

    def decide(self, levels: Collection[str]) -> dict[str, LevelEvidence | None]:
        """For each of the levels None, or the evidence against it."""
        if self.causally_cyclic:
            return {level: LevelEvidence() for level in levels}
        operations, sessions = len(self.resolved.read_key), len(self.resolved.session_start) - 1
        if operations * sessions > _MOST_STEPS and not {"RC", "RA"}.issuperset(levels):
            raise InputError(
                f"{operations:,} reads × {sessions:,} sessions are too many: time for CC, CM and CCv grows "
                "with their product; --level RA or RC can be decided"
            )
        judges = {
            "RC": self.against_read_committed,
            "RA": self.against_read_atomic,
            "CC": self.against_causal_consistency,
            "CM": self.against_causal_memory,
            "CCv": self.against_causal_convergence,
        }
        # Strong levels first: if one holds, the weaker ones follow.
        found = {level: judges[level]() for level in reversed(LEVELS) if level in levels}
        return {level: found[level] for level in LEVELS if level in levels}

    def against_read_committed(self) -> LevelEvidence | None:
        if self._converges_already():
            return None
        whole = self.resolved
        columns = whole.read_start, whole.read_key, whole.read_writer, whole.write_start, whole.write_key
        return self._against(Demands.from_table(read_committed_demands(*columns, np.int64(whole.keys))))

    def against_read_atomic(self) -> LevelEvidence | None:
        if self._converges_already():
            return None
        whole = self.resolved
        columns = whole.read_start, whole.read_key, whole.read_writer, whole.write_start, whole.write_key
        return self._against(
            Demands.from_table(read_atomic_demands(whole.session_start, *columns, np.int64(whole.keys)))
        )

    def _converges_already(self) -> bool:
        """Whether causal convergence has been decided and holds; it implies the weaker levels."""
        return "convergence" in self.__dict__ and self.convergence is None

    def against_causal_convergence(self) -> LevelEvidence | None:
        return self.convergence

    @cached_property
    def demands(self) -> Demands:
        """The demands of causal convergence, each with its reader."""
        return self._causal_demands(of_each_reader=False)

    @cached_property
    def convergence(self) -> LevelEvidence | None:
        return self._against(self.demands)

    def _causal_demands(self, of_each_reader: bool, keep: Any = None, kept: Any = None) -> Demands:
        whole, writers = self.resolved, writers_by_key(self.resolved)
        columns = whole.session_start, whole.read_start, whole.read_key, whole.read_writer
        groups = writers.key_start, writers.session, writers.start, writers.writer
        if keep is None:
            keep, kept = np.full(whole.transactions, -1, np.int32), np.zeros((0, 0), np.int32)
        return Demands.from_table(
            causal_demands(self.causal_order, self.session_of, *columns, *groups, of_each_reader, keep, kept)
        )

    def _against(self, demands: Demands) -> LevelEvidence | None:
        """Evidence that one order of all transactions cannot meet all demands; None if it can."""
        impossible = np.flatnonzero(demands.after == INITIAL)
        if len(impossible):
            return LevelEvidence(demands.take(impossible), separate=True)
        graph = with_demands(self.resolved, demands.before, demands.after)
        if len(topological_order(*graph)) == self.resolved.transactions:
            return None
        component = component_numbers(*graph)
        return LevelEvidence(demands.take(component[demands.before] == component[demands.after]))

    def against_causal_consistency(self) -> LevelEvidence | None:
        return self.consistency

    @cached_property
    def consistency(self) -> LevelEvidence | None:
        """Evidence against CC: a reader whose own demands are cyclic.

        Such a cycle is also one of the demands of all readers, so only demands within strongly connected
        components are tried.
        """
        evidence = self.convergence
        if evidence is None or evidence.separate:
            return evidence
        component = component_numbers(*with_demands(self.resolved, self.demands.before, self.demands.after))
        demands = self._causal_demands(of_each_reader=True)
        demands = demands.take(component[demands.before] == component[demands.after])
        demands = demands.take(np.argsort(demands.reader, kind="stable"))
        rows_at_once = self._clocks_at_once
        readers, starts = np.unique(demands.reader, return_index=True)
        starts = np.append(starts, len(demands.reader))
        first = 0
        while first < len(readers):
            last = int(np.searchsorted(starts, starts[first] + rows_at_once, side="right")) - 1
            last = max(last, first + 1)
            part = demands.take(slice(starts[first], starts[last]))
            cyclic = self._cyclic(part, starts[first : last + 1] - starts[first])
            if cyclic.any():
                return self._of_fewest_demands(part.take(cyclic))
            first = last
        return None

    def _of_fewest_demands(self, cyclic: Demands) -> LevelEvidence:
        """All readers with a single cyclic demand, if there are any; otherwise the reader with the fewest."""
        readers, counts = np.unique(cyclic.reader, return_counts=True)
        if counts.min() == 1:
            return LevelEvidence(cyclic.take(np.isin(cyclic.reader, readers[counts == 1])), separate=True)
        return LevelEvidence(cyclic.take(cyclic.reader == readers[np.argmin(counts)]))

    def _cyclic(self, demands: Demands, starts: Any) -> Any:
        """Which demands are part of a cycle of demands of their own reader."""
        rows, row = np.unique(demands.before, return_inverse=True)
        kept = self._clocks(rows)
        session = self.session_of[demands.after]
        count = demands.after - self.resolved.session_start[session] + 1
        cyclic = np.zeros(len(row), np.bool_)
        cyclic_demands(starts.astype(np.int64), row.astype(np.int64), session, count, kept, cyclic)
        return cyclic

    @property
    def _clocks_at_once(self) -> int:
        return max(1, _CLOCK_BYTES_AT_ONCE // (4 * max(1, len(self.resolved.session_start) - 1)))

    def _clocks(self, transactions: Any) -> Any:
        """The vector clocks of some transactions, each itself included."""
        keep = np.full(self.resolved.transactions, -1, np.int32)
        keep[transactions] = np.arange(len(transactions))
        kept = np.zeros((len(transactions), len(self.resolved.session_start) - 1), np.int32)
        self._causal_demands(False, keep, kept)
        return kept

    def against_causal_memory(self) -> LevelEvidence | None:
        """Evidence against CM: a session whose reads no single order explains."""
        # If the history is not causally convergent, it may fail here only because it is not even CC.
        if self.convergence is not None and self.consistency is not None:
            return self.consistency
        if self.convergence is None:
            # In an order that meets the demands of CCv, nearly all demands of a session point forward too.
            demands = self.demands.before, self.demands.after
            self.order = topological_order(*with_demands(self.resolved, *demands))
        sessions = self.sessions_to_sweep()
        return next((found for session in sessions if (found := self.against_session(session))), None)

    def sessions_to_sweep(self) -> Iterator[int]:
        """The sessions for which only sweeps can decide causal memory."""
        sessions = range(len(self.resolved.session_start) - 1)
        if self.convergence is not None:
            yield from sessions
            return
        whole, writers = self.resolved, writers_by_key(self.resolved)
        judge = SessionsByClocks(
            Transactions(
                self.session_of,
                whole.session_start,
                whole.read_start,
                whole.read_key,
                whole.read_writer,
                whole.write_start,
                whole.write_key,
                writers.key_start,
                writers.session,
                writers.start,
                writers.writer,
                self.rank,
            )
        )
        start = whole.session_start
        first = 0
        while first < len(sessions):
            # As many sessions as fit, with the clocks of all their transactions.
            room = int(start[first]) + self._clocks_at_once
            last = max(first + 1, int(np.searchsorted(start, room, side="right")) - 1)
            clocks = self._clocks(np.arange(start[first], start[last]))
            for session in range(first, last):
                own = clocks[start[session] - start[first] : start[session + 1] - start[first]]
                if not judge.certainly_satisfied(session, own):
                    yield session
            first = last

    @cached_property
    def order(self) -> Any:
        """An order that contains the causal order."""
        return self.causal_order

    @cached_property
    def rank(self) -> Any:
        """The position of each transaction in `order`."""
        rank = np.empty(len(self.order), np.int64)
        rank[self.order] = np.arange(len(self.order))
        return rank

    def against_session(self, session: int) -> LevelEvidence | None:
        """Evidence that no order explains all reads of one session; None if there is one."""
        whole = self.resolved
        begin, end = whole.session_start[session : session + 2].tolist()
        answer, table = memory.session_memory(
            begin,
            end,
            self.order,
            self.rank,
            self.session_of,
            whole.read_start,
            whole.read_key,
            whole.read_writer,
            whole.write_start,
            whole.write_key,
            np.int64(whole.keys),
        )
        demands = Demands.from_table(table)
        if answer == memory.UNDECIDED:
            graph = with_demands(whole, demands.before, demands.after)
            if len(topological_order(*graph)) < whole.transactions:
                return LevelEvidence(demands, session)
        return LevelEvidence(demands, session) if answer == memory.VIOLATED else None


def violated_levels(
    resolved: ReadsFrom, levels: Collection[str] = tuple(LEVELS)
) -> dict[str, LevelEvidence | None]:
    """For each level None, or the evidence that the reads of these transactions violate it."""
    return Decision(resolved).decide(levels)
