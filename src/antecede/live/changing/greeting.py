"""The first frames between two processes of a dynamic group, without I/O.

A greeting says who calls, from which address and for which; 0 if the caller knows only where the other
listens. The rest is as with a fixed list (`transport/greeter.py`): lineages and chain values tell whether
both ends remember the same link.
"""

from __future__ import annotations

from typing import Any, cast

import msgspec

from antecede.live.changing.contact import Contact, validated
from antecede.live.changing.core import ChangingCore
from antecede.live.changing.digests import StreamDigests
from antecede.live.changing.events import Gone
from antecede.live.changing.presence import PresenceUpdate
from antecede.live.changing.transfer import StateFrame
from antecede.live.events import Life, PartnerMet
from antecede.live.lineage import forked_at
from antecede.live.transport.frames import (
    Ack,
    Certificates,
    Evidence,
    Heartbeat,
    Nack,
    Packets,
    Pause,
    Refusal,
)
from antecede.live.transport.greeter import (
    Greeter,
    StaleGreetingError,
    describe_other_group,
    describe_other_protocol,
    fork_text,
)
from antecede.live.transport.outbox import CHAIN_START, ForkError
from antecede.live.versions import describe_unshared, greatest_shared
from antecede.membership.state import Phase
from antecede.protocols.base import RemoteError

NOT_A_MEMBER = "is not a member"
"""Why a process admits nobody yet; it may do so soon."""


class MemberGreeting(msgspec.Struct, frozen=True, array_like=True, tag=12):
    """Who sends it, to which address, and the state of their link."""

    versions: list[int]
    """All versions of the wire format that the sender speaks."""
    group: str
    protocol: str
    contact: Contact
    you: int
    """The called address; 0 if it is not known."""
    lineage: list[Life]
    known: list[Life]
    attempt: int
    received: int
    chain: bytes
    token: str = ""
    """From a phone without a certificate: the token that proves its name."""
    acked: int = 0
    """How many packets of the sender were acknowledged."""
    signed: bool = False
    """Whether the sender signs its messages and requires that all members do; not for phones."""
    encrypted: bool = False
    """Whether the sender encrypts its messages end to end, and requires that all members do."""

    @property
    def me(self) -> str:
        return self.contact.name

    @property
    def is_blank(self) -> bool:
        """Whether the sender remembers no packet of the link, in either direction."""
        return not self.received and not self.acked

    @property
    def spoken(self) -> list[int]:
        return self.versions


class Inquiry(msgspec.Struct, frozen=True, array_like=True, tag=40):
    """A founder whose store is empty asks whether it was a member before. If it has lost its store, others
    know messages of it, under the ids that it would reuse."""

    group: str
    name: str
    protocol: str = ""


class InquiryReply(msgspec.Struct, frozen=True, array_like=True, tag=41):
    """Whether the founder has been seen here before."""

    is_known: bool


class GoneError(ConnectionError):
    """A greeting on a link that no longer exists; `answer` is sent back."""

    def __init__(self, answer: Gone) -> None:
        super().__init__("a greeting from a forgotten process, or to an address that was given up")
        self.answer = answer


MemberFrame = (
    Inquiry
    | InquiryReply
    | MemberGreeting
    | Gone
    | PresenceUpdate
    | StreamDigests
    | Certificates
    | Evidence
    | Refusal
    | Packets
    | Ack
    | Nack
    | Heartbeat
    | Pause
    | StateFrame
)

_decoder: msgspec.msgpack.Decoder[MemberFrame] = msgspec.msgpack.Decoder(MemberFrame)


def decode(data: bytes) -> MemberFrame:
    """Decode a frame from the wire, which is untrusted until validated."""
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
        self.inquirers: set[str] = set()
        """Founders with an empty store that sent an inquiry while this one's store was empty too."""

    def shared_version(self, greeting: MemberGreeting) -> int:
        """The wire version to use with the sender of a greeting."""
        mine, theirs = self._changing.wire_versions, greeting.versions
        shared = greatest_shared(mine, theirs)
        if shared is None:
            raise RemoteError(describe_unshared(self._changing.name, mine, greeting.me, theirs))
        return shared

    def call(self, mine: int, link: int | None, at: str, token: str = "") -> MemberGreeting:
        """A greeting for the other end of a link, or for whichever process answers. `at` is where this
        process listens."""
        core = self._changing
        self._attempts += 1
        return MemberGreeting(
            core.wire_versions,
            self._group,
            core.kind.name,
            msgspec.structs.replace(core.identities[mine], at=at),
            0 if link is None else core.links[link][1],
            core.lineage,
            [] if link is None else core.partner_lineages.get(link, []),
            self._attempts,
            0 if link is None else core.durably_received[link],
            CHAIN_START if link is None else core.durable_chain[link],
            token,
            0 if link is None else core.outboxes[link].acked,
            core.sealing.is_on,
            core.secrecy is not None,
        )

    def answer(self, inquiry: Inquiry) -> InquiryReply:
        """Whether the inquiring founder was a member before, as far as this process knows."""
        core, address = self._changing, Contact(inquiry.name).address
        if inquiry.group != self._group:
            raise RemoteError(describe_other_group(inquiry.group, core.name, self._group))
        if inquiry.protocol:  # earlier versions do not send it
            self._check_protocol(inquiry.protocol)
        if inquiry.name == core.name:
            raise RemoteError(f"it claims to be {core.name} itself")
        if not core.members:
            self.inquirers.add(inquiry.name)
            return InquiryReply(False)
        member, link = core.member, core.find_link(core.address, address)
        stream = member.stream_at.get(address)
        has_met = link is not None and (link in core.partner_lineages or core.received[link] > 0)
        has_gone = stream is None or stream not in member.addresses
        return InquiryReply(has_met or has_gone or member.order.delivered.get(stream, 0) > 0)

    def _check_protocol(self, theirs: str) -> None:
        core = self._changing
        if theirs != core.kind.name:
            raise RemoteError(describe_other_protocol(theirs, core.name, core.kind.name))

    def _check_received(self, peer: int, greeting: Any, is_new_life: bool) -> None:
        if greeting.you:  # otherwise the caller did not know whom it called
            super()._check_received(peer, greeting, is_new_life)

    def find_link(self, greeting: MemberGreeting, now: int, called: MemberGreeting | None) -> int:
        """The link that a greeting belongs to. `called` is the greeting that it answers; None if the other
        side has called."""
        core, contact = self._changing, greeting.contact
        version = self.shared_version(greeting)
        if greeting.group != self._group:
            raise RemoteError(describe_other_group(greeting.group, core.name, self._group))
        self._check_protocol(greeting.protocol)
        validated(contact)
        if greeting.signed != core.sealing.is_on and not contact.is_phone and not core.is_phone_core:
            whose, other = ("it", core.name) if greeting.signed else (core.name, "it")
            raise RemoteError(
                f"{whose} requires that messages are signed, and {other} does not sign: set `sign` alike"
            )
        self._check_encrypted(greeting)
        if core.members:
            core.sealing.check_honest(core.member.stream_at.get(contact.address))
        if not greeting.you and core.phase != Phase.MEMBER:
            raise RemoteError(f"{core.name} {NOT_A_MEMBER}")
        mine = greeting.you or core.address
        if called is not None:
            if called.contact.address not in core.members:
                raise StaleGreetingError  # that address was given up meanwhile
            if mine != called.contact.address:
                raise RemoteError("it answers another address than the one that has called")
            if called.you not in (0, contact.address):
                raise RemoteError(f"{contact.label} answers for another incarnation")
        if mine not in core.members and core.phase != Phase.MEMBER:
            raise StaleGreetingError  # this process is about to become a member, and can decide then
        if contact.address in core.members:
            if greeting.lineage == core.lineage:
                raise StaleGreetingError  # this process has called the address of its own former incarnation
            raise RemoteError(f"it is {core.name} itself, or has a copy of its store")
        link = core.find_link(mine, contact.address)
        if link is not None:
            # An earlier life may have used an earlier version, so this precedes the version check.
            self._check_late(link, cast("Any", greeting))
        self._check_version(greeting, version, link, is_new=called is None and not greeting.you)
        if link is None or core.is_blank(link):
            self._check_unknown(mine, greeting, called)
        elif called is not None and called.is_blank and greeting.is_blank and core.has_progressed(link):
            # The link was used and forgotten there before the call arrived. The next call will reveal it.
            raise StaleGreetingError
        return core.open_link(mine, contact, now)

    def _check_version(self, greeting: MemberGreeting, version: int, link: int | None, is_new: bool) -> None:
        """A partner that was sent, or would be sent once admitted, something of a later version must speak
        it."""
        core, name = self._changing, greeting.me
        if link is not None and version < core.version_with(link):
            raise RemoteError(
                f"{name} has spoken version {core.version_with(link)} of the wire format before, "
                f"and now speaks {max(greeting.versions)}: upgrade {name} again"
            )
        if is_new and not greeting.contact.is_phone and version < core.member.requires:
            raise RemoteError(
                f"the group uses version {core.member.requires} of the wire format, "
                f"and {name} speaks {max(greeting.versions)}: upgrade {name}"
            )

    def _check_encrypted(self, greeting: MemberGreeting) -> None:
        core = self._changing
        if greeting.encrypted != (core.secrecy is not None):
            whose, other = ("it", core.name) if greeting.encrypted else (core.name, "it")
            raise RemoteError(
                f"{whose} requires that messages are encrypted end to end, and {other} does not encrypt: "
                "set `encrypt` alike; the client in TypeScript cannot"
            )

    def accept(self, peer: int, greeting: Any, now: int) -> None:
        core, version = self._changing, self.shared_version(greeting)
        if core.partner_lineages.get(peer) == greeting.lineage and version > core.version_with(peer):
            core.step(PartnerMet(peer, greeting.lineage, now, version))  # the partner was upgraded since
        super().accept(peer, greeting, now)

    def _met(self, peer: int, greeting: Any, now: int) -> PartnerMet:
        return PartnerMet(peer, greeting.lineage, now, self.shared_version(greeting))

    def forget(self, link: int) -> None:
        """Forget a link that was dropped."""
        self._latest.pop(link, None)

    def _check_unknown(self, mine: int, greeting: MemberGreeting, called: MemberGreeting | None) -> None:
        """Whether a link may be created, or an unused one taken: not if there was a link before that the
        other side has used."""
        core = self._changing
        if called is not None:
            if not called.you or core.find_link(mine, called.you) is not None:
                return
            raise StaleGreetingError  # it was forgotten while this process called it
        if mine in core.members and (common := forked_at(core.lineage, greeting.known)) is not None:
            raise ForkError(fork_text(core.name, common))
        answer = core.answer_of(mine, greeting.contact, not greeting.is_blank)
        if answer is not None:
            raise GoneError(answer)
