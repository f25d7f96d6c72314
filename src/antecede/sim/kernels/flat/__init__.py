"""Kernels of the flat protocols: `timestamp`, `timestamp-diff`, `mbcp` and `depseq`."""

ENGINES = ("recurrence", "event")


def packets_per_delivery(_peers: int) -> int:
    return 1
