"""Seals in a dynamic group: each message is signed at its origin, by stream.

A seal contains the chain value of the stream's previous message, and a signature over the statement that this
message leads to the next value (`live/seals.py`). The value covers the message's content and its causes, so
neither can be changed on the way: in a fetch, in a welcome, or by a member that forwards it. The key is that
of the name to which the stream belongs. The stream id binds that name: it is a hash of an address, which is
derived from the name, and of the message that admitted it; and the sponsor has signed the admission.

Everything is verified before it is recorded, so a replay trusts what it finds. Messages that arrive before
their sender's admission is known are verified when that admission is delivered. A replay repeats this with
the certificates that were known then, which are recorded too. So are this member's own signatures, since its
key may have been replaced by the time of a replay.

What an origin has signed is accepted on any path. A member that has signed two messages under one id is
reported with the proof, and the others refuse that incarnation from then on. Each member keeps the first of
the two messages that it receives.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from antecede.causality import MessageId
from antecede.live.changing.contact import Contact, decode_contact
from antecede.live.changing.events import Signed
from antecede.live.events import CertificateLearned, Equivocated, KeyStarted
from antecede.live.seals import (
    CHAIN_BYTES,
    EquivocationError,
    KeyStart,
    RevokedKeyError,
    Seals,
    Signatures,
    Statement,
    chain_value,
)
from antecede.membership.packets import (
    AdmitMember,
    ControlPacket,
    FetchReply,
    Stream,
    Welcome,
    admitted_stream,
    decode_content,
    is_founder,
    is_plain,
)
from antecede.membership.sealing import Sealer, add_seal, is_sealed, split_seal
from antecede.membership.state import Phase
from antecede.membership.view_flooding import UnnumberedPacket
from antecede.protocols.base import Packet, RemoteError
from antecede.protocols.flat import SequencePacket
from antecede.protocols.vcube import Bundle

if TYPE_CHECKING:
    from antecede.live.changing.core import ChangingCore
    from antecede.membership.member import ChangingMember

Causes = Mapping[int, Any]
"""A message's causes by stream, as its protocol encodes them."""

_START = bytes(CHAIN_BYTES)
_MAX_EARLY_CONTACTS = 1_024
MAX_PARTED = 64
"""For how many names without a stream certificates are kept. A member that is removed and returns is unknown
here for a while, and members that it has returned to do not send its certificate again."""
_encode = msgspec.msgpack.Encoder().encode
_statement_decoder = msgspec.msgpack.Decoder(Statement)


class StreamSignatures(Signatures, Protocol):
    """Signs as one name, and verifies for all names; members are numbered by stream."""

    @property
    def names(self) -> Iterable[str]:
        """The names whose certificates are known."""

    def forget(self, name: str) -> None:
        """Forget the certificates of a name."""


class SealState(msgspec.Struct):
    """The part of the seals that a checkpoint contains."""

    latest: dict[Stream, Statement] = {}
    certificates: list[bytes] = []
    key_starts: list[KeyStart] = []
    liars: dict[Stream, list[Statement]] = {}


class StreamSeals(Sealer):
    """Seals this process's messages, and verifies those of others. Without `signatures` it does neither,
    except that a replay restores earlier seals."""

    def __init__(self, core: ChangingCore) -> None:
        self._core = core
        self.signatures: StreamSignatures | None = None
        self._seals = Seals(_NoSignatures())
        self.latest: dict[Stream, Statement] = {}
        """The statement on the last message of each stream that was received."""
        self.liars: dict[Stream, list[Statement]] = {}
        """Streams with two messages under one id, and the proof."""
        self._early_contacts: dict[Stream, Contact] = {}
        """By stream, members whose admission was received and is not delivered yet."""
        self._recorded: dict[tuple[Stream, int], bytes] = {}
        """This process's signatures from the log, for a replay."""
        self._known: dict[Stream, str] = {}
        """The streams that are not forgotten, and the names they belong to."""
        self._parted: dict[str, None] = {}
        """Names with certificates and without a stream, the oldest first."""
        self.unlogged: list[Signed] = []

    def use(self, signatures: StreamSignatures) -> None:
        self.signatures, self._seals = signatures, Seals(signatures)

    @property
    def is_on(self) -> bool:
        return self.signatures is not None

    # Names and streams

    def name_of(self, stream: Stream) -> str:
        """The name whose key signs the messages of a stream."""
        contact = self._contact_of(stream)
        if contact is None:
            raise RemoteError("messages of a member whose admission is not known here")
        return contact.name

    def _contact_of(self, stream: Stream) -> Contact | None:
        core = self._core
        found = core.contact_of(stream) if core.members else None
        return found or self._early_contacts.get(stream)

    def _note_admission(self, admission: AdmitMember, message: MessageId) -> None:
        """Record an admission signed by its sponsor; a `RemoteError` if it does not bind a name to the
        stream."""
        contact = decode_contact(admission.contact)
        is_bound = admission.stream == admitted_stream(admission.address, message)
        if not is_bound or contact.address != admission.address or contact.is_phone:
            raise RemoteError("an admission that does not bind a name to a stream")
        if len(self._early_contacts) >= _MAX_EARLY_CONTACTS:
            del self._early_contacts[next(iter(self._early_contacts))]
        self._early_contacts[admission.stream] = contact

    # Own messages

    def seal(self, origin: int, seq: int, payload: bytes, causes: Causes) -> bytes:
        core, before = self._core, self.latest.get(origin)
        previous = before.value if before is not None and before.last == seq - 1 else _START
        value = message_value(previous, payload, causes)
        if core.is_replaying:
            recorded = self._recorded.pop((origin, seq), None)
            if recorded is None:
                return payload  # it was broadcast before this group used signatures
            statement = Statement(seq, seq, previous, value, recorded)
            self._note_latest(origin, statement)
        elif not self.is_on:
            return payload
        else:
            statement = self._seals.sign(origin, seq, seq, previous, value)
            self.latest[origin] = statement
            if core.is_durable:
                self.unlogged.append(Signed(origin, seq, statement.signature, core.time))
        return add_seal(payload, previous + statement.signature)

    def on_signed(self, record: Signed) -> None:
        self._recorded[record.stream, record.seq] = record.signature

    def end_replay(self) -> None:
        self._recorded.clear()

    def take_unlogged(self, now: int) -> list[Any]:
        """Records that must be logged before any others."""
        records: list[Any] = [*self.unlogged, *(KeyStarted(each, now) for each in self._seals.unlogged)]
        self.unlogged, self._seals.unlogged = [], []
        return records

    # Incoming packets

    def check(self, link: int, packet: Packet, now: int) -> None:
        """Raise a `RemoteError` unless the origins of the messages in a packet have signed them. In a replay
        that was verified before, so the messages are only recorded."""
        core = self._core
        mine, theirs = core.links[link]
        member = core.members[mine]
        contact = core.greeted.get(theirs)
        if not self.is_on or (contact is not None and contact.is_phone):
            return
        if isinstance(packet, Welcome):
            if member.phase == Phase.JOINING:
                self._check_welcome(member, theirs, packet, now)
        elif member.phase == Phase.MEMBER:
            self._check_messages(member, packet, member.stream_at.get(theirs), now)

    def _check_messages(
        self, member: ChangingMember, packet: Packet, source: Stream | None, now: int
    ) -> None:
        found: list[tuple[Stream, Statement]] = []
        is_direct = not isinstance(packet, FetchReply) and not member.order.relays
        for (origin, seq), payload, causes in _messages(member, packet):
            if origin == member.stream or origin in member.tombstones:
                continue  # its own message, or one of a removed stream: ignored
            if is_direct and source not in (None, origin):
                raise RemoteError("it sends a message of another member, which nobody has asked for")
            if self._contact_of(origin) is None:
                if member.order.takes_unknown:
                    self.name_of(origin)
                continue  # it is verified once its admission is delivered
            found.append((origin, _statement_of(seq, payload, causes)))
            self._note_content(payload, MessageId(origin, seq))
        self._take_all(found, source, now)

    def _take_all(self, found: list[tuple[Stream, Statement]], source: Stream | None, now: int) -> None:
        """All or nothing: a refused packet is not logged."""
        for origin, statement in found:
            self._verify(origin, statement, source, now)
        for origin, statement in found:
            self._note_latest(origin, statement)

    def _verify(self, origin: Stream, statement: Statement, source: Stream | None, now: int) -> None:
        """Verify a message from a member; raises an error if the origin has not signed it, or is itself the
        sender and has equivocated."""
        if not self._core.is_replaying and not self._seals.knows(origin, statement):
            try:
                self._seals.verify_statement(origin, statement)
            except RevokedKeyError as error:
                if source == origin:
                    raise RemoteError(str(error)) from error
                raise  # a forwarding member may not know of the revocation
        try:
            self._seals.add(origin, statement)
        except EquivocationError as error:
            # Members that have seen only this copy rightly accept it, so it is accepted here.
            self.report_equivocation(error, now)
            if source == origin and not self._core.is_replaying:
                raise

    def _note_latest(self, origin: Stream, statement: Statement) -> None:
        latest = self.latest.get(origin)
        if latest is None or statement.last > latest.last:
            self.latest[origin] = statement

    def _note_content(self, payload: bytes, message: MessageId) -> None:
        if not is_plain(payload) and isinstance(content := decode_content(payload), AdmitMember):
            self._note_admission(content, message)

    def accepts(self, packet: Packet) -> bool:
        """Whether to accept a packet that arrived before its sender was known here, or before a welcome.

        Revocation is ignored here, because a replay must decide the same.
        """
        if not self.is_on:
            return True
        if isinstance(packet, FetchReply):
            return False  # this member has not requested it
        with contextlib.suppress(RemoteError):
            member = self._core.member
            return all(
                self._accepts(member, message, payload, causes)
                for message, payload, causes in _messages(member, packet)
            )
        return False

    def _accepts(self, member: ChangingMember, message: MessageId, payload: bytes, causes: Causes) -> bool:
        origin, seq = message
        statement = _statement_of(seq, payload, causes)
        if self._contact_of(origin) is None:
            return not member.order.takes_unknown  # if accepted, it is verified later
        if not self._seals.knows(origin, statement) and not self._seals.is_signed(origin, statement):
            return False
        with contextlib.suppress(EquivocationError):
            self._seals.add(origin, statement)
        self._note_latest(origin, statement)
        self._note_content(payload, message)
        return True

    # Newcomers

    def statements(self, counts: Mapping[int, int]) -> dict[int, bytes]:
        if not self.is_on:
            return {}
        found = {stream: self._statement_on(MessageId(stream, counts[stream])) for stream in sorted(counts)}
        return {stream: _encode(each) for stream, each in found.items() if each is not None}

    def _statement_on(self, message: MessageId) -> Statement | None:
        """The statement on a message if it is certain to be kept, and so in a replay too: on the last message
        of a stream, or on a retained one."""
        (stream, seq), member = message, self._core.member
        latest = self.latest.get(stream)
        if latest is not None and latest.last == seq:
            return latest
        entry = member.unstable.get(stream, {}).get(seq)
        if entry is not None:
            for found, payload, causes in _messages(member, member.decode(entry.packet)):
                if found == message and is_sealed(payload):
                    return _statement_of(seq, payload, causes)
        return None

    def _check_welcome(self, member: ChangingMember, theirs: int, welcome: Welcome, now: int) -> None:
        """A newcomer accepts from its sponsor only what others have signed, and the state of the group."""
        sponsor, me = welcome.admission.origin, welcome.stream
        if me != admitted_stream(member.me, welcome.admission) or welcome.addresses.get(sponsor) != theirs:
            raise RemoteError("a welcome that is not by its sponsor, or not for this member")
        contacts = {stream: decode_contact(data) for stream, data in welcome.contacts.items()}
        for stream, address in welcome.addresses.items():
            _check_bound(stream, address, contacts.get(stream), welcome.admissions.get(stream))
        if any(report.delivered.get(me) for report in welcome.progress.values()):
            raise RemoteError("a welcome that reports deliveries of messages that do not exist yet")
        names, self._early_contacts = self._early_contacts, {**self._early_contacts, **contacts}
        try:
            self._check_passed_on(member, welcome, now)
        except RemoteError:
            self._early_contacts = names
            raise

    def _check_passed_on(self, member: ChangingMember, welcome: Welcome, now: int) -> None:
        admission, taken = None, []
        for data in welcome.messages:
            packet = member.decode(data)
            for message, payload, causes in _messages(member, packet):
                self.name_of(message.origin)
                taken.append((message.origin, _statement_of(message.seq, payload, causes)))
                self._note_content(payload, message)
                if message == welcome.admission:
                    admission = decode_content(payload)
        if not isinstance(admission, AdmitMember) or admission.counts != welcome.delivered:
            raise RemoteError("a welcome without the admission that its sponsor has signed")
        for stream, data in welcome.proven().items():
            try:
                statement = _statement_decoder.decode(data)
            except msgspec.DecodeError as error:
                raise RemoteError(f"not a statement: {error}") from error
            if statement.last != welcome.delivered.get(stream):
                raise RemoteError("a statement on another message than the last one in a welcome")
            taken.append((stream, statement))
        self._take_all(taken, None, now)

    # Equivocation

    def find(self, stream: Stream, seq: int) -> Statement | None:
        return self._seals.find(stream, seq)

    def examine(self, origin: Stream, statements: list[Statement]) -> float:
        """Examine another member's evidence on a stream that is not forgotten; returns the number of
        signatures verified."""
        core = self._core
        is_known = bool(core.members) and origin in core.member.order.delivered
        if is_known and self._contact_of(origin) is not None and origin not in self.liars:
            self._seals.examine(origin, statements)
        return float(len(statements))

    def report_equivocation(self, error: EquivocationError, now: int) -> None:
        """Remember the proof permanently."""
        if error.origin not in self.liars and not self._core.is_replaying:
            self._core.step(Equivocated(error.origin, list(error.statements), now))

    def check_honest(self, stream: Stream | None) -> None:
        """Raise a `RemoteError` if a member is proven to have equivocated."""
        if stream is not None and (proof := self.liars.get(stream)) is not None:
            name = self._core.label(stream)
            raise RemoteError(
                f"{name} has signed different messages under the same ids, from {name}:{proof[-1].first} on"
            )

    # Retention

    def follow(self, member: ChangingMember) -> None:
        """The view has changed or streams were forgotten: drop what concerned them."""
        alive = member.order.delivered.keys()
        gone = self._known.keys() - alive
        for stream in gone | ((member.tombstones.keys() - alive) & self.latest.keys()):
            self.latest.pop(stream, None)
            self.liars.pop(stream, None)
            self._seals.forget(stream)
        contacts = {stream: contact for stream in alive if (contact := self._contact_of(stream))}
        self._known = {stream: contact.name for stream, contact in contacts.items()}
        self._early_contacts = {
            stream: each for stream, each in self._early_contacts.items() if stream not in contacts
        }
        if self.signatures is not None:
            self._forget_certificates(self.signatures)

    def _forget_certificates(self, signatures: StreamSignatures) -> None:
        here = {*self._known.values(), self._core.name}
        here |= {each.name for table in (self._core.greeted, self._early_contacts) for each in table.values()}
        parted = [name for name in signatures.names if name not in here]
        kept = {name: None for name in self._parted if name in parted}
        self._parted = {**kept, **dict.fromkeys(parted)}
        while len(self._parted) > MAX_PARTED:
            name = next(iter(self._parted))
            del self._parted[name]
            signatures.forget(name)

    def save(self) -> SealState:
        certificates = [each for each in self.signatures.certificates if each] if self.signatures else []
        return SealState(self.latest, certificates, list(self._seals.key_starts.values()), self.liars)

    def load(self, state: SealState) -> None:
        self.liars = state.liars
        for start in state.key_starts:
            self._seals.record_key_start(start)
        self.latest = state.latest
        for stream, statement in state.latest.items():
            self._seals.add(stream, statement)
        for certificate in state.certificates:
            self.learn(certificate)
        for member in self._core.members.values():
            held = [each for entries in member.unstable.values() for each in entries.values()]
            for packet in (member.decode(entry.packet) for entry in held if not entry.place):
                for message, payload, _ in _messages(member, packet):
                    self._note_content(payload, message)

    def learn(self, certificate: bytes) -> bool:
        """Learn a certificate; returns whether it is new."""
        is_replaying = self._core.is_replaying
        return self.signatures is not None and self.signatures.learn(certificate, trusted=is_replaying)

    def on_key_started(self, record: KeyStarted) -> None:
        self._seals.record_key_start(record.start)

    def own_certificates(self, now: int) -> list[CertificateLearned]:
        """Records for the log: this member's certificates may be replaced before its signatures are known
        everywhere."""
        known = self.signatures.certificates if self.signatures else []
        return [CertificateLearned(each, now) for each in known if each]


class LiarLinks:
    """The links to members that are proven to equivocate, as `PartnerLink` queries them."""

    def __init__(self, core: ChangingCore) -> None:
        self._core = core

    def __contains__(self, link: int) -> bool:
        core = self._core
        if not core.sealing.liars or link not in core.links or not core.members:
            return False
        return core.member.stream_at.get(core.links[link][1]) in core.sealing.liars


class _NoSignatures:
    """Stands in for signatures in a group that does not sign."""

    certificates: list[bytes] = []  # noqa: RUF012

    def sign(self, statement: bytes) -> bytes:
        raise AssertionError("nothing is signed here")

    def signer(self, member: int, statement: bytes, signature: bytes) -> bytes | None:
        return None

    def is_revoked(self, member: int, key: bytes) -> bool:
        return False

    def check_partner(self, member: int, certificates: list[bytes]) -> None: ...

    def learn(self, certificate: bytes, trusted: bool = False) -> bool:
        return False


def _check_bound(stream: Stream, address: int, contact: Contact | None, admission: MessageId | None) -> None:
    is_bound = contact is not None and contact.address == address
    if not is_founder(stream):
        is_bound &= admission is not None and stream == admitted_stream(address, admission)
    if not is_bound:
        raise RemoteError("a welcome with members whose identity is not proven")


def _messages(member: ChangingMember, packet: Packet) -> Iterator[tuple[MessageId, bytes, Causes]]:
    """All messages in a packet: id, payload and causes of each."""
    if isinstance(packet, FetchReply):
        for data in packet.messages:
            yield from _messages(member, member.decode(data))
    elif not isinstance(packet, (ControlPacket, UnnumberedPacket, *member.order.control_packets)):
        for part in packet.messages if isinstance(packet, Bundle) else [packet]:
            causes: Causes = part.before if isinstance(part, SequencePacket) else getattr(part, "causes", {})
            for (origin, first, _), payloads in zip(part.spans(), part.payloads_by_span(), strict=True):
                for seq, payload in enumerate(payloads, first):
                    yield MessageId(origin, seq), payload, causes
                    causes = {}  # in a batch, only the first message names causes


def message_value(previous: bytes, payload: bytes, causes: Causes) -> bytes:
    """The chain value of a message with this payload (without its seal) and these causes."""
    return chain_value(previous, _encode((payload, sorted(causes.items()))))


def _statement_of(seq: int, payload: bytes, causes: Causes) -> Statement:
    content, seal = split_seal(payload)
    if not seal:
        raise RemoteError("a message without the signature of its origin")
    previous, signature = seal[:CHAIN_BYTES], seal[CHAIN_BYTES:]
    return Statement(seq, seq, previous, message_value(previous, content, causes), signature)
