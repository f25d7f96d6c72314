"""Who is in a group and how this member takes part: by keywords in code, by the same words in a TOML file."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

import msgspec

from antecede.errors import InputError
from antecede.protocols.base import LocalError, Protocol
from antecede.protocols.catalog import find
from antecede.units import duration, span

_NAME = re.compile(r"[^\s@:/\\,]{1,64}")
_LOOPBACK = "127.0.0.1"


class Member(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Someone else in the group. A name is an identity; an address is only where to look for it."""

    name: str
    at: str | None = None
    """host:port, or ws://host:port; None if it is the one to call."""
    behind: str | None = None
    """The super peer that it is behind, if it is an internal peer (`freescale`)."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """As people write it.

        >>> Member.parse("bo@bo.example:7000").at, Member.parse("phone behind sue").behind
        ('bo.example:7000', 'sue')
        """
        who, word, other = text.strip().partition(" behind ")
        name, _, at = who.partition("@")
        return cls(name.strip(), at.strip() or None, other.strip() if word else None)


class Rough(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How badly this member's links are to behave, for trials."""

    delay: str = "0ms-0ms"
    loss: float = 0.0
    """The share of frames with packets that vanish."""
    cut_every: str | None = None
    """The mean time after which a connection breaks."""
    seed: int = 0

    def check(self) -> None:
        """An `InputError`, if links cannot behave so."""
        try:
            span(self.delay)
            if self.cut_every is not None and duration(self.cut_every) <= 0:
                raise InputError("cut_every is more than nothing")
        except InputError as error:
            raise InputError(f"rough: {error}") from error
        if not 0 <= self.loss < 1:
            raise InputError(f"rough: loss is a share below 1, not {self.loss}")


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that a member can be told."""

    group: str
    me: str
    peers: list[str | Member] = []
    protocol: str = "mbcp"
    behind: str | None = None
    """The super peer that this member is behind, if it is an internal peer."""
    listen: str | None = None
    """host:port for the members that call; without a host, loopback only."""
    web: str | None = None
    """The same for WebSockets, at a super peer."""
    store: str | None = None
    """The file that makes accepted messages survive this process; None keeps all in memory."""
    sync: bool = True
    """Whether what is accepted has reached the disk, so that it survives the machine, too."""
    trace: str | None = None
    """A folder for a trace of all that this member does."""
    limit: int = 32 * 1024 * 1024
    """Bytes of messages, sent or taken here and not known to be everywhere, at which `broadcast` waits."""
    metrics: str | None = None
    """host:port for Prometheus: /metrics and /health."""
    keys: str | None = None
    """This member's folder of keys, as `antecede keys` makes it: links are encrypted and members proven."""
    secret: str | None = None
    """Instead, a file with a key that all members share."""
    plain: bool = False
    """Whether links beyond this machine may go without either."""
    rough: Rough | None = None

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """From a TOML or JSON file; paths in it are relative to the file."""
        path = Path(path)
        try:
            text = path.read_text()
            raw = msgspec.json.decode(text) if path.suffix == ".json" else tomllib.loads(text)
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not text"
            raise InputError(f"{path}: {reason}") from error
        except (tomllib.TOMLDecodeError, msgspec.DecodeError) as error:
            raise InputError(f"{path}: {error}") from error
        if not isinstance(raw, dict):
            raise InputError(f"{path}: not a table of settings")
        for name in ("store", "trace", "keys", "secret"):
            if isinstance(raw.get(name), str):
                raw[name] = str(path.parent / raw[name])
        try:
            return cls.of(**raw)
        except InputError as error:
            raise InputError(f"{path}: {error}") from error

    @classmethod
    def of(cls, /, **given: Any) -> Self:
        """From keywords."""
        given = {name: str(value) if isinstance(value, Path) else value for name, value in given.items()}
        peers = given.get("peers", [])
        if not isinstance(peers, Iterable) or isinstance(peers, str | bytes | dict):
            raise InputError('peers: a list of members, as ["bo@host:7000"]')
        given["peers"] = [peer if isinstance(peer, str) else msgspec.to_builtins(peer) for peer in peers]
        try:
            return msgspec.convert(given, cls)
        except msgspec.ValidationError as error:
            raise InputError(str(error)) from error

    def members(self) -> list[Member]:
        """The others."""
        return [Member.parse(peer) if isinstance(peer, str) else peer for peer in self.peers]

    def roster(self) -> Roster:
        """Everybody, checked."""
        members = [Member(self.me, self.listen, self.behind), *self.members()]
        for member in members:
            check_name(member.name)
        names = [member.name for member in members]
        for name in names:
            if names.count(name) > 1:
                raise InputError(f"peers: {name} is named twice")
        for member in members:
            if member.behind is not None and member.behind not in names:
                raise InputError(f"{member.name} is behind {member.behind}, who is not among the members")
        self._check(self.members())
        return Roster.of(self.protocol, members)

    def _check(self, others: list[Member]) -> None:
        for what, text in (("listen", self.listen), ("web", self.web)):
            if text is not None:
                address(text, what)
        for member in others:
            if member.at is not None:
                _check_callable(member.at)
        if self.limit < 0:
            raise InputError(f"limit: bytes, so none below 0; this is {self.limit}")
        if self.rough is not None:
            self.rough.check()


class Roster(msgspec.Struct, frozen=True):
    """The members in the order of their ranks, which all of them come to by themselves."""

    protocol: type[Protocol]
    members: list[Member]
    lines: list[str]
    """What must be the same at everybody: each name, and whom it is behind."""
    layout: Any = None

    @classmethod
    def of(cls, protocol_name: str, members: list[Member]) -> Self:
        protocol = find(protocol_name)
        if protocol.links.bounded_delays or protocol.overlapping_groups:
            why = "promises about delays" if protocol.links.bounded_delays else "several groups at once"
            raise InputError(f"protocol: {protocol.name} needs {why}, which live groups do not have")
        by_name = sorted(members, key=lambda member: member.name)
        behind = [member for member in by_name if member.behind is not None]
        layout = None
        if protocol.name == "freescale":
            supers = sorted({member.behind for member in behind if member.behind is not None})
            for member in behind:
                if member.name in supers:
                    raise InputError(f"{member.name} is behind {member.behind} and has others behind it")
            inside = [[member for member in behind if member.behind == relay] for relay in supers]
            outside = [member for member in by_name if member.behind is None and member.name not in supers]
            relays = [member for relay in supers for member in by_name if member.name == relay]
            by_name = relays + [member for those in inside for member in those] + outside
            layout = protocol.layout([len(those) for those in inside])
        elif behind:
            raise InputError(
                f"{behind[0].name} is behind {behind[0].behind}, but only freescale has super peers; "
                f"this is {protocol.name}"
            )
        lines = [
            f"{member.name} behind {member.behind}" if member.behind else member.name for member in by_name
        ]
        return cls(protocol, by_name, lines, layout)

    @property
    def names(self) -> list[str]:
        return [member.name for member in self.members]

    def make(self, me: str) -> Protocol:
        """This member's side of the protocol, as it is before anything was said."""
        size = len(self.members)
        try:
            if self.layout is not None:
                everyone = self.protocol.with_layout(size, self.layout)  # type: ignore[attr-defined]
            else:
                everyone = self.protocol.group(size)
        except LocalError as error:
            raise InputError(str(error)) from error
        mine: Protocol = everyone[self.names.index(me)]
        return mine


def check_name(name: str) -> None:
    """A name that can be told from an address and used for a file."""
    if not _NAME.fullmatch(name) or name.startswith("."):
        raise InputError(f"'{name}' is no name: up to 64 characters, no spaces, @, : or /")


def address(text: str, what: str) -> tuple[str, int]:
    """Host and port; a port alone is one of this machine's own.

    >>> address(":7000", "listen"), address("[::1]:7000", "listen")
    (('127.0.0.1', 7000), ('::1', 7000))
    """
    host, colon, port = text.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise InputError(f"{what}: '{text}' is no address; write host:port, or :port for this machine alone")
    return host.strip("[]") or _LOOPBACK, int(port)


def _check_callable(text: str) -> None:
    if not text.startswith(("ws://", "wss://")):
        address(text, "peers")
        return
    try:
        parts = urlsplit(text)
        found = parts.hostname and (parts.port or True)
    except ValueError:
        found = None
    if not found:
        raise InputError(f"peers: '{text}' is no address; write ws://host:port")
