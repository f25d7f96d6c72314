"""Builds the dependency graph of a trace wherever it is stored, and writes it to a folder: edges and a
summary."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from antecede.audit.run import Progress, events_on_spark, local_path, splittable_files
from antecede.engine_choice import wants_spark
from antecede.errors import InputError
from antecede.graph.core import (
    EDGES,
    EXACT_WIDTH,
    Graph,
    GraphFigures,
    compute_figures,
    edge_table,
    graph_files,
    graph_of_dependencies,
)
from antecede.trace.bad_rows import BadRows
from antecede.trace.dependencies import dependency_file, read_dependencies
from antecede.trace.parquet_files import parquet_writer
from antecede.trace.reader import check_files, estimate_rows, trace_files
from antecede.trace.writer import write_whole

EDGES_FILE, SUMMARY = "edges.parquet", "summary.json"
_UNFINISHED = f".{EDGES_FILE}.writing"


def graph_path(
    path: str,
    out: Path | None,
    engine: str = "auto",
    master: str | None = None,
    progress: Progress = lambda *_: None,
    exact_width: int = EXACT_WIDTH,
    bad: BadRows | None = None,
) -> tuple[list[GraphFigures], str]:
    """The figures of a trace or of a table of dependencies, run by run, and the engine that computed them.

    Edges and figures are written to the folder `out`, if given. `bad` counts bad rows of a table of
    dependencies; without it they raise an error.
    """
    local = local_path(path, engine)
    if out is not None:
        _prepare_folder(out)
    if local is not None:
        graphs = _graphs_here(local, engine, master, progress, bad)
        if graphs is not None:
            figures = [compute_figures(each, exact_width) for each in _write_edges(graphs, out)]
            _write_summary(figures, out, bad)
            return figures, "local"
    with events_on_spark(path, local, "reducing", master, progress, bad or BadRows(path)) as (events, _):
        from antecede.graph.on_spark import graph
        from antecede.spark.session import refuse_unshared

        if out is not None:
            refuse_unshared(events.sparkSession, out)
        graphs_on_spark = graph(events, exact_width=exact_width, files=splittable_files(local))
        figures = list(graphs_on_spark.by_run())
        if out is not None:
            graphs_on_spark.edges.write.parquet(str((out / _UNFINISHED).resolve()))
            _rename_into_place(out)
        graphs_on_spark.release()
    _write_summary(figures, out, bad)
    return figures, "spark"


def _graphs_here(
    local: Path, engine: str, master: str | None, progress: Progress, bad: BadRows | None
) -> Iterator[Graph] | None:
    """The graphs, if they can be built in this process; None if the trace needs Spark."""
    table = dependency_file(local)
    if table is not None:
        progress("reducing", 0, 0)
        dependencies = read_dependencies(table, bad)
        if not len(dependencies.names):
            raise InputError(f"{table} has no row that could be taken{bad.first_example() if bad else ''}")
        return iter([graph_of_dependencies(dependencies)])
    files = trace_files(local)
    check_files(files)
    if wants_spark(engine, master, lambda: estimate_rows(files)):
        return None
    progress("reducing", 0, 0)
    return graph_files(local, files, bad)


def _write_edges(graphs: Iterable[Graph], out: Path | None) -> Iterator[Graph]:
    """Yield the graphs, and write their edges; the file is renamed into place after the last one."""
    if out is None:
        yield from graphs
        return
    try:
        with parquet_writer(out / _UNFINISHED, EDGES) as writer:
            for graph in graphs:
                writer.write_table(edge_table(graph))
                yield graph
        _rename_into_place(out)
    finally:
        _remove(out / _UNFINISHED)


def _rename_into_place(out: Path) -> None:
    # The summary of an earlier graph must not remain beside the new edges.
    _remove(out / SUMMARY)
    _remove(out / EDGES_FILE)
    (out / _UNFINISHED).rename(out / EDGES_FILE)


def _write_summary(figures: list[GraphFigures], out: Path | None, bad: BadRows | None) -> None:
    if out is not None:
        summary = {"runs": figures, "bad_rows": bad.rows if bad else 0, "bad": bad.kinds if bad else []}
        document = msgspec.json.format(msgspec.json.encode(summary), indent=2)
        write_whole(out / SUMMARY, document + b"\n")


def _prepare_folder(out: Path) -> None:
    if out.exists() and not out.is_dir():
        raise InputError(f"{out} is a file; a graph goes into a folder")
    out.mkdir(parents=True, exist_ok=True)
    if {each.name for each in out.iterdir()} - {EDGES_FILE, SUMMARY, _UNFINISHED}:
        raise InputError(f"{out} has something else in it; a graph goes into a folder of its own")
    _remove(out / _UNFINISHED)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
