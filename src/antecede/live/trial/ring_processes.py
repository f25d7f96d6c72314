"""The processes of a ring trial, and the logs of their applications."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

from antecede.live.trial.ring_log import RingApplication, RingLine, read_lines

_END_SECONDS = 30.0


class RingProcess:
    """One process, which may be killed, and the log of its application, which survives."""

    def __init__(self, name: str, groups: list[str], folder: Path, program: tuple[str, ...]) -> None:
        self.name, self.groups, self._folder, self._program = name, groups, folder, program
        self._path = folder / f"{name}.log"
        self.errors = folder / f"{name}.err"
        self._process: asyncio.subprocess.Process | None = None
        self._read_until = 0
        self.kills = 0
        self.disk = 0
        """How many disks it has lost."""
        self.is_stopped = False
        self.lines: list[RingLine] = []
        self.application = RingApplication()
        self.faults: list[str] = []

    async def start(self) -> None:
        with self.errors.open("ab") as errors:
            self._process = await asyncio.create_subprocess_exec(
                *self._program,
                *(str(self._folder), self.name, str(self.disk)),
                stdin=asyncio.subprocess.PIPE,
                stdout=errors,
                stderr=errors,
            )

    def command(self, *words: str) -> None:
        """Send it a command; its log says when that is done."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.write(f"{' '.join(words)}\n".encode())
            self.application.is_changing = True

    async def kill(self) -> None:
        """Kill it with SIGKILL."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()
            self.kills += 1

    def stop(self, is_stopped: bool) -> None:
        self.is_stopped = is_stopped
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(signal.SIGSTOP if is_stopped else signal.SIGCONT)

    async def end(self) -> None:
        if self._process is not None and self._process.returncode is None:
            os.kill(self._process.pid, signal.SIGCONT)
            self._process.send_signal(signal.SIGTERM)
            try:
                await asyncio.wait_for(self._process.wait(), _END_SECONDS)
            except TimeoutError:
                self._process.kill()
                await self._process.wait()

    @property
    def is_back(self) -> bool:
        """Whether it has started since it was last killed."""
        return self.application.begun > self.kills

    @property
    def is_present(self) -> bool:
        """Whether it is in its groups, and no change is acting on it."""
        application = self.application
        is_stable = not application.is_changing and not self.is_stopped
        return self.is_back and is_stable and len(application.present) == len(self.groups)

    @property
    def is_stable(self) -> bool:
        """Whether, in its views, all members of its groups are up, and none is joining or leaving."""
        return self.application.stable.issuperset(self.groups)

    @property
    def ended_badly(self) -> bool:
        return self._process is not None and self._process.returncode not in (None, 0, -signal.SIGKILL)

    def tail_of_errors(self) -> str:
        text = self.errors.read_text(errors="replace").strip().splitlines()
        return text[-1] if text else "it has said nothing"

    def read_log(self) -> None:
        """Read what is new in the application's log."""
        new, self._read_until = read_lines(self._path, self._read_until)
        for line in new:
            if not self.application.follow(line):
                self.faults.append(f"{line.message} was delivered twice at {self.name}")
        self.lines += new
