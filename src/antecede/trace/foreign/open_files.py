"""Opens files of other programs: plain or gzipped, as bytes or as text."""

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
"""Of a file that is read whole, after decompression."""

_GZIP = b"\x1f\x8b"


@contextmanager
def open_bytes(path: Path) -> Iterator[IO[bytes]]:
    """A file as bytes, decompressed if it is gzip."""
    if not path.exists():
        raise InputError(f"{path} does not exist")
    if not path.is_file():
        raise InputError(f"{path} is not a file")
    with path.open("rb") as raw:
        gzipped = raw.read(2) == _GZIP
        raw.seek(0)
        try:
            yield cast("IO[bytes]", gzip.GzipFile(fileobj=raw)) if gzipped else raw
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise InputError(f"{path} is damaged gzip: {error}") from error


def read_whole(path: Path) -> bytes:
    """A whole file, up to `MAX_BYTES`."""
    with open_bytes(path) as stream:
        data = stream.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise InputError(f"{path} has more than {MAX_BYTES >> 30} GiB; split it")
    if not data.strip():
        raise InputError(f"{path} is empty")
    return data


@contextmanager
def open_text(path: Path) -> Iterator[IO[str]]:
    """A file as lines of UTF-8 text."""
    with open_bytes(path) as stream:
        try:
            yield io.TextIOWrapper(stream, encoding="utf-8-sig", newline="")
        except UnicodeDecodeError as error:
            raise InputError(f"{path} is not text in UTF-8: {error.reason}") from error
