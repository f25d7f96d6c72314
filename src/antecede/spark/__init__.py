"""Spark: sweeps of simulations, and everything that reads traces in bulk.

from antecede.spark import advise, audit, graph
result = audit(events)             # a DataFrame of events in, DataFrames of verdicts out
result.verdicts.show()
graph(events).edges.show()         # what depends on what, immediately
advise(events).show()              # what each protocol would cost on this workload
causal_order(events, group="room", id="event_id", deps="follows")    # effects after causes; streams too
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from antecede.errors import require

require("pyspark", "spark")

if TYPE_CHECKING:
    from antecede.advise.on_spark import advise
    from antecede.audit.on_spark import Audit, audit, read_events, read_members
    from antecede.causal_order.inspect import accounts, explain
    from antecede.causal_order.on_spark import causal_order
    from antecede.graph.on_spark import DependencyGraphs, graph
    from antecede.spark.session import connect
    from antecede.spark.source import register

__all__ = [
    "Audit",
    "DependencyGraphs",
    "accounts",
    "advise",
    "audit",
    "causal_order",
    "connect",
    "explain",
    "graph",
    "read_events",
    "read_members",
    "register",
]

_MODULES = {
    "Audit": "antecede.audit.on_spark",
    "DependencyGraphs": "antecede.graph.on_spark",
    "accounts": "antecede.causal_order.inspect",
    "advise": "antecede.advise.on_spark",
    "audit": "antecede.audit.on_spark",
    "causal_order": "antecede.causal_order.on_spark",
    "connect": "antecede.spark.session",
    "explain": "antecede.causal_order.inspect",
    "graph": "antecede.graph.on_spark",
    "read_events": "antecede.audit.on_spark",
    "read_members": "antecede.audit.on_spark",
    "register": "antecede.spark.source",
}
"""Where each public name is defined. Those packages import this one, so it loads them when they are used."""

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return __all__
