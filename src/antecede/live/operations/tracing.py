"""OpenTelemetry spans for a member's broadcasts and deliveries, with the program's own tracer provider.

The span of a broadcast is a child of the current one, and its context is sent in the W3C Trace Context header
`traceparent`. A delivery begins a trace of its own, with a link to that span: a message has many receivers
and a conversation has no end, so a single trace of everything that follows would grow without bound. The span
of a delivery is the current one in the reading task, from the moment the message is yielded until the task
requests the next one or acknowledges it; so the handler's broadcasts are children of the delivery that caused
them.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from contextvars import Token

from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from antecede import __version__
from antecede.live.headers import About, with_reserved
from antecede.live.messages import Message, MessageId

_PROPAGATOR = TraceContextTextMapPropagator()
"""Not the program's own propagator: baggage may be confidential, and a broadcast reaches every member."""


class Tracing:
    """The spans of one member."""

    def __init__(self, group: str, me: str) -> None:
        self._group, self._me = group, me
        self._tracer = trace.get_tracer("antecede", __version__)
        self._span: Span | None = None
        """The span of the message in flight."""
        self._token: Token[Context] | None = None
        self._task: asyncio.Task[object] | None = None
        """The task in which that span is the current one."""

    @contextlib.contextmanager
    def broadcasting(self, about: About) -> Iterator[tuple[Span, About]]:
        """A span around a broadcast, and the metadata to send with its body."""
        with self._tracer.start_as_current_span(
            f"broadcast {self._group}",
            kind=SpanKind.PRODUCER,
            attributes=self._attributes("broadcast", "send"),
        ) as span:
            carrier: dict[str, str] = {}
            _PROPAGATOR.inject(carrier)
            yield span, with_reserved(about, carrier)

    def name(self, span: Span, message: MessageId) -> None:
        """Record the message id of a broadcast."""
        span.set_attribute("messaging.message.id", str(message))

    def begin(self, message: Message) -> None:
        """A message is delivered to the application."""
        self.end("acked")
        carrier = {name: value for name, value in message.headers.items() if isinstance(value, str)}
        sent = trace.get_current_span(_PROPAGATOR.extract(carrier, Context())).get_span_context()
        self._span = self._tracer.start_span(
            f"deliver {self._group}",
            context=Context(),
            kind=SpanKind.CONSUMER,
            links=[Link(sent)] if sent.is_valid else [],
            attributes={
                **self._attributes("deliver", "process"),
                "messaging.message.id": str(message.id),
                "antecede.causes": [str(each) for each in message.causes],
                "antecede.deliveries": message.deliveries,
                "antecede.own": message.own,
            },
        )
        self._task = asyncio.current_task()
        self._token = contexts.attach(trace.set_span_in_context(self._span))

    def end(self, outcome: str) -> None:
        """The message in flight, if there is one, is acked, nacked or parked, or will be redelivered."""
        span, self._span = self._span, None
        if span is None:
            return
        span.set_attribute("antecede.outcome", outcome)
        if outcome in ("nacked", "parked"):
            span.set_status(Status(StatusCode.ERROR, outcome))
        span.end()
        # Another task has another context, in which this span was never the current one.
        if self._token is not None and self._task is asyncio.current_task():
            contexts.detach(self._token)
        self._token = self._task = None

    def _attributes(self, name: str, kind: str) -> dict[str, str]:
        return {
            "messaging.system": "antecede",
            "messaging.destination.name": self._group,
            "messaging.client.id": self._me,
            "messaging.operation.name": name,
            "messaging.operation.type": kind,
        }
