"""Helpers of subgroup tests: members over real sockets, and clocks that can be set wrong."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

from live_groups import PATIENCE, Ear

from antecede.audit.run import audit_path
from antecede.live.clock import MemberClock
from antecede.live.settings import Settings
from antecede.live.subgroups.group import SubgroupMember
from antecede.live.trial.ports import free_ports

LAYOUT = {"gus": ["pam", "pat"], "gil": ["pia"], "lea": ["leo"]}
"""Local processes by gateway: on real time, on vectors, on linear time."""
CLOCKS = {"gus": "real 250ms 60ms", "gil": "vector", "lea": "linear"}


class WrongClock(MemberClock):
    """Ahead by so much, which can change; it never goes back."""

    def __init__(self, ahead: float = 0.0) -> None:
        super().__init__()
        self.ahead = ahead
        self._last = 0

    def now(self) -> int:
        self._last = max(self._last, super().now() + round(self.ahead * 1e9))
        return self._last


class Sites:
    """The members of a group, its clocks and its trace."""

    def __init__(
        self,
        folder: Path,
        layout: Mapping[str, list[str]] = LAYOUT,
        clocks: Mapping[str, str] = CLOCKS,
        ahead: Mapping[str, float] | None = None,
        **options: Any,
    ) -> None:
        self.folder, self.clocks = folder, dict(clocks)
        self.behind = {name: gateway for gateway, inside in layout.items() for name in inside}
        self.names = [*layout, *self.behind]
        self.ports = dict(zip(self.names, free_ports(len(self.names)), strict=True))
        self.time = {name: WrongClock((ahead or {}).get(name, 0.0)) for name in self.names}
        self.options = {"protocol": "hcg", "trace": str(folder / "trace"), **options}
        self.groups: dict[str, SubgroupMember] = {}
        self.ears: dict[str, Ear] = {}

    def settings(self, me: str) -> Settings:
        peers = [
            {"name": name, "at": f"127.0.0.1:{self.ports[name]}", "behind": self.behind.get(name)}
            for name in self.ports
            if name != me
        ]
        return Settings.create(
            group="sites",
            me=me,
            peers=peers,
            behind=self.behind.get(me),
            listen=f":{self.ports[me]}",
            subgroups={name: clock for name, clock in self.clocks.items() if name in self.ports},
            **self.options,
        )

    async def start(self, name: str) -> SubgroupMember:
        group = self.groups[name] = SubgroupMember(self.settings(name), self.time[name])
        await group._start()
        self.ears[name] = Ear(group)
        return group

    async def stop(self, name: str) -> None:
        await self.ears[name].stop()
        await self.groups[name].aclose()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Sites]:
        try:
            for name in self.names:
                await self.start(name)
            yield self
        finally:
            await asyncio.gather(*(self.stop(name) for name in self.groups))

    async def broadcast(self, name: str, count: int, pause: float = 0.0) -> None:
        for number in range(count):
            await self.groups[name].broadcast(f"{name} {number}")
            await asyncio.sleep(pause)

    async def all_have(self, count: int) -> None:
        """Wait until every member has delivered so many messages, its own included."""
        async with asyncio.timeout(PATIENCE):
            while any(len(ear.messages) + len(ear.own) < count for ear in self.ears.values()):
                await asyncio.sleep(0.02)
        assert {len(ear.messages) + len(ear.own) for ear in self.ears.values()} == {count}

    def audit(self, messages: int) -> None:
        """Audit the trace: complete, exactly once, in causal order."""
        verdict = audit_path(str(self.folder / "trace"), "local", 10, None).verdict
        assert verdict.clean, verdict
        assert (verdict.messages, verdict.missing) == (messages, 0)
