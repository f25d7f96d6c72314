"""Hypercubes and VCube trees of every size: what the protocols rely on."""

from __future__ import annotations

from collections import deque
from itertools import pairwise

import pytest

from antecede.overlay.hypercube import hypercube
from antecede.overlay.vcube import children, cluster, first_in_cluster, height
from antecede.sim.kernels.runtime.overlays import hypercube_links


def distances(
    overlay: list[tuple[int, ...]], start: int, without: frozenset[int] = frozenset()
) -> dict[int, int]:
    found = {start: 0}
    queue = deque([start])
    while queue:
        peer = queue.popleft()
        for other in overlay[peer]:
            if other not in found and other not in without:
                found[other] = found[peer] + 1
                queue.append(other)
    return found


@pytest.mark.parametrize("size", [*range(1, 70), 100, 128, 129, 255, 257, 300])
def test_a_hypercube_of_any_size(size: int) -> None:
    overlay = hypercube(size)
    first, neighbours = hypercube_links(size)
    assert [tuple(neighbours[here:there]) for here, there in pairwise(first)] == overlay
    dimension = (size - 1).bit_length()
    for peer, others in enumerate(overlay):
        assert peer not in others
        assert all(peer in overlay[other] for other in others)
        assert max(dimension - 1, min(size - 1, 1)) <= len(others) <= max(dimension, 2 * (dimension - 1))
    for start in range(0, size, max(1, size // 7)):
        reached = distances(overlay, start)
        assert len(reached) == size
        assert max(reached.values()) <= dimension


@pytest.mark.parametrize("size", [5, 6, 9, 17, 33])
def test_a_hypercube_stays_connected_without_any_one_peer(size: int) -> None:
    overlay = hypercube(size)
    for lost in range(size):
        start = (lost + 1) % size
        assert len(distances(overlay, start, frozenset([lost]))) == size - 1


def test_a_full_cube_is_a_cube() -> None:
    assert hypercube(8) == [tuple(sorted(peer ^ 1 << bit for bit in range(3))) for peer in range(8)]


@pytest.mark.parametrize("size", [*range(1, 40), 64, 100])
def test_every_tree_reaches_everybody_exactly_once(size: int) -> None:
    for root in range(size):
        reached = {root: (size - 1).bit_length()}
        queue = deque([root])
        while queue:
            peer = queue.popleft()
            for _, child in children(peer, reached[peer], size):
                assert child not in reached
                reached[child] = cluster(child, peer)
                queue.append(child)
        assert len(reached) == size
        assert reached == {peer: height(peer, root, size) for peer in range(size)}


@pytest.mark.parametrize("dimension", range(1, 6))
def test_in_a_full_cube_the_trees_are_those_of_the_paper(dimension: int) -> None:
    """Paper 004: children of i in the tree of r are i with bit b flipped, below the lowest that differs."""
    size = 1 << dimension
    for peer in range(size):
        assert [first_in_cluster(peer, bit, size) for bit in range(dimension)] == [
            peer ^ 1 << bit for bit in range(dimension)
        ]
        for root in range(size):
            differs = peer ^ root
            expected = (differs & -differs).bit_length() - 1 if differs else dimension
            assert height(peer, root, size) == expected


def test_figure_3_and_4_of_paper_004() -> None:
    assert [first_in_cluster(*it, 8) for it in ((0, 0), (1, 1), (1, 2), (7, 1), (4, 0))] == [1, 3, 5, 5, 5]
    assert [cluster(0, other) + 1 for other in range(1, 8)] == [1, 2, 2, 3, 3, 3, 3]
    assert [child for _, child in children(4, height(4, 0, 8), 8)] == [5, 6]
    assert [child for _, child in children(4, height(4, 2, 8), 8)] == [5]
