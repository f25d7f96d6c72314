"""A product in a minute: servers, phones and a laptop, and what happens to them in the course of a year.

    python examples/dispatch/trial.py                           # five servers, 200 phones
    python examples/dispatch/trial.py --servers 3 --phones 10   # in seconds

Everybody reports something now and then, and answers what others have reported. Meanwhile a server loses its
disk and is replaced, a phone is stolen, a laptop is switched off and comes back, and the servers are started
again one after the other. In the end everyone must have every report that was accepted, once, after what it
answers. The exit code is 1 if not. README.md says what to look at.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import socket
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from antecede.live.security import keys

HERE = Path(__file__).parent
GROUP = "dispatch"
PHONE_PROCESSES = 2
PATIENCE = 120.0
"""Seconds that each step may take."""
MAX_STILL = 20.0
"""Seconds for which a running server may deliver nothing, while all others report."""


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


class MemberProcess:
    """A process with one or more members."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: asyncio.subprocess.Process
        self._lock = asyncio.Lock()

    async def open(self) -> MemberProcess:
        pipe = asyncio.subprocess.PIPE
        with (self._folder / "log").open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, str(HERE / "member.py"), stdin=pipe, stdout=pipe, stderr=log, limit=1 << 24
            )
        return self

    async def do(self, command: str, **values: Any) -> Any:
        """Send a command to the process; returns its answer."""
        into, output = self._process.stdin, self._process.stdout
        if into is None or output is None:
            raise RuntimeError("the process is not running")
        async with self._lock, asyncio.timeout(PATIENCE):
            line = {"do": command, "folder": str(self._folder), **values}
            into.write(json.dumps(line).encode() + b"\n")
            answer = await output.readline()
        if not answer:
            raise RuntimeError(f"a process has ended; {self._folder / 'log'} says why")
        found = json.loads(answer)
        if "failed" in found:
            raise RuntimeError(found["failed"])
        return found

    async def close(self) -> None:
        """Stop its members gracefully."""
        if self._process.returncode is None and self._process.stdin is not None:
            self._process.stdin.close()
            await self._process.wait()

    async def kill(self) -> None:
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()


class Product:
    def __init__(self, folder: Path, servers: int, phones: int, rate: float, pause: float) -> None:
        self.folder, self.rate, self.pause = folder, rate, pause
        self.servers = [f"server{number}" for number in range(1, servers + 1)]
        self.phones = [f"phone{number:03}" for number in range(1, phones + 1)]
        self.gone: set[str] = set()
        """The phones that were stolen."""
        self.ports = {name: free_port() for name in self.servers}
        self.web = {name: free_port() for name in self.servers}
        self.running: dict[str, MemberProcess] = {}
        """The processes of the servers and of the laptop, by name."""
        self.phone_processes: list[tuple[MemberProcess, list[str]]] = []
        self.began = time.monotonic()

    def say(self, text: str) -> None:
        print(f"{time.monotonic() - self.began:6.1f} s  {text}", flush=True)

    # Settings.

    def _settings(self, name: str, **values: Any) -> dict[str, Any]:
        return {
            "group": GROUP,
            "me": name,
            "protocol": "freescale",
            "store": str(self.folder / f"{name}.store"),
            "keys": str(self.folder / "keys" / name),
            "sync": False,
            "heartbeat": "1s",
            **values,
        }

    def _server(self, name: str) -> dict[str, Any]:
        founders = [f"{each}@127.0.0.1:{self.ports[each]}" for each in self.servers]
        at, web = f"127.0.0.1:{self.ports[name]}", f"127.0.0.1:{self.web[name]}"
        return self._settings(name, founders=founders, listen=at, web=web)

    def _laptop(self) -> dict[str, Any]:
        contacts = [f"{each}@127.0.0.1:{self.ports[each]}" for each in self.servers]
        return self._settings("laptop", contact=contacts, listen="127.0.0.1:0")

    def _phone(self, name: str) -> dict[str, Any]:
        """Phones prefer different servers, and know two more."""
        first = self.phones.index(name) % len(self.servers)
        order = [*self.servers[first:], *self.servers[:first]][:3]
        places = [f"{each}@wss://127.0.0.1:{self.web[each]}" for each in order]
        return self._settings(name, super_peers=places)

    # Steps.

    async def start(self, name: str) -> None:
        """Start a server or the laptop, from its store if it has one."""
        process = self.running[name] = await MemberProcess(self.folder).open()
        settings = self._laptop() if name == "laptop" else self._server(name)
        await process.do("start", settings={name: settings})
        await process.do("pace", pause=self._pause)

    async def stop(self, name: str) -> None:
        await self.running.pop(name).close()

    @property
    def _pause(self) -> float:
        return (len(self.servers) + 1 + len(self.phones)) / self.rate

    async def begin(self) -> None:
        keys.make_keys(
            self.folder / "keys", GROUP, [*self.servers, "laptop"], self.phones, 30, {}, self.servers
        )
        await asyncio.gather(*map(self.start, self.servers))
        await self.start("laptop")
        self.say(f"{len(self.servers)} servers and a laptop are connected")
        for number in range(PHONE_PROCESSES):
            process = await MemberProcess(self.folder).open()
            self.phone_processes.append((process, self.phones[number::PHONE_PROCESSES]))
        await asyncio.gather(
            *(
                process.do("start", settings={name: self._phone(name) for name in names})
                for process, names in self.phone_processes
            )
        )
        self.say(f"{len(self.phones)} phones are connected")
        for process, _ in self.phone_processes:
            await process.do("pace", pause=self._pause)
        self.say(f"everybody reports now and then, {self.rate:g} times a second in all")

    async def lose_a_server(self) -> None:
        name = self.servers[-1]
        await self.running.pop(name).kill()
        shutil.rmtree(self.folder / f"{name}.store")
        for file in self.folder.glob(f"{name}.*"):
            file.unlink()
        self.say(f"{name} is killed, and its disk is lost; its phones turn to others")
        await asyncio.sleep(self.pause)
        (self.folder / f"{name}.reports").write_text(str(await self._count(name)))
        await self.start(name)
        self.say(f"{name} is back with an empty disk, and has the state of the group")
        await self._until(self._former_are_removed, "what it was before is removed")

    async def _count(self, author: str) -> int:
        """The number of reports of an author that all others have in the end: its own count was on the lost
        disk."""
        found = -1
        while True:
            statuses = await self.statuses()
            counts = {each["counts"].get(author, 0) for each in statuses.values()}
            if len(counts) == 1 and counts == {found}:
                return found
            found = counts.pop() if len(counts) == 1 else -1
            await asyncio.sleep(1)

    async def _former_are_removed(self) -> bool:
        statuses = await self.statuses(phones=False)
        return all(len(each["view"]) == len(self.running) for each in statuses.values())

    async def steal_a_phone(self) -> None:
        name = self.phones[0]
        process = self._process_of(name)
        keys.revoke(self.folder / "keys", name)
        self.say(f"{name} is stolen, and revoked")
        before = int((await process.do("status", names=[name]))[name]["refusals"])
        await process.do("pace", names=[name], pause=0.2)

        async def is_refused() -> bool:
            status = (await process.do("status", names=[name]))[name]
            return bool(status["refusals"] > before)

        await self._until(is_refused, "what it broadcasts is refused")
        self.gone.add(name)
        await process.do("pace", names=[name], pause=0)

    def _process_of(self, phone: str) -> MemberProcess:
        return next(process for process, names in self.phone_processes if phone in names)

    async def take_the_laptop_away(self, seconds: float) -> None:
        await self.stop("laptop")
        self.say(f"the laptop is switched off; {seconds:g} s stand for a day")
        await asyncio.sleep(seconds)
        await self.start("laptop")
        self.say("the laptop is switched on again")
        await self._until(self._laptop_has_all, "it has what was reported meanwhile")

    async def _laptop_has_all(self) -> bool:
        """As much as a server had a moment ago."""
        server = (await self.running[self.servers[0]].do("status"))[self.servers[0]]["counts"]
        mine = (await self.running["laptop"].do("status"))["laptop"]["counts"]
        return all(mine.get(author, 0) >= count for author, count in server.items())

    async def upgrade(self) -> None:
        for name in self.servers:
            await self.stop(name)
            await self.start(name)
            self.say(f"{name} was stopped, and started again on its store")
            await self._until(self._servers_are_connected, "it is connected to all others")

    async def _servers_are_connected(self) -> bool:
        statuses = await self.statuses(phones=False)
        return all(int(each["connected"]) >= len(self.running) - 1 for each in statuses.values())

    # Checks.

    async def statuses(self, phones: bool = True) -> dict[str, dict[str, Any]]:
        found: dict[str, dict[str, Any]] = {}
        for name, process in self.running.items():
            found |= await process.do("status", names=[name])
        for process, names in self.phone_processes if phones else ():
            found |= await process.do("status", names=[each for each in names if each not in self.gone])
        return found

    async def _until(self, condition: Any, text: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not await condition():
            if time.monotonic() > deadline:
                raise TimeoutError(f"not after {PATIENCE:g} s: {text}")
            await asyncio.sleep(0.5)
        self.say(text)

    async def judge(self) -> list[str]:
        """Stop all reports, and return what is wrong in the end, if anything."""
        for process in [*self.running.values(), *(each for each, _ in self.phone_processes)]:
            await process.do("pace", pause=0)
        statuses: dict[str, dict[str, Any]] = {}

        async def are_equal() -> bool:
            nonlocal statuses
            statuses = await self.statuses()
            states = {json.dumps(each["counts"], sort_keys=True) for each in statuses.values()}
            # A phone that has just returned may still bring back what it had accepted.
            are_there = all(
                each["counts"].get(name, 0) >= each["accepted"] for name, each in statuses.items()
            )
            return len(states) == 1 and are_there

        wrong = []
        try:
            await self._until(are_equal, f"all {len(self.running) + len(self.phones) - len(self.gone)} agree")
        except TimeoutError as error:
            wrong.append(str(error))
        board = statuses[self.servers[0]]["counts"]
        for name, status in statuses.items():
            wrong += [f"{name}: {fault}" for fault in status["faults"]]
            if board.get(name, 0) != status["accepted"]:
                wrong.append(
                    f"of {name} {status['accepted']} reports were accepted, {board.get(name, 0)} are there"
                )
        servers = [statuses[name] for name in self.servers]
        reports, refusals = sum(board.values()), sum(each["refusals"] for each in statuses.values())
        self.say(
            f"{reports} reports were accepted, and are everywhere; {refusals} were refused, and repeated"
        )
        longest = max(each["pause"] for each in servers)
        self.say(f"the longest time in which a server was delivered nothing: {longest:.1f} s")
        if longest > MAX_STILL:
            wrong.append(f"a server was delivered nothing for {longest:.1f} s, more than {MAX_STILL:g} s")
        return wrong

    async def close(self) -> None:
        processes = [*self.running.values(), *(process for process, _ in self.phone_processes)]
        await asyncio.gather(*(process.kill() for process in processes))


async def run(folder: Path, options: argparse.Namespace) -> list[str]:
    product = Product(folder, options.servers, options.phones, options.rate, options.pause)
    try:
        await product.begin()
        await asyncio.sleep(options.pause)  # So that there is something to lose.
        await product.lose_a_server()
        await product.steal_a_phone()
        await product.take_the_laptop_away(options.away)
        await product.upgrade()
        await asyncio.sleep(options.pause)
        return await product.judge()
    finally:
        await product.close()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--servers", type=int, default=5, help="at least 3: one of them is lost")
    parser.add_argument("--phones", type=int, default=200)
    parser.add_argument("--rate", type=float, default=4.0, help="reports a second, of all together")
    parser.add_argument("--away", type=float, default=10.0, help="seconds that the laptop is away")
    parser.add_argument("--pause", type=float, default=3.0, help="seconds in which nothing happens")
    parser.add_argument("--keep", type=Path, help="a folder for stores and logs, which is left")
    options = parser.parse_args()
    if options.servers < 3 or options.phones < 1:
        parser.error("at least three servers, of which one is lost, and a phone")
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        try:
            wrong = asyncio.run(run(folder, options))
        except (TimeoutError, RuntimeError) as error:
            wrong = [str(error) or f"a process has not answered for {PATIENCE:g} s"]
    for text in wrong[:20]:
        print(f"wrong: {text}")
    print("nothing stopped, and nothing was lost" if not wrong else f"{len(wrong)} things are wrong")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
