"""Reads graphs whose nodes name their parents: tables, editing traces, and the commits of a repository."""

from __future__ import annotations

import codecs
import csv
import os
import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import msgspec
import pyarrow as pa

from antecede.errors import InputError
from antecede.trace.dependencies import text_columns
from antecede.trace.foreign.dependency_writer import NodeCollector
from antecede.trace.foreign.open_files import open_text, read_whole
from antecede.trace.reader import csv_dict_reader, damaged_parquet, open_any_parquet
from antecede.trace.validate import parse_integer, refuse_duplicate_columns

_COLUMNS = ("node", "process", "seq", "parents")
_SPACES = re.compile(r"[^ \t\n\v\f\r]+")
"""Names between ASCII white space; other white space is part of a name."""


def read_table(
    path: Path,
    into: NodeCollector,
    max_bytes: int | None = None,
    names: Mapping[str, str] | None = None,
) -> None:
    """A table with `node,process,seq,parents`: CSV, the parents separated by spaces, or Parquet.

    `names` has the table's own names for these columns; then it may lack `seq`, which is a node's place among
    its process's rows.
    """
    columns = {name: (names or {}).get(name, name) for name in _COLUMNS}
    counts = Counter[str]()

    def add(row: Mapping[str, Any], parents: Iterable[str], where: str) -> None:
        node, process = (row[columns[name]] or "" for name in ("node", "process"))
        counts[process] += 1
        written = row.get(columns["seq"]) if columns["seq"] in row else str(counts[process])
        seq = parse_integer(written or "")
        if seq is None:
            into.bad("rows whose seq is no whole number, left out", f"{where}: {written}")
        else:
            into.add(node, process, seq, parents, where)

    if path.suffix == ".parquet":
        _read_parquet(path, columns, names is not None, add)
        return
    with open_text(path, max_bytes) as stream:
        reader = csv_dict_reader(stream)
        try:
            if reader.fieldnames is None:
                raise InputError(f"{path} is empty; it needs a header: {','.join(columns.values())}")
            _check(reader.fieldnames, path, columns, names is not None)
            for number, row in enumerate(reader, start=1):
                if None in row or None in row.values():
                    into.bad("rows that do not have the header's fields, left out", f"row {number}")
                else:
                    add(row, _SPACES.findall(row[columns["parents"]]), f"row {number}")
        except csv.Error as error:
            raise InputError(f"{path}, line {reader.line_num}: {error}") from error


def _check(found: Sequence[str], path: Path, columns: Mapping[str, str], mapped: bool) -> None:
    missing = [theirs for ours, theirs in columns.items() if theirs not in found]
    if mapped and columns["seq"] == "seq":
        missing = [theirs for theirs in missing if theirs != "seq"]
    if missing:
        raise InputError(f"{path} has no column {missing[0]}; its header needs {','.join(columns.values())}")
    refuse_duplicate_columns(found, path)


def _read_parquet(
    path: Path,
    columns: Mapping[str, str],
    mapped: bool,
    add: Callable[[Mapping[str, Any], Iterable[str], str], None],
) -> None:
    if not path.is_file():
        raise InputError(f"{path} is not a file")
    opened = open_any_parquet(path)
    found = opened.schema_arrow.names
    _check(found, path, columns, mapped)
    ours = {theirs: name for name, theirs in columns.items()}
    number = 0
    try:
        for batch in opened.iter_batches(columns=[name for name in columns.values() if name in found]):
            table = pa.Table.from_batches([batch])
            table = text_columns(table.rename_columns([ours[name] for name in table.column_names]), str(path))
            table = table.rename_columns([columns[name] for name in table.column_names])
            for row in table.to_pylist():
                number += 1
                add(row, filter(None, row[columns["parents"]] or []), f"row {number}")
    except (pa.ArrowException, OSError) as error:
        raise damaged_parquet(path, error) from error


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
        into.add(str(place), process, counts[process], known, f"txns[{place}]")


_COMMIT_FORMAT = "%P%n%aN <%aE>%x00"
# Whatever the repository's configuration says, nothing is run, fetched or changed.
_GIT_ENVIRONMENT = {
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ALLOW_PROTOCOL": "",
    "LC_ALL": "C",
}


def read_git(path: Path, into: NodeCollector) -> None:
    """The commits that a repository's branches and tags reach. Authors are not sequential processes."""
    if not path.is_dir():
        raise InputError(f"{path} is not a folder; name a repository")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    # The folder itself is the repository, not one that it happens to lie in.
    environment |= _GIT_ENVIRONMENT | {"GIT_CEILING_DIRECTORIES": str(path.resolve().parent)}
    words = ["git", "-C", str(path), "-c", "core.fsmonitor=false", "rev-list", "--topo-order", "--reverse"]
    words += [
        f"--format={_COMMIT_FORMAT}",
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
                header, parents, author = commit.decode(errors="replace").split("\n", 2)
                node = header.removeprefix("commit ")
                counts[author] += 1
                if node in cut_off:
                    into.bad("commits whose parents a shallow clone does not have", f"commit {node}")
                into.add(node, author, counts[author], parents.split(), f"commit {node}")
        complaints.seek(0)
        message = complaints.read().decode(errors="replace").strip()
    if git.returncode:
        raise InputError(f"git cannot read {path}: {message.splitlines()[0] if message else git.returncode}")
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
    except (OSError, ValueError):  # there is no such file, or no git: reading the commits says so
        return set()


def _records(stream: IO[bytes]) -> Iterator[bytes]:
    """The records that end in a zero byte and a line end."""
    rest = b""
    while chunk := stream.read(1 << 20):
        *whole, rest = (rest + chunk).split(b"\0\n")
        yield from whole
