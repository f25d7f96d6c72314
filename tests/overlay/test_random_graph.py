"""Random graphs."""

from __future__ import annotations

import pytest

from antecede.overlay.random_graph import random_graph
from antecede.sim.counter_rng import GRAPH, Draws


def draws(seed: int) -> Draws:
    return Draws(seed, GRAPH)


def test_random_graphs_are_connected_and_as_dense_as_asked() -> None:
    for seed in range(20):
        graph = random_graph(60, 3.0, draws(seed))
        seen, todo = {0}, [0]
        while todo:
            for other in graph[todo.pop()]:
                if other not in seen:
                    seen.add(other)
                    todo.append(other)
        assert len(seen) == 60
        assert all(one in graph[other] for one in range(60) for other in graph[one])
    degrees = [sum(map(len, random_graph(200, 6.0, draws(seed)))) / 200 for seed in range(20)]
    assert sum(degrees) / 20 == pytest.approx(6, abs=0.2)
    assert random_graph(1, 3.0, draws(1)) == [[]]
