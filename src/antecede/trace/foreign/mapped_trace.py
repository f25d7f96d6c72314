"""Auditing what other programs wrote."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from antecede.causality import Verdict
from antecede.errors import InputError
from antecede.trace.bad_rows import BadRows
from antecede.trace.foreign.column_map import parse_column_map
from antecede.trace.foreign.to_trace import convert_to_trace
from antecede.trace.reader import read_metas, trace_files
from antecede.trace.writer import write_parts


@contextmanager
def mapped_trace(
    path: str,
    columns: Sequence[str],
    progress: Callable[[str, int, int], None] = lambda *_: None,
    bad: BadRows | None = None,
) -> Iterator[str]:
    """Where a trace with our columns lies: the one at `path`, or if --map gives names, a copy under ours.

    `bad` counts the rows that cannot be read and are not in the copy; without it they raise an error.
    """
    if not columns:
        yield path
        return
    mapping = parse_column_map(columns)
    scheme, is_url, rest = path.partition("://")
    if is_url and scheme != "file":
        raise InputError(f"{path}: --map is for local files; copy it here first")
    local = Path(rest if is_url else path)
    if not path:
        raise InputError("no trace is named")
    files = trace_files(local)
    with tempfile.TemporaryDirectory(prefix="antecede-") as folder:
        progress("reading", 0, 0)
        write_parts(Path(folder), convert_to_trace(local, files, mapping, bad))
        try:
            yield folder
        except InputError as error:
            raise InputError(str(error).replace(folder, path)) from error


def refuse_without_deliveries(path: str, verdict: Verdict, bad: BadRows | None = None) -> None:
    """A log in which nobody delivers anything says nothing of the order of deliveries.

    Unless it names the members of its groups: then it says that they got nothing.
    """
    if verdict.deliveries or not verdict.messages or ("://" in path and not path.startswith("file://")):
        return
    if not read_metas(Path(path.removeprefix("file://"))):
        raise InputError(
            f"{path} has {verdict.messages:,} sends and no delivery, and no meta.json says who should have "
            "got them, so there is nothing to judge; what depends on what is shown by antecede graph"
            f"{bad.first() if bad else ''}"
        )
