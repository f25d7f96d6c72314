"""Bugs to plant, by name: each breaks one promise that the simulation must notice.

`plant` changes the classes of this process for good, so a bug is planted in a process of its own, or within
`planted`, which takes it back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from antecede.live import core as core_module
from antecede.live.clock import MemberClock
from antecede.live.core import Core
from antecede.live.events import Broadcast, RepairReceived
from antecede.live.ready import Ready
from antecede.live.recovery import take_checkpoint
from antecede.live.seals import Seals
from antecede.live.stability import Row, Stability
from antecede.live.store import records
from antecede.live.store.journal import Journal
from antecede.live.transport.frames import RepairReply
from antecede.live.transport.greeter import Greeter
from antecede.live.transport.links import PartnerLink
from antecede.live.transport.outbox import Outbox
from antecede.live.validation import decode_packet
from vopr.node import Process

_changed: list[tuple[Any, str, Any]] = []


def _replace(owner: Any, name: str, value: Any) -> None:
    _changed.append((owner, name, owner.__dict__.get(name)))
    setattr(owner, name, value)


def commit_order_swapped() -> None:
    """Packets are sent before the commit is durable."""

    def finish_write(process: Process, ready: Ready) -> None:
        process._advance(ready)
        process.pump()
        process._pending = ready
        process.world.push(process._soon(), process, lambda _: write(process, ready), None)

    def write(process: Process, ready: Ready) -> None:
        try:
            process._persist(ready)
        except OSError as error:
            process.member.die(f"cannot write its store: {error}")
            return
        process._pending = None
        process._finish_cycle(ready)

    _replace(Process, "_finish_write", finish_write)


def cursor_not_restored() -> None:
    """The cursor is taken from the log, not from its own file."""
    original = Journal._open_cursor

    def open_cursor(journal: Journal, contents: Any) -> None:
        original(journal, contents)
        journal._cursor = contents.cursor.acked, contents.cursor.attempts

    _replace(Journal, "_open_cursor", open_cursor)


def hash_not_checked() -> None:
    """Lives and chain values are not compared, only counts."""

    def check(greeter: Greeter, peer: int, greeting: Any) -> None:
        """Any partner with as many packets as were sent is accepted."""

    def ack(box: Outbox, number: int, value: bytes) -> None:
        number = min(number, box.last)
        if number >= box.acked:
            original_ack(box, number, box.chain[number])

    def on_packets(link: PartnerLink, frame: Any, now: float, time: int) -> None:
        previous = link._core.received_chain[link.peer]
        original_packets(link, msgspec.structs.replace(frame, previous=previous), now, time)

    original_ack, original_packets = Outbox.ack, PartnerLink._on_packets
    _replace(Greeter, "check_resumable", check)
    _replace(Outbox, "ack", ack)
    _replace(PartnerLink, "_on_packets", on_packets)
    _replace(Stability, "_compare", lambda *_: None)


def repair_reply_unverified() -> None:
    """An unsolicited repair is accepted."""

    def on_reply(link: PartnerLink, frame: RepairReply, now: float, time: int) -> None:
        for body in frame.bodies:
            _, spans = decode_packet(link._core.protocol, link._core.stability, body)
            link._core.step(RepairReceived(link.peer, body, time, list(spans)))

    _replace(PartnerLink, "_on_repair_reply", on_reply)


def signature_not_checked() -> None:
    """Any claimed signature counts as valid."""
    _replace(Seals, "verify_statement", lambda *_: None)


def counts_believed() -> None:
    """Any report on any member's progress is accepted, signed or not."""

    def is_news(stability: Stability, link: int, row: Row) -> bool:
        known = stability._signed_rows.get(row.member)
        if known is None or _total(row) > _total(known):
            stability._signed_rows[row.member] = row
        return row.member != stability.me

    def _total(row: Row) -> int:
        return sum(count for count, _ in row.counts.values())

    _replace(Stability, "_is_news", is_news)


def timer_on_the_wall_clock() -> None:
    """A member's clock follows the computer's."""
    original = MemberClock.__init__

    def init(clock: MemberClock, time_of_day: Any = None, monotonic: Any = None) -> None:
        original(clock, time_of_day, time_of_day)

    _replace(MemberClock, "__init__", init)


def ack_before_durable() -> None:
    """Packets are acknowledged when they arrive."""
    _replace(Core, "durably_received", property(lambda core: core.received, lambda *_: None))
    _replace(Core, "durable_chain", property(lambda core: core.received_chain, lambda *_: None))


def sync_skipped() -> None:
    """A commit is not synced."""
    original = Journal.__init__

    def init(journal: Journal, disk: Any, identity: Any, sync: bool, random_bytes: Any) -> None:
        original(journal, disk, identity, False, random_bytes)

    _replace(Journal, "__init__", init)


def checksum_not_checked() -> None:
    """Records are read without checking their digest."""
    _replace(records, "_digest", lambda *_: bytes(16))


def own_delivery_lost_in_a_crash() -> None:
    """A member that comes back does not deliver its own messages to itself."""
    original = Core._on_broadcast

    def on_broadcast(core: Core, event: Broadcast) -> None:
        original(core, msgspec.structs.replace(event, own=False))

    _replace(Core, "_on_broadcast", on_broadcast)


def failure_acks() -> None:
    """Asking for a message acks the one in flight, even in a new iteration."""
    original = Process.next_delivery
    _replace(Process, "next_delivery", lambda process, _: original(process, True))


def power_failure_not_noticed() -> None:
    """The cursor is believed to be the latest after a power failure."""
    _replace(Journal, "cursor_is_exact", property(lambda _: True))


def delivered_before_durable() -> None:
    """Messages are yielded before they are durable."""
    _replace(Core, "is_persisted", lambda *_: True)


def deliveries_not_logged() -> None:
    """A broadcast is recorded without what was delivered before it."""
    _replace(Core, "log_deliveries", lambda *_: None)


def cursor_counts_from_zero() -> None:
    """The attempts of the message in flight are forgotten with the process."""
    original = Journal._open_cursor

    def open_cursor(journal: Journal, contents: Any) -> None:
        original(journal, contents)
        journal._cursor = journal._cursor[0], 0

    _replace(Journal, "_open_cursor", open_cursor)


def checkpoint_without_packets() -> None:
    """A checkpoint has no packets that partners still lack."""
    original = take_checkpoint

    def take(core: Core) -> Any:
        return msgspec.structs.replace(original(core), packets=[])

    _replace(core_module, "take_checkpoint", take)


def timers_lost_in_a_crash() -> None:
    """A checkpoint has no timers."""
    original = take_checkpoint

    def take(core: Core) -> Any:
        timers, core.timers = core.timers, []
        checkpoint = original(core)
        core.timers = timers
        return checkpoint

    _replace(core_module, "take_checkpoint", take)


BUGS: dict[str, Callable[[], None]] = {
    bug.__name__.replace("_", "-"): bug
    for bug in (
        commit_order_swapped,
        cursor_not_restored,
        hash_not_checked,
        repair_reply_unverified,
        signature_not_checked,
        counts_believed,
        timer_on_the_wall_clock,
        ack_before_durable,
        sync_skipped,
        checksum_not_checked,
        own_delivery_lost_in_a_crash,
        failure_acks,
        power_failure_not_noticed,
        delivered_before_durable,
        deliveries_not_logged,
        cursor_counts_from_zero,
        checkpoint_without_packets,
        timers_lost_in_a_crash,
    )
}


@contextmanager
def planted(name: str) -> Iterator[None]:
    """The bug for as long as this lasts."""
    BUGS[name]()
    try:
        yield
    finally:
        while _changed:
            owner, attribute, before = _changed.pop()
            if before is None:
                delattr(owner, attribute)
            else:
                setattr(owner, attribute, before)
