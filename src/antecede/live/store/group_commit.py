"""Group commit: everything that happens during one write is persisted together by the next."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

from antecede.live.ready import Ready
from antecede.live.store.journal import Journal


class GroupCommit:
    """Writes a member's journal, in a thread if it waits for the disk."""

    def __init__(self, journal: Journal, sync: bool) -> None:
        self._journal, self._sync = journal, sync
        self._thread = ThreadPoolExecutor(1, "antecede-store")

    async def persist(self, ready: Ready) -> None:
        """Return once the records or the checkpoint are durable."""
        if not ready.records and ready.checkpoint is None:
            return
        if self._sync or ready.checkpoint is not None:
            write = asyncio.get_running_loop().run_in_executor
            await write(self._thread, self._write, ready)
        else:
            self._write(ready)

    def _write(self, ready: Ready) -> None:
        if ready.history is not None:
            ready.history.write()
        self._journal.write(ready.records, ready.checkpoint)

    @property
    def checkpoint_is_due(self) -> bool:
        return self._journal.checkpoint_is_due

    def close(self) -> None:
        self._thread.shutdown()
