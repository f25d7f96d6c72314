"""The twin of `protocols/hcg.py`, for both protocols there: members, gateways and what passes between them.

The clocks and all tables are in `hcg_clocks`. Packets are sent as soon as they are made, in the order of the
`Effects` that the reference makes first; nobody can tell the difference.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from antecede.jit import njit_hot, njit_inline
from antecede.protocols.hcg import CLOCKS, SubgroupLayout
from antecede.protocols.limits import MAX_REMEMBERED
from antecede.sim.kernels.contract import ObserverFeed, Progress, Unsupported
from antecede.sim.kernels.hcg.clocks import (
    ACK,
    BETWEEN_BITS,
    CAME,
    CELL_BITS,
    CELL_COLUMNS,
    COUNTED,
    FREE_CELLS,
    FREE_PACKETS,
    FREE_ROWS,
    GLOBAL,
    HERE_BITS,
    KEY,
    LINEAR,
    NEXT,
    NUMBER,
    ORIGIN,
    OUT,
    PACKET,
    PACKET_COLUMNS,
    PLACE,
    READY,
    REAL,
    SAMPLED,
    SENT_AT,
    SEQ,
    SORT,
    STAMP,
    TAKEN,
    TIMED,
    TOPS,
    TURN,
    USES,
    VECTORS,
    WAITING,
    Plan,
    State,
    append,
    bucket,
    file,
    free_cell,
    keep,
    new_cell,
    new_packet,
    new_row,
    next_out,
    pass_time,
    promise,
    promise_more,
    reach,
    release,
    remember,
    take_first,
    woken,
)
from antecede.sim.kernels.runtime import events
from antecede.sim.kernels.runtime.events import (
    ARRIVAL,
    FULL,
    NOTHING,
    NOW,
    SAMPLE,
    SEND,
    STOPPED,
    arrived,
    delivered,
    following,
    may_send,
    sent,
    transmit,
)
from antecede.sim.kernels.runtime.msgpack_sizes import head_bytes, int_bytes, payload_head
from antecede.sim.kernels.runtime.windows import beyond, highest, lacking, ones, put, windows
from antecede.sim.metrics import Metrics
from antecede.sim.scenario import Scenario
from antecede.units import SECOND

_MAX_PACKETS = 1 << 23
_MAX_CELLS = 1 << CELL_BITS
_MAX_COUNTS = 1 << 29
_MAX_QUEUED = 1 << 28
_MAX_PAIRS = 1 << 28
_MAX_NAMED = 300
"""Peers, each of which is compared with each other."""
_PROBES = ("named", "costs")
_LONG = 1 << 62

_ALL_UP_TO, _ONE, _PEERS_OWN = (kind << 60 for kind in range(3))
"""Kinds of `Need`, as the upper bits of a key."""
_OWN, _BEYOND = 1 << 62, 1 << 40
"""How far a message between gateways was looked at: its origin's previous message, single messages (and the
cell of one), and else the place of a count."""


def supports(given: Scenario) -> Unsupported | None:
    """Why a run cannot be done so; None if it can."""
    if given.network is not None:
        return Unsupported("delays depend on what else is sent")
    unknown = [name for name in given.probes if name not in _PROBES]
    if unknown:
        return Unsupported(f"probe {unknown[0]} is not compiled for {given.protocol}")
    if "named" in given.probes and given.peers > _MAX_NAMED:
        return Unsupported(f"probe named compares more than {_MAX_NAMED} peers")
    sizes = [members for _, members in _layout(given).parse()]
    if max(sum(members**2 for members in sizes), given.peers * len(sizes)) > _MAX_PAIRS:
        return Unsupported("its subgroups are too large, or too many")
    return None


def _layout(given: Scenario) -> SubgroupLayout:
    arranged = given.resolved_layout()
    assert isinstance(arranged, SubgroupLayout)  # noqa: S101
    return arranged


def run(given: Scenario, observers: ObserverFeed, progress: Progress | None) -> Metrics:
    layout = _layout(given)
    parsed = layout.parse()
    squares = sum(members**2 for _, members in parsed)
    linear = sum(members**2 for clock, members in parsed if clock == "lt")
    timed = sum(members for clock, members in parsed if clock == "rt")
    copies = given.peers + len(parsed) + linear + timed
    plan, state = _fresh(given)
    furthest = plan.patience + layout.skew
    made, rules = events.fresh(given, squares + len(parsed) ** 2, copies, bool(observers), furthest)
    events.drive(made, rules, lambda count: advance(made, rules, plan, state, count), observers, progress)
    return events.metrics(made, int(stuck(plan, state)), _measured(given, state))


def _fresh(given: Scenario) -> tuple[Plan, State]:
    """Before anything happens."""
    layout = _layout(given)
    clocks = np.array([CLOCKS.index(clock) for clock, _ in layout.parse()], np.int64)
    members = np.array([count for _, count in layout.parse()], np.int64)
    subgroups, peers = len(members), given.peers
    first = np.cumsum(members) - members
    site = np.repeat(np.arange(subgroups), members)
    place = np.arange(peers) - first[site]
    starts = np.cumsum(members**2) - members**2
    squares = int(np.sum(members**2))
    messages = 1024 + int(given.expected_messages() * (8 if given.reply else 2))
    repeats = any(fault.startswith("duplicate") for fault in given.faults)
    basic = given.protocol == "basic"
    vectors = clocks == VECTORS
    before = subgroups * np.where(vectors, members, 1)
    plan = Plan(
        subgroups=subgroups,
        width=max(subgroups, int(np.max(members * vectors))),
        room=min(messages, _MAX_QUEUED // peers),
        patience=layout.longest_delay + layout.skew + 1,
        head=int(payload_head(given.payload)),
        basic=basic,
        repeats=repeats,
        named="named" in given.probes,
        costs="costs" in given.probes,
        since=round(given.warmup * SECOND),
    )
    counted = squares if repeats or LINEAR in clocks else 0
    looked_at = peers if plan.named else 0
    remembering = peers if np.any(vectors) and not basic else 0
    state = State(
        tops=np.zeros(TOPS, np.int64),
        packets=np.empty((_MAX_PACKETS, PACKET_COLUMNS), np.int64),
        cells=np.empty((_MAX_CELLS, CELL_COLUMNS), np.int64),
        rows=np.empty(min(_MAX_COUNTS, _MAX_PACKETS * plan.width), np.int32),
        site=site,
        place=place,
        pairs=starts[site] + place * members[site],
        first=first,
        members=members,
        clocks=clocks,
        sent=np.zeros(peers, np.int64),
        alarm=np.zeros(peers, np.int64),
        heaped=np.zeros(peers, np.int64),
        heap=np.empty((peers * plan.room, 2), np.int64),
        known=np.zeros(squares, np.int32),
        told=np.zeros(peers, np.int64),
        low=np.zeros(peers, np.int64),
        at_low=members[site],
        later=np.full(squares if LINEAR in clocks else 0, -1, np.int32),
        here=np.full(peers << HERE_BITS, -1, np.int32),
        between=np.full(subgroups << BETWEEN_BITS, -1, np.int32),
        arrived=windows(counted, messages),
        far=windows(2 * subgroups**2 + (0 if basic else int(np.sum(before))), messages),
        before=2 * subgroups**2 + np.cumsum(before) - before,
        last=np.zeros((subgroups, peers), np.int32),
        entries=np.full(subgroups, -1, np.int64),
        entries_end=np.full(subgroups, -1, np.int64),
        walked=np.zeros(squares if remembering else 0, np.int32),
        log=np.empty(remembering * MAX_REMEMBERED, np.int64),
        logged=np.zeros(remembering, np.int64),
        dropped=np.zeros(remembering, np.int64),
        named=np.zeros((looked_at, 5), np.int64),
        after=np.zeros((looked_at, looked_at, 3), np.int64),
        costs=np.zeros((4, 3), np.int64),
    )
    state.after[:, :, 2] = _LONG
    for ends in (OUT, READY, TAKEN, FREE_PACKETS, FREE_CELLS, FREE_ROWS):
        state.tops[ends] = -1
    return plan, state


@njit_hot
def advance(run: Any, rules: Any, plan: Any, state: Any, budget: Any) -> Any:
    """So many events; False if there are no more. The twin of `World.step`."""
    for _ in range(budget):
        kind, me, source, packet = following(run, rules)
        if kind == NOTHING:
            return False
        if kind == STOPPED:
            return True
        if kind == SAMPLE:
            state.tops[SAMPLED] += 1
            continue
        sending = False
        if kind == SEND:
            sending = may_send(run, me)
            events.plan_next(run, rules, me)
            if not sending:
                continue
        elif kind == ARRIVAL:
            receive(run, state, plan, me, source, packet)
        clock = state.clocks[state.site[me]]
        going = True
        while going and not run.at[FULL]:
            answer(run, rules, state, plan, me, clock, sending)
            going = sending = take_deliveries(run, rules, state, plan, me, clock)
    return True


@njit_inline
def take_deliveries(run: Any, rules: Any, state: Any, plan: Any, me: Any, clock: Any) -> Any:
    """The twin of `World._take_deliveries` until one is to be answered; True if one is."""
    gateway = state.place[me] == 0
    while not run.at[FULL]:
        cell = take_first(state, READY) if gateway else next_out(state, plan, me, clock)
        if cell < 0:
            break
        packet, came = state.cells[cell, PACKET], state.cells[cell, CAME]
        free_cell(state, cell)
        origin, seq = state.packets[packet, ORIGIN], state.packets[packet, SEQ]
        sent_at = state.packets[packet, SENT_AT]
        release(state, plan, packet)
        if delivered(run, rules, me, origin, seq, sent_at, came) and may_send(run, me):
            return True
    return False


@njit_inline
def receive(run: Any, state: Any, plan: Any, me: Any, source: Any, packet: Any) -> Any:
    """The twin of `Hcg.receive` without the effects. What comes for the first time is filed."""
    packets, at = state.packets, run.at
    sort, sender = packets[packet, SORT] & 3, packets[packet, SORT] >> 2
    number = packets[packet, NUMBER]
    if sort == ACK:
        promise(run, state, me, sender, number, packets[packet, STAMP])
        release(state, plan, packet)
        return
    arrived(run, me, source, packets[packet, ORIGIN], packets[packet, SEQ])
    here = state.site[me]
    clock = state.clocks[here]
    new = True
    if sort == GLOBAL:
        new = put(at, state.far, here * plan.subgroups + state.site[source], number)
    elif plan.repeats or clock == LINEAR:
        new = put(at, state.arrived, state.pairs[me] + sender, number)
    if not new or at[FULL]:
        release(state, plan, packet)
        return
    cell = new_cell(run, state)
    state.cells[cell, PACKET], state.cells[cell, CAME] = packet, at[NOW]
    if at[FULL]:
        return
    if sort == GLOBAL:
        state.cells[cell, PLACE] = _OWN
        hold_between(state, plan, here, cell)
    else:
        file(run, state, plan, me, clock, cell)


@njit_inline
def hold_between(state: Any, plan: Any, here: Any, cell: Any) -> Any:
    """The twins of `Hcg._needs` and of `Holdback.file` with `Hcg._is_met`."""
    cells, packets, far = state.cells, state.packets, state.far
    packet = cells[cell, PACKET]
    taken = (plan.subgroups + here) * plan.subgroups
    place = cells[cell, PLACE]
    while place >= 0:
        if place == _OWN:
            origin, number = packets[packet, ORIGIN], packets[packet, SEQ] - 1
            met = state.last[here, origin] >= number
            key = _PEERS_OWN | origin << 32 | number
            after = packets[packet, TURN]
        elif place >= _BEYOND:
            named = place - _BEYOND
            subgroup, word = cells[named, PACKET], cells[named, CAME]
            missing = lacking(far, taken + subgroup, word, np.uint64(cells[named, KEY]))
            met = missing == 0
            key = np.int64(0) if met else _ONE | subgroup << 32 | word << 6 | highest(missing)
            after = cells[named, NEXT]
        else:
            number = np.int64(state.rows[packets[packet, STAMP] + place])
            met = far.base[taken + place] >= number
            key = _ALL_UP_TO | place << 32 | number
            after = np.int64(-1)
        if not met:
            cells[cell, PLACE], cells[cell, KEY] = place, key
            keep(state, state.between, bucket(here, key, BETWEEN_BITS), cell)
            return
        if after >= 0:
            place = _BEYOND + after
        elif place >= _BEYOND:
            place = np.int64(plan.subgroups - 1)
        else:
            place -= 1
    append(state, TAKEN, cell)


@njit_inline
def take(run: Any, state: Any, plan: Any, here: Any, packet: Any) -> Any:
    """The twin of `Hcg._take` up to where it sends, and of `Holdback.wake` for all that it wakes."""
    packets = state.packets
    origin, seq, number = packets[packet, ORIGIN], packets[packet, SEQ], packets[packet, NUMBER]
    source = state.site[origin]
    taken = (plan.subgroups + here) * plan.subgroups + source
    base = state.far.base[taken]
    put(run.at, state.far, taken, number)
    state.last[here, origin] = seq
    for count in range(base - 1, state.far.base[taken] + 1):
        if count == base - 1:
            key = _PEERS_OWN | origin << 32 | seq
        elif count == base:
            key = _ONE | source << 32 | number
        else:
            key = _ALL_UP_TO | source << 32 | count
        waiting = woken(state, state.between, bucket(here, key, BETWEEN_BITS), key)
        while waiting >= 0:
            after = state.cells[waiting, NEXT]
            hold_between(state, plan, here, waiting)
            waiting = after


@njit_inline
def answer(run: Any, rules: Any, state: Any, plan: Any, me: Any, clock: Any, sending: Any) -> Any:
    """What a call makes a member do: the twins of `Hcg.broadcast`, `_from_gateway` and `_effects`."""
    now, here = run.at[NOW], state.site[me]
    control, paper = 0, 0
    more = sending
    while not run.at[FULL]:
        origin, seq, sent_at, turn, came = me, run.messages[me], now, np.int64(0), now
        if not more:
            cell = take_first(state, TAKEN)
            if cell < 0:
                break
            packet = state.cells[cell, PACKET]
            take(run, state, plan, here, packet)
            origin, seq = state.packets[packet, ORIGIN], state.packets[packet, SEQ]
            sent_at, turn = state.packets[packet, SENT_AT], state.packets[packet, NUMBER]
            came = state.cells[cell, CAME]
            free_cell(state, cell)
            release(state, plan, packet)
        size = send_here(run, rules, state, plan, me, clock, origin, seq, sent_at, turn, came)
        if more and size:
            control, paper = size, 4 * state.members[here] if clock == VECTORS else 4
        more = False
    if sending and plan.named:
        state.named[me, 0], state.named[me, 1] = run.messages[me], now
    if clock == REAL:
        pass_time(run, rules, state, plan, me)
    elif clock == LINEAR:
        acknowledge(run, rules, state, plan, me)
    if state.place[me] == 0:
        while not run.at[FULL]:
            cell = next_out(state, plan, me, clock)
            if cell < 0:
                break
            packet = state.cells[cell, PACKET]
            own = state.packets[packet, ORIGIN] == me and state.packets[packet, SEQ] == run.messages[me]
            alone = sending and own and state.members[here] == 1
            size, weight = turn_comes(run, rules, state, plan, me, here, cell)
            if alone and size:
                control, paper = size, weight
    if sending:
        sent(run, me, control, paper)


@njit_inline
def send_here(
    run: Any, rules: Any, state: Any, plan: Any, me: Any, clock: Any,
    origin: Any, seq: Any, sent_at: Any, turn: Any, came: Any,
) -> Any:  # fmt: skip
    """The twin of `Hcg._send_here` and of the `Clock.stamp`s; control bytes, 0 if there is nobody else."""
    packet = new_packet(run, state)
    state.sent[me] += 1
    number, place, start = state.sent[me], state.place[me], state.pairs[me]
    members = state.members[state.site[me]]
    sort = TIMED
    size = 2 + plan.head + int_bytes(origin) + int_bytes(seq) + int_bytes(number)
    if clock == REAL:
        stamp = run.at[NOW] + run.ahead[me]
        size += 1 + int_bytes(stamp)
    elif clock == LINEAR:
        stamp = np.int64(state.known[start + place]) + 1
        promise_more(state, me, start + place, stamp)
        state.told[me] = stamp
        size += 1 + int_bytes(stamp)
    else:
        sort = COUNTED
        stamp = new_row(run, state, plan)
        state.known[start + place] = number
        size += head_bytes(members)
        for other in range(members):
            count = state.known[start + other]
            state.rows[stamp + other] = count
            size += int_bytes(count)
    packets = state.packets
    packets[packet, SORT] = sort | place << 2
    packets[packet, ORIGIN], packets[packet, SEQ], packets[packet, NUMBER] = origin, seq, number
    packets[packet, STAMP], packets[packet, SENT_AT], packets[packet, TURN] = stamp, sent_at, turn
    if place == 0:
        cell = new_cell(run, state)
        state.cells[cell, PACKET], state.cells[cell, CAME] = packet, came
        packets[packet, USES] += 1
        if not run.at[FULL]:
            file(run, state, plan, me, clock, cell)
    to_subgroup(run, rules, state, me, packet, size)
    if plan.costs and members > 1:
        count_costs(run, state, plan, TIMED, size, 4 * members if clock == VECTORS else 4)
    release(state, plan, packet)
    return size if members > 1 else 0


@njit_inline
def to_subgroup(run: Any, rules: Any, state: Any, me: Any, packet: Any, size: Any) -> Any:
    """The twin of `Hcg._to_subgroup`, sent."""
    here, place = state.site[me], state.place[me]
    for other in range(state.members[here]):
        if other != place:
            to = state.first[here] + other
            state.packets[packet, USES] += transmit(run, rules, state.pairs[me] + other, me, to, packet, size)


@njit_inline
def acknowledge(run: Any, rules: Any, state: Any, plan: Any, me: Any) -> Any:
    """The twin of `Linear.owes`, sent."""
    place = state.place[me]
    time = np.int64(state.known[state.pairs[me] + place])
    if time == state.told[me]:
        return
    state.told[me] = time
    packet, packets = new_packet(run, state), state.packets
    packets[packet, SORT] = ACK | place << 2
    packets[packet, NUMBER], packets[packet, STAMP] = state.sent[me], time
    size = 2 + int_bytes(state.sent[me]) + int_bytes(time)
    to_subgroup(run, rules, state, me, packet, size)
    if plan.costs and state.members[state.site[me]] > 1:
        count_costs(run, state, plan, ACK, size, 4)
    release(state, plan, packet)


@njit_inline
def turn_comes(run: Any, rules: Any, state: Any, plan: Any, me: Any, here: Any, cell: Any) -> Any:
    """One round of `Hcg._turns_come`; of a message passed on, its bytes on the wire and on paper."""
    packets = state.packets
    packet = state.cells[cell, PACKET]
    origin = packets[packet, ORIGIN]
    source = state.site[origin]
    packets[packet, USES] += 1
    if origin == me:
        free_cell(state, cell)
        release(state, plan, packet)
    else:
        append(state, READY, cell)
    before = (plan.subgroups + here) * plan.subgroups
    if not plan.basic:
        before = reach(run, state, plan, here, packet)
    number = packets[packet, TURN]
    size, paper = 0, 0
    if source == here:
        own = (plan.subgroups + here) * plan.subgroups + here
        number = state.far.base[own] + 1
        if plan.subgroups > 1:
            size, paper = pass_on(run, rules, state, plan, me, here, packet, number, before)
        state.far.base[own] = state.far.last[own] = number
    if not plan.basic:
        remember(run, state, plan, here, packet, source, number)
    release(state, plan, packet)
    return size, paper


@njit_inline
def pass_on(
    run: Any, rules: Any, state: Any, plan: Any, me: Any, here: Any, packet: Any, number: Any, before: Any
) -> Any:
    """The twin of `Hcg._number`, sent to the other gateways."""
    packets, cells, far = state.packets, state.cells, state.far
    origin, seq = packets[packet, ORIGIN], packets[packet, SEQ]
    made, row = new_packet(run, state), new_row(run, state, plan)
    packets[made, SORT] = GLOBAL
    packets[made, ORIGIN], packets[made, SEQ], packets[made, NUMBER] = origin, seq, number
    packets[made, STAMP], packets[made, SENT_AT], packets[made, TURN] = row, packets[packet, SENT_AT], -1
    size = 2 + plan.head + int_bytes(origin) + int_bytes(seq) + int_bytes(number)
    size += head_bytes(plan.subgroups)
    singles = 0
    for subgroup in range(plan.subgroups):
        base, last = far.base[before + subgroup], far.last[before + subgroup]
        state.rows[row + subgroup] = base
        size += int_bytes(base)
        if last == base:
            continue
        for word in range(base >> 6, (last >> 6) + 1):
            bits = beyond(far, before + subgroup, word)
            if bits and not run.at[FULL]:
                cell = new_cell(run, state)
                cells[cell, PACKET], cells[cell, CAME], cells[cell, KEY] = subgroup, word, np.int64(bits)
                cells[cell, NEXT] = packets[made, TURN]
                packets[made, TURN] = cell
                singles += ones(bits)
                size += ones(bits) * (1 + int_bytes(subgroup) + int_bytes(word << 6))
    size += head_bytes(singles)
    paper = 4 * (1 + plan.subgroups + singles)
    if plan.named:
        look(run, state, plan, made)
    if plan.costs:
        count_costs(run, state, plan, GLOBAL, size, paper)
    links = len(state.known) + here * plan.subgroups
    for other in range(plan.subgroups):
        if other != here:
            to = state.first[other]
            packets[made, USES] += transmit(run, rules, links + other, me, to, made, size)
    release(state, plan, made)
    return size, paper


@njit_inline
def look(run: Any, state: Any, plan: Any, packet: Any) -> Any:
    """The twin of the probe `Named.transmit`."""
    named, after, packets = state.named, state.after, state.packets
    origin, seq, row = packets[packet, ORIGIN], packets[packet, SEQ], packets[packet, STAMP]
    if run.at[NOW] >= plan.since:
        named[origin, 4] += 1
        for other in range(len(named)):
            if other == origin or named[other, 2] != seq:
                continue
            after[origin, other, 0] += 1
            subgroup, number = state.site[other], named[other, 3]
            found = number <= state.rows[row + subgroup]
            cell = packets[packet, TURN]
            while cell >= 0 and not found:
                if state.cells[cell, PACKET] == subgroup and state.cells[cell, CAME] == number >> 6:
                    found = (state.cells[cell, KEY] >> (number & 63) & 1) != 0
                cell = state.cells[cell, NEXT]
            if found:
                after[origin, other, 1] += 1
                if named[origin, 0] == seq and named[other, 0] == seq:
                    between = named[origin, 1] - named[other, 1]
                    after[origin, other, 2] = min(after[origin, other, 2], between)
    named[origin, 2], named[origin, 3] = seq, packets[packet, NUMBER]


@njit_inline
def count_costs(run: Any, state: Any, plan: Any, sort: Any, size: Any, paper: Any) -> Any:
    """The twin of the probe `Costs.transmit`."""
    if run.at[NOW] >= plan.since:
        state.costs[sort, 0] += 1
        state.costs[sort, 1] += paper
        state.costs[sort, 2] += size


@njit_hot
def stuck(plan: Any, state: Any) -> Any:
    """How many messages are still held: the twin of `Hcg.waiting`, of all members."""
    count = state.tops[WAITING]
    for me in range(len(state.heaped)):
        for place in range(state.heaped[me]):
            cell = state.heap[me * plan.room + place, 1] & (1 << CELL_BITS) - 1
            packet = state.cells[cell, PACKET]
            count += state.packets[packet, ORIGIN] != me
    return count


def _measured(given: Scenario, state: State) -> dict[str, float]:
    """The twins of the probes' `figures`."""
    found: dict[str, float] = {}
    if "costs" in given.probes:
        for sort, name in ((TIMED, "local"), (ACK, "ack"), (GLOBAL, "global")):
            count, paper, wire = (int(value) for value in state.costs[sort])
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
