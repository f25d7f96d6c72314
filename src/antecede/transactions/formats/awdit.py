"""AWDIT's own text: an operation on each line, `r KEY VALUE` or `w KEY VALUE`, a line of `-` between
transactions and a line of `=` between sessions.

Keys and values are numbers in AWDIT; here they may be any words. Nothing has an initial value: what was there
at first is written by a transaction of its own, which need not precede the others. There is no aborted
transaction.
"""

from __future__ import annotations

import re
from pathlib import Path

from antecede.errors import InputError
from antecede.terminal import printable
from antecede.trace.foreign.open_files import open_bytes
from antecede.transactions.history import History, HistoryBuilder, Operation

NAME = "awdit"
_HEAD = re.compile(rb"\s*[rw][ \t]+[^\s(]+[ \t]+\S+[ \t]*(?:\r?\n\s*(?:[rw][ \t]|-+\s|=+\s|-+$|=+$)|\s*$)")
_MAX_LINE = 4096


def recognise(head: bytes) -> str | None:
    """Whether a file begins with an operation, and goes on with another or a separator."""
    return NAME if _HEAD.match(head.removeprefix(b"\xef\xbb\xbf")) else None


def read(path: Path, max_bytes: int | None = None) -> History:
    """Read a history line by line."""
    builder = HistoryBuilder(has_initial_value=False)
    session = number = 1
    operations: list[Operation] = []

    def end_transaction() -> None:
        nonlocal number
        if operations:
            builder.add(session, f"T{number}", operations)
            number += 1
            operations.clear()

    with open_bytes(path, max_bytes) as stream:
        place = 0
        while line := stream.readline(_MAX_LINE):
            place += 1
            text = line.decode("utf-8-sig" if place == 1 else "utf-8", "replace").strip()
            words = text.split()
            if not words:
                continue
            if set(text) <= {"="} or set(text) <= {"-"}:
                end_transaction()
                session += text[0] == "="
            elif len(words) == 3 and words[0] in ("r", "w"):
                operations.append(Operation(words[0] == "w", words[1], words[2]))
            else:
                raise InputError(
                    f"{path}, line {place}: {printable(text[:60])!r} is not 'r KEY VALUE', 'w KEY VALUE', "
                    "a line of '-' (next transaction) or of '=' (next session)"
                )
    end_transaction()
    if number == 1:
        raise InputError(f"{path} is empty")
    return builder.build()
