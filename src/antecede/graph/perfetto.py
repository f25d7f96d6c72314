"""Exports a run for Perfetto's viewer, in the JSON format of Chrome's traces.

A process is a track; a send, a delivery or a change of the group is a slice. The viewer follows arrows (*flow
events*) from slice to slice as far as they lead, and freezes if that is far (google/perfetto#3224). So there
is an arrow for an immediate dependency only: from the send of the cause to its delivery at the process that
then sends the effect. The arrow ends there, and the send of the effect follows on the same track.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from antecede.errors import InputError
from antecede.graph.core import graph_of_run
from antecede.trace.reader import read_run
from antecede.trace.schema import SCHEMA, shown_message
from antecede.trace.writer import write_whole

_SLICE_NS = 1_000
"""The duration of a slice, if the next event leaves room."""

Row = dict[str, Any]


class PerfettoExport(msgspec.Struct, frozen=True):
    """Describes the file that was written."""

    file: str
    processes: int
    events: int
    flows: int


def export_perfetto(trace: Path, file: Path, run: str | None = None) -> PerfettoExport:
    """Write a run's events, and an arrow for each immediate dependency between processes."""
    every = read_run(trace, run)
    rows = [row for row in every if row["kind"] != "receive"]
    if not rows:
        raise InputError(f"{trace} has no send and no delivery")
    if file.is_dir():
        raise InputError(f"{file} is a folder; a log goes into a file")
    received: dict[tuple[str, str], int] = {}
    for row in every:
        if row["kind"] == "receive":
            received.setdefault((row["process"], shown_message(row)), row["time"])
    start = min(row["time"] for row in rows)
    tracks = _tracks(rows)
    events = list(_metadata(tracks, rows[0]["run"]))
    slices: dict[tuple[str, str, str], float] = {}
    for number, (process, own) in enumerate(tracks.items(), 1):
        for row, (begin, end) in zip(own, _times(own, start), strict=True):
            message = shown_message(row)
            slices.setdefault((row["kind"], process, message), begin)
            waited = received.get((process, message)) if row["kind"] == "deliver" else None
            held = {} if waited is None else {"held_ns": max(0, row["time"] - waited)}
            about = {"message": message, "origin": row["origin"], "index": row["index"], **held}
            place = {"pid": 1, "tid": number, "ts": begin, "dur": end - begin}
            events.append(
                {"ph": "X", "name": f"{row['kind']} {message}", "cat": row["kind"], **place, "args": about}
            )
    flows = list(_flows(rows, {name: place for place, name in enumerate(tracks, 1)}, slices))
    document = {"displayTimeUnit": "ms", "traceEvents": events + flows}
    file.parent.mkdir(parents=True, exist_ok=True)
    write_whole(file, msgspec.json.encode(document))
    return PerfettoExport(str(file), len(tracks), len(rows), len(flows) // 2)


def _tracks(rows: list[Row]) -> dict[str, list[Row]]:
    """The events of each process in its own order."""
    tracks: dict[str, list[Row]] = {name: [] for name in sorted({row["process"] for row in rows})}
    for row in sorted(rows, key=lambda row: row["index"]):
        tracks[row["process"]].append(row)
    return tracks


def _metadata(tracks: dict[str, list[Row]], run: str) -> Iterator[Row]:
    yield {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": run}}
    for number, name in enumerate(tracks, 1):
        yield {"ph": "M", "name": "thread_name", "pid": 1, "tid": number, "args": {"name": name}}
        yield {
            "ph": "M",
            "name": "thread_sort_index",
            "pid": 1,
            "tid": number,
            "args": {"sort_index": number},
        }


def _times(own: list[Row], start: int) -> Iterator[tuple[float, float]]:
    """The start and end of each slice of a track, in microseconds; slices of a track must not overlap."""
    begins: list[int] = []
    for row in own:
        begins.append(max(row["time"] - start, begins[-1] + 1) if begins else row["time"] - start)
    for begin, following in pairwise([*begins, begins[-1] + _SLICE_NS]):
        yield begin / 1000, min(begin + _SLICE_NS, following) / 1000


def _flows(
    rows: list[Row], tracks: dict[str, int], slices: dict[tuple[str, str, str], float]
) -> Iterator[Row]:
    """Two events for each arrow: where it starts and where it ends."""
    graph = graph_of_run(rows[0]["run"], pa.Table.from_pylist(rows, schema=SCHEMA))
    names = graph.names.to_pylist()
    origin = {shown_message(row): row["process"] for row in rows if row["kind"] == "send"}
    number = 0
    for effect, (begin, end) in enumerate(pairwise(graph.start.tolist())):
        for cause in graph.cause[begin:end].tolist():
            sender, receiver = origin[names[cause]], origin[names[effect]]
            arrives = slices.get(("deliver", receiver, names[cause]))
            if sender == receiver or arrives is None:
                continue
            number += 1
            leaves = slices["send", sender, names[cause]]
            flow = {"name": "cause", "cat": "cause", "id": number, "pid": 1}
            yield {"ph": "s", **flow, "tid": tracks[sender], "ts": leaves}
            yield {"ph": "f", "bp": "e", **flow, "tid": tracks[receiver], "ts": arrives}
