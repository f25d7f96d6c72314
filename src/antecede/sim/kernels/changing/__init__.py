"""The kernel of groups that change: compiled while nothing changes, the reference while something does."""

ENGINES = ("event",)


def packets_per_delivery(_peers: int) -> int:
    return 1  # Reports are counted in addition.
