"""Helpers of tests of phones in changing groups: super peers and phones over real sockets."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from typing import Any

from rooms import Room

from antecede.live.changing.group import DynamicGroup
from antecede.live.changing.phone_group import PhoneGroup
from antecede.live.group import Group
from antecede.live.trial.ports import free_ports


class PhoneRoom(Room):
    """Three founders that are super peers, and phones behind them."""

    def __init__(self, folder: Path, is_secure: bool = False, protocol: str = "freescale") -> None:
        super().__init__(folder)
        self.protocol = protocol
        self.web_ports = dict(zip(self.ports, free_ports(len(self.ports)), strict=True))
        scheme = "wss" if is_secure else "ws"
        self.super_peers = {
            name: f"{name}@{scheme}://127.0.0.1:{port}" for name, port in self.web_ports.items()
        }

    async def start(self, name: str, reads: bool = True, **options: Any) -> Group:
        if name in self.web_ports:
            options.setdefault("web", f"127.0.0.1:{self.web_ports[name]}")
        return await super().start(name, reads, protocol=self.protocol, **options)

    async def start_phone(self, name: str, *super_peers: str, **options: Any) -> PhoneGroup:
        """Start a phone that may be behind these super peers, the first one first."""
        places = [self.super_peers[each] for each in super_peers or self.super_peers]
        options = {"contact": [], "listen": None, "snapshot": None, **options}
        group = await super().start(name, super_peers=places, protocol=self.protocol, **options)
        assert isinstance(group, PhoneGroup)
        return group

    def phone(self, name: str) -> PhoneGroup:
        group = self.groups[name]
        assert isinstance(group, PhoneGroup)
        return group

    async def fails(self, starting: Coroutine[Any, Any, PhoneGroup]) -> None:
        """A phone is not admitted."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                raise AssertionError(f"{(await starting).me} was admitted")

    def phones_of(self, name: str) -> dict[str, bool]:
        """Which phones are behind a super peer, and whether they are connected."""
        group = self.groups[name]
        assert isinstance(group, DynamicGroup)
        return group.phones


@contextlib.asynccontextmanager
async def phone_room(
    folder: Path,
    is_secure: bool = False,
    keys_of: Path | None = None,
    protocol: str = "freescale",
    **options: Any,
) -> AsyncIterator[PhoneRoom]:
    """A room with its founders running, optionally with folders of keys."""
    created = PhoneRoom(folder, is_secure or keys_of is not None, protocol)
    own: dict[str, dict[str, Any]] = {
        name: {"keys": keys_of / name} if keys_of is not None else {} for name in created.ports
    }
    try:
        await asyncio.gather(*(created.start(name, **options, **own[name]) for name in created.ports))
        yield created
    finally:
        await created.close()
