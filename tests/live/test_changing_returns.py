"""Members that come back: removed wrongly, or without their store."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest
from live_groups import Ear, run, until
from rooms import room
from stores import SOCKET

from antecede.live.changing.contact import Contact
from antecede.live.changing.group import DynamicGroup
from antecede.live.group import Group
from antecede.protocols.base import LocalError


def test_a_wrongly_removed_member_returns_with_its_accepted_messages(tmp_path: Path) -> None:
    async def test() -> None:
        async with room(tmp_path, "ana", "bo", "cy") as group:
            await group.groups["ana"].broadcast("before")
            await group.agree({"before"}, "ana", "bo", "cy")
            for name in ("ana", "bo"):
                await group.stop(name)
            await group.groups["cy"].broadcast("nobody else has this")
            await group.stop("cy")
            for name in ("ana", "bo"):
                await group.start(name)
            await group.groups["ana"].remove("cy")
            await group.have_view("ana", "bo")
            cy = await group.start("cy")
            await until(lambda: cy.me.startswith("cy~"), "the return")
            await group.have_view("ana", "bo", "cy")
            await until(lambda: cy.state == "open", "the end of its return")
            boards = [board.bodies for board in group.boards.values()]
            await until(lambda: all("nobody else has this" in each for each in boards), "what it had")
            await cy.broadcast("I am back")
            await group.agree_on_last("I am back")
            assert all(each.bodies.count("nobody else has this") == 1 for each in group.boards.values())
            kinds = group.kinds("bo", "cy")
            assert next(each for each in kinds if each not in ("suspected", "trusted")) == "removing"
            assert "returned" in kinds

    run(test())


def test_a_removal_while_a_message_is_in_flight_lets_its_ack_pass(tmp_path: Path) -> None:
    """The removed member's application is processing a message and broadcasts meanwhile."""

    async def test() -> None:
        async with room(tmp_path, "ana", "bo", "cy") as group:
            dana = await group.start("dana", reads=False)
            await group.have_view("ana", "bo", "cy", "dana")
            await group.groups["ana"].broadcast("take your time")
            message = await anext(dana)
            await group.groups["ana"].remove("dana")
            await until(lambda: dana.state == "returning", "that it was removed")
            late = asyncio.create_task(dana.broadcast("after all"))
            dana.ack(message)
            await late
            assert group.boards["dana"].restored == ["take your time"]
            await group.have_view("ana", "bo", "cy", "dana")
            await until(lambda: "after all" in group.boards["bo"].bodies, "its message")
            problems = [each.kind for each in dana.problems()]
            assert "returning" not in problems

    run(test())


def test_a_handler_broadcasting_while_its_member_is_removed_gets_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The return waits for the handler, so the handler must not wait for the return."""
    monkeypatch.setattr("antecede.live.changing.group._HANDLER_SECONDS", 0.2)

    async def test() -> None:
        async with room(tmp_path, "ana", "bo", "cy") as group:
            dana = await group.start("dana", reads=False)
            await group.have_view("ana", "bo", "cy", "dana")
            await group.groups["ana"].broadcast("answer me")
            message = await anext(dana)
            await group.groups["ana"].remove("dana")
            await until(lambda: dana.state == "returning", "that it was removed")
            with pytest.raises(LocalError, match="nothing was broadcast"):
                await dana.broadcast("an answer")
            dana.ack(message)
            await dana.broadcast("an answer")
            await until(lambda: "an answer" in group.boards["bo"].bodies, "its message")

    run(test())


def test_a_returning_member_asks_present_members_first(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its settings also name a member that has gone."""
    caplog.set_level("INFO", "antecede")

    async def test() -> None:
        async with room(tmp_path, "ana", "bo", "cy", "di") as group:
            dana = await group.start("dana")
            await group.have_view("ana", "bo", "cy", "di", "dana")
            await group.groups["ana"].leave()
            del group.groups["ana"]
            await group.have_view("bo", "cy", "di", "dana")
            await until(lambda: len(dana.connected) == 3, "its connections")
            before = dana.me
            await group.groups["bo"].remove("dana")
            await until(lambda: dana.me != before and dana.state == "open", "its return")
            assert not [each for each in caplog.messages if "not admitted by" in each]

    run(test())


def test_another_contact_is_asked_when_the_first_one_leaves(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its application was processing a message, so it could not admit anybody yet."""

    async def test() -> None:
        async with room(tmp_path, "ana", "bo", "cy") as group:
            eve = await group.start("eve", reads=False)
            await group.have_view("ana", "bo", "cy", "eve")
            await group.groups["bo"].broadcast("take your time")
            await anext(eve)
            contact = [f"eve@{eve.address}", group.founders[1]]
            joining = asyncio.create_task(group.start("dana", contact=contact))
            await until(lambda: eve._core.join_requests, "its request")
            await group.stop("eve")
            await joining
            assert "not admitted by eve: the connection to it has ended" in caplog.messages

    run(test())


@pytest.mark.parametrize("name", ["cy", "dana"])
def test_a_member_with_a_lost_store_gets_a_snapshot_and_its_old_incarnation_is_removed(
    tmp_path: Path, name: str
) -> None:
    """For a founder and for a member that joined later."""

    async def test() -> None:
        async with room(tmp_path, "ana", "bo", "cy") as group:
            await group.start("dana")
            everyone = ("ana", "bo", "cy", "dana")
            await group.have_view(*everyone)
            await group.groups[name].broadcast("before the disk broke")
            await group.agree({"before the disk broke"}, *everyone)
            before = group.groups[name].me
            await group.stop(name)
            shutil.rmtree(tmp_path / name)
            back = await group.start(name)
            assert group.boards[name].restored == ["before the disk broke"]
            assert back.me not in (before, name)
            await group.have_view(*everyone)
            await back.broadcast("with a new disk")
            await group.agree({"before the disk broke", "with a new disk"}, *everyone)
            await until(lambda: group.kinds("ana", name)[-1:] == ["removed"])
            # Others may have dialled the old incarnation before they know of the new one, and several may
            # remove it.
            kinds = group.kinds("ana", name)
            assert set(kinds[kinds.index("removing") :]) <= {"removing", "returned", "removed"}
            assert kinds.count("returned") == kinds.count("removed") == 1
            # It dials its former incarnation and reaches itself: that is not another process.
            assert all(not each.problems() for each in group.groups.values())

    run(test())


def test_a_second_process_on_a_copied_store_displaces_the_first_which_is_told_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("antecede.live.changing.group._REFUSED_SECONDS", 1.0)

    def refusals(group: Group) -> list[str]:
        return [f"{each.member}: {each.text}" for each in group.problems() if each.kind == "refused"]

    async def test() -> None:
        async with room(tmp_path, "ana", "bo", "cy") as group:
            first, ana = group.groups["bo"], group.groups["ana"]
            await first.broadcast("the same")
            await group.agree({"the same"}, "ana", "bo", "cy")
            # A report acknowledged after copying would be known to the first process only, making the copy
            # older.
            await group.come_to_rest()
            shutil.copytree(tmp_path / "bo", tmp_path / "copy", ignore=SOCKET)
            second = await group.start("bo", store=tmp_path / "copy", listen=":0")
            await until(lambda: len(refusals(first)) == 2, "that both tell it")
            text = "bo was started again on this store or a copy of it, and this process still runs"
            assert [each.partition("; ")[0].partition(": its")[0] for each in sorted(refusals(first))] == [
                f"ana: ana refuses bo: {text}",
                f"cy: cy refuses bo: {text}",
            ]
            assert set(second.connected) == {"ana", "cy"}
            await first.aclose()
            assert not refusals(ana)
            # Messages the first process accepted meanwhile are only in its own store.
            again = await group.start("bo", listen=":0")
            await until(lambda: refusals(again), "that an older store is refused")
            assert "bo: bo has an older store than before: its messages after bo:1 exist" in refusals(ana)[0]
            await again.aclose()
            await until(lambda: not refusals(ana), "that nobody tries any more")
            group.groups["bo"] = second

    run(test())


def test_a_refused_member_is_no_longer_a_problem_once_it_is_removed(tmp_path: Path) -> None:
    async def test() -> None:
        async with room(tmp_path, "ana", "bo", "cy") as group:
            shutil.copytree(tmp_path / "bo", tmp_path / "copy", ignore=SOCKET)
            await group.groups["bo"].broadcast("later")
            await group.agree({"later"}, "ana", "bo", "cy")
            await group.stop("bo")
            older = await group.start("bo", store=tmp_path / "copy")
            ana = group.groups["ana"]
            await until(lambda: any(each.kind == "refused" for each in ana.problems()), "the refusal")
            await older.aclose()
            await ana.remove("bo")
            await until(lambda: not ana.problems(), "that nothing is left to be done")

    run(test())


def test_a_second_process_with_the_name_of_a_present_member_is_not_admitted(tmp_path: Path) -> None:
    async def test() -> None:
        async with room(tmp_path, "ana", "bo", "cy") as group:
            dana = await group.start("dana")
            await group.have_view("ana", "bo", "cy", "dana")
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(1.5):
                    await group.start("dana", store=tmp_path / "copy")
            assert dana.me in group.groups["ana"].view
            assert len(group.groups["ana"].view) == 4
            refused = [each for each in group.groups["ana"].problems() if each.kind == "refused"]
            assert refused[0].text == "dana is a member already, and is connected"

    run(test())


def test_the_first_contact_that_answers_admits(tmp_path: Path) -> None:
    async def test() -> None:
        async with room(tmp_path, "ana", "bo", "cy") as group:
            await group.stop("ana")
            options: dict[str, Any] = {"contact": [group.founders[0], "bo@127.0.0.1:9", group.founders[1]]}
            dana = await group.start("dana", **options)
            await until(lambda: {"bo", "cy", "dana"} <= set(dana.view.names), "the view")

    run(test())


def test_a_group_begins_when_most_founders_are_there(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "antecede.live")

    async def test() -> None:
        async with room(tmp_path) as group:
            starting = asyncio.create_task(group.start("ana"))
            await until(lambda: "waiting for bo, cy" in caplog.text, "that it waits")
            await asyncio.sleep(1)  # long enough for three requests
            assert caplog.text.count("bo does not answer") == 1
            assert not starting.done()
            await asyncio.gather(starting, group.start("bo"))
            await group.groups["bo"].broadcast("two of three")
            await group.start("cy")
            await group.agree({"two of three"}, "ana", "bo", "cy")
            assert group.groups["cy"].me == "cy"

    run(test())


def test_a_newcomer_whose_sponsor_dies_before_its_welcome_arrives_is_admitted_by_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The admission reaches the others, who are connected to the newcomer then: it is not another process of
    its name."""
    monkeypatch.setattr("antecede.live.changing.attempts._ATTEMPT_SECONDS", 1.0)

    async def test() -> None:
        async with room(tmp_path, "ana", "bo", "cy") as group:
            ana, bo = group.groups["ana"], group.groups["bo"]

            def snapshot() -> bytes:
                ana._connections.cut_off(["dana"])  # what ana sends from now on does not arrive
                return b"[]"

            ana._sponsor.snapshot = snapshot  # type: ignore[attr-defined]
            starting = asyncio.create_task(group.start("dana", contact=group.founders[:2]))
            await until(lambda: "dana" in bo.view.names, "the admission")
            ghost = next(each.label for each in bo.view if each.name == "dana")
            await group.stop("ana")
            async with asyncio.timeout(20):
                dana = await starting
            assert dana.me != ghost
            await until(lambda: bo.view.names == ["ana", "bo", "cy", "dana"], "one of them")
            assert dana.me in bo.view
            await dana.broadcast("at last")
            await until(lambda: "at last" in group.boards["cy"].bodies, "its message")

    run(test())


def test_a_returning_member_s_new_messages_follow_those_it_brings_back(tmp_path: Path) -> None:
    """Its removal is not complete while dana is away, so nobody knows yet what is lost."""

    async def test() -> None:
        async with room(tmp_path, "ana", "bo", "cy") as group:
            await group.start("dana")
            await group.have_view("ana", "bo", "cy", "dana")
            for name in ("ana", "bo", "dana"):
                await group.stop(name)
            await group.groups["cy"].broadcast("first")
            await group.stop("cy")
            for name in ("ana", "bo"):
                await group.start(name)
            await group.groups["ana"].remove("cy")
            cy = await group.start("cy")
            await until(lambda: cy.me.startswith("cy~"), "the return")
            later = asyncio.create_task(cy.broadcast("second"))
            await until(
                lambda: later.done() or "full" in [each.kind for each in cy.problems()], "that it waits"
            )
            await group.start("dana")
            await later
            await group.agree_on_last("second")
            await until(lambda: "first" in group.boards["dana"].bodies, "what was brought back")
            for name, board in group.boards.items():
                bodies = [each for each in board.bodies if each in ("first", "second")]
                assert bodies == ["first", "second"], name

    run(test())


def test_a_member_on_an_older_copy_of_its_store_is_refused(tmp_path: Path) -> None:
    async def test() -> None:
        async with room(tmp_path, "ana", "bo", "cy") as group:
            await group.stop("cy")
            shutil.copytree(tmp_path / "cy", tmp_path / "yesterday")
            await group.start("cy")
            await group.groups["cy"].broadcast("today")
            await until(lambda: "today" in group.boards["ana"].bodies, "the message")
            await group.groups["cy"].drain()
            await group.stop("cy")
            shutil.rmtree(tmp_path / "cy")
            (tmp_path / "yesterday").rename(tmp_path / "cy")
            await group.start("cy")
            ana = group.groups["ana"]
            await until(lambda: any(each.kind == "refused" for each in ana.problems()), "the refusal")
            assert "cy" not in ana.connected

    run(test())


def test_a_connection_whose_link_was_just_forgotten_is_ignored(tmp_path: Path) -> None:
    """The connection ends a moment later. Meanwhile a returned member asks about its former incarnation."""

    async def test() -> None:
        async with room(tmp_path, "ana", "bo", "cy") as group:
            ana = group.groups["ana"]
            assert isinstance(ana, DynamicGroup)
            await until(lambda: ana.view.members["bo"].connected, "bo is connected")
            (link,) = [link for link, (_, to) in ana._core.links.items() if to == Contact("bo").address]
            ends = ana._core.links.pop(link)
            assert not ana._connections.is_connected(ends[1])
            ana._core.links[link] = ends
            assert ana._connections.is_connected(ends[1])

    run(test())


def test_a_member_that_returns_without_a_restore_hook_reports_what_it_does_not_get(tmp_path: Path) -> None:
    async def test() -> None:
        async with room(tmp_path, "ana", "bo", "cy") as group:
            dana = await group.start("dana", restore=None)
            await group.have_view("ana", "bo", "cy", "dana")
            events = Ear(dana, listens=False)
            before = dana.me
            await group.groups["ana"].remove("dana")
            await until(lambda: dana.me != before and dana.state == "open", "its return")
            (gap,) = events.texts("gap")
            assert gap.startswith("dana starts again from ")
            assert gap.endswith("pass `restore` to receive them as state")
            await events.stop()

    run(test())


def test_a_member_that_returns_to_members_without_states_reports_it(tmp_path: Path) -> None:
    async def test() -> None:
        async with room(tmp_path, "ana", "bo", "cy", snapshot=None) as group:
            dana = await group.start("dana")
            await group.have_view("ana", "bo", "cy", "dana")
            events = Ear(dana, listens=False)
            before = dana.me
            await group.groups["ana"].remove("dana")
            await until(lambda: dana.me != before and dana.state == "open", "its return")
            (gap,) = events.texts("gap")
            assert "has no state to give: messages that others delivered meanwhile" in gap
            await events.stop()

    run(test())
