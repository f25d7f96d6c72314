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
        self.seen = dict.fromkeys(group.members, 0)
        """The number of messages of each member that are applied here."""
        self._changed = asyncio.Condition()

    @property
    def value(self) -> int:
        return sum(sum(amounts.values()) for amounts in self.added.values())

    async def add(self, amount: int) -> None:
        await self._broadcast({"add": amount})

    async def reset(self) -> None:
        await self._broadcast({"reset": self.seen})

    async def _broadcast(self, body: dict[str, Any]) -> None:
        message = await self.group.broadcast(body)
        async with self._changed:  # A member's own messages are delivered to it like all others.
            await self._changed.wait_for(lambda: self.seen[message.origin] >= message.seq)

    async def listen(self) -> None:
        """Apply what is delivered. This is the only place where the state changes."""
        async for message in self.group:
            self._apply(message)
            async with self._changed:
                self._changed.notify_all()

    def _apply(self, message: antecede.Message) -> None:
        if "add" in message.body:
            self.added[message.origin][message.seq] = message.body["add"]
        else:
            for name, seen in message.body["reset"].items():
                self.added[name] = {seq: n for seq, n in self.added[name].items() if seq > seen}
        self.seen[message.origin] = message.seq


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
