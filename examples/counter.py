"""A counter that any member may increase or reset, without a server or locks.

    python examples/counter.py

Members add whenever they like, connected or not, and all converge to the same number. A reset cancels what
its sender had seen and nothing else: a concurrent addition survives it.

Causal order keeps this small. A reset says how many messages of each member its sender had seen, and all of
these are delivered before the reset. So it is applied once and forgotten; without causal order every member
would have to remember every reset for ever, in case an addition that it covers arrives later.
"""

from __future__ import annotations

import asyncio
import random
from typing import Any

import antecede


class Counter:
    """One member's copy. Its state is the additions that were not reset, by origin and sequence number."""

    def __init__(self, group: antecede.Group) -> None:
        self.group = group
        self.added: dict[str, dict[int, int]] = {name: {} for name in group.members}

    @property
    def value(self) -> int:
        return sum(sum(amounts.values()) for amounts in self.added.values())

    async def add(self, amount: int) -> None:
        await self._broadcast({"add": amount})

    async def reset(self) -> None:
        await self._broadcast({"reset": self.group.delivered()})

    async def _broadcast(self, body: dict[str, Any]) -> None:
        # A member's own messages are not delivered to it: apply them once they are accepted.
        message = await self.group.broadcast(body)
        self._apply(message.origin, message.seq, body)

    async def listen(self) -> None:
        async for message in self.group:
            self._apply(message.origin, message.seq, message.body)

    def _apply(self, origin: str, seq: int, body: dict[str, Any]) -> None:
        if "add" in body:
            self.added[origin][seq] = body["add"]
        else:
            for name, seen in body["reset"].items():
                self.added[name] = {seq: n for seq, n in self.added[name].items() if seq > seen}


async def wait_until_equal(*counters: Counter) -> None:
    """Wait until all have delivered the same messages."""
    while len({tuple(each.group.delivered().values()) for each in counters}) > 1:
        await asyncio.sleep(0.01)


async def demonstration() -> None:
    async with (
        antecede.join("likes", me="cleo", listen=":0", peers=["ana", "bo"]) as third,
        antecede.join("likes", me="bo", listen=":0", peers=["ana", f"cleo@{third.address}"]) as second,
        antecede.join("likes", me="ana", peers=[f"bo@{second.address}", f"cleo@{third.address}"]) as first,
    ):
        ana, bo, cleo = (Counter(group) for group in (first, second, third))
        listening = [asyncio.create_task(each.listen()) for each in (ana, bo, cleo)]

        async def like(counter: Counter, times: int) -> None:
            for _ in range(times):
                await counter.add(1)
                await asyncio.sleep(random.random() / 200)

        await asyncio.gather(like(ana, 20), like(bo, 30), like(cleo, 50))
        await wait_until_equal(ana, bo, cleo)
        print(f"after 20 + 30 + 50 likes: ana {ana.value}, bo {bo.value}, cleo {cleo.value}")

        third.go_offline(0.5)
        await ana.reset()
        await cleo.add(7)
        print(f"ana resets, cleo is offline and adds 7: ana {ana.value}, cleo {cleo.value}")
        await wait_until_equal(ana, bo, cleo)
        print(f"cleo is back: ana {ana.value}, bo {bo.value}, cleo {cleo.value}")
        for task in listening:
            task.cancel()


def main() -> None:
    asyncio.run(demonstration())


if __name__ == "__main__":
    main()
