"""The twin of `protocols/freescale/super_peer.py`."""

from __future__ import annotations

from typing import Any

import numpy as np

from antecede.jit import njit_inline, njit_inner
from antecede.sim.kernels.freescale.internal import accept_inside, assign_number, write_causes
from antecede.sim.kernels.freescale.packets import (
    count_control_bytes,
    count_costs,
    external_index,
    new_packet,
    release,
    send,
)
from antecede.sim.kernels.freescale.state import (
    ACK,
    AFTER,
    ASSIGNMENT,
    BASE,
    CAUSES,
    CONTROL,
    COPIES,
    DELIVERED_UP_TO,
    DOWNLINK,
    EXTERNAL,
    FINAL,
    FIRST,
    FLOOR,
    HIGH,
    IN_USE_COUNT,
    LAST,
    LAST_ASSIGNED,
    LAST_NUMBER,
    LAST_SEQ,
    LOW,
    MAX_EARLY,
    NUMBER,
    ORIGIN,
    OTHER,
    PAPER,
    PREVIOUS,
    REPORTED,
    REPORTED_HIGH,
    REPORTED_LOW,
    SENDER,
    SENDER_NUMBER,
    SENDERS,
    SENT_AT,
    SEQ,
    SINCE_CLEAN_UP,
    TABLE_SIZE,
    UNANNOUNCED_HIGH,
    UNANNOUNCED_LOW,
    UNREPORTED,
)
from antecede.sim.kernels.runtime.bit_set import has, next_in_row, row_fits, set_add, set_clear, set_tighten
from antecede.sim.kernels.runtime.world_state import FULL, NOW


@njit_inner
def send_to_external_group(world: Any, rules: Any, params: Any, state: Any, me: Any, packet: Any) -> Any:
    """Send a packet to all other members of the external group."""
    count_costs(world, params, state, packet, me)
    for peer in range(params.supers):
        if peer != me:
            send(world, rules, params, state, me, peer, packet)
    for peer in range(params.supers + params.behind, params.peers):
        if peer != me:
            send(world, rules, params, state, me, peer, packet)


@njit_inner
def send_inside(world: Any, rules: Any, params: Any, state: Any, me: Any, downlink: Any, arrived: Any) -> Any:
    """The twin of `SuperPeer._send_inside`. The super peer's own application gets a copy too."""
    origin = state.packets[downlink, ORIGIN]
    first, end = params.first[me], params.first[me + 1]
    mine = params.homes[origin] == me and origin != me
    if end - first > (1 if mine else 0):
        count_costs(world, params, state, downlink, me)
        for peer in range(first, end):
            if peer != origin:
                send(world, rules, params, state, me, peer, downlink)
    if origin == me:
        assign_number(world, state, me, state.packets[downlink, NUMBER])
        return
    state.packets[downlink, COPIES] += 1
    accept_inside(world, state, me, downlink, arrived, state.packets[downlink, NUMBER])
    if mine:
        answer = new_packet(world, state, ASSIGNMENT, origin, state.packets[downlink, SEQ], 0)
        state.packets[answer, NUMBER] = state.packets[downlink, NUMBER]
        count_control_bytes(params, state, answer)
        count_costs(world, params, state, answer, me)
        send(world, rules, params, state, me, origin, answer)
        if state.packets[answer, COPIES] == 0:
            release(state, answer)


@njit_inner
def forward_internal(
    world: Any, rules: Any, params: Any, state: Any, me: Any, packet: Any, arrived: Any
) -> Any:
    """The twin of `SuperPeer._forward_internal`. Returns control bytes, on the wire and as the paper counts,
    of the first packet that it sends."""
    origin = state.packets[packet, ORIGIN]
    if state.inside[LAST_SEQ, origin] == 0:
        state.supers[SENDERS, me] += 1
    last = state.inside[LAST_NUMBER, origin]
    state.supers[LAST_ASSIGNED, me] += 1
    number = state.supers[LAST_ASSIGNED, me]
    state.inside[LAST_SEQ, origin], state.inside[LAST_NUMBER, origin] = state.packets[packet, SEQ], number
    downlink = new_packet(
        world, state, DOWNLINK, origin, state.packets[packet, SEQ], state.packets[packet, SENT_AT]
    )
    state.packets[downlink, NUMBER], state.packets[downlink, LAST] = number, last
    first, final = state.bounds[FIRST, packet, 0], state.bounds[FINAL, packet, 0]
    state.bounds[FIRST, downlink, 0], state.bounds[FINAL, downlink, 0] = first, final
    if first <= final:
        for word in range((final >> 6) - (first >> 6) + 1):
            state.rows[downlink, 0, word] = state.rows[packet, 0, word]
    count_control_bytes(params, state, downlink)
    state.packets[downlink, COPIES] += 1
    send_inside(world, rules, params, state, me, downlink, arrived)
    own = params.homes[origin] == me and origin != me
    others = params.first[me + 1] - params.first[me] > (1 if own else 0)
    wire, counted = (
        (state.packets[downlink, CONTROL], state.packets[downlink, PAPER])
        if others
        else (np.int64(0), np.int64(0))
    )
    if params.peers - params.behind > 1:
        outward = translate_outwards(world, params, state, me, downlink)
        send_to_external_group(world, rules, params, state, me, outward)
        if not others:
            wire, counted = state.packets[outward, CONTROL], state.packets[outward, PAPER]
        if state.packets[outward, COPIES] == 0:
            release(state, outward)
    release(state, downlink)
    state.supers[PREVIOUS, me] = number
    return wire, counted


@njit_inner
def translate_outwards(world: Any, params: Any, state: Any, me: Any, downlink: Any) -> Any:
    """The twin of `SuperPeer._translate_outwards`: finds the bounds of rows first, then fills the rows."""
    origin, seq = state.packets[downlink, ORIGIN], state.packets[downlink, SEQ]
    packet = new_packet(world, state, EXTERNAL, origin, seq, state.packets[downlink, SENT_AT])
    state.packets[packet, NUMBER] = state.packets[downlink, NUMBER]
    state.packets[packet, LAST] = state.packets[downlink, LAST]
    state.packets[packet, OTHER] = state.supers[PREVIOUS, me]
    if params.paper:
        state.packets[packet, OTHER], state.packets[packet, LAST] = state.packets[downlink, NUMBER] - 1, 0
    find_bounds_outwards(params, state, me, downlink, packet)
    first, final = state.bounds[FIRST, packet], state.bounds[FINAL, packet]
    for place in range(params.supers + 1):
        if final[place] < first[place]:
            first[place] = 0
        elif not row_fits(first[place], final[place], state.rows[packet, place]):
            world.scalars[FULL] = 1
            return packet
        else:
            for word in range((final[place] >> 6) - (first[place] >> 6) + 1):
                state.rows[packet, place, word] = 0
    fill_rows_outwards(params, state, me, downlink, packet)
    count_control_bytes(params, state, packet)
    return packet


@njit_inline
def find_bounds_outwards(params: Any, state: Any, me: Any, downlink: Any, packet: Any) -> Any:
    """First and last number of each row of an external packet, and what it names of external peers."""
    supers, bits = params.supers, state.table.shape[2]
    first, final, pairs = state.bounds[FIRST, packet], state.bounds[FINAL, packet], state.pairs[packet]
    for place in range(len(pairs)):
        pairs[place] = 0
    for place in range(supers + 1):
        first[place], final[place] = 1 << 62, -1
    if params.paper:
        lows, highs = state.supers[UNANNOUNCED_LOW], state.supers[UNANNOUNCED_HIGH]
        set_tighten(state.unannounced[me], lows, highs, me)
        if lows[me] <= highs[me]:
            first[supers], final[supers] = lows[me], highs[me]
        if state.packets[downlink, LAST]:
            first[me] = final[me] = state.packets[downlink, LAST]
    row, start, end = (
        state.rows[downlink, 0],
        state.bounds[FIRST, downlink, 0],
        state.bounds[FINAL, downlink, 0],
    )
    number = next_in_row(start, end, row, np.int64(0))
    while number:
        peer = state.table[SENDER, me, number & bits - 1] - 1
        sender_number = state.table[SENDER_NUMBER, me, number & bits - 1]
        if peer < 0:
            peer, sender_number = me, number
        elif params.paper:
            first[supers], final[supers] = min(first[supers], number), max(final[supers], number)
        if peer < supers:
            first[peer], final[peer] = min(first[peer], sender_number), max(final[peer], sender_number)
        else:
            pairs[peer - supers] = max(pairs[peer - supers], sender_number)
        number = next_in_row(start, end, row, number)


@njit_inline
def fill_rows_outwards(params: Any, state: Any, me: Any, downlink: Any, packet: Any) -> Any:
    """The rows of an external packet, whose bounds are set and whose words are 0."""
    supers, bits = params.supers, state.table.shape[2]
    rows, first = state.rows[packet], state.bounds[FIRST, packet]
    if params.paper:
        lows, highs = state.supers[UNANNOUNCED_LOW], state.supers[UNANNOUNCED_HIGH]
        for unannounced in range(lows[me], highs[me] + 1):
            if has(state.unannounced[me], unannounced):
                put_in_row(rows[supers], first[supers], unannounced)
        set_clear(state.unannounced[me], lows, highs, me)
        if state.packets[downlink, LAST]:
            put_in_row(rows[me], first[me], state.packets[downlink, LAST])
    row, start, end = (
        state.rows[downlink, 0],
        state.bounds[FIRST, downlink, 0],
        state.bounds[FINAL, downlink, 0],
    )
    number = next_in_row(start, end, row, np.int64(0))
    while number:
        peer = state.table[SENDER, me, number & bits - 1] - 1
        if peer < 0:
            put_in_row(rows[me], first[me], number)
        else:
            if params.paper:
                put_in_row(rows[supers], first[supers], number)
            if peer < supers:
                put_in_row(rows[peer], first[peer], state.table[SENDER_NUMBER, me, number & bits - 1])
        number = next_in_row(start, end, row, number)


@njit_inline
def put_in_row(row: Any, first: Any, number: Any) -> Any:
    """Add a number to a row that begins with the word of `first`."""
    row[(number >> 6) - (first >> 6)] |= np.uint64(1) << np.uint64(number & 63)


@njit_inner
def forward_external(
    world: Any, rules: Any, params: Any, state: Any, me: Any, packet: Any, arrived: Any
) -> Any:
    """The twin of `SuperPeer._forward_external`."""
    sender, supers = params.homes[state.packets[packet, ORIGIN]], params.supers
    sender_number, bits = state.packets[packet, NUMBER], state.table.shape[2]
    state.supers[LAST_ASSIGNED, me] += 1
    number = state.supers[LAST_ASSIGNED, me]
    downlink = new_packet(
        world,
        state,
        DOWNLINK,
        state.packets[packet, ORIGIN],
        state.packets[packet, SEQ],
        state.packets[packet, SENT_AT],
    )
    state.packets[downlink, NUMBER] = number
    found = translate_causes(params, state, me, packet)
    low, high = np.int64(1 << 62), np.int64(-1)
    for place in range(found):
        low, high = min(low, state.scratch[place]), max(high, state.scratch[place])
    row = state.rows[downlink, 0]
    if not row_fits(low, high, row):
        world.scalars[FULL] = 1
        return
    state.bounds[FIRST, downlink, 0], state.bounds[FINAL, downlink, 0] = (
        (low, high) if found else (np.int64(0), np.int64(-1))
    )
    if found:
        for word in range((high >> 6) - (low >> 6) + 1):
            row[word] = 0
    for place in range(found):
        put_in_row(row, low, state.scratch[place])
    before = state.packets[packet, LAST] if sender < supers else sender_number - 1
    state.packets[downlink, LAST] = translate_number(params, state, me, sender, before)
    count_control_bytes(params, state, downlink)
    if state.table[SENDER, me, number & bits - 1]:
        world.scalars[FULL] = 1
        return
    state.table[SENDER, me, number & bits - 1] = external_index(params, sender) + 1
    state.table[SENDER_NUMBER, me, number & bits - 1] = sender_number
    state.supers[TABLE_SIZE, me] += 1
    if sender < supers:
        if state.numbered_super[me, sender, sender_number & bits - 1]:
            world.scalars[FULL] = 1
        state.numbered_super[me, sender, sender_number & bits - 1] = number
    else:
        place = external_index(params, sender) - supers
        if state.numbered[me, place, sender_number & bits - 1]:
            world.scalars[FULL] = 1
        state.numbered[me, place, sender_number & bits - 1] = number
    if params.paper and not set_add(
        state.unannounced[me], state.supers[UNANNOUNCED_LOW], state.supers[UNANNOUNCED_HIGH], me, number
    ):
        world.scalars[FULL] = 1
    clean_up_occasionally(params, state, me)
    state.packets[downlink, COPIES] += 1
    send_inside(world, rules, params, state, me, downlink, arrived)
    release(state, downlink)


@njit_inline
def translate_number(params: Any, state: Any, me: Any, sender: Any, sender_number: Any) -> Any:
    """The number that this super peer gave to a sender's message; 0 if none."""
    bits = state.table.shape[2]
    if sender_number <= 0:
        return np.int64(0)
    if sender < params.supers:
        number = state.numbered_super[me, sender, sender_number & bits - 1]
    else:
        number = state.numbered[me, external_index(params, sender) - params.supers, sender_number & bits - 1]
    if number and state.table[SENDER_NUMBER, me, number & bits - 1] != sender_number:
        return np.int64(0)
    return number


@njit_inline
def translate_causes(params: Any, state: Any, me: Any, packet: Any) -> Any:
    """The twin of `SuperPeer._translate_causes`: writes into `scratch`. Returns how many."""
    found, start = 0, params.supers + params.behind
    pairs = state.pairs[packet]
    for place in range(len(pairs)):
        if pairs[place]:
            number = translate_number(params, state, me, start + place, np.int64(pairs[place]))
            if number:
                state.scratch[found] = number
                found += 1
    for place in range(params.supers):
        first, final = state.bounds[FIRST, packet, place], state.bounds[FINAL, packet, place]
        sender_number = np.int64(0)
        while True:
            sender_number = next_in_row(first, final, state.rows[packet, place], sender_number)
            if sender_number == 0:
                break
            number = (
                sender_number if place == me else translate_number(params, state, me, place, sender_number)
            )
            if number:
                state.scratch[found] = number
                found += 1
    return found


@njit_inline
def clean_up_occasionally(params: Any, state: Any, me: Any) -> Any:
    """Clean up once for as many packets as there are internal peers."""
    state.supers[SINCE_CLEAN_UP, me] += 1
    if state.supers[SINCE_CLEAN_UP, me] > params.first[me + 1] - params.first[me]:
        state.supers[SINCE_CLEAN_UP, me] = 0
        clean_up(params, state, me)


@njit_inline
def in_use(params: Any, state: Any, me: Any, number: Any) -> Any:
    """Whether an internal peer may still name a number, by its last report."""
    if state.inside[LOW, me] <= number <= state.inside[HIGH, me] and has(
        state.inside_bits[CAUSES, me], number
    ):
        return True
    for peer in range(params.first[me], params.first[me + 1]):
        if state.inside[REPORTED_LOW, peer] <= number <= state.inside[REPORTED_HIGH, peer] and has(
            state.inside_bits[REPORTED, peer], number
        ):
            return True
    return False


@njit_inner
def clean_up(params: Any, state: Any, me: Any) -> Any:
    """The twin of `SuperPeer._clean_up`."""
    floor = state.inside[BASE, me]
    for peer in range(params.first[me], params.first[me + 1]):
        floor = min(floor, state.inside[DELIVERED_UP_TO, peer])
    in_use_count = 0
    for place in range(state.supers[IN_USE_COUNT, me]):
        number = state.in_use[me, place]
        if in_use(params, state, me, number):
            state.in_use[me, in_use_count] = number
            in_use_count += 1
        else:
            drop_number(params, state, me, number)
    for number in range(state.supers[FLOOR, me] + 1, floor + 1):
        if in_use(params, state, me, number):
            state.in_use[me, in_use_count] = number
            in_use_count += 1
        else:
            drop_number(params, state, me, number)
    state.supers[IN_USE_COUNT, me] = in_use_count
    state.supers[FLOOR, me] = floor


@njit_inline
def drop_number(params: Any, state: Any, me: Any, number: Any) -> Any:
    """Forget whose message a number stands for."""
    bits = state.table.shape[2]
    peer, sender_number = (
        state.table[SENDER, me, number & bits - 1] - 1,
        state.table[SENDER_NUMBER, me, number & bits - 1],
    )
    if peer < 0:
        return
    if peer < params.supers:
        state.numbered_super[me, peer, sender_number & bits - 1] = 0
    else:
        state.numbered[me, peer - params.supers, sender_number & bits - 1] = 0
    state.table[SENDER, me, number & bits - 1] = 0
    state.supers[TABLE_SIZE, me] -= 1


@njit_inner
def receive_internal(world: Any, rules: Any, params: Any, state: Any, me: Any, link: Any, packet: Any) -> Any:
    """The twin of `SuperPeer._receive_internal`. A packet that arrives before its turn is stored with its
    arrival time."""
    seq, done = state.packets[packet, SEQ], state.inside[LAST_SEQ, link]
    if seq - done > MAX_EARLY or state.early[link, seq % MAX_EARLY]:
        world.scalars[FULL] = 1
        return
    state.early[link, seq % MAX_EARLY] = packet + 1
    state.packets[packet, NUMBER] = world.scalars[NOW]
    while state.early[link, (done + 1) % MAX_EARLY]:
        done += 1
        turn = np.int64(state.early[link, done % MAX_EARLY]) - 1
        state.early[link, done % MAX_EARLY] = 0
        forward_internal(world, rules, params, state, me, turn, state.packets[turn, NUMBER])
        state.inside[DELIVERED_UP_TO, link] = state.packets[turn, OTHER]
        set_clear(
            state.inside_bits[REPORTED, link], state.inside[REPORTED_LOW], state.inside[REPORTED_HIGH], link
        )
        clean_up_occasionally(params, state, me)
        release(state, turn)


@njit_inner
def receive_ack(world: Any, params: Any, state: Any, me: Any, link: Any, packet: Any) -> Any:
    """The twin of `SuperPeer._receive_ack`."""
    if (
        state.inside[LAST_SEQ, link] == state.packets[packet, AFTER]
        and state.packets[packet, OTHER] >= state.inside[DELIVERED_UP_TO, link]
    ):
        state.inside[DELIVERED_UP_TO, link] = state.packets[packet, OTHER]
        set_clear(
            state.inside_bits[REPORTED, link], state.inside[REPORTED_LOW], state.inside[REPORTED_HIGH], link
        )
        number = np.int64(0)
        while True:
            first, final = state.bounds[FIRST, packet, 0], state.bounds[FINAL, packet, 0]
            number = next_in_row(first, final, state.rows[packet, 0], number)
            if number == 0:
                break
            if not set_add(
                state.inside_bits[REPORTED, link],
                state.inside[REPORTED_LOW],
                state.inside[REPORTED_HIGH],
                link,
                number,
            ):
                world.scalars[FULL] = 1
        clean_up_occasionally(params, state, me)
    release(state, packet)


@njit_inner
def send_ack(world: Any, rules: Any, params: Any, state: Any, me: Any) -> Any:
    """Send the acknowledgement of an internal peer that has been silent for long."""
    state.inside[UNREPORTED, me] = 0
    packet = new_packet(world, state, ACK, me, 0, 0)
    state.packets[packet, AFTER], state.packets[packet, OTHER] = world.messages[me], state.inside[BASE, me]
    write_causes(world, state, me, packet)
    count_control_bytes(params, state, packet)
    count_costs(world, params, state, packet, me)
    send(world, rules, params, state, me, params.homes[me], packet)
    if state.packets[packet, COPIES] == 0:
        release(state, packet)
