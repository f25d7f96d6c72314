"""Hypercubes for any number of peers.

In a full cube of 2^D peers, two are linked if their ranks differ in one bit. For other sizes paper 002 uses a
construction that it does not give. Ours: with D = ceil(log2 n), a corner v >= n that is missing from the full
cube is played by peer v - 2^(D-1), and peers are linked if any corners they play are. Connectivity equals the
minimum degree, which is at least D - 1, and the diameter is at most D. Simply leaving out the missing corners
would attach the last of 2^k + 1 peers by a single link.
"""

from __future__ import annotations


def hypercube(size: int) -> list[tuple[int, ...]]:
    """The neighbours of each of `size` peers.

    >>> hypercube(4)
    [(1, 2), (0, 3), (0, 3), (1, 2)]
    >>> hypercube(3)
    [(1, 2), (0, 2), (0, 1)]
    """
    dimension = (size - 1).bit_length()
    half = 1 << dimension >> 1
    linked: list[set[int]] = [set() for _ in range(size)]
    for corner in range(1 << dimension):
        for bit in range(dimension):
            one, other = (v if v < size else v - half for v in (corner, corner ^ 1 << bit))
            if one != other:
                linked[one].add(other)
    return [tuple(sorted(neighbours)) for neighbours in linked]


def hypercube_neighbours(peer: int, size: int) -> tuple[int, ...]:
    """The neighbours of one of `size` peers.

    >>> hypercube_neighbours(0, 3), hypercube_neighbours(5, 8)
    ((1, 2), (1, 4, 7))
    """
    dimension = (size - 1).bit_length()
    half = 1 << dimension >> 1
    corners = [peer] if (peer < half and peer + half < size) or peer >= half else [peer, peer + half]
    linked = {corner ^ 1 << bit for corner in corners for bit in range(dimension)}
    return tuple(sorted({each if each < size else each - half for each in linked} - {peer}))
