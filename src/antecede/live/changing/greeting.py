"""What two processes of a changing group say when they meet, without I/O.

A greeting says who calls, from which address and for which; 0 if the caller knows only where the other
listens. The rest is as with a fixed list (`transport/greeter.py`): lineages and chain values tell whether
both remember the same of their link.
"""

from __future__ import annotations

from typing import Any, cast

import msgspec

from antecede.live.changing.contact import Contact, validated
from antecede.live.changing.core import ChangingCore
from antecede.live.events import Incarnation
from antecede.live.transport.frames import Ack, Heartbeat, Nack, Packets, Pause, Refusal
from antecede.live.transport.greeter import Greeter
from antecede.live.transport.outbox import CHAIN_START
from antecede.membership.state import Phase
from antecede.protocols.base import RemoteError

VERSIONS = [1]
"""Of the wire format of groups that change."""


class MemberGreeting(msgspec.Struct, frozen=True, array_like=True, tag=12):
    """Who speaks, to which address, and how far their link is."""

    versions: list[int]
    group: str
    protocol: str
    contact: Contact
    you: int
    """The address that is called; 0 if it is not known."""
    lineage: list[Incarnation]
    known: list[Incarnation]
    attempt: int
    received: int
    chain: bytes

    @property
    def me(self) -> str:
        return self.contact.name


MemberFrame = MemberGreeting | Refusal | Packets | Ack | Nack | Heartbeat | Pause

_decoder: msgspec.msgpack.Decoder[MemberFrame] = msgspec.msgpack.Decoder(MemberFrame)


def decode(data: bytes) -> MemberFrame:
    """A frame from the wire; hostile until decoded."""
    try:
        return _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RemoteError(f"not a frame: {error}") from error


class _Settings(msgspec.Struct, frozen=True):
    group: str
    me: str


class MemberGreeter(Greeter):
    """Composes and validates greetings for one process."""

    def __init__(self, core: ChangingCore, group: str) -> None:
        self._changing, self._group = core, group
        self._settings = cast("Any", _Settings(group, core.name))
        self._core = cast("Any", core)
        self._attempts = 0
        self._latest = {}

    def call(self, mine: int, link: int | None, at: str) -> MemberGreeting:
        """To the other end of a link, or to whoever answers. `at` is where this process listens."""
        core = self._changing
        self._attempts += 1
        return MemberGreeting(
            VERSIONS,
            self._group,
            core.kind.name,
            msgspec.structs.replace(core.identities[mine], at=at),
            0 if link is None else core.links[link][1],
            core.lineage,
            [] if link is None else core.partner_lineages.get(link, []),
            self._attempts,
            0 if link is None else core.durably_received[link],
            CHAIN_START if link is None else core.durable_chain[link],
        )

    def find_link(self, greeting: MemberGreeting, now: int, called: tuple[int, int | None] | None) -> int:
        """The link that a greeting is for. `called` is the address of this process that has called, and the
        other one if it is known; None if the other has called."""
        core, contact = self._changing, greeting.contact
        if not set(greeting.versions) & set(VERSIONS):
            raise RemoteError(f"it speaks versions {greeting.versions} of the wire format, not {VERSIONS}")
        if greeting.group != self._group:
            raise RemoteError(f"it is of group '{greeting.group}', {core.name} of '{self._group}'")
        if greeting.protocol != core.kind.name:
            raise RemoteError(f"it uses protocol {greeting.protocol}, {core.name} uses {core.kind.name}")
        validated(contact)
        if not greeting.you and core.phase != Phase.MEMBER:
            raise RemoteError(f"{core.name} is not a member")
        mine = greeting.you or core.address
        if mine not in core.members:
            raise RemoteError(f"it calls an incarnation of {core.name} of which this store knows nothing")
        if called is not None:
            if mine != called[0]:
                raise RemoteError("it answers another address than the one that has called")
            if called[1] not in (None, contact.address):
                raise RemoteError(f"{contact.label} answers for another incarnation")
        if contact.address in core.members:
            raise RemoteError(f"it is {core.name} itself, or has a copy of its store")
        return core.open_link(mine, contact, now)
