"""How two members meet: each says who it is and where it was, and is believed or refused, with the reason."""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec

from antecede.live.core import Core
from antecede.live.security.identity import Identity, Security, checked, identity
from antecede.live.settings import Roster, Settings
from antecede.live.transport.frames import VERSION, Greeting, Refusal, decode, encode
from antecede.live.transport.wires import TcpWire, WebWire, Wire
from antecede.protocols.base import RemoteError


class Memory(msgspec.Struct, frozen=True):
    """What a member remembers of stores: its own, and its partners'."""

    store: str
    remembered: Callable[[int], str]
    remember: Callable[[int, str], None]


class Greetings:
    def __init__(
        self, settings: Settings, roster: Roster, core: Core, security: Security, memory: Memory
    ) -> None:
        self._settings, self._roster, self._core = settings, roster, core
        self._security, self._memory = security, memory

    async def hear(self, wire: Wire, called: int | None) -> Greeting:
        """What the other side says first; whoever has called has greeted it before."""
        if called is None:
            if isinstance(wire, TcpWire):
                await self._secure(wire)
        else:
            if self._security.is_on:
                # Before anything is said: a greeting may hold a token.
                name = self._roster.names[called]
                _agree(Identity(self._settings.group, name), identity(wire.info("peercert")))
            await wire.write([encode(self._mine(called))])
        theirs = decode(await wire.read())
        if isinstance(theirs, Refusal):
            raise RemoteError(f"it refuses: {theirs.reason[:500]}")
        if not isinstance(theirs, Greeting):
            await wire.write([encode(Refusal("it does not greet"))])
            raise RemoteError("it does not greet")
        return theirs

    async def agree(self, wire: Wire, called: int | None, theirs: Greeting) -> int:
        """Who it is, by rank, if all is well; if not, it is told why."""
        try:
            # Proof comes first: a stranger is told nothing of the group.
            self._prove(wire, theirs, called)
            peer = self._found(theirs, called)
            if called is None and isinstance(wire, WebWire) and peer not in self._core.progress.leaves:
                raise RemoteError(f"{theirs.me} is not behind {self._settings.me}: the web is for those")
            self._can_go_on(peer, theirs)
        except RemoteError as error:
            await wire.write([encode(Refusal(str(error)))])
            raise
        if called is None:
            await wire.write([encode(self._mine(peer))])
        if self._memory.remembered(peer) != theirs.store:
            self._memory.remember(peer, theirs.store)
        return peer

    def _mine(self, peer: int) -> Greeting:
        return Greeting(
            VERSION,
            self._settings.group,
            self._roster.protocol.name,
            self._roster.lines,
            self._settings.me,
            self._roster.names[peer],
            self._memory.store,
            self._memory.remembered(peer),
            self._core.safe[peer],
            self._security.token,
        )

    async def _secure(self, wire: TcpWire) -> None:
        if self._security.server is None:
            return
        try:
            await wire.secure(self._security.server)
        except ConnectionError as error:
            # All that is seen here of a caller that does not trust this member's certificate.
            raise RemoteError("it broke off before it had shown a certificate") from error

    def _prove(self, wire: Wire, theirs: Greeting, called: int | None) -> None:
        """Whether it is who it says: by its certificate, or by its token if it has called over the web."""
        if not self._security.is_on:
            return
        named = Identity(self._settings.group, theirs.me)
        if called is None and isinstance(wire, WebWire):
            _agree(named, checked(self._security.token_key or b"", theirs.token, time.time()), "token")
        else:
            _agree(named, identity(wire.info("peercert")))

    def _found(self, theirs: Greeting, called: int | None) -> int:
        """The partner that a greeting is from, or why it is from none."""
        mine, settings = self._roster.lines, self._settings
        if theirs.version != VERSION:
            raise RemoteError(
                f"it speaks version {theirs.version} of the wire format, {settings.me} speaks {VERSION}"
            )
        if theirs.group != settings.group:
            raise RemoteError(f"it is of group '{theirs.group}', {settings.me} of '{settings.group}'")
        if theirs.protocol != self._roster.protocol.name:
            raise RemoteError(
                f"it uses protocol {theirs.protocol}, {settings.me} uses {self._roster.protocol.name}"
            )
        if theirs.members != mine:
            if sorted(theirs.members) == sorted(mine):
                raise RemoteError("it puts the members into another order; docs/wire.md says which")
            more = ", ".join(sorted(set(theirs.members) - set(mine))) or "nobody else"
            less = ", ".join(sorted(set(mine) - set(theirs.members))) or "nobody else"
            raise RemoteError(f"it knows other members: {more} there, {less} at {settings.me}")
        if theirs.you != settings.me:
            raise RemoteError(f"it calls {theirs.you}, this is {settings.me}")
        names = self._roster.names
        peer = names.index(theirs.me) if theirs.me in names else -1
        if peer not in self._core.partners or called not in (None, peer):
            expected = "a partner of this member" if called is None else names[called]
            raise RemoteError(f"{theirs.me} is not {expected}")
        return peer

    def _can_go_on(self, peer: int, theirs: Greeting) -> None:
        """Whether what both sides remember of the link fits together."""
        settings, box = self._settings, self._core.outboxes[peer]
        remembered = self._memory.remembered(peer)
        if remembered and remembered != theirs.store:
            raise RemoteError(_another(theirs.me))
        if theirs.known and theirs.known != self._memory.store:
            raise RemoteError(_another(settings.me))
        if not box.confirmed <= theirs.got <= box.last:
            # Who has said that it had more than it has now, or has said less than the other has heard.
            older = theirs.me if theirs.got < box.confirmed else settings.me
            raise RemoteError(
                f"{older} comes with an older store than before: some of what it had said or confirmed is "
                "lost; bring the last one back, or start the group anew"
            )


def _agree(named: Identity, proven: Identity, by: str = "certificate") -> None:
    if named != proven:
        raise RemoteError(
            f"it says to be {named.name}; its {by} is for {proven.name} of group '{proven.group}'"
        )


def _another(name: str) -> str:
    return (
        f"{name} comes with another store than before: what it had confirmed is lost; "
        "bring its store back, or start the group anew"
    )
