"""The event kernel of `hcg` and `basic`: members, gateways and what they send each other.

The clocks and all tables are in `clocks`. Packets are sent as soon as they are created, in the order of the
reference's `Effects`; no member can observe the difference.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from antecede.jit import njit_hot, njit_inline
from antecede.protocols.hcg import CLOCKS, SubgroupLayout
from antecede.protocols.limits import MAX_REMEMBERED
from antecede.sim.kernels.contract import ObserverFeed, Progress, Unsupported
from antecede.sim.kernels.hcg.clocks import (
    ACCEPTED,
    ARRIVED,
    BETWEEN_BITS,
    CELL_COLUMNS,
    FORWARDED,
    FREE_CELLS,
    FREE_PACKETS,
    FREE_ROWS,
    GATEWAY,
    HERE_BITS,
    IN_ORDER,
    KEY,
    KIND,
    LINEAR,
    LINEAR_ACK,
    NEXT,
    NUMBER,
    ORIGIN,
    PACKET,
    PACKET_COLUMNS,
    PLACE,
    READY,
    REAL,
    SAMPLED,
    SENT_AT,
    SEQ,
    STAMP,
    SUBGROUP_TIMED,
    SUBGROUP_VECTOR,
    TOPS,
    USES,
    VECTORS,
    WAITING,
    HcgParams,
    HcgState,
    add_promise,
    advance_time,
    append,
    bucket,
    enqueue,
    find_preceding,
    free_cell,
    hold_unmet,
    new_cell,
    new_packet,
    new_row,
    next_in_order,
    raise_promise,
    record_precedence,
    release,
    take_first,
    take_waiting,
)
from antecede.sim.kernels.runtime import heap
from antecede.sim.kernels.runtime import world as runtime
from antecede.sim.kernels.runtime.agenda import next_event, plan_next_send
from antecede.sim.kernels.runtime.bit_set import count_ones, highest_bit
from antecede.sim.kernels.runtime.bit_window import add_if_new, bits_above_base, create_windows, missing_bits
from antecede.sim.kernels.runtime.counting import (
    begin_broadcast,
    record_delivery,
    record_receive,
    record_send,
)
from antecede.sim.kernels.runtime.links import transmit
from antecede.sim.kernels.runtime.msgpack_sizes import head_bytes, int_bytes, payload_head
from antecede.sim.kernels.runtime.world_state import ARRIVAL, FULL, NOTHING, NOW, SAMPLE, SEND, STOPPED
from antecede.sim.metrics import Metrics
from antecede.sim.scenario import Scenario
from antecede.units import SECOND

_MAX_PACKETS = 1 << 23
_MAX_CELLS = 1 << 26
_MAX_COUNTS = 1 << 29
_MAX_QUEUED = 1 << 28
_MAX_PAIRS = 1 << 28
_MAX_NAMED = 300
"""The most peers, since every pair of them is compared."""
_PROBES = ("named", "costs")
_LONG = 1 << 62

_ALL_UP_TO, _SINGLE, _PEERS_MESSAGE = (kind << 60 for kind in range(3))
"""Kinds of `GatewayDependency`, as the upper bits of a key."""
_PREVIOUS, _SINGLES = 1 << 62, 1 << 40
"""How far the dependencies of a gateway packet were checked: its origin's previous message; single messages
(plus the cell of one); else the place of a count."""


def supports(scenario: Scenario) -> Unsupported | None:
    """Why the kernel cannot run a scenario; None if it can."""
    if scenario.network is not None:
        return Unsupported("delays depend on what else is sent")
    unknown = [name for name in scenario.probes if name not in _PROBES]
    if unknown:
        return Unsupported(f"probe {unknown[0]} is not compiled for {scenario.protocol}")
    if "named" in scenario.probes and scenario.peers > _MAX_NAMED:
        return Unsupported(f"probe named compares more than {_MAX_NAMED} peers")
    sizes = [members for _, members in _layout(scenario).parse()]
    if max(sum(members**2 for members in sizes), scenario.peers * len(sizes)) > _MAX_PAIRS:
        return Unsupported("its subgroups are too large, or too many")
    return None


def _layout(scenario: Scenario) -> SubgroupLayout:
    arranged = scenario.resolved_layout()
    assert isinstance(arranged, SubgroupLayout)  # noqa: S101
    return arranged


def run(scenario: Scenario, observers: ObserverFeed, progress: Progress | None) -> Metrics:
    layout = _layout(scenario)
    clocks = np.array([CLOCKS.index(clock) for clock, _ in layout.parse()], np.int64)
    members = np.array([count for _, count in layout.parse()], np.int64)
    params = _create_params(scenario, layout, clocks, members)
    state = _create_state(scenario, params, clocks, members)
    squares = int(np.sum(members**2))
    acks, wakes = int(np.sum(members[clocks == LINEAR] ** 2)), int(np.sum(members[clocks == REAL]))
    world, rules = runtime.create_world(
        scenario,
        links=squares + len(members) ** 2,
        packets_per_message=scenario.peers + len(members) + acks + wakes,
        observed=bool(observers),
        furthest_wake=params.patience + layout.skew,
    )
    runtime.drive(
        world, rules, lambda count: advance(world, rules, params, state, count), observers, progress
    )
    return runtime.metrics(world, int(count_held(params, state)), _measured(scenario, state))


def _most_messages(scenario: Scenario) -> int:
    """An upper estimate of a run's messages, for which queues and windows are sized."""
    return 1024 + int(scenario.expected_messages() * (8 if scenario.reply else 2))


def _create_params(
    scenario: Scenario, layout: SubgroupLayout, clocks: np.ndarray, members: np.ndarray
) -> HcgParams:
    return HcgParams(
        subgroups=len(members),
        width=max(len(members), int(np.max(members * (clocks == VECTORS)))),
        queue_capacity=min(_most_messages(scenario), _MAX_QUEUED // scenario.peers),
        patience=layout.longest_delay + layout.skew + 1,
        head=int(payload_head(scenario.payload)),
        basic=scenario.protocol == "basic",
        repeats=any(fault.startswith("duplicate") for fault in scenario.faults),
        named="named" in scenario.probes,
        costs="costs" in scenario.probes,
        since=round(scenario.warmup * SECOND),
    )


def _create_state(scenario: Scenario, params: HcgParams, clocks: np.ndarray, members: np.ndarray) -> HcgState:
    """Before anything happens."""
    subgroups, peers = params.subgroups, scenario.peers
    first = np.cumsum(members) - members
    site = np.repeat(np.arange(subgroups), members)
    place = np.arange(peers) - first[site]
    starts = np.cumsum(members**2) - members**2
    squares, messages = int(np.sum(members**2)), _most_messages(scenario)
    vectors, linear = clocks == VECTORS, LINEAR in clocks
    before = subgroups * np.where(vectors, members, 1)
    looked_at = peers if params.named else 0
    remembering = peers if np.any(vectors) and not params.basic else 0
    state = HcgState(
        tops=np.zeros(TOPS, np.int64),
        packets=np.empty((_MAX_PACKETS, PACKET_COLUMNS), np.int64),
        cells=np.empty((_MAX_CELLS, CELL_COLUMNS), np.int64),
        rows=np.empty(min(_MAX_COUNTS, _MAX_PACKETS * params.width), np.int32),
        site=site,
        place=place,
        pairs=starts[site] + place * members[site],
        first=first,
        members=members,
        clocks=clocks,
        sent=np.zeros(peers, np.int64),
        alarm=np.zeros(peers, np.int64),
        queued=np.zeros(peers, np.int64),
        heap=np.empty((peers * params.queue_capacity, heap.COLUMNS), np.int64),
        counts=np.zeros(squares, np.int32),
        promised=np.zeros(peers, np.int64),
        lowest=np.zeros(peers, np.int64),
        at_lowest=members[site],
        promises=np.full(squares if linear else 0, -1, np.int32),
        held_local=np.full(peers << HERE_BITS, -1, np.int32),
        held_between=np.full(subgroups << BETWEEN_BITS, -1, np.int32),
        arrived=create_windows(squares if params.repeats or linear else 0, messages),
        windows=create_windows(2 * subgroups**2 + (0 if params.basic else int(np.sum(before))), messages),
        preceding=2 * subgroups**2 + np.cumsum(before) - before,
        last=np.zeros((subgroups, peers), np.int32),
        recent=np.full(subgroups, -1, np.int64),
        recent_end=np.full(subgroups, -1, np.int64),
        merged=np.zeros(squares if remembering else 0, np.int32),
        log=np.empty(remembering * MAX_REMEMBERED, np.int64),
        logged=np.zeros(remembering, np.int64),
        dropped=np.zeros(remembering, np.int64),
        named=np.zeros((looked_at, 5), np.int64),
        after=np.zeros((looked_at, looked_at, 3), np.int64),
        costs=np.zeros((4, 3), np.int64),
    )
    state.after[:, :, 2] = _LONG
    for ends in (IN_ORDER, READY, ACCEPTED, FREE_PACKETS, FREE_CELLS, FREE_ROWS):
        state.tops[ends] = -1
    return state


@njit_hot
def advance(world: Any, rules: Any, params: Any, state: Any, budget: Any) -> Any:
    """Process up to `budget` events; return False when none are left."""
    for _ in range(budget):
        kind, me, source, packet = next_event(world, rules)
        if kind == NOTHING:
            return False
        if kind == STOPPED:
            return True
        if kind == SAMPLE:
            state.tops[SAMPLED] += 1
            continue
        sending = False
        if kind == SEND:
            sending = begin_broadcast(world, me)
            plan_next_send(world, rules, me)
            if not sending:
                continue
        elif kind == ARRIVAL:
            receive(world, state, params, me, source, packet)
        clock = state.clocks[state.site[me]]
        going = True
        while going and not world.scalars[FULL]:
            carry_out(world, rules, state, params, me, clock, sending)
            going = sending = deliver(world, rules, state, params, me, clock)
    return True


@njit_inline
def deliver(world: Any, rules: Any, state: Any, params: Any, me: Any, clock: Any) -> Any:
    """Deliver all that is ready, until the member replies to one; True if it does."""
    gateway = state.place[me] == 0
    while not world.scalars[FULL]:
        cell = take_first(state, READY) if gateway else next_in_order(state, params, me, clock)
        if cell < 0:
            break
        packet, arrived = state.cells[cell, PACKET], state.cells[cell, ARRIVED]
        free_cell(state, cell)
        origin, seq = state.packets[packet, ORIGIN], state.packets[packet, SEQ]
        sent_at = state.packets[packet, SENT_AT]
        release(state, params, packet)
        if record_delivery(world, rules, me, origin, seq, sent_at, arrived) and begin_broadcast(world, me):
            return True
    return False


@njit_inline
def receive(world: Any, state: Any, params: Any, me: Any, source: Any, packet: Any) -> Any:
    """The twin of `Hcg.receive`, without its effects: a packet that arrives for the first time is
    enqueued."""
    packets, scalars = state.packets, world.scalars
    kind, sender = packets[packet, KIND] & 3, packets[packet, KIND] >> 2
    number = packets[packet, NUMBER]
    if kind == LINEAR_ACK:
        add_promise(world, state, me, sender, number, packets[packet, STAMP])
        release(state, params, packet)
        return
    record_receive(world, me, source, packets[packet, ORIGIN], packets[packet, SEQ])
    here = state.site[me]
    clock = state.clocks[here]
    new = True
    if kind == GATEWAY:
        new = add_if_new(scalars, state.windows, here * params.subgroups + state.site[source], number)
    elif params.repeats or clock == LINEAR:
        new = add_if_new(scalars, state.arrived, state.pairs[me] + sender, number)
    if not new or scalars[FULL]:
        release(state, params, packet)
        return
    cell = new_cell(world, state)
    state.cells[cell, PACKET], state.cells[cell, ARRIVED] = packet, scalars[NOW]
    if scalars[FULL]:
        return
    if kind == GATEWAY:
        state.cells[cell, PLACE] = _PREVIOUS
        hold_between(state, params, here, cell)
    else:
        enqueue(world, state, params, me, clock, cell)


@njit_inline
def hold_between(state: Any, params: Any, here: Any, cell: Any) -> Any:
    """The twin of `HoldBackQueue.hold` for gateways: under the first dependency that is not met."""
    cells, packets, far = state.cells, state.packets, state.windows
    packet = cells[cell, PACKET]
    accepted = (params.subgroups + here) * params.subgroups
    place = cells[cell, PLACE]
    while place >= 0:
        if place == _PREVIOUS:
            origin, number = packets[packet, ORIGIN], packets[packet, SEQ] - 1
            met = state.last[here, origin] >= number
            key = _PEERS_MESSAGE | origin << 32 | number
            after = packets[packet, FORWARDED]
        elif place >= _SINGLES:
            named = place - _SINGLES
            subgroup, word = cells[named, PACKET], cells[named, ARRIVED]
            missing = missing_bits(far, accepted + subgroup, word, np.uint64(cells[named, KEY]))
            met = missing == 0
            key = np.int64(0) if met else _SINGLE | subgroup << 32 | word << 6 | highest_bit(missing)
            after = cells[named, NEXT]
        else:
            number = np.int64(state.rows[packets[packet, STAMP] + place])
            met = far.base[accepted + place] >= number
            key = _ALL_UP_TO | place << 32 | number
            after = np.int64(-1)
        if not met:
            cells[cell, PLACE], cells[cell, KEY] = place, key
            hold_unmet(state, state.held_between, bucket(here, key, BETWEEN_BITS), cell)
            return
        if after >= 0:
            place = _SINGLES + after
        elif place >= _SINGLES:
            place = np.int64(params.subgroups - 1)
        else:
            place -= 1
    append(state, ACCEPTED, cell)


@njit_inline
def accept_from_gateway(world: Any, state: Any, params: Any, here: Any, packet: Any) -> Any:
    """Mark a gateway packet as accepted, and check again what waited for it."""
    packets = state.packets
    origin, seq, number = packets[packet, ORIGIN], packets[packet, SEQ], packets[packet, NUMBER]
    source = state.site[origin]
    accepted = (params.subgroups + here) * params.subgroups + source
    base = state.windows.base[accepted]
    add_if_new(world.scalars, state.windows, accepted, number)
    state.last[here, origin] = seq
    for count in range(base - 1, state.windows.base[accepted] + 1):
        if count == base - 1:
            key = _PEERS_MESSAGE | origin << 32 | seq
        elif count == base:
            key = _SINGLE | source << 32 | number
        else:
            key = _ALL_UP_TO | source << 32 | count
        waiting = take_waiting(state, state.held_between, bucket(here, key, BETWEEN_BITS), key)
        while waiting >= 0:
            after = state.cells[waiting, NEXT]
            hold_between(state, params, here, waiting)
            waiting = after


@njit_inline
def carry_out(world: Any, rules: Any, state: Any, params: Any, me: Any, clock: Any, sending: Any) -> Any:
    """Carry out what a member does after an event: the twin of the effects that `Hcg.broadcast`, `receive`
    and `wake` return."""
    now, here = world.scalars[NOW], state.site[me]
    control, paper = 0, 0
    more = sending
    while not world.scalars[FULL]:
        origin, seq, sent_at, forwarded, arrived = me, world.messages[me], now, np.int64(0), now
        if not more:
            cell = take_first(state, ACCEPTED)
            if cell < 0:
                break
            packet = state.cells[cell, PACKET]
            accept_from_gateway(world, state, params, here, packet)
            origin, seq = state.packets[packet, ORIGIN], state.packets[packet, SEQ]
            sent_at, forwarded = state.packets[packet, SENT_AT], state.packets[packet, NUMBER]
            arrived = state.cells[cell, ARRIVED]
            free_cell(state, cell)
            release(state, params, packet)
        size = send_in_subgroup(
            world, rules, state, params, me, clock, origin, seq, sent_at, forwarded, arrived
        )
        if more and size:
            control, paper = size, 4 * state.members[here] if clock == VECTORS else 4
        more = False
    if sending and params.named:
        state.named[me, 0], state.named[me, 1] = world.messages[me], now
    if clock == REAL:
        advance_time(world, rules, state, params, me)
    elif clock == LINEAR:
        acknowledge(world, rules, state, params, me)
    if state.place[me] == 0:
        while not world.scalars[FULL]:
            cell = next_in_order(state, params, me, clock)
            if cell < 0:
                break
            packet = state.cells[cell, PACKET]
            own = state.packets[packet, ORIGIN] == me and state.packets[packet, SEQ] == world.messages[me]
            alone = sending and own and state.members[here] == 1
            size, weight = process_in_order(world, rules, state, params, me, here, cell)
            if alone and size:
                control, paper = size, weight
    if sending:
        record_send(world, me, control, paper)


@njit_inline
def send_in_subgroup(
    world: Any, rules: Any, state: Any, params: Any, me: Any, clock: Any,
    origin: Any, seq: Any, sent_at: Any, forwarded: Any, arrived: Any,
) -> Any:  # fmt: skip
    """The twin of `Hcg._send_in_subgroup` and of `SubgroupClock.stamp`. Returns control bytes, 0 if there is
    no other member."""
    packet = new_packet(world, state)
    state.sent[me] += 1
    number, place, start = state.sent[me], state.place[me], state.pairs[me]
    members = state.members[state.site[me]]
    kind = SUBGROUP_TIMED
    size = 2 + params.head + int_bytes(origin) + int_bytes(seq) + int_bytes(number)
    if clock == REAL:
        stamp = world.scalars[NOW] + world.ahead[me]
        size += 1 + int_bytes(stamp)
    elif clock == LINEAR:
        stamp = np.int64(state.counts[start + place]) + 1
        raise_promise(state, me, start + place, stamp)
        state.promised[me] = stamp
        size += 1 + int_bytes(stamp)
    else:
        kind = SUBGROUP_VECTOR
        stamp = new_row(world, state, params)
        state.counts[start + place] = number
        size += head_bytes(members)
        for other in range(members):
            count = state.counts[start + other]
            state.rows[stamp + other] = count
            size += int_bytes(count)
    packets = state.packets
    packets[packet, KIND] = kind | place << 2
    packets[packet, ORIGIN], packets[packet, SEQ], packets[packet, NUMBER] = origin, seq, number
    packets[packet, STAMP], packets[packet, SENT_AT], packets[packet, FORWARDED] = stamp, sent_at, forwarded
    if place == 0:
        cell = new_cell(world, state)
        state.cells[cell, PACKET], state.cells[cell, ARRIVED] = packet, arrived
        packets[packet, USES] += 1
        if not world.scalars[FULL]:
            enqueue(world, state, params, me, clock, cell)
    to_subgroup(world, rules, state, me, packet, size)
    if params.costs and members > 1:
        count_costs(world, state, params, SUBGROUP_TIMED, size, 4 * members if clock == VECTORS else 4)
    release(state, params, packet)
    return size if members > 1 else 0


@njit_inline
def to_subgroup(world: Any, rules: Any, state: Any, me: Any, packet: Any, size: Any) -> Any:
    """Send a packet to all other members of the subgroup."""
    here, place = state.site[me], state.place[me]
    for other in range(state.members[here]):
        if other != place:
            to = state.first[here] + other
            state.packets[packet, USES] += transmit(
                world, rules, state.pairs[me] + other, me, to, packet, size
            )


@njit_inline
def acknowledge(world: Any, rules: Any, state: Any, params: Any, me: Any) -> Any:
    """Send an acknowledgement if one is due: the twin of `LinearClock.pending_ack`."""
    place = state.place[me]
    time = np.int64(state.counts[state.pairs[me] + place])
    if time == state.promised[me]:
        return
    state.promised[me] = time
    packet, packets = new_packet(world, state), state.packets
    packets[packet, KIND] = LINEAR_ACK | place << 2
    packets[packet, NUMBER], packets[packet, STAMP] = state.sent[me], time
    size = 2 + int_bytes(state.sent[me]) + int_bytes(time)
    to_subgroup(world, rules, state, me, packet, size)
    if params.costs and state.members[state.site[me]] > 1:
        count_costs(world, state, params, LINEAR_ACK, size, 4)
    release(state, params, packet)


@njit_inline
def process_in_order(world: Any, rules: Any, state: Any, params: Any, me: Any, here: Any, cell: Any) -> Any:
    """One step of `Hcg._process_in_order`. For a forwarded message, returns its bytes on the wire and as the
    paper counts."""
    packets = state.packets
    packet = state.cells[cell, PACKET]
    origin = packets[packet, ORIGIN]
    source = state.site[origin]
    packets[packet, USES] += 1
    if origin == me:
        free_cell(state, cell)
        release(state, params, packet)
    else:
        append(state, READY, cell)
    before = (params.subgroups + here) * params.subgroups
    if not params.basic:
        before = find_preceding(world, state, params, here, packet)
    number = packets[packet, FORWARDED]
    size, paper = 0, 0
    if source == here:
        own = (params.subgroups + here) * params.subgroups + here
        number = state.windows.base[own] + 1
        if params.subgroups > 1:
            size, paper = send_to_gateways(world, rules, state, params, me, here, packet, number, before)
        state.windows.base[own] = state.windows.last[own] = number
    if not params.basic:
        record_precedence(world, state, params, here, packet, source, number)
    release(state, params, packet)
    return size, paper


@njit_inline
def send_to_gateways(
    world: Any, rules: Any, state: Any, params: Any, me: Any, here: Any, packet: Any, number: Any, before: Any
) -> Any:
    """Number a message and send it to the other gateways."""
    packets, cells, far = state.packets, state.cells, state.windows
    origin, seq = packets[packet, ORIGIN], packets[packet, SEQ]
    made, row = new_packet(world, state), new_row(world, state, params)
    packets[made, KIND] = GATEWAY
    packets[made, ORIGIN], packets[made, SEQ], packets[made, NUMBER] = origin, seq, number
    packets[made, STAMP], packets[made, SENT_AT], packets[made, FORWARDED] = row, packets[packet, SENT_AT], -1
    size = 2 + params.head + int_bytes(origin) + int_bytes(seq) + int_bytes(number)
    size += head_bytes(params.subgroups)
    singles = 0
    for subgroup in range(params.subgroups):
        base, last = far.base[before + subgroup], far.last[before + subgroup]
        state.rows[row + subgroup] = base
        size += int_bytes(base)
        if last == base:
            continue
        for word in range(base >> 6, (last >> 6) + 1):
            bits = bits_above_base(far, before + subgroup, word)
            if bits and not world.scalars[FULL]:
                cell = new_cell(world, state)
                cells[cell, PACKET], cells[cell, ARRIVED], cells[cell, KEY] = subgroup, word, np.int64(bits)
                cells[cell, NEXT] = packets[made, FORWARDED]
                packets[made, FORWARDED] = cell
                singles += count_ones(bits)
                size += count_ones(bits) * (1 + int_bytes(subgroup) + int_bytes(word << 6))
    size += head_bytes(singles)
    paper = 4 * (1 + params.subgroups + singles)
    if params.named:
        probe_named(world, state, params, made)
    if params.costs:
        count_costs(world, state, params, GATEWAY, size, paper)
    links = len(state.counts) + here * params.subgroups
    for other in range(params.subgroups):
        if other != here:
            to = state.first[other]
            packets[made, USES] += transmit(world, rules, links + other, me, to, made, size)
    release(state, params, made)
    return size, paper


@njit_inline
def probe_named(world: Any, state: Any, params: Any, packet: Any) -> Any:
    """What the probe `named` counts of a packet."""
    named, after, packets = state.named, state.after, state.packets
    origin, seq, row = packets[packet, ORIGIN], packets[packet, SEQ], packets[packet, STAMP]
    if world.scalars[NOW] >= params.since:
        named[origin, 4] += 1
        for other in range(len(named)):
            if other == origin or named[other, 2] != seq:
                continue
            after[origin, other, 0] += 1
            subgroup, number = state.site[other], named[other, 3]
            found = number <= state.rows[row + subgroup]
            cell = packets[packet, FORWARDED]
            while cell >= 0 and not found:
                if state.cells[cell, PACKET] == subgroup and state.cells[cell, ARRIVED] == number >> 6:
                    found = (state.cells[cell, KEY] >> (number & 63) & 1) != 0
                cell = state.cells[cell, NEXT]
            if found:
                after[origin, other, 1] += 1
                if named[origin, 0] == seq and named[other, 0] == seq:
                    between = named[origin, 1] - named[other, 1]
                    after[origin, other, 2] = min(after[origin, other, 2], between)
    named[origin, 2], named[origin, 3] = seq, packets[packet, NUMBER]


@njit_inline
def count_costs(world: Any, state: Any, params: Any, kind: Any, size: Any, paper: Any) -> Any:
    """What the probe `costs` counts of a packet."""
    if world.scalars[NOW] >= params.since:
        state.costs[kind, 0] += 1
        state.costs[kind, 1] += paper
        state.costs[kind, 2] += size


@njit_hot
def count_held(params: Any, state: Any) -> Any:
    """How many messages are still held, at all members."""
    count = state.tops[WAITING]
    for me in range(len(state.queued)):
        for place in range(state.queued[me]):
            cell = state.heap[me * params.queue_capacity + place, heap.ITEM]
            packet = state.cells[cell, PACKET]
            count += state.packets[packet, ORIGIN] != me
    return count


def _measured(scenario: Scenario, state: HcgState) -> dict[str, float]:
    """The metrics of probes."""
    found: dict[str, float] = {}
    if "costs" in scenario.probes:
        for kind, name in ((SUBGROUP_TIMED, "local"), (LINEAR_ACK, "ack"), (GATEWAY, "global")):
            count, paper, wire = (int(value) for value in state.costs[kind])
            if count:
                found[f"{name}_packets"] = count
                found[f"{name}_paper_bytes"] = paper / count
                found[f"{name}_wire_bytes"] = wire / count
        if state.tops[SAMPLED]:
            found["member_storage"] = 0.0
    for one, other in np.argwhere(state.after[:, :, 0]).tolist():
        _, count, least = state.after[one, other].tolist()
        found[f"p{one}_after_p{other}"] = count / int(state.named[one, 4])
        if least < _LONG:
            found[f"p{one}_after_p{other}_least_ns"] = least
    return found
