"""A chat: lines of standard input go to everybody, and nobody sees an answer before its question.

In two terminals, or on two machines; each member names all others and their addresses:

    python examples/chat.py ana --listen :7000 bo@127.0.0.1:7001
    python examples/chat.py bo --listen :7001 ana@127.0.0.1:7000

With `--store ana-store` messages survive this process: kill it, restart it, and it resumes. Without
arguments, three members talk in this process; one of them leaves and comes back.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

import antecede


async def show(group: antecede.Group) -> None:
    """Print messages, one's own included, each with its immediate causes."""
    async for message in group:
        after = f"   (after {', '.join(map(str, message.causes))})" if message.causes else ""
        text = printable(str(message.body))
        print(f"{group.me} reads {message.id}: {text}{after}", flush=True)


def printable(text: str) -> str:
    """Escape what other members wrote: a terminal would obey control characters."""
    return "".join(character if character.isprintable() else "?" for character in text)


async def chat(me: str, listen: str | None, peers: list[str], store: str | None) -> None:
    async with antecede.join("chat", me=me, listen=listen, peers=peers, store=store) as group:
        printing = asyncio.create_task(show(group))
        while line := await asyncio.to_thread(sys.stdin.readline):
            await group.broadcast(line.rstrip("\n"))
        # Without a store, messages that the others lack would be lost.
        print("waiting until everybody has received it; Ctrl-C leaves at once", file=sys.stderr)
        await group.drain()
        printing.cancel()


async def wait_until_equal(*groups: antecede.Group) -> None:
    """Wait until these members have delivered the same messages."""
    while len({tuple(group.delivered().values()) for group in groups}) > 1:
        await asyncio.sleep(0.01)


async def demonstration(folder: Path) -> None:
    """Cleo misses a conversation and receives it later, in causal order.

    A member that knows another's address connects to it; the first to join knows none and is connected to. So
    the operating system can choose the ports.
    """
    async with (
        antecede.join(
            "chat", me="cleo", listen=":0", peers=["ana", "bo"], store=folder / "cleo-store"
        ) as cleo,
        antecede.join("chat", me="bo", listen=":0", peers=["ana", f"cleo@{cleo.address}"]) as bo,
        antecede.join(
            "chat", me="ana", peers=[f"bo@{bo.address}", f"cleo@{cleo.address}"], store=folder / "ana-store"
        ) as ana,
    ):
        printing = [asyncio.create_task(show(group)) for group in (ana, bo, cleo)]
        await ana.broadcast("is anybody here?")
        await wait_until_equal(ana, bo, cleo)
        await cleo.broadcast("I am, but my train leaves")
        await wait_until_equal(ana, bo, cleo)

        print("-- cleo leaves")
        address = cleo.address
        await cleo.aclose()
        await ana.broadcast("shall we meet at eight?")
        await wait_until_equal(ana, bo)
        await bo.broadcast("yes!")
        await wait_until_equal(ana, bo)

        print("-- cleo comes back with her store")
        async with antecede.join(
            "chat", me="cleo", listen=address, peers=["ana", "bo"], store=folder / "cleo-store"
        ) as cleo_again:
            printing.append(asyncio.create_task(show(cleo_again)))
            await cleo_again.broadcast("what did I miss?")
            await wait_until_equal(ana, bo, cleo_again)
            print("-- everybody has received everything")
            for task in printing:
                task.cancel()


def main() -> None:
    if len(sys.argv) == 1:
        with tempfile.TemporaryDirectory() as folder:
            asyncio.run(demonstration(Path(folder)))
        return
    parser = argparse.ArgumentParser(description="A chat over causal broadcast.")
    parser.add_argument("me", help="your name")
    parser.add_argument("peers", nargs="+", help="every other member, as name@host:port")
    parser.add_argument("--listen", help="host:port, or :port for this machine only")
    parser.add_argument("--store", help="a file that keeps messages")
    options = parser.parse_args()
    try:
        asyncio.run(chat(options.me, options.listen, options.peers, options.store))
    except KeyboardInterrupt:
        print("left", file=sys.stderr)


if __name__ == "__main__":
    main()
