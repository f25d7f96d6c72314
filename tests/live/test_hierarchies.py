"""Super peers behind super peers over real sockets, judged by what applications were delivered."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from live_groups import Ear, run, same, until

import antecede
from antecede.audit.run import audit_path
from antecede.errors import InputError
from antecede.live.group import Group
from antecede.live.settings import Roster, Settings
from antecede.live.trial import cluster
from antecede.live.trial.ports import free_ports
from antecede.protocols.freescale import Freescale
from antecede.protocols.freescale.hierarchy import NOBODY, Hierarchy

BEHIND = {"gate": "hub", "till": "gate", "scale": "gate", "door": "shed", "shed": "hub"}
"""Two super peers of the highest level, two behind one of them, and the members behind those."""
NAMES = ["hub", "office", "gate", "shed", "till", "scale", "door"]


class Shop:
    """The members of a group in this process; phones connect by WebSocket, everybody else by TCP."""

    def __init__(self, folder: Path | None = None, **options: Any) -> None:
        self.folder, self.options = folder, {"protocol": "freescale", **options}
        self.groups: dict[str, Group] = {}
        self.ears: dict[str, Ear] = {}
        self.ports = dict(zip(NAMES, free_ports(len(NAMES)), strict=True))
        self.web = dict(zip(("gate", "shed"), free_ports(2), strict=True))

    def settings(self, me: str) -> dict[str, Any]:
        is_phone = me not in BEHIND.values() and me in BEHIND
        peers = []
        for name in NAMES:
            at: str | None = f"127.0.0.1:{self.ports[name]}"
            if is_phone and name == BEHIND[me]:
                scheme = "wss" if "secret" in self.options else "ws"
                at = f"{scheme}://127.0.0.1:{self.web[name]}"
            elif name not in BEHIND.values() and name in BEHIND:
                at = None
            if name != me:
                peers.append(antecede.Member(name, at, BEHIND.get(name)))
        return {
            "me": me,
            "behind": BEHIND.get(me),
            "peers": peers,
            "listen": None if is_phone else f":{self.ports[me]}",
            "web": f":{self.web[me]}" if me in self.web else None,
            "store": str(self.folder / f"{me}-store") if self.folder else None,
            **self.options,
        }

    async def start(self, name: str) -> Group:
        group = self.groups[name] = await antecede.join("shop", **self.settings(name))
        ear = Ear(group)
        if name in self.ears:  # an earlier life
            ear.messages[:0], ear.own[:0] = self.ears[name].messages, self.ears[name].own
        self.ears[name] = ear
        return group

    async def stop(self, name: str) -> None:
        await self.ears[name].stop()
        await self.groups.pop(name).aclose()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Shop]:
        try:
            for name in NAMES:
                await self.start(name)
            yield self
        finally:
            await asyncio.gather(*(self.stop(name) for name in list(self.groups)))

    async def all_have(self, count: int) -> None:
        """Wait until every application has delivered so many messages, its own included."""
        for name, ear in self.ears.items():
            await until(
                lambda ear=ear: len(ear.messages) + len(ear.own) >= count,  # type: ignore[misc]
                f"{count} messages at {name}",
            )
            assert len(ear.messages) + len(ear.own) == count

    async def relay_race(self, rounds: int) -> None:
        """Each member broadcasts after delivering the previous message: together they form one causal
        chain."""
        for number in range(rounds * len(NAMES)):
            name = NAMES[number * 3 % len(NAMES)]
            ear = self.ears[name]
            await until(
                lambda ear=ear, number=number: (
                    not number  # type: ignore[misc]
                    or number - 1 in [each.body for each in (*ear.messages, *ear.own)]
                )
            )
            await self.groups[name].broadcast(number)

    def assert_in_order(self) -> None:
        """Every member delivered each message of the chain after its predecessor."""
        for name, ear in self.ears.items():
            numbers = [each.body for each in ear.messages]
            assert numbers == sorted(numbers), name


def test_messages_cross_all_levels_in_causal_order(tmp_path: Path) -> None:
    async def test() -> None:
        faults = antecede.FaultInjection(delay="0ms-20ms", cut_every="700ms", loss=0.01)
        async with Shop(faults=faults, trace=str(tmp_path / "trace")).running() as shop:
            assert {name: sorted(group.partners) for name, group in shop.groups.items()} == {
                "hub": ["gate", "office", "shed"],
                "office": ["hub"],
                "gate": ["hub", "scale", "till"],
                "shed": ["door", "hub"],
                "till": ["gate"],
                "scale": ["gate"],
                "door": ["shed"],
            }
            await shop.relay_race(4)
            await shop.all_have(4 * len(NAMES))
            shop.assert_in_order()
            assert {message.causes for ear in shop.ears.values() for message in ear.messages} == {()}

    run(test())
    verdict = audit_path(str(tmp_path / "trace"), "local", 10, None).verdict
    assert verdict.clean
    assert (verdict.messages, verdict.deliveries) == (28, 28 * 6)


def test_a_middle_super_peer_that_restarts_loses_nothing(tmp_path: Path) -> None:
    async def test() -> None:
        async with Shop(tmp_path).running() as shop:
            await shop.relay_race(1)
            await shop.stop("gate")
            for name in ("till", "scale", "hub", "door"):
                await shop.groups[name].broadcast(f"{name}, while gate is away")
            await until(lambda: "door, while gate is away" in shop.ears["office"].bodies())
            assert "till, while gate is away" not in shop.ears["hub"].bodies()
            till, hub = shop.groups["till"], shop.groups["hub"]
            await until(lambda: [each.member for each in till.problems()] == ["gate"])
            assert "nobody else can be reached without it" in till.problems()[0].text
            await until(lambda: {each.member for each in hub.problems()} == {"till", "scale"})
            await shop.start("gate")
            await shop.all_have(len(NAMES) + 4)
            await until(lambda: not till.problems() and not hub.problems())
            await shop.groups["door"].broadcast("seen by all")
            await shop.all_have(len(NAMES) + 5)
            await same(*shop.groups.values())
            await asyncio.gather(*(group.drain(timeout=30) for group in shop.groups.values()))

    run(test())


@pytest.mark.parametrize("sign", [False, True])
def test_a_hierarchy_works_with_a_shared_secret(tmp_path: Path, sign: bool) -> None:
    (tmp_path / "secret").write_text("a secret that all of them share")
    (tmp_path / "secret").chmod(0o600)

    async def test() -> None:
        async with Shop(tmp_path, secret=str(tmp_path / "secret"), sign=sign).running() as shop:
            await shop.relay_race(2)
            await shop.all_have(2 * len(NAMES))
            shop.assert_in_order()
            named = {message.causes for ear in shop.ears.values() for message in ear.messages}
            assert (named != {()}) == sign

    run(test())


def test_a_hierarchy_survives_kills_of_middle_super_peers(tmp_path: Path) -> None:
    """With SIGKILL, at random moments, while everybody broadcasts; the oracle finds nothing."""
    plan = cluster.TrialPlan(
        size=6,
        protocol="freescale",
        super_peers=1,
        internal=2,
        levels=2,
        messages=240,
        seconds=8.0,
        delay="0ms-20ms",
        kill_every=2.0,
        victims=frozenset({"super0-0", "super0-1"}),
        cut_every="3s",
        patience=90.0,
        sync=False,
        seed=3,
    )
    (tmp_path / "members").mkdir()
    result = asyncio.run(cluster.run(plan, tmp_path / "members", tmp_path / "trace", lambda *_: None))
    assert result.faults == []
    assert {each.name for each in result.members if each.kills} <= plan.victims
    assert result.kills > 0
    assert {each.kind for each in result.members} == {"super", "inner", "internal"}
    verdict = audit_path(str(tmp_path / "trace"), "local", 10, None).verdict
    assert verdict.clean
    assert (verdict.messages, verdict.missing) == (240, 0)


def test_ranks_are_assigned_level_by_level() -> None:
    roster = Settings.create(group="shop", **Shop().settings("till")).roster()
    assert roster.names == ["hub", "office", "gate", "shed", "scale", "till", "door"]
    assert roster.protocol is Hierarchy
    assert roster.layout.above == [NOBODY, NOBODY, 0, 0, 2, 2, 3]
    assert roster.lines[-2:] == ["till behind gate", "door behind shed"]
    assert Roster.of_lines("freescale", roster.lines) == Roster(
        Hierarchy,
        [antecede.Member(each.name, behind=each.behind) for each in roster.members],
        roster.lines,
        roster.layout,
    )
    assert roster.reached_through("hub") == {"till": "gate", "scale": "gate", "door": "shed"}
    assert roster.reached_through("office") == dict.fromkeys(["gate", "shed", "scale", "till", "door"], "hub")
    assert roster.reached_through("gate") == {"hub": "hub"}
    assert roster.reached_through("till") == {"gate": "gate"}


def test_a_one_level_hierarchy_is_plain_freescale() -> None:
    members = [antecede.Member("sue"), antecede.Member("pat", behind="sue"), antecede.Member("eve")]
    assert Roster.create("freescale", members).protocol is Freescale


def test_cyclic_behind_settings_are_refused() -> None:
    settings = Settings.create(
        group="shop",
        me="ana",
        behind="bo",
        protocol="freescale",
        peers=["bo behind cy", "cy behind bo", "dan"],
    )
    with pytest.raises(InputError, match="ana is behind bo, and in the end some are behind each other"):
        settings.roster()
