"""State reported to the console: held messages and why, progress, and recent messages."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from live_groups import Ear, run, together, until
from one_way import OneWay
from rooms import room
from test_metrics import ask

import antecede
from antecede.errors import InputError
from antecede.live.changing.group import DynamicGroup
from antecede.live.group import Group
from antecede.live.operations import control
from antecede.live.operations.control import ControlRequest
from antecede.live.operations.recent import MAX_CAUSES, MAX_MESSAGES, RecentMessages
from antecede.live.operations.state import MemberReport, messages, state


def held_at(report: MemberReport) -> list[tuple[str, str, list[str]]]:
    """Held messages, their missing causes, and the members that may have those."""
    return [(each.id, str(cause.cause), cause.holders) for cause in report.missing for each in cause.held]


async def hold_at_cy(ana: Group, bo: Group, cy: Group, cut: OneWay) -> None:
    """ana's message reaches only bo, whose answer cy must hold; bo does not receive cy's repair requests."""
    cut.stall()
    first = await ana.broadcast("cause")
    async for message in bo:
        if message.id == first:
            break
    await bo.broadcast("effect")
    await until(lambda: cy.held, "a held message")


@pytest.mark.parametrize("changes", [False, True])
def test_a_held_message_is_reported_with_its_cause_and_the_cause_s_holders(
    tmp_path: Path, changes: bool
) -> None:
    async def test() -> None:
        async with OneWay.three(tmp_path, changes) as (ana, bo, cy, cut):
            assert isinstance(cy, DynamicGroup) == changes
            ear = Ear(cy)
            await hold_at_cy(ana, bo, cy, cut)
            if not changes:  # in the others, members learn where others are, and soon go round the relay
                await until(lambda: "bo" in held_at(state(cy))[0][2], "bo's report")
            report = state(cy)
            ((message, cause, holders),) = held_at(report)
            assert message.startswith("bo:")
            assert cause.startswith("ana:")
            assert set(holders) == ({"ana"} if changes else {"ana", "bo"})
            assert report.held == report.missing[0].count == 1
            since = report.missing[0].held[0].since
            assert report.opened < since <= report.time
            progress = {each.origin: each for each in report.progress}
            assert progress["ana"].received == progress["ana"].delivered == int(cause[4:]) - 1
            assert progress["bo"].received == int(message[3:]) > progress["bo"].delivered
            assert messages(bo).messages == []  # this is the first query
            cut.mend()
            await until(lambda: ear.bodies() == ["cause", "effect"])
            assert state(cy).missing == []
            await ear.stop()

    run(test())


def test_reported_counts_and_messages_match_the_application(tmp_path: Path) -> None:
    async def test() -> None:
        async with together("ana", "bo", store=None) as (ana, bo):
            assert state(bo).messages == state(ana).messages == []
            ears = [Ear(ana), Ear(bo)]
            await until(lambda: ana.connected and bo.connected)
            for number in range(5):
                await ana.broadcast({"secret": number})
                await bo.broadcast("x")
            await until(lambda: all(len(ear.messages + ear.own) == 10 for ear in ears))
            for group, ear in zip((ana, bo), ears, strict=True):
                report = state(group)
                heard = {str(each.id): each for each in [*ear.messages, *ear.own]}
                told = {each.id: each.causes for each in report.messages}
                assert told == {name: [str(cause) for cause in each.causes] for name, each in heard.items()}
                assert (report.broadcast, report.delivered) == (5, 10)
                assert {each.origin: each.delivered for each in report.progress} == group.delivered()
                assert b"secret" not in msgspec.json.encode(report)
            await until(lambda: [each.stable for each in state(ana).progress] == [5, 5])
            assert state(ana).behind == {"bo": 0}
            assert "joined" in [each.kind for each in state(ana).notices]
            for ear in ears:
                await ear.stop()

    run(test())


def test_own_messages_are_reported_even_if_not_delivered_to_their_author() -> None:
    async def test() -> None:
        async with together("ana", "bo", own=False) as (ana, _):
            assert messages(ana).messages == []
            for text in ("one", "two"):
                await ana.broadcast(text)
            assert [each.causes for each in messages(ana).messages] == [[], ["ana:1"]]

    run(test())


def test_recent_messages_are_bounded_and_dropped_when_nobody_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    recent, causes = RecentMessages(), [antecede.MessageId("bo", 1)] * 100
    for number in range(2 * MAX_MESSAGES):
        assert recent.add(antecede.MessageId("ana", number), ())
    assert len(recent.ask(10 * MAX_MESSAGES)) == MAX_MESSAGES
    assert [each.id for each in recent.ask(2)] == ["ana:1998", "ana:1999"]
    for number in range(MAX_MESSAGES):
        recent.add(antecede.MessageId("cy", number), causes)
    assert sum(len(each.causes) for each in recent.ask(MAX_MESSAGES)) == MAX_CAUSES
    monkeypatch.setattr("antecede.live.operations.recent._PATIENCE", -1.0)
    assert not recent.add(antecede.MessageId("ana", 1), ())

    async def test() -> None:
        async with antecede.join("room", me="ana", peers=["bo"]) as ana:
            messages(ana)
            await ana.broadcast("x")
            await anext(ana)
            assert ana._observers.recent is None

    run(test())


def test_view_changes_are_reported_to_later_observers(tmp_path: Path) -> None:
    async def test() -> None:
        async with room(tmp_path, "ana", "bo", "cy") as created:
            await created.start("dana")
            await created.have_view("ana", "bo", "cy", "dana")
            await created.groups["dana"].leave()
            await until(lambda: "left" in [each.kind for each in state(created.groups["ana"]).changes])
            told = state(created.groups["ana"]).changes
            (joined,) = [each for each in told if each.kind == "joined"]
            assert joined.about.startswith("dana~")
            assert str(joined.message).startswith(f"{joined.by}:")

    run(test())


@pytest.mark.parametrize("changes", [False, True])
def test_the_owner_of_a_store_may_ask_without_a_token(tmp_path: Path, changes: bool) -> None:
    async def test() -> None:
        who: dict[str, Any] = {"founders": ["ana"]} if changes else {"peers": ["bo"]}
        async with antecede.join("room", me="ana", store=tmp_path / "ana", **who) as ana:
            report = await control.ask(str(tmp_path / "ana"), ControlRequest("state"))
            assert (report["me"], report["changes_members"]) == ("ana", changes)
            await ana.broadcast("x")
            await anext(ana)
            told = await control.ask(str(tmp_path / "ana"), ControlRequest("messages"))
            assert [each["id"].partition(":")[0] for each in told["messages"]] == ["ana"]
        with pytest.raises(InputError, match="no member answers"):
            await control.ask(str(tmp_path / "ana"), ControlRequest("state"))

    run(test())


def test_other_users_need_the_token(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("correct-horse-battery-staple\n")

    def request(path: str, header: str = "") -> bytes:
        return f"GET {path} HTTP/1.1\r\nHost: x\r\n{header}\r\n".encode()

    async def test() -> None:
        async with (
            antecede.join("room", me="ana", peers=["bo"], metrics=":0", console_token=token) as ana,
            antecede.join("room", me="cy", peers=["bo"], metrics=":0") as without,
        ):
            assert ana._metrics is not None
            assert without._metrics is not None
            port = int(ana._metrics.address.rpartition(":")[2])
            right = f"authorization: Bearer {token.read_text().strip()}\r\n"
            for path in ("/state", "/messages"):
                assert (await ask(port, request(path)))[0] == 403
                assert (await ask(port, request(path, "Authorization: Bearer wrong\r\n")))[0] == 403
                code, body = await ask(port, request(path, right))
                assert (code, json.loads(body)["me"]) == (200, "ana")
                other = int(without._metrics.address.rpartition(":")[2])
                assert (await ask(other, request(path, right)))[0] == 404
            assert (await ask(port, request("/health")))[0] == 200

    run(test())
    token.write_text("short")
    with pytest.raises(InputError, match="at least 20 characters"):
        run(_join(metrics=":0", console_token=token))
    with pytest.raises(InputError, match="asks at `metrics`"):
        run(_join(console_token=token))


async def _join(**options: Any) -> None:
    await (await antecede.join("room", me="ana", peers=["bo"], **options)).aclose()
