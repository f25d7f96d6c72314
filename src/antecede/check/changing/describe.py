"""A schedule of a changing group for people: in words, and as a diagram."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from antecede.causality import MessageId
from antecede.check.changing.overlap import OverlapWorld
from antecede.check.changing.sites import SiteWorld
from antecede.check.changing.world import ChangingViolation, ChangingWorld, ScheduleEvent
from antecede.check.schedule import ShownCounterExample, ShownStep
from antecede.membership.freescale import ChangingFreescale
from antecede.membership.member import ChangingMember
from antecede.membership.multigroup import ChangingMultigroup
from antecede.membership.packets import (
    AdmitMember,
    ApplicationData,
    Content,
    Departure,
    Disowning,
    Expulsion,
    FlushReport,
    ProgressReport,
    Removal,
    Stream,
    decode_content,
)
from antecede.membership.site_packets import SiteDownlink
from antecede.membership.state import ViewChange
from antecede.membership.view_flooding import UnnumberedPacket
from antecede.protocols.base import Effects, Packet
from antecede.protocols.freescale.packets import UplinkPacket
from antecede.report.schedule_diagram import Arrow, DrawnEvent, DrawnPacket, DrawnSchedule, draw_schedule

_WORDS = {
    "report": "reports its progress",
    "leave": "leaves",
    "crash": "crashes",
    "freeze": "stands still",
    "thaw": "goes on",
    "join": "asks p{other} to be admitted",
    "ask": "asks p{other} to be admitted, at another address",
    "return": "asks p{other} to be admitted again",
    "remove": "removes p{other}",
    "suspect": "suspects p{other}",
    "forward": "and all others forward to newcomers from now on",
    "trust": "trusts p{other}",
    "cut": "loses touch with p{other}",
    "heal": "is in touch with p{other} again",
    "attach": "asks p{other} for a slot",
    "detach": "leaves",
    "move": "moves to p{other}",
    "orphan": "gives up: its super peer is gone",
    "expel": "expels p{other}",
}
_CHANGES = {"admit": "is admitted", "leave": "has left", "remove": "is removed", "disown": "is nobody"}
_PACKETS = {"progress": "counts", "fetched": "messages", "departed": "confirmation"}


class DescribedWorld(ChangingWorld):
    """Plays a schedule and describes what happens. Messages of the application are numbered like others."""

    def __init__(self, kind: type[ChangingMember], founders: int, size: int) -> None:
        super().__init__(kind, founders, size)
        self.steps: list[ShownStep] = []
        self.drawn = DrawnSchedule([f"p{each.me}" for each in self.members])
        self._flights: dict[tuple[int, int], deque[DrawnPacket]] = {}
        self._shown: dict[int, int] = {}
        """How many events of each application the steps already show."""
        self._news: list[ViewChange] = []
        """What has changed since the last step."""

    def apply(self, event: ScheduleEvent) -> bool:
        kind, address, other = event
        packet = self._next_packet(address, other) if kind == "transmit" else None
        self.drawn.end = time = len(self.steps) + 1
        if not super().apply(event):
            return False
        if packet is not None:
            self.steps.append(ShownStep(f"p{other}", f"receives {self.name_packet(packet)} from p{address}"))
            flight = self._flights[address, other].popleft()
            self.drawn.arrows.append(Arrow(f"p{address}", f"p{other}", flight, time, True))
        elif kind in ("broadcast", "deliver"):
            self._tell(kind, address, time)
        else:
            self.steps.append(ShownStep(f"p{address}", _WORDS[kind].format(other=other)))
        return True

    def _next_packet(self, source: int, to: int) -> Packet | None:
        queue = self.links.get((source, to))
        return queue[0] if queue else None

    def _tell(self, kind: str, address: int, time: int) -> None:
        message = self._last_of_application(address, kind)
        if message is None:
            self._tell_changes(address, time)
            return
        name = self.name(message)
        event = DrawnEvent(f"p{address}", time, name)
        (self.drawn.sends if kind == "broadcast" else self.drawn.deliveries).append(event)
        if kind == "broadcast":
            self.drawn.messages.append(name)
        self.steps.append(ShownStep(f"p{address}", f"{kind}s {name}"))

    def _last_of_application(self, address: int, kind: str) -> MessageId | None:
        events = self.lives[address].events
        is_new = len(events) > self._shown.get(address, 0)
        self._shown[address] = len(events)
        return events[-1][1] if is_new else None

    def _tell_changes(self, address: int, time: int) -> None:
        news = [f"{self.address(each.member)} {_CHANGES[each.kind]}" for each in self._news]
        self.steps.append(
            ShownStep(f"p{address}", f"learns that {', '.join(news)}" if news else "takes note")
        )
        self.drawn.deliveries.append(DrawnEvent(f"p{address}", time, ", ".join(news)))

    def _carry_out(self, address: int, effects: Effects) -> None:
        time = len(self.steps) + 1
        self._news = [each for each in self.members[address].changes if each.kind != "close"]
        for send in effects.sends:
            label = self.name_packet(send.packet)
            for to in send.to:
                flights = self._flights.setdefault((address, to), deque())
                flights.append(DrawnPacket(label, label, time))
        super()._carry_out(address, effects)

    def finish(self) -> None:
        """Also draw what has not arrived."""
        self.drawn.peers = [f"p{each.me}" for each in self.members if self._takes_part(each)]
        known = set(self.drawn.peers)
        self.drawn.arrows = [each for each in self.drawn.arrows if {each.source, each.to} <= known]
        for (source, to), flights in self._flights.items():
            for flight in flights:
                if {f"p{source}", f"p{to}"} <= known:
                    arrow = Arrow(f"p{source}", f"p{to}", flight, self.drawn.end + 1, False)
                    self.drawn.lost.append(arrow)

    def _takes_part(self, member: ChangingMember) -> bool:
        return member.stream >= 0 or any(event[1] == member.me for event in self.schedule)

    # Names

    def address(self, stream: Stream) -> str:
        """The address of a member, by its stream."""
        for member in self.members:
            if member.stream == stream:
                return f"p{member.me}"
            if stream in member.addresses:
                return f"p{member.addresses[stream]}"
        return "?"

    def name(self, message: MessageId) -> str:
        return f"{self.address(message.origin)}:{message.seq}"

    def name_packet(self, packet: Packet) -> str:
        """The content of a packet, in a few words."""
        payloads = [payload for each in packet.payloads_by_span() for payload in each]
        if payloads:
            names = zip(packet.message_ids(), payloads, strict=True)
            return " + ".join(f"{self.name(message)}{self._content(payload)}" for message, payload in names)
        prefix = packet.metric_prefix()
        if isinstance(packet, ProgressReport):
            return f"counts of {self.address(packet.member)}"
        if isinstance(packet, UnnumberedPacket):
            return f"{self.address(packet.member)}'s report{self._content(packet.payload)}"
        return _PACKETS.get(prefix, prefix.replace("_", " "))

    def _content(self, payload: bytes) -> str:
        words = describe_content(decode_content(payload), self.address)
        return f" ({words})" if words else ""


def describe_content(content: Content, address: object) -> str:
    """The content of a message, unless it is an ordinary message of the application."""
    show = address if callable(address) else str
    match content:
        case AdmitMember():
            return f"admits p{content.address}"
        case Departure():
            return "leaves"
        case Removal():
            return f"removes {show(content.stream)}"
        case FlushReport():
            held = ", ".join(f"{show(stream)}:{count}" for stream, count in content.held.items())
            return f"holds {held}"
        case Disowning():
            return f"nobody is {show(content.stream)}"
        case Expulsion():
            return f"retires {', '.join(map(str, sorted(content.slots)))}"
        case ApplicationData() if content.original is not None:
            return f"again {show(content.original.origin)}:{content.original.seq}"
    return ""


class _DescribedSiteWorld(DescribedWorld, SiteWorld):
    def name_packet(self, packet: Packet) -> str:
        if isinstance(packet, UplinkPacket | SiteDownlink):
            return self.name(packet.message_ids()[0])
        return super().name_packet(packet)


class DescribedOverlapWorld(DescribedWorld, OverlapWorld):
    """Describes groups that overlap."""


def described_world(kind: type[ChangingMember], founders: int, size: int) -> DescribedWorld:
    if issubclass(kind, ChangingMultigroup):
        return DescribedOverlapWorld(kind, founders, size)
    described = _DescribedSiteWorld if issubclass(kind, ChangingFreescale) else DescribedWorld
    return described(kind, founders, size)


def play(
    kind: type[ChangingMember], founders: int, size: int, schedule: Sequence[ScheduleEvent]
) -> DescribedWorld:
    """The events of a schedule, in words."""
    world = described_world(kind, founders, size)
    for event in schedule:
        if world.has_addresses(event):
            world.apply(event)
    world.finish()
    return world


def show_schedule(
    kind: type[ChangingMember],
    founders: int,
    size: int,
    schedule: Sequence[ScheduleEvent],
    violation: ChangingViolation,
) -> tuple[ShownCounterExample, str]:
    """A schedule that fails, in words and as a diagram."""
    world = play(kind, founders, size, schedule)
    label = f"A small schedule in which {kind.name} fails; its steps are listed beside it"
    where = f"p{violation.address}"
    if where in world.drawn.peers:
        world.drawn.faults.append(DrawnEvent(where, world.drawn.end + 1, ""))
    world.drawn.end += 1
    messages = sum(event[0] == "broadcast" for event in schedule)
    shown = ShownCounterExample(
        len(world.members), messages, where, violation.text, [], world.steps, is_listed=True
    )
    return shown, draw_schedule(world.drawn, label)
