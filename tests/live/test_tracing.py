"""OpenTelemetry spans: a broadcast carries its span context, and deliveries link to it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from live_groups import run, together, until
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from phone_rooms import phone_room

import antecede
from antecede.live.messages import Message

EXPORTER = InMemorySpanExporter()


@pytest.fixture(autouse=True, scope="module")
def provider() -> None:
    """A process has one tracer provider, for good."""
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(EXPORTER))
    trace.set_tracer_provider(provider)


def drawn() -> str:
    """The traces, each as a tree, with the links between them."""
    found = sorted(EXPORTER.get_finished_spans(), key=lambda span: span.start_time or 0)
    children: dict[Any, list[ReadableSpan]] = {}
    for span in found:
        children.setdefault(parent(span), []).append(span)
    message_of = {identity(span): (span.attributes or {}).get("messaging.message.id") for span in found}
    lines: list[str] = []

    def draw(span: ReadableSpan, depth: int) -> None:
        attributes = span.attributes or {}
        who = attributes.get("messaging.client.id", "")
        link = "".join(f"  <- broadcast of {message_of[each]}" for each in linked(span))
        name = f"{'  ' * depth}{span.name}"
        lines.append(f"{name:26} {who!s:5}{attributes.get('messaging.message.id', '')}{link}".rstrip())
        for each in children.get(identity(span), []):
            draw(each, depth + 1)

    for number, root in enumerate(children[None], 1):
        lines.append(f"trace {number}")
        draw(root, 1)
    return "\n".join(lines)


@pytest.fixture(autouse=True)
def nothing_before() -> Iterator[None]:
    EXPORTER.clear()
    yield
    assert not trace.get_current_span().get_span_context().is_valid


def spans(name: str, me: str | None = None) -> list[ReadableSpan]:
    found = [each for each in EXPORTER.get_finished_spans() if each.name == name]
    return [each for each in found if me is None or (each.attributes or {})["messaging.client.id"] == me]


def identity(span: ReadableSpan) -> tuple[int, int]:
    context = span.get_span_context()
    assert context is not None
    return context.trace_id, context.span_id


def parent(span: ReadableSpan) -> tuple[int, int] | None:
    return (span.parent.trace_id, span.parent.span_id) if span.parent is not None else None


def linked(span: ReadableSpan) -> list[tuple[int, int]]:
    return [(each.context.trace_id, each.context.span_id) for each in span.links]


def test_a_delivery_span_links_to_its_broadcast_and_parents_the_handler_s_broadcasts() -> None:
    async def test() -> None:
        async with together("ana", "bo", otel=True) as (ana, bo):
            with trace.get_tracer("test").start_as_current_span("order"):
                await ana.broadcast("shall we?", headers={"mine": "too"})

            async def reply() -> None:
                async for message in bo:
                    assert message.headers["mine"] == "too"
                    with trace.get_tracer("test").start_as_current_span("think"):
                        await bo.broadcast("yes")
                    break
                bo.ack(message)

            await anext(ana)
            await asyncio.create_task(reply())
            answer = await anext(ana)
            ana.ack(answer)
            assert answer.body == "yes"

    run(test())
    (order,), (question,), (think,) = spans("order"), spans("broadcast room", "ana"), spans("think")
    (heard,), (answer,) = spans("deliver room", "bo"), spans("broadcast room", "bo")
    own, back = spans("deliver room", "ana")
    assert parent(question) == identity(order)
    assert question.kind == SpanKind.PRODUCER
    assert parent(heard) is None  # a trace of its own
    assert heard.kind == SpanKind.CONSUMER
    assert linked(heard) == linked(own) == [identity(question)]
    assert parent(think) == identity(heard)
    assert parent(answer) == identity(think)
    assert linked(back) == [identity(answer)]
    assert question.attributes == {
        "messaging.system": "antecede",
        "messaging.destination.name": "room",
        "messaging.client.id": "ana",
        "messaging.operation.name": "broadcast",
        "messaging.operation.type": "send",
        "messaging.message.id": "ana:1",
    }
    attributes = back.attributes or {}
    assert attributes["antecede.causes"] == ("ana:1",)
    assert attributes["messaging.message.id"] == "bo:1"
    assert (attributes["antecede.own"], attributes["antecede.outcome"]) == (False, "acked")
    page = Path(__file__).parent.parent.parent / "docs" / "how-to" / "trace-a-group.md"
    assert f"```\n{drawn()}\n```" in page.read_text()


def test_the_span_is_current_in_the_loop_until_the_next_message_is_asked_for() -> None:
    async def test() -> None:
        async with together("ana", "bo", otel=True) as (ana, bo):
            for number in range(300):  # more than are taken at once
                await ana.broadcast(number)
            current = []
            async for message in bo:
                current.append(trace.get_current_span().get_span_context().span_id)
                if message.body % 7 == 0:
                    await asyncio.sleep(0)
                if message.body == 299:
                    bo.ack(message)
                    break
            assert not trace.get_current_span().get_span_context().is_valid
            assert len(set(current)) == 300
            assert [identity(each)[1] for each in spans("deliver room", "bo")] == current

    run(test())


def test_the_delivery_span_records_the_outcome_of_a_message(tmp_path: Path) -> None:
    async def test() -> None:
        async with together("ana", "bo", otel=True) as (ana, bo):
            for word in ("again", "never", "left"):
                await ana.broadcast(word)
            bo.nack(await anext(bo))
            assert (await anext(bo)).redelivered
            await bo.park(await anext(bo), "cannot be read")
            async for _ in bo:
                break
            # A new iteration gets it again, and another task cannot end the current span here.
            again = await asyncio.create_task(_take(bo))
            assert (again.body, again.deliveries) == ("left", 2)

    async def _take(group: antecede.Group) -> Message:
        async for message in group:
            return message
        raise AssertionError

    run(test())
    found = [
        (
            (each.attributes or {})["antecede.outcome"],
            (each.attributes or {})["antecede.deliveries"],
            each.status,
        )
        for each in spans("deliver room", "bo")
    ]
    assert [each[:2] for each in found] == [
        ("nacked", 1),
        ("acked", 2),
        ("parked", 1),
        ("unacked", 1),
        ("unacked", 2),
    ]
    errors = [each[2].status_code == StatusCode.ERROR for each in found]
    assert errors == [True, False, True, False, False]


def test_a_broadcast_that_fails_is_an_error_and_names_no_message() -> None:
    async def test() -> None:
        async with antecede.join("room", me="ana", peers=[], otel=True) as ana:
            with pytest.raises(antecede.InputError):
                await ana.broadcast({1})  # type: ignore[arg-type]

    run(test())
    (span,) = spans("broadcast room")
    assert span.status.status_code == StatusCode.ERROR
    assert "messaging.message.id" not in (span.attributes or {})


def test_requests_replies_phones_and_membership_changes_are_traced(tmp_path: Path) -> None:
    async def test() -> None:
        async with phone_room(tmp_path, reads=False, otel=True) as group:
            readers = []

            async def read(each: antecede.Group) -> None:
                async for message in each:
                    if message.is_request:
                        await message.reply("here")

            readers = [asyncio.create_task(read(each)) for each in group.groups.values()]
            pia = await group.start_phone("pia", "ana", reads=False, otel=True)
            readers.append(asyncio.create_task(read(pia)))
            await until(lambda: "cy" in pia.present)
            with trace.get_tracer("test").start_as_current_span("ask"):
                await pia.request("cy", "where?", 60)
            for reader in readers:
                reader.cancel()
            await asyncio.gather(*readers, return_exceptions=True)

    run(test())
    (ask,), (question,), (answer,) = (
        spans("ask"),
        spans("broadcast room", "pia"),
        spans("broadcast room", "cy"),
    )
    assert parent(question) == identity(ask)
    (heard,) = [each for each in spans("deliver room", "cy") if linked(each) == [identity(question)]]
    assert parent(answer) == identity(heard)


@pytest.mark.parametrize("value", ["", "00-0-0-00", "\x00", "00-" + "g" * 32 + "-" + "1" * 16 + "-01", b"00"])
def test_an_invalid_trace_context_creates_no_link(value: Any) -> None:
    async def test() -> None:
        async with (
            antecede.join("room", me="bo", listen=":0", peers=["ana"], otel=True) as bo,
            antecede.join("room", me="ana", peers=[f"bo@{bo.address}"]) as ana,
        ):
            await ana.broadcast("strange", headers={"traceparent": value})
            bo.ack(await anext(bo))

    run(test())
    (heard,) = spans("deliver room", "bo")
    assert linked(heard) == []


def test_without_the_setting_there_are_no_spans_and_no_headers() -> None:
    async def test() -> None:
        async with together("ana", "bo") as (ana, bo):
            with trace.get_tracer("test").start_as_current_span("order"):
                await ana.broadcast("plain")
            assert (await anext(bo)).headers == {}

    run(test())
    assert [each.name for each in EXPORTER.get_finished_spans()] == ["order"]


def test_the_setting_needs_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    monkeypatch.delitem(sys.modules, "antecede.live.operations.tracing", raising=False)
    with pytest.raises(antecede.MissingExtraError, match=r"antecede\[otel\]"):
        antecede.join("room", me="ana", peers=[], otel=True)
