"""What came out before, and what never will: the compact memory of the groups of a stream.

Numbers are kept as spans, so that origins that count without gaps take one span each, for ever. Opaque ids
are kept one by one until they are older than the horizon: an id that came out longer ago is forgotten, and
whoever names it then waits for it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from antecede.causal_order.dependency_edges import Columns, Form, Known, Links
from antecede.causal_order.disposition import match_identities
from antecede.causal_order.group_state import Group, Kept
from antecede.causal_order.segments import join
from antecede.jit import njit_plain

NEVER, OUT, ASIDE, OWED = range(4)
"""What is known of an identity: nothing; that it came out; that it was put aside; that an effect of it was
released without it."""


class Added(NamedTuple):
    """What becomes known by a batch."""

    out: np.ndarray
    """Rows that came out."""
    aside: np.ndarray
    """Rows that were put aside."""
    owed: np.ndarray
    """Places of dependencies without which rows were released."""
    now: int


class _Spans(NamedTuple):
    """Runs of numbers, first to last, of owners; once merged, sorted by kind, owner and first."""

    kind: np.ndarray
    owner: np.ndarray
    first: np.ndarray
    last: np.ndarray


@njit_plain
def _merged(kind: Any, owner: Any, first: Any, last: Any, order: Any) -> Any:
    size = order.size
    kinds, owners = np.empty(size, np.int8), np.empty(size, np.int64)
    firsts, lasts, kept = np.empty(size, np.int64), np.empty(size, np.int64), 0
    for at in order:
        before = kept - 1
        if (
            kept
            and kinds[before] == kind[at]
            and owners[before] == owner[at]
            and first[at] <= lasts[before] + 1
        ):
            lasts[before] = max(lasts[before], last[at])
        else:
            kinds[kept], owners[kept], firsts[kept], lasts[kept] = kind[at], owner[at], first[at], last[at]
            kept += 1
    return kinds[:kept], owners[:kept], firsts[:kept], lasts[:kept]


def _merge(spans: _Spans) -> _Spans:
    """The same numbers in as few spans as can be."""
    return _Spans(*_merged(*spans, np.lexsort((spans.first, spans.owner, spans.kind))))


@njit_plain
def _found(kinds: Any, owners: Any, firsts: Any, lasts: Any, owner: Any, number: Any) -> Any:
    """For each identity the least kind of span that holds it, or NEVER."""
    known = np.zeros(owner.size, np.int8)
    for kind in (OWED, ASIDE, OUT):
        begin, end = np.searchsorted(kinds, kind), np.searchsorted(kinds, kind + 1)
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
                known[at] = kind
    return known


class SpanRecord:
    """What is known of rows that are numbered."""

    def __init__(self, groups: list[Group], columns: Columns) -> None:
        self._groups = groups
        self._counts_all = columns.form is Form.CLOCKS
        kept = [group.book.spans for group in groups]
        firsts = [np.frombuffer(one.firsts, np.int64) for one in kept]
        origins = None
        if columns.origin is not None:
            origins = pa.array([name for one in kept for name in one.origins], pa.string())
        of_group = np.repeat(np.arange(len(kept)), [one.size for one in firsts])
        self.known = Known(of_group, origins, pa.array(np.concatenate(firsts)))
        self._kinds = np.frombuffer(b"".join(one.kinds for one in kept), np.int8)
        self._lasts = np.frombuffer(b"".join(one.lasts for one in kept), np.int64)

    def code(self, links: Links) -> None:
        """What was kept, in the codes of these links."""
        owner, first = links.known[0]
        self._spans = _merge(_Spans(self._kinds, owner, first, self._lasts))

    def look(self, owner: np.ndarray, number: np.ndarray) -> np.ndarray:
        """What is known of each identity."""
        return np.asarray(_found(*self._spans, owner, number))

    def add(self, _: pa.Table, links: Links, added: Added) -> None:
        """Put what is new into the groups' books."""
        aside = added.aside[links.owner[added.aside] >= 0]
        rows = np.concatenate((added.out, aside))
        number, owed = links.number[rows], links.dep_number[added.owed]
        # A clock's entry stands for all that its origin did until then.
        since = np.ones_like(owed) if self._counts_all else owed
        sizes = (added.out.size, aside.size, owed.size)
        kinds = np.repeat(np.array([OUT, ASIDE, OWED], np.int8), sizes)
        owners = np.concatenate((links.owner[rows], links.dep_owner[added.owed]))
        more = _Spans(kinds, owners, np.concatenate((number, since)), np.concatenate((number, owed)))
        both = (np.concatenate(pair) for pair in zip(self._spans, more, strict=True))
        self._keep(_merge(_Spans(*both)), links)

    def _keep(self, spans: _Spans, links: Links) -> None:
        of_group = spans.owner // links.per_group
        order = np.argsort(of_group, kind="stable")
        bounds = np.searchsorted(of_group[order], np.arange(len(self._groups) + 1)).tolist()
        kinds, firsts, lasts = spans.kind[order], spans.first[order], spans.last[order]
        names: list[str | None] = []
        if links.origins is not None:
            names = links.origins.take(pa.array(spans.owner[order] % links.per_group)).to_pylist()
        for at, group in enumerate(self._groups):
            mine = slice(bounds[at], bounds[at + 1])
            group.book.spans = Kept(
                kinds[mine].tobytes(), firsts[mine].tobytes(), lasts[mine].tobytes(), names[mine]
            )


_ID_COLUMNS = pa.schema([("id", pa.string()), ("kind", pa.int8()), ("at", pa.int64())])


class IdRecord:
    """What is known of rows whose ids say nothing: each of them, until the horizon."""

    def __init__(self, groups: list[Group], columns: Columns, horizon: int) -> None:
        self._groups, self._id = groups, str(columns.id)
        tables, sizes = [_ID_COLUMNS.empty_table()], []
        for group in groups:
            for piece in group.ids:
                piece.leave(piece.rows().column("at").to_numpy() >= horizon)
            mine = [piece.rows() for piece in group.ids]
            tables += mine
            sizes.append(sum(table.num_rows for table in mine))
        table = join(tables)
        self._kinds = table.column("kind").to_numpy()
        # A cause that was owed and came is known twice: what it is now comes first.
        self._order = np.argsort(self._kinds, kind="stable")
        names = table.column("id").combine_chunks().take(pa.array(self._order))
        self.known = Known(np.repeat(np.arange(len(groups)), sizes)[self._order], None, names)

    def code(self, links: Links) -> None:
        """What was kept, in the codes of these links."""
        self._owner, self._number = links.known[0]

    def look(self, owner: np.ndarray, number: np.ndarray) -> np.ndarray:
        """What is known of each identity."""
        _, place = match_identities(self._owner, self._number, owner, number)
        known = np.zeros(owner.size, np.int8)
        known[place >= 0] = self._kinds[self._order][place[place >= 0]]
        return known

    def add(self, rows: pa.Table, links: Links, added: Added) -> None:
        """Put what is new into the groups' books."""
        aside = added.aside[links.owner[added.aside] >= 0]
        ids = rows.column(self._id).take(pa.array(np.concatenate((added.out, aside))))
        ids = pa.chunked_array([*ids.chunks, links.dep_names(added.owed)], pa.string())
        sizes = (added.out.size, aside.size, added.owed.size)
        of_rows = [links.groups[added.out], links.groups[aside], links.dep_owner[added.owed]]
        of_group = np.concatenate(of_rows)
        order = np.argsort(of_group, kind="stable")
        kinds = pa.array(np.repeat(np.array([OUT, ASIDE, OWED], np.int8), sizes))
        times = pa.array(np.full(order.size, added.now))
        table = pa.table([ids, kinds, times], schema=_ID_COLUMNS).take(pa.array(order)).combine_chunks()
        bounds = np.searchsorted(of_group[order], np.arange(len(self._groups) + 1)).tolist()
        for at, group in enumerate(self._groups):
            new = table.slice(bounds[at], bounds[at + 1] - bounds[at])
            group.book.ids = group.put_back(group.ids, new)
