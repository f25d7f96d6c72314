"""A host on which a member of a changing group runs, and one life of its process.

`Process` does what `driver.py` and `changing/group.py` do, at moments that the world chooses; between any two
of them it may be killed.
"""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from antecede.errors import InputError
from antecede.live.changing import snapshots
from antecede.live.changing.contact import NONCE_BYTES, Contact
from antecede.live.changing.core import ChangingCore
from antecede.live.changing.digests import DigestExchange, StreamDigests
from antecede.live.changing.events import (
    AttemptBegun,
    Declined,
    Founded,
    Gone,
    JoinAsked,
    LeaveAsked,
    PartnerGone,
    RemoveAsked,
    Sponsored,
    Started,
    TransferBegun,
)
from antecede.live.changing.greeting import GoneError, MemberGreeter, MemberGreeting, decode
from antecede.live.changing.history import Retention
from antecede.live.changing.recovery import restore
from antecede.live.changing.snapshots import SnapshotTransfer, SnapshotWriter, read_parts, received_name
from antecede.live.changing.sponsor import (
    begin_transfer,
    finish_transfer,
    offer_history,
    remove_unneeded,
    shared_snapshot,
)
from antecede.live.changing.super_peer import SuperPeerCore
from antecede.live.changing.transfer import StateFetch, StateFrame, StateOffer, StateRequest, StateSource
from antecede.live.clock import MemberClock
from antecede.live.events import Opened
from antecede.live.ready import Ready, send_and_advance
from antecede.live.store.journal import Journal
from antecede.live.transport.frames import Refusal, encode
from antecede.live.transport.greeter import StaleGreetingError
from antecede.live.transport.links import PartnerLink
from antecede.live.transport.outbox import ForkError
from antecede.live.versions import CHANGING_WIRE, STATES_SINCE
from antecede.membership.state import Phase
from antecede.protocols.base import Delivery, RemoteError
from vopr.changing.application import Application, Witness
from vopr.changing.encrypting import encryption
from vopr.changing.signing import NameKeyring
from vopr.disk import SimulatedDisk
from vopr.judge import ViolationError
from vopr.network import MILLISECOND, End

if TYPE_CHECKING:
    from vopr.changing.world import World

TICK = 100 * MILLISECOND
LATEST = max(CHANGING_WIRE)
_JOIN_PATIENCE = 1_500 * MILLISECOND
_GREETING_PATIENCE = 300 * MILLISECOND
_STATE_PATIENCE = 2.0
_FORGET_AFTER = 3_600_000 * MILLISECOND
_PATH = Path("store")


class Host:
    """One member's machine, through all lives of its process: its disk, and what the judge knows of it."""

    is_phone = False

    def __init__(self, world: World, rank: int, is_founder: bool, name: str = "") -> None:
        self.world, self.rank, self.name = world, rank, name or f"m{rank}"
        self.place = f"{self.name}:7000"
        self.is_founder = is_founder
        self.addresses: set[int] = set()
        """The addresses of all incarnations of its processes."""
        self.disk = SimulatedDisk(_PATH)
        self.witness = Witness(self)
        self.process: Process | None = None
        self.is_wanted = is_founder
        """Whether it is or should become a member."""
        self.is_dead = self.was_removed = False
        self.lost_cursor = False
        self.lives = 0
        self._versions = random.Random(f"{world.seed} {rank}")
        self.speaks = 1 if world.is_mixed and self._versions.random() < 0.5 else LATEST
        """The greatest version of the wire format."""

    def upgrade(self, _: object = None) -> None:
        if self.speaks < LATEST and self.process is not None:
            self.speaks = LATEST
            self.world.count("upgrade")
            self.die("is upgraded")

    def create_core(self) -> ChangingCore:
        return self.signing(ChangingCore(self.world.kind, self.name))

    def signing(self, core: ChangingCore) -> ChangingCore:
        """The core, which signs if the group does."""
        if self.world.is_signed:
            core.use_signatures(NameKeyring(core))
        return core

    def create_process(self) -> Process:
        return Process(self)

    def start(self, _: object = None) -> None:
        if self.process is None and not self.is_dead:
            if self.lives and self._versions.random() < 0.5:
                self.speaks = LATEST
            self.process = self.create_process()
            self.lives += 1
            self.world.guard(self.process, self.process.start, None)

    def die(self, text: str, power: bool = False, notice: bool = True, for_good: bool = False) -> None:
        """The process ends here, and its connections with it."""
        process, world = self.process, self.world
        self.is_dead |= for_good
        if process is None:
            return
        world.tell(self.name, text)
        process.is_alive = False
        self.process = None
        self.addresses |= process.core.members.keys()
        if power:
            self.disk = self.disk.after_power_failure(world.random)
            self.lost_cursor = True
        else:
            self.disk = self.disk.reopened()
        for end in list(process.ends):
            end.is_dumb |= power or not notice
            end.abort()
        world.push(world.now + world.below(300) * MILLISECOND, None, self.start, None)


class Process:
    """One life of a host's process."""

    def __init__(self, host: Host) -> None:
        self.host, self.world, self.rank = host, host.world, host.rank
        self.is_alive, self.is_up = True, False
        self.ends: dict[End, tuple[int, int | None]] = {}
        """Of its connections: the address of this process, and the link once it is known."""
        self._calls: dict[End, MemberGreeting] = {}
        """The greeting sent on each connection that this process has made."""
        self.serving: dict[int, End] = {}
        """By link, the connection that is used."""
        self.links: dict[int, PartnerLink] = {}
        self._dialling: set[int] = set()
        self._pending: Ready | None = None
        self._is_committing = False
        self._asked_at = -_JOIN_PATIENCE
        world = self.world
        self.core = host.create_core()
        self.encryption = encryption(self.core, world.encrypts)
        self.digests = DigestExchange(self.core)
        self.clock = MemberClock(lambda: world.epoch + world.now, lambda: world.now)

    def start(self, _: object) -> None:
        host, world = self.host, self.world
        core = self.core
        identity = {"group": "g", "member": host.name, "protocol": core.kind.name, "members": "changing"}
        try:
            self.journal = Journal(host.disk, identity, True, world.random_bytes)
            core.files, core.retains = host.disk, world.retains
            restore(core, self.journal)
        except OSError as error:
            return host.die(f"cannot start: {error}")
        except InputError as error:
            raise ViolationError(f"{host.name}: its store is refused: {error}") from error
        host.witness.restart(core.broadcasts)
        self.clock.start_after(core.time)
        self.greeter = MemberGreeter(core, "g")
        self._source = StateSource(core, core.files)
        self._fetch = StateFetch(core.files, snapshots.MAX_STATE)
        core.step(Opened(world.random_bytes(8).hex(), self.now(), host.speaks))
        if host.is_founder and not core.members:
            founders = [Contact(each.name, b"", each.place) for each in world.founders]
            core.step(Founded(founders, self.now(), forwards=True))
        try:
            ready = core.ready(self.journal.checkpoint_is_due)
            if ready.history is not None:
                ready.history.write()
            self.journal.write(ready.records, ready.checkpoint)
        except OSError as error:
            return host.die(f"cannot start: {error}")
        send_and_advance(cast("Any", core), ready)
        host.lost_cursor = False
        self.is_up = True
        if world.is_told:
            world.tell(host.name, f"starts life {host.lives}: {core.phase.name} {core.application.cursor}")
        self.application = Application(self)
        world.push(world.now + world.below(100) * MILLISECOND, self, self.tick, None)
        self.stepped()
        self.application.wake()
        return None

    def now(self) -> int:
        return self.clock.now()

    # The driver's loop

    def stepped(self) -> None:
        """The core has taken an event: what follows for the application, and a commit if it is due."""
        core = self.core
        core.changes.clear()  # of which this driver tells nobody
        if core.phase == Phase.MEMBER and not core.is_started:
            state = self.encryption.take_offer(self._received_snapshot(), self.now())
            self.host.witness.restore(cast("bytes", state or b""))
            self.application.forget()
            self.world.tell(self.host.name, f"has a snapshot of {len(self.host.witness.applied)} messages")
            self.world.count("joined")
            core.step(Started(self.now()))
            self.application.wake()
        self.encryption.speak(self.now)
        while core.may_sponsor:
            self._sponsor(core.join_requests[0])
            self.application.wake()
        if not self._is_committing and core.has_ready:
            self._is_committing = True
            world = self.world
            world.push(world.now + world.below(2) * MILLISECOND, self, self._commit, None)

    def _sponsor(self, address: int) -> None:
        """As `Sponsor` does, with a state that is always bytes."""
        core, now = self.core, self.now()
        event: Sponsored | TransferBegun | None
        fetches = not isinstance(core, SuperPeerCore) and core.member.speaks_with(address) >= STATES_SINCE
        if address in core.transfers:
            event = finish_transfer(core, address, now)
            self.world.count("admitted after a transfer" if event else "does not keep up")
        elif address in core.wants_history:
            event = offer_history(core, address, now)
        elif (shared := shared_snapshot(core)) is not None and fetches:
            event = TransferBegun(address, shared, now)
        elif len(state := self._take_snapshot()) <= snapshots.MAX_INLINE or not fetches:
            event = Sponsored(address, state, now)
        else:
            event = TransferBegun(address, self._store(state), now)
        who, what = core.greeted[address].label, type(event).__name__
        if isinstance(event, TransferBegun):
            self.world.count("transfer")
            self.world.tell(self.host.name, f"offers {who} {event.transfer}")
        self.world.tell(self.host.name, f"admits {who}: {what}")
        if event is not None:
            core.step(event)

    def _take_snapshot(self) -> bytes:
        snapshot = self.encryption.with_offer(self.host.witness.snapshot)
        assert snapshot is not None
        return cast("bytes", snapshot())

    def _store(self, state: bytes) -> SnapshotTransfer:
        """Write a snapshot to a file."""
        core = self.core
        writer = SnapshotWriter(core.files, len(self.world.records))
        first, counts = begin_transfer(core)
        writer.add(state)
        digest = writer.finish()
        core.history.create()
        core.snapshot_from = None
        return SnapshotTransfer(digest, writer.length, False, first, counts)

    def _received_snapshot(self) -> bytes | None:
        core = self.core
        state = core.received_state
        if state is None:
            assert core.snapshot is not None
            return core.snapshot
        if not state.transfer.digest:
            return None
        return b"".join(read_parts(core.files, received_name(core.address, state.transfer.digest)))

    def _commit(self, _: object) -> None:
        ready = self._pending = self.core.ready(self.journal.checkpoint_is_due)
        world = self.world
        wait = 0 if world.random() < 0.7 else world.below(10) * MILLISECOND
        world.push(world.now + wait, self, self._write, ready)

    def _write(self, ready: Ready) -> None:
        try:
            if ready.history is not None:
                ready.history.write()
            if ready.records or ready.checkpoint is not None:
                self.journal.write(ready.records, ready.checkpoint)
        except OSError as error:
            return self.host.die(f"cannot write its store: {error}")
        world = self.world
        wait = 0 if world.random() < 0.8 else world.below(10) * MILLISECOND
        world.push(world.now + wait, self, self._finish, ready)
        return None

    def _finish(self, ready: Ready) -> None:
        send_and_advance(cast("Any", self.core), ready)
        self.host.witness.accepted = max(self.host.witness.accepted, ready.broadcasts)
        self._is_committing = False
        self.stepped()
        self.pump()
        self.application.wake()

    # Actions of the application and the operator

    def broadcast(self) -> None:
        core, world = self.core, self.world
        if core.is_started and not (core.secrecy is not None and core.secrecy.silent):
            body = world.new_body(self.host.name)
            if core.member.version == LATEST:
                world.later.add(body)
            core.broadcast(body, self.now())
            world.tell(self.host.name, f"broadcasts {body.decode()}")
            self.host.witness.broadcast(body)
            self.stepped()

    def next_delivery(self, acks: bool) -> Delivery | None:
        delivery = self.core.next_delivery(self.now(), acks)
        self.journal.cursor = self.core.application.cursor
        self.stepped()
        return delivery if self.core.secrecy is None or delivery is None else self.core.secrecy.open(delivery)

    def leave(self) -> bool:
        core = self.core
        if not core.is_started or not core.may_leave(self.now()):
            return False
        core.step(LeaveAsked(self.now()))
        self.host.is_wanted = False
        self.world.tell(self.host.name, "leaves")
        self.stepped()
        return True

    def remove(self, stream: int) -> bool:
        core = self.core
        if not core.is_started or stream not in core.member.addresses or stream == core.me:
            return False
        self.world.tell(self.host.name, f"removes {core.label(stream)}")
        core.step(RemoveAsked(stream, self.now()))
        self.stepped()
        return True

    # Connections

    def dial(self, link: int) -> None:
        where = self.core.wanted_place(link)
        if where and link not in self.serving and link not in self._dialling:
            mine = self.core.links[link][0]
            if self._call(self.world.by_place[where], mine, link):
                self._dialling.add(link)

    def seek(self) -> None:
        """Dial a member to ask for admission."""
        self._call(self.world.pick_contact(self.host), self.core.address, None)

    def _call(self, to: Host, mine: int, link: int | None) -> bool:
        world, called = self.world, to.process
        if called is None or not called.is_up or not world.network.can_reach(self.rank, to.rank):
            return False
        near, far = world.network.connect(cast("Any", self), cast("Any", called))
        self.ends[near], called.ends[far] = (mine, link), (-1, None)
        self._calls[near] = self.greeter.call(mine, link, self.host.place)
        near.write([encode(self._calls[near])], is_greeting=True)
        world.push(world.now + _GREETING_PATIENCE, cast("Any", self), self._give_up, near)
        return True

    def _give_up(self, end: End) -> None:
        if not end.is_closed and end not in self.serving.values():
            self._close(end)

    def receive(self, end: End, frames: list[bytes]) -> None:
        if end not in self.ends:
            return
        try:
            link = self.ends[end][1]
            if link is None or self.serving.get(link) is not end:
                self._greet(end, frames)
            else:
                self._take_frames(link, frames)
        except GoneError as error:
            self.world.count("answered that it is forgotten")
            self.world.tell(self.host.name, f"answers m{end.peer} {error.answer}")
            end.write([encode(error.answer)])
            self._close(end)
        except StaleGreetingError as error:
            if error.refusal:
                end.write([encode(Refusal(error.refusal))])
            self._close(end)
        except RemoteError as error:
            self.world.tell(self.host.name, f"refuses m{end.peer}: {error}")
            is_serving = self.ends.get(end, (0, None))[1] in self.serving
            if (isinstance(error, ForkError) or is_serving) and not self.world.may_refuse(
                self.rank, end.peer
            ):
                raise ViolationError(f"{self.host.name} refuses m{end.peer}: {error}") from error
            end.write([encode(Refusal(str(error)))])
            self._close(end)
        self.stepped()
        self.pump()

    def _take_frames(self, link: int, frames: list[bytes]) -> None:
        now, time, partner = self.world.now * 1e-9, self.now(), self.links[link]
        for data in frames:
            if link not in self.core.links:
                return
            frame = decode(data)
            if isinstance(frame, StateFrame):
                partner.heard_at = now
                self._take_state(link, frame)
            elif isinstance(frame, StreamDigests):
                for evidence in self.digests.compare(link, frame):
                    partner.send(evidence)
            else:
                partner.receive(cast("Any", frame), now, time)
            if (reason := self.core.rejected.pop(link, None)) is not None:
                raise RemoteError(reason)
        self.application.wake()

    def _take_state(self, link: int, frame: StateFrame) -> None:
        """As `StateLinks` does."""
        core, (mine, theirs) = self.core, self.core.links[link]
        if isinstance(frame, StateRequest):
            if mine == core.address:
                self._source.receive(theirs, frame, self.world.now * 1e-9)
        elif mine == core.address and core.phase == Phase.JOINING:
            self._asked_at = self.world.now
            if isinstance(frame, StateOffer):
                core.begin_fetch(frame.transfer)
            request = self._fetch.receive(mine, core.history_at(mine), frame)
            self.world.count("chunk")
            self.links[link].send(cast("Any", request))

    def _greet(self, end: End, frames: list[bytes]) -> None:
        greeting = decode(frames[0])
        if isinstance(greeting, Gone):
            link = self.ends[end][1]
            if link in self.core.links:
                self.core.step(PartnerGone(link, greeting, self.now()))
            return self._close(end)
        if isinstance(greeting, Refusal):
            if greeting.reason.endswith(f"upgrade {self.host.name}"):
                self.world.push(self.world.now, None, self.host.upgrade, None)
            return self._close(end)
        if not isinstance(greeting, MemberGreeting):
            return self._close(end)  # of a connection that was replaced
        core, now = self.core, self.now()
        called = None
        if end.dialled:
            _, link = self.ends[end]
            if link is not None and link not in core.links:
                return self._close(end)
            called = self._calls[end]
        is_seeking = end.dialled and self.ends[end][1] is None
        link = self.greeter.find_link(greeting, now, called)
        self.greeter.check_resumable(link, cast("Any", greeting))
        self.greeter.accept(link, cast("Any", greeting), now)
        mine = core.links[link][0]
        self.ends[end] = mine, link
        if not end.dialled:
            end.write([encode(self.greeter.call(mine, link, self.host.place))], is_greeting=True)
        elif is_seeking and core.phase == Phase.OUTSIDE and mine == core.address:
            core.step(JoinAsked(link, now, self.world.retains and not core.application.delivered))
            self._asked_at = self.world.now
        if link not in self.links:
            self.links[link] = PartnerLink(cast("Any", core), link, Counter())
            self.links[link].shows_certificates = not greeting.contact.is_phone
        partner, before = self.links[link], self.serving.get(link)
        by_lesser_name = (self.host.name < greeting.contact.name) == end.dialled
        if before is not None:
            if not partner.is_replaced_by(cast("Any", greeting), by_lesser_name):
                return self._close(end)
            before.abort()
            self.ends.pop(before, None)
        self.serving[link] = end
        self._dialling.discard(link)
        partner.open(cast("Any", greeting), self.world.now * 1e-9, by_lesser_name)
        self._source.open(core.links[link][1])
        self.digests.open(link)
        if len(frames) > 1:
            self.receive(end, frames[1:])
        return None

    def _close(self, end: End) -> None:
        end.abort()
        self.on_broken(end)

    def on_broken(self, end: End) -> None:
        _, link = self.ends.pop(end, (0, None))
        if link is None:
            return
        if self.serving.get(link) is end:
            del self.serving[link]
            self.links[link].close()
            self.digests.close(link)
        elif end.dialled:
            self._dialling.discard(link)

    def pump(self) -> None:
        dropped, self.core.dropped = self.core.dropped, []
        for link in dropped:
            self.greeter.forget(link)
            if (end := self.serving.get(link)) is not None:
                self._close(end)
            self.links.pop(link, None)
        for link, end in list(self.serving.items()):
            while frames := self.links[link].take_frames(self.world.now * 1e-9):
                end.write([encode(frame) for frame in frames])
            mine, theirs = self.core.links[link]
            while mine == self.core.address and (
                part := self._source.next_frame(theirs, self.world.now * 1e-9)
            ):
                end.write([encode(part)])

    # Now and then

    def tick(self, _: object) -> None:
        world, core = self.world, self.core
        self.report()
        self._route_around()
        core.tidy(self.now(), _FORGET_AFTER)
        remove_unneeded(core, Retention() if world.retains else None, self.now())
        for address in self._source.overdue(world.now * 1e-9, _STATE_PATIENCE):
            core.step(Declined(address, self.now()))
        self._join_if_wanted()
        if not self.host.is_wanted:
            self.leave()  # it had asked for that, and was killed before that was durable
        for link in core.outboxes:
            self.dial(link)
        addresses = set(core.member.addresses.values()) if core.members else set()
        members = [each for each in self.serving if core.links.get(each, (0, 0))[1] in addresses]
        for link, frame in self.digests.due(world.now * 1e-9, members):
            self.links[link].send(cast("Any", frame))
        self.pump()
        for link, end in list(self.serving.items()):
            if self.links[link].tick(world.now * 1e-9) is not None:
                self._close(end)
        self.stepped()
        self.pump()
        self.application.wake()
        world.push(world.now + TICK, self, self.tick, None)

    def report(self) -> None:
        core = self.core
        if core.members and (report := core.reports.due(core.member, self.now())) is not None:
            core.step(report)

    def _route_around(self) -> None:
        """Suspect some unconnected members, and occasionally one that is alive."""
        core, world = self.core, self.world
        if core.phase != Phase.MEMBER or not core.kind.reroutes:
            return
        connected = {core.links[link][1] for link in self.serving.keys() & core.links.keys()}
        suspected = {
            stream
            for stream, address in core.member.addresses.items()
            if stream != core.me and world.random() < (0.02 if address in connected else 0.8)
        }
        before = core.member.order.suspected
        if not world.is_healing and suspected - before:
            world.count("suspected")
        core.route_around(() if world.is_healing else suspected, self.now())

    def wants_in(self) -> bool:
        return self.host.is_wanted

    def create_contact(self) -> Contact:
        return Contact(self.host.name, self.world.random_bytes(NONCE_BYTES), self.host.place)

    def _join_if_wanted(self) -> None:
        """Ask for admission, and ask elsewhere if no answer arrives."""
        core, world = self.core, self.world
        if not self.wants_in() or core.phase in (Phase.MEMBER, Phase.LEAVING):
            return
        is_overdue = core.phase == Phase.JOINING and world.now - self._asked_at > _JOIN_PATIENCE
        if not core.members or is_overdue or core.phase in (Phase.ENDED, Phase.REMOVED):
            if core.phase == Phase.REMOVED:
                world.count("returns")
            contact = self.create_contact()
            self.host.addresses.add(contact.address)
            core.step(AttemptBegun(contact, self.now(), forwards=True))
        if core.phase == Phase.OUTSIDE and not self.core.has_ready:
            self.seek()
