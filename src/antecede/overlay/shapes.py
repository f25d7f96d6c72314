"""Overlays by name, and the interface for user-defined overlays."""

from __future__ import annotations

import abc
import operator
from collections.abc import Callable, Iterable

from antecede.errors import InputError
from antecede.overlay.hypercube import hypercube
from antecede.overlay.random_graph import hop_counts

Neighbours = list[tuple[int, ...]]
"""The neighbours of each peer, in ascending order."""


class Overlay(abc.ABC):
    """Links between peers, which work both ways. A subclass may take parameters; scenarios name it as
    `module:Class,key=value`."""

    @abc.abstractmethod
    def links(self, size: int, seed: int) -> Iterable[tuple[int, int]]:
        """Pairs of linked peers, of ranks 0 to size - 1, in any order. Equal arguments give equal links."""


def neighbours(size: int, links: Iterable[tuple[int, int]]) -> Neighbours:
    """The neighbours of each peer; a link may be named twice or in both directions, and leads elsewhere.

    >>> neighbours(3, [(0, 1), (2, 1), (1, 0)])
    [(1,), (0, 2), (1,)]
    """
    found: list[set[int]] = [set() for _ in range(size)]
    for one, other in links:
        if one != other:
            found[one].add(other)
            found[other].add(one)
    return [tuple(sorted(peers)) for peers in found]


SHAPES: dict[str, Callable[[int], Neighbours]] = {
    "hypercube": hypercube,
    "ring": lambda size: neighbours(size, ((peer, (peer + 1) % size) for peer in range(size))),
    "line": lambda size: neighbours(size, ((peer - 1, peer) for peer in range(1, size))),
    "star": lambda size: neighbours(size, ((0, peer) for peer in range(1, size))),
}


def validated_neighbours(size: int, links: Iterable[tuple[int, int]], where: str) -> Neighbours:
    """The neighbours of each peer, from user-supplied links; `where` names them in errors. Every peer must be
    able to reach every other."""
    pairs: list[tuple[int, int]] = []
    try:
        for one, other in links:
            ends = operator.index(one), operator.index(other)
            if min(ends) < 0 or max(ends) >= size or one == other:
                raise InputError(f"{where}: {ends} is not a link between two of the peers 0 to {size - 1}")
            pairs.append(ends)
    except (TypeError, ValueError) as error:
        raise InputError(f"{where}: links must be pairs of peers: {error}") from error
    found = neighbours(size, pairs)
    refuse_unconnected(found, where)
    return found


def refuse_unconnected(found: Neighbours, where: str, names: list[str] | None = None) -> None:
    """Refuse a graph in which some node cannot reach all others."""
    reached = hop_counts([list(peers) for peers in found], 0) if found else {}
    for node in range(len(found)):
        if node not in reached:
            first, other = (names[0], names[node]) if names else ("peer 0", f"peer {node}")
            raise InputError(f"{where}: no path leads from {first} to {other}; a graph must be connected")
