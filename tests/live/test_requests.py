"""A request has a reply, in causal order with everything else, or an error that says why not."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from live_groups import PATIENCE, run, together, until
from phone_rooms import phone_room
from rooms import room
from test_headers import FIXED

from antecede.errors import InputError
from antecede.live.changing.protocols import LIVE
from antecede.live.group import Group
from antecede.live.messages import Message
from antecede.live.requests import RequestError
from antecede.protocols.base import LocalError

Handler = Callable[[Group, Message], Awaitable[None]]


async def answer(group: Group, message: Message) -> None:
    if message.is_request:
        await message.reply(f"{message.body}!", headers={"by": group.settings.me}, content_type="text/plain")


class Applications:
    """Applications: a task for each group that reads it and answers requests."""

    def __init__(self) -> None:
        self.given: dict[str, list[Message]] = {}
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, group: Group, handler: Handler = answer) -> list[Message]:
        given = self.given[group.settings.me] = []
        self._tasks.append(asyncio.create_task(self._read(group, given, handler)))
        return given

    async def _read(self, group: Group, given: list[Message], handler: Handler) -> None:
        async for message in group:
            given.append(message)
            await handler(group, message)

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@contextlib.asynccontextmanager
async def applications(*groups: Group) -> AsyncIterator[Applications]:
    created = Applications()
    for group in groups:
        created.start(group)
    try:
        yield created
    finally:
        await created.stop()


async def ask(group: Group, who: str) -> None:
    reply = await group.request(who, "well?", PATIENCE)
    assert (reply.body, reply.headers, reply.content_type) == ("well?!", {"by": who}, "text/plain")
    request = reply.reply_to
    assert request is not None
    assert request.origin == group.me
    others = {each for each in reply.causes if each.origin != reply.origin}
    assert not others or request in others  # besides, perhaps, what has arrived meanwhile


@pytest.mark.parametrize("protocol", FIXED)
def test_requests_are_answered_with_every_fixed_list_protocol(protocol: str) -> None:
    async def test() -> None:
        async with (
            together("ana", "bo", "cleo", protocol=protocol) as (ana, bo, cleo),
            applications(ana, bo, cleo) as given,
        ):
            await ask(ana, "cleo")
            await ask(cleo, "bo")
            await ask(bo, "bo")  # a request to itself: own messages are delivered like any others
            assert not ana._requests.pending
            # All members deliver requests and replies; only the requested member is expected to reply.
            await until(lambda: all(len(each) == 6 for each in given.given.values()))

    run(test())


@pytest.mark.parametrize("protocol", sorted(LIVE))
def test_requests_are_answered_with_every_changing_group_protocol(tmp_path: Path, protocol: str) -> None:
    async def test() -> None:
        options: dict[str, Any] = {"protocol": protocol, "store": None, "reads": False}
        async with (
            room(tmp_path, "ana", "bo", "cy", **options) as group,
            applications(*group.groups.values()) as given,
        ):
            dana = await group.start("dana", **options)
            given.start(dana)
            await ask(group.groups["bo"], "ana")
            await ask(dana, "cy")
            await until(lambda: "dana" in group.groups["cy"].view)
            await ask(group.groups["cy"], "dana")

    run(test())


def test_phones_send_and_answer_requests(tmp_path: Path) -> None:
    async def test() -> None:
        async with (
            phone_room(tmp_path, reads=False) as group,
            applications(*group.groups.values()) as given,
        ):
            pia = await group.start_phone("pia", "ana", reads=False)
            tom = await group.start_phone("tom", "bo", reads=False)
            given.start(pia)
            given.start(tom)
            cy = group.groups["cy"]
            await until(lambda: all({"pia", "tom", "cy"} <= each.present for each in (cy, pia, tom)))
            await ask(pia, "cy")
            await ask(cy, "tom")
            await ask(tom, "pia")
            with pytest.raises(RequestError, match="eve is not known to be in the group"):
                await pia.request("eve", "there?")

    run(test())


def test_a_reply_is_returned_after_its_causes_are_delivered() -> None:
    """bo's reply depends on what cleo said to it, which ana has not been given when it asks."""

    async def test() -> None:
        async with together("ana", "bo", "cleo") as (ana, bo, cleo), applications(bo, cleo) as given:
            await cleo.broadcast("the price is 5")
            await until(lambda: given.given["bo"])
            seen: list[Any] = []

            async def slowly(group: Group, message: Message) -> None:
                await asyncio.sleep(0.05)
                seen.append(message.body)

            given.start(ana, slowly)
            reply = await ana.request("bo", "the price?", PATIENCE)
            assert reply.body == "the price?!"
            assert "the price is 5" in seen
            # What is broadcast now depends on it.
            await ana.broadcast("thank you")
            await until(lambda: "thank you" in [each.body for each in given.given["cleo"]])
            last = given.given["cleo"][-1]
            assert (last.body, last.causes) == ("thank you", (reply.id,))

    run(test())


def test_many_requests_at_once_each_have_their_own_reply() -> None:
    async def test() -> None:
        async with together("ana", "bo", "cleo") as groups, applications(*groups):
            ana = groups[0]
            asked = [("bo", "cleo")[number % 2] for number in range(100)]
            replies = await asyncio.gather(
                *(ana.request(who, f"{number}", PATIENCE) for number, who in enumerate(asked))
            )
            assert [each.body for each in replies] == [f"{number}!" for number in range(100)]
            assert [each.origin for each in replies] == asked

    run(test())


def test_a_late_reply_is_a_message_like_any_other() -> None:
    async def test() -> None:
        async with together("ana", "bo") as (ana, bo), applications(ana) as given:
            with pytest.raises(RequestError, match=r"bo has not replied within 0\.05 seconds$") as raised:
                await ana.request("bo", "quick?", 0.05)
            assert (raised.value.reason, raised.value.who) == ("late", "bo")
            assert not ana._requests.pending
            request = await anext(bo)
            assert request.is_request
            await request.reply("no")
            await until(lambda: any(each.body == "no" for each in given.given["ana"]))
            assert given.given["ana"][-1].reply_to == request.id

    run(test())


def test_a_request_from_the_reading_task_is_refused() -> None:
    async def test() -> None:
        async with together("ana", "bo") as (ana, bo), applications(bo):
            await bo.broadcast("news")
            async for _ in ana:
                with pytest.raises(LocalError, match="make the request in a task of its own"):
                    await ana.request("bo", "more?")
                break
            with pytest.raises(RequestError, match="no task asks for the group's next message") as raised:
                await asyncio.create_task(ana.request("bo", "more?", 0.05))
            assert raised.value.reason == "late"

    run(test())


def test_a_request_to_an_unknown_member_is_refused_and_not_broadcast() -> None:
    async def test() -> None:
        async with together("ana", "bo") as (ana, _):
            with pytest.raises(RequestError, match="nothing was broadcast") as raised:
                await ana.request("eve", "there?")
            assert raised.value.reason == "unknown"
            assert ana.delivered()["ana"] == 0
            with pytest.raises(InputError, match="body"):
                await ana.request("bo", {1})  # type: ignore[arg-type]
            assert not ana._requests.pending

    run(test())


def test_only_the_requested_member_may_reply() -> None:
    async def test() -> None:
        async with together("ana", "bo", "cleo") as (ana, bo, cleo), applications(ana):
            asking = asyncio.create_task(ana.request("bo", "well?", PATIENCE))
            at_bo, at_cleo = await anext(bo), await anext(cleo)
            assert (at_bo.is_request, at_cleo.is_request) == (True, False)
            with pytest.raises(LocalError, match="ana:1 is not a request to cleo"):
                await at_cleo.reply("me!")
            # A reply by any other member is ignored.
            cleo._requests.is_asked = lambda message: message is at_cleo  # type: ignore[method-assign]
            await at_cleo.reply("me!")
            await until(lambda: cleo.delivered()["cleo"] == ana.delivered()["cleo"] == 1)
            assert not asking.done()
            await at_bo.reply("I")
            assert (await asking).body == "I"

    run(test())


def test_a_request_fails_when_its_member_leaves_or_is_removed(tmp_path: Path) -> None:
    async def test() -> None:
        names = ("ana", "bo", "cy", "dana", "eve")
        async with room(tmp_path, *names, reads=False) as group:
            ana, bo, cy, dana, eve = (group.groups[name] for name in names)
            async with applications(ana, bo, dana) as given:
                silent: list[Message] = []

                async def keep(_: Group, message: Message) -> None:
                    silent.append(message)

                given.start(cy, keep)
                given.start(eve, keep)
                asking = [asyncio.create_task(ana.request(who, who)) for who in ("cy", "eve")]
                await until(lambda: len(silent) == 4)
                await cy.leave(PATIENCE)
                del group.groups["cy"]
                with pytest.raises(
                    RequestError, match="cy has left the group, and has not replied"
                ) as raised:
                    await asking[0]
                assert raised.value.reason == "left"
                await bo.remove("eve")
                with pytest.raises(RequestError, match="eve was removed from the group") as raised:
                    await asking[1]
                assert raised.value.reason == "removed"
                # It returns by itself; its reply to the earlier request is an ordinary message.
                await until(lambda: eve.me != "eve" and eve.me in ana.view.members)
                await ask_again(ana, eve, silent)

    async def ask_again(ana: Group, eve: Group, silent: list[Message]) -> None:
        asking = asyncio.create_task(ana.request("eve", "again", PATIENCE))
        await until(lambda: silent[-1].body == "again")
        assert silent[-1].is_request  # the request goes to the present incarnation
        await silent[-1].reply("here I am")
        reply = await asking
        assert (reply.origin, reply.body) == (eve.me, "here I am")

    run(test())


def test_pending_requests_fail_when_the_requester_stops() -> None:
    async def test() -> None:
        async with together("ana", "bo") as (ana, bo):
            asking = asyncio.create_task(ana.request("bo", "well?"))
            request = await anext(bo)
            await ana.aclose()
            with pytest.raises(RequestError, match="ana has stopped, and bo has not replied") as raised:
                await asking
            assert raised.value.reason == "closed"
            with pytest.raises(LocalError, match="the group is closed"):
                await ana.request("bo", "well?")
            await bo.aclose()
            with pytest.raises(LocalError, match="the group is closed"):
                await request.reply("too late")

    run(test())


def test_a_message_keeps_no_group_alive() -> None:
    async def test() -> Message:
        async with together("ana", "bo") as (ana, bo):
            await ana.broadcast("hello")
            return await anext(bo)

    found: list[Message] = []

    async def keep() -> None:
        message = await test()
        found.append(message)

    run(keep())
    gc.collect()
    requests = found[0]._requests
    assert isinstance(requests, weakref.ref)
    assert requests() is None
    assert not found[0].is_request
    with pytest.raises(LocalError, match="the group is closed"):
        asyncio.run(found[0].reply("to nobody"))
