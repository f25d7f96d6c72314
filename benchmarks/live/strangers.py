"""Strangers on a port: how long a member takes to connect while 3,000 connections a second are opened to it.

    python benchmarks/live/strangers.py [SECONDS THAT A MEMBER MAY TAKE]

Each row is a flood of its own, by a process of its own (`tests/live/flood.py`): from one address or 5,000,
silent or with the first bytes of TLS; at members with keys and without. Bo calls Ana after two seconds of
the flood. Prints a table, and writes strangers.json.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import antecede
from antecede.live.group import Group
from antecede.live.security.keys import make_keys

HERE = Path(__file__).parent
FLOOD = HERE.parent.parent / "tests" / "live" / "flood.py"
PER_SECOND = 3_000
FLOODS = (
    ("silent, from Bo's own address", False, 0),
    ("silent, from one other address", False, 1),
    ("silent, from 5,000 addresses", False, 5_000),
    ("TLS, from one other address", True, 1),
    ("TLS, from 5,000 addresses; Bo was here before", True, 5_000),
)


def client_hello() -> bytes:
    """The first bytes of a client that wants to use TLS."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    sent = ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), sent).do_handshake()
    return sent.read()


@contextlib.asynccontextmanager
async def flood(group: Group, message: bytes, sources: int, seconds: float) -> AsyncIterator[None]:
    host, _, port = str(group.address).rpartition(":")
    arguments = [host, port, str(PER_SECOND), str(seconds), message.hex(), str(sources)]
    stranger = await asyncio.create_subprocess_exec(
        sys.executable, str(FLOOD), *arguments, stdout=asyncio.subprocess.PIPE
    )
    if stranger.stdout is not None:
        await stranger.stdout.readline()
    await asyncio.sleep(2)
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            stranger.kill()
        await stranger.wait()


async def connected(ana: Group, bo: Group, patience: float) -> float:
    """Seconds until both are connected, or infinity."""
    began = time.monotonic()
    while not (ana.connected and bo.connected):
        if time.monotonic() - began > patience:
            return float("inf")
        await asyncio.sleep(0.002)
    return time.monotonic() - began


async def measure(keys: Path | None, message: bytes, sources: int, patience: float) -> dict[str, Any]:
    def options(name: str) -> dict[str, Any]:
        return {"keys": keys / name} if keys is not None else {}

    async with antecede.join("room", me="ana", listen=":0", peers=["bo"], **options("ana")) as ana:
        peers = [f"ana@{ana.address}"]
        joining = antecede.join("room", me="bo", peers=peers, **options("bo"))
        if sources > 1 and message:
            async with joining as bo:
                await connected(ana, bo, patience)
                bo.go_offline(patience)
                async with flood(ana, message, sources, patience + 10):
                    bo.go_offline(0.0)
                    seconds = await connected(ana, bo, patience)
                    cpu = await cpu_share()
        else:
            async with flood(ana, message, sources, patience + 10), joining as bo:
                seconds = await connected(ana, bo, patience)
                cpu = await cpu_share()
        return {"seconds": seconds, "cpu": cpu, "rejected": ana.counts["rejected too many"]}


async def cpu_share() -> float:
    """Of one core, for the members and this measurement, while the flood goes on."""
    began, used = time.monotonic(), time.process_time()
    await asyncio.sleep(2)
    return (time.process_time() - used) / (time.monotonic() - began)


async def main(patience: float) -> None:
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        keys = Path(folder) / "keys"
        make_keys(keys, "room", ["ana", "bo"], [], 1, {}, [])
        for name, talks, sources in FLOODS:
            for secured in (None, keys):
                message = client_hello() if talks else b""
                row = await measure(secured, message, sources, patience)
                rows.append({"flood": name, "keys": secured is not None, **row})
                print(f"{name:<46} {'keys' if secured else '    '} {row['seconds']:8.2f} s {row['cpu']:6.0%}")
    (HERE / "strangers.json").write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    asyncio.run(main(float(sys.argv[1]) if len(sys.argv) > 1 else 60.0))
