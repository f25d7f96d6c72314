"""Kernel of `flooding`."""

ENGINES = ("event",)


def packets_per_delivery(peers: int) -> int:
    """Every neighbour in the hypercube sends a copy."""
    return peers.bit_length()
