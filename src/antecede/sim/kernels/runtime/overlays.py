"""The twins of `overlay/vcube.py` and `overlay/hypercube.py`. Spanning trees are computed on demand, not
stored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from antecede.jit import njit_inline


def hypercube_links(size: int) -> tuple[np.ndarray, np.ndarray]:
    """`hypercube` as two arrays: where each peer's neighbours begin, and the neighbours."""
    dimension = (size - 1).bit_length()
    half = 1 << dimension >> 1
    corners = np.arange(1 << dimension, dtype=np.int64)
    played = np.where(corners < size, corners, corners - half)
    pairs = np.concatenate([played * size + played[corners ^ 1 << bit] for bit in range(dimension)] or [[]])
    pairs = np.sort(
        pairs[pairs % (size + 1) != 0].astype(np.int64)
    )  # a corner played by the peer itself: p * size + p
    pairs = pairs[np.diff(pairs, prepend=-1) > 0]
    first = np.searchsorted(pairs, np.arange(size + 1) * size)
    return first, (pairs % size).astype(np.int32)


def overlay_links(neighbours: Sequence[Sequence[int]]) -> tuple[np.ndarray, np.ndarray]:
    """Any overlay as two arrays, as `hypercube_links`."""
    first = np.cumsum([0, *map(len, neighbours)])
    return first, np.array([peer for others in neighbours for peer in others], np.int32)


@njit_inline
def cluster(peer: Any, other: Any) -> Any:
    differing, bit = peer ^ other, -1
    while differing:
        differing >>= 1
        bit += 1
    return bit


@njit_inline
def first_in_cluster(peer: Any, bit: Any, size: Any) -> Any:
    """The first peer of a cluster that exists; -1 if the cluster is empty."""
    partner = peer ^ 1 << bit
    for dropped in range(bit + 1):
        candidate = partner >> dropped << dropped
        if candidate < size:
            return candidate
    return -1


@njit_inline
def height(peer: Any, root: Any, size: Any, whole: Any) -> Any:
    """How many clusters a peer forwards to in the tree of `root`; the root itself has `whole`."""
    served = whole
    while root != peer:
        served = cluster(root, peer)
        root = first_in_cluster(root, served, size)
    return served
