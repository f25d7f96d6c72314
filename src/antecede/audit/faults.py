"""Faults of single deliveries, listed with the worst first: missing, duplicate, orphan and impossible.

Violations of causal order have lists of their own, with the path from cause to effect (`audit.core`). The
lists of a run are ordered by consequences, process and message. So they are cut off at the same place whether
one task or many judge the run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from antecede.audit.encoding import EncodedRun
from antecede.audit.passes import DUPLICATE, IMPOSSIBLE
from antecede.audit.roots import MissingMessage
from antecede.trace.schema import shown_message

KINDS = ("missing", "duplicate", "orphan", "impossible")
_ALL_KINDS = (*KINDS, "view", "cut", "split", "ended", "snapshot")
"""The last four occur only in groups that change (`audit.changes`)."""


class DeliveryFault(msgspec.Struct, frozen=True):
    """A message that was not delivered at a process as it should have been."""

    kind: str
    """One of `KINDS`, or a kind that only changing groups have."""
    run: str
    process: str
    message: str
    """The message's own id, or origin:seq."""
    sender: str | None
    """None if nobody sent it."""
    index: int | None
    """The index of the delivery in the process's own order; for a duplicate, of the second delivery; None if
    the message is missing."""
    consequences: int
    """How many deliveries are wrong because of it: those that needed a missing message; those of a duplicate
    after the first; those of an orphan or an impossible message at this process."""
    text: str


class MessageKey(NamedTuple):
    """A message as people see it."""

    origin: int
    """The rank of its sender."""
    seq: int
    shown: str
    """The message's own id, or origin:seq."""


MessageKeys = Mapping[int, MessageKey]
"""The keys by message number."""


class WrongDelivery(NamedTuple):
    """Deliveries of one message at one process, as numbers."""

    process: int
    message: int
    at: int
    """The index of the first of them."""
    times: int


class OrphanDelivery(NamedTuple):
    """Deliveries at one process of a message that nobody sent."""

    process: str
    message: str
    first: int
    """The index of the first of them."""
    second: int | None
    times: int


class WrongDeliveries(NamedTuple):
    """The worst faulty deliveries of one run, by kind, each list worst first."""

    missing: Sequence[MissingMessage]
    duplicates: Sequence[WrongDelivery]
    impossible: Sequence[WrongDelivery]
    orphans: Sequence[OrphanDelivery]

    def messages(self) -> set[int]:
        """The numbers of the messages that were sent."""
        return {each.message for kind in self[:3] for each in kind}


def wrong_deliveries(
    rows: pa.Table, encoded: EncodedRun, missing: Sequence[MissingMessage], most: int
) -> WrongDeliveries:
    """The faulty deliveries that the passes marked in the rows of a run."""
    orphans = _orphan_deliveries(rows, encoded)
    return WrongDeliveries(
        missing=missing,
        duplicates=_marked(encoded, DUPLICATE, most),
        impossible=_marked(encoded, IMPOSSIBLE, most),
        orphans=orphans,
    )


def _marked(encoded: EncodedRun, mark: int, most: int) -> list[WrongDelivery]:
    """The deliveries that carry a mark, by process and message."""
    marked = np.flatnonzero(encoded.rows.fault & mark)
    if not len(marked):
        return []
    process = np.repeat(encoded.rows.process, np.diff(encoded.rows.start))[marked]
    key = process * encoded.streams.messages + encoded.rows.message[marked]
    # Rows follow each process's own order, so the first of several has the lowest index.
    _, first, count = np.unique(key, return_index=True, return_counts=True)
    worst = np.argsort(-count, kind="stable")[:most]
    places = marked[first[worst]]
    return [
        WrongDelivery(*map(int, each))
        for each in zip(
            process[first[worst]],
            encoded.rows.message[places],
            encoded.positions[places],
            count[worst],
            strict=True,
        )
    ]


def _orphan_deliveries(rows: pa.Table, encoded: EncodedRun) -> list[OrphanDelivery]:
    places = np.flatnonzero(encoded.rows.message < 0)
    columns = [name for name in ("process", "origin", "seq", "message", "index") if name in rows.column_names]
    taken = rows.select(columns).take(pa.array(encoded.table_rows[places])).to_pylist()
    found: dict[tuple[str, str, int], list[int]] = {}
    shown: dict[tuple[str, str, int], str] = {}
    for row in taken:
        key = row["process"], row["origin"], row["seq"]
        found.setdefault(key, []).append(row["index"])
        shown[key] = shown_message(row)
    return [
        OrphanDelivery(key[0], shown[key], indices[0], indices[1] if len(indices) > 1 else None, len(indices))
        for key, indices in sorted(found.items())
    ]


def describe_faults(
    run: str, names: Sequence[str], keys: MessageKeys, wrong: WrongDeliveries, most: int
) -> list[DeliveryFault]:
    """The faults of a run as sentences, at most `most` of a kind, worst first."""
    missing = [
        _fault("missing", run, names[process], keys[message], names, None, consequences)
        for process, message, consequences in wrong.missing
    ]
    duplicates = [
        _fault("duplicate", run, names[process], keys[message], names, at, times)
        for process, message, at, times in wrong.duplicates
    ]
    impossible = [
        _fault("impossible", run, names[process], keys[message], names, at, times)
        for process, message, at, times in wrong.impossible
    ]
    repeated, orphans = [], []
    for each in wrong.orphans:
        unsent = MessageKey(-1, 0, each.message)
        orphans.append(_fault("orphan", run, each.process, unsent, names, each.first, each.times))
        if each.second is not None:
            repeated.append(
                _fault("duplicate", run, each.process, unsent, names, each.second, each.times - 1)
            )
    lists = (missing, duplicates + repeated, orphans, impossible)
    return worst_first(each for faults in lists for each in sorted(faults, key=_severity)[:most])


def _severity(fault: DeliveryFault) -> tuple[int, str]:
    return -fault.consequences, fault.process


def worst_first(faults: Iterable[DeliveryFault]) -> list[DeliveryFault]:
    """Faults of several kinds and runs, most consequences first; the sort is stable."""
    return sorted(faults, key=lambda fault: (-fault.consequences, _ALL_KINDS.index(fault.kind), fault.run))


def limit_kinds(faults: Iterable[DeliveryFault], limit: int) -> list[DeliveryFault]:
    """The first `limit` faults of each kind."""
    seen = dict.fromkeys(_ALL_KINDS, 0)
    chosen = []
    for fault in faults:
        seen[fault.kind] += 1
        if seen[fault.kind] <= limit:
            chosen.append(fault)
    return chosen


def _fault(
    kind: str,
    run: str,
    process: str,
    key: MessageKey,
    names: Sequence[str],
    index: int | None,
    consequences: int,
) -> DeliveryFault:
    sender, message = names[key.origin] if key.origin >= 0 else None, key.shown
    if kind == "missing":
        needed = f" {consequences:,} of its deliveries needed it." if consequences else ""
        text = f"{process} never delivered {message}, which {sender} sent.{needed}"
    elif kind == "duplicate":
        times = "twice" if consequences == 1 else f"{consequences + 1:,} times"
        text = f"{process} delivered {message} {times}, the second time at index {index}."
    elif kind == "orphan":
        text = f"{process} delivered {message} at index {index}, which nobody sent."
    else:
        text = f"{process} delivered {message} at index {index}, before {sender} sent it."
    return DeliveryFault(kind, run, process, message, sender, index, consequences, text)
