"""A network whose nodes and links are in a file, routed as in `routed`."""

from __future__ import annotations

import msgspec

from antecede.errors import InputError
from antecede.overlay.graph_file import read_graph
from antecede.sim.network.delays import parse_delay
from antecede.sim.network.routed import RoutedNetwork
from antecede.user_classes import user_file


class GraphModel(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="graph", tag_field="model"):
    """Parameters of such a network. The file's first nodes are the peers; any others only forward.

    A link has the delay that the file gives it, which takes `unit` if it has none, or one drawn from `delay`
    for the whole run. Packets take the path of least delay, or of fewest hops if the file has no delays.
    """

    file: str
    unit: str | None = None
    delay: str = "1ms"
    bits_per_second: float = 1e9
    header: int = 32
    mtu: int = 1500
    multicast: bool = False

    def __post_init__(self) -> None:
        parse_delay(self.delay)
        if not (self.bits_per_second > 0 and 0 <= self.header < self.mtu):
            raise ValueError("bits_per_second must be more than 0, and header from 0 to less than mtu")

    def build(self, size: int, seed: int) -> RoutedNetwork:
        graph = read_graph(user_file(self.file), self.unit)
        if len(graph.names) < size:
            raise InputError(f"{self.file} has {len(graph.names)} nodes, too few for {size} peers")
        return RoutedNetwork(
            [list(nodes) for nodes in graph.neighbours],
            seed,
            parse_delay(self.delay),
            bits_per_second=self.bits_per_second,
            header=self.header,
            mtu=self.mtu,
            multicast=self.multicast,
            propagation={link: delay for link, delay in graph.delays.items() if delay is not None},
        )
