"""Live groups whose members come and go, over real sockets."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest
from live_groups import PATIENCE, run, until
from rooms import Room, room

import antecede
from antecede.errors import InputError
from antecede.live.changing import attempts
from antecede.live.store.disk import FileDisk
from antecede.live.store.inspection import StoreInspection
from antecede.protocols.base import LocalError


@pytest.mark.parametrize("stored", [True, False])
def test_a_fourth_member_joins_leaves_and_nobody_waits_for_it(tmp_path: Path, stored: bool) -> None:
    async def test() -> None:
        options: dict[str, Any] = {} if stored else {"store": None}
        async with room(tmp_path, "ana", "bo", "cy", **options) as group:
            for name in ("ana", "bo", "cy"):
                await group.groups[name].broadcast(f"from {name}")
            before = {"from ana", "from bo", "from cy"}
            await group.agree(before, "ana", "bo", "cy")
            dana = await group.start("dana", **options)
            assert set(group.boards["dana"].restored or []) <= before
            await group.have_view("ana", "bo", "cy", "dana")
            assert dana.me.startswith("dana~")
            assert dana.view.members[dana.me].connected
            sent = await dana.broadcast({"from": "dana"})
            assert sent.origin == dana.me
            await group.groups["bo"].broadcast("after dana")
            boards = group.boards.values()
            await until(lambda: all(len(board.bodies) == 5 for board in boards), "all five everywhere")
            assert all(board.bodies.count({"from": "dana"}) == 1 for board in boards)
            assert all(board.ids.count(sent) == 1 for board in boards)
            await dana.leave(timeout=PATIENCE)
            del group.groups["dana"]
            await group.have_view("ana", "bo", "cy")
            await group.groups["cy"].broadcast("without dana")
            await until(lambda: "without dana" in group.boards["ana"].bodies, "the last message")
            kinds = [change.kind for change in group.boards["bo"].changes if change.name == "dana"]
            assert kinds == ["joined", "left"]
            with pytest.raises(LocalError, match="closed"):
                await dana.broadcast("too late")

    run(test())


def test_causes_are_messages_of_the_application(tmp_path: Path) -> None:
    """Not admissions, though these are in the causal order too."""

    async def test() -> None:
        async with room(tmp_path, "ana", "bo", "cy") as group:
            first = await group.groups["bo"].broadcast("first")
            await group.agree({"first"}, "ana", "bo", "cy")
            dana = await group.start("dana")
            await group.have_view("ana", "bo", "cy", "dana")
            second = await group.groups["cy"].broadcast("second")
            await until(lambda: all(second in board.ids for board in group.boards.values()), "the second")
            third = await dana.broadcast("third")
            fourth = await dana.broadcast("fourth")
            await until(lambda: all(fourth in board.ids for board in group.boards.values()), "the fourth")
            for board in group.boards.values():
                causes = [board.causes[each] for each in (second, third, fourth)]
                assert causes == [(first,), (second,), (third,)]

    run(test())


def test_members_go_on_from_their_stores_and_a_dead_one_is_removed(tmp_path: Path) -> None:
    async def test() -> None:
        async with room(tmp_path, "ana", "bo", "cy") as group:
            await group.start("dana")
            await group.have_view("ana", "bo", "cy", "dana")
            await group.stop("dana")
            await group.groups["ana"].broadcast("while dana is away")
            await group.start("dana")
            await until(lambda: group.boards["dana"].bodies == ["while dana is away"], "what it missed")
            await group.stop("cy")
            await group.groups["dana"].remove("cy")
            await group.have_view("ana", "bo", "dana")
            await group.groups["dana"].broadcast("three are left")
            two = [group.boards[name].bodies for name in ("ana", "bo")]
            await until(lambda: all("three are left" in bodies for bodies in two), "the last message")
            await until(
                lambda: [each.kind for each in group.boards["ana"].changes[-2:]] == ["removing", "removed"],
                f"the removal: {group.boards['ana'].changes}",
            )

    run(test())


def test_members_that_all_move_at_once_find_each_other_where_their_settings_say(tmp_path: Path) -> None:
    async def test() -> None:
        async with room(tmp_path, "ana", "bo", "cy") as group:
            await group.groups["ana"].broadcast("before")
            await group.agree_on_last("before")
        moved = Room(tmp_path)  # with the same stores, at other ports
        try:
            await asyncio.gather(*map(moved.start, moved.ports))
            await moved.groups["cy"].broadcast("after")
            await moved.agree({"after"}, "ana", "bo")
        finally:
            await moved.close()

    run(test())


def test_who_is_silent_is_suspected_and_trusted_again(tmp_path: Path) -> None:
    async def test() -> None:
        async with room(tmp_path, "ana", "bo", "cy", heartbeat="200ms") as group:
            view = group.groups["ana"].view
            assert [member.suspected for member in view] == [None, None, None]
            await until(lambda: all(each.connected for each in group.groups["ana"].view), "connections")
            await group.stop("cy")
            await until(lambda: group.groups["ana"].view.members["cy"].suspected, "the suspicion")
            assert group.groups["ana"].view.members["bo"].suspected is None
            await group.start("cy", heartbeat="200ms")
            await until(lambda: not group.groups["ana"].view.members["cy"].suspected, "trust")
            assert group.kinds("ana", "cy") == ["suspected", "trusted"]
            assert set(group.groups["ana"].suspicion_timeouts()) == {"bo", "cy"}

    run(test())


def test_only_who_has_the_secret_is_admitted(tmp_path: Path) -> None:
    right, wrong = tmp_path / "right", tmp_path / "wrong"
    right.write_text("correct horse battery staple\n")
    wrong.write_text("incorrect horse battery staple\n")
    for file in (right, wrong):
        file.chmod(0o600)

    async def test() -> None:
        async with room(tmp_path, "ana", "bo", "cy", secret=right) as group:
            await group.groups["bo"].broadcast("inside")
            await group.agree({"inside"}, "ana", "bo", "cy")
            await group.start("dana", secret=right)
            await group.have_view("ana", "bo", "cy", "dana")
            refused: list[dict[str, Any]] = [{"secret": wrong}, {}]
            for options in refused:
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(1.0):
                        await group.start("eve", store=None, **options)
            assert group.groups["ana"].view.names == ["ana", "bo", "cy", "dana"]

    run(test())


def test_a_snapshot_that_fails_does_not_stop_the_sponsor(tmp_path: Path) -> None:
    async def test() -> None:
        async with room(tmp_path, "ana", "bo", "cy") as group:
            cast("Any", group.groups["ana"])._sponsor.snapshot = lambda: bytes([1, 2, 300])
            contacts = group.founders[:2]
            starting = asyncio.create_task(group.start("dana", contact=contacts))
            await until(lambda: len(group.groups["ana"]._core.greeted) > 2, "the request")
            await group.groups["bo"].broadcast("it goes on")
            await group.agree({"it goes on"}, "ana", "bo", "cy")
            starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)

    run(test())


def test_a_store_of_a_changing_group_is_not_taken_for_a_damaged_one(tmp_path: Path) -> None:
    async def test() -> None:
        async with antecede.join("room", me="ana", founders=["ana"], store=tmp_path / "ana") as group:
            await group.broadcast("x")

    run(test())
    assert StoreInspection(FileDisk(tmp_path / "ana")).damages == []
    with pytest.raises(InputError, match="is the store of another members"):
        run(_join_fixed(tmp_path / "ana"))


async def _join_fixed(store: Path) -> None:
    async with antecede.join("room", me="ana", peers=["bo"], store=store):
        pass


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"me": "ana", "founders": ["bo", "cy"]}, "ana is not among them"),
        ({"me": "ana", "founders": ["ana", "bo", "bo"]}, "listed twice"),
        ({"me": "ana", "contact": "bo"}, "where is bo"),
        ({"me": "a~b", "contact": "bo@:7000"}, "separates a name"),
        ({"me": "ana", "contact": "bo@:7000", "peers": ["bo"]}, "has founders, or a contact"),
        ({"me": "ana", "contact": "bo@:7000", "park": 1}, "name one"),
        ({"me": "ana", "contact": "bo@:7000", "remove_after": "soon"}, "remove_after: 'soon'"),
        ({"me": "ana", "contact": "bo@:7000", "heartbeat": "1ms"}, "too short"),
        ({"me": "ana", "peers": ["bo"], "snapshot": bytes}, "for groups with founders"),
    ],
)
def test_settings_that_cannot_be_are_refused(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        antecede.join("room", **options)


def test_an_answer_that_comes_after_its_time_is_an_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Found by a trial on a busy machine: the welcome arrived before the next contact was asked."""
    monkeypatch.setattr(attempts, "_ATTEMPT_SECONDS", 0.2)
    monkeypatch.setattr(attempts, "_RETRY_SECONDS", 2.0)

    async def test() -> None:
        async with room(tmp_path, "bo", "cy") as created:
            ana = await created.start("ana", reads=False)
            await created.groups["bo"].broadcast("one")
            reading = aiter(ana)
            await anext(reading)  # while it is in flight, nobody is admitted
            joining = asyncio.create_task(created.start("dana"))
            await until(lambda: "not admitted by" in caplog.text, "an attempt that takes too long")
            following = asyncio.ensure_future(anext(reading))
            await joining
            following.cancel()
            assert created.groups["dana"].state == "open"

    run(test())


def test_a_tick_may_come_between_the_end_of_a_link_and_of_its_connection(tmp_path: Path) -> None:
    """Found by a trial: partners had left, and presence was about to be told to them."""

    async def test() -> None:
        async with room(tmp_path, "ana", "bo", "cy") as created:
            ana = cast("Any", created.groups["ana"])
            await until(lambda: len(ana.connected) == 2, "connections")
            connections = ana._connections
            link = min(connections.connected)
            connections._presence.open(link, "bo", is_phone=False)  # as if it had just begun
            connections._presence._reported_at = float("-inf")
            ends = ana._core.links.pop(link)
            connections._drop(link)
            connections._tick_links()
            ana._core.links[link] = ends
            await until(lambda: len(ana.connected) == 2, "another connection")

    run(test())
