"""End-to-end encryption in a dynamic group: who can read which messages, and with which keys.

There is no group key on which all would have to agree. Each sender has its own (a *sender key*) for an
*epoch*, which lasts until somebody leaves, and sends it, encrypted for each reader, along with its first
message. Causal order does the rest: a receiver has the key before any message that needs it, and a member
that has delivered a removal no longer encrypts for the removed one.

- A *newcomer* gets from its contact, along with the state, the readers' public keys and the current links of
  their chains. The key of an epoch that begins before its sender knows the newcomer comes from the contact,
  or from the sender if the newcomer was in its view. Until then the newcomer's application waits.
- A *relay* has no keys of its own, and passes on public ones. A phone behind it reads the messages of senders
  that know the phone.
- *Phones* do not know the view. Members announce departures to them (`ReadersGone`).

All of this is a function of what is delivered and broadcast here, so a replay of the log reproduces it;
anything random or time-dependent is in the messages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import msgspec

from antecede.causality import MessageId
from antecede.live.changing.chains import Chains
from antecede.live.changing.events import Declined, ReadingBegun, ReadingKeyMade, Sponsored, TransferBegun
from antecede.live.changing.gifts import Gift, collect_gifts
from antecede.live.changing.readability import Readability
from antecede.live.changing.readers import Readers
from antecede.live.changing.reading_places import Departures, PhonePlaces, Places
from antecede.live.changing.secret_messages import (
    MAX_INDEX,
    MAX_WANTED,
    AboutKeys,
    ChainLink,
    Cut,
    Due,
    EncryptedBody,
    EncryptedContent,
    Epoch,
    EpochId,
    KeysGiven,
    KeysWanted,
    Offer,
    Reader,
    ReaderId,
    ReadersGone,
    SecrecyState,
    decode_offer,
    encode,
    encode_offer,
    envelope_about_keys,
    is_about_keys,
    is_encrypted,
    opened,
    read_about_keys,
    read_content,
    read_encrypted,
    read_links,
)
from antecede.live.changing.snapshots import SnapshotTransfer, decode_state
from antecede.live.envelope import ADDRESSED, PHONE_ORIGINS, origin_in
from antecede.live.headers import About
from antecede.live.security import group_keys
from antecede.live.security.group_keys import ReaderKeys
from antecede.live.security.identity import Security
from antecede.membership.packets import is_founder
from antecede.protocols.base import Delivery, LocalError, RemoteError

if TYPE_CHECKING:
    from antecede.live.changing.core import ChangingCore
    from antecede.live.changing.phone import PhoneCore

_MAX_REFUSED = 1_024
_MAX_CUTS = 1_024
_ADDRESSED_KIND = bytes([ADDRESSED])


class Secrecy:
    """The encryption of one process. Unless it `reads`, it has no keys, and only passes on who the readers
    are."""

    def __init__(self, core: ChangingCore, group: str, security: Security, reads: bool) -> None:
        self._core, self._group, self.reads = core, group, reads
        is_phone = core.is_phone_core
        self._places = PhonePlaces(cast("PhoneCore", core)) if is_phone else Places(core)
        self._readers, self._chains = Readers(group, security, self._places), Chains()
        self._departures = Departures(core)
        self._keys: ReaderKeys | None = None
        self.problems: dict[str, str] = {}
        """By sender name, why a message was not given to the application."""
        self._opened: tuple[MessageId, Delivery] | None = None
        self._wanted: dict[tuple[ReaderId, EpochId], None] = {}
        """Epochs whose keys this reader is going to request."""
        self.load(SecrecyState())

    # Records and checkpoints

    def load(self, state: SecrecyState) -> None:
        self.state = self._readers.state = self._chains.state = state
        if state.seed:
            self._keys = ReaderKeys(state.seed)

    @property
    def keys(self) -> ReaderKeys:
        """This reader's own keys."""
        if self._keys is None or not self.reads:
            raise LocalError("a relay has no keys, and broadcasts nothing")
        return self._keys

    @property
    def has_keys(self) -> bool:
        return self.reads and self._keys is not None

    def new_key(self, now: int) -> ReadingKeyMade | None:
        """The record that must be logged before this process can read."""
        return ReadingKeyMade(group_keys.new_seed(), now) if self.reads and self._keys is None else None

    def begin(self, event: ReadingKeyMade | ReadingBegun) -> None:
        if isinstance(event, ReadingBegun):
            self._take_offer(event)
        else:
            self.state.seed = event.seed
            self._keys = ReaderKeys(event.seed)

    def note(self, event: object) -> None:
        """An event was handled: record which newcomers receive a state with keys, and which are declined
        after that."""
        match event:
            case Sponsored():
                state = decode_state(event.state) if event.state else None
                self._note_cut(event.address, None if state is None else state.transfer)
                self.state.relays.discard(event.address)
            case TransferBegun():
                self._note_cut(event.address, event.transfer)
            case Declined() if event.address in self.state.cuts:
                self._note_departure(event.address)

    def note_change(self, departed: int) -> None:
        """The view has changed other than by an admission. `departed` is the address of a member that left,
        or 0."""
        self._readers.changed()
        if departed:
            self._note_departure(departed)

    def note_admission(self, address: int) -> None:
        """A process at this address is a member from now on."""
        self._readers.changed()
        self.state.admitted[address] = self._core.position

    def _note_departure(self, address: int) -> None:
        self.state.is_exposed = True
        self.state.admitted.pop(address, None)
        if self._core.has_phones or address in self.state.cuts:
            self.state.departed.add(address)

    # Newcomers

    def offer(self, has_state: bool) -> bytes:
        """The keys that a newcomer receives before the application's state."""
        state = self.state
        keys = self._chains.current() if self.reads else []
        cut, readers = None, [*state.readers.values()]
        if self.has_keys:
            cut = Cut(self.keys.id, [(sender, epoch, index) for sender, epoch, _, index in keys])
            cut = msgspec.structs.replace(cut, signature=self.keys.sign(self._readers.statement(cut)))
        silent = sorted(self.silent)
        return encode_offer(Offer(readers, state.gone, keys, self.reads, has_state, silent, cut))

    def _take_offer(self, event: ReadingBegun) -> None:
        """This process was admitted: its contact's offer replaces what it knew."""
        state = self.state
        offer = decode_offer(event.offer) if event.offer else Offer([], {}, [], False, False, [])
        me = self.keys.id if self.has_keys else b""
        self._chains.begin_again(me)
        state.is_exposed = True
        self._readers.replace(offer.readers, offer.gone)
        state.has_history, state.cut = event.has_history, offer.cut
        state.silent = set(offer.silent) if self._core.is_phone_core else set()
        state.contact = self._places.contact if offer.is_reader or event.has_history else 0
        for sender, epoch_id, link, index in offer.keys:
            if sender == me:
                continue
            epoch = self._meet(sender, epoch_id)
            self._chains.take(epoch, link)
            epoch.first = epoch.next = index

    def _note_cut(self, address: int, transfer: SnapshotTransfer | None) -> None:
        """A newcomer at this address receives a state."""
        if self.reads:
            cuts, position = self.state.cuts, self._core.position
            if transfer is not None:
                position = transfer.first if transfer.digest else -1
            cuts[address] = position
            while len(cuts) > _MAX_CUTS:
                del cuts[next(iter(cuts))]

    def _sponsor(self, newcomer: ReaderId, position: int) -> None:
        """Give a newcomer the keys of epochs that began after its state was taken; all epochs, with the
        history."""
        state = self.state
        state.sponsored[newcomer] = position
        state.due += [
            Due(newcomer, sender, epoch_id)
            for sender, epoch_id, epoch in self._chains.all()
            if epoch.position > position and sender != newcomer
        ]
        if position < 0:
            state.due.append(Due(newcomer, b"", b""))

    # Deliveries and broadcasts

    def observe(self, delivery: Delivery, is_own: bool = False) -> None:
        """A message was delivered by the protocol, or broadcast here."""
        try:
            if is_about_keys(delivery.payload):
                self._on_about_keys(delivery, is_own)
            elif is_encrypted(delivery.payload):
                if self.reads:
                    self._on_encrypted(read_encrypted(delivery.payload))
            elif delivery.payload[1:2] != _ADDRESSED_KIND or self._core.is_phone_core:
                raise RemoteError("it is not encrypted, as this group's messages are")
        except RemoteError as error:
            refused = self.state.refused
            refused[delivery.message] = str(error)
            while len(refused) > _MAX_REFUSED:
                del refused[next(iter(refused))]
            if is_about_keys(delivery.payload):
                self._report(delivery, str(error))

    def _on_about_keys(self, delivery: Delivery, is_own: bool) -> None:
        match read_about_keys(delivery.payload):
            case Reader() as reader:
                self._on_reader(reader, is_own)
            case ReadersGone() as gone:
                if delivery.message.origin >= PHONE_ORIGINS:
                    raise RemoteError("it reports departures, and is a phone")
                self._on_gone(gone)
                if is_own and self._core.address in gone.addresses:
                    self.state.announced = self._places.own
            case KeysGiven() as gift:
                self._on_gift(gift)
            case KeysWanted() as wanted:
                self._on_wanted(wanted)

    def _on_reader(self, reader: Reader, is_own: bool) -> None:
        state = self.state
        if not self._readers.add(reader, is_own):
            return
        if is_own:
            state.version, state.announced = reader.version, (reader.address, reader.behind)
        elif reader.address in state.cuts:
            newcomer = group_keys.reader_id(reader.decryption_key, reader.signing_key)
            self._sponsor(newcomer, state.cuts.pop(reader.address))

    def _on_gone(self, gone: ReadersGone) -> None:
        state = self.state
        for each, version in gone.readers.items():
            self._readers.mark_gone(each, version)
            if not self._readers.is_active(each):
                state.sponsored.pop(each, None)
        state.due = [each for each in state.due if each.to not in gone.readers]
        state.is_exposed = True
        state.departed.difference_update(gone.addresses)
        state.silent.difference_update(gone.addresses)
        state.relays.update(gone.addresses)
        for _, _, epoch in self._chains.all():
            for address in gone.addresses:
                epoch.owed.pop(address, None)
        for address in gone.addresses:
            state.cuts.pop(address, None)

    def _on_encrypted(self, body: EncryptedBody) -> None:
        me, state = self.keys.id, self.state
        self._readers.verify(body.sender, body)
        is_new = self._chains.find(body.sender, body.epoch) is None
        epoch = self._meet(body.sender, body.epoch)
        if body.sender != me and body.index < epoch.next:
            raise RemoteError("it was sent before, as another message")
        if is_new:
            epoch.first = body.index
        epoch.next = max(epoch.next, body.index + 1)
        if body.sender == me:
            state.current = body.epoch
            state.is_exposed &= not is_new
            epoch.recipients |= body.wrapped.keys()
        elif is_new:
            lack = [each for each in state.sponsored if each not in body.wrapped and self.is_active(each)]
            state.due += [Due(each, body.sender, body.epoch) for each in lack]
        self._note_owed(body, epoch, is_new)
        epoch.is_owed |= self._core.address in body.owed
        if me in body.wrapped:
            context = self._key_context(body.sender, body.epoch)
            key = self.keys.unwrap(body.ephemeral, body.wrapped[me], context)
            if key is None or (not body.index and group_keys.epoch_of(key) != body.epoch):
                raise RemoteError("the key that its sender has sent along cannot be used")
            self._chains.take(epoch, ChainLink(body.index, key))

    def _note_owed(self, body: EncryptedBody, epoch: Epoch, is_new: bool) -> None:
        for address in body.owed:
            epoch.owed.setdefault(address, body.index)
        if is_new:
            there = self._members | {self._core.address}
            self.state.relays &= there
            for each in self.state.epochs[body.sender].values():
                each.owed = {address: index for address, index in each.owed.items() if address in there}

    def _on_gift(self, gift: KeysGiven) -> None:
        state, giver = self.state, self._readers.verify(gift.giver, gift)
        to, own = state.readers.get(gift.to), state.epochs.get(gift.giver, {})
        for sender, epoch_id in gift.epochs:
            if to is not None and sender == gift.giver and epoch_id in own:
                own[epoch_id].owed.pop(to.address, None)
        if self.has_keys and gift.giver == self.keys.id:
            answered = {(b"", b""), *gift.epochs}
            state.due = [
                each for each in state.due if each.to != gift.to or (each.sender, each.epoch) not in answered
            ]
        elif self.has_keys and gift.to == self.keys.id:
            self._take_gift(gift, giver.address == state.contact != 0)

    def _take_gift(self, gift: KeysGiven, is_contact: bool) -> None:
        """Accept keys from another reader: of that reader's own epochs, from this reader's contact, or
        because this reader asked for them."""
        context = self._key_context(gift.giver, b"")
        data = self.keys.unwrap(gift.ephemeral, gift.links, context)
        if data is None or len(links := read_links(data)) != len(gift.epochs):
            raise RemoteError("keys that cannot be decrypted")
        for (sender, epoch_id), link in zip(gift.epochs, links, strict=True):
            epoch = self._chains.find(sender, epoch_id)
            if epoch is not None and epoch.asked is not None and gift.giver in epoch.asked:
                epoch.asked.remove(gift.giver)
                if link is not None:
                    self._chains.take(epoch, link)
            elif sender == gift.giver or is_contact:
                self._chains.take_gift(sender, epoch_id, link, self._core.position)
        if is_contact and self.state.has_history:
            self._chains.give_up_past()

    def _on_wanted(self, wanted: KeysWanted) -> None:
        """Answer a request for keys. The requester may have a key if its sender has promised it, if it was a
        member before the epoch began, or if the state that it started with precedes the epoch."""
        reader, cut = self._readers.verify(wanted.reader, wanted), wanted.cut
        if self.has_keys and wanted.reader == self.keys.id:
            self._note_asked(wanted)
        if not self.has_keys or wanted.reader == self.keys.id or self._core.is_phone_core:
            return
        if cut is not None:
            self._readers.verify(cut.contact, cut)
        for sender, epoch_id in wanted.epochs:
            epoch = self._chains.find(sender, epoch_id)
            first = -1
            if epoch is not None and self.is_active(wanted.reader):
                was_there = self.state.admitted.get(reader.address, epoch.position) < epoch.position
                promised = epoch.owed.get(reader.address, -1)
                after_cut = -1 if cut is None else self._chains.first_after(cut, sender, epoch_id)
                owed = [index for index in (promised, after_cut) if index >= 0]
                first = 0 if was_there else min(owed, default=-1)
            self.state.due.append(Due(wanted.reader, sender, epoch_id, first, is_asked=True))

    def _note_asked(self, wanted: KeysWanted) -> None:
        members = [each for each, reader in self.state.readers.items() if not reader.behind]
        asked = [each for each in members if each != wanted.reader and self.is_active(each)]
        for sender, epoch_id in wanted.epochs:
            epoch = self._chains.find(sender, epoch_id)
            if epoch is not None and epoch.asked is None:
                epoch.asked = list(asked)

    def _meet(self, sender: ReaderId, epoch_id: EpochId) -> Epoch:
        core = self._core
        return self._chains.meet(sender, epoch_id, core.position, core.has_backfill, core.retains)

    def is_active(self, reader: ReaderId) -> bool:
        """Whether this reader is present now, as far as is known here."""
        return self._readers.is_active(reader)

    # Pending broadcasts

    def announcement(self, now: int) -> bytes | None:
        """The announcement of this reader's keys, if it is due; or that this member does not read."""
        state, place = self.state, self._places.own
        if not self.reads:
            is_said = state.announced == place
            return None if is_said else self._payload(ReadersGone({}, [self._core.address]), now)
        if self._keys is None:
            return None
        gone = state.gone.get(self.keys.id, -1)
        if (state.announced == place and gone < state.version) or -1 in place:
            return None
        version = max(state.version, gone, 0) + 1
        return self._payload(self._readers.announcement(self._core.name, self.keys, place, version), now)

    def departures(self, now: int) -> bytes | None:
        """The departures to announce."""
        if self._core.is_phone_core:
            return None
        readers, addresses = self._departures.find(self.state, self._places, now / 1e9)
        if not readers and not addresses:
            return None
        gone = {each: self.state.readers[each].version for each in readers}
        return self._payload(ReadersGone(gone, addresses), now)

    def question(self, now: int) -> bytes | None:
        """A request for keys that this reader lacks because the members that owed them have left."""
        if not self._wanted or not self.has_keys:
            return None
        wanted, self._wanted = self._wanted, {}
        epochs = [each for each in wanted if (epoch := self._chains.find(*each)) and epoch.asked is None]
        if not epochs:
            return None
        question = KeysWanted(self.keys.id, epochs[:MAX_WANTED], self.state.cut)
        signature = self.keys.sign(self._readers.statement(question))
        return self._payload(msgspec.structs.replace(question, signature=signature), now)

    def gifts(self, now: int) -> list[bytes]:
        """The keys that are due to readers who lack them."""
        if not self.has_keys:
            return []
        found = collect_gifts(self.state, self._chains, self.keys.id, self.is_active, self._is_owed)
        return [self._give(to, gift, now) for to, gift in found.items()]

    def _give(self, to: ReaderId, gift: Gift, now: int) -> bytes:
        is_trusted = self._readers.is_trusted(to)
        content = encode([link if is_trusted else None for link in gift.values()])
        public = {to: self.state.readers[to].decryption_key}
        context = self._key_context(self.keys.id, b"")
        ephemeral, wrapped = group_keys.wrap({to: content}, public, context)
        given_keys = KeysGiven(self.keys.id, to, [*gift], ephemeral, wrapped.get(to, b""))
        signature = self.keys.sign(self._readers.statement(given_keys))
        return self._payload(msgspec.structs.replace(given_keys, signature=signature), now)

    def _payload(self, message: AboutKeys, now: int) -> bytes:
        return envelope_about_keys(message, self._places.author, now)

    # Encrypting

    def encrypting(self, about: About) -> About:
        """The metadata for a message that only readers can decrypt."""
        if not self.has_keys:
            raise LocalError("a relay has no keys, and broadcasts nothing")

        def seal(kind: int, body: bytes) -> bytes:
            return encode(self._encrypt(EncryptedContent(kind, body, about.content_type, about.headers)))

        return msgspec.structs.replace(about, seal=seal, is_encrypted=True)

    def _encrypt(self, content: EncryptedContent) -> EncryptedBody:
        me, state = self.keys.id, self.state
        readers = {**self._readers.trusted(), me: self.keys.decryption_key}
        epoch_id, epoch = state.current, self._chains.find(me, state.current)
        link = None if epoch is None else self._chains.link(epoch_id, epoch, epoch.next)
        if epoch is None or link is None or self._must_change(epoch, readers.keys()):
            epoch, link = Epoch(0), ChainLink(0, group_keys.new_chain())
            epoch_id = group_keys.epoch_of(link.key)
        ephemeral, wrapped = b"", dict[ReaderId, bytes]()
        if new := readers.keys() - epoch.recipients:
            contents = dict.fromkeys(sorted(new), link.key)
            ephemeral, wrapped = group_keys.wrap(contents, readers, self._key_context(me, epoch_id))
            if unusable := new - wrapped.keys():
                self._readers.exclude(unusable)
        owed = sorted(self.silent - epoch.owed.keys())
        context = self._content_context(me, epoch_id, link.index)
        encrypted = group_keys.encrypt(link.key, encode(content), context)
        body = EncryptedBody(me, epoch_id, link.index, ephemeral, wrapped, owed, encrypted)
        return msgspec.structs.replace(body, signature=self.keys.sign(self._readers.statement(body)))

    @property
    def silent(self) -> set[int]:
        """The addresses of members that have not announced any keys."""
        state = self.state
        return self._members - {each.address for each in state.readers.values()} - state.relays

    @property
    def owes_keys(self) -> bool:
        """Whether some reader could not decrypt this reader's broadcasts if it left now."""
        if not self.has_keys:
            return False
        return any(epoch.owed for epoch in self.state.epochs.get(self.keys.id, {}).values())

    @property
    def _members(self) -> set[int]:
        """The addresses of the other members, as far as they are known."""
        return self.state.silent if self._core.is_phone_core else self._places.others

    def _must_change(self, epoch: Epoch, readers: object) -> bool:
        """Whether the epoch is over: a reader that may have its key has left, or may no longer have it."""
        is_lacking = not epoch.recipients <= readers  # type: ignore[operator]
        return self.state.is_exposed or is_lacking or epoch.next >= MAX_INDEX

    # Decrypting

    def readability(self, delivery: Delivery) -> Readability:
        """What to do with the next message for the application."""
        if self._opened is not None and self._opened[0] == delivery.message:
            return Readability.GIVE
        if delivery.payload[1:2] == _ADDRESSED_KIND and not self._core.is_phone_core:
            return Readability.GIVE
        if is_about_keys(delivery.payload) or not self.reads:
            return Readability.SKIP
        reason = self.state.refused.get(delivery.message)
        try:
            if reason is None:
                body = read_encrypted(delivery.payload)
                if (link := self._link_of(body)) is None:
                    return self._readability_without_key(body, delivery)
                self._opened = delivery.message, self._decrypt(delivery, body, link)
                self.problems.pop(self._name(delivery), None)
                return Readability.GIVE
        except RemoteError as error:
            reason = str(error)
        self._report(delivery, reason or "")
        return Readability.SKIP

    def _link_of(self, body: EncryptedBody) -> ChainLink | None:
        epoch = self._chains.find(body.sender, body.epoch)
        return None if epoch is None else self._chains.link(body.epoch, epoch, body.index)

    def _readability_without_key(self, body: EncryptedBody, delivery: Delivery) -> Readability:
        """Wait for the key, if a reader that owes it is present."""
        epoch, state = self._chains.find(body.sender, body.epoch), self.state
        if epoch is not None and self._is_owed(body.sender, epoch):
            if epoch.asked is None and not self._will_come(body.sender, epoch):
                self._wanted[body.sender, body.epoch] = None
            return Readability.WAIT
        is_known = any(each.link or each.is_owed for each in state.epochs.get(body.sender, {}).values())
        if is_known or state.contact or self._is_founder:
            self._report(delivery, "nobody who is there has given its key to this reader")
        return Readability.SKIP  # otherwise it was sent before its sender knew this reader

    def _is_owed(self, sender: ReaderId, epoch: Epoch | None) -> bool:
        """Whether a reader that is present may still give a missing epoch's key."""
        if epoch is None:
            return False
        if self._will_come(sender, epoch):
            return True
        if not (epoch.is_owed or self.state.contact):
            return False
        return epoch.asked is None or any(self.is_active(each) for each in epoch.asked)

    def _will_come(self, sender: ReaderId, epoch: Epoch) -> bool:
        """Whether the key arrives without being requested."""
        if epoch.is_owed and self.is_active(sender):
            return True
        return not epoch.is_lost and self._gives(self.state.contact)

    @property
    def _is_founder(self) -> bool:
        return not self._core.is_phone_core and is_founder(self._core.me)

    def _gives(self, contact: int) -> bool:
        """Whether the contact is present, and gives missing keys."""
        if not contact:
            return False
        readers = self.state.readers.items()
        found = next((each for each, reader in readers if reader.address == contact), None)
        return self._places.is_in_view(contact) if found is None else self.is_active(found)

    def open(self, delivery: Delivery) -> Delivery:
        """The message as its sender's application has broadcast it; unchanged if it cannot be decrypted
        here."""
        if not is_encrypted(delivery.payload) or not self.reads:
            return delivery
        if self._opened is not None and self._opened[0] == delivery.message:
            return self._opened[1]
        try:
            body = read_encrypted(delivery.payload)
            link = self._link_of(body)
            return delivery if link is None else self._decrypt(delivery, body, link)
        except RemoteError:
            return delivery

    def _decrypt(self, delivery: Delivery, body: EncryptedBody, link: ChainLink) -> Delivery:
        name, sender = self._name(delivery), self.state.readers.get(body.sender)
        if sender is None or (name and sender.name != name):
            raise RemoteError(f"it is encrypted by {sender.name if sender else 'somebody else'}")
        context = self._content_context(body.sender, body.epoch, body.index)
        data = group_keys.decrypt(link.key, body.content, context)
        if data is None:
            raise RemoteError("it cannot be decrypted with the key that was given for it")
        return opened(delivery, read_content(data))

    def _name(self, delivery: Delivery) -> str:
        """The label of a message's sender; empty if that is forgotten."""
        return origin_in(delivery, self._core.labels).partition("~")[0]

    def _report(self, delivery: Delivery, reason: str) -> None:
        name = self._name(delivery) or "a former member"
        if not self._core.is_replaying:
            self.problems[name] = f"a message of {name} cannot be read: {reason}"

    def _key_context(self, sender: ReaderId, epoch: EpochId) -> bytes:
        return self._group.encode() + b"\0" + sender + epoch

    def _content_context(self, sender: ReaderId, epoch: EpochId, index: int) -> bytes:
        return self._key_context(sender, epoch) + index.to_bytes(4, "big")
