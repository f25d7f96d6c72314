"""Transfers a group from the reference to the calm kernel while nothing changes.

A group is *calm* if all members that are not down for good have the same view and know it, every message that
a member may lack is an application message, and nothing else is in flight. Other planned events of the world
limit how long the calm may last.
"""

from __future__ import annotations

from itertools import repeat
from typing import Any, cast

import numpy as np

from antecede.causality import MessageId
from antecede.membership.failure_detection import WINDOW, HeartbeatDetector
from antecede.membership.member import ChangingMember
from antecede.membership.packets import PLAIN, ProgressReport, Stream
from antecede.membership.state import Phase, RetainedMessage
from antecede.membership.view_flooding import ViewFlooding
from antecede.overlay.vcube import cluster
from antecede.protocols.base import Packet
from antecede.protocols.flat import DependencyPacket
from antecede.protocols.flooding import FloodPacket
from antecede.sim.changing_world import ChangingGroupWorld
from antecede.sim.kernels.changing import state as at
from antecede.sim.kernels.changing.state import Capacities, create_state
from antecede.sim.metrics import Meter
from antecede.sim.network import DirectNetwork
from antecede.sim.workload import NEVER
from antecede.sim.world import ARRIVAL, REPORT, SEND, Event

_SHORTEST = 10_000_000
"""In nanoseconds: a calm period that cannot last longer is left to the reference."""


class NotCalmError(Exception):
    """Something is in progress that only the reference can process."""


def _require(condition: bool) -> None:
    if not condition:
        raise NotCalmError


class TakenGroup:
    """A group that was taken over."""

    def __init__(
        self, world: ChangingGroupWorld, meter: Meter, payload: int, rows: int, room: Capacities
    ) -> None:
        """Raises `NotCalmError` if the group is not calm."""
        self._world, self._meter = world, meter
        self._kind = type(world.members[0])
        self._payload = PLAIN + bytes(payload)
        self._find_members()
        for member in self._live:
            self._require_calm(member)  # Checked first: most groups that are not calm fail here.
        self._message_at: dict[MessageId, int] = {}
        self._message_of: dict[bytes, int] = {}
        self._report_of: dict[int, int] = {}
        self._others: list[Packet] = []
        self.state = create_state(
            len(self._streams), len(self._processes), len(world.members), len(world.partitions), rows, room
        )
        self._take_world()
        self._take_members()
        self._taken_messages = int(self.state.scalars[at.MESSAGES_USED])

    def _find_members(self) -> None:
        """The members that take part, and how long the calm may last."""
        world = self._world
        gone = {address for address, until in world.down_until.items() if until >= NEVER}
        members = [each for each in world.members if each.me not in gone]
        _require(not any(each.phase in (Phase.JOINING, Phase.LEAVING) for each in members))
        self._live = [each for each in members if each.is_member]
        _require(bool(self._live))
        addresses = self._live[0].addresses
        _require(all(each.addresses == addresses and each.stream in addresses for each in self._live))
        self._streams = sorted(addresses)
        self._rank = {stream: rank for rank, stream in enumerate(self._streams)}
        view = [addresses[stream] for stream in self._streams]
        live = {each.me for each in self._live}
        _require(all(each in live or each in gone for each in view))
        self._processes = view + sorted(gone.intersection(range(len(world.members))) - set(view))
        self._place_at = {address: place for place, address in enumerate(self._processes)}
        taken: list[Event] = []
        self._left: list[Event] = []
        for event in world._events:
            (taken if self._takes(event, gone) else self._left).append(event)
        self._taken = taken
        self.stop = min((event[0] for event in self._left), default=NEVER)
        _require(self.stop - world.now >= _SHORTEST)

    def _takes(self, event: Event, gone: set[int]) -> bool:
        _, kind, peer, source, _, packet = event
        if kind in (SEND, REPORT):
            is_member = self._world.members[peer].phase == Phase.MEMBER
            return peer in self._place_at and (is_member or (peer in gone and kind == REPORT))
        if kind != ARRIVAL:
            return False
        size = len(self._streams)
        is_between_members = self._place_at.get(peer, size) < size > self._place_at.get(source, size)
        return peer in gone or (is_between_members and self._is_ordinary(packet))

    def _is_ordinary(self, packet: Packet) -> bool:
        """Whether a packet is a single application message, or a report of a group that does not change."""
        if type(packet) is ProgressReport:
            says_more = packet.closed or packet.done or packet.admissions or packet.has_left
            return not says_more and packet.delivered.keys() == self._rank.keys()
        if not isinstance(packet, DependencyPacket | FloodPacket) or packet.payload != self._payload:
            return False
        causes = packet.causes if isinstance(packet, DependencyPacket) else {}
        return packet.origin in self._rank and causes.keys() <= self._rank.keys()

    def _take_world(self) -> None:
        world, state = self._world, self.state
        scalars = state.scalars
        scalars[at.NOW], scalars[at.MESSAGES_LEFT] = world.now, world._messages_left
        for number, cut in enumerate(world.partitions):
            state.cuts[number] = cut.time, cut.end
            state.sides[number, [peer for peer in cut.peers if peer < len(world.members)]] = True
        for place, address in enumerate(self._processes):
            state.place_at[address] = place
            row = state.members[place]
            row[at.ADDRESS], row[at.DOWN_UNTIL] = address, world.down_until.get(address, 0)
            row[at.SINCE], row[at.SENDS] = world._joined_at.get(address, 0), world._sends[address]
            row[at.BROADCASTS], row[at.IS_SILENT] = world._broadcasts[address], not world._groups[address]
        links = cast(DirectNetwork, world.network)._links
        for (source, to), link in links.items():
            here, there = self._place_at.get(source, -1), self._place_at.get(to, -1)
            if 0 <= here < len(self._streams) > there >= 0:
                _require(link.sent < (1 << at.NUMBER_BITS) - 2)
                state.pairs[at.LINK_SENT, here, there] = link.sent
                state.pairs[at.LINK_LAST, here, there] = link.last
        arrivals, alarms = [], []
        for time, kind, peer, source, number, packet in self._taken:
            if kind == ARRIVAL:
                ends = peer << at.ADDRESS_BITS | source
                item = self._take_packet(packet)
                arrivals.append((time, ends << at.NUMBER_BITS | number >> 8, item))
            else:
                alarm = at.SEND_ALARM if kind == SEND else at.REPORT_ALARM
                alarms.append((time, alarm << at.ADDRESS_BITS | peer, 0))
        _require(len(arrivals) + len(self._streams) < len(state.arrivals))
        # A sorted list is a heap.
        for items, rows, count in (
            (arrivals, state.arrivals, at.ARRIVALS),
            (alarms, state.alarms, at.ALARMS),
        ):
            if items:
                rows[: len(items)] = sorted(items)
            scalars[count] = len(items)

    def _take_packet(self, packet: Packet) -> int:
        if not self._is_ordinary(packet):
            self._others.append(packet)
            return len(self._others) - 1 << at.KIND_BITS | at.OTHER
        if isinstance(packet, ProgressReport):
            return self._take_counts(packet.delivered) << at.KIND_BITS | at.REPORT
        return self._take_message(packet) << at.KIND_BITS | at.MESSAGE

    def _take_counts(self, counts: dict[Stream, int]) -> int:
        """The row of a report's counts."""
        row = self._report_of.get(id(counts))
        if row is None:
            row = self._report_of[id(counts)] = self._add_counts(counts)
        return row

    def _add_counts(self, counts: dict[Stream, int]) -> int:
        _require(counts.keys() <= self._rank.keys())
        scalars, reports = self.state.scalars, self.state.reports
        row = int(scalars[at.REPORTS_USED])
        _require(row + 1 < len(reports))
        in_order = map(counts.get, self._streams, repeat(-1))
        reports[row] = np.fromiter(in_order, np.int64, len(self._streams))
        scalars[at.REPORTS_USED] += 1
        return row

    def _take_data(self, data: bytes) -> int:
        """The message of a packet, in the form in which it is retained."""
        which = self._message_of.get(data)
        if which is None:
            packet = self._kind.decode(data)
            _require(self._is_ordinary(packet) and not isinstance(packet, ProgressReport))
            which = self._message_of[data] = self._take_message(packet)
        return which

    def _take_message(self, packet: Any) -> int:
        message = MessageId(packet.origin, packet.seq)
        which = self._message_at.get(message)
        if which is not None:
            return which
        scalars, state = self.state.scalars, self.state
        which = self._message_at[message] = int(scalars[at.MESSAGES_USED])
        causes = packet.causes if isinstance(packet, DependencyPacket) else {}
        begin = int(scalars[at.CAUSES_USED])
        end = begin + len(causes)
        _require(which + 1 < len(state.messages) and end + len(self._streams) < len(state.causes))
        for place, (stream, count) in enumerate(causes.items(), begin):
            state.causes[place] = self._rank[stream], count
        origin = self._rank[packet.origin]
        named = MessageId(self._processes[origin], packet.seq)
        size = self._kind.control_bytes(packet)
        sent_at = self._meter._sent_at.get(named, 0)
        state.messages[which] = origin, packet.seq, begin, end, sent_at, size
        scalars[at.MESSAGES_USED] += 1
        scalars[at.CAUSES_USED] = end
        return which

    def _packet(self, stream: Stream, seq: int, causes: dict[Stream, int]) -> Packet:
        if self._kind.ordering is ViewFlooding:
            return FloodPacket(self._payload, stream, seq)
        return DependencyPacket(self._payload, stream, seq, causes)

    def _take_members(self) -> None:
        for member in self._live:
            self._take_member(member)
        for place, stream in enumerate(self._streams):
            row = self.state.members[place]
            row[at.ID_BYTES] = (
                len(self._kind.encode(report_of_counts(stream, {})))
                - len(self._kind.encode(report_of_counts(0, {})))
                + 1
            )
            row[at.REPORT_BASE] = len(self._kind.encode(report_of_counts(stream, {}))) - 1
            empty = self._packet(stream, 0, {})
            # Without its number, and without the length of its causes.
            row[at.MESSAGE_BASE] = self._kind.control_bytes(empty) - (
                2 if isinstance(empty, DependencyPacket) else 1
            )

    def _require_calm(self, member: ChangingMember) -> None:
        rank, order, progress = self._rank, member.order, member.progress
        busy: tuple[Any, ...] = (
            member.is_stale, member.ends, member.removals.removed, member.early, member.early_requests,
            member.before_welcome, member.forgotten, order.forgotten, member.unstable_admissions,
            member.backlog.entries, member.backlog.admissions, member.undelivered, member.requests,
            member.snapshot is not None, member.outbox, member.changes, member.fetching,
            progress.done, progress.announced, progress.coming,
        )  # fmt: skip
        _require(not any(busy))
        meter = self._world.meter
        _require(member.me not in meter._admitted or member.me in meter._first_delivered)
        _require(order.delivered.keys() == rank.keys() and order.received.keys() == rank.keys())
        _require(order.audience == tuple(stream for stream in self._streams if stream != member.stream))
        for table in (member.unstable, progress.known, progress.pending, member.heard, member.lacked):
            _require(table.keys() <= rank.keys())
        detector = self._world._detectors[member.me]
        others = rank.keys() - {member.stream}
        for watched in (detector._timeouts, detector._heard, detector._reported, detector.suspected):
            _require(watched.keys() <= others)

    def _take_member(self, member: ChangingMember) -> None:
        me, state, rank = self._rank[member.stream], self.state, self._rank
        pairs, row, order = state.pairs, state.members[me], member.order
        row[at.ARRIVED], row[at.PLACED], row[at.REPORTS] = member.arrivals, member.deliveries, member.reports
        pairs[at.DELIVERED, me] = [order.delivered[stream] for stream in self._streams]
        if isinstance(order, ViewFlooding):
            held = order.ready or order.unnumbered.ready or order.unnumbered.held
            _require(not held and set(order.outgoing) | order.stable.keys() <= rank.keys())
            pairs[at.RECEIVED, me] = [order.received[stream] for stream in self._streams]
            for stream, count in order.stable.items():
                pairs[at.STABLE, me, rank[stream]] = count
            self._take_routes(me, [(rank[stream], 0) for stream in order.outgoing])
        else:
            self._take_order(me, order)
        for stream, entries in member.unstable.items():
            self._take_entries(me, member, stream, entries)
        for stream, known in member.progress.known.items():
            _require(not (known.closed or known.done or known.waiting))
            pairs[at.KNOWN, me, rank[stream]] = self._add_counts(known.delivered)
        for stream, counts in member.heard.items():
            pairs[at.REPORTED, me, rank[stream]] = self._take_counts(counts)
        for stream, last in member.lacked.items():
            pairs[at.LACKED, me, rank[stream]] = last
        for stream, reports in member.progress.pending.items():
            for report in reports:
                _require(self._is_ordinary(report))
                self._take_pending(me, rank[stream], self._take_counts(report.delivered))
        self._take_detector(me, self._world._detectors[member.me])

    def _take_order(self, me: int, order: Any) -> None:
        pairs, rank = self.state.pairs, self._rank
        _require(not order.holdback.ready and not any(each.bits for each in order.received.values()))
        pairs[at.RECEIVED, me] = [order.received[stream].base for stream in self._streams]
        for table, counts in ((at.AWAITED, order.awaited), (at.NAMED, _named(order))):
            _require(counts.keys() <= rank.keys())
            for stream, count in counts.items():
                pairs[table, me, rank[stream]] = count
        if hasattr(order, "routes"):
            self._take_routes(me, [(rank[stream], bit) for bit, stream in order.routes.items()])
            for stream in self._streams:
                if rank[stream] != me:
                    pairs[at.CLUSTER, me, rank[stream]] = cluster(order.me, stream)

    def _take_routes(self, me: int, routes: list[tuple[int, int]]) -> None:
        begin = 64 * me
        _require(len(routes) <= 64)
        self.state.members[me, at.ROUTES_BEGIN], self.state.members[me, at.ROUTES_END] = (
            begin,
            begin + len(routes),
        )
        if routes:
            self.state.routes[begin : begin + len(routes)] = routes

    def _take_entries(
        self, me: int, member: ChangingMember, stream: Stream, retained: dict[int, RetainedMessage]
    ) -> None:
        """The messages of a stream that a member retains: all up to the last that has arrived."""
        state, order = self.state, member.order
        pairs, scalars, origin = state.pairs, state.scalars, self._rank[stream]
        first, delivered = min(retained), order.delivered[stream]
        is_own = stream == member.stream
        last = delivered if is_own else int(pairs[at.RECEIVED, me, origin])
        _require(len(retained) == last - first + 1 and max(retained) == last and first <= delivered + 1)
        duties = order.duties.get(stream, {}) if hasattr(order, "duties") else None
        _require(duties is None or duties.keys() == retained.keys())
        arrived = self._meter._arrived[member.me]
        begin = entry = int(scalars[at.ENTRIES_USED])
        _require(entry + len(retained) + 1 < len(state.entries))
        for seq in range(first, last + 1):
            each = retained[seq]
            _require((each.place > 0) == (seq <= delivered))
            row = state.entries[entry]
            row[at.ITEM], row[at.ARRIVAL_NUMBER], row[at.PLACE] = (
                self._take_data(each.packet),
                each.arrived,
                each.place,
            )
            row[at.DUTY] = duties[seq] if duties is not None else -1
            row[at.AFTER] = entry + 1 if seq < last else -1
            row[at.WAITING_AFTER] = -1
            if seq > delivered:
                message = MessageId(self._processes[origin], seq)
                _require(message in arrived)  # Otherwise it came with a snapshot.
                row[at.TIME] = arrived[message]
            entry += 1
        scalars[at.ENTRIES_USED] = entry
        state.members[me, at.RETAINED] += len(retained)
        pairs[at.ENTRY_FIRST, me, origin], pairs[at.ENTRY_LAST, me, origin] = begin, entry - 1
        pairs[at.ENTRY_NEXT, me, origin] = begin + delivered + 1 - first if last > delivered else -1

    def take_held(self) -> None:
        """Transfer the hold-back queues, in order, once everything else is transferred."""
        state = self.state
        for member in self._live:
            me, order = self._rank[member.stream], member.order
            if isinstance(order, ViewFlooding):
                continue
            for stream in getattr(order, "duties", ()):
                _require(stream in member.unstable)
                self._stamp()
                state.pairs[at.DUTY_STAMP, me, self._rank[stream]] = state.scalars[at.STAMPS]
            for awaited, waiting in order.holdback.held.items():
                self._stamp()
                for packet, unmet in waiting:
                    _require(isinstance(packet, DependencyPacket))
                    self._take_waiting(me, awaited, packet, unmet)

    def _stamp(self) -> None:
        self.state.scalars[at.STAMPS] += 1

    def _take_waiting(
        self, me: int, awaited: MessageId, packet: DependencyPacket, unmet: list[MessageId]
    ) -> None:
        state, rank = self.state, self._rank
        pairs, scalars, entries = state.pairs, state.scalars, state.entries
        origin = rank[packet.origin]
        first = int(pairs[at.ENTRY_FIRST, me, origin])
        _require(first >= 0 and all(each.origin in rank for each in unmet))
        entry = first + packet.seq - int(state.messages[entries[first, at.ITEM], at.SEQ])
        begin = int(scalars[at.UNMET_USED])
        _require(begin + len(unmet) + len(rank) < len(state.unmet))
        for each in unmet:
            state.unmet[scalars[at.UNMET_USED]] = rank[each.origin], each.seq
            scalars[at.UNMET_USED] += 1
        row = entries[entry]
        row[at.UNMET_BEGIN], row[at.UNMET_END] = begin, scalars[at.UNMET_USED]
        row[at.AWAITS_SEQ], row[at.STAMP] = awaited.seq, scalars[at.STAMPS]
        peer = rank[awaited.origin]
        if pairs[at.WAITING_FIRST, me, peer] < 0:
            pairs[at.WAITING_FIRST, me, peer] = entry
        else:
            entries[pairs[at.WAITING_LAST, me, peer], at.WAITING_AFTER] = entry
        pairs[at.WAITING_LAST, me, peer] = entry

    def _take_pending(self, me: int, member: int, row: int) -> None:
        state, pairs = self.state, self.state.pairs
        wait = int(state.scalars[at.PENDING_USED])
        _require(wait + 1 < len(state.pending))
        state.pending[wait] = row, -1
        state.scalars[at.PENDING_USED] += 1
        if pairs[at.PENDING_FIRST, me, member] < 0:
            pairs[at.PENDING_FIRST, me, member] = wait
        else:
            state.pending[pairs[at.PENDING_LAST, me, member], 1] = wait
        pairs[at.PENDING_LAST, me, member] = wait

    def _take_detector(self, me: int, detector: HeartbeatDetector) -> None:
        state, rank = self.state, self._rank
        state.members[me, at.CHECKED] = -1 if detector._checked is None else detector._checked
        tables = (
            (at.HEARD_AT, detector._heard), (at.REPORTED_AT, detector._reported),
            (at.SUSPECTED_AT, detector.suspected),
        )  # fmt: skip
        for table, times in tables:
            for stream, time in times.items():
                state.pairs[table, me, rank[stream]] = time
        for stream, learnt in detector._timeouts.items():
            count, values = learnt._number, learnt._values
            ring = state.intervals[me, rank[stream]]
            ring[: len(values)] = values
            if count > WINDOW:
                ring[:] = np.roll(ring, count % WINDOW)
            state.pairs[at.INTERVALS, me, rank[stream]] = count


def _named(order: Any) -> dict[Stream, int]:
    """The dependencies that the next message names."""
    found: dict[Stream, int] = order.causes if hasattr(order, "causes") else order.changed
    return found


def report_of_counts(stream: Stream, counts: dict[Stream, int]) -> ProgressReport:
    return ProgressReport(stream, counts, {}, frozenset())
