"""Recovery of a process in several groups after a crash: a checkpoint, and a replay of the log."""

from __future__ import annotations

from collections import deque
from typing import Any, cast

import msgspec

from antecede.errors import AntecedeError, InputError
from antecede.live.changing.events import InGroup
from antecede.live.changing.recovery import ChangingCoreState, load_members
from antecede.live.events import Delivered, Parked, Unparked
from antecede.live.overlapping.core import NodeCore, NodeState
from antecede.live.ready import send_and_advance
from antecede.live.recovery import SavedStore


def restore(node: NodeCore, store: SavedStore) -> None:
    """Restore a new core to the state that the journal records."""
    try:
        _restore(node, store)
    except InputError:
        raise
    except (AntecedeError, msgspec.DecodeError, LookupError, TypeError, ValueError, RecursionError) as error:
        raise InputError(f"{store.path} is a damaged store: {error}") from error


def _restore(node: NodeCore, store: SavedStore) -> None:
    cursor, contents = store.cursor, store.contents()
    checkpoint = contents.checkpoint.checkpoint
    node.is_replaying = True
    if checkpoint.state:
        _load(node, msgspec.msgpack.decode(checkpoint.state, type=NodeState))
    last, group = node.time, ""
    for record in contents.records():
        last = record.time
        match record:
            case Delivered():
                while node.polls < record.count:
                    _poll(node, last, store)
            case InGroup():
                group = record.group
            case Parked() | Unparked():
                node.step(record)
            case _:
                node.group(group).step(record)
    for core in node.groups.values():
        core.finish_replay()
    # The requests of a replay were persisted before.
    ready = node.ready()
    if ready.history is not None:
        ready.history.write()
    send_and_advance(cast("Any", node), ready)
    for core in node.groups.values():
        core.sealing.end_replay()
        core.is_replaying = False
        core.dropped.clear()
    node.is_replaying = False
    queue = node.application
    acked = max(cursor.acked, queue.acked, queue.parking)
    attempts = cursor.attempts if cursor.acked == acked else 0
    while queue.delivered < acked + (attempts > 0):
        _poll(node, last, store)
    queue.resume(acked, attempts)
    if not store.cursor_is_exact:
        # Every deliverable message may have been yielded before the power failed.
        store.uncertain_until = _deliverable(node)
    queue.uncertain_until = store.uncertain_until
    while queue.delivered < queue.uncertain_until and node.poll(last):
        pass
    store.release()


def _poll(node: NodeCore, now: int, store: SavedStore) -> None:
    if not node.poll(now):
        raise InputError(
            f"{store.path}: more messages were delivered than are in it: the store is damaged, or its files "
            "are from different times"
        )


def _deliverable(node: NodeCore) -> int:
    """How many messages could have been delivered to the application in all, determined on a copy."""
    copy = NodeCore(node.name, durable=False)
    _load(copy, msgspec.msgpack.decode(node.save(), type=NodeState))
    while copy.poll(0):
        pass
    return copy.application.delivered


def _load(node: NodeCore, state: NodeState) -> None:
    node.past, node.time = state.past, state.time
    queue = node.application
    for name, saved in state.groups.items():
        core = node.group(name)
        load_members(core, msgspec.msgpack.decode(saved.state, type=ChangingCoreState), saved.packets)
    node.connect()
    node.polls = state.polls
    node.log_polls(state.time)  # these are in the log already
    queue.delivered, queue.unacked, queue.parking = state.delivered, deque(state.unacked), state.parking
    queue.resume_parked(state.parked)
