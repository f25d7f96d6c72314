"""Completing the trace of a process that was killed for good, or that had no time to write it.

Until rows are in a part of the trace, they are in memory and in the member's store. A process that never
comes back leaves its last rows in the store. An audit needs them: otherwise deliveries of that process's
messages would have no matching sends.
"""

from __future__ import annotations

from pathlib import Path

from antecede.live.changing.core import ChangingCore
from antecede.live.changing.protocols import live_kind
from antecede.live.changing.recovery import restore
from antecede.live.operations.trace import NodeTrace
from antecede.live.store.disk import FileDisk
from antecede.live.store.journal import Journal
from antecede.live.store.records import MEMBERS_CHANGE


async def complete_trace(store: Path, group: str, protocol: str, name: str, folder: Path) -> None:
    """Write the rows that are in a store and not in the trace. The store's process must have ended."""
    identity = {"group": group, "member": name, "protocol": protocol, "members": MEMBERS_CHANGE}
    journal = Journal(FileDisk(store), identity, sync=False)
    try:
        core = ChangingCore(live_kind(protocol), name, traced=True)
        restore(core, journal)
        # Everything replayed is in the store.
        core.trace.durable = core.trace.length
        trace = NodeTrace(
            folder, group, group, protocol, core.trace_rows.names, name, core.trace, journal.store[:8]
        )
        await trace.write()
    finally:
        journal.close()
