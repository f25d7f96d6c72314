"""Text from other members cannot control the reader's terminal or forge log lines."""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys
from pathlib import Path

import pytest

import antecede
from antecede.cli.node import LogFormatter
from antecede.errors import InputError

ANTECEDE = [sys.executable, "-c", "from antecede.cli.main import main; main()"]
HOSTILE = "red \x1b[31m\x9b2J\x07 over\rwritten \u202edlrow\u2028 \x7f end"
ESCAPED = r"red \x1b[31m\x9b2J\x07 over\x0dwritten \u202edlrow\u2028 \x7f end"


def run(command: list[str], given: str, lines: int) -> list[str]:
    """The first lines that a command prints; then it is stopped."""
    with subprocess.Popen(
        [*ANTECEDE, *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8"
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(given)
        process.stdin.flush()
        # Not by universal newlines: a raw carriage return must be seen.
        found = [process.stdout.readline().rstrip("\n") for _ in range(lines)]
        process.terminate()
    return found


def test_node_prints_bodies_with_escapes() -> None:
    (line,) = run(["node", "--me", "ana", "--no-log", "--broadcast-input"], HOSTILE + "\n", 1)
    assert line == f"ana:1  {ESCAPED}"


def test_node_prints_terminal_safe_json() -> None:
    (line,) = run(["node", "--me", "ana", "--no-log", "--broadcast-input", "--json"], HOSTILE + "\n", 1)
    assert json.loads(line)["body"] == HOSTILE
    assert line.isascii()
    assert line.isprintable()


def test_chat_prints_bodies_with_escapes() -> None:
    pytest.importorskip("prompt_toolkit")
    lines = run(["chat", "--me", "ana"], f"<b>bold</b> {HOSTILE}\n", 2)
    assert lines[1].strip().endswith(f"<b>bold</b> {ESCAPED}")


def test_a_stranger_cannot_forge_a_line_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "antecede.live")

    async def test() -> None:
        async with antecede.join("room", me="bo", listen=":0", peers=["ana"]) as bo:
            forged = "hall\n2026-01-01 ERROR forged\x1b[2J"
            async with antecede.join(forged, me="ana", peers=[f"bo@{bo.address}"]):
                while not any("refused" in record.getMessage() for record in caplog.records):
                    await asyncio.sleep(0.01)

    asyncio.run(asyncio.wait_for(test(), 20))
    for as_json in (False, True):
        formatter = LogFormatter("room\x1b", "bo", as_json)
        lines = [formatter.format(record) for record in caplog.records]
        assert any("forged" in line for line in lines)
        for line in [*lines, *(record.getMessage() for record in caplog.records)]:
            assert line.isprintable()
            assert len(line.splitlines()) == 1


@pytest.mark.parametrize("name", ["a\x1b[2J", "b\u202e", "c\x9b", "d\u200b", "\ud800"])
def test_member_names_must_be_printable(name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not a name"):
        antecede.join("room", me=name, peers=["bo"])
    with pytest.raises(InputError, match="is not a name"):
        antecede.join("room", me="ana", peers=[name])
