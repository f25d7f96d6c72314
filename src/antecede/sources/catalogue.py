"""The presets that come with Antecede."""

from __future__ import annotations

from pathlib import Path

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
    recognised_by=[["resourceSpans"], ["batches[].scopeSpans"], ["batches[].instrumentationLibrarySpans"]],
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
_JAEGER_SPANS = Preset(
    name="jaeger-spans",
    title="Jaeger's spans one by one, as in its Elasticsearch index",
    reader="records",
    id=["{traceID}:{spanID}"],
    process=["{process.serviceName}@{process.tags.hostname}", "{process.serviceName}"],
    causes=["{references[].traceID}:{references[].spanID}", "{traceID}:{parentSpanID}"],
    time=["{startTime}"],
    time_unit="us",
    kind=["{operationName}"],
    no_cause=["0", _NO_SPAN],
    recognised_by=[["traceID", "spanID", "process.serviceName"]],
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

PRESETS: dict[str, Preset] = {each.name: each for each in (_OTLP, _JAEGER, _JAEGER_SPANS, _OTEL_TABLE)}
"""By name, in the order in which a file is compared with them."""


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
