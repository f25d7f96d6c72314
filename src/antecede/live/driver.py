"""The loop that runs a core. It carries out each `Ready` in this order:

1. persist   the records or the checkpoint, by group commit: whatever happens meanwhile goes into the next
2. send      packets into the outboxes, from which connections transmit them until they are acknowledged
3. advance   tell the core

Deliveries are not part of the loop. The application pulls them (`next_delivery`), and only durable messages
are delivered, so they do not wait for a write in progress: the cursor is persisted, and the message is
returned. Steps 2 and 3 are `send_and_advance`, which also ends a restart (`recovery.py`).

A message takes eight forms between `broadcast` and the receiver's trace row (`mbcp`):

1. `Envelope`          its body, as bytes, with what the receiver's application is to know of it: the payload
2. `Broadcast`         event and log record: payloads broadcast in a row, and when
3. `MessageBatch`      the protocol's packet, the same class at both ends
4. `Packets`           encoded packets under their numbers on a link: in `Ready`, and the frame
5. `PacketReceived`    event and log record at the receiver
6. `DependencyPacket`  one message of the batch (`MessageBatch.split`)
7. `Delivery`          from the protocol
8. `TraceRow`          by ranks and codes; `EventTables` turns the columns of many into the rows of the trace

A message broadcast alone is a `DependencyPacket` from the start; other protocols have packets of their own.
The list omits containers and encodings of these forms:

- `Effects` and `Send` around a packet, and `Ready` around everything. An `Outbox` has the packets' bytes by
  number, `UnstableMessage` retains them until they are stable, and `StoredPacket` is the same in the journal.
- `Message` around a `Delivery`: what the application sees, by names. No row of the trace comes from it.
- msgpack of an envelope, packet, frame or log record, and of trace rows in a checkpoint; Arrow and Parquet.

Without a journal there is nothing to wait for, and a `Ready` is carried out at once (`flush`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from antecede.errors import AntecedeError, StoreError
from antecede.live.core import Core
from antecede.live.events import DeliveryAcked
from antecede.live.operations.trace import NodeTrace
from antecede.live.ready import Ready, send_and_advance
from antecede.live.store.group_commit import GroupCommit
from antecede.live.store.journal import Journal
from antecede.live.trace_rows import MAX_ROWS
from antecede.protocols.base import Delivery

_BACKLOG_BYTES = 1 << 16
"""An application lags if more bytes than this wait for it; four times as many with a store, since group
commits deliver messages in larger batches."""
_MAX_TURNS = 32
"""For how many turns of the event loop the driver waits for it."""
_CLOSE_PATIENCE = 10.0
"""How long, in seconds, a leaving member waits for its trace."""
_TRACE_PATIENCE = 1.0
"""How long, in seconds, a group commit waits when the trace lags."""


class Driver:
    """Runs one core. `advanced` is called after each `Ready`, and `failed` once if the member must stop.
    `trace_changed` is called with the reason when the trace cannot be written, and with an empty text when it
    can be written again."""

    def __init__(
        self,
        core: Core,
        journal: Journal | None,
        sync: bool,
        trace: NodeTrace | None,
        advanced: Callable[[Ready], None],
        failed: Callable[[StoreError], None],
        trace_changed: Callable[[str], None],
    ) -> None:
        self._core, self._journal, self._trace = core, journal, trace
        self._advanced, self._failed, self._trace_changed = advanced, failed, trace_changed
        self._commit = GroupCommit(journal, sync) if journal is not None else None
        self._waiters: list[asyncio.Future[None]] = []
        self._has_work = asyncio.Event()
        self._is_flushing = self._is_closing = False
        self.unflushed = 0
        """How many messages were broadcast in this round of the event loop, without a journal."""
        self.failure: AntecedeError | None = None
        self._task = asyncio.create_task(self._run())
        self._trace_task: asyncio.Task[None] | None = None
        self._is_written = asyncio.Event()
        self._is_written.set()
        self._accepted: list[asyncio.Future[None]] = []
        """Waiters whose messages are durable, and that continue when the application has caught up."""
        self._backlog = _BACKLOG_BYTES if journal is None else 4 * _BACKLOG_BYTES
        self._reading: asyncio.Task[None] | None = None
        self._trace_problem = ""

    # The loop

    async def _run(self) -> None:
        while not self._is_closing:
            await self._has_work.wait()
            await asyncio.sleep(0)  # other events of this round of the event loop join the group commit
            self._has_work.clear()
            await self._cycle(self._commit is not None and self._commit.checkpoint_is_due)

    async def let_application_read(self) -> None:
        """Wait briefly if this member's application lags and is making progress. Further broadcasts would
        only wait in queues, here and at other members."""
        core = self._core
        for _ in range(_MAX_TURNS):
            if core.undelivered_bytes <= self._backlog:
                break
            acked = core.application.acked
            await self._is_written.wait()  # its next message may be part of this write
            await asyncio.sleep(0)
            if core.application.acked == acked:
                break

    def _release(self, waiters: list[asyncio.Future[None]]) -> None:
        """Let waiters continue whose messages are durable, all of them together once the application has
        caught up."""
        self._accepted += waiters
        if self._reading is None:
            if self._core.undelivered_bytes > self._backlog:
                self._reading = asyncio.create_task(self._release_later())
            else:
                self._release_accepted()

    async def _release_later(self) -> None:
        try:
            await self.let_application_read()
        finally:
            self._reading = None
            self._release_accepted()

    def _release_accepted(self) -> None:
        accepted, self._accepted = self._accepted, []
        for waiter in accepted:
            if not waiter.done():
                waiter.set_result(None)

    async def _cycle(self, checkpoint: bool) -> None:
        """Carry out one `Ready`, and release callers that wait for it to be durable."""
        waiters, self._waiters = self._waiters, []
        if self.failure is not None:
            # Events during a failed write depend on its records.
            _fail(waiters, self.failure)
            return
        try:
            ready = self._core.ready(checkpoint)
            if self._commit is not None:
                self._is_written.clear()
                await self._commit.persist(ready)
            self._carry_out(ready)
        except Exception as error:
            # Whatever the error: memory and disk no longer agree, and every waiting caller must learn of it.
            where = self._journal.path if self._journal else "in memory"
            _fail(waiters, self.fail(f"{where}: {error}"))
            return
        finally:
            self._is_written.set()
        self._release(waiters)
        if self._trace_task is not None and len(self._core.trace.rows) > MAX_ROWS // 2:
            await self._wait_for_trace(self._trace_task)

    def _carry_out(self, ready: Ready) -> None:
        """The steps that may follow once a `Ready` is durable."""
        send_and_advance(self._core, ready)
        self._advanced(ready)

    def flush(self) -> None:
        """Without a journal: carry out everything pending at once."""
        self._is_flushing, self.unflushed = False, 0
        try:
            self._carry_out(self._core.ready())
        except Exception as error:
            self.fail(f"internal: {error!r}")

    # Deliveries on request

    def next_delivery(self, now: int, acks: bool) -> Delivery | None:
        """The next durable message for the application, if there is one: the message in flight again, unless
        this call `acks` it."""
        delivery = self._core.next_delivery(now, acks)
        if delivery is None:
            self.stepped()  # this request itself may have to become durable first
        if self._journal is not None:
            queue = self._core.application
            self._journal.move_cursor(queue.delivered - len(queue.unacked), queue.attempts)
        return delivery

    def ack(self) -> None:
        """The application has processed the message in flight."""
        self._core.step(DeliveryAcked())
        self.save_cursor()

    def save_cursor(self) -> None:
        if self._journal is not None:
            self._journal.cursor = self._core.application.cursor

    # Called by the group

    def stepped(self) -> None:
        """The core has taken an event."""
        if not self._core.has_ready or self.failure is not None:
            return
        if self._journal is None:
            self.flush()
        else:
            self._has_work.set()

    def flush_soon(self) -> None:
        """Without a journal: send everything broadcast in one round of the event loop together."""
        self.unflushed += 1
        if not self._is_flushing:
            self._is_flushing = True
            asyncio.get_running_loop().call_soon(self.flush)

    async def durable(self) -> None:
        """Wait until everything so far is durable and, if the application lags, until it has caught up."""
        self.check_failed()
        # One future per caller: one may be cancelled, and the write continues.
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        self._has_work.set()
        await waiter

    def check_failed(self) -> None:
        if self.failure is not None:
            raise self.failure

    def tick(self) -> None:
        """Called periodically: take a checkpoint if one is due, and write trace rows that have waited for
        long."""
        if self.failure is not None:
            return
        if self._commit is not None and self._commit.checkpoint_is_due:
            self._has_work.set()
        if self._trace is not None and self._trace_task is None and self._trace.is_due:
            self._trace_task = asyncio.create_task(self._write_trace(self._trace))
            if self._core.trace.rows:
                # Deliveries that no event has followed are rows too.
                self._core.log_deliveries(self._core.trace.rows[-1].time)
                self.stepped()

    def fail(self, reason: str) -> StoreError:
        """Stop writing after a failure."""
        error = StoreError(f"{reason}; the member stops")
        self.failure = error
        self._failed(error)
        return error

    def refuse(self, error: AntecedeError) -> None:
        """Stop writing: the member is refused and does not run."""
        waiters, self._waiters, self.failure = self._waiters, [], error
        _fail(waiters, error)

    async def _write_trace(self, trace: NodeTrace) -> None:
        """Runs beside the loop: a failure of the trace does not stop the member."""
        try:
            await trace.write()
        finally:
            self._trace_task = None
        self._report_trace(trace.problem)

    async def _wait_for_trace(self, task: asyncio.Task[None]) -> None:
        """Back-pressure: rows are added faster than they are written. Wait, unless the disk does not
        answer."""
        if not self._trace_problem:
            await asyncio.wait([task], timeout=_TRACE_PATIENCE)
            if not task.done():
                self._report_trace("the trace is not written: its disk does not answer")

    def _report_trace(self, problem: str) -> None:
        if problem != self._trace_problem:
            self._trace_problem = problem
            self._trace_changed(problem)

    async def close(self) -> None:
        """Persist everything pending, as a checkpoint."""
        # Not cancelled: whatever is written must also be sent.
        self._is_closing = True
        self._has_work.set()
        await self._task
        await self._cycle(checkpoint=self._journal is not None)  # otherwise tell the waiters why not
        if self._commit is not None:
            self._commit.close()
        if self._trace is not None:
            # A disk that does not answer must not keep the member from leaving.
            if self._trace_task is not None:
                await asyncio.wait([self._trace_task], timeout=_CLOSE_PATIENCE)
            is_written = self._trace_task is None
            if is_written:
                last = asyncio.create_task(self._write_trace(self._trace))
                is_written = bool((await asyncio.wait([last], timeout=_CLOSE_PATIENCE))[0])
            if not is_written:
                self._report_trace("the last rows of the trace are not written: its disk does not answer")


def _fail(waiters: list[asyncio.Future[None]], error: AntecedeError) -> None:
    for waiter in waiters:
        if not waiter.done():
            waiter.set_exception(error)
