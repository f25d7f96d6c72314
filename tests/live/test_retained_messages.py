"""Messages retained for later newcomers, and hostile state transfers."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from driven_cores import ANA, BO, CY, EVE, Driven, exchange, found, founders
from live_groups import run, until
from memory_disk import MemoryDisk
from rooms import room

import antecede
from antecede.errors import InputError
from antecede.live.changing.contact import Contact
from antecede.live.changing.core import ChangingCore
from antecede.live.changing.events import (
    AttemptBegun,
    Declined,
    Founded,
    JoinAsked,
    LinkOpened,
    RemoveAsked,
    Reported,
    Started,
    TransferBegun,
)
from antecede.live.changing.history import HistoryEntry, HistoryLog, Retention, encode_entry
from antecede.live.changing.snapshots import SnapshotTransfer
from antecede.live.changing.sponsor import begin_transfer, offer_history, remove_unneeded
from antecede.live.changing.transfer import (
    HistoryChunk,
    SnapshotChunk,
    StateFetch,
    StateFrame,
    StateOffer,
    StateRequest,
    StateSource,
)
from antecede.live.messages import Message
from antecede.live.ready import send_and_advance
from antecede.live.store.disk import FileDisk
from antecede.live.store.inspection import StoreInspection
from antecede.membership.catalog import ChangingMbcp
from antecede.membership.state import Phase
from antecede.protocols.base import RemoteError

ADDRESS = 7


async def take(group: Any, count: int) -> list[Message]:
    messages: list[Message] = []
    async for message in group:
        messages.append(message)
        if len(messages) == count:
            group.ack(message)
            break
    return messages


def test_a_newcomer_delivers_retained_messages_and_supplies_them_to_others(tmp_path: Path) -> None:
    """With more messages than fit into a welcome; a restart in between repeats nothing."""

    async def test() -> None:
        bodies = [bytes([number]) * 700_000 for number in range(10)]
        async with room(tmp_path, "ana", "bo", "cy", retain="1h") as group:
            for number, body in enumerate(bodies):
                await group.groups[("ana", "bo")[number % 2]].broadcast(body)
                await until(lambda: all(len(each.bodies) > number for each in group.boards.values()), "it")  # noqa: B023
            options: dict[str, Any] = {"history": "all", "retain": "1h", "restore": None}
            dana = await group.start("dana", reads=False, **options)
            assert dana.view.start == {}
            first = await take(dana, 4)
            await group.stop("dana")
            before = {file: file.read_bytes() for file in (tmp_path / "dana").glob("history-*")}
            inspection = StoreInspection(FileDisk(tmp_path / "dana"))
            assert inspection.core() is not None
            assert inspection.damages == []
            assert before == {file: file.read_bytes() for file in (tmp_path / "dana").glob("history-*")}
            dana = await group.start("dana", reads=False, **options)
            await group.groups["cy"].broadcast("new")
            messages = [*first, *await take(dana, 7)]
            assert [message.body for message in messages] == [*bodies, "new"]
            assert [message.history for message in messages] == [True] * 10 + [False]
            assert [message.origin for message in messages] == ["ana", "bo"] * 5 + ["cy"]
            assert messages[1].causes == (messages[0].id,)
            assert not any(message.redelivered for message in messages)
            eve = await group.start("eve", reads=False, contact=[f"dana@{dana.address}"], **options)
            assert [message.body for message in await take(eve, 11)] == [*bodies, "new"]

    run(test())


def test_a_small_history_travels_in_the_welcome_and_is_retained_only_if_configured(tmp_path: Path) -> None:
    async def test() -> None:
        async with room(tmp_path, "ana", "bo", "cy") as group:
            await group.groups["ana"].broadcast("not retained")
            await group.agree({"not retained"}, "ana", "bo", "cy")
            dana = await group.start("dana", history="all")
            assert dana.view.start == {"ana": 1}
            assert group.boards["dana"].restored is None
            assert not list(tmp_path.glob("*/history-*"))
        async with room(tmp_path / "retaining", "ana", "bo", "cy", retain="1MB") as group:
            await group.groups["ana"].broadcast("retained")
            await group.agree({"retained"}, "ana", "bo", "cy")
            await group.start("dana", history="all")
            await group.agree({"retained"}, "ana", "bo", "cy", "dana")

    run(test())


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"retain": "much"}, "retain: 'much' is no time and no size"),
        ({"retain": "0s"}, "retain: it must be more than 0"),
        ({"history": "some"}, 'history: it is "all" or nothing'),
        ({"retain": "1d", "store": None}, "retain: messages are retained in a store"),
    ],
)
def test_unworkable_history_settings_are_refused(settings: dict[str, Any], reason: str) -> None:
    values: dict[str, Any] = {"me": "ana", "contact": "bo@:7000", "store": "s", **settings}
    with pytest.raises(InputError, match=reason):
        antecede.join("g", **values)


# The log


def entry(seq: int, size: int = 10, time: int = 0) -> HistoryEntry:
    return HistoryEntry(0, seq, b"x" * size, {}, {0: "ana"}, time)


def fill(log: HistoryLog, last: int, **options: int) -> None:
    for position in range(log.end + 1, last + 1):
        log.add(position, entry(position, **options))
        batch = log.take_batch(sync=True)
        assert batch is not None
        batch.write()
        batch.confirm()


def test_a_history_log_survives_a_restart_and_is_truncated_to_the_replay() -> None:
    disk = MemoryDisk()
    log = HistoryLog(disk, ADDRESS)
    log.segment_bytes = 200
    log.begin(5, {"ana": 5})
    fill(log, 40)
    log = HistoryLog(disk, ADDRESS)
    assert (log.first, log.end, log.counts, log.exists) == (5, 40, {"ana": 5}, True)
    assert [log.read(position).seq for position in range(6, 41)] == list(range(6, 41))
    assert log.beginning_within(log.size) == (5, {"ana": 5})
    later, counts = log.beginning_within(500)
    assert later > 20
    assert counts == {"ana": later}
    log.cut_off(17)
    log = HistoryLog(disk, ADDRESS)
    assert (log.first, log.end) == (5, 17)
    fill(log, 20)
    assert [log.read(position).seq for position in (20, 6, 17, 18)] == [20, 6, 17, 18]
    log.cut_off(21)  # the last of which is missing, so it is useless
    assert not log.exists
    assert disk.names() == []


def test_a_torn_history_write_is_truncated_and_rewritten_by_the_replay() -> None:
    disk = MemoryDisk()
    log = HistoryLog(disk, ADDRESS)
    log.begin(0, {})
    fill(log, 9)
    (name,) = disk.names()
    disk.truncate(name, disk.size(name) - 3)
    log = HistoryLog(disk, ADDRESS)
    assert log.end == 8
    for position in range(1, 11):
        log.add(position, entry(position))
    log.cut_off(10)
    assert [log.read(position).seq for position in range(1, 11)] == list(range(1, 11))


@pytest.mark.parametrize(("retention", "least"), [("5ns", 35), ("2kB", 20)])
def test_old_segments_are_dropped_and_the_rest_is_a_causal_cut(retention: str, least: int) -> None:
    log = HistoryLog(MemoryDisk(), ADDRESS)
    log.begin(0, {})
    for position in range(1, 41):
        log.trim(Retention.parse(retention), position, None)
        if retention == "5ns":
            log.segment_bytes = 100
        fill(log, position, size=30, time=position)
    log.trim(Retention.parse(retention), 41, needed=None)
    assert 0 < log.first <= least
    assert log.counts == {"ana": log.first}
    assert log.size <= 2_000 + 200
    kept = log.first
    log.trim(Retention.parse("1ns"), 1_000, needed=kept)
    assert log.first == kept
    log.trim(None, 1_000, needed=None)
    assert not log.exists


def test_replays_after_repeated_crashes_reread_a_former_incarnation_s_history() -> None:
    ana, bo = founders()
    ana.core.retains = True
    for number in range(3):
        ana.core.broadcast(b"%d" % number, 0)
    exchange(ana, bo)
    cy = Driven("cy")
    for number in range(2):  # it joins, is removed, and returns
        contact = Contact("cy", bytes([number] * 8))
        cy.step(AttemptBegun(contact, 0))
        cy.step(LinkOpened(contact.address, ANA, 0))
        ana.step(LinkOpened(ANA.address, contact, 0))
        cy.step(JoinAsked(cy.link_to(ANA), 0))
        exchange(ana, bo, cy)
        ana.step(offer_history(ana.core, contact.address, 0))
        exchange(ana, bo, cy)
        cy.step(Started(0))
        assert len(cy.read()) == 3
        ana.step(Reported(0))
        exchange(ana, bo, cy)
        if not number:
            bo.step(RemoveAsked(cy.core.me, 0))
            exchange(ana, bo)
            cy.step(Reported(0))
            exchange(ana, bo, cy)
            assert cy.core.phase == Phase.REMOVED
    before = cy.state()
    for _ in range(3):
        cy = cy.restarted()
        assert cy.state() == before
    remove_unneeded(cy.core, None, 0)
    assert len(cy.disk.names()) == 5  # with two histories
    ready = cy.core.ready(checkpoint=True)
    cy.journal.write(ready.records, ready.checkpoint)
    send_and_advance(cast("Any", cy.core), ready)
    remove_unneeded(cy.core, None, 0)
    assert len(cy.disk.names()) == 3
    assert cy.restarted().state() == before


# Hostile sponsors and newcomers

STATE = b"state" * 100
OFFER = SnapshotTransfer(hashlib.sha256(STATE).digest(), len(STATE), False, 3, {"ana": 3})


def bad_digest(fetch: Callable[[StateFrame], StateRequest | None]) -> None:
    fetch(StateOffer(OFFER))
    fetch(SnapshotChunk(0, b"x" * len(STATE)))


def never_ending(fetch: Callable[[StateFrame], StateRequest | None]) -> None:
    fetch(StateOffer(OFFER))
    fetch(SnapshotChunk(0, STATE))
    for position in range(3, 1_000_000):
        fetch(HistoryChunk(position, [encode_entry(entry(position + 1, 500))]))


def frames(*wrong: StateFrame) -> Callable[[Callable[[StateFrame], StateRequest | None]], None]:
    def send(fetch: Callable[[StateFrame], StateRequest | None]) -> None:
        for frame in wrong:
            fetch(frame)

    return send


def offered(**changes: Any) -> StateOffer:
    return StateOffer(msgspec.structs.replace(OFFER, **changes))


@pytest.mark.parametrize(
    ("attack", "reason"),
    [
        (bad_digest, "another digest"),
        (never_ending, "more than 5,000 bytes"),
        (frames(offered(length=5_001)), "a state of 5,001 bytes"),
        (frames(offered(length=-1)), "it offers an invalid state"),
        (frames(offered(first=-1)), "it offers an invalid state"),
        (frames(offered(digest=b"short")), "it offers an invalid state"),
        (frames(offered(digest=b"")), "it offers an invalid state"),
        (frames(SnapshotChunk(0, STATE)), "not offered"),
        (frames(HistoryChunk(3, [b""])), "not offered"),
        (frames(offered(), SnapshotChunk(1, b"x")), "0 is the next"),
        (frames(offered(), SnapshotChunk(0, b"")), "empty"),
        (frames(offered(), SnapshotChunk(0, STATE + b"x")), "beyond the end"),
        (frames(offered(), HistoryChunk(3, [encode_entry(entry(4))])), "nobody has asked"),
        (frames(offered(), SnapshotChunk(0, STATE), SnapshotChunk(0, STATE)), "is the next"),
        (frames(offered(), SnapshotChunk(0, STATE), HistoryChunk(4, [b"x"])), "nobody has asked"),
        (frames(offered(), SnapshotChunk(0, STATE), HistoryChunk(3, [b"x"])), "not a message"),
        (frames(offered(), SnapshotChunk(0, STATE), HistoryChunk(3, [])), "there are none"),
        (frames(StateRequest(b"", 0, 0, 0)), "not offered"),
    ],
)
def test_a_newcomer_refuses_an_impossible_state_transfer(attack: Callable[[Any], None], reason: str) -> None:
    disk = MemoryDisk()
    fetch, log = StateFetch(disk, 5_000), HistoryLog(disk, ADDRESS)
    with pytest.raises(RemoteError, match=reason):
        attack(lambda frame: fetch.receive(ADDRESS, log, frame))
    assert sum(disk.size(name) for name in disk.names()) <= 5_000 + 1_000


def test_a_newcomer_resumes_a_transfer_and_refetches_chunks_damaged_on_its_disk() -> None:
    disk = MemoryDisk()
    fetch, log = StateFetch(disk, 5_000), HistoryLog(disk, ADDRESS)
    fetch.receive(ADDRESS, log, StateOffer(OFFER))
    fetch.receive(ADDRESS, log, SnapshotChunk(0, STATE[:300]))
    disk.files[disk.names()[0]].content[10] ^= 1
    fetch = StateFetch(disk, 5_000)
    request = fetch.receive(ADDRESS, log, StateOffer(OFFER))
    assert request == StateRequest(OFFER.digest, 3, 300, -1)
    request = fetch.receive(ADDRESS, log, SnapshotChunk(300, STATE[300:]))
    assert request == StateRequest(OFFER.digest, 3, 0, -1)
    request = fetch.receive(ADDRESS, log, SnapshotChunk(0, STATE))
    assert request == StateRequest(OFFER.digest, 3, len(STATE), 3)
    fetch.receive(ADDRESS, log, HistoryChunk(3, [encode_entry(entry(4))]))
    request = StateFetch(disk, 5_000).receive(ADDRESS, HistoryLog(disk, ADDRESS), StateOffer(OFFER))
    assert request == StateRequest(OFFER.digest, 3, len(STATE), 4)
    other = StateFetch(disk, 5_000).receive(ADDRESS, HistoryLog(disk, ADDRESS), offered(digest=b"y" * 32))
    assert other == StateRequest(b"y" * 32, 3, 0, -1)


@pytest.mark.parametrize(
    "request_frame",
    [
        StateRequest(b"x", 0, 0, -1),
        StateRequest(OFFER.digest, 0, -1, -1),
        StateRequest(OFFER.digest, 0, len(STATE) + 1, -1),
        StateRequest(OFFER.digest, 0, 0, 0),
        StateRequest(OFFER.digest, 0, len(STATE), -2),
        StateRequest(OFFER.digest, 0, len(STATE), 1 << 60),
    ],
)
def test_a_sponsor_answers_one_request_at_a_time_and_ignores_impossible_ones(
    request_frame: StateRequest,
) -> None:
    core = ChangingCore(ChangingMbcp, "ana", durable=False)
    core.step(Founded([Contact("ana"), Contact("bo")], 0))
    core.member.requests.append(ADDRESS)
    core.files.write_at(f"snapshot-{OFFER.digest.hex()}", 0, STATE)
    core.step(TransferBegun(ADDRESS, msgspec.structs.replace(OFFER, first=0), 0))
    core.history.begin(0, {})
    source = StateSource(core, core.files)
    source.receive(ADDRESS, request_frame, 0.0)  # before the offer: it is ignored
    assert isinstance(source.next_frame(ADDRESS, 0.0), StateOffer)
    assert source.next_frame(ADDRESS, 0.0) is None
    for _ in range(3):
        source.receive(ADDRESS, StateRequest(OFFER.digest, 0, 0, -1), 0.0)
    assert source.next_frame(ADDRESS, 0.0) == SnapshotChunk(0, STATE)
    assert source.next_frame(ADDRESS, 0.0) is None
    with pytest.raises(RemoteError, match="it asks for"):
        source.receive(ADDRESS, request_frame, 0.0)
    assert source.overdue(59.0, 60.0) == []
    assert source.overdue(61.0, 60.0) == [ADDRESS]


def test_a_newcomer_may_ask_before_the_last_message_of_the_state_is_written() -> None:
    """Found by the simulation: on a fast link the sponsor refused it."""
    core = ChangingCore(ChangingMbcp, "ana", durable=False)
    core.step(Founded([Contact("ana"), Contact("bo")], 0))
    core.member.requests.append(ADDRESS)
    core.step(TransferBegun(ADDRESS, msgspec.structs.replace(OFFER, first=1), 0))
    core.history.begin(0, {})
    source = StateSource(core, core.files)
    assert isinstance(source.next_frame(ADDRESS, 0.0), StateOffer)
    source.receive(ADDRESS, StateRequest(OFFER.digest, 1, len(STATE), 1), 0.0)
    assert source.next_frame(ADDRESS, 0.0) is None
    assert source.has_work(ADDRESS)
    with pytest.raises(RemoteError, match="beyond the end"):
        source.receive(ADDRESS, StateRequest(OFFER.digest, 1, len(STATE), 2), 0.0)


def test_a_sponsor_gives_up_a_newcomer_once() -> None:
    ana = sponsor_of_cy()[0]
    source = StateSource(ana.core, ana.disk)
    assert source.overdue(0.0, 60.0) == []
    assert source.overdue(61.0, 60.0) == [CY.address]
    ana.step(Declined(CY.address, 0))
    assert source.overdue(61.0, 60.0) == []


def test_a_removed_sponsor_returns_without_newcomers() -> None:
    ana, bo, eve = sponsor_of_cy()
    bo.step(RemoveAsked(ana.core.me, 0))
    exchange(bo, eve)
    ana.step(Reported(0))
    exchange(ana, bo, eve)
    assert ana.core.phase == Phase.REMOVED
    ana.step(AttemptBegun(Contact("ana", b"afterwds"), 0))
    for each in (ana, ana.restarted()):
        assert StateSource(each.core, each.disk).overdue(0.0, 60.0) == []
        assert not each.core.keeps_history


def sponsor_of_cy() -> list[Driven]:
    """Founders, of which the first one has begun to send a state."""
    members = ana, *_ = found(ANA, BO, EVE)
    cy = Driven("cy")
    cy.step(AttemptBegun(CY, 0))
    cy.step(LinkOpened(CY.address, ANA, 0))
    ana.step(LinkOpened(ANA.address, CY, 0))
    cy.step(JoinAsked(cy.link_to(ANA), 0))
    exchange(*members, cy)
    first, counts = begin_transfer(ana.core)
    ana.core.history.create()
    ana.core.snapshot_from = None
    ana.step(TransferBegun(CY.address, SnapshotTransfer(OFFER.digest, len(STATE), False, first, counts), 0))
    return list(members)
