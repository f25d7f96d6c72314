"""Paper 001's Table 1."""

from __future__ import annotations

from typing import ClassVar

from antecede.protocols.flat import StampedPacket
from antecede.protocols.mbcp import Mbcp


class MbcpAsPrinted(Mbcp):
    """Leaves out the step that the paper's example describes: it names too much."""

    name: ClassVar[str] = "mbcp as printed"

    def on_delivered(self, packet: StampedPacket) -> None:
        self.causes[packet.origin] = packet.seq
