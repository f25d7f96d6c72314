"""The roots of violations: messages that a process did not have in time, and how many deliveries needed them.

A late root is *open* from the first delivery that needed it until the message is delivered; then its
consequences are known. A process has a fixed number of open roots; if more are open at once, the newest are
counted but not reported. Closed roots are in a heap of the worst. So what is reported depends on each process
alone, not on how processes are distributed over tasks. Messages that are never delivered are gaps in a
stream; a delivery that needed one needed all gaps below it, so a count for each gap is enough.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from antecede.jit import njit_plain

if TYPE_CHECKING:
    from antecede.audit.passes import Gaps, Streams

_MAX_OPEN = 1_000
_MIN_OPEN = 16
_OPEN_OF_RUN = 1 << 22
"""The most open roots of all processes of a run together."""


class Root(NamedTuple):
    """A message that a process did not have in time, and the consequences."""

    process: int
    cause: int
    late: int
    """1 if the process received it afterwards, 0 if never."""
    effect: int
    """The first message the process delivered that needed it."""
    consequences: int
    """How many deliveries needed it."""


class LateRoots(NamedTuple):
    """The late roots of some processes, as far as they are known."""

    open: np.ndarray
    """For each process: cause, effect and consequences of each open root."""
    open_count: np.ndarray
    """How many open roots each process has."""
    closed: np.ndarray
    """A heap of the worst roots, least severe first; rows are as in `Root`."""
    closed_count: np.ndarray
    """The number of entries in the heap, as an array of one."""


class MissingMessage(NamedTuple):
    """A message that was addressed to a process and never delivered there."""

    process: int
    message: int
    consequences: int
    """How many deliveries of the process needed it."""


def create_late_roots(processes: int, most: int, processes_of_run: int) -> LateRoots:
    """Room for the worst `most` roots of some of a run's processes."""
    room = min(_MAX_OPEN, max(_MIN_OPEN, _OPEN_OF_RUN // max(processes_of_run, 1))) if most else 0
    return LateRoots(
        open=np.zeros((processes, room, 3), np.int64),
        open_count=np.zeros(processes, np.int64),
        closed=np.zeros((most, len(Root._fields)), np.int64),
        closed_count=np.zeros(1, np.int64),
    )


def severity_of_root(root: Root) -> tuple[int, int, int, int]:
    """A sort key, worst first: by consequences; late ones first among equals."""
    return -root.consequences, -root.late, root.process, root.cause


def worst_roots(late: LateRoots, gaps: Gaps, streams: Streams, most: int) -> list[Root]:
    """The worst roots first, late and never."""
    roots = [Root(*map(int, root)) for root in late.closed[: int(late.closed_count[0])]]
    if len(gaps.number) and most:
        process, cause, consequences = _gaps_in_numbers(gaps, streams)
        needed = np.flatnonzero(consequences)
        worst = needed[np.lexsort((cause[needed], process[needed], -consequences[needed]))[:most]]
        roots += [
            Root(int(process[gap]), int(cause[gap]), 0, int(gaps.effect[gap]), int(consequences[gap]))
            for gap in worst
        ]
    return sorted(roots, key=severity_of_root)[:most]


def worst_missing(gaps: Gaps, streams: Streams, most: int) -> list[MissingMessage]:
    """The messages that processes never delivered, those with the most consequences first."""
    process, cause, consequences = _gaps_in_numbers(gaps, streams)
    worst = np.lexsort((cause, process, -consequences))[:most]
    return [MissingMessage(int(process[gap]), int(cause[gap]), int(consequences[gap])) for gap in worst]


def _gaps_in_numbers(gaps: Gaps, streams: Streams) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The process, the message and the consequences of each gap."""
    sizes = np.diff(gaps.begin)
    entry = np.repeat(np.arange(len(sizes)), sizes)
    # A delivery that needed a gap needed all gaps below it in the stream.
    suffix = np.cumsum(gaps.reached[::-1])[::-1]
    consequences = suffix - np.append(suffix, 0)[gaps.begin[1:]][entry]
    process = np.repeat(np.arange(len(gaps.start) - 1), np.diff(gaps.start))[entry]
    return process, streams.first[gaps.stream[entry]] + gaps.number, consequences


@njit_plain
def open_root(late: Any, process: Any, cause: Any, effect: Any) -> Any:
    """Open a root: a delivery needs a message that no earlier delivery needed."""
    count = late.open_count[process]
    if count < late.open.shape[1]:
        root = late.open[process, count]
        root[0], root[1], root[2] = cause, effect, 0
        late.open_count[process] = count + 1


@njit_plain
def add_consequences(late: Any, process: Any, vector: Any, first: Any, stream_of: Any) -> Any:
    """Add one consequence to each of the process's open roots that this delivery needs."""
    for place in range(late.open_count[process]):
        root = late.open[process, place]
        stream = stream_of[root[0]]
        root[2] += vector[stream] > root[0] - first[stream]


@njit_plain
def close_root(late: Any, process: Any, message: Any) -> Any:
    """The late cause has been delivered: its root is complete."""
    last = late.open_count[process] - 1
    for place in range(last + 1):
        root = late.open[process, place]
        if root[0] == message:
            _keep_if_worse(late, process, root)
            for field in range(3):
                root[field] = late.open[process, last, field]
            late.open_count[process] = last
            return


@njit_plain
def _keep_if_worse(late: Any, process: Any, root: Any) -> Any:
    """Put a root into the heap of the worst. If the heap is full, replace the least severe one, unless the
    root is less severe."""
    closed, count = late.closed, late.closed_count[0]
    if count < len(closed):
        place = count
        late.closed_count[0] = count + 1
        _set(closed[place], process, root)
        while place > 0 and _is_worse(closed[(place - 1) >> 1], closed[place]):
            _swap(closed, place, (place - 1) >> 1)
            place = (place - 1) >> 1
    elif count and _is_less(closed[0], process, root):
        place = 0
        _set(closed[0], process, root)
        while 2 * place + 1 < count:
            child = 2 * place + 1
            if child + 1 < count and _is_worse(closed[child], closed[child + 1]):
                child += 1
            if not _is_worse(closed[place], closed[child]):
                return
            _swap(closed, place, child)
            place = child


@njit_plain
def _set(entry: Any, process: Any, root: Any) -> Any:
    entry[0], entry[1], entry[2], entry[3], entry[4] = process, root[0], 1, root[1], root[2]


@njit_plain
def _is_worse(one: Any, other: Any) -> Any:
    """Whether the first of two late roots is reported before the second."""
    if one[4] != other[4]:
        return one[4] > other[4]
    return one[0] < other[0] or (one[0] == other[0] and one[1] < other[1])


@njit_plain
def _is_less(entry: Any, process: Any, root: Any) -> Any:
    """Whether an entry of the heap would be reported after a root that is not in it."""
    if entry[4] != root[2]:
        return entry[4] < root[2]
    return process < entry[0] or (process == entry[0] and root[0] < entry[1])


@njit_plain
def _swap(entries: Any, one: Any, other: Any) -> Any:
    for field in range(entries.shape[1]):
        kept = entries[one, field]
        entries[one, field] = entries[other, field]
        entries[other, field] = kept
