"""A chat: lines of standard input go to everybody, and nobody sees an answer before what it answers.

In two terminals, or on two machines; each names all the others and where to look for them:

    python examples/chat.py ana --listen :7000 bo@127.0.0.1:7001
    python examples/chat.py bo --listen :7001 ana@127.0.0.1:7000

With `--store ana.db` what was said survives this process: kill it, start it again, and it goes on where it
was. Without any arguments three members talk in this process, one of whom leaves and comes back.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

import antecede


async def show(group: antecede.Group) -> None:
    """Print what others say, with what each of them had seen or said last."""
    async for message in group:
        after = f"   (after {', '.join(map(str, message.causes))})" if message.causes else ""
        print(f"{group.me} hears {message.id}: {message.body}{after}", flush=True)


async def chat(me: str, listen: str | None, peers: list[str], store: str | None) -> None:
    async with antecede.join("chat", me=me, listen=listen, peers=peers, store=store) as group:
        hearing = asyncio.create_task(show(group))
        while line := await asyncio.to_thread(sys.stdin.readline):
            await group.broadcast(line.rstrip("\n"))
        # Without a store, what the others do not have yet would be gone.
        print("waiting until everybody has heard it; Ctrl-C leaves at once", file=sys.stderr)
        await group.drain()
        hearing.cancel()


async def heard(*groups: antecede.Group) -> None:
    """Until these members have delivered the same."""
    while len({tuple(group.delivered().values()) for group in groups}) > 1:
        await asyncio.sleep(0.01)


async def demonstration(folder: Path) -> None:
    """Cleo misses a conversation and gets it in an order that makes sense.

    Who knows another's address calls; who joins first here knows none and is called. So the system can
    choose the ports.
    """
    async with (
        antecede.join("chat", me="cleo", listen=":0", peers=["ana", "bo"], store=folder / "cleo.db") as cleo,
        antecede.join("chat", me="bo", listen=":0", peers=["ana", f"cleo@{cleo.address}"]) as bo,
        antecede.join(
            "chat", me="ana", peers=[f"bo@{bo.address}", f"cleo@{cleo.address}"], store=folder / "ana.db"
        ) as ana,
    ):
        hearing = [asyncio.create_task(show(group)) for group in (ana, bo, cleo)]
        await ana.broadcast("is anybody here?")
        await heard(ana, bo, cleo)
        await cleo.broadcast("I am, but my train leaves")
        await heard(ana, bo, cleo)

        print("-- cleo leaves")
        where = cleo.address
        await cleo.aclose()
        await ana.broadcast("shall we meet at eight?")
        await heard(ana, bo)
        await bo.broadcast("yes!")
        await heard(ana, bo)

        print("-- cleo comes back with her store")
        async with antecede.join(
            "chat", me="cleo", listen=where, peers=["ana", "bo"], store=folder / "cleo.db"
        ) as cleo_again:
            hearing.append(asyncio.create_task(show(cleo_again)))
            await cleo_again.broadcast("what did I miss?")
            await heard(ana, bo, cleo_again)
            print("-- everybody has heard everything")
            for task in hearing:
                task.cancel()


def main() -> None:
    if len(sys.argv) == 1:
        with tempfile.TemporaryDirectory() as folder:
            asyncio.run(demonstration(Path(folder)))
        return
    parser = argparse.ArgumentParser(description="A chat over causal broadcast.")
    parser.add_argument("me", help="your name")
    parser.add_argument("peers", nargs="+", help="every other member, as name@host:port")
    parser.add_argument("--listen", help="host:port, or :port for this machine alone")
    parser.add_argument("--store", help="a file that keeps what was said")
    given = parser.parse_args()
    try:
        asyncio.run(chat(given.me, given.listen, given.peers, given.store))
    except KeyboardInterrupt:
        print("left", file=sys.stderr)


if __name__ == "__main__":
    main()
