"""Live groups with changing membership, over real sockets."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from live_groups import PATIENCE, Relay, run, until
from rooms import Board, Room, room

import antecede
from antecede.errors import InputError
from antecede.live.changing import attempts
from antecede.live.store.disk import FileDisk
from antecede.live.store.inspection import StoreInspection
from antecede.live.trial.ports import free_ports
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


def test_message_causes_contain_only_application_messages(tmp_path: Path) -> None:
    """Admissions are not listed, although they are part of the causal order."""

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


def test_members_resume_from_their_stores_and_a_dead_one_is_removed(tmp_path: Path) -> None:
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


def test_members_that_all_change_address_find_each_other_by_their_settings(tmp_path: Path) -> None:
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


def test_a_silent_member_is_suspected_and_later_trusted_again(tmp_path: Path) -> None:
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


def test_only_processes_with_the_shared_secret_are_admitted(tmp_path: Path) -> None:
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


def test_reasons_for_refusing_strangers_and_members_are_logged_on_both_sides(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("one", "other"):
        (tmp_path / name).write_text(f"{name} horse battery staple\n")
        (tmp_path / name).chmod(0o600)

    async def test() -> None:
        async with room(tmp_path, "ana", "bo", "cy", secret=tmp_path / "one") as group:
            _, stranger = await asyncio.open_connection("127.0.0.1", group.ports["ana"])
            stranger.write(b"hello " * 100)
            text = "it speaks without encryption, and this member has keys"
            await until(lambda: f"refused someone at 127.0.0.1: {text}" in caplog.text, "the stranger")
            stranger.close()
            await group.stop("cy")
            cy = await group.start("cy", secret=tmp_path / "other")
            await until(lambda: {each.member for each in cy.problems()} >= {"ana", "bo"}, "what cy is told")
            assert {each.kind for each in cy.problems() if each.member in ("ana", "bo")} == {"refused"}
            assert "certificate verify failed" in cy.problems()[0].text
            assert "refused ana: certificate verify failed" in caplog.text

    run(test())


def test_a_member_behind_a_router_is_called_at_its_advertised_address(tmp_path: Path) -> None:
    async def test() -> None:
        inside = Room(tmp_path, ("ana",))
        (port,) = free_ports(1)
        async with Relay(f"127.0.0.1:{port}") as router:
            try:
                await inside.start("ana")
                dana = await inside.start("dana", listen=f":{port}", advertise=router.address)
                router.cut()
                cy = await inside.start("cy", listen=None)
                await inside.have_view("ana", "cy", "dana")
                assert {each.name: each.at for each in cy.view}["dana"] == dana.address == router.address
                assert dana.me not in cy.connected
                router.mend()
                await until(lambda: dana.me in cy.connected, "the call through the router")
                await cy.broadcast("from outside")
                await inside.agree({"from outside"}, "ana", "cy", "dana")
            finally:
                await inside.close()

    run(test())


def test_a_member_listening_on_all_interfaces_is_warned_to_name_a_host(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        places: dict[str, Any] = {"founders": ["ana@127.0.0.1:1"], "listen": "0.0.0.0:0", "insecure": True}
        async with antecede.join("room", me="ana", store=tmp_path / "ana", **places):
            assert "the others are told to call 0.0.0.0:" in caplog.text

    run(test())


def test_a_removal_that_could_never_end_is_refused(tmp_path: Path) -> None:
    """It could not be undone: nothing would become stable any more, and no member could leave."""

    async def test() -> None:
        created = Room(tmp_path, ("ana", "bo"))
        try:
            ana, bo = await asyncio.gather(created.start("ana"), created.start("bo"))
            with pytest.raises(LocalError, match=r"bo is not removed: .* 1 would stay for 1"):
                await ana.remove("bo")
            await bo.broadcast("still here")
            await created.agree({"still here"}, "ana", "bo")
            await ana.leave(timeout=PATIENCE)
            del created.groups["ana"]
        finally:
            await created.close()

    run(test())


def test_a_member_that_cannot_leave_yet_is_told_why(tmp_path: Path) -> None:
    async def test() -> None:
        async with room(tmp_path, "ana", "bo", "cy") as group:
            ana = group.groups["ana"]
            await group.stop("bo")
            await group.stop("cy")
            await ana.remove("cy")  # which bo has to agree to
            with pytest.raises(LocalError, match=r"bo is not removed: .* 1 would stay for 2"):
                await ana.remove("bo")
            with pytest.raises(TimeoutError, match="ana has not left: the removal of cy is not complete"):
                await ana.leave(timeout=0.5)
            await ana.broadcast("still here")
            await group.start("bo")
            await until(lambda: not ana.view.removing, "the removal")
            await ana.leave(timeout=PATIENCE)
            del group.groups["ana"]
            await group.have_view("bo")
            assert group.boards["bo"].bodies == ["still here"]

    run(test())


def fail_in_parts() -> Iterator[bytes]:
    yield b"a part"
    raise asyncio.CancelledError


def fail_as_cancelled() -> bytes:
    """As `task.result()` does, of a task of the application that was cancelled."""
    raise asyncio.CancelledError


@pytest.mark.parametrize(
    ("snapshot", "reason"),
    [
        (lambda: bytes([1, 2, 300]), "bytes must be in range"),
        (fail_as_cancelled, "CancelledError"),
        (fail_in_parts, "CancelledError"),
    ],
)
def test_a_snapshot_that_fails_does_not_stop_the_sponsor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, snapshot: Callable[[], Any], reason: str
) -> None:
    monkeypatch.setattr(attempts, "_ATTEMPT_SECONDS", 1.0)

    async def test() -> None:
        async with room(tmp_path, "ana", "bo", "cy") as group:
            ana = group.groups["ana"]
            sponsor = cast("Any", ana)._sponsor
            works, sponsor.snapshot = sponsor.snapshot, snapshot
            starting = asyncio.create_task(group.start("dana"))
            await until(lambda: [each.kind for each in ana.problems()] == ["snapshot"], "the problem")
            (problem,) = ana.problems()
            assert re.search(rf"dana.* is not admitted: .*{reason}", problem.text)
            await group.groups["bo"].broadcast("it goes on")
            await group.groups["ana"].broadcast("here too")
            await group.agree({"it goes on", "here too"}, "ana", "bo", "cy")
            sponsor.snapshot = works
            await starting
            await until(lambda: not ana.problems(), "no problem any more")

    run(test())


@pytest.mark.parametrize(
    ("snapshot", "reason"),
    [
        (lambda: bytes([1, 2, 300]), "ana's snapshot() failed with ValueError; ana's log says more"),
        (lambda: "text", "a snapshot is bytes, or an iterator of bytes, not str"),
        (fail_in_parts, "ana's snapshot() failed with CancelledError; ana's log says more"),
    ],
)
def test_a_newcomer_that_is_declined_is_told_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, snapshot: Callable[[], Any], reason: str
) -> None:
    monkeypatch.setattr(attempts, "_REFUSED_SECONDS", 0.5)

    async def test() -> None:
        async with room(tmp_path, "ana", "bo", "cy") as group:
            ana = group.groups["ana"]
            cast("Any", ana)._sponsor.snapshot = snapshot
            with pytest.raises(InputError) as caught:
                await group.start("dana", contact=f"ana@{ana.address}")
            assert str(caught.value) == f"dana cannot join: ana refuses dana: {reason}"
            assert ana.view.names == ["ana", "bo", "cy"]

    run(test())


def test_a_snapshot_that_does_not_end_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Meanwhile the sponsor's application receives no deliveries."""
    monkeypatch.setattr("antecede.live.changing.sponsor._SLOW_SECONDS", 0.1)
    may_end = asyncio.Event()

    async def hang() -> AsyncIterator[bytes]:
        yield b"[]"
        await may_end.wait()

    async def test() -> None:
        async with room(tmp_path, "ana", "bo", "cy") as group:
            ana = group.groups["ana"]
            cast("Any", ana)._sponsor.snapshot = hang
            group.next_board = PartsBoard()
            starting = asyncio.create_task(group.start("dana"))
            await until(lambda: [each.kind for each in ana.problems()] == ["snapshot"], "the problem")
            assert "delivered nothing" in ana.problems()[0].text
            await group.groups["bo"].broadcast("waits at ana")
            await group.agree({"waits at ana"}, "bo", "cy")
            assert not group.boards["ana"].bodies
            may_end.set()
            await starting
            await group.agree({"waits at ana"}, "ana", "bo", "cy", "dana")
            await until(lambda: not ana.problems(), "no problem any more")

    run(test())


class PartsBoard(Board):
    def load(self, state: Any) -> None:
        super().load(b"".join(state))


def test_a_store_of_a_changing_group_is_not_taken_for_a_damaged_one(tmp_path: Path) -> None:
    async def test() -> None:
        async with antecede.join("room", me="ana", founders=["ana"], store=tmp_path / "ana") as group:
            await group.broadcast("x")

    run(test())
    assert StoreInspection(FileDisk(tmp_path / "ana")).damages == []
    with pytest.raises(InputError, match="belongs to a group whose members come and go, not to one with"):
        run(_join_fixed(tmp_path / "ana"))


def test_a_fixed_list_of_members_cannot_change(tmp_path: Path) -> None:
    async def test() -> None:
        async with antecede.join("room", me="ana", peers=["bo"], store=tmp_path / "ana"):
            pass
        with pytest.raises(InputError, match=r"the group of ana and bo; a fixed list .* cannot change"):
            await antecede.join("room", me="ana", peers=["bo", "cleo"], store=tmp_path / "ana")
        with pytest.raises(InputError, match="with the fixed list ana and bo, not to one whose members come"):
            await antecede.join("room", me="ana", founders=["ana"], store=tmp_path / "ana")

    run(test())


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
        ({"me": "ana", "founders": ["ana"], "advertise": "ana.example:7000"}, "set `listen`, too"),
        (
            {"me": "ana", "founders": ["ana"], "listen": ":7000", "advertise": "0.0.0.0:7000"},
            "is no place to call",
        ),
    ],
)
def test_invalid_changing_group_settings_are_refused(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        antecede.join("room", **options)


def test_a_welcome_arriving_after_the_attempt_timed_out_is_accepted(
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


def test_a_tick_between_the_end_of_a_link_and_of_its_connection_is_harmless(tmp_path: Path) -> None:
    """Found by a trial: presence was about to be sent to partners that had left."""

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
