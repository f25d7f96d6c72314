"""Network models: when a packet that is sent now arrives, if it does.

`DirectNetwork` links every pair of peers, with independent delays and faults. `RelayedNetwork`,
`RoutedNetwork` and `QueuedNodes` are the networks of papers 000, 002 and 004; scenarios describe them by
`RelayedModel`, `RoutedModel` and `NodesModel`.
"""

from antecede.sim.network.base import Arrival, Network
from antecede.sim.network.delays import (
    ClippedNormal,
    Delay,
    Fixed,
    LogUniform,
    Normal,
    Quantiles,
    Uniform,
    parse_delay,
)
from antecede.sim.network.direct import DirectNetwork
from antecede.sim.network.queued_nodes import NodesModel, QueuedNodes
from antecede.sim.network.relayed import RelayedModel, RelayedNetwork
from antecede.sim.network.routed import RoutedModel, RoutedNetwork

__all__ = [
    "Arrival",
    "ClippedNormal",
    "Delay",
    "DirectNetwork",
    "Fixed",
    "LogUniform",
    "Network",
    "NodesModel",
    "Normal",
    "Quantiles",
    "QueuedNodes",
    "RelayedModel",
    "RelayedNetwork",
    "RoutedModel",
    "RoutedNetwork",
    "Uniform",
    "parse_delay",
]
