"""Group commit: all that is asked of a member while one write is under way goes into the next."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from antecede.errors import AntecedeError
from antecede.live.core import Batch, Core
from antecede.live.operations.trace import NodeTrace
from antecede.live.store.journal import Journal

_IMAGE_SECONDS = 5.0
_IMAGE_BYTES = 1 << 22
"""So much log at least, and twice the last image, makes a new image worth its cost."""


class StoreError(AntecedeError):
    """The store cannot be written: nothing more is accepted, and what was accepted is safe."""


class Commits:
    """Writes what the core has, and then lets go of what follows from it."""

    def __init__(
        self,
        core: Core,
        journal: Journal | None,
        sync: bool,
        trace: NodeTrace | None,
        released: Callable[[], None],
        failed: Callable[[StoreError], None],
    ) -> None:
        self._core, self._journal, self._trace = core, journal, trace
        self._released, self._failed = released, failed
        self._thread = ThreadPoolExecutor(1, "antecede-store") if journal is not None and sync else None
        self._kick = asyncio.Event()
        self._waiters: list[asyncio.Future[None]] = []
        self._log_bytes = self._image_bytes = 0
        self._image_at = time.monotonic()
        self._broken: StoreError | None = None
        self._closing = False
        self._task = asyncio.create_task(self._run())

    def soon(self) -> None:
        """There is something to write."""
        self._kick.set()

    async def written(self) -> None:
        """Wait until all that was asked of the core until now is written."""
        if self._broken is not None:
            raise self._broken
        # One for each that waits: it may be cancelled, and the write goes on.
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        self._kick.set()
        await waiter

    async def _run(self) -> None:
        while not self._closing:
            await self._kick.wait()
            # What else came in this round of the loop goes into the same group.
            await asyncio.sleep(0)
            self._kick.clear()
            await self._write(whole=self._image_is_due())

    async def _write(self, whole: bool) -> None:
        waiters, self._waiters = self._waiters, []
        if self._broken is not None:
            # What came while the last write failed follows from what was in it.
            _fail(waiters, self._broken)
            return
        try:
            await self._write_batch(self._core.batch(whole))
        except Exception as error:
            # Whatever it is: what is in memory is not what is on disk, and whoever waits must hear of it.
            where = self._journal.path if self._journal else "in memory"
            _fail(waiters, self.give_up(f"{where}: {error}"))
            return
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
        if self._trace is not None and (whole or self._journal is None):
            try:
                await self._trace.keep_up(self._journal, self._core)
            except Exception as error:
                self.give_up(f"trace: {error}")

    async def _write_batch(self, batch: Batch) -> None:
        if self._journal is not None and (batch.rows or batch.changes):
            if self._thread is None:
                self._journal.write(batch.rows, batch.changes)
            else:
                loop = asyncio.get_running_loop()
                await loop.run_in_executor(self._thread, self._journal.write, batch.rows, batch.changes)
        self._account(batch)
        self._core.written(batch)
        self._released()

    def give_up(self, why: str) -> StoreError:
        """Write nothing more."""
        self._broken = StoreError(f"{why}; the member stops")
        self._failed(self._broken)
        return self._broken

    def tick(self) -> None:
        """Now and then: a new image if one is due, and rows of the trace that have waited for long."""
        if self._image_is_due() or (self._journal is None and self._trace is not None):
            self._kick.set()

    def _image_is_due(self) -> bool:
        if self._journal is None:
            return False
        waited = time.monotonic() - self._image_at
        if waited > _IMAGE_SECONDS and self._image_bytes < _IMAGE_BYTES:
            return self._log_bytes > 0
        return self._log_bytes > max(_IMAGE_BYTES, 2 * self._image_bytes)

    def _account(self, batch: Batch) -> None:
        self._log_bytes += sum(len(row.data) + 40 for row in batch.rows)
        if batch.changes is not None:
            self._log_bytes, self._image_at = 0, time.monotonic()
            self._image_bytes = len(batch.changes.image)

    async def close(self) -> None:
        """Write all that is left, as an image."""
        # Not cancelled: what is being written must also be let go.
        self._closing = True
        self._kick.set()
        await self._task
        await self._write(whole=self._journal is not None)  # or say to those who wait that it cannot be
        try:
            if self._broken is None and self._trace is not None:
                await self._trace.finish(self._journal, self._core)
        except OSError as error:
            raise self.give_up(f"trace: {error}") from error
        finally:
            self._thread_ends()

    def _thread_ends(self) -> None:
        if self._thread is not None:
            self._thread.shutdown()


def _fail(waiters: list[asyncio.Future[None]], error: StoreError) -> None:
    for waiter in waiters:
        if not waiter.done():
            waiter.set_exception(error)
