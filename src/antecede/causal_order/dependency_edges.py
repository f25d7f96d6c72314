"""Reads the dependencies between rows from the columns of a table, as numbers.

A row's identity is an owner and a number. For opaque ids the owner is the group, and the number is a code of
the id; for whole numbers it is the group and the number itself; for rows with a sequence number it is an
origin of the group and the number there. Codes are valid for one reading only: identities from elsewhere that
are to be compared with the rows must be encoded together with them (`KnownIdentities`).
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

TEXT = pa.large_string()


class Form(StrEnum):
    """How rows state their identity and their dependencies. The values are part of checkpoints."""

    IDS = "ids"
    """An id, and the ids of its causes, as text."""
    NUMBERS = "numbers"
    """The same, as integers."""
    SEQUENCES = "streams"
    """An origin and a sequence number; causes in the same form."""
    CLOCKS = "clocks"
    """An origin and a vector clock."""
    TOPICS = "topics"
    """Records of topics that are merged: they have no such columns."""


class Columns(NamedTuple):
    """The columns that state identity and dependencies: `id` and `deps`, text or whole numbers and lists of
    them; or `origin`, `seq` and `deps`, text and whole numbers and lists of both; or `origin` and `clock`, a
    map to whole numbers."""

    form: Form
    group: str | None
    id: str | None = None
    deps: str | None = None
    origin: str | None = None
    seq: str | None = None
    clock: str | None = None
    by: str | None = None

    @property
    def numbered(self) -> bool:
        return self.form is not Form.IDS


class KnownIdentities(NamedTuple):
    """Identities to compare with those of the rows."""

    groups: np.ndarray
    """Groups, as codes of the table."""
    origins: pa.Array | None
    """Names of origins, if the form has origins."""
    names: pa.Array
    """Ids or numbers."""


class DependencyEdges(NamedTuple):
    """Rows and their dependencies, as numbers."""

    groups: np.ndarray
    """The group of each row."""
    owner: np.ndarray
    number: np.ndarray
    offsets: np.ndarray
    """Where each row's dependencies begin; one more at the end."""
    dep_owner: np.ndarray
    dep_number: np.ndarray
    faults: np.ndarray
    """For each row an index into FAULTS; 0 if the row can be read."""
    known: list[tuple[np.ndarray, np.ndarray]]
    """Owners and numbers of the known identities."""
    owners_per_group: int
    """An owner is a group multiplied by this, plus an origin."""
    origins: pa.Array | None
    """The origins' names, by code."""
    dep_names: Any
    """Maps indices of dependencies to the names of the causes."""


FAULTS = (
    "",
    "it has no id",
    "a dependency of it cannot be read",
    "it has no origin",
    "it has no clock",
    "its clock has no entry above 0 for its own origin",
    "its clock has an entry that is null or below 0",
    "it has no number, or one below 0",
)
_NO_ID, _BAD_DEP, _NO_ORIGIN, _NO_CLOCK, _NO_OWN, _BAD_ENTRY, _NO_SEQ = range(1, len(FAULTS))


def read_edges(
    table: pa.Table,
    columns: Columns,
    groups: np.ndarray,
    known: Sequence[KnownIdentities] = (),
    over_gaps: bool = False,
) -> DependencyEdges:
    """Read the table's dependencies, and encode `known` identities together with its rows.

    With `over_gaps`, a row follows the rows that its clock counts even if rows between them are missing.
    """
    if columns.form is Form.CLOCKS:
        return _read_clocks(table, columns, groups, known, over_gaps)
    read = {Form.IDS: _read_ids, Form.NUMBERS: _read_numbers, Form.SEQUENCES: _read_sequences}
    return read[columns.form](table, columns, groups, known)


def encode_groups(table: pa.Table, columns: Columns) -> tuple[np.ndarray, pa.Array]:
    """The group of each row as a code, and the names of the groups."""
    if columns.group is None:
        return np.zeros(table.num_rows, np.int64), pa.array([None], TEXT)
    encoded = _one_chunk(table, columns.group).cast(TEXT).dictionary_encode(null_encoding="encode")
    return _as_int64(encoded.indices), encoded.dictionary


def row_of_edge(offsets: np.ndarray) -> np.ndarray:
    """The row that each dependency belongs to."""
    return np.repeat(np.arange(offsets.size - 1), np.diff(offsets))


def _one_chunk(table: pa.Table, name: str | None) -> pa.Array:
    column = table.column(name)
    if pa.types.is_string(column.type) and column.num_chunks > 1:
        column = column.cast(TEXT)
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)


def _as_int64(numbers: pa.Array) -> np.ndarray:
    return np.asarray(numbers.to_numpy(zero_copy_only=False), np.int64)


def _is_null(values: pa.Array) -> np.ndarray:
    return np.asarray(values.is_null().to_numpy(zero_copy_only=False))


def _flatten(column: pa.Array) -> tuple[np.ndarray, pa.Array]:
    """Where each row's values begin, and all values, of lists or maps; a null counts as an empty list."""
    if pa.types.is_map(column.type):
        lengths = np.where(_is_null(column), 0, np.diff(column.offsets.to_numpy())).astype(np.int64)
        entry = pa.struct([("key", column.type.key_type), ("value", column.type.item_type)])
        column = column.cast(pa.list_(entry))
    else:
        lengths = _as_int64(pc.list_value_length(column).fill_null(0))
    return np.concatenate(([0], np.cumsum(lengths))), column.flatten()


def _encode_together(arrays: Sequence[pa.Array]) -> tuple[pa.Array, list[np.ndarray]]:
    """The distinct texts of all arrays, and each array as indices into them; -1 for null and for empty
    text."""
    encoded = pa.concat_arrays([array.cast(TEXT) for array in arrays]).dictionary_encode()
    codes = _as_int64(encoded.indices.fill_null(-1))
    empty = pc.index(encoded.dictionary, pa.scalar("", TEXT)).as_py()
    if empty >= 0:
        codes = np.where(codes == empty, -1, codes)
    return encoded.dictionary, np.split(codes, np.cumsum([len(array) for array in arrays])[:-1])


def _without_blank(names: pa.Array, own: np.ndarray, dep: np.ndarray) -> np.ndarray:
    """Dependencies without those on blank text, unless a row has that blank id."""
    blank = np.flatnonzero(pc.equal(pc.utf8_trim_whitespace(names), pa.scalar("", TEXT)))
    blank = blank[~np.isin(blank, own)] if blank.size else blank
    return np.where(np.isin(dep, blank), -1, dep) if blank.size else dep


def _without(offsets: np.ndarray, absent: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where each row's dependencies begin once absent ones are removed, and the indices of the others."""
    if not absent.any():
        return offsets, np.arange(absent.size)
    before = np.concatenate(([0], np.cumsum(~absent)))
    return before[offsets], np.flatnonzero(~absent)


def _read_ids(
    table: pa.Table, columns: Columns, groups: np.ndarray, known: Sequence[KnownIdentities]
) -> DependencyEdges:
    ids = _one_chunk(table, columns.id)
    offsets, values = _flatten(_one_chunk(table, columns.deps))
    names, (own, dep, *others) = _encode_together([ids, values, *(some.names for some in known)])
    dep = _without_blank(names, own, dep)
    encoded = [(some.groups, codes) for some, codes in zip(known, others, strict=True)]
    return _owned_by_group(groups, own, own < 0, offsets, values, dep, dep < 0, encoded)


def _read_numbers(
    table: pa.Table, columns: Columns, groups: np.ndarray, known: Sequence[KnownIdentities]
) -> DependencyEdges:
    ids = _one_chunk(table, columns.id)
    offsets, values = _flatten(_one_chunk(table, columns.deps))
    own, dep = _as_int64(ids.fill_null(0)), _as_int64(values.fill_null(0))
    encoded = [(some.groups, _as_int64(some.names)) for some in known]
    return _owned_by_group(groups, own, _is_null(ids), offsets, values, dep, _is_null(values), encoded)


def _owned_by_group(
    groups: np.ndarray,
    own: np.ndarray,
    no_id: np.ndarray,
    offsets: np.ndarray,
    values: pa.Array,
    dep: np.ndarray,
    no_dep: np.ndarray,
    known: list[tuple[np.ndarray, np.ndarray]],
) -> DependencyEdges:
    """Edges of rows whose owner is their group; a null or empty dependency counts as none."""
    offsets, present = _without(offsets, no_dep)
    owner, number = _make_unnamable(groups.copy(), own.copy(), no_id)
    return DependencyEdges(
        groups,
        owner,
        number,
        offsets,
        groups[row_of_edge(offsets)],
        dep[present],
        np.where(no_id, _NO_ID, 0),
        known,
        1,
        None,
        lambda places: values.take(pa.array(present[places])).cast(pa.string()),
    )


def _add_fault(faults: np.ndarray, rows: np.ndarray, fault: int) -> None:
    """Record a fault for rows that have none yet."""
    faults[rows] = np.where(faults[rows], faults[rows], fault)


def _make_unnamable(owner: np.ndarray, number: np.ndarray, lost: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Give rows without an identity one that no row can name, so that none counts as a duplicate."""
    owner[lost], number[lost] = -1, np.flatnonzero(lost)
    return owner, number


def _read_sequences(
    table: pa.Table, columns: Columns, groups: np.ndarray, known: Sequence[KnownIdentities]
) -> DependencyEdges:
    origins, seqs = _one_chunk(table, columns.origin), _one_chunk(table, columns.seq)
    offsets, values = _flatten(_one_chunk(table, columns.deps))
    dep_origins, dep_seqs = values.field(0), values.field(1)
    names, (own, dep, *others) = _encode_together([origins, dep_origins, *_known_origins(known)])
    offsets, present = _without(offsets, _is_null(values))
    dep, dep_number = dep[present], _as_int64(dep_seqs.fill_null(-1))[present]
    number, edge_rows = _as_int64(seqs.fill_null(-1)), row_of_edge(offsets)
    faults = np.where(own < 0, _NO_ORIGIN, np.where(number < 0, _NO_SEQ, 0))
    _add_fault(faults, edge_rows[(dep < 0) | _is_null(dep_seqs)[present]], _BAD_DEP)
    return _owned_by_origin(groups, own, number, offsets, dep, dep_number, faults, known, others, names)


def _read_clocks(
    table: pa.Table,
    columns: Columns,
    groups: np.ndarray,
    known: Sequence[KnownIdentities],
    over_gaps: bool,
) -> DependencyEdges:
    """A clock counts the rows of each origin that its row knows, itself included. So the row depends on the
    last counted row of every other origin, and on its own predecessor."""
    origins, clocks = _one_chunk(table, columns.origin), _one_chunk(table, columns.clock)
    offsets, values = _flatten(clocks)
    dep_origins, entries = values.field(0), values.field(1)
    names, (own, dep, *others) = _encode_together([origins, dep_origins, *_known_origins(known)])
    edge_rows = row_of_edge(offsets)
    count = _as_int64(entries.fill_null(-1))
    is_own = dep == own[edge_rows]
    number = np.zeros(len(origins), np.int64)
    number[edge_rows[is_own]] = count[is_own]
    faults = np.zeros(len(origins), np.int64)
    faults[number <= 0] = _NO_OWN
    faults[edge_rows[(count < 0) | (dep < 0)]] = _BAD_ENTRY
    faults[_is_null(clocks)] = _NO_CLOCK
    faults[own < 0] = _NO_ORIGIN
    number[number <= 0] = -1
    count = count - is_own
    counted = np.flatnonzero(count > 0)
    edge_rows, dep, count = edge_rows[counted], dep[counted], count[counted]
    if over_gaps:
        place, before = _last_present((groups, own, number), (groups[edge_rows], dep, count))
        edge_rows, dep, count = (np.insert(all_, place + 1, all_[place]) for all_ in (edge_rows, dep, count))
        count[place + 1 + np.arange(place.size)] = before
    offsets = np.concatenate(([0], np.cumsum(np.bincount(edge_rows, minlength=len(origins)))))
    return _owned_by_origin(groups, own, number, offsets, dep, count, faults, known, others, names)


def _last_present(
    rows: tuple[np.ndarray, ...], deps: tuple[np.ndarray, ...]
) -> tuple[np.ndarray, np.ndarray]:
    """For dependencies on missing rows whose origin has an earlier row, these dependencies and the number of
    the last such row. Rows and dependencies are groups, origins and numbers."""
    group, origin, number = (np.concatenate(pair) for pair in zip(rows, deps, strict=True))
    is_dep = np.arange(number.size) >= rows[0].size
    order = np.lexsort((is_dep, number, origin, group))
    last = np.maximum.accumulate(np.where(is_dep[order], -1, np.arange(order.size)))
    dep, row = order[(last >= 0) & is_dep[order]], order[last[(last >= 0) & is_dep[order]]]
    present = (group[dep] == group[row]) & (origin[dep] == origin[row])
    present &= (number[row] > 0) & (number[row] < number[dep])
    place = dep[present] - rows[0].size
    by_place = np.argsort(place)
    return place[by_place], number[row[present]][by_place]


def _known_origins(known: Sequence[KnownIdentities]) -> list[pa.Array]:
    return [some.origins for some in known if some.origins is not None]


def _owned_by_origin(
    groups: np.ndarray,
    origin: np.ndarray,
    number: np.ndarray,
    offsets: np.ndarray,
    dep_origin: np.ndarray,
    dep_number: np.ndarray,
    faults: np.ndarray,
    known: Sequence[KnownIdentities],
    known_origins: list[np.ndarray],
    origins: pa.Array,
) -> DependencyEdges:
    """Edges of rows whose owner is an origin of their group."""
    per_group = max(1, len(origins))
    no_identity = (number < 0) | np.isin(faults, (_NO_ORIGIN, _NO_CLOCK, _NO_OWN, _NO_SEQ))
    owner, number = _make_unnamable(groups * per_group + origin, number.copy(), no_identity)
    encoded = [
        (some.groups * per_group + codes, _as_int64(some.names))
        for some, codes in zip(known, known_origins, strict=True)
    ]

    def dep_names(places: np.ndarray) -> pa.Array:
        numbers = pa.array(dep_number[places]).cast(pa.string())
        names = origins.take(pa.array(dep_origin[places])).cast(pa.string())
        return pc.binary_join_element_wise(names, numbers, ":")

    dep_groups = groups[row_of_edge(offsets)]
    return DependencyEdges(
        groups,
        owner,
        number,
        offsets,
        dep_groups * per_group + dep_origin,
        dep_number,
        faults,
        encoded,
        per_group,
        origins,
        dep_names,
    )
