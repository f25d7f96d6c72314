"""Who is connected now: members and phones by name, told from link to link, outside of the causal order.

Each member tells the others of itself and of the phones that are connected to it, and its phones of everyone
of whom it hears. Only what has changed since the last time is told, at most once a second, and all of it when
a connection begins; with the connection, what was told over it is forgotten. So whatever happens, everybody
is right again two seconds after the last change: a phone's super peer tells the others, and they tell their
phones. It costs no message, no count and
no byte of the store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from antecede.errors import InputError
from antecede.live.settings import validate_name
from antecede.protocols.base import RemoteError

TELL_SECONDS = 1.0
MAX_NAMES = 100_000
"""At one partner."""


class PresenceUpdate(msgspec.Struct, frozen=True, array_like=True, tag=42):
    """Who has come and who has gone, since the last update on this connection."""

    come: list[str]
    gone: list[str]


class PresenceTable:
    """What one process tells and hears. Links are known by their numbers."""

    def __init__(self, name: str, is_phone: bool) -> None:
        self._name, self._is_phone = name, is_phone
        self._reported: dict[int, frozenset[str]] = {}
        self._heard: dict[int, set[str]] = {}
        self._phones: dict[int, str] = {}
        """Those that are connected here, by link."""
        self._reported_at = float("-inf")
        self._here = self._everyone = frozenset({name})

    def open(self, link: int, name: str, is_phone: bool) -> None:
        """A connection begins, to a phone or a member. Both know each other by name."""
        self._reported[link] = frozenset({self._name})
        if is_phone:
            self._phones[link] = name
        else:
            self._heard[link] = {name}

    def close(self, link: int) -> None:
        for table in (self._reported, self._heard, self._phones):
            table.pop(link, None)

    def receive(self, link: int, update: PresenceUpdate) -> None:
        names = self._heard.get(link)
        if names is None:
            raise RemoteError("it says who is connected, and is a phone")
        try:
            for name in update.come:
                validate_name(name)
        except InputError as error:
            raise RemoteError(f"it says that somebody is connected whose name is none: {error}") from error
        names.difference_update(update.gone)
        names.update(update.come)
        if len(names) > MAX_NAMES:
            raise RemoteError(f"it says that more than {MAX_NAMES:,} are connected to it")

    def everyone(self, believes: Callable[[int], bool]) -> frozenset[str]:
        """All that are connected, as told over the links that are believed."""
        heard = [names for link, names in self._heard.items() if believes(link)]
        return frozenset({self._name}).union(self._phones.values(), *heard)

    def updates(self, now: float, believes: Callable[[int], bool]) -> Iterable[tuple[int, PresenceUpdate]]:
        """What to send now, and to whom."""
        if self._is_phone or now - self._reported_at < TELL_SECONDS:
            return
        self._reported_at = now
        here = frozenset({self._name, *self._phones.values()})
        everyone = self.everyone(believes)
        # The same set for many: then they are found to be the same at once.
        self._here = self._here if self._here == here else here
        self._everyone = self._everyone if self._everyone == everyone else everyone
        made: dict[tuple[frozenset[str], frozenset[str]], PresenceUpdate] = {}
        for link, reported in self._reported.items():
            names = self._everyone if link in self._phones else self._here
            if reported is not names:
                if (update := made.get((reported, names))) is None:
                    update = made[reported, names] = PresenceUpdate(
                        sorted(names - reported), sorted(reported - names)
                    )
                self._reported[link] = names
                yield link, update
