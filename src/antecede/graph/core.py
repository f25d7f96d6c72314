"""The immediate-dependency graph of a run: its edges, and the figures that matter.

An edge leads from a message to one that depends on it with nothing between: the transitive reduction of
happened-before. A graph comes from a log with deliveries (`graph_of_run`) or from a table of parents
(`graph_of_dependencies`); `compute_figures` and `edge_table` take either.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from antecede.audit.core import allocate_pasts, split_runs
from antecede.audit.encoding import EncodedRun, encode_run, shown_messages, without_own_deliveries
from antecede.audit.passes import compute_pasts, create_message_streams
from antecede.causality.transitive_reduction import (
    EdgeArrays,
    immediate_dependencies,
    immediate_edges,
    past_sizes,
)
from antecede.causality.width import depths, largest_antichain, largest_frontier
from antecede.errors import InputError
from antecede.trace.bad_rows import BadRows
from antecede.trace.dependencies import Dependencies
from antecede.trace.reader import read_table

EXACT_WIDTH = 50_000
"""The largest antichain is computed for graphs of fewer messages than this."""
_BUSIEST_SHOWN = 10

EDGES = pa.schema([("run", pa.string()), ("cause", pa.string()), ("effect", pa.string())])


class Graph(NamedTuple):
    """A run's messages and their immediate dependencies; a message is its place in `names`."""

    run: str
    names: pa.Array
    """Messages by their own ids or as origin:seq; in a table of dependencies by their names."""
    processes: int
    start: np.ndarray
    """Where each message's immediate dependencies begin in `cause`; one more at the end."""
    cause: np.ndarray
    order: np.ndarray
    """All messages, causes first."""
    stated: np.ndarray | None = None
    """How many dependencies a table names for each message, immediate or not; in `order`."""


class MessageFanOut(msgspec.Struct, frozen=True):
    """A message with many immediate effects."""

    message: str
    effects: int


class GraphFigures(msgspec.Struct, frozen=True):
    """The figures that describe a dependency graph."""

    run: str
    processes: int
    messages: int
    stated: int | None
    """Dependencies that a table names; None for a log with deliveries."""
    stated_most: int | None
    dependencies: int
    """Immediate dependencies: the edges of the graph."""
    dependencies_mean: float
    dependencies_most: int
    dependencies_histogram: dict[int, int]
    """How many messages have each number of immediate dependencies."""
    depth: int
    """Messages in the longest chain."""
    frontier: int
    """The most messages without an effect at once, if every message comes as early as it can."""
    antichain: int | None
    """The width: the most messages of which none happened before another; None if the graph is too large to
    compute it."""
    busiest: list[MessageFanOut]


_COUNTS = pa.map_(pa.int64(), pa.int64())
_BUSIEST = pa.list_(pa.struct([("message", pa.string()), ("effects", pa.int64())]))
_TYPES = {
    "dependencies_mean": pa.float64(),
    "dependencies_histogram": _COUNTS,
    "busiest": _BUSIEST,
}
_FIGURES_TYPE = pa.struct(
    [(name, _TYPES.get(name, pa.int64())) for name in GraphFigures.__struct_fields__ if name != "run"]
)
RESULT_SCHEMA = pa.schema(
    [
        ("run", pa.string()),
        ("error", pa.string()),
        ("cause", pa.string()),
        ("effect", pa.string()),
        ("figures", _FIGURES_TYPE),
    ]
)
"""What Spark tasks return: a row for each edge, and one row with the figures."""


def graph_of_run(run: str, rows: pa.Table) -> Graph:
    """The graph of one run's rows, in any order."""
    rows = _to_single_group(without_own_deliveries(rows))
    try:
        encoded = encode_run(rows, {})
    except InputError as error:
        raise InputError(f"run {run}: {error}") from error
    with allocate_pasts(run, encoded.streams.first) as vectors:
        compute_pasts(encoded.rows, encoded.streams, vectors, create_message_streams(encoded.streams))
        sizes = past_sizes(vectors)
        start, cause = immediate_dependencies(
            encoded.streams.first, _previous(encoded), vectors, sizes, 0, len(vectors)
        )
    names = shown_messages(rows, encoded)
    return Graph(run, names, len(encoded.names), start, cause, np.argsort(sizes, kind="stable"))


def _to_single_group(rows: pa.Table) -> pa.Table:
    """The rows without audiences, which do not matter here: this leaves one stream per origin, the fewest
    possible."""
    columns = [name for name in rows.column_names if name not in ("group", "destinations")]
    return rows.select(columns).append_column("group", pa.repeat(pa.scalar("", pa.string()), rows.num_rows))


def _previous(encoded: EncodedRun) -> np.ndarray:
    """The previous message of each message's sender; -1 if none. A stream is everything that an origin
    sends."""
    previous = np.arange(-1, encoded.streams.messages - 1)
    previous[encoded.streams.first[:-1]] = -1
    return previous


def graph_of_dependencies(table: Dependencies) -> Graph:
    """The graph of a table of dependencies, without those that others imply."""
    size = len(table.order)
    place = np.empty(size, np.int64)
    place[table.order] = np.arange(size)
    effect = place[np.repeat(np.arange(size), np.diff(table.start))]
    # Each pair as one number: sorted by effect, the latest cause first, without duplicates.
    pairs = np.unique(effect * size + (size - 1 - place[table.cause])) if size else effect
    effect, cause = pairs // max(size, 1), size - 1 - pairs % max(size, 1)
    start = _starts(effect, size)
    immediate_only = immediate_edges(EdgeArrays(start, cause), table.process[table.order])
    effect, cause = table.order[effect[immediate_only]], table.order[cause[immediate_only]]
    by_effect = np.lexsort((cause, effect))
    return Graph(
        run=table.run,
        names=table.names,
        processes=len(np.unique(table.process)),
        start=_starts(effect[by_effect], size),
        cause=cause[by_effect],
        order=table.order,
        stated=np.diff(start),
    )


def _starts(effect: np.ndarray, size: int) -> np.ndarray:
    start = np.zeros(size + 1, np.int64)
    np.cumsum(np.bincount(effect, minlength=size), out=start[1:])
    return start


def edge_table(graph: Graph) -> pa.Table:
    """A row for each immediate dependency: run, cause, effect."""
    effect = np.repeat(np.arange(len(graph.order)), np.diff(graph.start))
    run = pa.repeat(pa.scalar(graph.run, pa.string()), len(effect))
    return pa.table([run, graph.names.take(pa.array(graph.cause)), graph.names.take(pa.array(effect))], EDGES)


def compute_figures(graph: Graph, exact_width: int = EXACT_WIDTH) -> GraphFigures:
    """Describe the graph; the largest antichain is computed below `exact_width` messages."""
    size = len(graph.order)
    counts = np.diff(graph.start)
    depth = depths(graph.start, graph.cause, graph.order)
    by_depth = graph.order[np.argsort(depth[graph.order], kind="stable")]
    effects = np.bincount(graph.cause, minlength=size)
    busiest = [each for each in np.argsort(-effects, kind="stable")[:_BUSIEST_SHOWN] if effects[each]]
    exact = size < exact_width
    return GraphFigures(
        run=graph.run,
        processes=graph.processes,
        messages=size,
        stated=None if graph.stated is None else int(graph.stated.sum()),
        stated_most=None if graph.stated is None else int(graph.stated.max(initial=0)),
        dependencies=len(graph.cause),
        dependencies_mean=len(graph.cause) / size if size else 0.0,
        dependencies_most=int(counts.max(initial=0)),
        dependencies_histogram={many: int(n) for many, n in enumerate(np.bincount(counts)) if n},
        depth=int(depth.max(initial=0)),
        frontier=int(largest_frontier(graph.start, graph.cause, by_depth)),
        antichain=len(largest_antichain(graph.start, graph.cause, graph.order)) if exact else None,
        busiest=[MessageFanOut(str(graph.names[each]), int(effects[each])) for each in busiest],
    )


def result_rows(graph: Graph, exact_width: int = EXACT_WIDTH) -> pa.Table:
    """The edges and the figures, as rows of `RESULT_SCHEMA`."""
    figures = msgspec.structs.asdict(compute_figures(graph, exact_width))
    figures["dependencies_histogram"] = list(figures["dependencies_histogram"].items())
    figures["busiest"] = [msgspec.structs.asdict(each) for each in figures["busiest"]]
    first = pa.Table.from_pylist([{"run": graph.run, "figures": figures}], schema=RESULT_SCHEMA)
    return pa.concat_tables([first, edge_table(graph)], promote_options="default").select(RESULT_SCHEMA.names)


def graph_files(path: Path, files: list[Path], bad: BadRows | None = None) -> Iterator[Graph]:
    """The graph of each run of a local trace; `bad` counts its rows."""
    for run, rows in split_runs(read_table(files, bad)):
        try:
            yield graph_of_run(run, rows)
        except InputError as error:
            raise InputError(f"{path}, {error}") from error
