"""What tests of the TypeScript client share: its build, and phones in processes of Node."""

from __future__ import annotations

import asyncio
import functools
import hashlib
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

CLIENT = Path(__file__).parents[2] / "clients" / "typescript"
PHONE = Path(__file__).parent / "phone.mjs"
_LEAST_NODE = 18


def find_node() -> tuple[str, str]:
    """Node and npm; skips the test where there is none."""
    node, npm = shutil.which("node"), shutil.which("npm")
    reason = "no Node with npm (Debian: apt-get install nodejs npm)"
    if node and npm:
        version = subprocess.run(
            [node, "--version"], capture_output=True, text=True, check=True
        ).stdout.strip()
        if int(version.removeprefix("v").partition(".")[0]) >= _LEAST_NODE:
            return node, npm
        reason = f"Node {version} is older than {_LEAST_NODE}"
    if os.environ.get("ANTECEDE_NODE") == "required":
        pytest.fail(f"the TypeScript client is to be tested here, and there is {reason}")
    pytest.skip(reason)


@functools.cache
def built() -> Path:
    """The client's package, installed as its lock says and compiled; at most once for each version."""
    node, npm = find_node()
    stamp = CLIENT / "node_modules" / ".lock-digest"
    lock = hashlib.sha256((CLIENT / "package-lock.json").read_bytes()).hexdigest()
    if not stamp.exists() or stamp.read_text() != lock:
        call([npm, "ci", "--ignore-scripts"])
        stamp.write_text(lock)
    call([node, "node_modules/typescript/bin/tsc"])
    return CLIENT


def call(command: list[str]) -> str:
    """Run a command in the package's folder; its output, which is shown if it fails."""
    done = subprocess.run(command, cwd=CLIENT, capture_output=True, text=True)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"
    return done.stdout


class NodePhone:
    """A phone in a process of its own, with a board in a file."""

    def __init__(self, folder: Path, environment: dict[str, str] | None = None, **settings: Any) -> None:
        me = settings["me"]
        self._environment = {**os.environ, **(environment or {})}
        self._settings = {
            "client": (built() / "dist" / "node.js").as_uri(),
            "group": "room",
            "store": str(folder / f"{me} store"),
            "board": str(folder / f"{me}.json"),
            **settings,
        }
        self._process: asyncio.subprocess.Process | None = None
        self.began: dict[str, Any] = {}

    async def launch(self) -> None:
        pipe = asyncio.subprocess.PIPE
        self._process = await asyncio.create_subprocess_exec(
            find_node()[0],
            str(PHONE),
            json.dumps(self._settings),
            stdin=pipe,
            stdout=pipe,
            limit=1 << 24,
            env=self._environment,
        )

    async def start(self) -> dict[str, Any]:
        await self.launch()
        self.began = await self.read()
        return self.began

    async def read(self) -> dict[str, Any]:
        assert self._process is not None
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        answer: dict[str, Any] = json.loads(line or '{"failed": "it has ended"}')
        assert "failed" not in answer, answer
        return answer

    def tell(self, command: str) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(f"{command}\n".encode())

    async def ask(self, command: str) -> dict[str, Any]:
        self.tell(command)
        return await self.read()

    async def broadcast(self, body: str) -> str:
        return str((await self.ask(f"broadcast {body}"))["result"])

    async def bodies(self) -> list[str]:
        return list((await self.ask("bodies"))["bodies"])

    async def kill(self) -> list[dict[str, Any]]:
        """Answers written before it died that were not read yet."""
        if self._process is None or self._process.returncode is not None:
            return []
        self._process.kill()
        assert self._process.stdout is not None
        lines = (await self._process.stdout.read()).decode().splitlines(keepends=True)
        await self._process.wait()
        answers = [json.loads(line) for line in lines if line.endswith("\n")]
        assert not [answer for answer in answers if "failed" in answer], answers
        return answers
