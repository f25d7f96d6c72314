"""Lines of standard input, for antecede node and antecede chat."""

from __future__ import annotations

import asyncio
import os
import stat
import sys
from collections.abc import AsyncIterator

from antecede.errors import InputError
from antecede.live.envelope import MAX_BODY_BYTES


async def read_lines() -> AsyncIterator[str]:
    """Lines of standard input as they arrive, from a terminal, a pipe or a file."""
    mode = os.fstat(sys.stdin.fileno()).st_mode
    if not stat.S_ISFIFO(mode) and not stat.S_ISSOCK(mode) and not sys.stdin.isatty():
        for line in sys.stdin.buffer:  # reading a file does not block
            yield line.decode(errors="replace").rstrip("\n")
        return
    reader = asyncio.StreamReader(limit=2 * MAX_BODY_BYTES)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    try:
        while line := await reader.readline():
            yield line.decode(errors="replace").rstrip("\n")
    except ValueError as error:
        raise InputError(f"a line of the input is longer than {2 * MAX_BODY_BYTES:,} bytes") from error
