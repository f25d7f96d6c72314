"""Bugs that the simulation must find: each is one careless line in the core or in its recovery."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from antecede.live.changing import recovery, reporting
from antecede.live.changing.backfill import BackfillCore
from antecede.live.changing.core import ChangingCore
from antecede.live.changing.events import Started
from antecede.live.changing.history import HistoryLog
from antecede.live.ready import send_and_advance
from antecede.membership.member import ChangingMember
from vopr.changing.host import Process

_backfill: Any = BackfillCore
_core: Any = ChangingCore
_history: Any = HistoryLog
_member: Any = ChangingMember
_process: Any = Process
_recovery: Any = recovery
_reporting: Any = reporting


def snapshot_beside_a_delivery() -> None:
    """A newcomer is admitted although the application has not processed all counted deliveries."""
    _core.may_sponsor = property(lambda core: core.wants_snapshot)


def given_before_durable() -> None:
    """The application is delivered messages that a crash may undo."""
    _core._persisted = property(lambda _: 1 << 60, lambda *_: None)


def polls_are_not_recorded() -> None:
    """A replay delivers at other positions than the original run."""
    _core.log_polls = lambda *_: None


def start_is_forgotten() -> None:
    """After a crash the application is given its snapshot again, after messages."""
    original = ChangingCore._on_started

    def on_started(core: ChangingCore, event: Started) -> None:
        if not core.is_replaying:
            original(core, event)

    _core._on_started = on_started


def requests_are_forgotten() -> None:
    """A checkpoint lacks pending admission requests, received and sent."""
    original = recovery._load

    def load(core: ChangingCore, state: Any, packets: Any) -> None:
        original(core, state, packets)
        for member in core.members.values():
            member.requests, member.unstable = [], {}

    _recovery._load = load


def backlog_is_left_behind() -> None:
    """A wrongly removed member returns without its messages."""
    _member.bring_back = lambda *_: None


def outboxes_are_forgotten() -> None:
    """A checkpoint lacks unacknowledged packets."""
    _recovery._needed_packets = lambda _: []


def reports_are_not_repeated() -> None:
    _reporting.ReportSchedule.hear = lambda *_: None


def sent_before_durable() -> None:
    original = Process._commit

    def commit(process: Any, argument: object) -> None:
        original(process, argument)
        send_and_advance(process.core, process._pending)
        process.pump()

    _process._commit = commit


def what_was_delivered_meanwhile_is_left_out() -> None:
    """A newcomer starts with a snapshot that is older than its counts."""
    original = BackfillCore._on_admitted

    def on_admitted(core: Any, member: ChangingMember, now: int) -> None:
        original(core, member, now)
        core.backfilled = core.backfill_end

    _backfill._on_admitted = on_admitted


def history_is_not_cut_off() -> None:
    """After a crash a history contains messages that were never durable."""
    _history.cut_off = lambda *_: None


def snapshot_begins_too_late() -> None:
    """Messages delivered while a snapshot is written are not retained."""
    _backfill.add_to_history = _without_transfers(BackfillCore.add_to_history)


def _without_transfers(original: Any) -> Any:
    def add_to_history(core: Any, delivery: Any, now: int) -> None:
        transfers, core.transfers = core.transfers, {}
        if transfers and not core.retains:
            core.position += 1
        else:
            original(core, delivery, now)
        core.transfers = transfers

    return add_to_history


BUGS: dict[str, Callable[[], None]] = {
    each.__name__: each
    for each in (
        snapshot_beside_a_delivery,
        given_before_durable,
        polls_are_not_recorded,
        start_is_forgotten,
        requests_are_forgotten,
        backlog_is_left_behind,
        outboxes_are_forgotten,
        reports_are_not_repeated,
        sent_before_durable,
        what_was_delivered_meanwhile_is_left_out,
        history_is_not_cut_off,
        snapshot_begins_too_late,
    )
}
_PLACES = (
    ChangingCore,
    ChangingMember,
    BackfillCore,
    HistoryLog,
    recovery,
    reporting,
    reporting.ReportSchedule,
    Process,
)


@contextmanager
def planted(bug: str) -> Iterator[None]:
    """With a bug; afterwards without it."""
    before = [(place, dict(vars(place))) for place in _PLACES]
    BUGS[bug]()
    try:
        yield
    finally:
        for place, names in before:
            for name, value in list(vars(place).items()):
                if name not in names:
                    delattr(place, name)
                elif names[name] is not value:
                    setattr(place, name, names[name])
