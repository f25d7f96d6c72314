"""Network models: when a packet that is sent now arrives, if it does.

`DirectNetwork` links every pair of peers, with independent delays and faults. `RelayedNetwork`,
`RoutedNetwork` and `QueuedNodes` are the networks of papers 000, 002 and 004; scenarios describe them by
`RelayedModel`, `RoutedModel` and `NodesModel`. `GraphModel` is a routed network whose graph is in a file. A
user-defined network is a subclass of `Network`, which scenarios name as `module:Class`.
"""

from antecede.sim.network.base import Arrival, Network, UserNetwork, checked_figures
from antecede.sim.network.delays import (
    ClippedNormal,
    Delay,
    Exponential,
    Fixed,
    LogNormal,
    LogUniform,
    Normal,
    Pareto,
    Quantiles,
    Uniform,
    parse_delay,
    reach,
    upper_bound,
)
from antecede.sim.network.direct import DirectNetwork
from antecede.sim.network.graph_model import GraphModel
from antecede.sim.network.queued_nodes import NodesModel, QueuedNodes
from antecede.sim.network.relayed import RelayedModel, RelayedNetwork
from antecede.sim.network.routed import RoutedModel, RoutedNetwork

__all__ = [
    "Arrival",
    "ClippedNormal",
    "Delay",
    "DirectNetwork",
    "Exponential",
    "Fixed",
    "GraphModel",
    "LogNormal",
    "LogUniform",
    "Network",
    "NodesModel",
    "Normal",
    "Pareto",
    "Quantiles",
    "QueuedNodes",
    "RelayedModel",
    "RelayedNetwork",
    "RoutedModel",
    "RoutedNetwork",
    "Uniform",
    "UserNetwork",
    "checked_figures",
    "parse_delay",
    "reach",
    "upper_bound",
]
