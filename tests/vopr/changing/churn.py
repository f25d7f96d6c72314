"""Members that join and leave again and again, and the sizes of everything that a member keeps."""

from __future__ import annotations

from collections import deque
from typing import Any

import msgspec

from antecede.live.changing.core import ChangingCore
from antecede.live.changing.recovery import take_checkpoint
from antecede.membership.state import Phase
from vopr.changing.host import Host
from vopr.changing.world import SECOND, World
from vopr.judge import ViolationError
from vopr.network import MILLISECOND

_FOUNDERS = 3
_PATIENCE = 30 * SECOND


class ChurnWorld(World):
    """A few members stay. One after the other joins, broadcasts and leaves: `returning` is one process that
    comes again with its store, and every other one is new."""

    may_mix = False

    def __init__(self, joins: int, protocol: str = "mbcp") -> None:
        super().__init__(joins, protocol=protocol)
        self.hosts = [Host(self, rank, True) for rank in range(_FOUNDERS)]
        self.founders = list(self.hosts)
        self.returning = Host(self, _FOUNDERS, False)
        self.hosts.append(self.returning)
        self.by_place = {host.place: host for host in self.hosts}
        self.network.delay = MILLISECOND
        self._joins = joins
        self.before: list[dict[str, int]] = []
        """The sizes of all tables of the permanent members."""
        self.after: list[dict[str, int]] = []

    def grown(self) -> dict[str, tuple[int, int]]:
        """The tables that have grown, but for what the last one that has left may leave for a moment."""
        return {
            name: (before.get(name, 0), size)
            for before, after in zip(self.before, self.after, strict=True)
            for name, size in after.items()
            if size > before.get(name, 0) + 2 * _FOUNDERS
        }

    def pick_contact(self, host: Host) -> Host:
        return self.founders[self.below(_FOUNDERS)]

    def run(self) -> None:
        for host in self.founders:
            host.start()
        self.run_until(SECOND)
        for each in range(4):  # until every table has had something in it
            self._join_and_leave(each)
        self.before = self._sizes()
        for each in range(self._joins):
            self._join_and_leave(each)
        self.after = self._sizes()

    def _sizes(self) -> list[dict[str, int]]:
        self.is_healing = True
        self.rest()
        self.is_healing = False
        return [table_sizes(host.process.core) for host in self.founders if host.process is not None]

    def _join_and_leave(self, number: int) -> None:
        host = self.returning if number % 2 else self._add_host()
        host.is_wanted = True
        host.start()
        self._wait(host, Phase.MEMBER)
        for each in (host, *self.founders):
            if each.process is not None:
                each.process.broadcast()
        self.run_until(self.now + 10 * MILLISECOND)
        assert host.process is not None
        host.process.leave()
        self._wait(host, Phase.ENDED)
        if host is not self.returning:
            host.die("has gone", for_good=True)
            self.hosts.remove(host)

    def _add_host(self) -> Host:
        host = Host(self, _FOUNDERS + 1, False, f"n{len(self.records)}")
        self.hosts.append(host)
        self.by_place[host.place] = host
        return host

    def _wait(self, host: Host, phase: Phase) -> None:
        end = self.now + _PATIENCE
        while host.process is None or not host.process.is_up or host.process.core.phase != phase:
            if self.now > end:
                raise ViolationError(f"{host.name} does not become {phase.name}")
            self.run_until(self.now + MILLISECOND)


def table_sizes(core: ChangingCore) -> dict[str, int]:
    """How many entries each table of a core and its member has, however deep."""
    found: dict[str, int] = {}
    for name, value in vars(core).items():
        if name not in ("members", "kind", "labels"):  # labels are remembered up to a limit
            _count(f"core.{name}", value, found)
    _count("members", core.members, found)
    _count("checkpoint", take_checkpoint(core).packets, found)
    return {name: size for name, size in found.items() if size}


def _count(name: str, value: Any, found: dict[str, int]) -> None:
    if isinstance(value, dict | set | frozenset | list | tuple | deque):
        found[name] = found.get(name, 0) + len(value)
    if isinstance(value, msgspec.Struct):
        for field in value.__struct_fields__:
            _count(f"{name}.{field}", getattr(value, field), found)
    elif isinstance(value, dict):
        for each in value.values():
            _count(f"{name}[]", each, found)
    elif isinstance(value, list | tuple | deque):
        for each in value:
            _count(f"{name}[]", each, found)
    elif type(value).__module__.startswith("antecede.") and hasattr(value, "__dict__"):
        for field, each in vars(value).items():
            if not callable(each) and not isinstance(each, ChangingCore):
                _count(f"{name}.{field}", each, found)
