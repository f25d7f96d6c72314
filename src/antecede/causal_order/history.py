"""Earlier decisions of a stream: which identities were emitted, quarantined or overtaken.

Sequence numbers are stored as ranges, so an origin that counts without gaps takes one range, for ever. Opaque
ids are stored one by one until the horizon: rows emitted longer ago are forgotten, and a row that names one
of them waits.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from antecede.causal_order.dependency_edges import Columns, DependencyEdges, Form, KnownIdentities
from antecede.causal_order.disposition import match_identities
from antecede.causal_order.group_state import OpenGroup, StoredSpans
from antecede.causal_order.segments import join
from antecede.jit import njit_plain

UNSEEN, EMITTED, IN_QUARANTINE, OVERTAKEN = range(4)
"""The outcome of an identity: none yet; emitted; quarantined; overtaken by an effect that was released before
it. These numbers are stored in checkpoints."""


class Decisions(NamedTuple):
    """The decisions of a micro-batch."""

    emitted: np.ndarray
    """The rows that were emitted."""
    quarantined: np.ndarray
    """The rows that were quarantined."""
    overtaken: np.ndarray
    """The dependencies without which rows were released."""
    now: int


class _Spans(NamedTuple):
    """Ranges of numbers, first to last, of owners; once merged, sorted by outcome, owner and first."""

    outcome: np.ndarray
    owner: np.ndarray
    first: np.ndarray
    last: np.ndarray


@njit_plain
def _merge_sorted(outcome: Any, owner: Any, first: Any, last: Any, order: Any) -> Any:
    size = order.size
    outcomes, owners = np.empty(size, np.int8), np.empty(size, np.int64)
    firsts, lasts, count = np.empty(size, np.int64), np.empty(size, np.int64), 0
    for at in order:
        before = count - 1
        if (
            count
            and outcomes[before] == outcome[at]
            and owners[before] == owner[at]
            and first[at] <= lasts[before] + 1
        ):
            lasts[before] = max(lasts[before], last[at])
        else:
            outcomes[count], owners[count] = outcome[at], owner[at]
            firsts[count], lasts[count] = first[at], last[at]
            count += 1
    return outcomes[:count], owners[:count], firsts[:count], lasts[:count]


def _merge(spans: _Spans) -> _Spans:
    """Merge ranges: the same numbers in as few ranges as possible."""
    return _Spans(*_merge_sorted(*spans, np.lexsort((spans.first, spans.owner, spans.outcome))))


@njit_plain
def _look_up(outcomes: Any, owners: Any, firsts: Any, lasts: Any, owner: Any, number: Any) -> Any:
    """The outcome of each identity, by binary search; if there are several, the one with the lowest code."""
    found = np.zeros(owner.size, np.int8)
    for outcome in (OVERTAKEN, IN_QUARANTINE, EMITTED):
        begin, end = np.searchsorted(outcomes, outcome), np.searchsorted(outcomes, outcome + 1)
        if begin == end:
            continue
        for at in range(owner.size):
            low, high = begin, end
            while low < high:
                middle = (low + high) >> 1
                if owners[middle] < owner[at] or (
                    owners[middle] == owner[at] and firsts[middle] <= number[at]
                ):
                    low = middle + 1
                else:
                    high = middle
            if low > begin and owners[low - 1] == owner[at] and lasts[low - 1] >= number[at]:
                found[at] = outcome
    return found


class SpanHistory:
    """The outcomes of rows with sequence numbers."""

    def __init__(self, groups: list[OpenGroup], columns: Columns) -> None:
        self._groups = groups
        self._is_cumulative = columns.form is Form.CLOCKS
        stored = [group.state.spans for group in groups]
        firsts = [np.frombuffer(one.firsts, np.int64) for one in stored]
        origins = None
        if columns.origin is not None:
            origins = pa.array([name for one in stored for name in one.origins], pa.string())
        group_of_span = np.repeat(np.arange(len(stored)), [one.size for one in firsts])
        self.known = KnownIdentities(group_of_span, origins, pa.array(np.concatenate(firsts)))
        self._outcomes = np.frombuffer(b"".join(one.outcomes for one in stored), np.int8)
        self._lasts = np.frombuffer(b"".join(one.lasts for one in stored), np.int64)

    def use_codes(self, edges: DependencyEdges) -> None:
        """Translate the stored history into the codes of these edges."""
        owner, first = edges.known[0]
        self._spans = _merge(_Spans(self._outcomes, owner, first, self._lasts))

    def look_up(self, owner: np.ndarray, number: np.ndarray) -> np.ndarray:
        """The outcome of each identity."""
        return np.asarray(_look_up(*self._spans, owner, number))

    def record(self, _: pa.Table, edges: DependencyEdges, decided: Decisions) -> None:
        """Add the decisions to the groups' states."""
        aside = decided.quarantined[edges.owner[decided.quarantined] >= 0]
        rows = np.concatenate((decided.emitted, aside))
        number, overtaken = edges.number[rows], edges.dep_number[decided.overtaken]
        # An entry of a clock stands for every row of its origin up to that number.
        since = np.ones_like(overtaken) if self._is_cumulative else overtaken
        sizes = (decided.emitted.size, aside.size, overtaken.size)
        outcomes = np.repeat(np.array([EMITTED, IN_QUARANTINE, OVERTAKEN], np.int8), sizes)
        owners = np.concatenate((edges.owner[rows], edges.dep_owner[decided.overtaken]))
        more = _Spans(outcomes, owners, np.concatenate((number, since)), np.concatenate((number, overtaken)))
        both = (np.concatenate(pair) for pair in zip(self._spans, more, strict=True))
        self._store(_merge(_Spans(*both)), edges)

    def _store(self, spans: _Spans, edges: DependencyEdges) -> None:
        group_of_span = spans.owner // edges.owners_per_group
        order = np.argsort(group_of_span, kind="stable")
        bounds = np.searchsorted(group_of_span[order], np.arange(len(self._groups) + 1)).tolist()
        outcomes, firsts, lasts = spans.outcome[order], spans.first[order], spans.last[order]
        names: list[str | None] = []
        if edges.origins is not None:
            names = edges.origins.take(pa.array(spans.owner[order] % edges.owners_per_group)).to_pylist()
        for at, group in enumerate(self._groups):
            own = slice(bounds[at], bounds[at + 1])
            group.state.spans = StoredSpans(
                outcomes[own].tobytes(), firsts[own].tobytes(), lasts[own].tobytes(), names[own]
            )


ID_COLUMNS = pa.schema([("id", pa.string()), ("kind", pa.int8()), ("at", pa.int64())])
"""Recent ids in stored form; `kind` is the outcome."""


class IdHistory:
    """The outcomes of rows with opaque ids: one by one, until the horizon."""

    def __init__(self, groups: list[OpenGroup], columns: Columns, horizon: int) -> None:
        self._groups, self._id = groups, str(columns.id)
        tables, sizes = [ID_COLUMNS.empty_table()], []
        for group in groups:
            for segment in group.ids:
                segment.retain(segment.rows().column("at").to_numpy() >= horizon)
            own = [segment.rows() for segment in group.ids]
            tables += own
            sizes.append(sum(table.num_rows for table in own))
        table = join(tables)
        self._outcomes = table.column("kind").to_numpy()
        # A cause that was overtaken and later emitted is stored twice; its final outcome comes first.
        self._order = np.argsort(self._outcomes, kind="stable")
        names = table.column("id").combine_chunks().take(pa.array(self._order))
        self.known = KnownIdentities(np.repeat(np.arange(len(groups)), sizes)[self._order], None, names)

    def use_codes(self, edges: DependencyEdges) -> None:
        """Translate the stored history into the codes of these edges."""
        self._owner, self._number = edges.known[0]

    def look_up(self, owner: np.ndarray, number: np.ndarray) -> np.ndarray:
        """The outcome of each identity."""
        _, place = match_identities(self._owner, self._number, owner, number)
        found = np.zeros(owner.size, np.int8)
        found[place >= 0] = self._outcomes[self._order][place[place >= 0]]
        return found

    def record(self, rows: pa.Table, edges: DependencyEdges, decided: Decisions) -> None:
        """Add the decisions to the groups' states."""
        aside = decided.quarantined[edges.owner[decided.quarantined] >= 0]
        ids = rows.column(self._id).take(pa.array(np.concatenate((decided.emitted, aside))))
        ids = pa.chunked_array([*ids.chunks, edges.dep_names(decided.overtaken)], pa.string())
        sizes = (decided.emitted.size, aside.size, decided.overtaken.size)
        group_of_id = np.concatenate(
            (edges.groups[decided.emitted], edges.groups[aside], edges.dep_owner[decided.overtaken])
        )
        order = np.argsort(group_of_id, kind="stable")
        outcomes = pa.array(np.repeat(np.array([EMITTED, IN_QUARANTINE, OVERTAKEN], np.int8), sizes))
        times = pa.array(np.full(order.size, decided.now))
        table = pa.table([ids, outcomes, times], schema=ID_COLUMNS).take(pa.array(order)).combine_chunks()
        bounds = np.searchsorted(group_of_id[order], np.arange(len(self._groups) + 1)).tolist()
        for at, group in enumerate(self._groups):
            group.write_ids(table.slice(bounds[at], bounds[at + 1] - bounds[at]))
