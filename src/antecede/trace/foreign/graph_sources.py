"""Reads graphs whose nodes name their parents: tables, editing traces, and the commits of a repository."""

from __future__ import annotations

import codecs
import os
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import msgspec

from antecede.errors import InputError
from antecede.trace.foreign.dependency_writer import NodeCollector
from antecede.trace.foreign.open_files import read_whole


class _Transaction(msgspec.Struct):
    parents: list[int] | None = None
    agent: int | str = 0


class _Editing(msgspec.Struct):
    txns: list[msgspec.Raw]


_transaction = msgspec.json.Decoder(_Transaction)


def read_editing(path: Path, into: NodeCollector, max_bytes: int | None = None) -> None:
    """An editing trace: JSON, plain or compressed, whose `txns` have an `agent` and, by place, `parents`.

    A trace of one author has no parents: each transaction follows the one before.
    """
    try:
        trace = msgspec.json.decode(read_whole(path, max_bytes).removeprefix(codecs.BOM_UTF8), type=_Editing)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"{path} is not an editing trace: {error}") from error
    if not trace.txns:
        raise InputError(f"{path} is empty: it has no transaction in txns")
    size, counts = len(trace.txns), Counter[str]()
    for place, text in enumerate(trace.txns):
        try:
            each = _transaction.decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            into.bad("transactions that cannot be read, left out", f"txns[{place}]: {error}")
            continue
        process = str(each.agent)
        counts[process] += 1
        parents = each.parents if each.parents is not None else range(max(place - 1, 0), place)
        known = [str(parent) for parent in parents if 0 <= parent < size]
        for parent in parents:
            if not 0 <= parent < size:
                into.bad("parents that are no node, left out", f"txns[{place}]: parent {str(parent)[:30]}")
        into.add(str(place), process, counts[process], known, f"txns[{place}]", bytes(text).decode())


_COMMIT_FORMAT = "%P%n%aN <%aE>"
_END = "%x00"
# Whatever the repository's configuration says, nothing is executed, fetched or changed.
_GIT_ENVIRONMENT = {
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ALLOW_PROTOCOL": "",
    "LC_ALL": "C",
}


def read_git(path: Path, into: NodeCollector, messages: bool = False) -> None:
    """The commits that a repository's branches and tags reach. Authors are not sequential processes.

    With `messages`, the text of a commit is its message; otherwise it has none.
    """
    if not path.is_dir():
        raise InputError(f"{path} is not a folder; name a repository")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    # The folder itself must be the repository, not a folder inside one.
    environment |= _GIT_ENVIRONMENT | {"GIT_CEILING_DIRECTORIES": str(path.resolve().parent)}
    words = ["git", "-C", str(path), "-c", "core.fsmonitor=false", "rev-list", "--topo-order", "--reverse"]
    words += [
        f"--format={_COMMIT_FORMAT}{'%n%B' if messages else ''}{_END}",
        "--encoding=UTF-8",
        "--exclude=refs/stash",
        "--exclude=refs/notes/*",
        "--all",
    ]
    counts = Counter[str]()
    cut_off = _cut_off(words[:5], environment)
    with tempfile.TemporaryFile() as complaints:
        try:
            git = subprocess.Popen(  # noqa: S603
                words, stdout=subprocess.PIPE, stderr=complaints, stdin=subprocess.DEVNULL, env=environment
            )
        except FileNotFoundError as error:
            raise InputError("the program git, which reads repositories, is not installed") from error
        with git:
            assert git.stdout is not None  # noqa: S101
            for commit in _records(git.stdout):
                lines = commit.split(b"\n", 3)
                header, parents, author = (line.decode(errors="replace") for line in lines[:3])
                node = header.removeprefix("commit ")
                counts[author] += 1
                if node in cut_off:
                    into.bad("commits whose parents a shallow clone does not have", f"commit {node}")
                where, text = f"commit {node}", None
                try:
                    text = lines[3].decode() if messages else None
                except UnicodeDecodeError:
                    into.bad("messages that are not text in UTF-8, of commits that are kept", where)
                into.add(node, author, counts[author], parents.split(), where, text)
        complaints.seek(0)
        complaint = complaints.read().decode(errors="replace").strip()
    if git.returncode:
        why = complaint.splitlines()[0] if complaint else git.returncode
        raise InputError(f"git cannot read {path}: {why}")
    if not counts:
        raise InputError(f"{path} has no commit that a branch or a tag reaches")


def _cut_off(git: list[str], environment: dict[str, str]) -> set[str]:
    """The commits at which a shallow clone ends, which git shows without parents."""
    try:
        asked = subprocess.run(  # noqa: S603
            [*git, "rev-parse", "--path-format=absolute", "--git-path", "shallow"],
            capture_output=True, stdin=subprocess.DEVNULL, env=environment, check=False,
        )  # fmt: skip
        return set(Path(os.fsdecode(asked.stdout.rstrip(b"\n"))).read_text(encoding="ascii").split())
    except (OSError, ValueError):  # There is no such file, or no git: reading the commits reports it.
        return set()


def _records(stream: IO[bytes]) -> Iterator[bytes]:
    """The records that end in a zero byte and a line end."""
    rest = b""
    while chunk := stream.read(1 << 20):
        *whole, rest = (rest + chunk).split(b"\0\n")
        yield from whole
