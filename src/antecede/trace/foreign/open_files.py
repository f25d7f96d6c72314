"""Opens files of other programs: plain or gzipped, as bytes or as text, up to a size.

A gzip file may be a thousandth of what it decompresses to. So it is decompressed as it is read, and refused
once it has become larger than a file of its size becomes in practice, or than the user allows. Memory is that
of a buffer, and for `read_whole` that of the limit.
"""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

from antecede.errors import InputError

MAX_BYTES = 2 << 30
"""Of a file, after decompression, unless the user says otherwise."""
_MAX_RATIO = 100
"""Of decompressed to compressed bytes; logs have 10 to 50, the format allows 1,032."""
_ANY_RATIO_BYTES = 16 << 20
"""So much may come of any file, however small."""

_GZIP = b"\x1f\x8b"


class _Bounded(io.RawIOBase):
    """A stream that raises an error where it has more bytes than a limit."""

    def __init__(self, stream: IO[bytes], limit: int, what: str) -> None:
        self._stream, self._left, self._error = stream, limit, InputError(what)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        data = self._stream.read(min(len(buffer), self._left + 1))
        if len(data) > self._left:
            raise self._error
        self._left -= len(data)
        buffer[: len(data)] = data
        return len(data)


@contextmanager
def open_bytes(path: Path, max_bytes: int | None = None) -> Iterator[IO[bytes]]:
    """A file as bytes, decompressed if it is gzip; at most `max_bytes` of them."""
    if not path.exists():
        raise InputError(f"{path} does not exist")
    if not path.is_file():
        raise InputError(f"{path} is not a file")
    with path.open("rb") as raw:
        gzipped = raw.read(2) == _GZIP
        raw.seek(0)
        size = path.stat().st_size
        limit = MAX_BYTES if max_bytes is None else max_bytes
        what = f"{path} has more than {limit:,} bytes"
        if gzipped:
            if max_bytes is None:
                limit = min(limit, max(_ANY_RATIO_BYTES, _MAX_RATIO * size))
            what = f"{path} has {size:,} bytes and decompresses to more than {limit:,} bytes"
        stream = cast("IO[bytes]", gzip.GzipFile(fileobj=raw)) if gzipped else raw
        bounded = _Bounded(stream, limit, f"{what}; if it should be read all the same, give --max-bytes")
        try:
            yield io.BufferedReader(bounded, 1 << 16)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise InputError(f"{path} is damaged gzip: {error}") from error


def read_whole(path: Path, max_bytes: int | None = None) -> bytes:
    """A whole file."""
    with open_bytes(path, max_bytes) as stream:
        data = stream.read()
    if not data.strip():
        raise InputError(f"{path} is empty")
    return data


@contextmanager
def open_text(path: Path, max_bytes: int | None = None) -> Iterator[IO[str]]:
    """A file as lines of UTF-8 text."""
    with open_bytes(path, max_bytes) as stream:
        try:
            yield io.TextIOWrapper(stream, encoding="utf-8-sig", newline="")
        except UnicodeDecodeError as error:
            raise InputError(f"{path} is not text in UTF-8: {error.reason}") from error
