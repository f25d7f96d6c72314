"""antecede console and node --console, as they are called."""

from __future__ import annotations

import asyncio
import ctypes
import platform
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from consoles import first_picture, process, serving

import antecede
import command_line
from antecede.console.sources import HttpSource
from antecede.errors import InputError


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


def test_a_remote_member_is_queried_with_its_token(tmp_path: Path) -> None:
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


@pytest.mark.skipif(sys.platform != "linux", reason="signals to a thread of another process")
def test_ctrl_c_ends_the_console_even_if_another_thread_gets_the_signal(tmp_path: Path) -> None:
    """The kernel gives a signal to the main thread as a rule, not always; such a console never ended."""
    config = tmp_path / "ana.toml"
    config.write_text('group = "room"\nme = "ana"\npeers = ["bo"]\nstore = "ana-store"\n')
    with process("console", config) as (started, _):
        threads = {int(each.name) for each in Path(f"/proc/{started.pid}/task").iterdir()} - {started.pid}
        tgkill = {"x86_64": 234, "aarch64": 131}[platform.machine()]
        assert ctypes.CDLL(None).syscall(tgkill, started.pid, min(threads), signal.SIGINT) == 0
        assert started.wait(30) == 0


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
def test_members_that_cannot_be_queried_are_refused_with_the_reason(
    tmp_path: Path, arguments: list[str], said: str
) -> None:
    (tmp_path / "token").write_text("correct-horse-battery-staple")
    (tmp_path / "alone.toml").write_text('group = "room"\nme = "ana"\npeers = ["bo"]\n')
    refused = command_line.antecede("console", *arguments, cwd=tmp_path)
    assert refused.returncode == 2
    assert said in refused.stderr
    assert len(refused.stderr.splitlines()) == 1
