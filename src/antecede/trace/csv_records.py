"""The only reader of CSV files (RFC 4180), so that every analysis reads the same records from the same bytes.

Fields are text and stay as they are, quoted line ends included. A record that cannot be read (another number
of fields than the header, a quote in the wrong place, bytes that are not text in the encoding) is reported
and skipped; it never changes the records around it. Importing this module is quick: it needs only the
standard library.
"""

from __future__ import annotations

import codecs
import csv
import io
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, NamedTuple

from antecede.errors import InputError

MAX_FIELD = 1 << 28
"""The most characters of a field: a list may have thousands of names."""

OnUnreadable = Callable[[int, str], None]
"""Called with the number of a row that cannot be read, and why. If it does not raise, the row is skipped."""


class CsvFormat(NamedTuple):
    """How the records of a file are written."""

    encoding: str | None = None
    """None: UTF-8, or what the byte-order mark says."""
    separator: str = ","

    def validate(self) -> None:
        """Refuse an encoding that does not exist and a separator that is not one character."""
        try:
            "".encode(self.encoding or "utf-8")
        except LookupError:
            raise InputError(
                f"--encoding: there is no encoding {self.encoding!r}; common ones are latin-1, cp1252, utf-16"
            ) from None
        if len(self.separator) != 1 or self.separator in '\r\n"':
            raise InputError(f"--separator: {self.separator!r} is not one character; write a tab as $'\\t'")


@contextmanager
def open_csv(file: Path, form: CsvFormat) -> Iterator[IO[str]]:
    """A file as text with its own line ends; bytes that are not text are marked for `csv_records`."""
    with file.open("rb") as raw:
        yield decode_csv(raw, form)


def decode_csv(raw: IO[bytes], form: CsvFormat, at_start: bool = True) -> IO[str]:
    """Bytes as text with its own line ends; a byte-order mark at a file's start is not part of it."""
    encoding = form.encoding
    if not at_start:
        encoding = encoding or "utf-8"
    elif encoding is None:
        head = raw.read(2)
        raw.seek(0)
        encoding = "utf-16" if head in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE) else "utf-8-sig"
    elif codecs.lookup(encoding).name == "utf-8":
        encoding = "utf-8-sig"
    return io.TextIOWrapper(raw, encoding, errors="surrogateescape", newline="")


def read_header(
    lines: IO[str], where: Path | str, form: CsvFormat, numbers: LineNumbers | None = None
) -> list[str]:
    """The names of the columns; empty if the file is empty. The lines that follow are the rows."""
    faults: list[str] = []
    source = RecordLines(iter(lines.readline, ""), numbers)
    names = next((fields for _, fields in csv_records(source, lambda _, why: faults.append(why), form)), [])
    if faults:
        raise InputError(f"{where}: its header {faults[0].removeprefix('it ')}")
    return names


def csv_records(
    lines: Iterable[str],
    on_unreadable: OnUnreadable,
    form: CsvFormat,
    width: int | None = None,
    first_row: int = 1,
) -> Iterator[tuple[int, list[str]]]:
    """The records of some lines, each with its number; blank lines are skipped. `width` is the number of the
    header's fields."""
    csv.field_size_limit(MAX_FIELD)
    checked = lines if isinstance(lines, RecordLines) else RecordLines(lines)
    records = csv.reader(checked, delimiter=form.separator, strict=True)
    number = first_row - 1
    while True:
        checked.begin_record()
        try:
            fields = next(records)
        except StopIteration:
            return
        except csv.Error as error:
            number += 1
            on_unreadable(number, f"it is not CSV: {error}")
            continue
        if not fields:
            continue
        number += 1
        if checked.not_text:
            checked.not_text = False
            on_unreadable(number, f"it is not text in {form.encoding or 'UTF-8'}; give the --encoding")
        elif width is not None and len(fields) != width:
            on_unreadable(number, f"it does not have the header's {width} fields, but {len(fields)}")
        else:
            yield number, fields


class LineNumbers:
    """The position of a reader in a file, in lines as an editor counts them."""

    def __init__(self) -> None:
        self.read = 0
        self.first = 0
        """The number of lines in the last record."""


class RecordLines:
    """Lines, some of which contain undecodable bytes (as surrogate characters, by PEP 383).

    A CSV reader takes as many lines as a record has; `text` is the last record as it is in the file.
    """

    def __init__(self, lines: Iterable[str], numbers: LineNumbers | None = None) -> None:
        self._lines = iter(lines)
        self._numbers = numbers or LineNumbers()
        self._record: list[str] = []
        self.not_text = False

    def begin_record(self) -> None:
        self._record.clear()
        self._numbers.first = self._numbers.read + 1

    @property
    def text(self) -> str:
        """The record without the end of its last line."""
        text = "".join(self._record)
        return text[: -len("\r\n")] if text.endswith("\r\n") else text.removesuffix("\n").removesuffix("\r")

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = next(self._lines)
        self._numbers.read += 1
        self._record.append(line)
        if not line.isascii():
            try:
                line.encode()
            except UnicodeEncodeError:
                self.not_text = True
        return line
