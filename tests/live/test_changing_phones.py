"""Phones of live groups with changing membership, over real WebSockets."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest
from live_groups import PATIENCE, Ear, run, until
from phone_rooms import phone_room

from antecede.errors import InputError
from antecede.live.changing.group import DynamicGroup
from antecede.live.changing.phone_group import CutOffError
from antecede.live.changing.protocols import WITH_PHONES
from antecede.live.changing.super_peer import MAX_AWAY_BYTES
from antecede.live.settings import Settings
from antecede.live.store.disk import FileDisk
from antecede.live.store.inspection import StoreInspection
from antecede.protocols.base import LocalError

with_each_protocol = pytest.mark.parametrize("protocol", sorted(WITH_PHONES))
"""With super peers and phones, and with gateways and local processes."""


@with_each_protocol
@pytest.mark.parametrize("stored", [True, False])
def test_phones_join_broadcast_and_leave(tmp_path: Path, stored: bool, protocol: str) -> None:
    async def test() -> None:
        options: dict[str, Any] = {} if stored else {"store": None}
        async with phone_room(tmp_path, protocol=protocol, **options) as room:
            await room.groups["ana"].broadcast("before")
            await room.agree({"before"}, "ana", "bo", "cy")
            pia = await room.start_phone("pia", "bo", **options)
            assert room.boards["pia"].restored == ["before"]
            assert pia.super_peer == "bo"
            tim = await room.start_phone("tim", "cy", **options)
            sent = await pia.broadcast("from pia")
            assert sent.origin == pia.me
            ids = {sent, await tim.broadcast("from tim"), await room.groups["ana"].broadcast("from ana")}
            everyone = ("ana", "bo", "cy", "pia", "tim")
            await room.agree({"before", "from pia", "from tim", "from ana"}, *everyone)
            assert all(ids <= set(board.ids) for board in room.boards.values())
            assert room.phones_of("bo") == {"pia": True}
            assert room.groups["bo"].view.names == ["ana", "bo", "cy"]
            await pia.leave(timeout=PATIENCE)
            del room.groups["pia"], room.boards["pia"]
            await until(lambda: room.phones_of("bo") == {}, "the phone has left")
            await room.groups["bo"].broadcast("without pia")
            await room.agree_on_last("without pia")

    run(test())


def test_a_super_peer_reads_a_phone_s_backlog_without_waiting_for_ticks(tmp_path: Path) -> None:
    """Each message waits until the request for it is durable. At one message per tick this would take too
    long."""

    async def test() -> None:
        async with phone_room(tmp_path) as room:
            pia = await room.start_phone("pia", "ana")
            bodies = {str(number) for number in range(400)}
            await asyncio.gather(*map(pia.broadcast, bodies))
            await room.agree(bodies, *room.groups)

    run(test())


@with_each_protocol
def test_a_phone_moves_without_a_gap(tmp_path: Path, protocol: str) -> None:
    async def test() -> None:
        async with phone_room(tmp_path, protocol=protocol) as room:
            pia = await room.start_phone("pia")
            first = pia.super_peer
            for turn, name in enumerate(("bo", "cy", "ana", "cy")):
                await room.groups["ana"].broadcast(f"{turn} from ana")
                await pia.broadcast(f"{turn} from pia")
                await pia.move(name)
                assert pia.super_peer == name
                await pia.broadcast(f"{turn} from pia after the move")
            await room.agree_on_last("3 from pia after the move")
            assert len(room.boards["pia"].bodies) == 12
            assert room.boards["pia"].restored == []
            assert first == "ana"
            with pytest.raises(LocalError, match="not among the super peers"):
                await pia.move("dana")

    run(test())


def test_broadcasts_of_a_returned_phone_are_limited_until_its_old_ones_are_settled(tmp_path: Path) -> None:
    async def test() -> None:
        async with phone_room(tmp_path) as room:
            pia = await room.start_phone("pia", "ana")
            core: Any = room.groups["ana"]._core
            (address,) = core.phones
            before = pia.me
            # As if ana waited for others to report whether it is lost.
            core.hub.site.delayed[address] = [bytes(MAX_AWAY_BYTES + 1)]
            await until(lambda: pia.me != before and pia.state == "open", "its return")
            assert not core.hub.site.delayed
            await pia.broadcast("again")
            await room.agree_on_last("again")

    run(test())


@with_each_protocol
def test_a_phone_resumes_from_its_store(tmp_path: Path, protocol: str) -> None:
    async def test() -> None:
        async with phone_room(tmp_path, protocol=protocol) as room:
            pia = await room.start_phone("pia")
            await pia.broadcast("one")
            await room.agree({"one"}, "ana", "bo", "cy", "pia")
            await room.stop("pia")
            await room.groups["bo"].broadcast("two")
            await room.agree({"one", "two"}, "ana", "bo", "cy")
            before, again = room.boards["pia"].bodies, await room.start_phone("pia")
            board = room.boards["pia"]
            await until(lambda: board.bodies == ["two"], "what it has missed")
            assert board.restored is None, before
            await again.broadcast("three")
            await room.agree({"one", "two", "three"}, "ana", "bo", "cy")

    run(test())


@with_each_protocol
def test_a_phone_fails_over_to_another_super_peer_without_loss(tmp_path: Path, protocol: str) -> None:
    async def test() -> None:
        async with phone_room(tmp_path, protocol=protocol) as room:
            pia = await room.start_phone("pia", "cy", "bo")
            tim = await room.start_phone("tim", "ana")
            await pia.broadcast("behind cy")
            await room.agree({"behind cy"}, "ana", "bo", "cy", "pia", "tim")
            await room.stop("cy")
            await pia.broadcast("cy is gone")
            await until(lambda: pia.super_peer == "bo", "another super peer")
            await pia.broadcast("behind bo")
            await room.groups["ana"].remove("cy")
            await tim.broadcast("from tim")
            await room.agree({"behind cy", "cy is gone", "behind bo", "from tim"}, "ana", "bo", "pia", "tim")
            for name in ("ana", "bo", "pia", "tim"):
                own = [each for each in room.boards[name].bodies if each in ("cy is gone", "behind bo")]
                assert own[-2:] == ["cy is gone", "behind bo"], name

    run(test())


def test_broadcast_on_a_cut_off_phone_raises_cut_off_error(tmp_path: Path) -> None:
    async def test() -> None:
        async with phone_room(tmp_path) as room:
            pia = await room.start_phone("pia", "cy")
            await pia.broadcast("before")
            await room.agree({"before"}, "ana", "bo", "cy", "pia")
            await room.stop("cy")
            await until(lambda: pia.is_cut_off, "it is cut off")
            with pytest.raises(CutOffError, match="reaches none of cy"):
                await pia.broadcast("lost", timeout=0.1)
            await until(lambda: [each.kind for each in pia.problems()] == ["unreachable"], "a problem")
            await room.start("cy")
            await pia.broadcast("after")
            await room.agree({"after"}, "cy")
            await room.agree({"before", "after"}, "ana", "bo", "pia")

    run(test())


def test_everybody_knows_who_is_connected(tmp_path: Path) -> None:
    async def test() -> None:
        async with phone_room(tmp_path) as room:

            async def all_see(*names: str) -> None:
                groups = room.groups.values()
                await until(lambda: all(each.present == {*names} for each in groups), f"{names} are present")

            await all_see("ana", "bo", "cy")
            await room.start_phone("pia", "ana", "cy")
            await room.start_phone("tim", "bo")
            await all_see("ana", "bo", "cy", "pia", "tim")
            before = {name: group.delivered() for name, group in room.groups.items()}
            await room.stop("tim")
            await all_see("ana", "bo", "cy", "pia")
            await room.start("dana")
            await all_see("ana", "bo", "cy", "dana", "pia")
            await room.phone("pia").move("cy")
            await room.stop("dana")
            await room.stop("bo")
            await all_see("ana", "cy", "pia")
            assert room.groups["cy"].delivered()["cy"] == before["cy"]["cy"]

    run(test())


def test_a_leaving_super_peer_also_sends_away_phones_that_reconnect_meanwhile(tmp_path: Path) -> None:
    async def test() -> None:
        async with phone_room(tmp_path) as room:
            pia = await room.start_phone("pia", "ana")
            ana, bo = room.groups["ana"], room.groups["bo"]
            assert isinstance(bo, DynamicGroup)
            await room.stop("cy")
            bo.go_offline(2.5)
            removing = asyncio.create_task(ana.remove("cy"))  # which cannot end without bo, nor ana leave
            await until(lambda: room.kinds("ana", "cy")[-1:] == ["removing"], "the removal")
            before = pia.me
            leaving = asyncio.create_task(ana.leave())
            await until(lambda: pia.me != before or pia.state == "returning", "pia is sent away")
            await asyncio.sleep(0.5)  # it knows nobody else, and asks again
            await room.stop("pia")
            await asyncio.wait_for(leaving, PATIENCE)
            del room.groups["ana"], room.boards["ana"]
            await removing
            await until(lambda: bo.view.names == ["bo"], "both are gone")

    run(test())


@with_each_protocol
def test_stores_of_running_super_peers_and_phones_can_be_inspected(tmp_path: Path, protocol: str) -> None:
    async def test() -> None:
        async with phone_room(tmp_path, protocol=protocol) as room:
            pia = await room.start_phone("pia", "ana")
            await pia.broadcast("one")
            before, ana = pia.me, room.groups["ana"]
            assert isinstance(ana, DynamicGroup)
            await ana.expel("pia")
            await until(lambda: pia.me != before and pia.state == "open", "its return")
            await pia.broadcast("two")
            await room.agree_on_last("two")
            # It may have returned behind another member than the one that expelled it.
            cores: list[Any] = [room.groups[name]._core for name in ("ana", "bo", "cy")]
            await until(lambda: any(core._told_at > 0 for core in cores), "phones are told what is stable")
            for name in ("ana", "bo", "cy", "pia"):
                inspection = StoreInspection(FileDisk(tmp_path / name))
                assert inspection.core() is not None, name
                assert inspection.damages == []

    run(test())


def test_invalid_phone_settings_are_refused() -> None:
    def check(message: str, **options: Any) -> None:
        with pytest.raises(InputError, match=message):
            Settings.create(group="room", me="pia", **options).validate_changing()

    check("does not listen", super_peers=["ana@:1"], listen=":0")
    check("no contact", super_peers=["ana@:1"], contact="ana@:1")
    check(
        "only groups with protocol freescale, hcg or basic have them",
        founders=["ana@:1", "pia@:2"],
        web=":0",
        listen=":2",
    )
    check("lists its super_peers", contact="ana@:1", behind="ana")
    every = {"protocol": "hcg", "founders": ["pia@:2"], "listen": ":2"}
    check("every subgroup is on linear time", **every, subgroups={"pia": "real 50ms 10ms"})


@pytest.mark.parametrize("restores", [True, False])
def test_what_a_phone_missed_with_its_super_peer_is_restored_or_reported(
    tmp_path: Path, restores: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Others deliver messages while the phone has no super peer."""

    async def test() -> None:
        async with phone_room(tmp_path) as room:
            options: dict[str, Any] = {} if restores else {"restore": None}
            pia = await room.start_phone("pia", "cy", "bo", **options)
            events = Ear(pia, listens=False)
            await room.groups["ana"].broadcast("before")
            await room.agree({"before"}, "ana", "bo", "cy", "pia")
            before = pia.me
            await room.stop("cy")
            await room.groups["ana"].broadcast("meanwhile")
            await until(lambda: pia.me != before and pia.state == "open", "its return")
            await room.groups["ana"].broadcast("after")
            await until(lambda: "after" in room.boards["pia"].bodies, "what comes after its return")
            await events.stop()
            board = room.boards["pia"]
            if restores:
                assert board.bodies == ["before", "meanwhile", "after"]
                assert events.texts("gap") == []
            else:
                assert board.bodies == ["before", "after"]
                assert events.texts("gap") == [gap]
                assert gap in [each.message for each in caplog.records if each.levelno == logging.WARNING]
            returning = "pia's super peer cy is gone, and pia joins again behind another one"
            assert events.texts("returning") == [returning]

    gap = (
        "pia starts again from bo's state: messages that others delivered meanwhile are not delivered here; "
        "pass `restore` to receive them as state"
    )
    run(test())
    of_pia = [each for each in caplog.records if getattr(each, "member", "") == "pia"]
    assert all(each.levelno < logging.ERROR and "removed" not in each.message for each in of_pia)
    assert not any("SuperPeersLost(" in each.message or "MoveAsked(" in each.message for each in of_pia)
