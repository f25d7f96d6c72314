"""How two members meet: each says who it is and where it was, and is accepted or refused, with the reason."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from antecede.live.core import Core
from antecede.live.security.identity import Identity, Proof, Security
from antecede.live.settings import Roster, Settings
from antecede.live.transport.frames import MAX_BYTES, VERSION, Greeting, Refusal, decode, encode
from antecede.live.transport.wires import TcpWire, WebWire, Wire
from antecede.protocols.base import RemoteError

_GREETING_SLACK, _MAX_GREETING = 16 * 1024, 1 << 20


class KnownStores(msgspec.Struct, frozen=True):
    """The identifiers of stores: this member's own, and its partners' as remembered."""

    own: str
    remembered: Callable[[int], str]
    remember: Callable[[int, str], None]


class Handshake:
    """Greets partners on new connections. `called` is the rank that this member has called, if it has."""

    def __init__(
        self, settings: Settings, roster: Roster, core: Core, security: Security, stores: KnownStores
    ) -> None:
        self._settings, self._roster, self._core = settings, roster, core
        self._security, self._stores = security, stores
        self.max_bytes = min(len(encode(roster.lines)) + _GREETING_SLACK, _MAX_GREETING)
        """The longest greeting that is read: the list of members, the same at all, and little else."""

    async def read_greeting(self, wire: Wire, called: int | None) -> Greeting:
        """What the other side says first; the caller has sent its own greeting before."""
        if called is None:
            wire.max_bytes = self.max_bytes
            if isinstance(wire, TcpWire):
                await self._start_tls(wire)
        else:
            if self._security.is_on:
                # Before anything is sent: a greeting may hold a token.
                name = self._roster.names[called]
                proof = self._security.verify_certificate(wire.info("peercert"))
                _require_same(Identity(self._settings.group, name), proof)
            await wire.write([encode(self._greeting(called))])
        greeting = decode(await wire.read())
        if isinstance(greeting, Refusal):
            raise RemoteError(f"it refuses: {greeting.reason[:500]}")
        if not isinstance(greeting, Greeting):
            await wire.write([encode(Refusal("its first frame is not a greeting"))])
            raise RemoteError("its first frame is not a greeting")
        return greeting

    async def accept(self, wire: Wire, called: int | None, greeting: Greeting) -> int:
        """Validate a greeting and return the rank of its sender, or refuse it with the reason."""
        try:
            # Authentication comes first: a stranger learns nothing about the group.
            self._authenticate(wire, greeting, called)
            peer = self._find_partner(greeting, called)
            if called is None and isinstance(wire, WebWire) and peer not in self._core.stability.leaves:
                raise RemoteError(
                    f"{greeting.me} is not behind {self._settings.me}: WebSockets are only for those members"
                )
            self._check_resumable(peer, greeting)
        except RemoteError as error:
            await wire.write([encode(Refusal(str(error)))])
            raise
        wire.max_bytes = MAX_BYTES
        if called is None:
            await wire.write([encode(self._greeting(peer))])
        if self._stores.remembered(peer) != greeting.store:
            self._stores.remember(peer, greeting.store)
        return peer

    def _greeting(self, peer: int) -> Greeting:
        return Greeting(
            VERSION,
            self._settings.group,
            self._roster.protocol.name,
            self._roster.lines,
            self._settings.me,
            self._roster.names[peer],
            self._stores.own,
            self._stores.remembered(peer),
            self._core.durably_received.get(peer, 0),
            self._security.token,
        )

    async def _start_tls(self, wire: TcpWire) -> None:
        if self._security.server is None:
            return
        try:
            await wire.start_tls(self._security.server)
        except ConnectionError as error:
            # All that is seen here of a caller that does not trust this member's certificate.
            raise RemoteError("it disconnected before it had shown a certificate") from error

    def _authenticate(self, wire: Wire, greeting: Greeting, called: int | None) -> None:
        """By certificate, or by token if it has connected by WebSocket."""
        if not self._security.is_on:
            return
        claimed = Identity(self._settings.group, greeting.me)
        if called is None and isinstance(wire, WebWire):
            proof = self._security.verify_token(greeting.token)
        else:
            proof = self._security.verify_certificate(wire.info("peercert"))
        _require_same(claimed, proof)
        wire.proof = proof

    def _find_partner(self, greeting: Greeting, called: int | None) -> int:
        """The partner that a greeting is from, or why it is from none."""
        mine, settings = self._roster.lines, self._settings
        if greeting.version != VERSION:
            raise RemoteError(
                f"it speaks version {greeting.version} of the wire format, {settings.me} speaks {VERSION}"
            )
        if greeting.group != settings.group:
            raise RemoteError(f"it is of group '{greeting.group}', {settings.me} of '{settings.group}'")
        if greeting.protocol != self._roster.protocol.name:
            raise RemoteError(
                f"it uses protocol {greeting.protocol}, {settings.me} uses {self._roster.protocol.name}"
            )
        if greeting.members != mine:
            if sorted(greeting.members) == sorted(mine):
                raise RemoteError("it lists the members in another order; docs/wire.md says which")
            more = ", ".join(sorted(set(greeting.members) - set(mine))) or "nobody else"
            less = ", ".join(sorted(set(mine) - set(greeting.members))) or "nobody else"
            raise RemoteError(f"it lists other members: {more} there, {less} at {settings.me}")
        if greeting.you != settings.me:
            raise RemoteError(f"it calls {greeting.you}, this is {settings.me}")
        names = self._roster.names
        peer = names.index(greeting.me) if greeting.me in names else -1
        if peer not in self._core.partners or called not in (None, peer):
            expected = "a partner of this member" if called is None else names[called]
            raise RemoteError(f"{greeting.me} is not {expected}")
        return peer

    def _check_resumable(self, peer: int, greeting: Greeting) -> None:
        """Whether both sides remember the same of the link."""
        settings, box = self._settings, self._core.outboxes[peer]
        remembered = self._stores.remembered(peer)
        if remembered and remembered != greeting.store:
            raise RemoteError(_another_store(greeting.me))
        if greeting.known and greeting.known != self._stores.own:
            raise RemoteError(_another_store(settings.me))
        if not box.acked <= greeting.received <= box.last:
            # It has acknowledged more than it has now, or has received more than this member remembers
            # sending.
            older = greeting.me if greeting.received < box.acked else settings.me
            raise RemoteError(
                f"{older} has an older store than before: some of what it had sent or acknowledged is "
                "lost; restore the latest one, or restart the whole group"
            )


def _require_same(claimed: Identity, proof: Proof) -> None:
    proven = proof.identity
    if claimed != proven:
        raise RemoteError(
            f"it claims to be {claimed.name}; its {proof.kind} is for {proven.name} of group '{proven.group}'"
        )


def _another_store(name: str) -> str:
    return (
        f"{name} has another store than before: what it had acknowledged is lost; "
        "restore its store, or restart the whole group"
    )
