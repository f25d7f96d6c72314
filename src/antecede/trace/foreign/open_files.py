"""Opens files of other programs: plain or compressed, as bytes or as text, up to a size.

The compression of a file is recognised by its first bytes, whatever its name: gzip, zstd or bzip2. A
compressed file may expand a thousandfold. So it is decompressed as it is read, and refused once its content
exceeds the ratios that occur in practice, or the user's limit. Memory is that of a buffer (with zstd that of
a window, 128 MiB at most), and for `read_whole` that of the limit.

The file exporter of OpenTelemetry's collector compresses message by message, each after its length. Such a
file is read as what the exporter would have written without compression: JSON lines, or protobuf messages
after their lengths.
"""

from __future__ import annotations

import bz2
import codecs
import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

import pyarrow as pa

from antecede.errors import InputError

MAX_BYTES = 2 << 30
"""The most bytes of a file after decompression, unless the user sets another limit."""
_MAX_RATIO = 100
"""The largest ratio of decompressed to compressed bytes; logs have 10 to 50, the formats allow a thousand and
more."""
_ANY_RATIO_BYTES = 16 << 20
"""Every file may expand to this many bytes, however small it is."""

_COMPRESSIONS = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"BZh": "bzip2"}
_MESSAGES = "zstd, message by message"
_LENGTH_BYTES = 4
_MAX_MESSAGE = 1 << 28
"""The most bytes of a message, before and after decompression."""
_ARCHIVES = {
    b"PK\x03\x04": "a zip archive",
    b"\xfd7zXZ\x00": "compressed with xz",
    b"\x04\x22\x4d\x18": "compressed with lz4",
}
_BYTE_ORDER_MARKS = (  # The longer one of two with the same beginning comes first.
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


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


class _CollectorMessages(io.RawIOBase):
    """The messages of a file in which each is compressed by itself and comes after its length."""

    def __init__(self, raw: IO[bytes], limit: int) -> None:
        self._raw, self._rest, self._most = raw, memoryview(b""), min(limit, _MAX_MESSAGE)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        if not self._rest:
            self._rest = memoryview(self._next())
        count = min(len(buffer), len(self._rest))
        buffer[:count], self._rest = self._rest[:count], self._rest[count:]
        return count

    def _next(self) -> bytes:
        """The next message, as a line if it is JSON and otherwise after its length; empty at the end."""
        prefix = self._raw.read(_LENGTH_BYTES)
        if not prefix:
            return b""
        size = int.from_bytes(prefix)
        packed = self._raw.read(size) if size <= _MAX_MESSAGE else b""
        if len(packed) < size or len(prefix) < _LENGTH_BYTES:
            raise EOFError(f"a message of {size:,} bytes, of which {len(packed):,} could be read")
        message = bytearray()
        with pa.CompressedInputStream(pa.BufferReader(packed), "zstd") as stream:
            while len(message) <= self._most and (part := stream.read(1 << 16)):
                message += part
        if len(message) > _MAX_MESSAGE:
            raise EOFError(f"a message that decompresses to more than {_MAX_MESSAGE:,} bytes")
        if message.startswith((b"{", b"[")):
            return bytes(message.rstrip(b"\n") + b"\n")
        return len(message).to_bytes(_LENGTH_BYTES) + message


def compression(head: bytes) -> str | None:
    """The compression of a file that begins like this; None if it is not compressed, an error if it is
    unreadable."""
    for magic, what in _ARCHIVES.items():
        if head.startswith(magic):
            raise InputError(f"it is {what}; unpack it first (gzip, zstd and bzip2 are read as they are)")
    if _COMPRESSIONS.get(head[_LENGTH_BYTES:8]) == "zstd":
        return _MESSAGES
    return next((name for magic, name in _COMPRESSIONS.items() if head.startswith(magic)), None)


def streaming_limit(path: Path) -> int:
    """The most bytes that a file that is not held in memory may expand to."""
    return max(_ANY_RATIO_BYTES, _MAX_RATIO * path.stat().st_size) if path.is_file() else 0


@contextmanager
def open_bytes(path: Path, max_bytes: int | None = None) -> Iterator[IO[bytes]]:
    """A file as bytes, decompressed if it is gzip, zstd or bzip2; at most `max_bytes` of them."""
    if not path.exists():
        raise InputError(f"{path} does not exist")
    if not path.is_file():
        raise InputError(f"{path} is not a file")
    with path.open("rb") as raw:
        try:
            name = compression(raw.read(8))
        except InputError as error:
            raise InputError(f"{path}: {error}") from error
        raw.seek(0)
        size = path.stat().st_size
        limit = MAX_BYTES if max_bytes is None else max_bytes
        what = f"{path} has more than {limit:,} bytes"
        if name:
            if max_bytes is None:
                limit = min(limit, max(_ANY_RATIO_BYTES, _MAX_RATIO * size))
            what = f"{path} has {size:,} bytes and decompresses to more than {limit:,} bytes"
        stream = _decompressed(raw, name, limit) if name else raw
        bounded = _Bounded(stream, limit, f"{what}; if it should be read all the same, give --max-bytes")
        try:
            yield io.BufferedReader(bounded, 1 << 16)
        except (EOFError, zlib.error, gzip.BadGzipFile, OSError, ValueError) as error:
            if name is None or isinstance(error, UnicodeError):
                raise
            raise InputError(f"{path} is damaged {name} ({error}); copy it again") from error


def _decompressed(raw: IO[bytes], name: str, limit: int) -> IO[bytes]:
    if name == "gzip":
        return cast("IO[bytes]", gzip.GzipFile(fileobj=raw))
    if name == _MESSAGES:
        return cast("IO[bytes]", _CollectorMessages(raw, limit))
    if name == "bzip2":
        return cast("IO[bytes]", bz2.BZ2File(raw))
    return cast("IO[bytes]", pa.CompressedInputStream(pa.PythonFile(raw, mode="r"), "zstd"))


def read_head(path: Path, size: int) -> bytes:
    """The first bytes of a file, decompressed."""
    with open_bytes(path) as stream:
        return stream.read(size)


def read_whole(path: Path, max_bytes: int | None = None) -> bytes:
    """A whole file."""
    with open_bytes(path, max_bytes) as stream:
        data = stream.read()
    if not data.strip():
        raise InputError(f"{path} is empty")
    return data


def text_encoding(head: bytes) -> str:
    """The encoding that a byte order mark names; without one, UTF-8."""
    return next((name for mark, name in _BYTE_ORDER_MARKS if head.startswith(mark)), "utf-8")


@contextmanager
def open_text(path: Path, max_bytes: int | None = None, encoding: str = "") -> Iterator[IO[str]]:
    """A file as lines of text: in UTF-8, in what its byte order mark names, or else in `encoding`."""
    with open_bytes(path, max_bytes) as stream:
        marked = text_encoding(cast("Any", stream).peek(4)[:4])
        chosen = encoding if encoding and marked == "utf-8" else marked
        try:
            yield io.TextIOWrapper(stream, encoding=chosen, newline="")
        except UnicodeDecodeError as error:
            raise InputError(
                f"{path} is not text in {chosen.removesuffix('-sig').upper()}: {error.reason}"
            ) from error
