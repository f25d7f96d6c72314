"""Who is in a group and how this member takes part: keywords in code, and the same words in a TOML file."""

from __future__ import annotations

import re
import tomllib
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

import msgspec

from antecede.errors import InputError
from antecede.live.changing.protocols import WITH_PHONES
from antecede.live.setting_names import explain, parse_sizes, refuse_unknown
from antecede.live.subgroups.settings import LIVE as WITH_SUBGROUPS
from antecede.live.subgroups.settings import Subgroup, arrange, parse_lines
from antecede.protocols.base import LocalError, Protocol
from antecede.protocols.catalog import find_protocol
from antecede.protocols.freescale.hierarchy import NOBODY, Hierarchy, HierarchyLayout
from antecede.terminal import printable
from antecede.units import parse_duration, parse_range

_NAME = re.compile(r"[^\s@:/\\,]{1,64}")
_LOOPBACK = "127.0.0.1"
_PHONES = f"{', '.join([*WITH_PHONES][:-1])} or {[*WITH_PHONES][-1]}"
ANYWHERE = ("0.0.0.0:", "[::]:")
"""Addresses that begin like this listen on all networks of the machine."""
_SHORTEST_HEARTBEAT = 200_000_000
"""In nanoseconds: members check five times a second whether one is due."""


class Member(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Another member of the group. A name is an identity; an address is only where to find it."""

    name: str
    at: str | None = None
    """host:port, or ws://host:port; None if it connects to this member."""
    behind: str | None = None
    """The super peer that it is behind, if it is an internal peer (`freescale`), or its gateway (`hcg`)."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse the notation of the command line.

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
    clock: str = "0ms"
    """How far this member's clock is ahead of the computer's; "-20ms" if it is behind."""

    def validate(self) -> None:
        try:
            parse_range(self.delay)
            if self.cut_every is not None and parse_duration(self.cut_every) <= 0:
                raise InputError("cut_every must be more than 0")
            self.clock_offset()
        except InputError as error:
            raise InputError(f"faults: {error}") from error
        if not 0 <= self.loss < 1:
            raise InputError(f"faults: loss is a share below 1, not {self.loss}")

    def clock_offset(self) -> int:
        """By how many nanoseconds this member's clock is ahead."""
        size = parse_duration(self.clock.removeprefix("-"))
        return -size if self.clock.startswith("-") else size


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of a member; docs/live.md describes each of them."""

    group: str
    me: str
    peers: list[str | Member] = []
    """The other members, in a group with a fixed list."""
    founders: list[str | Member] = []
    """The first members of a group with dynamic membership, the same at each of them."""
    contact: list[str | Member] = []
    """Members of such a group; the first that answers admits this one."""
    super_peers: list[str | Member] = []
    """For a phone of such a group: its possible super peers. It is behind one of them at a time."""
    protocol: str = "mbcp"
    behind: str | None = None
    """The super peer that this member is behind, if it is an internal peer (`freescale`), or its gateway
    (`hcg`, `basic`)."""
    subgroups: dict[str, str | Subgroup] = {}
    """With `hcg` and `basic`: by the name of its gateway, the clock of each subgroup."""
    listen: str | None = None
    """host:port for members that connect to this one; without a host, loopback only."""
    advertise: str | None = None
    """host:port at which the others reach this one, if that is not where it listens: behind a NAT router, or
    in a container."""
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
    """Bytes of messages, broadcast or delivered here and not stable, at which `broadcast` waits; the same for
    own messages that this member's application has not received. It also limits parked messages. `create` and
    files accept a text such as "32MB", too."""
    park: int = 0
    """Bytes at which `broadcast` waits if only members that are away keep messages from becoming stable;
    these messages are in the store. 0 if there is no such second limit."""
    remove_after: str | None = None
    """How long a member may be suspected before it is removed, if a majority is connected; None means for
    ever."""
    heartbeat: str | None = None
    """The longest interval between signs of life from one member to another; None means 3 s."""
    suspect_after: str | None = None
    """After how long a silence a member is suspected; None adapts it to the member's link."""
    forget_after: str = "7d"
    """With dynamic membership: how long a removed member may at least return with messages that only it
    had."""
    history: str | None = None
    """"all" if a member that joins is to receive the messages that its contact has retained."""
    retain: str | None = None
    """With dynamic membership: for how long, "7d", or up to which size, "100MB", messages are retained for
    members that join later."""
    metrics: str | None = None
    """host:port for Prometheus: /metrics and /health."""
    otel: bool = False
    """Whether broadcasts and deliveries are OpenTelemetry spans, with the program's tracer provider."""
    console_token: str | None = None
    """A file with a token: clients that show it at `metrics` get the data of `antecede console`."""
    keys: str | None = None
    """This member's folder of keys, as `antecede keys` makes it: links are encrypted and members
    authenticated."""
    secret: str | None = None
    """Instead of keys, a file with a secret that all members share."""
    sign: bool = True
    """Whether members sign their messages, if they have keys or a secret; the same at every member."""
    encrypt: bool = False
    """With dynamic membership and keys: whether messages are encrypted end to end, so that super peers cannot
    read them; the same at every member."""
    relay: bool = False
    """Whether this member of such a group has no reading keys: a super peer that forwards what it cannot
    read."""
    insecure: bool = False
    """Whether links beyond this machine may be unencrypted and unauthenticated."""
    faults: FaultInjection | None = None

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Load a TOML or JSON file; paths in it are relative to the file."""
        path = Path(path)
        try:
            text = path.read_text()
            raw = msgspec.json.decode(text) if path.suffix == ".json" else tomllib.loads(text)
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not text"
            raise InputError(f"{path}: {reason}") from None
        except (tomllib.TOMLDecodeError, msgspec.DecodeError) as error:
            hint = '; a text needs quotes, as in group = "room"' if "Invalid value" in str(error) else ""
            raise InputError(f"{path}: {error}{hint}") from None
        if not isinstance(raw, dict):
            raise InputError(f"{path}: not a table of settings")
        for name in ("store", "trace", "keys", "secret", "console_token"):
            if isinstance(raw.get(name), str):
                raw[name] = str(path.parent / raw[name])
        try:
            return cls.create(**raw)
        except InputError as error:
            raise InputError(f"{path}: {error}") from None

    @classmethod
    def create(cls, /, **values: Any) -> Self:
        """Create from keywords or a file's keys, validated."""
        values = {name: str(value) if isinstance(value, Path) else value for name, value in values.items()}
        if "plain" in values:
            warnings.warn("the setting `plain` is now called `insecure`", DeprecationWarning, stacklevel=3)
            values["insecure"] = values.pop("plain")
        if isinstance(values.get("contact"), str):
            values["contact"] = [values["contact"]]
        refuse_unknown(values, cls.__struct_fields__)
        for name in ("peers", "founders", "contact", "super_peers"):
            values[name] = _members(name, values.get(name, []))
        if isinstance(values.get("subgroups"), Mapping):
            values["subgroups"] = msgspec.to_builtins(dict(values["subgroups"]))
        parse_sizes(values)
        try:
            return msgspec.convert(values, cls)
        except msgspec.ValidationError as error:
            raise explain(error, values) from None

    def members(self) -> list[Member]:
        """The other members, in a fixed list."""
        return _parsed(self.peers)

    @property
    def is_changing(self) -> bool:
        """Whether membership is dynamic."""
        return bool(self.founders or self.contact or self.super_peers)

    def first_members(self) -> list[Member]:
        return _parsed(self.founders)

    def super_peer_list(self) -> list[Member]:
        return _parsed(self.super_peers)

    @property
    def is_phone(self) -> bool:
        """Whether this process is behind a super peer."""
        is_internal = self.behind is not None and self.protocol not in WITH_SUBGROUPS
        return is_internal or bool(self.super_peers)

    def called(self) -> list[tuple[str, Member]]:
        """The members that this process may call, and the settings that name them."""
        lists = ("peers", self.members()), ("founders", self.first_members()), ("contact", self.contacts())
        everyone = (*lists, ("super_peers", self.super_peer_list()))
        return [(what, member) for what, members in everyone for member in members]

    def isolation(self) -> str:
        """Why a member with a fixed list of others can never be connected to any of them; empty if it can."""
        others = self.members()
        if not others or self.listen or self.web or any(each.at for each in others):
            return ""
        return (
            f"{self.me} calls nobody, since its `peers` have no addresses, and nobody can call it: "
            f"set `listen`, or write {others[0].name}@host:port"
        )

    def contacts(self) -> list[Member]:
        return _parsed(self.contact)

    def validate_changing(self) -> None:
        """Check the settings of a group with dynamic membership."""
        founders, contacts = self.first_members(), self.contacts() + _parsed(self.super_peers)
        if self.peers:
            raise InputError("peers: a group whose members come and go has founders, or a contact")
        if self.subgroups and self.protocol not in WITH_SUBGROUPS:
            raise InputError(_no_subgroups(self.protocol))
        if self.subgroups:
            raise InputError(
                "subgroups: where members come and go every subgroup is on linear time; for other clocks "
                "give a fixed list of members, as peers"
            )
        if self.behind is not None:
            raise InputError(
                "behind: where members come and go, a phone lists its super_peers; several levels need a "
                "fixed list of members, in `peers`"
            )
        if self.super_peers and (founders or self.contact or self.web or self.listen):
            raise InputError(
                "super_peers: a phone has no founders and no contact, and does not listen; several levels of "
                "super peers need a fixed list of members, with `behind` and `peers`"
            )
        if self.super_peers and self.protocol not in (*WITH_PHONES, "mbcp"):
            raise InputError(f"protocol: a phone's group has protocol {_PHONES}, not {self.protocol}")
        self._validate_encryption()
        if self.advertise is not None:
            _validate_advertised(self.advertise, self.listen)
        if self.web is not None and self.protocol not in WITH_PHONES:
            raise InputError(_no_phones(self.protocol))
        for member in (Member(self.me), *founders, *contacts):
            validate_name(member.name)
            if "~" in member.name:
                raise InputError(f"'{member.name}' is not a name: ~ separates a name from its incarnation")
        self._validate_others(founders, contacts)
        self._validate([*founders, *contacts])

    def _validate_others(self, founders: list[Member], contacts: list[Member]) -> None:
        names, which = [member.name for member in founders], "super_peers" if self.super_peers else "contact"
        if len(set(names)) < len(names):
            raise InputError("founders: one of them is listed twice")
        if founders and self.me not in names:
            raise InputError(f"founders: {self.me} is not among them; name a contact to join the group")
        if contacts and all(member.name == self.me for member in contacts):
            raise InputError(f"{which}: {self.me} is this member itself; name another one")
        for member in contacts:
            if member.at is None:
                raise InputError(f"{which}: where is {member.name}? Write {member.name}@host:port")

    def _validate_encryption(self) -> None:
        if self.encrypt and (self.keys is None or not self.sign):
            raise InputError("encrypt: members and phones need keys of their own for it, and sign = true")
        if self.relay and (not self.encrypt or self.super_peers):
            raise InputError("relay: it is for members of groups with encrypt = true that only forward")

    def roster(self) -> Roster:
        """All members, validated."""
        members = [Member(self.me, self.listen, self.behind), *self.members()]
        for member in members:
            validate_name(member.name)
        if self.encrypt:
            why = "it is for groups whose members come and go; in a fixed list, `send` encrypts for some"
            raise InputError(f"encrypt: {why}")
        if self.advertise is not None:
            raise InputError("advertise: in a group with a fixed list, `peers` say where members are reached")
        names = [member.name for member in members]
        if self.me in names[1:]:
            raise InputError(f"peers: {self.me} is this member itself; list only the others")
        for name in names:
            if names.count(name) > 1:
                raise InputError(f"peers: {name} is listed twice")
        for member in members:
            if member.behind is not None and member.behind not in names:
                raise InputError(f"{member.name} is behind {member.behind}, who is not among the members")
        self._validate(self.members())
        if self.web is not None and self.protocol not in WITH_PHONES:
            raise InputError(_no_phones(self.protocol))
        return Roster.create(self.protocol, members, self.subgroup_table())

    def subgroup_table(self) -> dict[str, Subgroup]:
        """The subgroups, by the names of their gateways."""
        return {
            gateway: Subgroup.parse(each) if isinstance(each, str) else each
            for gateway, each in self.subgroups.items()
        }

    def _validate(self, others: list[Member]) -> None:
        for what, text in (("listen", self.listen), ("web", self.web)):
            if text is not None:
                address(text, what)
        for member in others:
            if member.at is not None:
                _validate_target(member.at)
        for what, number in (("limit", self.limit), ("park", self.park)):
            if number < 0:
                raise InputError(f"{what}: it must not be negative, and is {number}")
        if self.console_token is not None and self.metrics is None:
            raise InputError("console_token: the console asks at `metrics`, and that is not set")
        if self.history not in (None, "all"):
            raise InputError(f"history: it is \"all\" or nothing, not '{self.history}'")
        if (self.history or self.retain) and (not self.is_changing or self.super_peers):
            raise InputError("history, retain: they are for members of groups with founders or a contact")
        if self.retain is not None and self.store is None:
            raise InputError("retain: messages are retained in a store; name one")
        if self.park and self.store is None:
            raise InputError("park: messages for members that are away are kept in a store; name one")
        for what, text in (
            ("remove_after", self.remove_after),
            ("heartbeat", self.heartbeat),
            ("suspect_after", self.suspect_after),
        ):
            _validate_duration(what, text, _SHORTEST_HEARTBEAT if what != "remove_after" else 1)
        if self.faults is not None:
            self.faults.validate()


def _no_phones(protocol: str) -> str:
    return f"web: it is for phones, and only groups with protocol {_PHONES} have them, not {protocol}"


def _no_subgroups(protocol: str) -> str:
    return f"subgroups: only {' and '.join(WITH_SUBGROUPS)} have them, not {protocol}"


def _members(name: str, values: Any) -> list[Any]:
    if not isinstance(values, Iterable) or isinstance(values, str | bytes | dict):
        raise InputError(f'{name}: it must be a list of members, such as ["bo@host:7000"]')
    return [each if isinstance(each, str) else msgspec.to_builtins(each) for each in values]


def _parsed(members: list[str | Member]) -> list[Member]:
    return [Member.parse(each) if isinstance(each, str) else each for each in members]


def _validate_duration(what: str, text: str | None, least: int) -> None:
    if text is None:
        return
    try:
        value = parse_duration(text)
    except InputError as error:
        raise InputError(f"{what}: {error}") from None
    if value < least:
        raise InputError(f"{what}: {text} is too short")


class Roster(msgspec.Struct, frozen=True):
    """The members in the order of their ranks, which every member computes identically."""

    protocol: type[Protocol]
    members: list[Member]
    lines: list[str]
    """What must be the same at every member: each name, and whom it is behind or what its clock is."""
    layout: Any = None

    @classmethod
    def create(
        cls, protocol_name: str, members: list[Member], subgroups: Mapping[str, Subgroup] | None = None
    ) -> Self:
        if protocol_name in WITH_SUBGROUPS:
            order, lines, arranged = arrange(members, subgroups or {})
            return cls(WITH_SUBGROUPS[protocol_name], order, lines, arranged)
        protocol = find_protocol(protocol_name)
        if protocol.overlapping_groups:
            why = "several groups at once, which live groups do not offer; write antecede.connect"
            raise InputError(f"protocol: {protocol.name} needs {why}")
        if subgroups:
            raise InputError(_no_subgroups(protocol.name))
        by_name = sorted(members, key=lambda member: member.name)
        behind = [member for member in by_name if member.behind is not None]
        layout = None
        if protocol.name == "freescale":
            supers = sorted({member.behind for member in behind if member.behind is not None})
            if any(member.name in supers for member in behind):
                return cls._of_levels(by_name)
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
        return cls(protocol, by_name, _lines(by_name), layout)

    @classmethod
    def _of_levels(cls, members: list[Member]) -> Self:
        """Super peers that are behind others: level by level, each in the order of those above."""
        ranked = [member for member in members if member.behind is None]
        above = [NOBODY] * len(ranked)
        for rank, upper in enumerate(ranked):  # grows during the iteration
            inside = [member for member in members if member.behind == upper.name]
            ranked += inside
            above += [rank] * len(inside)
        if len(ranked) < len(members):
            names = {member.name for member in ranked}
            lost = next(member for member in members if member.name not in names)
            raise InputError(
                f"{lost.name} is behind {lost.behind}, and in the end some are behind each other"
            )
        return cls(Hierarchy, ranked, _lines(ranked), HierarchyLayout(above))

    @classmethod
    def of_lines(cls, protocol_name: str, lines: list[str]) -> Self:
        """Parse the lines that a store contains."""
        if protocol_name not in WITH_SUBGROUPS:
            return cls.create(protocol_name, [Member.parse(line) for line in lines])
        members, subgroups = parse_lines(lines)
        return cls.create(protocol_name, [Member(name, behind=behind) for name, behind in members], subgroups)

    def reached_through(self, me: str) -> dict[str, str]:
        """The members that this one reaches only through another one, and which one that is. Through its own
        super peer it reaches all others; only that one is listed for them."""
        behind = {member.name: member.behind for member in self.members}
        mine = behind[me]
        if self.protocol.name in WITH_SUBGROUPS and mine is not None:
            return {name: mine for name in behind if name != mine and behind[name] != mine}
        found = {mine: mine} if mine is not None else {}
        for name in behind:
            relay, above = name, behind[name]
            while above is not None and above != me:
                relay, above = above, behind[above]
            if name not in (relay, me) and (above == me or mine is None) and relay != me:
                found[name] = relay
        return found

    @property
    def names(self) -> list[str]:
        return [member.name for member in self.members]

    def create_protocol(self, me: str) -> Protocol:
        """This member's instance of the protocol, before the first message."""
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


def _lines(members: list[Member]) -> list[str]:
    return [f"{member.name} behind {member.behind}" if member.behind else member.name for member in members]


def validate_name(name: str) -> None:
    """A name must be distinguishable from an address and usable as a file name."""
    host, _, port = name.rpartition(":")
    if _NAME.fullmatch(host) and port.isdigit() and printable(name) == name:
        place = f"NAME@{name}" if "." in host or host == "localhost" else f"{host}@host:{port}"
        raise InputError(f"'{name}' is not a name: a member has a name and an address; write {place}")
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


def _validate_advertised(text: str, listen: str | None) -> None:
    if listen is None:
        raise InputError("advertise: the others can only call a member that listens; set `listen`, too")
    _, port = address(text, "advertise")
    if not port or text.startswith((":", *ANYWHERE)):
        raise InputError(f"advertise: '{text}' is no place to call; write host:port")


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
