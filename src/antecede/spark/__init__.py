"""Spark: sweeps of simulations, and everything that reads traces in bulk.

from antecede.spark import advise, audit, graph
result = audit(events)             # a DataFrame of events in, DataFrames of verdicts out
result.verdicts.show()
graph(events).edges.show()         # what depends on what, immediately
advise(events).show()              # what each protocol would cost on this workload
causal_order(events, group="room", id="event_id", deps="follows")    # effects after causes; streams too
"""

from antecede.errors import require

require("pyspark", "spark")

from antecede.advise.on_spark import advise  # noqa: E402
from antecede.audit.on_spark import Audit, audit, read_events, read_members  # noqa: E402
from antecede.causal_order.inspect import accounts, explain  # noqa: E402
from antecede.causal_order.on_spark import causal_order  # noqa: E402
from antecede.graph.on_spark import DependencyGraphs, graph  # noqa: E402
from antecede.spark.session import connect  # noqa: E402
from antecede.spark.source import register  # noqa: E402

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
