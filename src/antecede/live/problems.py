"""Conditions that a person must act on: logged when they begin and when they end, listed while they last."""

from __future__ import annotations

import time
from collections.abc import Hashable, Iterable, Sequence
from typing import Literal

import msgspec

from antecede.live.operations.logs import Log
from antecede.live.settings import Roster
from antecede.live.stability import Divergence, Stability
from antecede.live.subgroups.settings import LIVE as WITH_SUBGROUPS

_UNREACHABLE_SECONDS = 3.0
"""How long a super peer must be disconnected before it is reported: a broken connection is re-established at
once."""

ProblemKind = Literal[
    "away",
    "bounds",
    "draining",
    "forked",
    "full",
    "parked",
    "paused",
    "refused",
    "removing",
    "returning",
    "snapshot",
    "store",
    "trace",
    "unreadable",
    "unreachable",
]


class Problem(msgspec.Struct, frozen=True):
    """A condition that lasts until a person acts on it."""

    kind: ProblemKind
    member: str
    """The member concerned."""
    text: str
    since: float
    """In seconds since 1970."""


class Problems:
    """The current problems of one member."""

    def __init__(self, group: str, member: str) -> None:
        self._log = Log(group, member)
        self._current: dict[Hashable, Problem] = {}

    def begin(self, key: Hashable, kind: ProblemKind, member: str, text: str, log: bool = True) -> bool:
        """A condition holds; returns whether it is new. A new one is logged, unless `log` is false."""
        before = self._current.get(key)
        since = before.since if before is not None else time.time()
        self._current[key] = Problem(kind, member, text, since)
        if before is None and log:
            self._log.warning("%s: %s", kind, text, extra={"peer": member})
        return before is None

    def end(self, key: Hashable) -> bool:
        """A condition no longer holds; returns whether it did."""
        before = self._current.pop(key, None)
        if before is not None:
            self._log.warning("over: %s", before.text, extra={"peer": before.member})
        return before is not None

    def is_current(self, key: Hashable) -> bool:
        return key in self._current

    def keys(self, kind: ProblemKind) -> set[Hashable]:
        """The keys of the current problems of a kind."""
        return {key for key, problem in self._current.items() if problem.kind == kind}

    def list(self) -> list[Problem]:
        return [*self._current.values()]


def describe_fork(divergence: Divergence, names: Sequence[str]) -> str:
    """A message for the user about members that have delivered different messages."""
    member, origin = names[divergence.member], names[divergence.origin]
    return (
        f"messages of {origin} after {origin}:{divergence.agreed} differ here and at {member}: "
        "two copies of its store are in use, or it sends different messages under one id"
    )


class Reachability:
    """Which members cannot be reached because their super peer, or a gateway, is not connected."""

    def __init__(self, roster: Roster, me: str, stability: Stability) -> None:
        self._stability = stability
        self._ranks = {name: rank for rank, name in enumerate(roster.names)}
        self._behind = roster.reached_through(me)
        self._what = "the gateway" if roster.protocol.name in WITH_SUBGROUPS else "the super peer"
        self._seen = dict.fromkeys(self._behind.values(), time.monotonic())
        """When each super peer was last connected."""

    def _text(self, name: str, relay: str) -> str:
        if name == relay:
            return f"the super peer {relay} is not connected, and nobody else can be reached without it"
        return f"{name} cannot be reached: {self._what} {relay} is not connected"

    def missing(self, connected: Iterable[str]) -> dict[str, str | None]:
        """For each member behind a super peer: why messages wait for it, or None."""
        now, connected = time.monotonic(), set(connected)
        self._seen |= dict.fromkeys(self._seen.keys() & connected, now)
        return {
            name: f"{self._text(name, relay)}; {count:,} messages wait for it"
            if now - self._seen[relay] > _UNREACHABLE_SECONDS
            and (count := self._stability.lag(self._ranks[name]))
            else None
            for name, relay in self._behind.items()
        }
