"""Event rows as Arrow tables: the one place where ranks and codes become the columns of the schema.

The simulator and live members both have their events as numbers. Names are dictionary-encoded, so a row costs
a few integers until it is written. Time and memory O(rows).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property

import numpy as np
import pyarrow as pa

from antecede.trace.schema import ADMIT, FIELDS, KINDS, RECEIVE, SEND

_MAX_DICTIONARY = 65_536
"""With more names, each batch would have to repeat a dictionary that is too long."""


class EventTables:
    """Builds tables of the events of one run, among processes with these names."""

    def __init__(self, run: str, groups: Iterable[str], names: Iterable[str]) -> None:
        self._values = ([run], list(groups), list(names), list(KINDS))

    @cached_property
    def _dictionaries(self) -> tuple[pa.Array, ...]:
        # Delayed until the first rows: Arrow's first array imports pandas, for which a live member cannot
        # wait.
        return tuple(pa.array(values) for values in self._values)

    def build(
        self,
        events: np.ndarray,
        index: np.ndarray,
        payload_bytes: np.ndarray,
        group: np.ndarray | None = None,
        deps: Sequence[Sequence[str] | None] | None = None,
        member: np.ndarray | None = None,
    ) -> pa.Table:
        """A table with a row for each row of `events`: kind, process, origin, seq, time, link, control bytes.

        `link` counts for receives, control and payload bytes for sends. All events are in the first group
        unless `group` says otherwise. Without `deps` there is no such column, nor without `member`, which
        counts for changes of the group.
        """
        kind, process, origin, seq, time, link, control = np.ascontiguousarray(events.T)
        not_sends = kind != SEND
        run, groups, names, kinds = self._dictionaries
        columns = {
            "run": _by_code(np.zeros(len(events)), run),
            "group": _by_code(np.zeros(len(events)) if group is None else group, groups),
            "process": _by_code(process, names),
            "index": pa.array(index),
            "kind": _by_code(kind, kinds),
            "origin": _by_code(origin, names),
            "seq": pa.array(seq),
            "time": pa.array(time),
        }
        if deps is not None:
            columns["deps"] = pa.array(deps, FIELDS["deps"][0])
        columns |= {
            "control_bytes": pa.array(control, mask=not_sends),
            "payload_bytes": pa.array(payload_bytes, mask=not_sends),
            "link": _by_code(link, names, kind != RECEIVE),
        }
        if member is not None:
            columns["member"] = _by_code(member, names, kind < ADMIT)
        return pa.table(columns)


def _by_code(codes: np.ndarray, names: pa.Array, absent: np.ndarray | None = None) -> pa.Array:
    """Names by their codes; null where they are `absent`."""
    indices = pa.array(codes.astype(np.int32), mask=absent)
    if len(names) > _MAX_DICTIONARY:
        return names.take(indices)
    return pa.DictionaryArray.from_arrays(indices, names)
