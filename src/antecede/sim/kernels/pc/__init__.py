"""Kernel of `pc`."""

ENGINES = ("event",)


def packets_per_delivery(peers: int) -> int:
    """Every neighbour in the overlay sends a copy; a hypercube has this many."""
    return peers.bit_length()
