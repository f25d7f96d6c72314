"""Dependency graphs: compared with the oracle, with networkx, and with small graphs checked by hand."""

from __future__ import annotations

import itertools
import random
from pathlib import Path
from typing import Any

import networkx
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from antecede.audit.encoding import encode_run
from antecede.audit.passes import compute_pasts, create_message_streams
from antecede.causality import CausalOrder
from antecede.causality.transitive_reduction import (
    EdgeArrays,
    assign_slots,
    chain_decomposition,
    find_lookups,
    immediate_dependencies,
    immediate_edges,
    past_sizes,
)
from antecede.causality.width import largest_antichain
from antecede.errors import InputError
from antecede.graph.core import (
    Graph,
    MessageFanOut,
    compute_figures,
    edge_table,
    graph_of_dependencies,
    graph_of_run,
)
from antecede.sources import find_source
from antecede.sources.tables import write_dependency_table
from antecede.temporary_folders import temporary_folder
from antecede.trace.bad_rows import BadRows
from antecede.trace.dependencies import Dependencies, dependencies, dependency_file, read_dependencies
from antecede.trace.execution_from_rows import execution
from random_executions import any_execution, as_rows

Edges = set[tuple[str, str]]


def pairs(graph: Graph) -> Edges:
    rows = edge_table(graph).to_pylist()
    found = {(row["cause"], row["effect"]) for row in rows}
    assert len(found) == len(rows)
    return found


def table_of(parents: dict[str, str], processes: str = "") -> pa.Table:
    """A table from short notes: {"c": "a b"} says that c has the parents a and b."""
    names = processes or "p" * len(parents)
    return pa.table(
        {
            "node": pa.array(list(parents), pa.string()),
            "process": pa.array(list(names), pa.string()),
            "parents": pa.array([each.split() for each in parents.values()], pa.list_(pa.string())),
        }
    )


def plainly_reduced(given: Dependencies) -> set[tuple[int, int]]:
    """The reference in ten lines: every message's past as a bit set."""
    past = [0] * len(given.order)
    kept = set()
    for message in given.order.tolist():
        parents = set(given.cause[given.start[message] : given.start[message + 1]].tolist())
        implied = 0
        for parent in parents:
            implied |= past[parent]
        kept |= {(parent, message) for parent in parents if not implied >> parent & 1}
        past[message] = implied
        for parent in parents:
            past[message] |= 1 << parent
    return kept


def numbered(graph: Graph) -> set[tuple[int, int]]:
    effects = np.repeat(np.arange(len(graph.order)), np.diff(graph.start))
    return set(zip(graph.cause.tolist(), effects.tolist(), strict=True))


def any_table(source: random.Random) -> Dependencies:
    """Random parents, near or far back; some processes chain their own messages."""
    size, reach = source.randrange(1, 60), source.choice((2, 5, 60))
    senders = [source.randrange(source.choice((1, 4, 60))) for _ in range(size)]
    rows = []
    for node in range(size):
        before = range(max(0, node - reach), node)
        parents = {*source.sample(before, min(len(before), source.randrange(5)))}
        mine = [each for each in range(node) if senders[each] == senders[node]]
        if mine and source.random() < 0.7:
            parents.add(mine[-1])
        rows.append({"node": str(node), "process": str(senders[node]), "parents": [str(p) for p in parents]})
    if source.random() < 0.5:
        source.shuffle(rows)
    return dependencies(pa.Table.from_pylist(rows), "r")


@given(st.integers(0, 1 << 60))
def test_the_graph_of_a_log_matches_the_oracle(seed: int) -> None:
    source = random.Random(seed)
    table, members = as_rows(source, any_execution(source))
    order = CausalOrder(execution(table, members))
    show = order.execution.show
    expected = {
        (show(cause), show(effect))
        for effect in order.messages
        for cause in order.immediate_dependencies(effect)
    }
    graph = graph_of_run("r", table)
    assert pairs(graph) == expected
    assert sorted(graph.names.to_pylist()) == sorted(show(message) for message in order.messages)


@given(st.integers(0, 1 << 60))
def test_streams_by_audience_and_any_cut_into_ranges_give_the_same(seed: int) -> None:
    """The graph computed like distributed tasks do, from the vectors of an audit."""
    source = random.Random(seed)
    table, members = as_rows(source, any_execution(source))
    log = encode_run(table, members)
    vectors = np.zeros((log.streams.messages, len(log.streams.origin)), np.int32)
    compute_pasts(log.rows, log.streams, vectors, create_message_streams(log.streams))
    previous = np.full(log.streams.messages, -1)
    for place in range(len(log.names)):
        mine = slice(log.rows.start[place], log.rows.start[place + 1])
        sent = log.rows.message[mine][log.rows.kind[mine] == 0]
        previous[sent[1:]] = sent[:-1]
    cuts = sorted({0, log.streams.messages, *(source.randrange(len(vectors) + 1) for _ in range(3))})
    found = set()
    for low, high in itertools.pairwise(cuts):
        start, causes = immediate_dependencies(
            log.streams.first, previous, vectors, past_sizes(vectors), low, high
        )
        for message in range(low, high):
            for cause in causes[start[message - low] : start[message - low + 1]]:
                found.add(
                    tuple(f"{log.names[log.origins[each]]}:{log.seqs[each]}" for each in (cause, message))
                )
    assert found == pairs(graph_of_run("r", table))


@given(st.integers(0, 1 << 60))
def test_transitive_reduction_matches_the_bit_set_reference(seed: int) -> None:
    given = any_table(random.Random(seed))
    assert numbered(graph_of_dependencies(given)) == plainly_reduced(given)


@given(st.integers(0, 1 << 60))
def test_reduction_in_little_memory_takes_more_passes_and_agrees(seed: int) -> None:
    """Sixteen slots at a time is the least; the answer is the same."""
    source = random.Random(seed)
    size = 300
    start, cause = [0], []
    for message in range(size):
        before = range(max(0, message - 120), message)
        cause += sorted(source.sample(before, min(len(before), source.randrange(4))), reverse=True)
        start.append(len(cause))
    links = EdgeArrays(np.array(start), np.array(cause, np.int64))
    process = np.array([source.randrange(9) for _ in range(size)])
    slots = assign_slots(chain_decomposition(*links, process), find_lookups(*links)[1])[1]
    assert slots > 16
    assert (immediate_edges(links, process, memory=0) == immediate_edges(links, process)).all()


@given(st.integers(0, 1 << 60))
def test_the_largest_antichain_is_an_antichain_of_maximum_size(seed: int) -> None:
    """By Dilworth's theorem: a chain cover of the same size exists, found by matching on the whole order."""
    given = any_table(random.Random(seed))
    graph = graph_of_dependencies(given)
    past: list[set[int]] = [set() for _ in graph.order]
    for message in graph.order.tolist():
        for cause in graph.cause[graph.start[message] : graph.start[message + 1]].tolist():
            past[message] |= {cause} | past[cause]
    antichain = largest_antichain(graph.start, graph.cause, graph.order).tolist()
    assert not any(one in past[other] for one, other in itertools.permutations(antichain, 2))
    assert len(antichain) == len(past) - matched(past)
    shown = compute_figures(graph)
    assert shown.antichain == len(antichain) >= shown.frontier


def matched(past: list[set[int]]) -> int:
    """The size of a maximum matching of messages to distinct causes."""
    given_to: dict[int, int] = {}

    def give(message: int, seen: set[int]) -> bool:
        for cause in past[message] - seen:
            seen.add(cause)
            if cause not in given_to or give(given_to[cause], seen):
                given_to[cause] = message
                return True
        return False

    return sum(give(message, set()) for message in range(len(past)))


def test_figures_of_a_small_graph() -> None:
    """a and b are concurrent; c has both; d has c (and a again); e is alone."""
    given = dependencies(table_of({"a": "", "b": "", "c": "a b", "d": "c a", "e": ""}, "pqpqr"), "r")
    shown = compute_figures(graph_of_dependencies(given))
    assert (shown.processes, shown.messages, shown.stated, shown.stated_most) == (3, 5, 4, 2)
    assert (shown.dependencies, shown.dependencies_mean, shown.dependencies_most) == (3, 0.6, 2)
    assert shown.dependencies_histogram == {0: 3, 1: 1, 2: 1}
    assert (shown.depth, shown.frontier, shown.antichain) == (3, 3, 3)
    assert shown.busiest == [MessageFanOut("a", 1), MessageFanOut("b", 1), MessageFanOut("c", 1)]
    assert compute_figures(graph_of_dependencies(given), exact_width=5).antichain is None


def test_an_empty_table_has_an_empty_graph() -> None:
    graph = graph_of_dependencies(dependencies(table_of({}), "r"))
    shown = compute_figures(graph)
    assert (shown.messages, shown.dependencies, shown.depth, shown.antichain) == (0, 0, 0, 0)
    assert edge_table(graph).num_rows == 0


REAL = {
    "clownschool": (3, 23_136, 26_763, 26_763, 1.157, 2, 2),
    "git_makefile_A2": (375, 3_210, 6_721, 6_721, 2.094, 9, 21),
    "postgres_25x400": (25, 10_000, 40_093, 16_172, 4.009, 9, 25),
    "antidote_git": (57, 2_260, 2_676, 2_585, 1.184, 2, 15),
}


def read_csv(file: Path, bad: BadRows | None = None) -> Dependencies:
    """A table in CSV as graph and advise read it."""
    source = find_source(str(file), "dependencies")
    assert source is not None
    with temporary_folder("test") as folder:
        bad = bad or BadRows(str(file))
        write_dependency_table(source, folder / file.stem, bad)
        return read_dependencies(folder / file.stem)


NETWORKX_UP_TO = 5_000
"""It takes most of a minute for ten thousand messages."""


@pytest.mark.parametrize("name", REAL)
def test_real_tables(real_traces: Path, name: str) -> None:
    given = read_csv(real_traces / f"{name}.dag.csv")
    graph = graph_of_dependencies(given)
    assert numbered(graph) == plainly_reduced(given)
    shown = compute_figures(graph)
    assert shown.stated is not None
    assert (
        shown.processes, shown.messages, shown.stated, shown.dependencies,
        round(shown.stated / shown.messages, 3), shown.stated_most, shown.antichain,
    ) == REAL[name]  # fmt: skip


def test_networkx_agrees(real_traces: Path) -> None:
    compared = 0
    for file in sorted(real_traces.glob("*.dag.csv")):
        given = read_csv(file)
        if len(given.order) > NETWORKX_UP_TO:
            continue
        whole = networkx.DiGraph()
        whole.add_nodes_from(range(len(given.order)))
        effects = np.repeat(np.arange(len(given.order)), np.diff(given.start))
        whole.add_edges_from(zip(given.cause.tolist(), effects.tolist(), strict=True))
        assert numbered(graph_of_dependencies(given)) == set(networkx.transitive_reduction(whole).edges)
        compared += 1
    assert compared


@pytest.mark.parametrize("name", ["clownschool", "postgres_25x400"])
def test_a_log_and_its_dependency_table_have_the_same_graph(real_traces: Path, name: str) -> None:
    """The deliveries were generated from the table, so happened-before is the same."""
    foreign = pq.read_table(real_traces / f"{name}.events.parquet")
    sent = foreign.filter(pa.compute.equal(foreign.column("kind"), "send"))
    table = pq.read_table(real_traces / f"{name}.events.parquet").append_column(
        "seq", pa.array(np.asarray(foreign.column("msg")) + 1)
    )
    origin = dict(zip(sent.column("msg").to_pylist(), sent.column("process").to_pylist(), strict=True))
    senders = pa.array([str(origin[message]) for message in foreign.column("msg").to_pylist()])
    rows = table.append_column("origin", senders).rename_columns({"idx": "index"}).drop_columns(["msg"])
    rows = rows.set_column(0, "process", rows.column("process").cast(pa.string()))
    for column, value in (("run", "r"), ("group", "g"), ("time", 0)):
        rows = rows.append_column(column, pa.repeat(value, rows.num_rows))
    found = {
        tuple(int(each.partition(":")[2]) - 1 for each in pair) for pair in pairs(graph_of_run("r", rows))
    }
    given = graph_of_dependencies(read_csv(real_traces / f"{name}.dag.csv"))
    names = [int(each) for each in given.names.to_pylist()]
    assert found == {(names[cause], names[effect]) for cause, effect in numbered(given)}


def test_all_formats_give_the_same(tmp_path: Path) -> None:
    table = table_of({"c": "a b", "a": "", "b": "a"}, "pqr")
    (tmp_path / "t.csv").write_text("\ufeffnode,process,seq,parents\nc,p,0,a b\na,q,0,\nb,r,0,a\n")
    pq.write_table(table, tmp_path / "t.parquet")
    (tmp_path / "folder").mkdir()
    pq.write_table(table, tmp_path / "folder" / "dependencies.parquet")
    runs = {}
    for name in ("t.csv", "t.parquet", "folder"):
        graph = graph_of_dependencies(
            read_csv(tmp_path / name) if name == "t.csv" else read_dependencies(tmp_path / name)
        )
        runs[name] = graph.run
        assert pairs(graph) == {("a", "b"), ("b", "c")}
    assert runs == {"t.csv": "t", "t.parquet": "t", "folder": "folder"}
    (tmp_path / "folder" / "_meta").mkdir()
    (tmp_path / "folder" / "_meta/meta.json").write_text('{"run": "mine", "groups": {}}')
    assert read_dependencies(tmp_path / "folder").run == "mine"


def test_numeric_node_ids_are_accepted(tmp_path: Path) -> None:
    table = pa.table({"node": [7, 8], "process": [1, 1], "parents": [[], [7]]})
    assert pairs(graph_of_dependencies(dependencies(table, "r"))) == {("7", "8")}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is empty"),
        ("node,parents\n", "has no column process"),
        ("node,process,parents,node\n", "two columns node"),
        ("node,process,parents\na,p,x\n", "the parents of a: x"),
        ("node,process,parents\na,p,\nb,p,a\na,q,\n", "row 3: a"),
        ("node,process,parents\na,p,a\n", "node a is its own parent"),
        ("node,process,parents\na,p,b\nb,p,c\nc,p,a\nd,p,a\n", "a cycle of 3 nodes.*: a, b, c, a"),
        ("node,process,parents\na,p,\n,p,\n", "row 2: its id is empty"),
        ("node,process,parents\na,,\n", "row 1: its process is empty"),
        ("node,process,parents\na,p\n", "row 1: it has 2 fields, the header 3"),
        (b"node,process,parents\n\xff,p,\n", "UTF"),
        ('node,process,parents\na,p,\nb,p,"a', "unexpected end of data"),
        (b"node,process,parents\xff\n", "not text in UTF-8"),
    ],
)
def test_errors_name_the_unreadable_input(tmp_path: Path, text: str | bytes, says: str) -> None:
    file = tmp_path / "t.csv"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(InputError, match=says) as error:
        read_csv(file)
    assert str(file) in str(error.value)


@pytest.mark.parametrize(
    ("column", "values", "says"),
    [
        ("node", [None, "b"], "row 1, field node: it is empty"),
        ("parents", [[None], []], "row 1, field parents: there is an empty one"),
        ("parents", [1, 2], "column parents: expected list"),
        ("node", [["a"], ["b"]], "column node: expected string"),
    ],
)
def test_a_parquet_table_that_cannot_be_read(tmp_path: Path, column: str, values: Any, says: str) -> None:
    columns = {"node": ["a", "b"], "process": ["p", "p"], "parents": [["b"], []]} | {column: values}
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    with pytest.raises(InputError, match=says):
        read_dependencies(tmp_path / "t.parquet")


def test_dependency_tables_are_distinguished_from_traces(tmp_path: Path) -> None:
    assert dependency_file(tmp_path) is None
    assert dependency_file(tmp_path / "nothing.csv") is None
    pq.write_table(pa.table({"run": ["r"]}), tmp_path / "t.parquet")
    assert dependency_file(tmp_path / "t.parquet") is None
    (tmp_path / "t.parquet").write_bytes(b"PAR1")
    with pytest.raises(InputError, match="truncated or damaged"):
        dependency_file(tmp_path / "t.parquet")
    with pytest.raises(InputError, match="does not exist"):
        read_dependencies(tmp_path / "nothing.csv")


def test_bad_rows_of_a_table_are_counted(tmp_path: Path) -> None:
    text = "node,process,parents\na,p,\nx\n,p,\nb,,\na,q,\nc,p,a zz b\n"
    (tmp_path / "t.csv").write_text(text)
    bad = BadRows(str(tmp_path / "t.csv"), strict=False)
    assert pairs(graph_of_dependencies(read_csv(tmp_path / "t.csv", bad))) == {("a", "c")}
    assert [(each.what, each.rows, each.examples) for each in bad.kinds] == [
        ("rows that cannot be read, left out", 1, ["row 2: it has 1 fields, the header 3"]),
        ("records without {node}, left out", 1, ["row 3: its id is empty"]),
        ("records without {process}, left out", 1, ["row 4: its process is empty"]),
        ("nodes that repeat a name, left out", 1, ["row 5: a"]),
        ("parents that are no node, left out", 2, ["the parents of c: zz", "the parents of c: b"]),
    ]


def test_of_many_bad_rows_a_few_are_shown() -> None:
    bad = BadRows("t", strict=False)
    bad.add_all("odd", (f"row {row}" for row in range(100)), 100)
    bad.add_all("odd", (f"row {row}" for row in range(100, 103)), 3)
    bad.add_all("even", (f"row {row}" for row in range(2)), 2)
    bad.add_all("none", iter(()), 0)
    assert [(each.what, each.rows, len(each.examples)) for each in bad.kinds] == [
        ("odd", 103, 5),
        ("even", 2, 2),
    ]


def test_names_in_errors_are_short(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(f"node,process,parents\na,p,{'y' * 100_000}\n")
    with pytest.raises(InputError) as error:
        read_csv(tmp_path / "t.csv")
    assert len(str(error.value)) < 500
