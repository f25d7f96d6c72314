"""A message counts as processed only if the application acks it, however the application ends."""

from __future__ import annotations

import asyncio
import contextlib
import time
from pathlib import Path
from typing import Any

import pytest
from live_groups import Ear, lines, process, run, together, until

import antecede
from antecede.live.group import Group
from antecede.live.messages import Message, MessageId
from antecede.protocols.base import LocalError


def ana(folder: Path, **options: Any) -> dict[str, Any]:
    """Ana delivers her own messages, so one process is enough."""
    return {"group": "room", "me": "ana", "peers": [], "store": str(folder / "ana.db"), **options}


async def _heard(group: Group, count: int) -> list[tuple[Any, int]]:
    """The next so many bodies, with how many times each was delivered; all acked."""
    heard = []
    async for message in group:
        heard.append((message.body, message.deliveries))
        if len(heard) == count:
            group.ack(message)
            break
    return heard


def test_cancelling_a_handler_and_leaving_does_not_ack(tmp_path: Path) -> None:
    """A clean stop must not lose messages that survive `kill -9`."""

    async def test() -> None:
        async with antecede.join(**ana(tmp_path)) as group:
            await group.broadcast("one")
            await group.broadcast("two")
            is_handling = asyncio.Event()

            async def read() -> None:
                async for _ in group:
                    is_handling.set()
                    await asyncio.sleep(3600)  # the handler awaits something

            reading = asyncio.create_task(read())
            await is_handling.wait()
            reading.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await reading
        async with antecede.join(**ana(tmp_path)) as group:
            assert await _heard(group, 2) == [("one", 2), ("two", 1)]

    run(test())


@pytest.mark.parametrize("stored", [False, True])
def test_a_failing_handler_gets_its_message_redelivered(tmp_path: Path, stored: bool) -> None:
    async def test() -> None:
        settings = ana(tmp_path) if stored else {**ana(tmp_path), "store": None}
        async with antecede.join(**settings) as group:
            for number in range(1, 4):
                await group.broadcast(number)
            handled: list[tuple[int, int]] = []
            failures = 0
            while len(handled) < 3:
                try:
                    async for message in group:
                        if message.body == 2 and failures < 3:
                            failures += 1
                            assert message.deliveries == failures
                            assert message.redelivered == (failures > 1)
                            raise ZeroDivisionError
                        handled.append((message.body, message.deliveries))
                        if len(handled) == 3:
                            break
                except ZeroDivisionError:
                    continue
            assert handled == [(1, 1), (2, 4), (3, 1)]

    run(test())


def test_breaking_out_of_a_loop_does_not_ack_but_ack_does(tmp_path: Path) -> None:
    async def test() -> None:
        async with antecede.join(**ana(tmp_path)) as group:
            for word in ("one", "two"):
                await group.broadcast(word)
            async for message in group:
                assert message.body == "one"
                break
        async with antecede.join(**ana(tmp_path)) as group:
            async for message in group:
                assert (message.body, message.deliveries) == ("one", 2)
                group.ack(message)
                group.ack(message)  # once more is harmless
                break
        group = await antecede.join(**ana(tmp_path))
        async for message in group:
            assert (message.body, message.deliveries) == ("two", 1)
            break
        await group.aclose()
        with pytest.raises(LocalError, match="closed"):
            group.ack(message)
        async with antecede.join(**ana(tmp_path)) as group:
            assert await _heard(group, 1) == [("two", 2)]

    run(test())


def test_delivery_counts_survive_a_restart(tmp_path: Path) -> None:
    async def test() -> None:
        async with process(ana(tmp_path), "take", "1", broadcast=["hard"]) as made:
            await lines(made, 2)
            made.kill()
        for expected in (2, 3):
            async with antecede.join(**ana(tmp_path)) as group:
                assert (await anext(group)).deliveries == expected

    run(test())


def test_consecutive_calls_of_anext_are_one_iteration() -> None:
    async def test() -> None:
        async with together("ana", "bo") as (first, second):
            for number in range(4):
                await first.broadcast(number)
            assert [(await anext(second)).body for _ in range(2)] == [0, 1]
            async for message in second:  # another iteration: nobody has acked the last one
                assert (message.body, message.deliveries) == (1, 2)
                break
            message = await anext(second)
            assert (message.body, message.deliveries) == (1, 3)
            assert [(await anext(second)).body for _ in range(2)] == [2, 3]

    run(test())


def test_a_replaced_iteration_cannot_continue() -> None:
    async def test() -> None:
        async with together("ana", "bo") as (first, second):
            for number in range(3):
                await first.broadcast(number)
            one, other = aiter(second), aiter(second)
            assert (await anext(one)).body == 0
            assert (await anext(other)).body == 0
            with pytest.raises(LocalError, match="two tasks iterate"):
                await anext(one)
            assert (await anext(other)).body == 1

    run(test())


def test_a_nacked_message_is_redelivered_after_its_delay_before_later_messages() -> None:
    async def test() -> None:
        async with together("ana", "bo") as (first, second):
            for number in range(3):
                await first.broadcast(number)
            heard, began = [], 0.0
            acked: Message | None = None
            async for message in second:
                heard.append((message.body, message.deliveries))
                if message.body == 1 and message.deliveries == 1:
                    second.nack(message)
                elif message.body == 1 and message.deliveries == 2:
                    began = time.monotonic()
                    second.nack(message, delay=0.3)
                elif message.body == 1:
                    assert time.monotonic() - began >= 0.29
                    acked = message
                elif message.body == 2:
                    break
            assert heard == [(0, 1), (1, 1), (1, 2), (1, 3), (2, 1)]
            second.ack(message)
            assert acked is not None
            with pytest.raises(LocalError, match="ana:2 is not in flight"):
                second.nack(acked)

    run(test())


def test_a_message_that_is_nacked_may_still_be_acked() -> None:
    async def test() -> None:
        async with together("ana", "bo") as (first, second):
            await first.broadcast("one")
            await first.broadcast("two")
            message = await anext(second)
            second.nack(message, delay=3600)
            waiting = asyncio.create_task(anext(second))
            await asyncio.sleep(0.05)
            assert not waiting.done()
            second.ack(message)
            assert (await waiting).body == "two"

    run(test())


@pytest.mark.parametrize("stored", [False, True])
def test_a_parked_message_does_not_stop_the_others(tmp_path: Path, stored: bool) -> None:
    async def test() -> None:
        settings = ana(tmp_path) if stored else {**ana(tmp_path), "store": None}
        async with antecede.join(**settings) as group:
            ear = Ear(group, listens=False)
            for word in ("fine", "poison", "fine, too"):
                await group.broadcast(word)
            heard = []
            async for message in group:
                heard.append(message.body)
                if message.body == "poison":
                    await group.park(message, reason="it has no \x1b recipe \ud800")
                if message.body == "fine, too":
                    group.ack(message)
                    break
            assert heard == ["fine", "poison", "fine, too"]
            (parked,) = group.parked()
            assert (parked.message.id, parked.message.body) == (MessageId("ana", 2), "poison")
            assert parked.reason == "it has no \x1b recipe ?"
            assert parked.time == pytest.approx(time.time(), abs=60)
            (problem,) = group.problems()
            assert problem.kind == "parked"
            assert "ana:2" in problem.text
            await until(lambda: ear.texts("parked"))
            with pytest.raises(LocalError, match="is not in flight"):
                await group.park(parked.message)
            if not stored:
                await _unpark(group)
        if stored:
            async with antecede.join(**settings) as group:
                assert [each.kind for each in group.problems()] == ["parked"]
                await group.broadcast("dessert")
                assert await _heard(group, 1) == [("dessert", 1)]
                await _unpark(group)
            async with antecede.join(**settings) as group:
                assert not group.parked()
                assert not group.problems()

    async def _unpark(group: Group) -> None:
        removed = await group.unpark(MessageId("ana", 2))
        assert (removed.body, removed.deliveries, removed.own) == ("poison", 2, True)
        assert not group.parked()
        assert not group.problems()
        with pytest.raises(LocalError, match="ana:2 is not parked"):
            await group.unpark(MessageId("ana", 2))

    run(test())


def test_a_cancelled_park_is_not_undone(tmp_path: Path) -> None:
    async def test() -> None:
        async with antecede.join(**ana(tmp_path)) as group:
            await group.broadcast("poison")
            await group.broadcast("fine")
            message = await anext(group)
            parking = asyncio.create_task(group.park(message))
            await asyncio.sleep(0)
            parking.cancel()
            assert (await anext(group)).body == "fine"
            assert [each.message.body for each in group.parked()] == ["poison"]

    run(test())


def test_a_handler_that_always_fails_does_not_stop_the_member() -> None:
    """The handler awaits nothing and always fails at once; connections and other tasks must not starve."""

    async def test() -> None:
        async with together("ana", "bo") as (first, second):
            failures = 0

            async def fail() -> None:
                nonlocal failures
                while True:
                    with contextlib.suppress(ZeroDivisionError):
                        async for message in second:
                            failures += 1
                            if failures % 2:
                                raise ZeroDivisionError
                            second.nack(message)

            failing = asyncio.create_task(fail())
            await first.broadcast("poison")
            await until(lambda: failures > 100)
            ear = Ear(first)
            await second.broadcast("I am still here")
            await ear.has(1)
            failing.cancel()

    run(test())


def test_parked_messages_are_bounded_and_the_next_one_is_not_lost(tmp_path: Path) -> None:
    async def test() -> None:
        settings = {**ana(tmp_path), "limit": 2_000}
        async with antecede.join(**settings) as group:
            for _ in range(3):  # of 700 bytes each
                await group.broadcast(b"poison" * 100)
                await group.park(await anext(group))
            await group.broadcast(b"poison" * 100)
            with pytest.raises(LocalError, match="ana:4 cannot be parked: 3 messages are"):
                await group.park(await anext(group))
            assert (await anext(group)).deliveries == 2
        async with antecede.join(**settings) as group:
            assert len(group.parked()) == 3
            message = await anext(group)
            assert (message.id.seq, message.deliveries) == (4, 3)
            with pytest.raises(LocalError, match="unpark them"):
                await group.park(message)
            await group.unpark(group.parked()[0].message.id)
            again = await anext(group)
            assert (again.id, again.deliveries) == (message.id, 4)
            await group.park(again)
            assert [each.message.id.seq for each in group.parked()] == [2, 3, 4]

    run(test())
