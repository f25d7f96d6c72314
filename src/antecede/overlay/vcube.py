"""VCube (paper 004): a spanning tree rooted at every peer, computed locally without any communication.

Seen from peer i, the others fall into clusters: cluster b holds those whose highest bit that differs from i
is bit b. A peer that receives a message from a peer in its cluster b forwards it to its clusters below b, to
one peer in each: the first that exists. In a full cube that is i with bit b flipped; for other sizes it is
VCube's own rule for failed peers, applied to ranks that do not exist. A cluster consists of one peer and that
peer's lower clusters, so each peer receives a message exactly once, for every size.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable


def cluster(peer: int, other: int) -> int:
    """The cluster of `peer` that holds `other`."""
    return (peer ^ other).bit_length() - 1


def first_in_cluster(peer: int, bit: int, size: int) -> int | None:
    """The peer that `peer` sends to for its cluster `bit`; None if the cluster is empty.

    >>> [first_in_cluster(0, bit, 8) for bit in range(3)]
    [1, 2, 4]
    >>> first_in_cluster(1, 2, 5), first_in_cluster(1, 1, 3), first_in_cluster(1, 1, 2)
    (4, 2, None)
    """
    preferred = peer ^ 1 << bit
    # The smallest rank of the cluster has no lower bits set. Clear low bits until the rank exists.
    for cleared in range(bit + 1):
        candidate = preferred >> cleared << cleared
        if candidate < size:
            return candidate
    return None


def closest_by_cluster(peer: int, others: Iterable[int], suspected: Collection[int] = ()) -> dict[int, int]:
    """The peer that `peer` sends to for each of its clusters, among peers of any ranks.

    VCube lists a cluster in the order of the distance (by exclusive or) from `peer` with that bit flipped,
    and takes the first that is not suspected; if all are, the first.

    >>> closest_by_cluster(0, [1, 2, 3, 6, 7]), closest_by_cluster(0, [1, 2, 3, 6, 7], {2, 6})
    ({0: 1, 1: 2, 2: 6}, {0: 1, 1: 3, 2: 7})
    """
    closest: dict[int, tuple[bool, int]] = {}
    for other in others:
        bit = cluster(peer, other)
        rank = other in suspected, peer ^ 1 << bit ^ other
        if bit not in closest or rank < closest[bit]:
            closest[bit] = rank
    return {bit: peer ^ 1 << bit ^ distance for bit, (_, distance) in sorted(closest.items())}


def children(peer: int, height: int, size: int) -> list[tuple[int, int]]:
    """(cluster, peer) to forward a message to, for a peer that serves its clusters below `height`."""
    firsts = ((bit, first_in_cluster(peer, bit, size)) for bit in range(height))
    return [(bit, child) for bit, child in firsts if child is not None]


def height(peer: int, root: int, size: int) -> int:
    """How many clusters `peer` serves in the tree of `root`.

    >>> [height(4, root, 8) for root in (4, 2, 0)]
    [3, 1, 2]
    """
    above = parent(peer, root, size)
    return (size - 1).bit_length() if above is None else cluster(above, peer)


def parent(peer: int, root: int, size: int) -> int | None:
    """The peer from which `peer` receives the messages of `root`; None for the root itself.

    >>> parent(7, 0, 8), parent(4, 0, 8), parent(0, 0, 8), parent(3, 4, 5)
    (6, 0, None, 2)
    """
    above = None
    while root != peer:
        above = root
        child = first_in_cluster(root, cluster(root, peer), size)
        if child is None:
            raise ValueError(f"peer {peer} is not one of 0 to {size - 1}")
        root = child
    return above


def partners(peer: int, size: int) -> tuple[int, ...]:
    """The peers that `peer` sends to or receives from in any tree.

    >>> partners(0, 8), partners(2, 5)
    ((1, 2, 4), (0, 3, 4))
    """
    return tuple(
        other
        for other in range(size)
        if other != peer
        and (
            first_in_cluster(peer, cluster(peer, other), size) == other
            or first_in_cluster(other, cluster(other, peer), size) == peer
        )
    )
