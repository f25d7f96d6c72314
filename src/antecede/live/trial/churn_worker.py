"""One process of a churn trial: a member of a dynamic group, and its application.

    python -m antecede.live.trial.churn_worker      # reads tasks from its input and forks a process for each

The processes are forked from one that has imported everything, since a trial starts thousands. Each
broadcasts at its own rate, records its deliveries (`kept_state.py`), and takes commands from the trial's
supervisor over a socket: one JSON object per line.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import hashlib
import importlib
import json
import logging
import os
import random
import select
import signal
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from antecede.errors import AntecedeError
from antecede.live.changing.group import DynamicGroup
from antecede.live.changing.phone_group import CutOffError, PhoneGroup
from antecede.live.group import Group
from antecede.live.joining import join
from antecede.live.settings import Settings
from antecede.live.trial.kept_state import KeptState
from antecede.protocols.base import LocalError

_CLONE_NEWNET = 0x4000_0000
_SLOW_EVERY, _SLOW_SECONDS = 16, 0.005
"""Some messages are processed slowly, so that kills find them in flight."""
_VIEW_SECONDS = 0.1
_MOVE_SECONDS = 5.0
"""How long a move may take: the phone's destination may be away."""


class WorkerTask(msgspec.Struct, frozen=True):
    """The task of one process."""

    name: str
    author: str
    folder: str
    group: str
    listen: str
    control: str
    """The supervisor's socket."""
    founders: list[str] = []
    """The founders of the group, if this process is one of them and starts the group."""
    contacts: list[str] = []
    is_phone: bool = False
    """Whether it is behind one of the contacts, and no member."""
    pause: float = 0.1
    """Seconds between two broadcasts, on average."""
    payload: int = 100
    seed: int = 0
    sync: bool = False
    network: str = ""
    """The network namespace to run in."""
    trace: str | None = None
    settings: dict[str, Any] = {}


class Worker:
    def __init__(self, task: WorkerTask) -> None:
        self._task = task
        folder = Path(task.folder)
        self._kept = KeptState(folder / "application", task.author)
        self._store = folder / "store"
        self._padding = "x" * task.payload
        self._random = random.Random(task.seed)
        self._group: Group | None = None
        self._may_broadcast = asyncio.Event()
        self._may_broadcast.set()
        self._is_broadcasting = False
        """Whether a broadcast waits to be accepted."""
        self._seen: dict[str, int] = {}
        """How many changes of each kind this process was notified of."""
        self._running: set[asyncio.Task[None]] = set()
        """Commands that are being executed."""
        self._writer: asyncio.StreamWriter

    async def run(self) -> None:
        reader, self._writer = await asyncio.open_unix_connection(self._task.control)
        self._report(hello=self._task.name, pid=os.getpid())
        obeying = asyncio.create_task(self._obey(reader))
        try:
            await self._be_member()
            await asyncio.gather(*self._running)  # `leave` is one of them
            await self._writer.drain()
        finally:
            obeying.cancel()
            await asyncio.gather(obeying, return_exceptions=True)

    def _report(self, **values: Any) -> None:
        self._writer.write(json.dumps(values).encode() + b"\n")

    # The member

    async def _be_member(self) -> None:
        """Take part as long as this process is a member. If it is removed, it returns by itself."""
        task = self._task
        who: dict[str, Any] = {"listen": task.listen}
        if task.is_phone:
            who = {"super_peers": task.contacts}
        elif task.contacts:
            who["contact"] = task.contacts
        else:
            who["founders"] = task.founders
        settings = Settings.create(
            group=task.group,
            me=task.name,
            store=self._store,
            sync=task.sync,
            insecure=True,
            trace=task.trace,
            **who,
            **task.settings,
        )
        snapshot = None if task.is_phone else self._kept.dump  # nobody joins at a phone
        async with join(settings, snapshot=snapshot, restore=self._kept.load) as group:
            self._group = group
            self._kept.note("member", group.me)
            self._report(ready=group.me, at=group.address)
            works = (self._broadcast, self._watch, self._report_view)
            tasks = [asyncio.create_task(work(group)) for work in works]
            try:
                await self._receive(group)
            finally:
                self._group = None
                self._report(sees=None)
                for each in tasks:
                    each.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    async def _broadcast(self, group: Group) -> None:
        with contextlib.suppress(LocalError):  # it has left, or was removed
            while True:
                await asyncio.sleep(self._random.expovariate(1 / self._task.pause))
                await self._may_broadcast.wait()
                self._is_broadcasting = True
                try:
                    identifier, causes = self._kept.intend()
                    await group.broadcast({"id": identifier, "causes": causes, "padding": self._padding})
                    self._kept.accept(identifier)
                except CutOffError:
                    pass  # it was not broadcast
                finally:
                    self._is_broadcasting = False

    async def _receive(self, group: Group) -> None:
        count = 0
        async for message in group:
            self._kept.deliver(message.body["id"], message.body["causes"], message.redelivered)
            count += 1
            if count % _SLOW_EVERY == 0:
                await asyncio.sleep(_SLOW_SECONDS)

    async def _watch(self, group: Group) -> None:
        async for change in group.changes():
            self._seen[change.kind] = self._seen.get(change.kind, 0) + 1

    async def _report_view(self, group: Group) -> None:
        """Send this member's view to the supervisor whenever it changes."""
        reported: dict[str, Any] | None = None
        while True:
            sees = self._sees(group)
            if sees != reported:
                self._report(sees=sees)
                reported = sees
            await asyncio.sleep(_VIEW_SECONDS)

    def _sees(self, group: Group) -> dict[str, Any] | None:
        if isinstance(group, PhoneGroup):
            return {"label": group.me, "view": [], "removing": [], "unstable": [], "removed": 0}
        member = group._core.member if isinstance(group, DynamicGroup) and group._core.members else None
        if member is None or group.state != "open":
            return None

        def labels(streams: Iterable[int]) -> list[str]:
            return sorted(group._names[each] for each in streams)

        return {
            "label": group.me,
            "view": labels(member.addresses),
            "removing": labels(member.removals.removed - member.ends.keys()),
            "unstable": labels(member.unstable_admissions),
            "removed": len(member.removals.removed),
        }

    # Commands of the supervisor

    async def _obey(self, reader: asyncio.StreamReader) -> None:
        while line := await reader.readline():
            command = json.loads(line)
            task = asyncio.create_task(self._carry_out(command))
            self._running.add(task)
            task.add_done_callback(self._running.discard)
        os._exit(0)  # the supervisor has exited

    async def _carry_out(self, command: dict[str, Any]) -> None:
        try:
            answer = await getattr(self, f"_on_{command['do']}")(**command.get("with", {}))
        except (AntecedeError, LocalError, TimeoutError) as error:
            answer = {"refused": str(error)}
        self._report(answer=command["number"], **(answer or {}))

    def _require_group(self) -> Group:
        if self._group is None:
            raise LocalError("it is not a member now")
        return self._group

    async def _on_leave(self) -> None:
        await self._require_group().leave()
        self._kept.note("left")

    async def _on_remove(self, who: str) -> None:
        """Remove one incarnation. A founder's name would also match its other incarnations."""
        group = self._require_group()
        name = who.partition("~")[0]
        if [each for each in group.view.members if each.partition("~")[0] == name] != [who]:
            raise LocalError(f"{who} is not the only one of its name in the view")
        await group.remove(who)

    async def _on_expel(self, who: str) -> None:
        group = self._require_group()
        if not isinstance(group, DynamicGroup):
            raise LocalError("nobody is behind it")
        await group.expel(who)

    async def _on_move(self, to: str) -> None:
        group = self._require_group()
        if not isinstance(group, PhoneGroup):
            raise LocalError("it is behind nobody")
        async with asyncio.timeout(_MOVE_SECONDS):
            await group.move(to)

    async def _on_broadcast(self, may: bool) -> None:
        """Start or stop broadcasting."""
        (self._may_broadcast.set if may else self._may_broadcast.clear)()

    async def _on_cut_off(self, names: list[str]) -> None:
        """Drop the connections to these members, and make none, until the next such command."""
        self._require_group()._connections.cut_off(names)

    async def _on_close(self) -> None:
        """Stop; the member remains in the group."""
        await self._require_group().aclose()

    async def _on_status(self) -> dict[str, Any]:
        group = self._group
        return {
            "state": hashlib.sha256(json.dumps(self._kept.messages.ranges()).encode()).hexdigest(),
            "messages": len(self._kept.messages),
            "accepted": self._kept.accepted,
            "is_broadcasting": self._is_broadcasting,
            "view": sorted(group.view.members) if group is not None else [],
            "sees": self._sees(group) if group is not None else None,
            "seen": self._seen,
        }


def run_worker(task: WorkerTask) -> int:
    """Run in a process of its own, until the supervisor or the group ends it."""
    if task.network:
        with Path("/run/netns", task.network).open() as namespace:
            if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), _CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), f"cannot enter network namespace {task.network}")
    with Path(task.folder, "log").open("ab", buffering=0) as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", force=True)
    try:
        asyncio.run(Worker(task).run())
    except AntecedeError as error:
        logging.error("%s", error)
        return 1
    return 0


def _import_everything() -> None:
    """Importing the modules of the trace takes longer than most workers live."""
    importlib.import_module("antecede.trace.event_tables")
    importlib.import_module("antecede.trace.writer")
    importlib.import_module("pandas")  # as Arrow's first array does
    importlib.import_module("encodings.idna")  # as the first call to another host does
    gc.collect()
    gc.freeze()  # otherwise each worker's first collection would copy all of this memory


def main() -> None:
    """Fork a process for each task on the input, and report each that has ended; both as JSON."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl-C reaches all; the supervisor ends them
    _import_everything()
    tasks = os.fdopen(0, "rb", buffering=0)  # `select` must not miss what is buffered
    pids: dict[int, str] = {}
    while True:
        has_task, _, _ = select.select([tasks], [], [], 0.02 if pids else None)
        if has_task:
            line = tasks.readline()
            if not line:
                return
            pid = os.fork()
            if not pid:
                status = 2
                try:
                    status = run_worker(msgspec.json.decode(line, type=WorkerTask))
                except BaseException:
                    logging.exception("the worker failed")
                finally:
                    os._exit(status)
            pids[pid] = msgspec.json.decode(line)["name"]
            _tell(started=pids[pid], pid=pid)
        for pid in list(pids):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                _tell(ended=pids.pop(pid), pid=pid, status=os.waitstatus_to_exitcode(status))


def _tell(**values: Any) -> None:
    sys.stdout.write(json.dumps(values) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
