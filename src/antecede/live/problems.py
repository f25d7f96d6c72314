"""Conditions that a person must act on: logged when they begin and when they end, listed while they last."""

from __future__ import annotations

import time
from collections.abc import Hashable
from typing import Literal

import msgspec

from antecede.live.operations.logs import Log

ProblemKind = Literal["full", "parked", "refused", "store", "trace", "unreachable"]


class Problem(msgspec.Struct, frozen=True):
    """A condition that lasts until somebody does something about it."""

    kind: ProblemKind
    member: str
    """The member that it is about."""
    text: str
    since: float
    """In seconds since 1970."""


class Problems:
    """The current problems of one member."""

    def __init__(self, group: str, member: str) -> None:
        self._log = Log(group, member)
        self._current: dict[Hashable, Problem] = {}

    def begin(self, key: Hashable, kind: ProblemKind, member: str, text: str, log: bool = True) -> bool:
        """A condition holds; whether that is new. It is logged then, if nobody else does."""
        before = self._current.get(key)
        since = before.since if before is not None else time.time()
        self._current[key] = Problem(kind, member, text, since)
        if before is None and log:
            self._log.warning("%s: %s", kind, text, extra={"peer": member})
        return before is None

    def end(self, key: Hashable) -> bool:
        """A condition holds no longer; whether it did."""
        before = self._current.pop(key, None)
        if before is not None:
            self._log.warning("no longer %s: %s", before.kind, before.text, extra={"peer": before.member})
        return before is not None

    def is_current(self, key: Hashable) -> bool:
        return key in self._current

    def list(self) -> list[Problem]:
        return list(self._current.values())
