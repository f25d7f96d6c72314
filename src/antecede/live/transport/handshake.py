"""The handshake of two members: each sends its name and its state, and is accepted or refused with the
reason."""

from __future__ import annotations

from collections.abc import Callable

from antecede.live.clock import Clock
from antecede.live.core import Core
from antecede.live.security.identity import Identity, Proof, Security
from antecede.live.settings import Roster, Settings
from antecede.live.transport.frames import MAX_BYTES, Greeting, Refusal, RefusedError, decode, encode
from antecede.live.transport.greeter import Greeter, StaleGreetingError
from antecede.live.transport.wires import TcpWire, WebWire, Wire
from antecede.protocols.base import RemoteError

_GREETING_SLACK, _MAX_GREETING = 16 * 1024, 1 << 20


class Handshake:
    """Greets partners on new connections. `called` is the rank of the called member, if this side has
    called."""

    def __init__(
        self,
        settings: Settings,
        roster: Roster,
        core: Core,
        security: Security,
        clock: Clock,
        stepped: Callable[[], None],
    ) -> None:
        self._settings, self._roster, self._core = settings, roster, core
        self._security, self._clock, self._stepped = security, clock, stepped
        self._greeter = Greeter(settings, roster, core)
        self.max_bytes = min(len(encode(roster.lines)) + _GREETING_SLACK, _MAX_GREETING)
        """The longest greeting that is read: the list of members, which is the same at all, and little
        else."""

    async def read_greeting(self, wire: Wire, called: int | None) -> Greeting:
        """Read the other side's greeting; the caller has sent its own greeting before."""
        if called is None or isinstance(wire, TcpWire):
            # Not where this member has opened a WebSocket: the library reads ahead, past the greeting.
            wire.max_bytes = self.max_bytes
        if called is None:
            if isinstance(wire, TcpWire):
                await self._start_tls(wire)
        else:
            if self._security.is_on:
                # Before anything is sent: a greeting may contain a token.
                name = self._roster.names[called]
                proof = self._security.verify_certificate(wire.info("peercert"))
                _require_same(Identity(self._settings.group, name), proof)
            await wire.write([encode(self._greeter.compose(called, self._security.token))])
        greeting = decode(await wire.read())
        if isinstance(greeting, Refusal):
            raise RefusedError(greeting.reason)
        if not isinstance(greeting, Greeting):
            await wire.write([encode(Refusal("its first frame is not a greeting"))])
            raise RemoteError("its first frame is not a greeting")
        return greeting

    async def accept(self, wire: Wire, called: int | None, greeting: Greeting) -> int:
        """Validate a greeting and return the rank of its sender, or refuse it with the reason."""
        try:
            # Authenticate first: a stranger learns nothing about the group.
            self._authenticate(wire, greeting, called)
            peer = self._greeter.find_partner(greeting, called)
            if called is None and isinstance(wire, WebWire) and peer not in self._core.stability.behind:
                raise RemoteError(
                    f"{greeting.me} is not behind {self._settings.me}: WebSockets are only for those members"
                )
            self._greeter.check_resumable(peer, greeting)
        except RemoteError as error:
            await wire.write([encode(Refusal(str(error)))])
            raise
        except StaleGreetingError as error:
            if error.refusal:
                await wire.write([encode(Refusal(error.refusal))])
            raise
        wire.max_bytes = MAX_BYTES
        self._greeter.accept(peer, greeting, self._clock.now())
        self._stepped()
        if called is None:
            await wire.write([encode(self._greeter.compose(peer, self._security.token))])
        return peer

    async def _start_tls(self, wire: TcpWire) -> None:
        if self._security.server is None:
            return
        try:
            await wire.start_tls(self._security.server)
        except ConnectionError as error:
            # This is all that is visible of a caller that does not trust this member's certificate.
            raise RemoteError("it disconnected before it had shown a certificate") from error

    def _authenticate(self, wire: Wire, greeting: Greeting, called: int | None) -> None:
        """Verify the certificate, or the token if the partner has connected by WebSocket."""
        if not self._security.is_on:
            return
        claimed = Identity(self._settings.group, greeting.me)
        if called is None and isinstance(wire, WebWire):
            proof = self._security.verify_token(greeting.token)
        else:
            proof = self._security.verify_certificate(wire.info("peercert"))
        _require_same(claimed, proof)
        wire.proof = proof


def _require_same(claimed: Identity, proof: Proof) -> None:
    proven = proof.identity
    if claimed != proven:
        raise RemoteError(
            f"it claims to be {claimed.name}; its {proof.kind} is for {proven.name} of group '{proven.group}'"
        )
