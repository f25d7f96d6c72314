"""Kernel of `freescale`."""

ENGINES = ("event",)


def packets_per_delivery(_peers: int) -> int:
    return 1
