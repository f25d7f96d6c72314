"""The contenders: each prepares a table of dependencies as it prefers, then reduces it to immediate edges."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import networkx
import numpy as np
import pyarrow as pa
import rustworkx

from antecede.graph.core import graph_of_dependencies
from antecede.trace.dependencies import Dependencies

Pairs = np.ndarray
"""Two rows: causes and effects."""


def table(messages: int, processes: int, seed: int = 1) -> Dependencies:
    """A random table: a message names its sender's previous one, and up to four earlier ones."""
    source = np.random.default_rng(seed)
    process = source.integers(processes, size=messages)
    by_process = np.argsort(process, kind="stable")
    follows = process[by_process[1:]] == process[by_process[:-1]]
    own = np.stack([by_process[:-1][follows], by_process[1:][follows]])
    effect = np.repeat(np.arange(messages), 4)
    age = 1 + source.exponential(3 * processes, len(effect)).astype(np.int64)
    present = (source.random(len(effect)) < 0.75) & (age <= effect)
    pairs = np.concatenate([own, np.stack([effect - age, effect])[:, present]], axis=1)
    return numbered(pairs, process)


def numbered(pairs: Pairs, process: np.ndarray) -> Dependencies:
    size = len(process)
    pairs = np.unique(pairs[1] * size + pairs[0])
    cause, effect = pairs % size, pairs // size
    start = np.searchsorted(effect, np.arange(size + 1))
    names = pa.array(np.arange(size)).cast(pa.string())
    return Dependencies("made", names, process, start, cause, np.arange(size))


def pairs_of(dependencies: Dependencies) -> Pairs:
    return np.stack(
        [dependencies.cause, np.repeat(np.arange(len(dependencies.order)), np.diff(dependencies.start))]
    )


def ours(dependencies: Dependencies) -> Callable[[], Pairs]:
    graph_of_dependencies(table(100, 5))  # Loads compiled code.

    def reduce() -> Pairs:
        made = graph_of_dependencies(dependencies)
        return np.stack([made.cause, np.repeat(np.arange(len(made.order)), np.diff(made.start))])

    return reduce


def bitset(dependencies: Dependencies) -> Callable[[], Pairs]:
    parents = [each.tolist() for each in np.split(dependencies.cause, dependencies.start[1:-1])]
    order = dependencies.order.tolist()

    def reduce() -> Pairs:
        past, edges = [0] * len(order), []
        for message in order:
            implied = itself = 0
            for parent in parents[message]:
                implied |= past[parent]
                itself |= 1 << parent
            edges += [(parent, message) for parent in parents[message] if not implied >> parent & 1]
            past[message] = implied | itself
        return np.array(edges).reshape(-1, 2).T

    return reduce


def by_networkx(dependencies: Dependencies) -> Callable[[], Pairs]:
    whole = networkx.DiGraph()
    whole.add_nodes_from(range(len(dependencies.order)))
    whole.add_edges_from(pairs_of(dependencies).T.tolist())
    return lambda: np.array(networkx.transitive_reduction(whole).edges).reshape(-1, 2).T


def by_rustworkx(dependencies: Dependencies) -> Callable[[], Pairs]:
    whole: Any = rustworkx.PyDiGraph()
    whole.add_nodes_from(range(len(dependencies.order)))
    whole.add_edges_from_no_data([tuple(pair) for pair in pairs_of(dependencies).T.tolist()])

    def reduce() -> Pairs:
        reduced, place = rustworkx.transitive_reduction(whole)
        here = {there: node for node, there in place.items()}
        return np.array([(here[a], here[b]) for a, b in reduced.edge_list()]).reshape(-1, 2).T

    return reduce


CONTENDERS: dict[str, Callable[[Dependencies], Callable[[], Pairs]]] = {
    "antecede": ours,
    "bitset": bitset,
    "rustworkx": by_rustworkx,
    "networkx": by_networkx,
}


def needs_bytes(name: str, messages: int) -> int:
    """A lower bound on the memory that a contender needs: bit sets, half full on average."""
    return messages * messages // 16 if name == "bitset" else 0
