"""Pauses between calls to members that do not answer."""

from __future__ import annotations

import asyncio
import time

from antecede.live.changing.calling import Pauses


def test_a_sign_of_life_ends_all_pauses() -> None:
    async def run() -> float:
        pauses = Pauses()
        # With so many, each would wait for five seconds.
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
