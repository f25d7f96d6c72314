"""Processes in several groups, driven by hand: packets are passed one at a time, and any may be killed.

The judge checks what each application was delivered: every message of a group once, and no cause after its
effect across groups.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any, cast

from memory_disk import MemoryDisk

from antecede.live.changing.contact import Contact
from antecede.live.changing.events import (
    AttemptBegun,
    Founded,
    JoinAsked,
    LeaveAsked,
    LinkOpened,
    PartnerGone,
    RemoveAsked,
    Reported,
    Sponsored,
    Started,
)
from antecede.live.events import AckReceived, Opened, PacketReceived
from antecede.live.overlapping.core import NodeCore
from antecede.live.overlapping.group_core import GroupCore
from antecede.live.overlapping.recovery import restore
from antecede.live.ready import send_and_advance
from antecede.live.store.journal import Journal
from antecede.membership.state import Phase

Id = tuple[str, int, int]
"""A message: its group, its origin's stream and its number."""


class World:
    """Processes, groups, and what has happened."""

    def __init__(self, groups: dict[str, str], seed: int = 0) -> None:
        """The founders of each group, by their first letters."""
        self.random = random.Random(seed)
        self.founders = groups
        self.nodes: dict[str, Node] = {}
        self.pasts: dict[Id, frozenset[Id]] = {}
        """The causal past of every accepted message."""
        self.removed: set[tuple[str, int]] = set()
        self.faults: list[str] = []
        self.counts: Counter[str] = Counter()
        for name in sorted(set("".join(groups.values()))):
            self.node(name)
        for group, names in groups.items():
            contacts = [Contact(each) for each in names]
            for each in names:
                self.nodes[each].core(group).step(Founded(contacts, 0, forwards=True))
                self.nodes[each].commit()

    def node(self, name: str) -> Node:
        if name not in self.nodes:
            self.nodes[name] = Node(self, name)
        return self.nodes[name]

    def _owner(self, core: GroupCore, address: int) -> Node | None:
        """The process at an address, as the sender of a packet knows it."""
        stream = core.member.stream_at.get(address)
        contact = core.greeted.get(address) or (None if stream is None else core.contact_of(stream))
        return None if contact is None else self.nodes[contact.name]

    def transmit(self, sender: Node, group: str, link: int) -> bool:
        """The next packet on a link arrives."""
        core = sender.core(group)
        mine, theirs = core.links[link]
        receiver = self._owner(core, theirs)
        if receiver is None or receiver is sender or mine not in core.identities or link in core.void:
            return False
        there = receiver.core(group)
        found = there.find_link(theirs, mine)
        if found is None or there.is_blank(found):
            has_met = core.received[link] > 0 or core.outboxes[link].acked > 0
            answer = there.answer_of(theirs, core.identities[mine], has_met) if there.members else None
            if answer is not None:
                core.step(PartnerGone(link, answer, 0))
                sender.stepped()
                return False
        if theirs not in there.members:
            return False
        back = there.open_link(theirs, core.identities[mine], 0)
        if (durable := there.durably_received[back]) > core.outboxes[link].acked:
            core.step(AckReceived(link, durable, there.durable_chain[back]))
        number = there.received[back] + 1
        data = core.outboxes[link].packets.get(number)
        if data is None:
            return False
        if core.outboxes[link].chain.get(number - 1) != there.received_chain[back]:
            raise AssertionError(
                f"{sender.name} has sent {receiver.name} other packets in {group} before a restart"
            )
        there.step(PacketReceived(back, number, data, 0))
        assert not there.rejected, there.rejected
        receiver.stepped()
        return True

    def links(self) -> list[tuple[Node, str, int]]:
        return [
            (each, group, link)
            for each in self.nodes.values()
            for group, core in each.node.groups.items()
            for link in core.links
        ]

    def transmit_all(self, *groups: str) -> bool:
        """Transmit one packet on each link; returns whether there was any."""
        moved = False
        for sender, group, link in self.links():
            if (not groups or group in groups) and link in sender.core(group).links:
                moved |= self.transmit(sender, group, link)
        return moved

    def settle(self) -> None:
        """Run until nothing moves: all members report, and removed ones return."""
        for _ in range(40):
            moved = False
            for each in self.nodes.values():
                moved |= each.rejoin()
                each.commit()
                moved |= each.read_all()
                each.report()
                each.commit()
            while self.transmit_all():
                moved = True
                for each in self.nodes.values():
                    each.commit()
                    each.read_all()
            if not moved and all(each.is_settled() for each in self.nodes.values()):
                break

    def judge(self) -> list[str]:
        found = list(self.faults)
        for group in self.founders:
            sent = {each for each in self.pasts if each[0] == group}
            for each in self.nodes.values():
                if each.phase(group) == Phase.MEMBER:
                    given = Counter(each.given[group])
                    found += [
                        f"{each.name} was given {one} again" for one, count in given.items() if count > 1
                    ]
                    if lacking := sent - given.keys():
                        found.append(f"{each.name} lacks {sorted(lacking)}")
        return found


class Node:
    """A process, its store and its application, which records its deliveries."""

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name = world, name
        self.disk = MemoryDisk(Path(name))
        self.given: dict[str, list[Id]] = {}
        self.past: set[Id] = set()
        self.in_flight: Id | None = None
        self.pending: list[tuple[Id, frozenset[Id]]] = []
        self.lives = 0
        self.start()

    def start(self) -> None:
        self.node = NodeCore(self.name, files=self.disk)
        self.journal = Journal(self.disk, {"member": self.name}, sync=False)
        restore(self.node, self.journal)
        self.lives += 1
        for core in self.node.groups.values():
            core.step(Opened(f"{self.name}{self.lives}", 0, 2))
        self.stepped()
        self.commit()

    def kill(self) -> None:
        """Kill it like `kill -9`: whatever is not in the store is lost."""
        self.disk.is_locked = False
        self.pending = []
        self.start()

    def restarted(self) -> Node:
        self.kill()
        return self

    def core(self, group: str) -> GroupCore:
        core = self.node.groups.get(group)
        if core is None:
            core = self.node.group(group)
            core.step(Opened(f"{self.name}{self.lives}", 0, 2))
        return core

    def phase(self, group: str) -> Phase:
        return self.node.groups[group].phase if group in self.node.groups else Phase.OUTSIDE

    def restore_states(self) -> None:
        """Hand the application the snapshots with which it joined groups."""
        for group, core in self.node.groups.items():
            if core.phase == Phase.MEMBER and not core.is_started and self.node.application.is_idle:
                data = core.snapshot
                self.given[group] = [(group, *each) for each in json.loads(data)] if data else []
                self.past.update(self.given[group])
                for one in self.given[group]:
                    self.past |= self.world.pasts[one]
                core.step(Started(0))
                self.world.counts["started"] += 1

    def stepped(self) -> None:
        for group, core in self.node.groups.items():
            while core.may_sponsor:
                state = json.dumps([each[1:] for each in self.given.get(group, [])]).encode()
                core.step(Sponsored(core.join_requests[0], state, 0))

    def commit(self, checkpoint: bool = False) -> None:
        ready = self.node.ready(checkpoint)
        if ready.history is not None:
            ready.history.write()
        self.journal.write(ready.records, ready.checkpoint)
        for message, past in self.pending:
            self.world.pasts[message] = past
        self.pending = []
        send_and_advance(cast("Any", self.node), ready)
        self.restore_states()  # that it was admitted is durable now

    # The application

    def broadcast(self, group: str) -> bool:
        core = self.core(group)
        if not core.is_started or core.brings_back:
            return False
        message = core.broadcast("x", 0)
        named: Id = (group, *message)
        before = self.past | {each for each, _ in self.pending}
        self.pending.append((named, frozenset(before)))
        self.stepped()
        return True

    def read(self) -> bool:
        queue = self.node.application
        delivery = self.node.next_delivery(0, acks=True)
        self.journal.move_cursor(queue.delivered - len(queue.unacked), queue.attempts)
        if delivery is None:
            self.in_flight = None
            self.stepped()
            return False
        message: Id = (delivery.group, *delivery.message)
        if queue.attempts > 1:
            if message != self.in_flight:
                self.world.faults.append(f"{self.name} was given {message} again instead of {self.in_flight}")
            return True
        self.in_flight = message
        if message not in self.world.pasts:
            self.world.faults.append(f"{self.name} was given {message}, which was never accepted")
            return True
        known = self.given.setdefault(delivery.group, [])
        is_copy = delivery.message in self.node.groups[delivery.group].member.originals
        is_late = message in self.past and message not in known
        if is_late and not is_copy and not self._was_sent_here(message):
            self.world.faults.append(f"{self.name} was given {message} after what it precedes")
        known.append(message)
        self.past |= {message, *self.world.pasts[message]}
        return True

    def _was_sent_here(self, message: Id) -> bool:
        return message[1] in {each.stream for each in self.node.groups[message[0]].members.values()}

    def read_all(self) -> bool:
        any_read = False
        while True:
            if not self.read():
                self.commit()  # a delivery must be durable
                if not self.read():
                    return any_read
            any_read = True

    # Membership

    def join(self, group: str, contact: Node) -> bool:
        """Ask a member for admission; a later call asks another."""
        if any(each.is_joining for name, each in self.node.groups.items() if name != group):
            return False
        core, there = self.core(group), contact.core(group)
        if core.phase in (Phase.MEMBER, Phase.LEAVING) or there.phase != Phase.MEMBER or contact is self:
            return False
        mine = Contact(self.name, self.world.random.randbytes(8))
        core.step(AttemptBegun(mine, 0, forwards=True))
        core.step(LinkOpened(mine.address, there.identity, 0))
        link = core.find_link(mine.address, there.identity.address)
        assert link is not None
        core.step(JoinAsked(link, 0))
        self.stepped()
        self.world.counts["asked"] += 1
        return True

    def leave(self, group: str) -> bool:
        core = self.core(group)
        if core.phase != Phase.MEMBER or not core.is_started or not core.member.may_leave():
            return False
        core.step(LeaveAsked(0))
        self.world.counts["left"] += 1
        return True

    def remove(self, group: str, other: Node) -> bool:
        core = self.core(group)
        stream = other.core(group).me if other.phase(group) == Phase.MEMBER else -1
        if core.phase != Phase.MEMBER or other is self or stream not in core.member.addresses:
            return False
        core.step(RemoveAsked(stream, 0))
        self.world.counts["removed"] += 1
        return True

    def rejoin(self) -> bool:
        """Members that were removed or got no answer ask another member."""
        for group, core in self.node.groups.items():
            if core.phase in (Phase.REMOVED, Phase.JOINING) and not (
                core.phase == Phase.JOINING and core.member.welcome is not None  # type: ignore[attr-defined]
            ):
                others = [each for each in self.world.nodes.values() if each.phase(group) == Phase.MEMBER]
                if others and self.join(group, self.world.random.choice(others)):
                    return True
        return False

    def report(self) -> None:
        for core in self.node.groups.values():
            if core.phase in (Phase.MEMBER, Phase.LEAVING):
                core.step(Reported(0))
        self.stepped()

    def is_settled(self) -> bool:
        return not any(each.is_joining or each.phase == Phase.REMOVED for each in self.node.groups.values())
