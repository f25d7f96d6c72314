"""A port that a member cannot listen at: one sentence that names the setting, the address and the remedy."""

from __future__ import annotations

import errno
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from live_groups import run

import antecede
from antecede.errors import InputError
from antecede.listening import describe_listen_error

ALONE = {"group": "room", "me": "ana", "insecure": True}
KINDS: dict[str, dict[str, Any]] = {
    "fixed": {"peers": ["bo@127.0.0.1:1"]},
    "founder": {"founders": ["ana@127.0.0.1:2", "bo@127.0.0.1:1"]},
    "newcomer": {"contact": "bo@127.0.0.1:1"},
}


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        yield other.getsockname()[1]


def failure(**options: Any) -> InputError:
    async def test() -> None:
        await antecede.join(**options)

    with pytest.raises(InputError) as caught:
        run(test())
    return caught.value


def assert_one_error(error: BaseException) -> None:
    """A traceback of it shows this error alone."""
    assert error.__suppress_context__
    assert error.__cause__ is None


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("setting", ["listen", "metrics"])
def test_a_port_in_use_is_one_error_with_its_remedy(kind: str, setting: str, taken: int) -> None:
    where = {"listen": ":0", setting: f":{taken}"}
    error = failure(**ALONE, **KINDS[kind], **where)
    remedy = "another program uses this port; stop it, or choose another port"
    assert str(error) == f"{setting}: cannot listen at :{taken}: {remedy}"
    assert_one_error(error)


def test_a_port_in_use_is_one_error_for_overlapping_groups_too(taken: int) -> None:
    async def test() -> None:
        await antecede.connect(me="ana", listen=f":{taken}", insecure=True)

    with pytest.raises(InputError, match=rf"^listen: cannot listen at :{taken}: another program") as caught:
        run(test())
    assert_one_error(caught.value)


@pytest.mark.parametrize("host", ["nobody.invalid", "a..b", "x" * 70])
def test_an_unresolvable_listen_host_is_one_error(host: str) -> None:
    error = failure(**ALONE, **KINDS["fixed"], listen=f"{host}:7000")
    assert str(error).startswith(f"listen: cannot listen at {host}:7000: the host name cannot be resolved")
    assert str(error).endswith("; use an address of this machine, or 0.0.0.0 for all of them")
    assert_one_error(error)


def test_listening_at_another_machine_s_address_is_one_error() -> None:
    error = failure(**ALONE, **KINDS["fixed"], listen="192.0.2.7:7000")
    assert "this machine does not have that address; use one of its own, or 0.0.0.0" in str(error)
    assert_one_error(error)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (
            PermissionError(errno.EACCES, "Permission denied"),
            "this user may not use that port; choose",
        ),
        (OSError(errno.EAFNOSUPPORT, "Address family not supported"), "Address family not supported"),
        (OSError("something else"), "something else"),
    ],
)
def test_other_bind_failures_are_one_error(error: OSError, words: str) -> None:
    assert describe_listen_error(error).startswith(words)


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    python = [sys.executable, "-m", "antecede", *arguments]
    return subprocess.run(python, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=60)


@pytest.mark.parametrize(
    "arguments",
    [
        lambda port: ["node", "--me", "ana", "--listen", f":{port}", "--peer", "bo@127.0.0.1:1"],
        lambda port: ["node", "--me", "ana", "--listen", f":{port}", "--contact", "bo@127.0.0.1:1"],
        lambda port: ["chat", "--me", "ana", "--listen", f":{port}", "--peer", "bo@127.0.0.1:1"],
        lambda port: ["console", "CONFIG", "--port", f"{port}"],
    ],
    ids=["node", "newcomer", "chat", "console"],
)
def test_commands_report_a_port_in_use_in_one_line(
    arguments: Callable[[int], list[str]], taken: int, tmp_path: Path
) -> None:
    config = tmp_path / "ana.toml"
    config.write_text('group = "room"\nme = "ana"\nstore = "ana.db"\npeers = ["bo@127.0.0.1:1"]\n')
    ran = command(*(str(config) if each == "CONFIG" else each for each in arguments(taken)))
    (line,) = ran.stderr.splitlines()
    assert ran.returncode == 2
    assert line.startswith("error: ")
    assert f"{taken}" in line
    assert "another program uses this port; stop it, or choose another" in line
