"""Metrics and health as seen by operators."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any

from live_groups import run, together, until
from prometheus_client.parser import text_string_to_metric_families

import antecede
from antecede.live.group import Group
from antecede.live.operations.metrics import health, render, serve


def figures(group: Group) -> dict[str, float]:
    """All samples of a member, by name; those by reason with the reason."""
    found = {}
    for family in text_string_to_metric_families(render(group).decode()):
        for sample in family.samples:
            assert sample.labels["member"] == group.me
            assert sample.labels["group"] == "room"
            found[sample.name + sample.labels.get("reason", sample.labels.get("kind", ""))] = sample.value
    return found


async def ask(port: int, request: bytes) -> tuple[int, bytes]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    return int(head.split()[1]), body


def test_metrics_count_events() -> None:
    async def test() -> None:
        async with together("ana", "bo") as (ana, bo):
            await until(lambda: ana.connected and bo.connected)
            for _ in range(3):
                await ana.broadcast(b"x" * 1000)
            before = figures(ana)
            assert before["antecede_sent_total"] == 3
            assert before["antecede_unstable_bytes"] > 3000
            assert before["antecede_connected_partners"] == before["antecede_connections_total"] == 1
            for _ in range(3):
                await anext(bo)
            assert figures(bo)["antecede_delivered_total"] == 3
            await until(lambda: figures(ana)["antecede_unstable_bytes"] == 0)
            reader, writer = await asyncio.open_connection(*str(ana.address).split(":"))
            writer.write(b"\xff" * 100)
            await reader.read()
            writer.close()
            await until(lambda: figures(ana).get("antecede_rejected_totalgreeting") == 1)

    run(test())


def test_only_metrics_and_health_are_served() -> None:
    async def test() -> None:
        async with together("ana", "bo") as (ana, _):
            server = await serve(ana, ":0")
            port = int(server.address.rpartition(":")[2])
            code, body = await ask(port, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
            assert (code, b"antecede_held_messages{" in body) == (200, True)
            code, body = await ask(port, b"GET /health?x=1 HTTP/1.1\r\n\r\n")
            report: dict[str, Any] = json.loads(body)
            assert (code, report["state"], report["member"]) == (200, "open", "ana")
            assert (await ask(port, b"GET / HTTP/1.1\r\n\r\n"))[0] == 404
            assert (await ask(port, b"POST /health HTTP/1.1\r\n\r\n"))[0] == 405
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"x" * 100_000)
            with contextlib.suppress(ConnectionResetError):
                assert await reader.read() == b""
            writer.close()
            server.close()
            await ana.drain()
            assert health(ana)[0] == 503

    run(test())


def test_health_lists_problems_that_need_an_operator() -> None:
    """It answers 503 only when the member cannot work."""

    async def test() -> None:
        async with antecede.join("room", me="ana", listen=":0", peers=["bo"]) as ana:
            code, body = health(ana)
            assert (code, json.loads(body)["problems"]) == (200, [])
            joining = antecede.join("room", me="bo", peers=[f"ana@{ana.address}"], protocol="timestamp")
            async with joining:
                await until(lambda: json.loads(health(ana)[1])["problems"])
                code, body = health(ana)
                (problem,) = json.loads(body)["problems"]
                assert (code, problem["kind"], problem["member"]) == (200, "refused", "bo")
                assert problem["text"] == "it uses protocol timestamp, ana uses mbcp: set `protocol` alike"
                assert figures(ana)["antecede_problemsrefused"] == 1

    run(test())
