"""Calls that are not allowed say what to write instead."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from live_groups import run
from rooms import room

import antecede
from antecede.errors import InputError
from antecede.protocols.base import LocalError


def test_a_group_that_is_not_joined_says_how_to_join() -> None:
    joining: Any = antecede.join("room", me="ana")
    how = r"write `async with antecede.join\(...\) as group` or `group = await antecede.join\(...\)`"
    with pytest.raises(AttributeError, match=f"broadcast: the group is not joined yet; {how}"):
        joining.broadcast("hello")
    with pytest.raises(LocalError, match=how), joining:
        pass
    connecting: Any = antecede.connect(me="ana")
    with pytest.raises(AttributeError, match=r"join: .* or `node = await antecede.connect\(...\)`"):
        connecting.join("room")
    with pytest.raises(LocalError, match="async with"), connecting:
        pass


def test_calls_with_wrong_values_are_refused() -> None:
    async def test() -> None:
        async with antecede.join("room", me="ana") as group:
            wrong: Any = group
            assert repr(group) == "<group 'room' at ana: open>"
            await group.broadcast("hello")
            await anext(group)
            for value in ("ana:1", None):
                with pytest.raises(InputError, match="ack: give it the message that was delivered, not "):
                    wrong.ack(value)
                with pytest.raises(InputError, match="nack: give it the message that was delivered, not "):
                    wrong.nack(value)
                with pytest.raises(InputError, match="park: give it the message that was delivered, not "):
                    await wrong.park(value)
            with pytest.raises(InputError, match=r'to: it is a list of names; write to=\["bo"\]'):
                await wrong.send("hello", to="bo")
            with pytest.raises(InputError, match="to: name one member at least"):
                await group.send("hello", to=[])
            with pytest.raises(LocalError, match="move: ana is no phone"):
                await group.move("bo")
            with pytest.raises(LocalError, match="expel: pia is not a phone"):
                await group.expel("pia")

    run(test())


def test_a_member_does_not_remove_itself(tmp_path: Path) -> None:
    async def test() -> None:
        async with room(tmp_path, "ana", "bo", "cy") as group:
            with pytest.raises(LocalError, match="ana is this member itself; `leave` ends its membership"):
                await group.groups["ana"].remove("ana")

    run(test())
