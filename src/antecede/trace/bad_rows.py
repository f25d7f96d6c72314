"""Counts the rows of files: all, and bad ones by kind, with examples; or refuses the first, if strict."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from antecede.errors import InputError
from antecede.trace.copies import original_of, version_of

UNREADABLE = "_unreadable"
"""A column of event tables: why a row could not be read, in which case it is quarantined; otherwise null."""
UNREADABLE_ROW = "unreadable_row"
"""A column of event tables: the bytes of such a row, in UTF-8 if the file is text; otherwise null."""
_MAX_EXAMPLES = 5
_MAX_CHARACTERS = 120


class BadRowKind(msgspec.Struct):
    """A fault that occurs in one or more rows."""

    what: str
    rows: int
    examples: list[str]
    """The first locations, in words."""
    left_out: bool = True
    """Whether these rows are missing from what was judged; otherwise only one of their fields is."""
    bad: bool = True
    """If false, the rows are not bad: the user excluded them, or they contain nothing to judge."""


class FileRows(msgspec.Struct, frozen=True):
    """A file that was read."""

    file: str
    bytes: int | None
    """None at a URL, and for a Delta or Iceberg table."""
    rows: int | None
    """All rows, including bad ones; None in a stream, which does not count rows by file."""
    version: str | None = None
    """For a Delta or Iceberg table, which counts as one file: the version or snapshot that was read."""


class BadRows:
    """Counts the rows of `source` that cannot be used as they are; if strict, raises at the first.

    It also counts the rows of each file, which is part of an answer's lineage. `strict` is the option
    --strict; None, for commands without that option, is strict too.
    """

    def __init__(self, source: str, strict: bool | None = None) -> None:
        self.source, self.strict = source, strict
        self._by_kind: dict[str, BadRowKind] = {}
        self._not_to_judge: dict[str, BadRowKind] = {}
        self._rows: dict[str, int | None] | None = None
        self._finished: set[str] = set()
        self.quarantine: Callable[[str, str, bytes], None] | None = None
        """Called with the file, the fault and the text of a bad row that would otherwise be left out."""
        self.rows_quarantined = 0
        """The number of rows passed to it."""
        self.unit = "row"
        """What is counted: rows; or records or operations, where these are not rows of a file."""
        self.executions = 1
        """The number of runs in a file, if the format itself delimits them, as a ShiViz log with delimiters
        does."""
        self.names_receivers = True
        """Whether the input says who should receive a message; otherwise every process of its group
        should."""
        self._notes: dict[str, str] = {}

    # All rows.

    def reads(self, files: Iterable[Path | str], counted: bool = True) -> None:
        """Which files are read, and whether the rows of each are counted.

        Only the first call counts: what follows reads a converted copy.
        """
        if self._rows is None:
            self._rows = {str(file): 0 if counted else None for file in files}

    def count(self, file: Path | str, rows: int) -> None:
        """Count rows of one of the files; rows of a file that is read again are not counted twice."""
        before = None if self._rows is None else self._rows.get(str(file))
        if self._rows is not None and before is not None and str(file) not in self._finished:
            self._rows[str(file)] = before + rows

    def finish(self, file: Path | str) -> None:
        """All rows of a file have been counted."""
        self._finished.add(str(file))

    def files_read(self) -> list[FileRows]:
        """The files, and how many rows each has."""
        found = []
        for name, rows in (self._rows or {}).items():
            file = original_of(Path(name))
            # The path of a URL is not its text.
            shown = name if file == Path(name) else str(file)
            size = file.stat().st_size if file.is_file() else None
            found.append(FileRows(shown, size, rows, version_of(Path(name))))
        return found

    def note(self, subject: str, text: str) -> None:
        """Record how the rows are read, where that may surprise a user; only the first note on each subject
        is kept."""
        self._notes.setdefault(subject, text)

    @property
    def notes(self) -> list[str]:
        return list(self._notes.values())

    def leave_out(self, what: str, rows: int, example: str | None = None) -> None:
        """Count rows that are left out but not bad; the example is the location of one."""
        if rows:
            kind = self._not_to_judge.setdefault(what, BadRowKind(what, 0, [], bad=False))
            kind.rows += rows
            if example is not None and len(kind.examples) < _MAX_EXAMPLES:
                kind.examples.append(example)

    @property
    def skipped(self) -> list[BadRowKind]:
        """Everything that was left out, and why."""
        return [kind for kind in self.kinds if kind.left_out] + list(self._not_to_judge.values())

    @property
    def rows_skipped(self) -> int:
        return sum(kind.rows for kind in self.skipped)

    @property
    def rows_not_taken(self) -> int:
        """Rows that are left out or quarantined."""
        return self.rows_skipped + self.rows_quarantined

    # Bad rows.

    def add(
        self,
        what: str,
        example: str,
        source: str | None = None,
        rows: int = 1,
        left_out: bool = True,
        text: bytes | None = None,
    ) -> None:
        """Count `rows` of a kind; the example is a place in the source, or in `source`, a file that is part
        of it. `text` is what is there, of a row that would be left out."""
        example = brief(example)
        source = source or self.source
        if self.strict is None:
            raise InputError(f"{source}, {example}")
        if self.strict:
            kind_of_row = what.partition(", left out")[0]
            raise InputError(f"{source}, {example} ({kind_of_row}); without --strict it is only counted")
        if text is not None and self.quarantine is not None:
            kind_of_row = what.partition(", left out")[0]
            what, left_out = what.replace("left out", "quarantined"), False
            self.quarantine(source, f"{example} ({kind_of_row})", text)
            self.rows_quarantined += 1
        kind = self._by_kind.setdefault(what, BadRowKind(what, 0, [], left_out))
        kind.rows += rows
        if len(kind.examples) < _MAX_EXAMPLES:
            kind.examples.append(example if source == self.source else f"{source}, {example}")

    def add_all(
        self,
        what: str,
        examples: Iterable[str],
        rows: int,
        source: str | None = None,
        left_out: bool = True,
    ) -> None:
        """Count many rows at once; no more of the examples are computed than are shown."""
        left = rows
        for example in examples:
            if not left:
                return
            last = left == 1 or rows - left + 1 >= _MAX_EXAMPLES
            self.add(what, example, source, rows=left if last else 1, left_out=left_out)
            left -= left if last else 1

    @property
    def rows(self) -> int:
        return sum(kind.rows for kind in self._by_kind.values())

    @property
    def kinds(self) -> list[BadRowKind]:
        """Everything that is wrong."""
        return list(self._by_kind.values())

    @property
    def rows_missing(self) -> int:
        """Bad rows that are missing from what was judged."""
        return sum(kind.rows for kind in self._by_kind.values() if kind.left_out)

    def first_example(self) -> str:
        """An example for an error message about an input without usable rows; empty if nothing is wrong."""
        return next((f"; the first bad row: {kind.examples[0]}" for kind in self.kinds), "")


def brief(text: str) -> str:
    """Text from a file, cut short enough for a message."""
    return text if len(text) <= _MAX_CHARACTERS else f"{text[: _MAX_CHARACTERS - 1]}…"
