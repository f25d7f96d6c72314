"""The immediate-dependency graph of a run: its edges, and the figures that matter.

An edge leads from a message to one that depends on it with nothing between. From logs with deliveries
(`graph_of_run`), or from tables of parents (`graph_of_dependencies`); `figures` and `edges` take either.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from antecede.audit.core import allocate_pasts
from antecede.audit.encoding import EncodedRun, encode_run
from antecede.audit.passes import compute_pasts, create_sends
from antecede.causality.transitive_reduction import (
    EdgeArrays,
    immediate_dependencies,
    immediate_edges,
    past_sizes,
)
from antecede.causality.width import depths, largest_antichain, largest_frontier
from antecede.errors import InputError
from antecede.trace.dependencies import Dependencies
from antecede.trace.reader import read_batches

EXACT_WIDTH = 50_000
"""Below so many messages the largest antichain is found."""
BUSIEST = 10

EDGES = pa.schema([("run", pa.string()), ("cause", pa.string()), ("effect", pa.string())])


class Graph(NamedTuple):
    """A run's messages and their immediate dependencies; a message is its place in `names`."""

    run: str
    names: pa.Array
    """Messages as people write them: origin:seq, or what a table of dependencies calls them."""
    processes: int
    start: np.ndarray
    """Where each message's immediate dependencies begin in `cause`; one more at the end."""
    cause: np.ndarray
    order: np.ndarray
    """All messages, causes first."""
    stated: np.ndarray | None = None
    """How many dependencies a table of them names for each message, immediate or not; in `order`."""


class MessageFanOut(msgspec.Struct, frozen=True):
    """A message that many depend on immediately."""

    message: str
    effects: int


class GraphFigures(msgspec.Struct, frozen=True):
    """What a dependency graph looks like."""

    run: str
    processes: int
    messages: int
    stated: int | None
    """Dependencies that a table names; None for a log with deliveries."""
    stated_most: int | None
    dependencies: int
    """Immediate ones: the edges of the graph."""
    dependencies_mean: float
    dependencies_most: int
    dependencies_histogram: dict[int, int]
    """How many messages have so many immediate dependencies."""
    depth: int
    """Messages in the longest chain."""
    frontier: int
    """The most messages without effect at once, if every message comes as early as it can."""
    antichain: int | None
    """The most messages of which none happened before another; None if there are too many to find out."""
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
"""What Spark's tasks say of graphs: an edge a row, and the figures in a row of their own."""


def graph_of_run(run: str, rows: pa.Table) -> Graph:
    """The graph of one run's rows, in whatever order they come."""
    try:
        log = encode_run(_to_all(rows), {})
    except InputError as error:
        raise InputError(f"run {run}: {error}") from error
    with allocate_pasts(run, log.streams.first) as vectors:
        compute_pasts(log.rows, log.streams, vectors, create_sends(log.streams))
        sizes = past_sizes(vectors)
        start, cause = immediate_dependencies(
            log.streams.first, _previous(log), vectors, sizes, 0, len(vectors)
        )
    origins = pa.DictionaryArray.from_arrays(log.origins, pa.array(log.names, pa.string()))
    names = pc.binary_join_element_wise(origins.cast(pa.string()), pa.array(log.seqs).cast(pa.string()), ":")
    return Graph(run, names, len(log.names), start, cause, np.argsort(sizes, kind="stable"))


def _to_all(rows: pa.Table) -> pa.Table:
    """Whom messages are meant for does not matter here; a stream an origin is the least there can be."""
    there = [name for name in rows.column_names if name not in ("group", "destinations")]
    return rows.select(there).append_column("group", pa.repeat(pa.scalar("", pa.string()), rows.num_rows))


def _previous(log: EncodedRun) -> np.ndarray:
    """What each message's sender sent before it; -1 if nothing. Here a stream is all that an origin sends."""
    previous = np.arange(-1, log.streams.messages - 1)
    previous[log.streams.first[:-1]] = -1
    return previous


def graph_of_dependencies(given: Dependencies) -> Graph:
    """The graph of a table of dependencies: those that another one implies are left out."""
    size = len(given.order)
    place = np.empty(size, np.int64)
    place[given.order] = np.arange(size)
    effect = place[np.repeat(np.arange(size), np.diff(given.start))]
    # As one number each: by effect, of each the latest cause first, and every pair once.
    pairs = np.unique(effect * size + (size - 1 - place[given.cause])) if size else effect
    effect, cause = pairs // max(size, 1), size - 1 - pairs % max(size, 1)
    start = _starts(effect, size)
    kept = immediate_edges(EdgeArrays(start, cause), given.process[given.order])
    effect, cause = given.order[effect[kept]], given.order[cause[kept]]
    by_effect = np.lexsort((cause, effect))
    return Graph(
        run=given.run,
        names=given.names,
        processes=len(np.unique(given.process)),
        start=_starts(effect[by_effect], size),
        cause=cause[by_effect],
        order=given.order,
        stated=np.diff(start),
    )


def _starts(effect: np.ndarray, size: int) -> np.ndarray:
    start = np.zeros(size + 1, np.int64)
    np.cumsum(np.bincount(effect, minlength=size), out=start[1:])
    return start


def edges(graph: Graph) -> pa.Table:
    """A row for each immediate dependency: run, cause, effect."""
    effect = np.repeat(np.arange(len(graph.order)), np.diff(graph.start))
    run = pa.repeat(pa.scalar(graph.run, pa.string()), len(effect))
    return pa.table([run, graph.names.take(pa.array(graph.cause)), graph.names.take(pa.array(effect))], EDGES)


def figures(graph: Graph, exact_width: int = EXACT_WIDTH) -> GraphFigures:
    """What the graph looks like; the largest antichain is found below `exact_width` messages."""
    size = len(graph.order)
    counts = np.diff(graph.start)
    depth = depths(graph.start, graph.cause, graph.order)
    by_depth = graph.order[np.argsort(depth[graph.order], kind="stable")]
    effects = np.bincount(graph.cause, minlength=size)
    busiest = [each for each in np.argsort(-effects, kind="stable")[:BUSIEST] if effects[each]]
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


def told(graph: Graph, exact_width: int = EXACT_WIDTH) -> pa.Table:
    """The edges and the figures, as rows of `RESULT_SCHEMA`."""
    about = msgspec.structs.asdict(figures(graph, exact_width))
    about["dependencies_histogram"] = list(about["dependencies_histogram"].items())
    about["busiest"] = [msgspec.structs.asdict(each) for each in about["busiest"]]
    first = pa.Table.from_pylist([{"run": graph.run, "figures": about}], schema=RESULT_SCHEMA)
    return pa.concat_tables([first, edges(graph)], promote_options="default").select(RESULT_SCHEMA.names)


def graph_files(path: Path, files: list[Path]) -> Iterator[Graph]:
    """The graph of each run of a local trace."""
    events = pa.concat_tables(
        [table for file in files for table in read_batches(file)], promote_options="default"
    )
    for run in sorted(events.column("run").unique().to_pylist()):
        try:
            yield graph_of_run(run, events.filter(pc.equal(events.column("run"), run)))
        except InputError as error:
            raise InputError(f"{path}, {error}") from error
