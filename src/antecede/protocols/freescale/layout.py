"""Which members of a free-scale network are super peers, internal peers and external peers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, Self

from antecede.protocols.base import Layout, LocalError
from antecede.protocols.freescale.internal import RARE_REPORTS


class FreescaleLayout(Layout, frozen=True, forbid_unknown_fields=True):
    """The lowest ranks are super peers, the next ones the internal peers of each in order, the rest
    external."""

    inside: list[int]
    """The number of internal peers of each super peer."""
    form: Literal["corrected", "paper"] = "corrected"
    ack_every: int = RARE_REPORTS
    """The number of deliveries after which a silent internal peer reports its progress."""

    @classmethod
    def default(cls, size: int) -> Self:
        """One super peer, with half of the others behind it."""
        return cls([(size - 1) // 2])

    @classmethod
    def random(cls, size: int, pick: Callable[[int], int]) -> Self:
        inside: list[int] = []
        remaining = size
        for _ in range(pick(5)):
            if remaining:
                inside.append(pick(remaining))
                remaining -= 1 + inside[-1]
        return cls(inside, "paper" if pick(5) == 0 else "corrected", ack_every=[1, 3, 32][pick(3)])

    def validate(self, size: int) -> None:
        if min(self.inside, default=0) < 0:
            raise LocalError("inside: a super peer cannot have fewer than 0 internal peers")
        if self.ack_every < 1:
            raise LocalError("ack_every: must be at least 1")
        if len(self.inside) + sum(self.inside) > size:
            raise LocalError(
                f"inside: {len(self.inside)} super peers and {sum(self.inside)} internal peers "
                f"are more than the {size} members of the group"
            )

    def sites(self, size: int) -> list[int]:
        return self.representatives(size)

    def representatives(self, size: int) -> list[int]:
        """For each rank, who represents it in the external group: its super peer, or itself."""
        internal = [super_peer for super_peer, count in enumerate(self.inside) for _ in range(count)]
        super_peers = len(self.inside)
        return [*range(super_peers), *internal, *range(super_peers + len(internal), size)]
