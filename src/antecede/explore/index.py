"""Writes a run as small files that the page reads as it needs them, from any server of files.

`index.json` says what there is. Numbers are little-endian, columns one after the other:

- `events-N.bin`: events in sequence, `CHUNK` in a file: time (float64, ns from the start, or of a log without
  times a place from left to right), lane × 16 + kind,
  position in the lane, message, origin, position of the send (uint32 each), time since the send, time held
  (float32, ns; NaN if unknown).
- `tile-L-N.bin`: events by lane and time bucket (uint16), 2^(10+L) buckets over the run, 1024 in a file.
- `clock-N.bin`: checkpoint N: for each lane, how many events of each lane it knows of (uint32).
- `known-P.bin`: the same by the lane that is known: for each checkpoint and lane, how many events of lane P.
- `counts.bin`: for each checkpoint, how many events of each lane come before it (uint32).
- `messages-N.bin`: seq (int64), event of the send, where its deliveries begin (uint32 each).
- `deliveries-N.bin`: the deliveries of each message, as events (uint32).
- `ids-N.json`: the messages' own ids, if the trace has such.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from antecede import __version__
from antecede.errors import InputError
from antecede.explore.columns import RunColumns, read_columns
from antecede.explore.layout import (
    CHUNK,
    Events,
    EventSequence,
    count_by_bucket,
    lay_out,
    order_without_times,
    select_events,
)
from antecede.explore.marks import Judged, Mark, judge
from antecede.jit import njit_plain
from antecede.trace.schema import DELIVER, KINDS

INDEX_VERSION = 1
MAX_LANES = 20_000
TILE = 1_024
MESSAGES_IN_FILE = 65_536
DELIVERIES_IN_FILE = 262_144
_EVENTS_A_BUCKET = 64
_MAX_CELLS = 1 << 25
NONE = 0xFFFF_FFFF

Write = Callable[[str, bytes], None]
"""Called with the name of a file and its content."""
Progress = Callable[[str, int, int], None]


class Written(NamedTuple):
    """What was written."""

    run: str
    lanes: int
    events: int
    deliveries: int
    messages: int
    faults: int
    note: str


class ExploredRun(NamedTuple):
    """A run in the form that the explorer uses."""

    columns: RunColumns
    layout: EventSequence
    judged: Judged
    has_times: bool


def write_index(
    path: Path,
    title: str,
    run: str | None,
    write: Write,
    progress: Progress = lambda *_: None,
    chunk: int = CHUNK,
) -> Written:
    """Prepare a run of the trace at `path` for the explorer; the user knows it as `title`. Each file has
    `chunk` events."""
    return write_run(read_run(path, title, run, progress, chunk), title, write, progress, chunk)


def read_run(
    path: Path, title: str, run: str | None, progress: Progress = lambda *_: None, chunk: int = CHUNK
) -> ExploredRun:
    """Read a run, judge it, and order its events."""
    progress("reading", 0, 0)
    columns = read_columns(path, run)
    if len(columns.lanes) > MAX_LANES:
        raise InputError(f"{title} has {len(columns.lanes):,} processes; up to {MAX_LANES:,} can be shown")
    events = select_events(columns)
    progress("judging", 0, 0)
    judged = judge(path, columns, events)
    progress("ordering", 0, 0)
    # In tables without times, the time column is a copy of the index.
    has_times = bool((columns.time != columns.index_in_trace).any())
    if not has_times:
        events = order_without_times(events, judged.impossible)
    return ExploredRun(columns, lay_out(events, judged.impossible, chunk), judged, has_times)


def write_run(
    explored: ExploredRun,
    title: str,
    write: Write,
    progress: Progress = lambda *_: None,
    chunk: int = CHUNK,
) -> Written:
    """Write the files of a run that the page reads."""
    return _Writer(explored, write, chunk).write_all(title, progress)


class _Writer:
    def __init__(self, explored: ExploredRun, write: Write, chunk: int) -> None:
        self._chunk, self._write = chunk, write
        self._columns, self._layout, self._judged, self._has_times = explored
        layout = explored.layout
        self._events: Events = layout.events
        start = int(self._events.time.min())
        self._start = start
        # Unsigned arithmetic: times may be 2⁶⁴ apart.
        self._times = (self._events.time.view(np.uint64) - np.uint64(start % (1 << 64))).astype(np.float64)

    def write_all(self, title: str, progress: Progress) -> Written:
        chunks = -(-self._events.size // self._chunk)
        spans = []
        for number in range(chunks):
            progress("writing", number, chunks)
            spans += self._write_chunk(number)
        self._write_clocks()
        peaks = self._write_tiles()
        deliveries = self._write_messages()
        self._write_ids()
        columns, judged = self._columns, self._judged
        messages = int((self._events.send >= 0).sum())
        about: dict[str, Any] = {
            "version": INDEX_VERSION,
            "made_by": f"Antecede {__version__}",
            "title": title,
            "run": columns.run,
            "origins": columns.origins,
            "kinds": KINDS,
            "lane_events": np.diff(self._events.lane_start).tolist(),
            "events": self._events.size,
            "deliveries": deliveries,
            "messages": messages,
            "message_first": columns.messages.first.tolist(),
            "has_ids": columns.messages.ids is not None,
            "has_times": self._has_times,
            "start": str(self._start),
            "duration": max(1.0, float(self._times.max())),
            "chunk": self._chunk,
            "spans": spans,
            "stride": self._layout.stride,
            "checkpoints": len(self._layout.checkpoints),
            "peaks": peaks,
            "marks": [self._place_mark(mark) for mark in judged.marks],
            "faults": judged.faults,
            "note": judged.note,
        }
        self._write("index.json", msgspec.json.encode(about))
        return Written(
            columns.run,
            len(columns.lanes),
            self._events.size,
            deliveries,
            messages,
            judged.faults,
            judged.note,
        )

    def _place_mark(self, mark: Mark) -> dict[str, Any]:
        """A mark with the place of its event in the sequence, and its time."""
        described: dict[str, Any] = msgspec.to_builtins(mark)
        found = mark.event >= 0
        described["event"] = int(self._layout.place[mark.event]) if found else -1
        described["time"] = float(self._times[mark.event]) if found else 0.0
        return described

    def _write_chunk(self, number: int) -> list[float]:
        """Write one file of events; returns its earliest and latest time."""
        events = self._events
        rows = self._layout.sequence[number * self._chunk : (number + 1) * self._chunk]
        message, lane = events.message[rows], events.lane[rows]
        send = np.where(message >= 0, events.send[message], -1)
        is_sent = send >= 0
        since = np.where(is_sent, self._times[rows] - self._times[send], np.nan)
        held = events.held[rows]
        origin = self._columns.origin[events.row[rows]]
        columns = [
            self._times[rows].astype("<f8"),
            (lane * 16 + events.kind[rows]).astype("<u4"),
            events.position[rows].astype("<u4"),
            np.where(message >= 0, message, NONE).astype("<u4"),
            origin.astype("<u4"),
            np.where(is_sent, events.position[send], NONE).astype("<u4"),
            since.astype("<f4"),
            np.where(held >= 0, held, np.nan).astype("<f4"),
        ]
        self._write(f"events-{number}.bin", b"".join(column.tobytes() for column in columns))
        return [float(columns[0].min()), float(columns[0].max())]

    def _write_clocks(self) -> None:
        clocks = self._layout.checkpoints.astype("<u4", copy=False)
        for number, clock in enumerate(clocks):
            self._write(f"clock-{number}.bin", clock.tobytes())
        if len(clocks):
            self._write("counts.bin", np.ascontiguousarray(clocks.diagonal(axis1=1, axis2=2)).tobytes())
        for lane in range(clocks.shape[1] if len(clocks) else 0):
            self._write(f"known-{lane}.bin", np.ascontiguousarray(clocks[:, :, lane]).tobytes())

    def _write_tiles(self) -> list[int]:
        """Write counts by lane and time at every level of detail; returns the highest count of each level."""
        events = self._events
        lanes = len(events.lane_start) - 1
        level = 0
        while (TILE << level) * _EVENTS_A_BUCKET < events.size and (TILE << level + 1) * lanes <= _MAX_CELLS:
            level += 1
        counts = np.zeros((lanes, TILE << level), np.uint16)
        width = max(1.0, float(self._times.max())) / (TILE << level)
        count_by_bucket(events.lane, self._times, width, counts)
        peaks = []
        for current in range(level, -1, -1):
            peaks.append(int(counts.max(initial=0)))
            for tile in range(1 << current):
                part = counts[:, tile * TILE : (tile + 1) * TILE]
                self._write(f"tile-{current}-{tile}.bin", part.astype("<u2", copy=False).tobytes())
            halves = counts.astype(np.uint32).reshape(lanes, -1, 2).sum(axis=2)
            counts = np.minimum(halves, 65_535).astype(np.uint16)
        return peaks[::-1]

    def _write_messages(self) -> int:
        """Write messages with their sends and deliveries; returns the number of deliveries."""
        events, sequence = self._events, self._layout.sequence
        seq = self._columns.messages.seq.astype("<i8")
        first, deliveries = by_message(sequence, events.kind, events.message, len(seq))
        send = np.where(events.send >= 0, self._layout.place[events.send], NONE).astype("<u4")
        for number in range(-(-len(seq) // MESSAGES_IN_FILE)):
            low, high = number * MESSAGES_IN_FILE, min((number + 1) * MESSAGES_IN_FILE, len(seq))
            starts = first[low : high + 1].astype("<u4")
            data = seq[low:high].tobytes() + send[low:high].tobytes() + starts.tobytes()
            self._write(f"messages-{number}.bin", data)
        for number in range(-(-len(deliveries) // DELIVERIES_IN_FILE)):
            part = deliveries[number * DELIVERIES_IN_FILE : (number + 1) * DELIVERIES_IN_FILE]
            self._write(f"deliveries-{number}.bin", part.astype("<u4").tobytes())
        return len(deliveries)

    def _write_ids(self) -> None:
        for number, part in enumerate(_parts(self._columns.messages.ids or [], MESSAGES_IN_FILE)):
            self._write(f"ids-{number}.json", msgspec.json.encode(part))


def _parts(items: list[str], size: int) -> Iterator[list[str]]:
    for begin in range(0, len(items), size):
        yield items[begin : begin + size]


@njit_plain
def by_message(sequence: Any, kind: Any, message: Any, messages: Any) -> Any:
    """Where each message's deliveries begin, and the deliveries of all messages, as positions in the
    sequence."""
    first = np.zeros(messages + 1, np.int64)
    for event in sequence:
        if kind[event] & 7 == DELIVER and message[event] >= 0:
            first[message[event] + 1] += 1
    for number in range(messages):
        first[number + 1] += first[number]
    cursor = first[:-1].copy()
    found = np.empty(first[messages], np.int64)
    for place in range(len(sequence)):
        event = sequence[place]
        if kind[event] & 7 == DELIVER and message[event] >= 0:
            found[cursor[message[event]]] = place
            cursor[message[event]] += 1
    return first, found
