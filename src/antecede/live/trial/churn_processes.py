"""The processes of a churn trial: one process forks them all, a socket carries commands, and signals kill
them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import msgspec

from antecede.errors import AntecedeError
from antecede.live.trial.churn_worker import WorkerTask

_NEWS_SECONDS = 0.5


class WorkerGoneError(Exception):
    """A worker's process has ended, or was replaced by another one."""


class GroupAsSeen(msgspec.Struct, frozen=True):
    """A member's view of its group. Workers send it whenever it changes: polling all of them ten times a
    second would take much of a trial's time."""

    label: str
    """The label of this member."""
    view: frozenset[str]
    removing: frozenset[str]
    unstable: frozenset[str]
    """Members whose admission is not stable."""
    removed: int
    """Removed members that are not forgotten."""


class WorkerProcess:
    """A worker, and its process while there is one."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self._root = name, folder
        self.disk = 0
        """How many disks it has had."""
        self.place, self.network = "", ""
        self.is_phone = False
        """Whether it is behind a member, and is no member itself."""
        self.contacts: list[str] = []
        """The contacts that it was given."""
        self.pid: int | None = None
        self.label = ""
        self.at = ""
        """As a member: its label, and its listening address."""
        self.has_begun = False
        """Whether it has been a member on this disk."""
        self.is_busy = False
        """Whether a step of the schedule is acting on it."""
        self.is_down = False
        """Whether its process is killed, stopped or cut off."""
        self.is_leaving = False
        self.is_removed = False
        """Whether it is removed and is to return."""
        self.ready = asyncio.Event()
        """Whether it is a member, as far as it knows."""
        self.sees: GroupAsSeen | None = None
        """Whether it is a member now."""
        self.started, self.ended = asyncio.Event(), asyncio.Event()
        self.ended.set()
        self.status = 0
        self._writer: asyncio.StreamWriter | None = None
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._number = 0

    @property
    def author(self) -> str:
        return f"{self.name}.{self.disk}"

    @property
    def folder(self) -> Path:
        return self._root / self.author

    @property
    def contact(self) -> str:
        return f"{self.name}@{self.at}"

    def become(self, label: str) -> None:
        """It has become this incarnation."""
        self.label, self.has_begun = label, True
        self.ready.set()

    @property
    def is_settled(self) -> bool:
        """Whether no step that takes it away is acting on it."""
        return not (self.is_leaving or self.is_removed or self.is_down)

    def attach(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer

    def on_end(self, status: int) -> None:
        self.pid, self.status, self._writer, self.sees = None, status, None, None
        self.ready.clear()
        self.started.set()
        self.ended.set()
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(WorkerGoneError(f"{self.name} has ended"))
        self._answers.clear()

    def hear(self, update: dict[str, Any]) -> None:
        answer = self._answers.pop(update.pop("answer", -1), None)
        if answer is not None and not answer.done():
            answer.set_result(update)

    async def ask(self, command: str, **values: Any) -> dict[str, Any]:
        """Have it carry out a command; returns its answer."""
        if self._writer is None:
            raise WorkerGoneError(f"{self.name} is not running")
        self._number += 1
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._answers[self._number] = answer
        line = {"number": self._number, "do": command, "with": values}
        self._writer.write(json.dumps(line).encode() + b"\n")
        return await answer

    def signal(self, number: signal.Signals) -> None:
        if self.pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    async def kill(self) -> None:
        """Kill it with SIGKILL."""
        self.ready.clear()
        self.signal(signal.SIGKILL)
        await self.ended.wait()

    def tail_of_log(self) -> str:
        log = self.folder / "log"
        lines = log.read_text(errors="replace").strip().splitlines() if log.exists() else []
        return lines[-1] if lines else "its log is empty"


class WorkerProcesses:
    """All processes of a trial."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.workers: dict[str, WorkerProcess] = {}
        self.control = str(folder / "control")
        self._parent: asyncio.subprocess.Process
        self._server: asyncio.Server
        self._news = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._serving: dict[asyncio.StreamWriter, asyncio.Task[None] | None] = {}

    async def open(self) -> None:
        self._server = await asyncio.start_unix_server(self._serve, self.control)
        pipe = asyncio.subprocess.PIPE
        self._parent = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "antecede.live.trial.churn_worker", stdin=pipe, stdout=pipe
        )
        task = asyncio.create_task(self._read_parent())
        self._tasks.add(task)

    def add(self, name: str) -> WorkerProcess:
        worker = self.workers[name] = WorkerProcess(name, self._folder)
        return worker

    async def start(self, worker: WorkerProcess, task: WorkerTask) -> None:
        """Start its process; it is a member when `ready` is set."""
        worker.folder.mkdir(exist_ok=True)
        worker.ended.clear()
        into = self._parent.stdin
        if into is None or self._parent.returncode is not None:
            raise AntecedeError("the process that forks workers has ended")
        worker.started.clear()
        into.write(msgspec.json.encode(task) + b"\n")
        await worker.started.wait()

    async def until_news(self) -> None:
        """Wait until some worker's view changes, or a worker has ended; at most for a moment, since the
        schedule depends on time as well."""
        self._news.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_NEWS_SECONDS):
                await self._news.wait()

    async def _read_parent(self) -> None:
        output = self._parent.stdout
        while output is not None and (line := await output.readline()):
            update = json.loads(line)
            worker = self.workers[update.get("started") or update["ended"]]
            if "started" in update:
                worker.pid = update["pid"]
                worker.started.set()
            elif worker.pid == update["pid"]:
                worker.on_end(update["status"])
                self._news.set()
        for worker in self.workers.values():
            worker.on_end(-1)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._serving[writer] = asyncio.current_task()
        worker: WorkerProcess | None = None
        with contextlib.suppress(ConnectionError):
            while line := await reader.readline():
                update = json.loads(line)
                if "hello" in update:
                    worker = self.workers[update["hello"]]
                    worker.pid = update["pid"]
                    worker.attach(writer)
                elif worker is None or worker.ended.is_set():
                    break
                elif "ready" in update:
                    worker.at = update["at"]
                    worker.become(update["ready"])
                    self._news.set()
                elif "answer" not in update and "sees" in update:
                    sees = update["sees"]
                    worker.sees = None if sees is None else msgspec.convert(sees, GroupAsSeen)
                    self._news.set()
                else:
                    worker.hear(update)
        del self._serving[writer]
        writer.close()

    async def close(self) -> None:
        """Kill all processes."""
        for worker in self.workers.values():
            worker.signal(signal.SIGKILL)
        if self._parent.stdin is not None:
            self._parent.stdin.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(5):
                await self._parent.wait()
        if self._parent.returncode is None:
            self._parent.kill()
        for task in self._tasks:
            task.cancel()
        serving = dict(self._serving)
        for writer in serving:
            writer.close()
        if ending := [task for task in serving.values() if task is not None]:
            await asyncio.wait(
                ending, timeout=5
            )  # tasks cancelled when the loop ends would be reported as errors
        self._server.close()
