"""The twin of `overlay/vcube.py`: every peer's spanning tree, computed where it is asked for."""

from __future__ import annotations

from typing import Any

from antecede.sim.kernels.jit import step


@step
def cluster(peer: Any, other: Any) -> Any:
    differing, bit = peer ^ other, -1
    while differing:
        differing >>= 1
        bit += 1
    return bit


@step
def first_in_cluster(peer: Any, bit: Any, size: Any) -> Any:
    """-1 if nobody is in it."""
    wanted = peer ^ 1 << bit
    for kept in range(bit + 1):
        candidate = wanted >> kept << kept
        if candidate < size:
            return candidate
    return -1


@step
def height(peer: Any, root: Any, size: Any, whole: Any) -> Any:
    """How many of the clusters below `whole` a peer serves in the tree of `root`."""
    served = whole
    while root != peer:
        served = cluster(root, peer)
        root = first_in_cluster(root, served, size)
    return served
