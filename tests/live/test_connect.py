"""Processes in several groups over real sockets: one connection to each partner, one causal order."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from live_groups import free_ports, run, until

import antecede
from antecede.live.overlapping.node import Node


def _where(message: Any) -> str:
    return str(message.group)


class Workspace:
    """Processes, and what each of their applications was given."""

    def __init__(self, folder: Path, **groups: str) -> None:
        """The founders of each group, by name."""
        self.folder = folder
        self.groups = {group: names.split() for group, names in groups.items()}
        names = sorted({name for each in self.groups.values() for name in each})
        self.ports = dict(zip(names, free_ports(len(names)), strict=True))
        self.nodes: dict[str, Node] = {}
        self.given: dict[str, list[tuple[str, Any]]] = {}
        self.states: dict[tuple[str, str], list[Any]] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def founders(self, group: str) -> list[str]:
        return [f"{name}@127.0.0.1:{self.ports[name]}" for name in self.groups[group]]

    async def start(self, name: str, reads: bool = True) -> Node:
        port = self.ports.get(name, 0)
        node = await antecede.connect(me=name, listen=f":{port}", store=self.folder / name, sync=False)
        self.nodes[name] = node
        self.given.setdefault(name, [])
        for group, names in self.groups.items():
            if name in names:
                await self.join(name, group)
        if reads:
            self.read(name)
        return node

    async def join(self, name: str, group: str, contact: str = "") -> Any:
        where = {"contact": f"{contact}@{self.nodes[contact].address}"} if contact else {}
        return await self.nodes[name].join(
            group,
            founders=[] if contact else self.founders(group),
            snapshot=lambda: json.dumps(self.state(name, group)).encode(),
            restore=lambda data: self.states.__setitem__((name, group), json.loads(data)),
            **where,
        )

    def state(self, name: str, group: str) -> list[Any]:
        return self.states.get((name, group), []) + [body for at, body in self.given[name] if at == group]

    def read(self, name: str) -> None:
        self._tasks[name] = asyncio.create_task(self._read(name))

    async def _read(self, name: str) -> None:
        async for message in self.nodes[name]:
            if not message.redelivered or (_where(message), message.body) not in self.given[name]:
                self.given[name].append((_where(message), message.body))

    async def stop(self, name: str) -> None:
        if name in self._tasks:
            task = self._tasks.pop(name)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        await self.nodes.pop(name).aclose()

    async def has(self, name: str, *given: tuple[str, Any]) -> None:
        await until(lambda: set(given) <= set(self.given[name]), f"{given} at {name}")


@contextlib.asynccontextmanager
async def workspace(folder: Path, **groups: str) -> AsyncIterator[Workspace]:
    created = Workspace(folder, **groups)
    try:
        await asyncio.gather(*(created.start(name) for name in created.ports))
        yield created
    finally:
        for name in list(created.nodes):
            await created.stop(name)


def test_a_message_of_one_group_comes_after_its_cause_in_another(tmp_path: Path) -> None:
    async def test() -> None:
        async with workspace(tmp_path, room="ana bo cy", ops="ana bo", out="bo cy") as space:
            ana, bo, cy = (space.nodes[name] for name in ("ana", "bo", "cy"))
            for number in range(20):
                await ana.groups["room"].broadcast(f"cause {number}")
                await ana.groups["ops"].broadcast(f"effect {number}")
                await space.has("bo", ("ops", f"effect {number}"))
                await bo.groups["out"].broadcast(f"reaction {number}")
            await space.has("cy", ("out", "reaction 19"), ("room", "cause 19"))
            for number in range(20):
                order = [("room", f"cause {number}"), ("ops", f"effect {number}")]
                assert [each for each in space.given["bo"] if each in order] == order
                order = [("room", f"cause {number}"), ("out", f"reaction {number}")]
                assert [each for each in space.given["cy"] if each in order] == order
            assert len(space.given["cy"]) == 40
            await until(lambda: (ana.connections, bo.connections, cy.connections) == (2, 2, 2), "one each")

    run(test())


def test_iterations_over_groups_wait_for_one_another(tmp_path: Path) -> None:
    async def test() -> None:
        async with workspace(tmp_path, a_room="ana bo", b_room="ana bo") as space:
            await space.stop("bo")
            for number in range(5):
                await space.nodes["ana"].groups["b_room"].broadcast(2 * number)
                await space.nodes["ana"].groups["a_room"].broadcast(2 * number + 1)
            bo = await space.start("bo", reads=False)
            taken: list[Any] = []

            async def read(group: str) -> None:
                async for message in bo.groups[group]:
                    assert _where(message) == group
                    taken.append(message.body)
                    await asyncio.sleep(0)
                    if len(taken) == 10:
                        return

            tasks = [asyncio.create_task(read(group)) for group in ("a_room", "b_room")]
            await until(lambda: len(taken) == 10)
            assert taken == list(range(10))
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    run(test())


def test_who_joins_has_the_state_of_each_group_in_order(tmp_path: Path) -> None:
    async def test() -> None:
        async with workspace(tmp_path, room="ana bo", ops="ana bo") as space:
            ana = space.nodes["ana"]
            await ana.groups["room"].broadcast("one")
            await ana.groups["ops"].broadcast("two")
            await space.has("bo", ("ops", "two"))
            await space.start("dan")
            room = await space.join("dan", "room", "bo")
            ops = await space.join("dan", "ops", "ana")
            assert (space.states["dan", "room"], space.states["dan", "ops"]) == (["one"], ["two"])
            assert len(ops.view.names) == 3
            await ops.broadcast("three")
            await space.has("ana", ("ops", "three"))
            await ana.groups["room"].broadcast("four")
            await space.has("dan", ("room", "four"))
            assert space.given["dan"] == [("ops", "three"), ("room", "four")]
            await room.leave()
            assert list(space.nodes["dan"].groups) == ["ops"]
            await ana.groups["ops"].broadcast("five")
            await space.has("dan", ("ops", "five"))
            await space.join("dan", "room", "ana")
            assert space.states["dan", "room"] == ["one", "four"]

    run(test())


def test_a_process_goes_on_where_it_was(tmp_path: Path) -> None:
    async def test() -> None:
        async with workspace(tmp_path, room="ana bo", ops="ana bo") as space:
            await space.nodes["ana"].groups["room"].broadcast(1)
            await space.has("bo", ("room", 1))
            await space.stop("bo")
            await space.nodes["ana"].groups["room"].broadcast(2)
            await space.nodes["ana"].groups["ops"].broadcast(3)
            await space.start("bo")
            await space.has("bo", ("room", 2), ("ops", 3))
            assert space.given["bo"] == [("room", 1), ("room", 2), ("ops", 3)]
            await space.nodes["bo"].groups["ops"].broadcast(4)
            await space.has("ana", ("ops", 4))

    run(test())


def test_what_cannot_be_is_refused_in_a_sentence(tmp_path: Path) -> None:
    async def test() -> None:
        with pytest.raises(antecede.InputError, match="keys, secret"):
            antecede.connect(me="ana", keys="keys")
        with pytest.raises(antecede.InputError, match="open to others and nothing is encrypted"):
            antecede.connect(me="ana", listen="0.0.0.0:0")
        async with antecede.connect(me="ana", listen=":0") as node:
            with pytest.raises(antecede.InputError, match="room: name its founders, or a contact"):
                await node.join("room")
            room = await node.join("room", founders=["ana"])
            with pytest.raises(antecede.LocalError, match="ana is in group room"):
                await node.join("room", founders=["ana"])
            await room.broadcast("alone")
            message = await anext(node)
            assert (_where(message), message.body, message.own) == ("room", "alone", True)
            await room.broadcast("again", after=message)

    run(test())
