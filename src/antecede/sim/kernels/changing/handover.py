"""A group that the calm kernel has taken over, handed back to the reference.

The state handed back is exactly the reference's, including the order of dictionaries where members send in
that order.
"""

from __future__ import annotations

import heapq
from collections import deque
from typing import Any, cast

import numpy as np

from antecede.causality import BitWindow, MessageId
from antecede.membership.failure_detection import WINDOW, AdaptiveTimeout, HeartbeatDetector
from antecede.membership.member import ChangingMember
from antecede.membership.packets import Stream
from antecede.membership.progress import KnownProgress
from antecede.membership.state import RetainedMessage
from antecede.membership.view_flooding import ViewFlooding
from antecede.protocols.base import Packet
from antecede.sim.changing_world import ChangingGroupWorld
from antecede.sim.kernels.changing import state as at
from antecede.sim.kernels.changing.state import Capacities
from antecede.sim.kernels.changing.taking_over import NotCalmError, TakenGroup, report_of_counts
from antecede.sim.metrics import Meter
from antecede.sim.network import DirectNetwork
from antecede.sim.world import ARRIVAL, REPORT, SEND


class CalmGroup(TakenGroup):
    """A group that was taken over, and can be handed back."""

    def hand_back(self) -> None:
        """The world and its members, as if they had run on the reference."""
        self._give_meters()
        self._give_world()
        self._packets: dict[int, Packet] = {}
        self._data: dict[int, bytes] = {}
        self._counts: dict[int, dict[Stream, int]] = {}
        self._pairs = self.state.pairs.tolist()
        self._entries = self.state.entries[: self.state.scalars[at.ENTRIES_USED]].tolist()
        self._messages = self.state.messages[: self.state.scalars[at.MESSAGES_USED]].tolist()
        self._causes = self.state.causes[: self.state.scalars[at.CAUSES_USED]].tolist()
        self._give_events()
        for member in self._live:
            self._give_member(member)

    def _give_meters(self) -> None:
        scalars, meter, changes = self.state.scalars.tolist(), self._meter, self._world.meter
        meter._control += scalars[at.CONTROL]
        meter._control_max = max(meter._control_max, scalars[at.CONTROL_MAX])
        meter._paper += scalars[at.PAPER]
        meter._paper_max = max(meter._paper_max, scalars[at.PAPER_MAX])
        meter._deliveries += scalars[at.DELIVERIES]
        meter._latency += scalars[at.LATENCY]
        meter._latency_max = max(meter._latency_max, scalars[at.LATENCY_MAX])
        meter._held += scalars[at.HELD]
        meter._hold += scalars[at.HOLD]
        changes._costs["report"][0] += scalars[at.REPORT_PACKETS]
        changes._costs["report"][1] += scalars[at.REPORT_BYTES]
        for number, (messages, control, link_bytes) in enumerate(self.state.quarters.tolist()):
            changes._control[number][0] += messages
            changes._control[number][1] += control
            changes._link_bytes[number] += link_bytes
        new = self.state.messages[self._taken_messages : scalars[at.MESSAGES_USED]]
        for origin, seq, sent_at in new[:, [at.ORIGIN, at.SEQ, at.SENT_AT]].tolist():
            address = self._processes[origin]
            meter._sent_at[MessageId(address, seq)] = sent_at
            meter._delivered[address][address] = seq

    def _give_world(self) -> None:
        world, state = self._world, self.state
        scalars = state.scalars.tolist()
        world.now, world._messages_left = scalars[at.NOW], scalars[at.MESSAGES_LEFT]
        world.packets += scalars[at.PACKETS]
        world.control_bytes += scalars[at.LINK_BYTES]
        for address, row in zip(self._processes, state.members.tolist(), strict=True):
            world._sends[address], world._broadcasts[address] = row[at.SENDS], row[at.BROADCASTS]
        network = cast(DirectNetwork, world.network)
        sent, last = state.pairs[at.LINK_SENT].tolist(), state.pairs[at.LINK_LAST].tolist()
        for here, source in enumerate(self._processes[: len(self._streams)]):
            for there, to in enumerate(self._processes[: len(self._streams)]):
                if sent[here][there]:
                    link = network._links.get((source, to)) or network._open(source, to)
                    link.sent, link.last = sent[here][there], last[here][there]

    def _give_events(self) -> None:
        world, scalars = self._world, self.state.scalars
        events = self._left
        mask = (1 << at.ADDRESS_BITS) - 1
        for time, order, item in self.state.arrivals[: scalars[at.ARRIVALS]].tolist():
            ends, number = order >> at.NUMBER_BITS, order & (1 << at.NUMBER_BITS) - 1
            peer, source = ends >> at.ADDRESS_BITS, ends & mask
            events.append((time, ARRIVAL, peer, source, number << 8, self._give_packet(source, item)))
        for time, order, _ in self.state.alarms[: scalars[at.ALARMS]].tolist():
            kind = SEND if order >> at.ADDRESS_BITS == at.SEND_ALARM else REPORT
            events.append((time, kind, order & mask, 0, 0, None))
        heapq.heapify(events)
        world._events = events

    def _give_packet(self, source: int, item: int) -> Packet:
        kind, which = item & (1 << at.KIND_BITS) - 1, item >> at.KIND_BITS
        if kind == at.OTHER:
            return self._others[which]
        if kind == at.REPORT:
            return report_of_counts(self._streams[self._place_at[source]], self._give_counts(which))
        return self._give_message(which)

    def _give_counts(self, row: int) -> dict[Stream, int]:
        counts = self._counts.get(row)
        if counts is None:
            values = self.state.reports[row].tolist()
            counts = dict(zip(self._streams, values, strict=True))
            if min(values) < 0:
                counts = {stream: count for stream, count in counts.items() if count >= 0}
            self._counts[row] = counts
        return counts

    def _give_message(self, which: int) -> Packet:
        packet = self._packets.get(which)
        if packet is None:
            origin, seq, begin, end, *_ = self._messages[which]
            causes = {self._streams[peer]: count for peer, count in self._causes[begin:end]}
            packet = self._packets[which] = self._packet(self._streams[origin], seq, causes)
        return packet

    def _give_data(self, which: int) -> bytes:
        data = self._data.get(which)
        if data is None:
            data = self._data[which] = self._kind.encode(self._give_message(which))
        return data

    def _give_member(self, member: ChangingMember) -> None:
        me, pairs, order = self._rank[member.stream], self._pairs, member.order
        row = self.state.members[me].tolist()
        member.arrivals, member.deliveries, member.reports = row[at.ARRIVED], row[at.PLACED], row[at.REPORTS]
        delivered, received = pairs[at.DELIVERED][me], pairs[at.RECEIVED][me]
        arrived = self._meter._arrived[member.me]
        for each in [each for each in arrived if each.origin in self._place_at]:
            del arrived[each]
        shown = self._meter._delivered[member.me]
        for place, stream in enumerate(self._streams):
            if delivered[place] != order.delivered[stream]:
                order.delivered[stream] = shown[self._processes[place]] = delivered[place]
        self._give_entries(me, member, arrived)
        if isinstance(order, ViewFlooding):
            order.received.update(zip(self._streams, received, strict=True))
            stable = zip(self._streams, pairs[at.STABLE][me], strict=True)
            order.stable.update((stream, count) for stream, count in stable if count >= 0)
        else:
            self._give_order(me, order, received)
        member.lacked = {s: n for s, n in zip(self._streams, pairs[at.LACKED][me], strict=True) if n >= 0}
        self._give_progress(me, member)
        self._give_detector(me, self._world._detectors[member.me])

    def _give_entries(self, me: int, member: ChangingMember, arrived: dict[MessageId, int]) -> None:
        order, stamps = member.order, self._pairs[at.DUTY_STAMP][me]
        duties: dict[Stream, dict[int, int]] = {}
        member.unstable = {}
        for place in sorted(range(len(self._streams)), key=stamps.__getitem__):
            entry, stream = self._pairs[at.ENTRY_FIRST][me][place], self._streams[place]
            retained: dict[int, RetainedMessage] = {}
            while entry >= 0:
                row = self._entries[entry]
                which, seq = row[at.ITEM], self._messages[row[at.ITEM]][at.SEQ]
                retained[seq] = RetainedMessage(self._give_data(which), row[at.ARRIVAL_NUMBER], row[at.PLACE])
                if row[at.DUTY] >= 0:
                    duties.setdefault(stream, {})[seq] = row[at.DUTY]
                if not row[at.PLACE]:
                    arrived[MessageId(self._processes[place], seq)] = row[at.TIME]
                entry = row[at.AFTER]
            if retained:
                member.unstable[stream] = retained
        if hasattr(order, "duties"):
            order.duties = duties

    def _give_order(self, me: int, order: Any, received: list[int]) -> None:
        streams, pairs = self._streams, self._pairs
        for stream, base in zip(streams, received, strict=True):
            if order.received[stream].base != base:
                order.received[stream] = BitWindow(base)
        for stream, count in zip(streams, pairs[at.AWAITED][me], strict=True):
            if count != order.awaited.get(stream, 0):
                order.awaited[stream] = count
        named = {stream: n for stream, n in zip(streams, pairs[at.NAMED][me], strict=True) if n}
        setattr(order, "causes" if hasattr(order, "causes") else "changed", named)
        held: dict[tuple[int, MessageId], list[tuple[Packet, list[MessageId]]]] = {}
        for place, stream in enumerate(streams):
            entry = pairs[at.WAITING_FIRST][me][place]
            while entry >= 0:
                row = self._entries[entry]
                key = row[at.STAMP], MessageId(stream, row[at.AWAITS_SEQ])
                unmet = self.state.unmet[row[at.UNMET_BEGIN] : row[at.UNMET_END]].tolist()
                lacking = [MessageId(streams[peer], seq) for peer, seq in unmet]
                held.setdefault(key, []).append((self._give_message(row[at.ITEM]), lacking))
                entry = row[at.WAITING_AFTER]
        order.holdback.held = {message: held[stamp, message] for stamp, message in sorted(held)}

    def _give_progress(self, me: int, member: ChangingMember) -> None:
        known, pairs = member.progress.known, self._pairs
        member.progress.pending = {}
        for place, stream in enumerate(self._streams):
            row = pairs[at.KNOWN][me][place]
            if row >= 0:
                known.setdefault(stream, KnownProgress()).delivered = dict(self._give_counts(row))
            if pairs[at.REPORTED][me][place] >= 0:
                member.heard[stream] = self._give_counts(pairs[at.REPORTED][me][place])
            wait, waiting = pairs[at.PENDING_FIRST][me][place], []
            while wait >= 0:
                row, wait = self.state.pending[wait].tolist()
                waiting.append(report_of_counts(stream, self._give_counts(row)))
            if waiting:
                member.progress.pending[stream] = cast(Any, waiting)

    def _give_detector(self, me: int, detector: HeartbeatDetector) -> None:
        checked = int(self.state.members[me, at.CHECKED])
        detector._checked = None if checked < 0 else checked
        tables = (
            (at.HEARD_AT, detector._heard), (at.REPORTED_AT, detector._reported),
            (at.SUSPECTED_AT, detector.suspected),
        )  # fmt: skip
        for place, stream in enumerate(self._streams):
            for table, times in tables:
                time = self._pairs[table][me][place]
                if time >= 0:
                    times[stream] = time
                else:
                    times.pop(stream, None)
            if stream not in detector._heard:
                continue
            learnt = detector._timeouts.get(stream)
            if learnt is None:
                learnt = detector._timeouts[stream] = AdaptiveTimeout(detector._interval)
            count = self._pairs[at.INTERVALS][me][place]
            if count != learnt._number:
                _relearn(learnt, self.state.intervals[me, place], count)


def _relearn(learnt: AdaptiveTimeout, ring: np.ndarray, count: int) -> None:
    """A time-out that has learnt `count` values, of which the last are in a ring."""
    values = (np.roll(ring, -(count % WINDOW)) if count > WINDOW else ring[:count]).tolist()
    learnt._values, learnt._sum, learnt._number = deque(values), sum(values), count
    learnt._descending = deque()
    longest = -1
    for number in range(len(values) - 1, -1, -1):
        if values[number] > longest:  # than all after it
            longest = values[number]
            learnt._descending.appendleft((count - len(values) + number, longest))


def take_over(
    world: ChangingGroupWorld, meter: Meter, payload: int, rows: int, room: Capacities
) -> CalmGroup | None:
    """The group of a world, if it is calm."""
    try:
        group = CalmGroup(world, meter, payload, rows, room)
        group.take_held()
    except NotCalmError:
        return None
    return group
