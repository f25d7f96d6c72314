"""Group commit: everything that happens while one write is under way is persisted together by the next."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor

from antecede.live.ready import Ready
from antecede.live.store.journal import Journal

_CHECKPOINT_SECONDS = 5.0
_CHECKPOINT_BYTES = 1 << 22
"""A checkpoint is worth its cost after this much log, and twice the size of the last checkpoint."""


class GroupCommit:
    """Writes a member's journal, in a thread if it waits for the disk, and decides when to take a
    checkpoint."""

    def __init__(self, journal: Journal, sync: bool) -> None:
        self._journal = journal
        self._thread = ThreadPoolExecutor(1, "antecede-store") if sync else None
        self._log_bytes = self._checkpoint_bytes = 0
        self._checkpoint_at = time.monotonic()

    async def persist(self, ready: Ready) -> None:
        """Returns once the records or the checkpoint are durable."""
        if not ready.records and ready.checkpoint is None:
            return
        if self._thread is None:
            written = self._journal.write(ready.records, ready.checkpoint)
        else:
            write = asyncio.get_running_loop().run_in_executor
            written = await write(self._thread, self._journal.write, ready.records, ready.checkpoint)
        self._log_bytes += written
        if ready.checkpoint is not None:
            self._log_bytes, self._checkpoint_at = 0, time.monotonic()
            self._checkpoint_bytes = len(ready.checkpoint.state)

    def checkpoint_is_due(self) -> bool:
        waited = time.monotonic() - self._checkpoint_at
        if waited > _CHECKPOINT_SECONDS and self._checkpoint_bytes < _CHECKPOINT_BYTES:
            return self._log_bytes > 0
        return self._log_bytes > max(_CHECKPOINT_BYTES, 2 * self._checkpoint_bytes)

    def close(self) -> None:
        if self._thread is not None:
            self._thread.shutdown()
