"""MBCP, the minimal broadcast causal protocol (paper 001): name only the immediate dependencies.

If every message is delivered after those it immediately depends on, then by transitivity it is
delivered after its whole causal past. So a message names, for each peer at most once, the messages
with nothing between them and itself; the sender's own previous message goes without saying,
because order from one sender is kept. Control information: 0 to n - 1 pairs, 8 bytes each as the
paper counts, and it is the least that can keep causal order.

`causes` is the set of messages that this member's next message would depend on immediately. A
delivery puts its message in and takes out what it depends on itself: that step is described by the
paper's example (4.2, step 4.v) and missing from its Table 1. Without it order still holds, but
messages name more than they must.

Links need not be FIFO; memory O(n) and the held messages; a delivery costs O(pairs carried).
"""

from __future__ import annotations

from typing import ClassVar

import msgspec

from antecede.protocols.base import Packet
from antecede.protocols.flat import Dependent, Flat, Stamped, by_peer


class Mbcp(Flat):
    name: ClassVar[str] = "mbcp"
    summary: ClassVar[str] = "only the immediate dependencies: the minimal broadcast"
    control: ClassVar[str] = "up to n − 1 pairs, the least"
    names_causes: ClassVar[bool] = True

    causes: dict[int, int] = msgspec.field(default_factory=dict)

    def stamp(self, seq: int, payload: bytes) -> Dependent:
        named, self.causes = self.causes, {}
        return Dependent(payload, self.me, seq, by_peer(named))

    def learn(self, packet: Stamped) -> None:
        causes = self.causes
        if isinstance(packet, Dependent):
            # Whoever depends on a message depends on its causes through it: no need to name them.
            for peer, seq in packet.causes.items():
                if causes.get(peer) == seq:
                    del causes[peer]
        causes[packet.origin] = packet.seq

    def paper_bytes(self, packet: Packet) -> int:
        return 8 * len(packet.causes) if isinstance(packet, Dependent) else 0

    def paper_storage(self) -> int:
        """A clock entry a peer and the pairs that the next message would carry."""
        return 4 * self.size + 8 * len(self.causes)
