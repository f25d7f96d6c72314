"""A signed, changing group with one lying member: the others lose nothing and believe no lie.

The liar behaves like an honest member, and also sends packets that no honest one would. In the end it is
removed, and the others are judged as if it had never been there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import msgspec

from antecede.causality import MessageId
from antecede.live.changing.contact import Contact, encode_contact
from antecede.live.changing.seals import message_value
from antecede.live.envelope import wrap
from antecede.live.seals import Seals
from antecede.live.transport.frames import Packets, encode
from antecede.membership.catalog import ChangingMbcp
from antecede.membership.packets import (
    AdmitMember,
    ApplicationData,
    Content,
    FetchReply,
    FetchRequest,
    ProgressReport,
    Welcome,
    admitted_stream,
    encode_content,
)
from antecede.membership.sealing import add_seal, split_seal
from antecede.protocols.base import Packet, Send
from antecede.protocols.flat import DependencyPacket
from vopr.changing.host import Host, Process
from vopr.changing.world import SECOND, World, run_world
from vopr.judge import ViolationError
from vopr.network import MILLISECOND, End
from vopr.world import Result

_START = bytes(32)
_LIE = b"a lie"
"""A message in another's name: an application that delivers it was deceived, since nobody broadcast it."""


class LiarWorld(World):
    """Four founders, one of whom lies, and up to two that join."""

    def __init__(self, seed: int, is_told: bool = False) -> None:
        super().__init__(seed, is_told)
        self.is_signed = True
        self.hosts = [Host(self, rank, rank < 4) for rank in range(5 + self.below(2))]
        self.founders = self.hosts[:4]
        self.by_place = {host.place: host for host in self.hosts}
        self.removals_left = 0
        self.liar = Liar(self, self.founders[self.below(4)])

    def is_honest(self, name: str) -> bool:
        return name != self.liar.host.name

    def may_refuse(self, one: int, other: int) -> bool:
        return self.liar.host.rank in (one, other)

    def run(self) -> None:
        for host in self.founders:
            self.push(self.below(50) * MILLISECOND, None, host.start, None)
        duration = (1_000 + self.below(2_000)) * MILLISECOND
        self.network.delay = (1, 3, 20)[self.below(3)] * MILLISECOND
        for _ in range(10 + self.below(20)):
            self.push(self._moment(duration), None, self._burst, None)
        for change in ("join", "join", "leave")[: 1 + self.below(3)]:
            self.push(self._moment(duration), None, self._change, change)
        for _ in range(self.below(3)):
            self.push(self._moment(duration), None, self._kill_an_honest_one, None)
        for _ in range(1 + self.below(4)):
            self.push(self._moment(duration), None, self.liar.lie, None)
        self.run_until(duration)
        self._heal()
        self.run_until(self.now + 8 * SECOND)
        self._check_forks()
        self.liar.host.is_wanted = False
        self.liar.host.die("is switched off", for_good=True)
        self.rest()

    def _may_spare(self, founder: Host) -> bool:
        return False

    def _kill_an_honest_one(self, _: object) -> None:
        host = self.pick([each for each in self.active() if each is not self.liar.host])
        if host is not None:
            self.count("kill")
            host.die("is killed", notice=self.random() < 0.7)

    def _check_forks(self) -> None:
        """If two honest members have different messages under one id, all of them know who has lied; but for
        one whom the liar has admitted, and whose admission the others do not have."""
        founders = [each.process for each in self.founders if each.process and each is not self.liar.host]
        views = [set(each.core.member.addresses.values()) for each in founders if each.core.members]
        known = set.intersection(*views)
        honest = [
            each
            for each in self.active()
            if each is not self.liar.host and each.process and each.process.core.address in known
        ]
        for one, other in self.liar.pairs:
            if all(any(body in each.witness.applied for each in honest) for body in (one, other)):
                self.count("forked")
                for each in honest:
                    assert each.process is not None
                    core = each.process.core
                    names = {
                        contact.name for each in core.sealing.liars if (contact := core.contact_of(each))
                    }
                    if self.liar.host.name not in names:
                        raise ViolationError(f"{each.name} does not know that {self.liar.host.name} lies")

    def judge(self) -> None:
        """Without what the liar has broadcast: members may have different parts of that."""
        for host in self.hosts:
            lies = {body for body, each in self.records.items() if each.sender == self.liar.host.name}
            host.witness.applied = {body: None for body in host.witness.applied if body not in lies}
        super().judge()


class Liar:
    """The additional hostile packets of one host's process."""

    def __init__(self, world: LiarWorld, host: Host) -> None:
        self.world, self.host = world, host
        vars(host.witness)["fail"] = lambda _: None  # its own state is irrelevant
        self.pairs: list[tuple[bytes, bytes]] = []
        """Bodies under one id."""
        self._lies: list[Callable[[Process, End, int], None]] = [
            self._speak_for_another,
            self._forge_what_is_fetched,
            self._forge_welcomes,
            self._report_for_another,
            self._admit_nobody,
            self._copy_who_is_there,
            self._say_two_things,
            self._say_two_things,
        ]

    def lie(self, _: object) -> None:
        world, process = self.world, self.host.process
        if process is None or not process.is_up or not process.core.is_started or not process.serving:
            return
        links = [link for link in process.serving if link in process.core.links]
        if links:
            link = links[world.below(len(links))]
            tell = self._lies[world.below(len(self._lies))]
            name = tell.__name__[1:].replace("_", " ")
            world.count(f"lie: {name}")
            world.tell(self.host.name, f"lies to {process.core.partner_name(link)}: {name}")
            tell(process, process.serving[link], link)
            process.stepped()

    def _sign(
        self, process: Process, content: Content, message: MessageId, previous: bytes = _START
    ) -> DependencyPacket:
        payload = encode_content(content)
        seals = Seals(process.core.signatures)
        statement = seals.sign(*message, message.seq, previous, message_value(previous, payload, {}))
        return DependencyPacket(add_seal(payload, previous + statement.signature), *message, {})

    def _next_of_another(self, process: Process, body: bytes = _LIE) -> DependencyPacket:
        member = process.core.member
        streams = sorted(member.addresses.keys() - {member.stream})
        stream = streams[self.world.below(len(streams))]
        message = MessageId(stream, member.order.received_up_to(stream) + 1 + self.world.below(2))
        return self._sign(process, ApplicationData(wrap(body, False, None)), message)

    def _send(self, process: Process, end: End, link: int, packet: Packet) -> None:
        box = process.core.outboxes[link]
        end.write([encode(Packets(box.last + 1, [ChangingMbcp.encode(packet)], box.chain[box.last]))])

    def _speak_for_another(self, process: Process, end: End, link: int) -> None:
        self._send(process, end, link, self._next_of_another(process))

    def _report_for_another(self, process: Process, end: End, link: int) -> None:
        member = process.core.member
        for stream in member.addresses.keys() - {member.stream}:
            counts = {each: count + 5 for each, count in member.order.delivered.items()}
            self._send(process, end, link, ProgressReport(stream, counts, {}, frozenset()))

    def _forge_what_is_fetched(self, process: Process, end: End, link: int) -> None:
        """From now on repair requests are answered with forged messages, and a request is provoked."""

        def reply(to: int, request: FetchRequest) -> None:
            forged = self._next_of_another(process)
            member.outbox.append(Send((to,), FetchReply([ChangingMbcp.encode(forged)])))

        member = process.core.member
        vars(member)["_on_fetch"] = reply
        others = [each.rank for each in self.world.hosts if each is not self.host]
        pair = others[self.world.below(len(others))], others[self.world.below(len(others))]
        self.world.network.severed.add(pair)
        self.world.push(self.world.now + 2 * SECOND, None, self.world._join, pair)

    def _forge_welcomes(self, process: Process, end: End, link: int) -> None:
        """From now on newcomers get a message that nobody has broadcast, or counts that nobody has."""
        core, carry_out = process.core, process.core._carry_out

        def carry_out_forged(mine: int, effects: Any) -> None:
            sends = [
                Send(each.to, self._forged_welcome(process, each.packet))
                if isinstance(each.packet, Welcome)
                else each
                for each in effects.sends
            ]
            carry_out(mine, msgspec.structs.replace(effects, sends=tuple(sends)))

        vars(core)["_carry_out"] = carry_out_forged

    def _forged_welcome(self, process: Process, welcome: Welcome) -> Welcome:
        if self.world.below(2):
            counts = {stream: count + 1 for stream, count in welcome.delivered.items()}
            return msgspec.structs.replace(welcome, delivered=counts)
        lie = ChangingMbcp.encode(self._next_of_another(process))
        return msgspec.structs.replace(welcome, messages=[*welcome.messages, lie])

    def _own(self, process: Process) -> tuple[MessageId, bytes]:
        """The next message of the liar, and the chain value before it."""
        core = process.core
        latest = core.sealing.latest.get(core.me)
        seq = core.member.order.delivered[core.me] + 1
        return MessageId(core.me, seq), latest.value if latest is not None else _START

    def _admit_nobody(self, process: Process, end: End, link: int) -> None:
        message, previous = self._own(process)
        contact = Contact("nobody", self.world.random_bytes(8))
        stream = admitted_stream(contact.address, message)
        victim = Contact(self.world.hosts[(self.host.rank + 1) % 4].name)
        lie = (
            AdmitMember(stream + 1, contact.address, {}, encode_contact(contact)),
            AdmitMember(stream, contact.address, {}, encode_contact(victim)),
        )[self.world.below(2)]
        self._send(process, end, link, self._sign(process, lie, message, previous))

    def _copy_who_is_there(self, process: Process, end: End, link: int) -> None:
        """Send it to all others as the next message."""
        forged = self._next_of_another(process)
        original = MessageId(forged.origin, forged.seq)
        core = process.core
        core.member._broadcast(ApplicationData(wrap(_LIE, False, None), original), process.now())
        core._carry_out(core.address, core.member.pending_effects(process.now()))

    def _say_two_things(self, process: Process, end: End, link: int) -> None:
        """The next message differs between this partner and the others."""
        world, core = self.world, process.core
        enqueue, body, other = core.enqueue, world.new_body(self.host.name), b""
        self.host.witness.broadcast(body)
        other = world.new_body(self.host.name)
        self.host.witness.broadcast(other)
        for each in (body, other):
            world.records[each].past = 0
        self.pairs.append((body, other))

        def enqueue_other(to: int, data: bytes) -> None:
            if to == link:
                packet = cast("DependencyPacket", ChangingMbcp.decode(data))
                _, seal = split_seal(packet.payload)
                payload, previous = b"\x00" + wrap(other, False, None), seal[:32]
                value = message_value(previous, payload, packet.causes)
                seals = Seals(core.signatures)
                statement = seals.sign(packet.origin, packet.seq, packet.seq, previous, value)
                sealed = add_seal(payload, previous + statement.signature)
                data = ChangingMbcp.encode(msgspec.structs.replace(packet, payload=sealed))
            enqueue(to, data)

        vars(core)["enqueue"] = enqueue_other
        core.broadcast(body, process.now())
        del vars(core)["enqueue"]


def execute(seed: int, is_told: bool = False) -> Result:
    return run_world(LiarWorld(seed, is_told))
