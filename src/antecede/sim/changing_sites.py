"""A group that changes and has phones, which join, leave, and move from one super peer to another.

Phones are processes with addresses of their own, and in nobody's view. With `hcg` and `basic` they are the
local processes of a gateway. A phone whose super peer has crashed for good asks another one after a second;
one that was expelled asks at once. A super peer that is to leave sends its phones to others first.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from antecede.causality import MessageId
from antecede.membership.backlog import Backlog
from antecede.membership.freescale import ChangingFreescale
from antecede.membership.member import ChangingMember
from antecede.membership.packets import ApplicationData, decode_content, is_plain
from antecede.membership.phone import Phone
from antecede.membership.site_packets import author_id
from antecede.membership.state import Phase
from antecede.protocols.base import Effects, Packet
from antecede.protocols.flat import MessageBatch, MessagePacket
from antecede.protocols.freescale.packets import NumberedPacket
from antecede.sim.changes import Attach, Detach, Leave, Move
from antecede.sim.changing_world import ASK_AGAIN, Ask, ChangingGroupWorld
from antecede.sim.diagnosing_world import DiagnosingWorld
from antecede.sim.site_metrics import SiteMeter
from antecede.sim.workload import NEVER
from antecede.units import SECOND

_FAIL_OVER = SECOND
"""How long after the crash of its super peer a phone looks for another one."""


class _FailOver(NamedTuple):
    """The phones of the super peer at this address look for another one."""

    hub: int


class _Expel(NamedTuple):
    """The super peer of the phone at this address expels it."""

    phone: int


class ChangingSitesWorld(ChangingGroupWorld):
    """One run of such a group."""

    members: list[ChangingFreescale]  # type: ignore[assignment]

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._phones: dict[int, Phone] = {}
        """The phones, by address; each time that a phone asks for admission anew, it gets another address."""
        self._names: dict[MessageId, MessageId] = {}
        """Messages broadcast by phones: for each, its author's address, and its number there."""
        self._ended: set[int] = set()
        self._wants_to_leave: set[int] = set()
        super().__init__(*arguments, **options)
        self.sites = SiteMeter()

    def figures(self) -> dict[str, float]:
        return super().figures() | self.sites.figures()

    # Membership.

    def _active(self) -> list[int]:
        return [each for each in super()._active() if each not in self._phones]

    def _idle_phones(self) -> list[int]:
        """The phones that can leave or move."""
        return [each for each, phone in self._phones.items() if self._is_active(each) and phone.may_leave()]

    # Messages.

    def _named(self, message: MessageId) -> MessageId:
        return self._names.get(message) or super()._named(message)

    def _name_own(self, peer: int, message: MessageId) -> MessageId:
        if peer in self._phones:
            self._names[message] = MessageId(peer, self._broadcasts[peer])
        return self._named(message)

    def _application_messages(self, packet: Packet) -> list[MessageId]:
        """Between super peers, a phone's message belongs to its super peer's stream."""
        if isinstance(packet, NumberedPacket) or not isinstance(packet, MessagePacket | MessageBatch):
            return super()._application_messages(packet)
        payloads = [each for span in packet.payloads_by_span() for each in span]
        messages = zip(packet.message_ids(), payloads, strict=True)
        return [self._named(_identity(message, payload)) for message, payload in messages]

    def _apply(self, peer: int, effects: Effects) -> None:
        super()._apply(peer, effects)
        if peer in self._phones and peer not in self._ended:
            if self.members[peer].phase == Phase.ENDED:
                self.sites.left += 1
            if self.members[peer].phase in (Phase.ENDED, Phase.REMOVED):
                self._end(peer, "leave")

    def _end(self, phone: int, kind: str) -> None:
        """The last row of a phone at this address, if it has begun."""
        self._ended.add(phone)
        if phone not in self._joined_at:
            return
        last = MessageId(phone, self._broadcasts[phone] + 1)
        for observer in self._change_observers:
            observer.change(phone, kind, phone, last, self.now)

    # Joining.

    def _admit_all(self, member: ChangingMember) -> None:
        super()._admit_all(member)
        hub = self.members[member.me]
        while hub.site.requests:
            phone = hub.site.requests[0][0]
            for observer in self._snapshot_observers:
                observer.take_snapshot(hub.me, phone)
            self._apply(hub.me, hub.admit_phone(phone, b"", self._clock(hub.me)))

    def _attach(self, process: list[int], since: int, hub: int | None, backlog: Backlog) -> int | None:
        """A phone asks a super peer for admission, from an address of its own."""
        active = self._active()
        if len(self.members) >= self._most_processes or not active:
            return None
        address = len(self.members)
        member = self.members[0].phone_outside(address, address + 1)
        assert member.phone is not None  # noqa: S101
        self._add_process(member, process)
        self._phones[address] = member.phone
        self.sites.asked(address, since)
        member.bring_back(backlog)
        hub = hub if hub is not None and hub in active else self._pick(active)
        self._apply(address, member.attach(hub, self._clock(address)))
        self._schedule_change(self.now + ASK_AGAIN, Ask(address))
        return address

    def _on_start(self, address: int) -> None:
        if address in self._phones:
            self.sites.let_in(address, self.now)
        else:
            super()._on_start(address)

    def _ask_again(self, address: int) -> None:
        phone, process = self._phones.get(address), self._attempts[address]
        if phone is None:
            super()._ask_again(address)
        elif phone.phase == Phase.JOINING and address == process[-1] and not self.is_down(address):
            self._attach(process, self.sites.asked_at(address), None, phone.brought)

    def _return(self, address: int) -> None:
        if address not in self._phones or self.is_down(address):
            super()._return(address)
            return
        fresh = self._attach([], self.now, None, self.members[address].make_backlog())
        if fresh is not None:
            self.sites.returned += 1
            if address in self._wants_to_leave:
                self._try_again(Detach(self.now, fresh))

    # Changes.

    def _on_change(self, peer: int, source: int, change: Any) -> None:
        match change:
            case Attach(_, hub):
                self._changes_left -= 1
                self._attach([], self.now, hub, Backlog())
            case Detach(_, phone):
                self._changes_left -= 1
                self._detach(phone)
            case Move(_, phone, hub):
                self._changes_left -= 1
                self._move(phone, hub)
            case _FailOver(hub):
                self._changes_left -= 1
                self._fail_over(hub)
            case _Expel(phone):
                self._changes_left -= 1
                self._expel(phone)
            case Leave(_, phone) if phone in self._phones:
                self._changes_left -= 1
                self._detach(phone)
            case _:
                super()._on_change(peer, source, change)

    def _detach(self, address: int | None) -> None:
        idle = self._idle_phones()
        if address is None:
            if not idle:
                return
            address = self._pick(idle)
        phone = self._phones.get(address)
        if phone is None or phone.phase not in (Phase.JOINING, Phase.MEMBER) or self.is_down(address):
            return
        if not phone.may_leave():
            self._try_again(Detach(self.now, address))
            return
        self._wants_to_leave.add(address)
        self._apply(address, self.members[address].detach(self._clock(address)))

    def _move(self, address: int | None, hub: int | None) -> None:
        idle = self._idle_phones()
        if address is None and idle:
            address = self._pick(idle)
        if address not in idle:
            return
        phone = self._phones[address]
        others = [each for each in self._active() if phone.may_move(each)]
        if others:
            self.sites.moves += 1
            to = hub if hub in others else self._pick(others)
            self._apply(address, self.members[address].move(to, self._clock(address)))

    def _leave(self, change: Leave) -> None:
        """The phones of a super peer that is to leave move to others first."""
        if change.peer is not None and self._is_active(change.peer):
            site = self.members[change.peer].site
            for phone in sorted(site.slots.keys() & set(self._idle_phones())):
                self._move(phone, None)
        super()._leave(change)

    def _remove(self, address: int, by: int | None) -> None:
        if address in self._phones:
            self._expel(address)
        else:
            super()._remove(address, by)

    def _expel(self, address: int) -> None:
        for hub in self._active():
            site = self.members[hub].site
            if address in site.slots or address in site.coming:
                self._apply(hub, self.members[hub].expel(address, self._clock(hub)))
        if self.down_until.get(address) == NEVER and address not in self._ended:
            self._end(address, "remove")

    def _crash(self, peer: int, until: int) -> None:
        super()._crash(peer, until)
        if self.down_until.get(peer) != NEVER:
            return
        if peer not in self._phones:
            self._schedule_change(self.now + _FAIL_OVER, _FailOver(peer))
        elif self._settings.remove is not None:
            self._schedule_change(self.now + self._settings.remove, _Expel(peer))

    def _fail_over(self, hub: int) -> None:
        for address, phone in list(self._phones.items()):
            places = (phone.here, phone.coming)
            relied_on = {phone.contact, *(place.hub for place in places if place is not None)}
            if hub not in relied_on or phone.phase not in (Phase.MEMBER, Phase.JOINING, Phase.LEAVING):
                continue
            if self.is_down(address):
                if (until := self.down_until[address]) < NEVER:
                    self._schedule_change(until, _FailOver(hub))
            elif not phone.is_giving_up or phone.here is None or phone.here.hub == hub:
                self._apply(address, self.members[address].give_up({hub}, self._clock(address)))

    # The end.

    def _is_settled(self) -> bool:
        if not super()._is_settled():
            return False
        sites = [self.members[each].site for each in self._active()]
        if any(site.requests or site.coming or site.unstable for site in sites):
            return False
        return all(
            phone.coming is None and not phone.is_giving_up and phone.contact == phone.here.hub
            for address, phone in self._phones.items()
            if phone.phase == Phase.MEMBER and phone.here is not None and not self.is_down(address)
        )


class DiagnosingSitesWorld(ChangingSitesWorld, DiagnosingWorld):
    """The same, where super peers detect failures by VCube's tests."""


def _identity(message: MessageId, payload: bytes) -> MessageId:
    """The id under which applications know a message of a super peer's stream."""
    if is_plain(payload):
        return message
    content = decode_content(payload)
    if not isinstance(content, ApplicationData):
        return message
    if content.original is not None:
        return content.original
    if content.sent_by is None:
        return message
    slot, seq = content.sent_by
    return MessageId(author_id(message.origin, slot), seq)
