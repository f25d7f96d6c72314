"""The presets that come with Antecede."""

from __future__ import annotations

from pathlib import Path

import msgspec

from antecede.errors import InputError
from antecede.sources.preset import Preset, load_preset

_NO_SPAN = "0" * 16

_SERVICE = 'resource."service.name"'
_OTLP = Preset(
    name="otlp",
    title="OpenTelemetry traces (OTLP as JSON or protobuf); parents and links are causes",
    reader="otlp",
    id=["{traceId}:{spanId}"],
    process=[
        f'{{{_SERVICE}}}@{{resource."host.name"}}',
        f'{{{_SERVICE}}}@{{resource."k8s.pod.name"}}',
        f'{{{_SERVICE}}}@{{resource."service.instance.id"}}',
        f"{{{_SERVICE}}}",
        "unknown_service",
    ],
    causes=["{traceId}:{parentSpanId}", "{links[].traceId}:{links[].spanId}"],
    time=["{startTimeUnixNano}"],
    kind=["{name}"],
    no_cause=[_NO_SPAN],
    recognised_by=[
        ["resourceSpans"],
        ["trace.resourceSpans"],
        ["result.resourceSpans"],
        ["batches[].scopeSpans"],
        ["batches[].instrumentationLibrarySpans"],
    ],
)
_JAEGER = Preset(
    name="jaeger",
    title="Jaeger's JSON: the answer of its query API, or a download from its user interface",
    reader="jaeger",
    id=["{traceID}:{spanID}"],
    process=["{process.serviceName}@{process.tags.hostname}", "{process.serviceName}"],
    causes=["{references[].traceID}:{references[].spanID}"],
    time=["{startTime}"],
    time_unit="us",
    kind=["{operationName}"],
    no_cause=["0", _NO_SPAN],
    recognised_by=[["data[].spans"], ["spans", "processes", "traceID"]],
)
_JAEGER_SPANS = msgspec.structs.replace(
    _JAEGER,
    name="jaeger-spans",
    title="Jaeger's spans one by one, as in its Elasticsearch index",
    reader="records",
    process=[
        "{process.serviceName}@{process.tags.hostname}",
        "{process.serviceName}@{process.tag.hostname}",
        "{process.serviceName}",
    ],
    causes=[*_JAEGER.causes, "{traceID}:{parentSpanID}"],
    records=["_source", "hits.hits[]._source"],
    recognised_by=[
        ["traceID", "spanID", "process.serviceName"],
        ["_source.traceID", "_source.spanID", "_source.process.serviceName"],
        ["hits.hits[]._source.traceID", "hits.hits[]._source.spanID"],
    ],
)
_OTEL_TABLE = Preset(
    name="otel-table",
    title="OpenTelemetry spans as a table (Parquet, CSV, JSON lines): TraceId, SpanId, ParentSpanId …",
    reader="records",
    id=["{TraceId}:{SpanId}", "{trace_id}:{span_id}", "{traceId}:{spanId}"],
    process=[
        '{ServiceName}@{ResourceAttributes."host.name"}',
        "{ServiceName}",
        '{resource_attributes."service.name"}@{resource_attributes."host.name"}',
        '{resource_attributes."service.name"}',
        "{service_name}",
        "{serviceName}",
        '{"service.name"}',
        "unknown_service",
    ],
    causes=[
        "{TraceId}:{ParentSpanId}",
        '{"Links.TraceId"[]}:{"Links.SpanId"[]}',
        "{Links[].TraceId}:{Links[].SpanId}",
        "{trace_id}:{parent_span_id}",
        "{links[].trace_id}:{links[].span_id}",
        "{traceId}:{parentSpanId}",
        "{links[].traceId}:{links[].spanId}",
    ],
    no_cause=[_NO_SPAN],
    time=["{Timestamp}", "{start_time_unix_nano}", "{start_time}", "{startTimeUnixNano}"],
    kind=["{SpanName}", "{name}"],
    recognised_by=[
        ["TraceId", "SpanId", "ParentSpanId"],
        ["trace_id", "span_id", "parent_span_id"],
        ["traceId", "spanId", "parentSpanId"],
    ],
)

_COORDINATES = "{topic}-{partition}@{offset}"
_KAFKA = Preset(
    name="kafka",
    title="Kafka records: kcat -J, Spark's columns (JSON, Parquet), kafka-console-consumer",
    reader="kafka",
    id=[
        "{headers.ce_id}",
        "{headers.message_id}",
        "{headers.message-id}",
        "{headers.messageId}",
        "{headers.event_id}",
        "{headers.event-id}",
        "{headers.eventId}",
        "{headers.id}",
        _COORDINATES,
    ],
    process=["{topic}-{partition}"],
    seq=["{offset}"],
    causes=[
        "{headers.causation_id}",
        "{headers.causation-id}",
        "{headers.causationId}",
        "{headers.ce_causationid}",
        "{headers.parent_id}",
        "{headers.in-reply-to}",
    ],
    time=["{ts}", "{timestamp}"],
    time_unit="ms",
    kind=["{headers.ce_type}", "{headers.type}", "{topic}"],
    payload=["{payload}", "{value}"],
    recognised_by=[["topic", "partition", "offset"]],
)
_DEBEZIUM = Preset(
    name="debezium",
    title="Debezium's change events and transaction markers, as they are or within a dump of Kafka",
    reader="debezium",
    id=[
        "{transaction.id}:{transaction.total_order}",
        "{kafka.topic}-{kafka.partition}@{kafka.offset}",
        "{source.db}.{source.table}@{snapshot_row}",
        "{source.db}.{source.collection}@{snapshot_row}",
        "{source.db}.{source.table}@{source.file}:{source.pos}:{source.row}",
        "{source.schema}.{source.table}@{source.lsn}",
        "{source.schema}.{source.table}@{source.change_lsn}:{source.event_serial_no}",
        "{source.db}.{source.collection}@{source.ts_ms}:{source.ord}",
    ],
    process=[
        "{kafka.topic}-{kafka.partition}",
        "{source.name}.{source.schema}.{source.table}",
        "{source.name}.{source.db}.{source.table}",
        "{source.name}.{source.db}.{source.collection}",
        "transactions",
    ],
    seq=["{kafka.offset}", "{position}"],
    causes=["{causes[]}"],
    time=["{source.ts_ms}", "{ts_ms}"],
    time_unit="ms",
    kind=["{kind}"],
    recognised_by=[
        ["op", "source.connector"],
        ["payload.op", "payload.source.connector"],
        ["body.op", "body.source.connector"],
        ["body.payload.op", "body.payload.source.connector"],
        ["status", "id", "event_count", "data_collections"],
        ["payload.status", "payload.id", "payload.event_count"],
        ["body.status", "body.id", "body.event_count"],
        ["body.payload.status", "body.payload.id", "body.payload.event_count"],
    ],
)
_MATRIX = Preset(
    name="matrix",
    title="Matrix events with prev_events: JSON lines, an array, or an answer of a server (pdus, chunk)",
    reader="records",
    id=["{event_id}"],
    process=["{origin}", "{sender}"],
    causes=["{prev_events[]}", "{prev_events[][0]}"],
    time=["{origin_server_ts}"],
    time_unit="ms",
    kind=["{type}"],
    records=["pdus", "chunk", "events", "timeline.events"],
    recognised_by=[
        ["prev_events", "origin_server_ts"],
        ["pdus[].prev_events"],
        ["chunk[].prev_events"],
        ["events[].prev_events"],
        ["timeline.events[].prev_events"],
    ],
)
_DEPENDENCIES = Preset(
    name="dependencies",
    title="a table of dependencies: node, process, parents; also what antecede import writes",
    reader="records",
    id=["{node}"],
    process=["{process}"],
    causes=["{parents[]}"],
    seq=["{seq}"],
    recognised_by=[["node", "process", "parents"]],
)
_GRAPH = Preset(
    name="graph",
    title="records that name their parents: id or hash, and parents, prev_events, prev, deps or causes",
    reader="records",
    id=["{id}", "{hash}", "{event_id}", "{cid}"],
    process=["{process}", "{author}", "{agent}", "{actor}", "{sender}", "{host}", "unknown"],
    causes=[
        "{parents[]}",
        "{prev_events[]}",
        "{prev[]}",
        "{deps[]}",
        "{dependencies[]}",
        "{causes[]}",
        "{parent}",
        "{parent_id}",
    ],
    time=["{time}", "{timestamp}"],
    kind=["{kind}", "{type}"],
    recognised_by=[
        [name, causes]
        for name in ("id", "hash", "event_id", "cid")
        for causes in ("parents", "prev_events", "prev", "deps", "dependencies", "causes")
    ],
)

_EDITING = Preset(
    name="editing",
    title="editing traces as JSON: transactions of agents, with their parents by place",
    reader="editing",
    id=["{id}"],
    process=["{process}"],
    causes=["{causes[]}"],
    seq=["{seq}"],
    recognised_by=[["txns[].patches"], ["txns[].agent"], ["txns[].parents"]],
)
_SHIVIZ = msgspec.structs.replace(
    _EDITING,
    name="shiviz",
    title="logs of events with vector clocks in the forms that ShiViz and GoVector use",
    reader="shiviz",
    recognised_by=[],
)
_GIT = msgspec.structs.replace(
    _SHIVIZ, name="git", title="the commits of a repository; authors have no order", reader="git", seq=[]
)

PRESETS: dict[str, Preset] = {
    each.name: each
    for each in (
        _OTLP,
        _JAEGER,
        _JAEGER_SPANS,
        _OTEL_TABLE,
        _DEBEZIUM,
        _KAFKA,
        _MATRIX,
        _DEPENDENCIES,
        _GRAPH,
        _EDITING,
        _SHIVIZ,
        _GIT,
    )
}
"""Presets by name, in the order in which a file is compared with them."""


def find_preset(name: str) -> Preset:
    """A preset by its name, or from a file that a user has saved."""
    if name in PRESETS:
        return PRESETS[name]
    if name.endswith(".toml") or "/" in name or Path(name).is_file():
        return load_preset(Path(name))
    raise InputError(
        f"no preset '{name}'; there are {', '.join(PRESETS)}, or give a file that "
        "antecede sources NAME > FILE has written"
    )
