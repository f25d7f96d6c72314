"""antecede console and node --console, as they are called."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

import antecede
import command_line
from antecede.console.sources import HttpSource
from antecede.errors import InputError


@contextmanager
def serving(*arguments: str | Path) -> Iterator[str]:
    """The address that a command prints; it must end well on Ctrl-C."""
    started = subprocess.Popen(
        [sys.executable, "-m", "antecede", *map(str, arguments)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert started.stderr is not None
    try:
        said = ""
        while not (found := re.search(r"Open (\S+)", said)):
            line = started.stderr.readline()
            assert line, said
            said += line
        threading.Thread(target=started.stderr.read, daemon=True).start()
        yield found[1]
        started.send_signal(signal.SIGINT)
        assert started.wait(30) == 0
    finally:
        started.kill()
        started.wait()


def first_picture(address: str) -> dict[str, Any]:
    """As a browser gets it: by the token a cookie, and by that a stream."""
    parts = urlsplit(address)
    opening = HTTPConnection(parts.hostname or "", parts.port, timeout=30)
    opening.request("GET", f"{parts.path}?{parts.query}")
    opened = opening.getresponse()
    assert opened.status == 200
    opened.read()
    stream = HTTPConnection(parts.hostname or "", parts.port, timeout=30)
    cookie = str(opened.headers["Set-Cookie"]).partition(";")[0]
    stream.request("GET", f"{parts.path}events", headers={"Cookie": cookie})
    picture: dict[str, Any] = json.loads(stream.getresponse().readline().removeprefix(b"data: "))
    stream.close()
    opening.close()
    return picture


def test_a_node_serves_its_own_console(tmp_path: Path) -> None:
    config = tmp_path / "ana.toml"
    config.write_text('group = "room"\nme = "ana"\npeers = ["bo"]\nstore = "ana-store"\n')
    with serving("node", config, "--console", "--no-log") as address:
        picture = first_picture(address)
        assert (picture["group"], [each["label"] for each in picture["members"]]) == ("room", ["ana", "bo"])
        with serving("console", config) as other:
            assert first_picture(other)["answering"] == 1
    with serving("console", config) as address:
        (silent,) = first_picture(address)["silent"]
        assert "no member answers there" in silent["text"]


def test_a_member_elsewhere_is_asked_with_the_token(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("correct-horse-battery-staple")

    async def test() -> None:
        async with (
            antecede.join("room", me="ana", peers=["bo"], metrics=":0", console_token=token) as ana,
            antecede.join("room", me="cy", peers=["bo"], metrics=":0") as without,
        ):
            assert ana._metrics is not None
            assert without._metrics is not None
            host, _, port = ana._metrics.address.rpartition(":")
            loop = asyncio.get_running_loop()

            def look() -> dict[str, Any]:
                with serving("console", "--connect", f"{host}:{port}", "--token", token) as address:
                    return first_picture(address)

            picture = await loop.run_in_executor(None, look)
            assert [each["answers"] for each in picture["members"]] == [True, False]
            with pytest.raises(InputError, match="another token"):
                await HttpSource(host, int(port), "x" * 20).ask("state")
            other = int(without._metrics.address.rpartition(":")[2])
            with pytest.raises(InputError, match="no console_token"):
                await HttpSource(host, other, "x" * 20).ask("state")
        with pytest.raises(InputError):
            await HttpSource(host, int(port), "x" * 20).ask("state")

    asyncio.run(test())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "name the CONFIG file of a member"),
        (["--connect", "127.0.0.1:1"], "needs --token FILE"),
        (["--connect", "here", "--token", "token"], "is not an address"),
        (["--connect", ":1", "--token", "nothing"], "it must name a file"),
        (["alone.toml"], "so it cannot be asked"),
        (["missing.toml"], "No such file"),
    ],
)
def test_what_cannot_be_asked_is_refused(tmp_path: Path, arguments: list[str], said: str) -> None:
    (tmp_path / "token").write_text("correct-horse-battery-staple")
    (tmp_path / "alone.toml").write_text('group = "room"\nme = "ana"\npeers = ["bo"]\n')
    refused = command_line.antecede("console", *arguments, cwd=tmp_path)
    assert refused.returncode == 2
    assert said in refused.stderr
    assert len(refused.stderr.splitlines()) == 1
