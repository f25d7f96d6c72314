"""Spans of OpenTelemetry for what a member broadcasts and is given, with the program's own tracer provider.

The span of a broadcast is a child of the current one, and its context travels in the header `traceparent`
of W3C Trace Context. A delivery begins a trace of its own, with a link to that span: a message has many
receivers and a conversation no end, so one trace for all that follows from it would grow for ever. The span
of a delivery is the current one in the task that reads, from the moment in which it is given the message
until it asks for the next one or acknowledges it; so what the handler broadcasts is a child of the delivery
that caused it.
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
"""Not the program's: baggage may be confidential, and a broadcast goes to everyone."""


class Tracing:
    """The spans of one member."""

    def __init__(self, group: str, me: str) -> None:
        self._group, self._me = group, me
        self._tracer = trace.get_tracer("antecede", __version__)
        self._span: Span | None = None
        """Of the message in flight."""
        self._token: Token[Context] | None = None
        self._task: asyncio.Task[object] | None = None
        """The task in which that span is the current one."""

    @contextlib.contextmanager
    def broadcasting(self, about: About) -> Iterator[tuple[Span, About]]:
        """A span around a broadcast, and what travels with its body."""
        with self._tracer.start_as_current_span(
            f"broadcast {self._group}",
            kind=SpanKind.PRODUCER,
            attributes=self._attributes("broadcast", "send"),
        ) as span:
            carrier: dict[str, str] = {}
            _PROPAGATOR.inject(carrier)
            yield span, with_reserved(about, carrier)

    def name(self, span: Span, message: MessageId) -> None:
        """The message of a broadcast."""
        span.set_attribute("messaging.message.id", str(message))

    def begin(self, message: Message) -> None:
        """The application is given a message."""
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
        """The message in flight, if there is one, is acked, nacked or parked, or will be given again."""
        span, self._span = self._span, None
        if span is None:
            return
        span.set_attribute("antecede.outcome", outcome)
        if outcome in ("nacked", "parked"):
            span.set_status(Status(StatusCode.ERROR, outcome))
        span.end()
        # Another task has another context, in which the span was never the current one.
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
