"""Who depends on whom, read from the columns of a table into numbers.

A row's identity is an owner and a number: for opaque ids the group and a code of the id, for whole numbers
the group and the number itself, and where rows are numbered by origin, the group's origin and the number
there. Codes are good for one reading only; what is to be compared with the rows is coded along with them.
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
    """How rows say who they are and what they depend on."""

    IDS = "ids"
    """An id, and the ids of its causes, as text."""
    NUMBERS = "numbers"
    """The same as whole numbers."""
    STREAMS = "streams"
    """An origin and a number there, and causes likewise."""
    CLOCKS = "clocks"
    """An origin and a vector clock."""


class Columns(NamedTuple):
    """Which columns of a table say so: `id` and `deps`, text or whole numbers and lists of them; or `origin`,
    `seq` and `deps`, text and whole numbers and lists of both; or `origin` and `clock`, a map to numbers."""

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


class Known(NamedTuple):
    """Identities besides those of the rows: `owners` are groups of the table (by code) and, if the form has
    origins, `origins` their names; `names` are ids or numbers."""

    groups: np.ndarray
    origins: pa.Array | None
    names: pa.Array


class Links(NamedTuple):
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
    """For each row a place in FAULTS; 0 if it can be read."""
    known: list[tuple[np.ndarray, np.ndarray]]
    """Owners and numbers of what was coded along."""
    per_group: int
    """An owner is a group × this + an origin."""
    origins: pa.Array | None
    """The origins' names, by code."""
    dep_names: Any
    """A function: the names of dependencies, by their places."""


FAULTS = (
    "",
    "it has no id",
    "a dependency of it is null",
    "it has no origin",
    "it has no clock",
    "its clock has no entry above 0 for its own origin",
    "its clock has an entry that is null or below 0",
    "it has no number, or one below 0",
)
_NO_ID, _NULL_DEP, _NO_ORIGIN, _NO_CLOCK, _NO_OWN, _BAD_ENTRY, _NO_SEQ = range(1, len(FAULTS))


def read_links(
    table: pa.Table,
    columns: Columns,
    groups: np.ndarray,
    known: Sequence[Known] = (),
    over_gaps: bool = False,
) -> Links:
    """Read the table's dependencies; `known` are coded along with its rows.

    With `over_gaps`, what a clock counts is to come first even if what lies between is missing.
    """
    if columns.form is Form.CLOCKS:
        return _clocks(table, columns, groups, known, over_gaps)
    read = {Form.IDS: _ids, Form.NUMBERS: _numbers, Form.STREAMS: _streams}
    return read[columns.form](table, columns, groups, known)


def group_codes(table: pa.Table, columns: Columns) -> tuple[np.ndarray, pa.Array]:
    """The group of each row as a code, and the groups' names."""
    if columns.group is None:
        return np.zeros(table.num_rows, np.int64), pa.array([None], TEXT)
    coded = _one(table, columns.group).cast(TEXT).dictionary_encode(null_encoding="encode")
    return _numpy(coded.indices), coded.dictionary


def _one(table: pa.Table, name: str | None) -> pa.Array:
    column = table.column(name)
    if pa.types.is_string(column.type) and column.num_chunks > 1:
        column = column.cast(TEXT)
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)


def _numpy(numbers: pa.Array) -> np.ndarray:
    return np.asarray(numbers.to_numpy(zero_copy_only=False), np.int64)


def _nulls(values: pa.Array) -> np.ndarray:
    return np.asarray(values.is_null().to_numpy(zero_copy_only=False))


def _lists(column: pa.Array) -> tuple[np.ndarray, pa.Array]:
    """Where each row's values begin, and all values; a null is an empty list."""
    lengths = _numpy(pc.list_value_length(column).fill_null(0)) if not pa.types.is_map(column.type) else None
    if lengths is None:
        raw = np.diff(column.offsets.to_numpy())
        lengths = np.where(_nulls(column), 0, raw).astype(np.int64)
        column = column.cast(
            pa.list_(pa.struct([("key", column.type.key_type), ("value", column.type.item_type)]))
        )
    return np.concatenate(([0], np.cumsum(lengths))), column.flatten()


def rows_of(offsets: np.ndarray) -> np.ndarray:
    """The row of each dependency."""
    return np.repeat(np.arange(offsets.size - 1), np.diff(offsets))


def _codes(parts: Sequence[pa.Array]) -> tuple[pa.Array, list[np.ndarray]]:
    """The texts that are in any of the arrays, and for each array their places there; -1 for null."""
    coded = pa.concat_arrays([part.cast(TEXT) for part in parts]).dictionary_encode()
    codes = _numpy(coded.indices.fill_null(-1))
    return coded.dictionary, np.split(codes, np.cumsum([len(part) for part in parts])[:-1])


def _ids(table: pa.Table, columns: Columns, groups: np.ndarray, known: Sequence[Known]) -> Links:
    ids = _one(table, columns.id)
    offsets, values = _lists(_one(table, columns.deps))
    _, (own, dep, *others) = _codes([ids, values, *(some.names for some in known)])
    along = [(some.groups, codes) for some, codes in zip(known, others, strict=True)]
    return _plain(groups, own, own < 0, offsets, values, dep, dep < 0, along)


def _numbers(table: pa.Table, columns: Columns, groups: np.ndarray, known: Sequence[Known]) -> Links:
    ids = _one(table, columns.id)
    offsets, values = _lists(_one(table, columns.deps))
    own, dep = _numpy(ids.fill_null(0)), _numpy(values.fill_null(0))
    along = [(some.groups, _numpy(some.names)) for some in known]
    return _plain(groups, own, _nulls(ids), offsets, values, dep, _nulls(values), along)


def _plain(
    groups: np.ndarray,
    own: np.ndarray,
    no_id: np.ndarray,
    offsets: np.ndarray,
    values: pa.Array,
    dep: np.ndarray,
    no_dep: np.ndarray,
    along: list[tuple[np.ndarray, np.ndarray]],
) -> Links:
    """Where the group is the owner."""
    of = rows_of(offsets)
    faults = np.where(no_id, _NO_ID, 0)
    faults[of[no_dep]] = np.where(faults[of[no_dep]], faults[of[no_dep]], _NULL_DEP)
    owner, number = _without_identity(groups.copy(), own.copy(), no_id)
    return Links(
        groups,
        owner,
        number,
        offsets,
        groups[of],
        dep,
        faults,
        along,
        1,
        None,
        lambda places: values.take(pa.array(places)).cast(pa.string()),
    )


def _without_identity(
    owner: np.ndarray, number: np.ndarray, lost: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Rows without an identity get one that nobody can name, so that none is another's duplicate."""
    owner[lost], number[lost] = -1, np.flatnonzero(lost)
    return owner, number


def _streams(table: pa.Table, columns: Columns, groups: np.ndarray, known: Sequence[Known]) -> Links:
    origins, seqs = _one(table, columns.origin), _one(table, columns.seq)
    offsets, values = _lists(_one(table, columns.deps))
    dep_origins, dep_seqs = values.field(0), values.field(1)
    named, (own, dep, *others) = _codes([origins, dep_origins, *_origins(known)])
    number, of = _numpy(seqs.fill_null(-1)), rows_of(offsets)
    faults = np.where(own < 0, _NO_ORIGIN, np.where(number < 0, _NO_SEQ, 0))
    no_dep = _nulls(values) | (dep < 0) | _nulls(dep_seqs)
    faults[of[no_dep]] = np.where(faults[of[no_dep]], faults[of[no_dep]], _NULL_DEP)
    return _owned(
        groups, own, number, offsets, dep, _numpy(dep_seqs.fill_null(-1)), faults, known, others, named
    )


def _clocks(
    table: pa.Table, columns: Columns, groups: np.ndarray, known: Sequence[Known], over_gaps: bool
) -> Links:
    """A clock counts what its row knows of each origin, itself included: so it depends on the last of every
    other origin, and on the one before itself of its own."""
    origins, clocks = _one(table, columns.origin), _one(table, columns.clock)
    offsets, values = _lists(clocks)
    dep_origins, entries = values.field(0), values.field(1)
    named, (own, dep, *others) = _codes([origins, dep_origins, *_origins(known)])
    of = rows_of(offsets)
    count = _numpy(entries.fill_null(-1))
    is_own = dep == own[of]
    number = np.zeros(len(origins), np.int64)
    number[of[is_own]] = count[is_own]
    faults = np.zeros(len(origins), np.int64)
    faults[number <= 0] = _NO_OWN
    faults[of[(count < 0) | (dep < 0)]] = _BAD_ENTRY
    faults[_nulls(clocks)] = _NO_CLOCK
    faults[own < 0] = _NO_ORIGIN
    count = count - is_own
    kept = np.flatnonzero(count > 0)
    of, dep, count = of[kept], dep[kept], count[kept]
    if over_gaps:
        place, before = _last_before((groups, own, number), (groups[of], dep, count))
        of, dep, count = (np.insert(all_of, place + 1, all_of[place]) for all_of in (of, dep, count))
        count[place + 1 + np.arange(place.size)] = before
    offsets = np.concatenate(([0], np.cumsum(np.bincount(of, minlength=len(origins)))))
    return _owned(groups, own, number, offsets, dep, count, faults, known, others, named)


def _last_before(rows: tuple[np.ndarray, ...], deps: tuple[np.ndarray, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Dependencies on what is not among the rows, though an earlier row of the same origin is; and the number
    of the last such. Both are given as groups, origins and numbers."""
    group, origin, number = (np.concatenate(pair) for pair in zip(rows, deps, strict=True))
    is_dep = np.arange(number.size) >= rows[0].size
    order = np.lexsort((is_dep, number, origin, group))
    last = np.maximum.accumulate(np.where(is_dep[order], -1, np.arange(order.size)))
    dep, row = order[(last >= 0) & is_dep[order]], order[last[(last >= 0) & is_dep[order]]]
    found = (group[dep] == group[row]) & (origin[dep] == origin[row])
    found &= (number[row] > 0) & (number[row] < number[dep])
    place = dep[found] - rows[0].size
    in_order = np.argsort(place)
    return place[in_order], number[row[found]][in_order]


def _origins(known: Sequence[Known]) -> list[pa.Array]:
    return [some.origins for some in known if some.origins is not None]


def _owned(
    groups: np.ndarray,
    origin: np.ndarray,
    number: np.ndarray,
    offsets: np.ndarray,
    dep_origin: np.ndarray,
    dep_number: np.ndarray,
    faults: np.ndarray,
    known: Sequence[Known],
    known_origins: list[np.ndarray],
    origins: pa.Array,
) -> Links:
    """Where the owner is an origin of a group."""
    many = max(1, len(origins))
    no_identity = np.isin(faults, (_NO_ORIGIN, _NO_CLOCK, _NO_OWN, _NO_SEQ))
    owner, number = _without_identity(groups * many + origin, number.copy(), no_identity)
    along = [
        (some.groups * many + codes, _numpy(some.names))
        for some, codes in zip(known, known_origins, strict=True)
    ]

    def named(places: np.ndarray) -> pa.Array:
        numbers = pa.array(dep_number[places]).cast(pa.string())
        of = origins.take(pa.array(dep_origin[places])).cast(pa.string())
        return pc.binary_join_element_wise(of, numbers, ":")

    dep_groups = groups[rows_of(offsets)]
    return Links(
        groups,
        owner,
        number,
        offsets,
        dep_groups * many + dep_origin,
        dep_number,
        faults,
        along,
        many,
        origins,
        named,
    )
