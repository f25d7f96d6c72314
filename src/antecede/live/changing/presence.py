"""Who is connected now: names of members and phones, gossiped from link to link, outside of the causal order.

Each member reports itself and its connected phones to the other members, and everyone it knows of to its
phones. Updates contain only changes, and are sent at most once a second; a new connection begins with a full
update, and when a connection ends, its reports are forgotten. So all views are correct two seconds after the
last change: a phone's super peer notifies the other members, and they notify their phones. Presence uses no
messages, no counts and no disk space.
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
    """Who has connected and disconnected since the last update on this connection."""

    come: list[str]
    gone: list[str]


class PresenceTable:
    """What one process reports and receives. Links are identified by their numbers."""

    def __init__(self, name: str, is_phone: bool) -> None:
        self._name, self._is_phone = name, is_phone
        self._reported: dict[int, frozenset[str]] = {}
        self._heard: dict[int, set[str]] = {}
        self._phones: dict[int, str] = {}
        """The phones connected to this member, by link."""
        self._reported_at = float("-inf")
        self._here = self._everyone = frozenset({name})

    def open(self, link: int, name: str, is_phone: bool) -> None:
        """A connection to a phone or a member is established. Both sides know each other's name."""
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
            raise RemoteError("it sends presence updates, and is a phone")
        try:
            for name in update.come:
                validate_name(name)
        except InputError as error:
            raise RemoteError(f"its presence update has an invalid name: {error}") from error
        names.difference_update(update.gone)
        names.update(update.come)
        if len(names) > MAX_NAMES:
            raise RemoteError(f"its presence updates name more than {MAX_NAMES:,} processes")

    def everyone(self, believes: Callable[[int], bool]) -> frozenset[str]:
        """Everyone who is connected, according to the links that are believed."""
        heard = [names for link, names in self._heard.items() if believes(link)]
        return frozenset({self._name}).union(self._phones.values(), *heard)

    def updates(self, now: float, believes: Callable[[int], bool]) -> Iterable[tuple[int, PresenceUpdate]]:
        """The updates to send now, by link."""
        if self._is_phone or now - self._reported_at < TELL_SECONDS:
            return
        self._reported_at = now
        here = frozenset({self._name, *self._phones.values()})
        everyone = self.everyone(believes)
        # Share one set among links, so that equality is an identity check.
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
