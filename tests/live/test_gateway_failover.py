"""Gateways of `hcg` and `basic` that are lost for good: another one takes over their local processes."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from test_changing_kills import MEMBER, Processes

from antecede.live.trial.ports import free_ports

PATIENCE = 60.0
TAKE_OVER_SECONDS = 15.0
"""Time limit for everyone to continue without it. It takes 5 s, longer on a busy machine."""
GATEWAYS = ("gus", "gil", "lea")
BEHIND = {"pam": ("gus", "gil"), "pat": ("gus", "lea"), "pia": ("gil", "lea"), "leo": ("lea", "gus")}
"""Local processes, and the gateways that each may be behind, the first one first."""


class Sites(Processes):
    def __init__(self, folder: Path, protocol: str) -> None:
        super().__init__(folder)
        self.protocol = protocol
        self.ports = dict(zip(GATEWAYS, free_ports(len(GATEWAYS)), strict=True))
        self.founders = [f"{name}@127.0.0.1:{port}" for name, port in self.ports.items()]

    async def launch(self, name: str) -> None:
        settings: dict[str, Any] = {"me": name, "protocol": self.protocol, "store": str(self.folder / name)}
        settings["board"] = str(self.folder / f"{name}.json")
        if name in self.ports:
            settings |= {"founders": self.founders, "listen": f":{self.ports[name]}"}
            settings |= {"remove_after": "3s", "heartbeat": "500ms", "suspect_after": "2s"}
        else:
            settings["super_peers"] = [f"{each}@127.0.0.1:{self.ports[each]}" for each in BEHIND[name]]
        pipe = asyncio.subprocess.PIPE
        self.running[name] = await asyncio.create_subprocess_exec(
            sys.executable, str(MEMBER), json.dumps(settings), stdin=pipe, stdout=pipe
        )


@pytest.mark.parametrize("protocol", ["hcg", "basic"])
def test_local_processes_fail_over_when_their_gateway_is_killed_for_good(
    tmp_path: Path, protocol: str
) -> None:
    async def test() -> None:
        sites = Sites(tmp_path, protocol)
        try:
            async with asyncio.timeout(PATIENCE):
                await _test(sites)
        finally:
            for name in list(sites.running):
                await sites.kill(name)

    asyncio.run(test())


async def _test(sites: Sites) -> None:
    await asyncio.gather(*map(sites.start, GATEWAYS))
    await asyncio.gather(*map(sites.start, BEHIND))
    everyone = [*GATEWAYS, *BEHIND]
    sent: list[str] = []

    async def broadcast(name: str, body: str) -> None:
        await sites.ask(name, f"broadcast {body}")
        sent.append(body)

    for turn in range(3):
        for name in everyone:
            await broadcast(name, f"{turn} {name}")
    for name in everyone:
        await sites.until(name, "bodies", sent)
    # Accepted where they were broadcast; how far their gateway got with them is unknown.
    await asyncio.gather(*(broadcast(name, f"just before {name}") for name in ("pam", "pat")))
    await sites.kill("gus")
    async with asyncio.timeout(TAKE_OVER_SECONDS):
        for name in everyone[1:]:
            await broadcast(name, f"{name} goes on")
        for name in everyone[1:]:
            await sites.until(name, "bodies", sent)
    assert (await sites.ask("gil", "look"))["view"] == ["gil", "lea"]
    for turn in range(3):
        for name in everyone[1:]:
            await broadcast(name, f"without gus {turn} {name}")
    for name in everyone[1:]:
        await sites.until(name, "bodies", sent)
