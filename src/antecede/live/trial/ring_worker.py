"""One process of a trial of overlapping groups: broadcasts in each of its groups in turn, and keeps a log.

    python -m antecede.live.trial.ring_worker FOLDER NAME DISK

The log (`ring_log.py`) records what the application knows, independently of the process's own store. Commands
are lines on its input: `leave GROUP`, after which it rejoins the group, and `remove GROUP NAME`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import random
import signal
import sys
from pathlib import Path

import msgspec

from antecede.errors import AntecedeError
from antecede.live.overlapping.deliveries import GroupMessage
from antecede.live.overlapping.node import Connecting, Node, NodeSettings
from antecede.live.overlapping.node_group import NodeGroup
from antecede.live.settings import FaultInjection
from antecede.live.transport.wires import FaultyWire, Wire
from antecede.live.trial.ring import RingSetup
from antecede.live.trial.ring_log import RingLog
from antecede.protocols.base import LocalError

_LOOK_SECONDS = 0.1
_log = logging.getLogger(__name__)


class FaultyNode(Node):
    """A process whose connections break."""

    faults: FaultInjection
    rng: random.Random

    async def _dial(self, where: str) -> Wire:
        return FaultyWire(await super()._dial(where), self.faults, self.rng)


class RingWorker:
    def __init__(self, folder: Path, me: str, disk: str) -> None:
        self._setup = msgspec.json.decode((folder / "setup.json").read_bytes(), type=RingSetup)
        self._me, self._author = me, f"{me}.{disk}"
        self._log = RingLog(folder / f"{me}.log", self._author)
        self._groups: dict[str, NodeGroup] = {}
        self._my_groups = [group for group, members in self._setup.groups.items() if me in members]
        setup = self._setup
        self._at = {name: f"127.0.0.1:{port}" for name, port in setup.ports.items()}
        store = str(folder / f"{self._author}-store")
        self._node = FaultyNode(
            NodeSettings(me=me, listen=self._at[me], store=store, sync=setup.sync, **setup.settings)
        )
        self._node.rng = random.Random(f"{setup.seed} {self._author} {self._log.application.begun}")
        self._node.faults = FaultInjection(delay=setup.delay, cut_every=setup.cut_every)

    async def run(self) -> None:
        """Run until SIGTERM."""
        ended = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
        async with Connecting(self._node):
            await self._found()
            receiving = asyncio.create_task(self._receive())
            working = asyncio.create_task(self._work())
            waiting = asyncio.create_task(ended.wait())
            await asyncio.wait([waiting, receiving, working], return_when=asyncio.FIRST_COMPLETED)
            for task in (working, receiving):
                task.cancel()
            for task in (working, receiving):
                with contextlib.suppress(asyncio.CancelledError):
                    await task

    async def _found(self) -> None:
        """Found all its groups before anything is delivered: the first messages delivered to a late founder
        might be preceded by messages of other groups that depend on them."""
        for group in self._my_groups:
            if self._is_founder(group) and group not in self._log.application.have:
                await self._join(group)

    async def _work(self) -> None:
        for group in self._my_groups:
            if group not in self._groups:
                await self._join(group)
        await asyncio.gather(self._broadcast(), self._obey(), self._look())

    def _is_founder(self, group: str) -> bool:
        """Whether it has neither left the group nor lost its disk."""
        return self._author.endswith(".0") and group not in self._log.application.left

    async def _join(self, group: str) -> None:
        members = [f"{name}@{self._at[name]}" for name in self._setup.groups[group]]
        application = self._log.application
        who = {"founders" if self._is_founder(group) else "contact": members}

        def snapshot() -> bytes:
            return json.dumps(application.have[group].ranges()).encode()

        def restore(state: bytes) -> None:
            self._log.write("restore", group=group, state=json.loads(state))

        self._groups[group] = await self._node.join(group, snapshot=snapshot, restore=restore, **who)
        self._log.write("joined", group=group)

    async def _broadcast(self) -> None:
        setup, application = self._setup, self._log.application
        names = self._my_groups
        while application.sent < setup.each:
            await asyncio.sleep(setup.pause)
            name = names[application.sent % len(names)]
            group = self._groups.get(name)
            if group is None or name not in application.present:
                continue
            message = f"{self._author}/{name}:{application.last_number[name] + 1}"
            self._log.write("send", message, name)
            try:
                await group.broadcast(message.encode().ljust(setup.payload))
            except LocalError:  # it is leaving, or was removed and is about to return
                self._log.write("refused", message, name)
            else:
                self._log.write("accepted", message, name)

    async def _receive(self) -> None:
        async for message in self._node:
            if isinstance(message, GroupMessage) and isinstance(message.body, bytes):
                kind = "again" if message.redelivered else "deliver"
                self._log.write(kind, message.body.decode().rstrip(), message.group)

    async def _look(self) -> None:
        """Log whether groups are stable, whenever that changes."""
        stable = self._log.application.stable
        while True:
            for name, members in self._setup.groups.items():
                group = self._groups.get(name)
                is_stable = group is not None and _is_stable(group, len(members))
                if is_stable != (name in stable):
                    self._log.write("stable" if is_stable else "unstable", group=name)
            await asyncio.sleep(_LOOK_SECONDS)

    # Commands of the supervisor

    async def _obey(self) -> None:
        reader = asyncio.StreamReader()
        protocol = asyncio.StreamReaderProtocol(reader)
        await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, sys.stdin)
        while line := await reader.readline():
            what, group, *who = line.decode().split()
            self._log.write("change", group=what)
            await (self._leave(group) if what == "leave" else self._remove(group, *who))
            self._log.write("changed", group=what)

    async def _leave(self, group: str) -> None:
        """Leave a group and rejoin it."""
        self._log.write("leave", group=group)
        await self._groups.pop(group).leave()
        self._log.write("left", group=group)
        await asyncio.sleep(self._node.rng.uniform(0.0, 0.5))
        await self._join(group)

    async def _remove(self, group: str, name: str) -> None:
        """Remove a member that is alive: it returns."""
        labels = [each for each in self._groups[group].view.members if each.partition("~")[0] == name]
        for label in labels:
            try:
                await self._groups[group].remove(label)
            except (LocalError, AntecedeError) as error:
                _log.info("%s is not removed: %s", label, error)


def _is_stable(group: NodeGroup, size: int) -> bool:
    core = group._core
    if group.state != "open" or not core.members or len(group.view.members) != size:
        return False
    return not core.member.removals.removed and not core.member.unstable_admissions


def main() -> None:
    folder, me, disk = sys.argv[1:]
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    try:
        asyncio.run(RingWorker(Path(folder), me, disk).run())
    except AntecedeError as error:
        sys.exit(f"{me}: {error}")


if __name__ == "__main__":
    main()
