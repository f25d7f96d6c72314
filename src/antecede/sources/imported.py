"""Logs that are read whole, because what causes an event follows from all of them: ShiViz logs with vector
clocks, editing traces, and the commits of a repository.

`trace.foreign` reads them for `antecede import`; here their nodes become records, with `id`, `process`, `seq`
and `causes`. The row of a record is its line where there are lines, and otherwise its number.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from antecede.errors import InputError
from antecede.sources.records import SourceRecord, is_text
from antecede.trace.bad_rows import BadRows
from antecede.trace.foreign.graph_sources import read_editing, read_git
from antecede.trace.foreign.shiviz import read_shiviz
from antecede.trace.reader import TRACE_SUFFIXES

READERS = ("shiviz", "editing", "git")
_LINE = re.compile(r"line (\d+)")


class _Nodes:
    """Collects nodes like the writer of dependency tables, and keeps them as records."""

    def __init__(self, path: Path, bad: BadRows, with_text: bool) -> None:
        self._path, self._bad, self._with_text = path, bad, with_text
        self.records: list[SourceRecord] = []

    def add(
        self, node: str, process: str, seq: int, parents: Iterable[str], where: str, text: str | None = None
    ) -> None:
        if self._with_text and text is not None and not is_text(text):
            what, why = "events that cannot be read, left out", "it is not text in UTF-8; give the --encoding"
            raw = text.encode(errors="surrogateescape")
            self._bad.add(what, f"{where}: {why}", str(self._path), text=raw)
            return
        line = _LINE.fullmatch(where)
        row = int(line[1]) if line else len(self.records) + 1
        value = {"id": node, "process": process, "seq": seq, "causes": list(parents)}
        self.records.append(SourceRecord(row, value, text if self._with_text else None))

    def bad(self, what: str, example: str) -> None:
        self._bad.add(what, example, str(self._path), left_out="left out" in what)


def read_imported(
    reader: str,
    path: Path,
    bad: BadRows,
    max_bytes: int | None,
    with_text: bool = False,
    encoding: str = "",
) -> Iterator[SourceRecord]:
    """The nodes of a log, an editing trace or a repository; with `with_text`, as written there."""
    into = _Nodes(path, bad, with_text)
    if reader == "shiviz":
        bad.executions = read_shiviz(path, into, max_bytes=max_bytes, encoding=encoding)
    elif reader == "editing":
        read_editing(path, into, max_bytes)
    else:
        read_git(path, into, messages=with_text)
    return iter(into.records)


def is_repository(path: Path) -> bool:
    """Whether a folder is a git repository without a table that the user could have meant instead."""
    if not path.is_dir():
        return False
    bare = (path / "HEAD").is_file() and (path / "objects").is_dir() and (path / "refs").is_dir()
    if not bare and not (path / ".git").exists():
        return False
    return not any(file.suffix in TRACE_SUFFIXES for file in path.iterdir())


def refuse_several(files: list[Path], reader: str) -> None:
    """Refuse a folder of several logs, each of which could only be judged together with the others."""
    if reader in READERS and len(files) > 1:
        raise InputError(
            f"{files[0].parent} has {len(files):,} logs of {reader}, which are read one by one; if they are "
            "of one execution, put them into one file"
        )
