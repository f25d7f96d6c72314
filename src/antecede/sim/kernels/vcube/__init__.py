"""Kernel of `vcube` and `vcube-agg`."""

ENGINES = ("event",)


def packets_per_delivery(_peers: int) -> int:
    return 1
