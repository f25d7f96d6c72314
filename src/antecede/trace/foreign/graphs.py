"""Graphs that say their parents themselves: plain tables, editing traces, and the commits of a repository."""

from __future__ import annotations

import csv
import os
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import msgspec

from antecede.errors import InputError
from antecede.trace.foreign.files import opened_text, read_whole
from antecede.trace.foreign.table import DependencyWriter

_COLUMNS = ("node", "process", "seq", "parents")


def read_table(path: Path, into: DependencyWriter) -> None:
    """A CSV file with `node,process,seq,parents`, the parents separated by spaces."""
    with opened_text(path) as stream:
        reader = csv.DictReader(stream, strict=True)
        try:
            if reader.fieldnames is None:
                raise InputError(f"{path} is empty; it needs a header: {','.join(_COLUMNS)}")
            missing = [name for name in _COLUMNS if name not in reader.fieldnames]
            if missing:
                raise InputError(f"{path} has no column {missing[0]}; its header needs {','.join(_COLUMNS)}")
            for number, row in enumerate(reader, start=1):
                where = f"row {number}"
                if None in row or None in row.values():
                    into.bad("rows that do not have the header's fields, left out", where)
                elif (seq := _whole(row["seq"])) is None:
                    into.bad("rows whose seq is no whole number, left out", f"{where}: {row['seq']}")
                else:
                    into.add(row["node"], row["process"], seq, row["parents"].split(), where)
        except csv.Error as error:
            raise InputError(f"{path}, line {reader.line_num}: {error}") from error


def _whole(text: str) -> int | None:
    # Python refuses to read numbers of thousands of digits; so does this, long before.
    try:
        return int(text) if len(text) <= 30 else None
    except ValueError:
        return None


class _Transaction(msgspec.Struct):
    parents: list[int] | None = None
    agent: int | str = 0


class _Editing(msgspec.Struct):
    txns: list[_Transaction]


def read_editing(path: Path, into: DependencyWriter) -> None:
    """An editing trace: JSON, plain or compressed, whose `txns` have an `agent` and, by place, `parents`.

    A trace of one author has no parents: each transaction follows the one before.
    """
    try:
        trace = msgspec.json.decode(read_whole(path), type=_Editing)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"{path} is not an editing trace: {error}") from error
    if not trace.txns:
        raise InputError(f"{path} is empty: it has no transaction in txns")
    size, counts = len(trace.txns), Counter[str]()
    for place, each in enumerate(trace.txns):
        process = str(each.agent)
        counts[process] += 1
        parents = each.parents if each.parents is not None else range(max(place - 1, 0), place)
        known = [str(parent) for parent in parents if 0 <= parent < size]
        for parent in parents:
            if not 0 <= parent < size:
                into.bad("parents that are no node, left out", f"txns[{place}]: parent {str(parent)[:30]}")
        into.add(str(place), process, counts[process], known, f"txns[{place}]")


_COMMIT = "%P%n%aN <%aE>%x00"
# Whatever a repository's own configuration asks for, nothing is run, fetched or changed.
_QUIET = {
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ALLOW_PROTOCOL": "",
    "LC_ALL": "C",
}


def read_git(path: Path, into: DependencyWriter) -> None:
    """The commits that a repository's branches and tags reach. Authors are not sequential processes."""
    if not path.is_dir():
        raise InputError(f"{path} is not a folder; name a repository")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    # The folder itself is the repository, not one that it happens to lie in.
    environment |= _QUIET | {"GIT_CEILING_DIRECTORIES": str(path.resolve().parent)}
    words = ["git", "-C", str(path), "-c", "core.fsmonitor=false", "rev-list", "--topo-order", "--reverse"]
    words += [
        f"--format={_COMMIT}",
        "--encoding=UTF-8",
        "--exclude=refs/stash",
        "--exclude=refs/notes/*",
        "--all",
    ]
    counts = Counter[str]()
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
                header, parents, author = commit.decode(errors="replace").split("\n", 2)
                node = header.removeprefix("commit ")
                counts[author] += 1
                into.add(node, author, counts[author], parents.split(), f"commit {node}")
        complaints.seek(0)
        said = complaints.read().decode(errors="replace").strip()
    if git.returncode:
        raise InputError(f"git cannot read {path}: {said.splitlines()[0] if said else git.returncode}")


def _records(stream: IO[bytes]) -> Iterator[bytes]:
    """What lies between zero bytes and the line ends after them."""
    rest = b""
    while chunk := stream.read(1 << 20):
        *whole, rest = (rest + chunk).split(b"\0\n")
        yield from whole
