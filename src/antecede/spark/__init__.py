"""The public DataFrame functions, for traces and logs of any size on Spark.

    from antecede.spark import advise, audit, causal_order, graph

    result = audit(events)             # a DataFrame of events in, DataFrames of verdicts out
    result.verdicts.show()
    graph(events).edges.show()         # what depends on what, immediately
    advise(events).show()              # what each protocol would cost on this workload
    causal_order(events, group="room", id="event_id", deps="follows")  # causes before effects; streams too
    merge_debezium(records)            # the topics of a connector in its order; streams too

Each name is imported when it is first used.
"""

from typing import TYPE_CHECKING

from antecede.errors import require
from antecede.lazy_names import lazy_names

require("pyspark", "spark")

if TYPE_CHECKING:
    from antecede.advise.on_spark import advise
    from antecede.audit.on_spark import Audit, audit
    from antecede.causal_order.inspect import held, stream_counts
    from antecede.causal_order.kafka_on_spark import kafka_events, read_kafka
    from antecede.causal_order.merge_on_spark import merge_debezium
    from antecede.causal_order.on_spark import causal_order
    from antecede.graph.on_spark import DependencyGraphs, graph
    from antecede.spark.read import read_events, read_members
    from antecede.spark.session import connect
    from antecede.spark.source import register

__all__ = [
    "Audit",
    "DependencyGraphs",
    "advise",
    "audit",
    "causal_order",
    "connect",
    "graph",
    "held",
    "kafka_events",
    "merge_debezium",
    "read_events",
    "read_kafka",
    "read_members",
    "register",
    "stream_counts",
]

_MODULES = {
    "Audit": "antecede.audit.on_spark",
    "DependencyGraphs": "antecede.graph.on_spark",
    "advise": "antecede.advise.on_spark",
    "audit": "antecede.audit.on_spark",
    "causal_order": "antecede.causal_order.on_spark",
    "connect": "antecede.spark.session",
    "graph": "antecede.graph.on_spark",
    "held": "antecede.causal_order.inspect",
    "kafka_events": "antecede.causal_order.kafka_on_spark",
    "merge_debezium": "antecede.causal_order.merge_on_spark",
    "read_events": "antecede.spark.read",
    "read_kafka": "antecede.causal_order.kafka_on_spark",
    "read_members": "antecede.spark.read",
    "register": "antecede.spark.source",
    "stream_counts": "antecede.causal_order.inspect",
}

if not TYPE_CHECKING:  # a type checker must refuse names that do not exist
    __getattr__, __dir__ = lazy_names(__name__, _MODULES)
