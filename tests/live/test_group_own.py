"""A member's own messages are delivered to it like any others, so applying deliveries is enough."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest
from live_groups import Ear, lines, process, run, together, until

import antecede
from antecede.live.group import Group
from antecede.live.messages import MessageId

STORED = pytest.mark.parametrize("stored", [False, True])


def alone(folder: Path, **options: Any) -> dict[str, Any]:
    return {"group": "room", "me": "ana", "peers": [], "store": str(folder / "ana.db"), **options}


@STORED
def test_own_messages_are_delivered_after_their_causes_and_before_replies(
    tmp_path: Path, stored: bool
) -> None:
    async def test() -> None:
        async with (
            antecede.join(
                "room", me="bo", listen=":0", peers=["ana"], store=tmp_path / "bo" if stored else None
            ) as bo,
            antecede.join(
                "room", me="ana", peers=[f"bo@{bo.address}"], store=tmp_path / "ana" if stored else None
            ) as ana,
        ):
            await ana.broadcast("shall we?")
            await ana.broadcast({"at": "eight"})
            heard = [await anext(ana), await anext(ana)]
            assert [(each.body, each.own, each.redelivered) for each in heard] == [
                ("shall we?", True, False),
                ({"at": "eight"}, True, False),
            ]
            assert [each.causes for each in heard] == [(), (MessageId("ana", 1),)]
            for _ in range(2):
                message = await anext(bo)
                assert not message.own
            await bo.broadcast("yes!")
            reply = await anext(ana)
            assert (reply.body, reply.own, reply.causes) == ("yes!", False, (MessageId("ana", 2),))
            await ana.broadcast("good")
            last = await anext(ana)
            assert (last.body, last.own, last.causes) == ("good", True, (MessageId("bo", 1),))
            at_bo = [(await anext(bo)).causes for _ in range(2)]
            assert at_bo == [(MessageId("ana", 2),), (MessageId("bo", 1),)]

    run(test())


@STORED
def test_a_message_is_delivered_to_its_author_once_it_is_durable_not_before(
    tmp_path: Path, stored: bool
) -> None:
    async def test() -> None:
        settings = alone(tmp_path) if stored else {**alone(tmp_path), "store": None}
        async with antecede.join(**settings) as ana:
            ear = Ear(ana)
            sent = await asyncio.gather(*(ana.broadcast(number) for number in range(200)))
            await until(lambda: len(ear.own) == 200)
            assert [each.id for each in ear.own] == sorted(sent)
            assert [each.body for each in ear.own] == list(range(200))

    run(test())


def test_own_messages_can_be_switched_off() -> None:
    async def test() -> None:
        async with together("ana", "bo", own=False) as (ana, bo):
            await ana.broadcast("to others")
            await anext(bo)
            await bo.broadcast("to ana")
            message = await anext(ana)
            assert (message.body, message.own) == ("to ana", False)

    run(test())


def test_broadcasts_of_a_killed_process_are_delivered_to_its_successor(tmp_path: Path) -> None:
    """Also if it was killed after the commit but before `broadcast` returned: nothing else would report
    it."""

    async def test() -> None:
        seen = 0
        for delay in (0.0, 0.003, 0.01):
            words = [{"number": number} for number in range(5000)]
            async with process(alone(tmp_path), broadcast=words) as made:
                await lines(made, 20)
                await asyncio.sleep(delay)
                made.kill()
            async with antecede.join(**alone(tmp_path)) as ana:
                ear = Ear(ana)
                accepted = ana.delivered()["ana"]
                await until(lambda ear=ear, more=accepted - seen: len(ear.own) >= more)  # type: ignore[misc]
                assert [each.seq for each in ear.own] == list(range(seen + 1, accepted + 1))
                assert not any(each.redelivered for each in ear.own)
                ana.ack(ear.own[-1])
                seen = accepted

    run(test())


def test_an_own_message_in_flight_is_redelivered(tmp_path: Path) -> None:
    async def test() -> None:
        async with process(alone(tmp_path), "take", "2", broadcast=["a", "b", "c"]) as made:
            assert (await lines(made, 5))[3:] == ["took ana:1 first", "took ana:2 first"]
            made.kill()
        async with antecede.join(**alone(tmp_path)) as ana:
            heard = [await anext(ana), await anext(ana)]
            assert [(each.body, each.own, each.deliveries) for each in heard] == [
                ("b", True, 2),
                ("c", True, 1),
            ]

    run(test())


def test_the_setting_may_change_between_runs(tmp_path: Path) -> None:
    async def test() -> None:
        for own, word in ((True, "one"), (False, "two"), (True, "three")):
            async with antecede.join(**alone(tmp_path, own=own)) as ana:
                await ana.broadcast(word)
        async with antecede.join(**alone(tmp_path)) as ana:
            assert [(await anext(ana)).body for _ in range(2)] == ["one", "three"]

    run(test())


@STORED
def test_a_member_that_only_broadcasts_is_warned_that_it_does_not_consume(
    tmp_path: Path, stored: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        settings = (
            alone(tmp_path, limit=10_000) if stored else {**alone(tmp_path, limit=10_000), "store": None}
        )
        async with antecede.join(**settings) as ana:
            ear = Ear(ana, listens=False)
            talking = asyncio.gather(*(ana.broadcast("x" * 1000) for _ in range(15)))
            also_talking = [asyncio.create_task(ana.broadcast("y" * 1000)) for _ in range(5)]
            await until(lambda: ear.texts("full"))
            (problem,) = ana.problems()
            assert (problem.kind, problem.member) == ("full", "ana")
            assert "own application" in problem.text
            assert "own=False" in problem.text
            with pytest.raises(TimeoutError):
                await ana.broadcast("never", timeout=0.05)
            listening = Ear(ana)
            await talking
            await asyncio.gather(*also_talking)
            await until(lambda: len(listening.own) == 20)
            await until(lambda: ear.texts("room"))
            assert ana.problems() == []
            assert "never" not in [each.body for each in listening.own]
        warnings = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
        assert [text.split(":")[0] for text in warnings] == ["full", "over"]
        assert len(ear.texts("full")) == len(ear.texts("room")) == 1

    run(test())


def test_without_own_messages_only_the_others_limit_a_member_s_broadcasts(tmp_path: Path) -> None:
    async def test() -> None:
        async with antecede.join(**alone(tmp_path, limit=1_000, own=False)) as ana:
            for _ in range(30):
                await ana.broadcast("x" * 1000, timeout=5)

    run(test())


@STORED
def test_a_member_broadcasting_at_full_speed_still_delivers_others_messages(
    tmp_path: Path, stored: bool
) -> None:
    """Each own message is delivered after a write; others' messages must not wait for the last of them."""
    count, tasks = 6_000, 256

    async def talk(group: Group) -> None:
        numbers = iter(range(count))

        async def one_after_another() -> None:
            for number in numbers:
                await group.broadcast(number.to_bytes(8) + bytes(1_000))

        await asyncio.gather(*(one_after_another() for _ in range(tasks)))

    async def heard(group: Group) -> list[bool]:
        """For each delivered message, whether it is the member's own."""
        found: list[bool] = []
        async for message in group:
            found.append(message.own)
            if len(found) == 2 * count:
                break
        return found

    async def test() -> None:
        stores = [tmp_path / name if stored else None for name in ("ana", "bo")]
        async with (
            antecede.join("room", me="bo", listen=":0", peers=["ana"], store=stores[1]) as bo,
            antecede.join("room", me="ana", peers=[f"bo@{bo.address}"], store=stores[0]) as ana,
        ):
            await until(lambda: ana.connected and bo.connected)
            at_ana, at_bo, *_ = await asyncio.gather(heard(ana), heard(bo), talk(ana), talk(bo))
            for own in (at_ana, at_bo):
                last = len(own) - 1 - own[::-1].index(True)
                assert own[:last].count(False) > count // 4

    run(test())
