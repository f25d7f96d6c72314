"""Processes in several groups over real sockets: one connection to each partner, one causal order."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from live_groups import be_impostors, run, until

import antecede
from antecede.live.overlapping.node import Node
from antecede.live.security.keys import make_keys, new_secret
from antecede.live.trial.ports import free_ports


def _where(message: Any) -> str:
    return str(message.group)


class Workspace:
    """Processes and the deliveries of their applications."""

    def __init__(self, folder: Path, **groups: str) -> None:
        """The founders of each group, by name."""
        self.folder = folder
        self.options: dict[str, Any] = {}
        """Of all processes."""
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
        store = self.folder / name
        node = await antecede.connect(
            **{"me": name, "listen": f":{port}", "store": store, "sync": False, **self.options}
        )
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
async def workspace(
    folder: Path, options: dict[str, Any] | None = None, **groups: str
) -> AsyncIterator[Workspace]:
    created = Workspace(folder, **groups)
    created.options = options or {}
    try:
        await asyncio.gather(*(created.start(name) for name in created.ports))
        yield created
    finally:
        for name in list(created.nodes):
            await created.stop(name)


def test_a_message_is_delivered_after_its_cause_in_another_group(tmp_path: Path) -> None:
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


@pytest.mark.parametrize("reads", [True, False])
def test_a_restarted_process_joins_groups_in_any_order(tmp_path: Path, reads: bool) -> None:
    """Its store makes it a member of `ops`. Its snapshot in `room` depends on a message there, which is
    delivered although it has not rejoined `ops` yet."""

    async def test() -> None:
        async with workspace(tmp_path, room="ana bo", ops="ana bo") as space:
            await space.nodes["ana"].groups["room"].leave()
            await space.stop("ana")
            bo = space.nodes["bo"]
            await bo.groups["ops"].broadcast("cause")
            await bo.groups["room"].broadcast("effect")
            await space.has("bo", ("room", "effect"))
            space.groups = {}  # which `start` would join
            ana = await space.start("ana", reads)
            assert not ana.groups
            async with asyncio.timeout(20):
                await space.join("ana", "room", contact="bo")
                await space.join("ana", "ops", contact="bo")
            assert set(ana.groups) == {"room", "ops"}
            if not reads:
                space.read("ana")
            await until(lambda: space.states.get(("ana", "room")) == ["effect"], "its state")
            await space.has("ana", ("ops", "cause"))
            await ana.groups["ops"].broadcast("reply")
            await space.has("bo", ("ops", "reply"))

    run(test())


def test_a_process_restarted_while_leaving_completes_the_leave(tmp_path: Path) -> None:
    """Even if its program does not name the group again."""

    async def test() -> None:
        async with workspace(tmp_path, room="ana bo cy") as space:
            await asyncio.gather(space.stop("bo"), space.stop("cy"))
            room = space.nodes["ana"].groups["room"]
            await room.broadcast("last words")
            with pytest.raises(TimeoutError):
                await room.leave(timeout=0.5)
            await space.stop("ana")
            bo, _ = await asyncio.gather(space.start("bo"), space.start("cy"))
            assert len(bo.groups["room"].view) == 3
            space.groups = {}
            ana = await space.start("ana")
            await until(lambda: len(bo.groups["room"].view) == 2, "ana has left")
            assert not ana.groups
            await space.has("bo", ("room", "last words"))

    run(test())


def test_processes_that_all_change_address_find_each_other_by_their_programs(tmp_path: Path) -> None:
    async def test() -> None:
        async with workspace(tmp_path, room="ana bo") as space:
            for name in ("ana", "bo"):
                await space.stop(name)
            space.ports.update(zip(("ana", "bo"), free_ports(2), strict=True))
            ana, _ = await asyncio.gather(space.start("ana"), space.start("bo"))
            await ana.groups["room"].broadcast("here")
            await space.has("bo", ("room", "here"))

    run(test())


def test_a_process_that_has_not_rejoined_a_group_admits_nobody_to_it(tmp_path: Path) -> None:
    """Its program has not defined how to take a snapshot."""

    async def test() -> None:
        async with workspace(tmp_path, room="ana bo") as space:
            await space.nodes["bo"].groups["room"].broadcast("old")
            await space.has("ana", ("room", "old"))
            await space.stop("ana")
            space.groups = {}
            await space.start("ana")
            cy = await space.start("cy")
            joining = asyncio.create_task(space.join("cy", "room", contact="ana"))
            await until(lambda: cy.connections > 0, "cy is connected")
            assert not (await asyncio.wait([joining], timeout=1))[0]
            await space.join("ana", "room", contact="bo")
            async with asyncio.timeout(20):
                await joining
            await until(lambda: space.states.get(("cy", "room")) == ["old"], "its state")

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


def test_a_joining_process_gets_the_state_of_each_group_in_causal_order(tmp_path: Path) -> None:
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


def test_a_restarted_process_resumes_in_all_its_groups(tmp_path: Path) -> None:
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


def test_health_and_metrics_cover_all_groups_of_a_process(tmp_path: Path) -> None:
    async def get(port: int, path: str) -> tuple[str, str]:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(f"GET {path} HTTP/1.1\r\n\r\n".encode())
        head, _, body = (await reader.read()).decode().partition("\r\n\r\n")
        writer.close()
        return head.splitlines()[0], body

    async def test() -> None:
        (port,) = free_ports(1)
        async with workspace(tmp_path, room="ana bo", ops="ana bo") as space:
            await space.stop("ana")
            space.options = {"metrics": f":{port}"}
            ana = await space.start("ana")
            await ana.groups["room"].broadcast("hello")
            await space.has("bo", ("room", "hello"))
            code, text = await get(port, "/metrics")
            assert code == "HTTP/1.1 200 OK"
            assert text.count("# HELP antecede_members ") == 1
            assert [line for line in text.splitlines() if line.startswith("antecede_members{")] == [
                f'antecede_members{{group="{group}",member="ana"}} 2.0' for group in ("room", "ops")
            ]
            code, text = await get(port, "/health")
            assert code == "HTTP/1.1 200 OK"
            assert [each["group"] for each in json.loads(text)["groups"]] == ["room", "ops"]
            assert (await get(port, "/state"))[0] == "HTTP/1.1 404 Not Found"

    run(test())


def test_a_process_without_the_secret_is_refused(tmp_path: Path) -> None:
    """It applies to all groups. Messages are signed, and a restart repeats the signatures."""

    async def test() -> None:
        secret, other = tmp_path / "secret", tmp_path / "other"
        new_secret(secret)
        new_secret(other)
        groups = {"room": "ana bo cy", "ops": "ana bo"}
        async with workspace(tmp_path / "stores", {"secret": secret}, **groups) as space:
            await space.nodes["ana"].groups["room"].broadcast("cause")
            await space.nodes["ana"].groups["ops"].broadcast("effect")
            await space.has("bo", ("room", "cause"), ("ops", "effect"))
            assert space.nodes["ana"].connections == 2
            await space.stop("bo")
            await space.nodes["ana"].groups["ops"].broadcast("while bo is away")
            await space.start("bo")
            await space.has("bo", ("ops", "while bo is away"))
            await space.nodes["bo"].groups["room"].broadcast("again")
            await space.has("cy", ("room", "again"))
            core = space.nodes["cy"].groups["room"]._core
            assert core.sealing.is_on
            assert not core.rejected

            at = space.founders("room")[0]
            for options in ({}, {"secret": other}, {"secret": secret, "network": "another"}):
                async with antecede.connect(me="eve", listen=":0", **options) as eve:
                    with pytest.raises(TimeoutError):
                        async with asyncio.timeout(3):
                            await eve.join("room", contact=[at])
            assert space.nodes["ana"].connections == 2
            assert sorted(space.nodes["ana"].groups["room"].view.members) == ["ana", "bo", "cy"]

    run(test())


def test_keys_are_for_one_name_and_one_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    be_impostors(monkeypatch)

    async def test() -> None:
        make_keys(tmp_path / "keys", "acme", ["ana", "bo", "cy"], [], 30, {}, [])
        ports = dict(zip(("ana", "bo"), free_ports(2), strict=True))
        founders = [f"{name}@127.0.0.1:{port}" for name, port in ports.items()]

        def node(name: str, keys: str) -> Any:
            at = f":{ports[name]}" if name in ports else ":0"
            return antecede.connect(me=name, listen=at, keys=tmp_path / "keys" / keys, network="acme")

        given: Counter[Any] = Counter()

        async def read(node: Node) -> None:
            async for message in node:
                given[message.body] += 1

        async with node("ana", "ana") as ana, node("bo", "bo") as bo:
            rooms = await asyncio.gather(*(each.join("room", founders=founders) for each in (ana, bo)))
            tasks = [asyncio.create_task(read(each)) for each in (ana, bo)]
            await rooms[0].broadcast("hello")
            await until(lambda: given["hello"] == 2)
            async with node("dan", "cy") as dan:  # with the keys of another
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(2):
                        await dan.join("room", contact=founders)
            async with node("cy", "cy") as cy:
                room = await cy.join("room", contact=founders)
                await room.broadcast("here I am")
                await until(lambda: given["here I am"] == 2)
            for task in tasks:
                task.cancel()

    run(test())


def test_invalid_connect_calls_are_refused_in_one_sentence(tmp_path: Path) -> None:
    async def test() -> None:
        with pytest.raises(antecede.InputError, match=r"keys has no ca\.pem"):
            antecede.connect(me="ana", keys="keys")
        with pytest.raises(
            antecede.InputError, match=r"connect: unknown setting lsten; did you mean listen[?]"
        ):
            antecede.connect(me="ana", lsten=":0")
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
