"""A whole member: the real core, journal, links, greeter and clock, driven as the asyncio node drives them.

`Process` is one life of a `Member`. It does what `driver.py`, `connections.py` and `group.py` do, in the same
order, at moments that the world chooses: take a `Ready`, persist it, send and advance; greet, open a link,
exchange frames; gossip and fire timers at each tick. Between any two of these the process may be killed.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from antecede.errors import InputError
from antecede.live.clock import MemberClock
from antecede.live.core import Core
from antecede.live.events import DeliveryAcked, Opened, Parked, TimerFired, Unparked
from antecede.live.ready import Ready, send_and_advance
from antecede.live.recovery import restore
from antecede.live.settings import Settings
from antecede.live.store.journal import Journal
from antecede.live.transport.frames import Greeting, Refusal, RefusedError, decode, encode
from antecede.live.transport.greeter import Greeter, StaleGreetingError
from antecede.live.transport.links import Links
from antecede.protocols.base import Delivery, RemoteError
from vopr.application import Application
from vopr.disk import SimulatedDisk
from vopr.judge import ViolationError, Witness
from vopr.network import MILLISECOND, End
from vopr.signing import SimulatedKeyring

if TYPE_CHECKING:
    from vopr.world import World

TICK = 100 * MILLISECOND
PATIENCE = 200 * MILLISECOND
_GREETING_PATIENCE = 300 * MILLISECOND
_PATH = Path("store")


class Member:
    """One member across all its lives: its disk, its computer's clock, and the judge's record of it."""

    def __init__(self, world: World, rank: int, disk: SimulatedDisk | None = None) -> None:
        self.world, self.rank, self.name = world, rank, world.roster.names[rank]
        self.disk = disk or SimulatedDisk(_PATH)
        self.witness = Witness(world, rank, self.name)
        self.process: Process | None = None
        self.wall_offset = 0
        """By how much the computer's clock is wrong, in nanoseconds."""
        self.is_gone = False
        """Whether it is down for good because its store is damaged."""
        self.lost_cursor = False
        self.was_corrupted = False
        self.lives = 0
        self.settings = Settings(group="g", me=self.name)

    def start(self, _: object = None) -> None:
        """A new process on the store as it is; it may be killed before it is up."""
        world = self.world
        if self.process is not None or self.is_gone:
            return
        process = Process(self)
        self.process = process
        self.lives += 1
        world.guard(process, process.start, None)

    def die(self, text: str, power: bool = False, notice: bool = True) -> None:
        """The process ends here, and its connections with it. With `power` what was not synced is in danger,
        and partners do not notice before they miss it; else if `notice`, they do."""
        process, world = self.process, self.world
        if process is None:
            return
        world.tell(self.name, text)
        process.is_alive = False
        self.process = None
        if power:
            self.disk = self.disk.after_power_failure(world.random)
            self.lost_cursor = True
        else:
            self.disk = self.disk.reopened()
        for end in list(process.ends):
            end.is_dumb |= power or not notice
            end.abort()
        pause = world.below(300) * MILLISECOND
        world.push(world.now + pause, None, self.start, None)

    def refuse(self, error: InputError) -> None:
        """The store cannot be opened."""
        if not self.was_corrupted:
            raise ViolationError(f"{self.name}: its store is refused: {error}")
        self.world.tell(self.name, f"is out for good: {error}")
        self.world.count("store refused")
        self.is_gone = True
        if self.process is not None:
            self.process.is_alive = False
            self.process = None


class SeenCore(Core):
    """Lets a witness see each delivery, those too that the application is not given."""

    witness: Witness | None = None

    def deliver_next(self, now: int) -> bool:
        has_delivered = super().deliver_next(now)
        if has_delivered and self.witness is not None:
            self.witness.see_deliveries(self)
        return has_delivered


class Process:
    """One life of a member."""

    def __init__(self, member: Member) -> None:
        self.member, self.world, self.rank = member, member.world, member.rank
        self.witness, self.name = member.witness, member.name
        self.is_alive, self.is_up = True, False
        self.ends: dict[End, None] = {}
        """Of its connections, also of those that have not greeted."""
        self.serving: dict[int, End] = {}
        """By partner, the connection that is used."""
        self._dialling: set[int] = set()
        self._pauses: dict[int, int] = {}
        self._pending: Ready | None = None
        self._is_written = False
        self._is_committing = False
        self._saves_cursor = False
        world = self.world
        self.clock = MemberClock(lambda: world.epoch + world.now + member.wall_offset, lambda: world.now)

    # Joining and leaving

    def start(self, _: object) -> None:
        """As `Group._start`."""
        member, world = self.member, self.world
        own = world.random() < 0.85
        signatures = SimulatedKeyring(self.rank) if world.is_signed else None
        core = self.core = SeenCore(
            world.roster.create_protocol(self.name), traced=world.is_traced, own=own, signatures=signatures
        )
        core.stability.max_undelivered = 4 << 20
        try:
            self.journal = Journal(member.disk, world.identities[self.rank], world.sync, world.random_bytes)
            restore(core, self.journal)
        except OSError as error:
            member.die(f"cannot start: {error}")
            return
        except InputError as error:
            member.refuse(error)
            return
        self.witness.restart(core, member.lost_cursor or not self.journal.cursor_is_exact)
        core.witness = self.witness
        self.clock.start_after(core.time)
        self.links = Links(core, Counter())
        self._greeter = Greeter(member.settings, world.roster, core)
        core.step(Opened(world.random_bytes(8).hex(), self.now()))
        try:
            self.journal.write(core._records)
        except OSError as error:
            member.die(f"cannot start: {error}")
            return
        send_and_advance(core, core.ready())
        member.lost_cursor = False
        self.is_up = True
        if world.is_told:
            own_text = "with" if own else "without"
            world.tell(
                self.name,
                f"starts life {member.lives} {own_text} its own messages at {core.application.cursor}",
            )
        self.application = Application(self)
        for peer in core.partners:
            wait = world.below(20) if self.rank < peer else 100 + world.below(100)
            world.push(world.now + wait * MILLISECOND, self, self.dial, peer)
        world.push(world.now + world.below(100) * MILLISECOND, self, self.tick, None)
        self.application.wake()

    def now(self) -> int:
        """The member's clock."""
        return self.clock.now()

    def stop(self) -> None:
        """A clean stop, as `aclose`: report, persist all as a checkpoint, close the store."""
        for link in self.links.open_links():
            self.links.report(link)
        self.pump()
        try:
            if self._pending is not None:
                self._persist(self._pending)
                self._advance(self._pending)
            ready = self._take_ready(checkpoint=True)
            self._persist(ready)
            self._advance(ready)
            self.journal.close()
        except OSError as error:
            self.member.die(f"stops: {error}")
            return
        self.member.die("stops in good order")

    # The driver's loop

    def stepped(self) -> None:
        """As `Driver.stepped`."""
        if not self._is_committing and (self.core.has_ready or self._saves_cursor):
            self._is_committing = True
            world = self.world
            world.push(world.now + world.below(2) * MILLISECOND, self, self._commit, None)

    def _take_ready(self, checkpoint: bool) -> Ready:
        ready = self.core.ready(checkpoint)
        self.witness.see_deliveries(self.core)
        self._pending, self._is_written = ready, False
        return ready

    def _commit(self, _: object) -> None:
        ready = self._take_ready(self.journal.checkpoint_is_due)
        if self.world.random() < 0.7:
            self._finish_write(ready)
        else:
            self.world.push(self._soon(), self, self._finish_write, ready)

    def _soon(self) -> int:
        return self.world.now + self.world.below(10) * MILLISECOND

    def _finish_write(self, ready: Ready) -> None:
        try:
            self._persist(ready)
        except OSError as error:
            self.witness.is_refused = True
            self.member.die(f"cannot write its store: {error}")
            return
        if self.world.random() < 0.8:
            self._finish_cycle(ready)
        else:
            self.world.push(self._soon(), self, self._finish_cycle, ready)

    def _persist(self, ready: Ready) -> None:
        if ready is not self._pending or self._is_written:
            return  # a clean stop has done so, or comes between the write and its completion
        if ready.records or ready.checkpoint is not None:
            self.journal.write(ready.records, ready.checkpoint)
            if self.world.is_told:
                what = "a checkpoint" if ready.checkpoint else f"{len(ready.records)} records"
                self.world.tell(self.name, f"has written {what}")
        self._is_written = True

    def _advance(self, ready: Ready) -> None:
        if ready is not self._pending:
            return
        self._pending = None
        send_and_advance(self.core, ready)
        self.witness.accepted = max(self.witness.accepted, ready.broadcasts)
        if self._saves_cursor:
            self._saves_cursor = False
            self.journal.cursor = self.core.application.cursor

    def _finish_cycle(self, ready: Ready) -> None:
        self._advance(ready)
        self._is_committing = False
        self.stepped()
        self.pump()
        self.application.wake()

    # Calls of the application

    def broadcast(self, body: bytes) -> None:
        message = self.core.broadcast(body, self.now())
        if self.world.is_told:
            self.world.tell(self.name, f"broadcasts {message.origin}:{message.seq}")
        self.witness.broadcast(message, body, self.core.delivers_own, self.core)
        self.stepped()

    def next_delivery(self, acks: bool) -> Delivery | None:
        """As `Driver.next_delivery`."""
        core = self.core
        delivery = core.next_delivery(self.now(), acks)
        self.journal.cursor = core.application.cursor
        self.witness.see_deliveries(core)
        self.stepped()
        return delivery

    def ack(self) -> None:
        self.core.step(DeliveryAcked())
        self.journal.cursor = self.core.application.cursor

    def park(self) -> None:
        """As `Deliveries.park`."""
        core = self.core
        core.step(Parked(core.application.acked + 1, core.application.deliveries, "too hard", self.now()))
        self._saves_cursor = True
        self.stepped()

    def unpark(self, position: int) -> None:
        self.core.step(Unparked(position, self.now()))
        self._saves_cursor = True
        self.stepped()

    # Connections

    def dial(self, peer: int) -> None:
        """As `Connections._keep_connected`: call, unless there is a connection."""
        world = self.world
        if peer in self.serving or peer in self._dialling:
            return
        called = world.process_at(peer)
        if called is None or not called.is_up or not world.network.can_reach(self.rank, peer):
            self._dial_later(peer)
            return
        near, far = world.network.connect(self, called)
        self.ends[near] = called.ends[far] = None
        self._dialling.add(peer)
        near.write([encode(self._greeter.compose(peer))], is_greeting=True)
        world.push(world.now + _GREETING_PATIENCE, self, self._give_up, near)
        self._pauses[peer] = min(2 * self._pauses.get(peer, 20), 640)

    def _dial_later(self, peer: int) -> None:
        """After a while, and a longer one if that has not helped before."""
        pause = int(self._pauses.get(peer, 20) * (0.5 + 0.5 * self.world.random()))
        self.world.push(self.world.now + pause * MILLISECOND, self, self.dial, peer)

    def _give_up(self, end: End) -> None:
        if not end.is_closed and self.serving.get(end.peer) is not end:
            end.abort()
            self.on_broken(end)

    def receive(self, end: End, frames: list[bytes]) -> None:
        """As `Connections._read`."""
        try:
            if self.serving.get(end.peer) is not end:
                self._greet(end, frames)
                return
            world = self.world
            now, link, time = world.now * 1e-9, self.links.by_peer[end.peer], self.now()
            for data in frames:
                link.receive(decode(data), now, time)
                self.links.ask_for_held(link, time)
        except StaleGreetingError as error:
            self.world.count("stale greeting")
            if error.refusal:
                end.write([encode(Refusal(error.refusal))])
            self._close(end)
        except RemoteError as error:
            self._on_remote_error(end, error)
        self.stepped()
        self._write(end)

    def _greet(self, end: End, frames: list[bytes]) -> None:
        """As `Handshake.read_greeting` and `accept`, then `Connections._serve`."""
        greeting = decode(frames[0])
        if isinstance(greeting, Refusal):
            raise RefusedError(greeting.reason)
        if not isinstance(greeting, Greeting):
            return self._close(end)  # of a connection that was replaced
        peer = self._greeter.find_partner(greeting, end.peer if end.dialled else None)
        self._greeter.check_resumable(peer, greeting)
        self._greeter.accept(peer, greeting, self.now())
        self.stepped()
        if not end.dialled:
            end.write([encode(self._greeter.compose(peer))], is_greeting=True)
        by_lesser_name = (self.name < self.world.roster.names[peer]) == end.dialled
        before, link = self.serving.get(peer), self.links.by_peer[peer]
        if before is not None:
            if not link.is_replaced_by(greeting, by_lesser_name):
                return self._close(end)
            before.abort()
            self.ends.pop(before, None)
        self.serving[peer] = end
        self._dialling.discard(peer)
        self._pauses[peer] = 20
        link.open(greeting, self.world.now * 1e-9, by_lesser_name)
        if self.world.is_told:
            self.world.tell(self.name, f"is connected to {greeting.me}")
        if len(frames) > 1:
            self.receive(end, frames[1:])
        return None

    def _on_remote_error(self, end: End, error: RemoteError) -> None:
        world = self.world
        world.tell(self.name, f"refuses {world.roster.names[end.peer]}: {error}")
        if world.faults.forked is not None:
            world.count("fork reported")
        if world.is_honest:
            raise ViolationError(f"{self.name} refuses {world.roster.names[end.peer]}: {error}")
        end.write([encode(Refusal(str(error)))])
        self._close(end)

    def _close(self, end: End) -> None:
        end.abort()
        self.on_broken(end)

    def on_broken(self, end: End) -> None:
        """A connection is over."""
        self.ends.pop(end, None)
        peer, world = end.peer, self.world
        if self.serving.get(peer) is end:
            del self.serving[peer]
            if self.is_up:
                self.links.by_peer[peer].close()
            world.tell(self.name, f"lost {world.roster.names[peer]}")
        elif end.dialled:
            self._dialling.discard(peer)
        if peer not in self.serving and peer not in self._dialling:
            self._dial_later(peer)

    def pump(self) -> None:
        """As `Connections._write`, for all."""
        for end in list(self.serving.values()):
            self._write(end)

    def _write(self, end: End) -> None:
        if self.serving.get(end.peer) is not end:
            return
        link, now = self.links.by_peer[end.peer], self.world.now * 1e-9
        while frames := link.take_frames(now):
            end.write([encode(frame) for frame in frames])

    # Now and then

    def tick(self, _: object) -> None:
        """As `Group._tick` and `Connections.gossip`."""
        world, core = self.world, self.core
        now = self.now()
        if now < core.time:
            raise ViolationError(f"{self.name}: its clock went back from {core.time} to {now}")
        if core.has_timer_due(now):
            core.step(TimerFired(now))
            self.stepped()
        self.links.gossip(now, PATIENCE)
        if core.stability.divergences or core.equivocators:
            world.count("fork reported")
            if world.is_honest:
                raise ViolationError(f"{self.name}: {core.stability.divergences} {core.equivocators}")
        seconds = world.now * 1e-9
        for link in self.links.open_links():
            if link.tick(seconds) is not None:
                self._close(self.serving[link.peer])
        self.pump()
        self.application.tick()
        world.push(world.now + TICK, self, self.tick, None)
