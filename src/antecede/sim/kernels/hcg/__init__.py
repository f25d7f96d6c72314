"""Kernel of `hcg` and `basic`."""

ENGINES = ("event",)


def packets_per_delivery(_peers: int) -> int:
    """Members of a subgroup acknowledge."""
    return 10
