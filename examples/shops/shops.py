"""Phones behind two levels of super peers: nobody sees a refund before the recall for which it was made.

    python examples/shops/shops.py

Office, warehouse and web are servers. Each shop has a gateway, which is behind one of them, and phones, which
are behind the gateway. A stock keeper recalls a lot; a till in another shop refunds it. The links of the
office are slow, so the refund would overtake the recall on its way to the web shop. One gateway is killed
meanwhile, and comes back. Gateways are processes of their own, as in a shop: `antecede node gate-a.toml`.
"""

from __future__ import annotations

import asyncio
import socket
import sys
import tempfile
from pathlib import Path

import antecede

SERVERS = ["office", "warehouse", "web"]
GATES = {"gate-a": "office", "gate-b": "warehouse", "gate-c": "web"}
PHONES = {"stock-a": "gate-a", "till-a": "gate-a", "till-b": "gate-b", "till-c": "gate-c"}
BEHIND = {**GATES, **PHONES}
NAMES = [*SERVERS, *BEHIND]
LOTS = 20
KILLED_AT = 8


def free_ports() -> dict[str, int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in NAMES]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return dict(zip(NAMES, ports, strict=True))


def address(name: str, seen_by: str, ports: dict[str, int]) -> str | None:
    """Phones call their gateway's WebSocket, gateways their server; nobody calls a phone."""
    if name in PHONES or (name in GATES and seen_by not in PHONES):
        return None
    return f"ws://127.0.0.1:{ports[name]}" if name in GATES else f"127.0.0.1:{ports[name]}"


def peers(me: str, ports: dict[str, int]) -> list[antecede.Member]:
    others = [name for name in NAMES if name != me]
    return [antecede.Member(name, address(name, me, ports), BEHIND.get(name)) for name in others]


class Gate:
    """The gateway of a shop: a process that only forwards, with a configuration file and a store."""

    def __init__(self, folder: Path, name: str, ports: dict[str, int]) -> None:
        self.config = folder / f"{name}.toml"
        lines = [f'group = "shops"\nme = "{name}"\nprotocol = "freescale"\nbehind = "{GATES[name]}"']
        lines.append(f'web = ":{ports[name]}"\nstore = "{name}-store"')
        for peer in peers(name, ports):
            at = f'\nat = "{peer.at}"' if peer.at else ""
            behind = f'\nbehind = "{peer.behind}"' if peer.behind else ""
            lines.append(f'[[peers]]\nname = "{peer.name}"{at}{behind}')
        self.config.write_text("\n".join(lines))

    async def start(self) -> None:
        command = [sys.executable, "-m", "antecede", "node", str(self.config), "--no-log"]
        self.process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.DEVNULL)

    async def kill(self) -> None:
        """As `kill -9` or a power cut would."""
        self.process.kill()
        await self.process.wait()


class Post:
    """A server or a phone, and what it has read so far."""

    def __init__(self, folder: Path, name: str, ports: dict[str, int]) -> None:
        self.name, self.recalls, self.refunds, self.early = name, set[int](), set[int](), 0
        self.joining = antecede.join(
            "shops",
            me=name,
            protocol="freescale",
            behind=BEHIND.get(name),
            listen=f":{ports[name]}" if name in SERVERS else None,
            peers=peers(name, ports),
            store=folder / f"{name}-store",
            faults=antecede.FaultInjection(delay="0ms-200ms" if name == "office" else "0ms-2ms"),
        )

    async def start(self) -> None:
        self.group = await self.joining
        self.listening = asyncio.create_task(self._listen())

    async def _listen(self) -> None:
        async for message in self.group:
            if "recall" in message.body:
                self.recalls.add(message.body["recall"])
                if self.name == "till-b":
                    await self.group.broadcast({"refund": message.body["recall"]})
            else:
                self.refunds.add(message.body["refund"])
                self.early += message.body["refund"] not in self.recalls

    @property
    def is_done(self) -> bool:
        return len(self.recalls) == len(self.refunds) == LOTS

    async def stop(self) -> None:
        self.listening.cancel()
        await self.group.aclose()


async def run(folder: Path) -> None:
    ports = free_ports()
    gates = {name: Gate(folder, name, ports) for name in GATES}
    posts = {name: Post(folder, name, ports) for name in (*SERVERS, *PHONES)}
    for gate in gates.values():
        await gate.start()
    for post in posts.values():
        await post.start()
    for lot in range(LOTS):
        if lot == KILLED_AT:
            await gates["gate-a"].kill()
            print("gate-a is killed")
        # Accepted at once, whether or not the gateway can be reached: the phone has a store.
        await posts["stock-a"].group.broadcast({"recall": lot})
        await asyncio.sleep(0.1)
    await gates["gate-a"].start()
    print("gate-a is back")
    while not all(post.is_done for post in posts.values()):
        await asyncio.sleep(0.02)
    for name, post in posts.items():
        print(f"{name}: {LOTS} recalls, {LOTS} refunds, {post.early} before their recall")
    for post in posts.values():
        await post.stop()
    for gate in gates.values():
        await gate.kill()


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(run(Path(folder)))


if __name__ == "__main__":
    main()
