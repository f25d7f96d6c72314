"""Who is in a group and how this member takes part: keywords in code, and the same words in a TOML file."""

from __future__ import annotations

import re
import tomllib
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

import msgspec

from antecede.errors import InputError
from antecede.protocols.base import LocalError, Protocol
from antecede.protocols.catalog import find_protocol
from antecede.terminal import printable
from antecede.units import parse_duration, parse_range

_NAME = re.compile(r"[^\s@:/\\,]{1,64}")
_LOOPBACK = "127.0.0.1"


class Member(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Another member of the group. A name is an identity; an address is only where to look for it."""

    name: str
    at: str | None = None
    """host:port, or ws://host:port; None if it connects to this member."""
    behind: str | None = None
    """The super peer that it is behind, if it is an internal peer (`freescale`)."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """From the notation of the command line.

        >>> Member.parse("bo@bo.example:7000").at, Member.parse("phone behind sue").behind
        ('bo.example:7000', 'sue')
        """
        who, word, other = text.strip().partition(" behind ")
        name, _, at = who.partition("@")
        return cls(name.strip(), at.strip() or None, other.strip() if word else None)


class FaultInjection(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Faults on this member's links, for trials."""

    delay: str = "0ms-0ms"
    loss: float = 0.0
    """The share of frames with packets that are dropped."""
    cut_every: str | None = None
    """The mean time after which a connection breaks."""
    seed: int = 0

    def validate(self) -> None:
        try:
            parse_range(self.delay)
            if self.cut_every is not None and parse_duration(self.cut_every) <= 0:
                raise InputError("cut_every must be more than 0")
        except InputError as error:
            raise InputError(f"faults: {error}") from error
        if not 0 <= self.loss < 1:
            raise InputError(f"faults: loss is a share below 1, not {self.loss}")


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that can be set for a member; docs/live.md says more of each."""

    group: str
    me: str
    peers: list[str | Member] = []
    protocol: str = "mbcp"
    behind: str | None = None
    """The super peer that this member is behind, if it is an internal peer (`freescale`)."""
    listen: str | None = None
    """host:port for members that connect to this one; without a host, loopback only."""
    web: str | None = None
    """The same for WebSockets, at a super peer."""
    web_origins: list[str] = []
    """Origins of web pages that may connect there, such as https://app.example, besides this host's own."""
    store: str | None = None
    """The folder that makes accepted messages survive this process; None keeps everything in memory."""
    sync: bool = True
    """Whether to wait for the disk, so that accepted messages survive a power failure too."""
    trace: str | None = None
    """A folder for this member's trace."""
    own: bool = True
    """Whether this member's own messages are delivered to it too, in causal order with the others."""
    limit: int = 32 * 1024 * 1024
    """Bytes of messages, broadcast or delivered here and not stable, at which `broadcast` waits; the same of
    own messages that this member's application has not taken. More parked messages than that are refused."""
    metrics: str | None = None
    """host:port for Prometheus: /metrics and /health."""
    keys: str | None = None
    """This member's folder of keys, as `antecede keys` makes it: links are encrypted and members
    authenticated."""
    secret: str | None = None
    """Instead of keys, a file with a secret that all members share."""
    sign: bool = True
    """Whether members sign their messages, if they have keys or a secret; the same at all."""
    insecure: bool = False
    """Whether links beyond this machine may be unencrypted and unauthenticated."""
    faults: FaultInjection | None = None

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
            return cls.create(**raw)
        except InputError as error:
            raise InputError(f"{path}: {error}") from error

    @classmethod
    def create(cls, /, **values: Any) -> Self:
        """From keywords or a file's keys, validated."""
        values = {name: str(value) if isinstance(value, Path) else value for name, value in values.items()}
        if "plain" in values:
            warnings.warn("the setting `plain` is now called `insecure`", DeprecationWarning, stacklevel=3)
            values["insecure"] = values.pop("plain")
        peers = values.get("peers", [])
        if not isinstance(peers, Iterable) or isinstance(peers, str | bytes | dict):
            raise InputError('peers: it must be a list of members, such as ["bo@host:7000"]')
        values["peers"] = [peer if isinstance(peer, str) else msgspec.to_builtins(peer) for peer in peers]
        try:
            return msgspec.convert(values, cls)
        except msgspec.ValidationError as error:
            raise InputError(str(error)) from error

    def members(self) -> list[Member]:
        """The other members."""
        return [Member.parse(peer) if isinstance(peer, str) else peer for peer in self.peers]

    def roster(self) -> Roster:
        """All members, validated."""
        members = [Member(self.me, self.listen, self.behind), *self.members()]
        for member in members:
            validate_name(member.name)
        names = [member.name for member in members]
        for name in names:
            if names.count(name) > 1:
                raise InputError(f"peers: {name} is listed twice")
        for member in members:
            if member.behind is not None and member.behind not in names:
                raise InputError(f"{member.name} is behind {member.behind}, who is not among the members")
        self._validate(self.members())
        return Roster.create(self.protocol, members)

    def _validate(self, others: list[Member]) -> None:
        for what, text in (("listen", self.listen), ("web", self.web)):
            if text is not None:
                address(text, what)
        for member in others:
            if member.at is not None:
                _validate_target(member.at)
        if self.limit < 0:
            raise InputError(f"limit: it must not be negative, and is {self.limit}")
        if self.faults is not None:
            self.faults.validate()


class Roster(msgspec.Struct, frozen=True):
    """The members in the order of their ranks, which every member computes alike."""

    protocol: type[Protocol]
    members: list[Member]
    lines: list[str]
    """What must be the same at every member: each name, and the super peer it is behind."""
    layout: Any = None

    @classmethod
    def create(cls, protocol_name: str, members: list[Member]) -> Self:
        protocol = find_protocol(protocol_name)
        if protocol.links.bounded_delays or protocol.overlapping_groups:
            why = "promises about delays" if protocol.links.bounded_delays else "several groups at once"
            raise InputError(f"protocol: {protocol.name} needs {why}, which live groups do not offer")
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
            by_name = relays + [member for phones in inside for member in phones] + outside
            layout = protocol.layout([len(phones) for phones in inside])
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

    def create_protocol(self, me: str) -> Protocol:
        """This member's side of the protocol, before the first message."""
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


def validate_name(name: str) -> None:
    """A name must be distinguishable from an address and usable as a file name."""
    if not _NAME.fullmatch(name) or name.startswith(".") or printable(name) != name:
        raise InputError(
            f"'{printable(name)}' is not a name: use up to 64 printable characters, without spaces, @, : or /"
        )


def address(text: str, what: str) -> tuple[str, int]:
    """Host and port; a port alone means the loopback interface.

    >>> address(":7000", "listen"), address("[::1]:7000", "listen")
    (('127.0.0.1', 7000), ('::1', 7000))
    """
    host, colon, port = text.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise InputError(
            f"{what}: '{text}' is not an address; write host:port, or :port for this machine only"
        )
    return host.strip("[]") or _LOOPBACK, int(port)


def _validate_target(text: str) -> None:
    if not text.startswith(("ws://", "wss://")):
        address(text, "peers")
        return
    try:
        parts = urlsplit(text)
        is_valid = bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        is_valid = False
    if not is_valid:
        raise InputError(f"peers: '{text}' is not an address; write ws://host:port")
