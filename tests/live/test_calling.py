"""Calls of members that make connections: pauses, calls beside one that hangs, and large groups."""

from __future__ import annotations

import asyncio
import socket
import time
from collections import Counter

from live_groups import run, until

import antecede
from antecede.live.changing.calling import Pauses, dial_afresh
from antecede.live.trial.ports import free_ports


def test_a_sign_of_life_ends_all_pauses() -> None:
    async def run() -> float:
        pauses = Pauses()
        # More would make each call wait for five seconds.
        waiting = [asyncio.create_task(pauses.wait(link, 20)) for link in range(100)]
        await asyncio.sleep(0)
        began = time.monotonic()
        last = asyncio.create_task(pauses.wait(100, 20))
        await asyncio.sleep(0)
        pauses.sign_of_life()
        await last
        for each in waiting:
            each.cancel()
        return time.monotonic() - began

    assert asyncio.run(run()) < 2.0


def test_a_slow_process_does_not_dial_again_because_it_is_slow() -> None:
    async def test() -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            server.setblocking(False)
            loop = asyncio.get_running_loop()
            calling = asyncio.create_task(
                dial_afresh(f"127.0.0.1:{server.getsockname()[1]}", None, seconds=10.0)
            )
            await asyncio.sleep(0)
            time.sleep(0.7)  # the process is busy with something else
            wire = await calling
            wire.abort()
            await loop.sock_accept(server)
            # Another call would have been accepted before this one.
            probe = await loop.run_in_executor(None, socket.create_connection, server.getsockname())
            accepted, _ = await loop.sock_accept(server)
            assert accepted.getpeername() == probe.getsockname()
            accepted.close()
            probe.close()

    run(test())


def test_limits_on_strangers_admit_a_large_group_behind_one_address() -> None:
    """As if all members were behind one router."""
    size = 30

    async def test() -> None:
        ports = free_ports(size)
        founders = [f"m{number:02}@127.0.0.1:{port}" for number, port in enumerate(ports)]
        joining = (
            antecede.join("room", me=each.partition("@")[0], listen=each.partition("@")[2], founders=founders)
            for each in founders
        )
        groups = await asyncio.gather(*joining)
        try:
            await until(lambda: all(len(each.connected) == size - 1 for each in groups), "all connections")
            counts: Counter[str] = sum((each.counts for each in groups), Counter())
            assert not counts["rejected too many"]
        finally:
            await asyncio.gather(*(each.aclose() for each in groups))

    run(test())
