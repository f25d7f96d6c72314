"""The twin of `Super` in `protocols/freescale_roles.py`."""

from __future__ import annotations

from typing import Any

import numpy as np

from antecede.jit import njit_inline, njit_inner
from antecede.sim.kernels.freescale.internal import assign_number, file_inside, write_causes
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
    ACROSS,
    AFTER,
    BASE,
    CAUSES,
    CONTROL,
    COPIES,
    DOWN,
    EARLY,
    ECHO,
    FINAL,
    FIRST,
    FLOOR,
    HEARD,
    HEARD_NUMBER,
    HEARD_SEQ,
    HIGH,
    LAST,
    LOW,
    NUMBER,
    NUMBERS,
    ORIGIN,
    OTHER,
    PAPER,
    PEER,
    PREVIOUS,
    SENT_AT,
    SEQ,
    SOLID,
    SPARES,
    STEPS,
    TABLE_SIZE,
    THEIRS,
    UNSAID,
    UNTOLD_HIGH,
    UNTOLD_LOW,
    WORD,
    WORD_HIGH,
    WORD_LOW,
)
from antecede.sim.kernels.runtime.bit_set import has, next_in_row, row_fits, set_add, set_clear, set_tighten
from antecede.sim.kernels.runtime.world_state import FULL, NOW


@njit_inner
def send_to_external_group(world: Any, rules: Any, params: Any, state: Any, me: Any, packet: Any) -> Any:
    """To everyone else in the external group."""
    count_costs(world, params, state, packet)
    for peer in range(params.supers):
        if peer != me:
            send(world, rules, params, state, me, peer, packet)
    for peer in range(params.supers + params.behind, params.peers):
        if peer != me:
            send(world, rules, params, state, me, peer, packet)


@njit_inner
def send_inward(world: Any, rules: Any, params: Any, state: Any, me: Any, down: Any, since: Any) -> Any:
    """`Super._hand_in`. The super peer's own application has a copy too."""
    origin = state.packets[down, ORIGIN]
    first, end = params.first[me], params.first[me + 1]
    mine = params.homes[origin] == me and origin != me
    if end - first > (1 if mine else 0):
        count_costs(world, params, state, down)
        for peer in range(first, end):
            if peer != origin:
                send(world, rules, params, state, me, peer, down)
    if origin == me:
        assign_number(world, state, me, state.packets[down, NUMBER])
        return
    state.packets[down, COPIES] += 1
    file_inside(world, state, me, down, since, state.packets[down, NUMBER])
    if mine:
        answer = new_packet(world, state, ECHO, origin, state.packets[down, SEQ], 0)
        state.packets[answer, NUMBER] = state.packets[down, NUMBER]
        count_control_bytes(params, state, answer)
        count_costs(world, params, state, answer)
        send(world, rules, params, state, me, origin, answer)
        if state.packets[answer, COPIES] == 0:
            release(state, answer)


@njit_inner
def forward_outward(world: Any, rules: Any, params: Any, state: Any, me: Any, packet: Any, since: Any) -> Any:
    """`Super._pass_out`: control bytes, both ways of counting, of the first packet that it makes."""
    origin = state.packets[packet, ORIGIN]
    if state.inside[HEARD_SEQ, origin] == 0:
        state.supers[HEARD, me] += 1
    last = state.inside[HEARD_NUMBER, origin]
    state.supers[NUMBERS, me] += 1
    number = state.supers[NUMBERS, me]
    state.inside[HEARD_SEQ, origin], state.inside[HEARD_NUMBER, origin] = state.packets[packet, SEQ], number
    down = new_packet(world, state, DOWN, origin, state.packets[packet, SEQ], state.packets[packet, SENT_AT])
    state.packets[down, NUMBER], state.packets[down, LAST] = number, last
    first, final = state.bounds[FIRST, packet, 0], state.bounds[FINAL, packet, 0]
    state.bounds[FIRST, down, 0], state.bounds[FINAL, down, 0] = first, final
    if first <= final:
        for word in range((final >> 6) - (first >> 6) + 1):
            state.rows[down, 0, word] = state.rows[packet, 0, word]
    count_control_bytes(params, state, down)
    state.packets[down, COPIES] += 1
    send_inward(world, rules, params, state, me, down, since)
    own = params.homes[origin] == me and origin != me
    others = params.first[me + 1] - params.first[me] > (1 if own else 0)
    wire, counted = (
        (state.packets[down, CONTROL], state.packets[down, PAPER]) if others else (np.int64(0), np.int64(0))
    )
    if params.peers - params.behind > 1:
        outward = translate_out(world, params, state, me, down)
        send_to_external_group(world, rules, params, state, me, outward)
        if not others:
            wire, counted = state.packets[outward, CONTROL], state.packets[outward, PAPER]
        if state.packets[outward, COPIES] == 0:
            release(state, outward)
    release(state, down)
    state.supers[PREVIOUS, me] = number
    return wire, counted


@njit_inner
def translate_out(world: Any, params: Any, state: Any, me: Any, down: Any) -> Any:
    """`Super._translate_out`. The first time round it finds how long rows are, then it fills them."""
    packet = new_packet(
        world,
        state,
        ACROSS,
        state.packets[down, ORIGIN],
        state.packets[down, SEQ],
        state.packets[down, SENT_AT],
    )
    state.packets[packet, NUMBER], state.packets[packet, LAST] = (
        state.packets[down, NUMBER],
        state.packets[down, LAST],
    )
    state.packets[packet, OTHER] = state.supers[PREVIOUS, me]
    supers, external = params.supers, params.peers - params.supers - params.behind
    bits = state.table.shape[2]
    first, final, pairs = state.bounds[FIRST, packet], state.bounds[FINAL, packet], state.pairs[packet]
    for place in range(external):
        pairs[place] = 0
    for place in range(supers + 1):
        first[place], final[place] = 1 << 62, -1
    if params.paper:
        state.packets[packet, OTHER], state.packets[packet, LAST] = state.packets[down, NUMBER] - 1, 0
        set_tighten(state.untold[me], state.supers[UNTOLD_LOW], state.supers[UNTOLD_HIGH], me)
        if state.supers[UNTOLD_LOW, me] <= state.supers[UNTOLD_HIGH, me]:
            first[supers], final[supers] = state.supers[UNTOLD_LOW, me], state.supers[UNTOLD_HIGH, me]
        if state.packets[down, LAST]:
            first[me] = final[me] = state.packets[down, LAST]
    named_first, named_final = state.bounds[FIRST, down, 0], state.bounds[FINAL, down, 0]
    number = np.int64(0)
    while True:
        number = next_in_row(named_first, named_final, state.rows[down, 0], number)
        if number == 0:
            break
        peer, theirs = (
            state.table[PEER, me, number & bits - 1] - 1,
            state.table[THEIRS, me, number & bits - 1],
        )
        if peer < 0:
            peer, theirs = me, number
        elif params.paper:
            first[supers], final[supers] = min(first[supers], number), max(final[supers], number)
        if peer < supers:
            first[peer], final[peer] = min(first[peer], theirs), max(final[peer], theirs)
        else:
            pairs[peer - supers] = max(pairs[peer - supers], theirs)
    for place in range(supers + 1):
        if final[place] < first[place]:
            first[place] = 0
        elif not row_fits(first[place], final[place], state.rows[packet, place]):
            world.scalars[FULL] = 1
            return packet
        else:
            for word in range((final[place] >> 6) - (first[place] >> 6) + 1):
                state.rows[packet, place, word] = 0
    if params.paper:
        for untold in range(state.supers[UNTOLD_LOW, me], state.supers[UNTOLD_HIGH, me] + 1):
            if has(state.untold[me], untold):
                put_in_row(state.rows[packet, supers], first[supers], untold)
        set_clear(state.untold[me], state.supers[UNTOLD_LOW], state.supers[UNTOLD_HIGH], me)
        if state.packets[down, LAST]:
            put_in_row(state.rows[packet, me], first[me], state.packets[down, LAST])
    number = np.int64(0)
    while True:
        number = next_in_row(named_first, named_final, state.rows[down, 0], number)
        if number == 0:
            break
        peer, theirs = (
            state.table[PEER, me, number & bits - 1] - 1,
            state.table[THEIRS, me, number & bits - 1],
        )
        if peer < 0:
            put_in_row(state.rows[packet, me], first[me], number)
        else:
            if params.paper:
                put_in_row(state.rows[packet, supers], first[supers], number)
            if peer < supers:
                put_in_row(state.rows[packet, peer], first[peer], theirs)
    count_control_bytes(params, state, packet)
    return packet


@njit_inline
def put_in_row(row: Any, first: Any, number: Any) -> Any:
    row[(number >> 6) - (first >> 6)] |= np.uint64(1) << np.uint64(number & 63)


@njit_inner
def forward_inward(world: Any, rules: Any, params: Any, state: Any, me: Any, packet: Any, since: Any) -> Any:
    """`Super._pass_in`."""
    sender, supers = params.homes[state.packets[packet, ORIGIN]], params.supers
    theirs, bits = state.packets[packet, NUMBER], state.table.shape[2]
    state.supers[NUMBERS, me] += 1
    number = state.supers[NUMBERS, me]
    down = new_packet(
        world,
        state,
        DOWN,
        state.packets[packet, ORIGIN],
        state.packets[packet, SEQ],
        state.packets[packet, SENT_AT],
    )
    state.packets[down, NUMBER] = number
    found = named_inside(params, state, me, packet)
    low, high = np.int64(1 << 62), np.int64(-1)
    for place in range(found):
        low, high = min(low, state.scratch[place]), max(high, state.scratch[place])
    row = state.rows[down, 0]
    if not row_fits(low, high, row):
        world.scalars[FULL] = 1
        return
    state.bounds[FIRST, down, 0], state.bounds[FINAL, down, 0] = (
        (low, high) if found else (np.int64(0), np.int64(-1))
    )
    if found:
        for word in range((high >> 6) - (low >> 6) + 1):
            row[word] = 0
    for place in range(found):
        put_in_row(row, low, state.scratch[place])
    before = state.packets[packet, LAST] if sender < supers else theirs - 1
    state.packets[down, LAST] = number_inside(params, state, me, sender, before)
    count_control_bytes(params, state, down)
    if state.table[PEER, me, number & bits - 1]:
        world.scalars[FULL] = 1
        return
    state.table[PEER, me, number & bits - 1] = external_index(params, sender) + 1
    state.table[THEIRS, me, number & bits - 1] = theirs
    state.supers[TABLE_SIZE, me] += 1
    if sender < supers:
        if state.numbered_super[me, sender, theirs & bits - 1]:
            world.scalars[FULL] = 1
        state.numbered_super[me, sender, theirs & bits - 1] = number
    else:
        place = external_index(params, sender) - supers
        if state.numbered[me, place, theirs & bits - 1]:
            world.scalars[FULL] = 1
        state.numbered[me, place, theirs & bits - 1] = number
    if params.paper and not set_add(
        state.untold[me], state.supers[UNTOLD_LOW], state.supers[UNTOLD_HIGH], me, number
    ):
        world.scalars[FULL] = 1
    forget_periodically(params, state, me)
    state.packets[down, COPIES] += 1
    send_inward(world, rules, params, state, me, down, since)
    release(state, down)


@njit_inline
def number_inside(params: Any, state: Any, me: Any, sender: Any, theirs: Any) -> Any:
    """`numbered.get((sender, theirs), 0)`."""
    bits = state.table.shape[2]
    if theirs <= 0:
        return np.int64(0)
    if sender < params.supers:
        number = state.numbered_super[me, sender, theirs & bits - 1]
    else:
        number = state.numbered[me, external_index(params, sender) - params.supers, theirs & bits - 1]
    if number and state.table[THEIRS, me, number & bits - 1] != theirs:
        return np.int64(0)
    return number


@njit_inline
def named_inside(params: Any, state: Any, me: Any, packet: Any) -> Any:
    """`Super._named_inside`, into `scratch`: how many."""
    found, start = 0, params.supers + params.behind
    pairs = state.pairs[packet]
    for place in range(len(pairs)):
        if pairs[place]:
            number = number_inside(params, state, me, start + place, np.int64(pairs[place]))
            if number:
                state.scratch[found] = number
                found += 1
    for place in range(params.supers):
        first, final = state.bounds[FIRST, packet, place], state.bounds[FINAL, packet, place]
        theirs = np.int64(0)
        while True:
            theirs = next_in_row(first, final, state.rows[packet, place], theirs)
            if theirs == 0:
                break
            number = theirs if place == me else number_inside(params, state, me, place, theirs)
            if number:
                state.scratch[found] = number
                found += 1
    return found


@njit_inline
def forget_periodically(params: Any, state: Any, me: Any) -> Any:
    state.supers[STEPS, me] += 1
    if state.supers[STEPS, me] > params.first[me + 1] - params.first[me]:
        state.supers[STEPS, me] = 0
        forget(params, state, me)


@njit_inline
def in_use(params: Any, state: Any, me: Any, number: Any) -> Any:
    """Whether somebody inside may still name it, by what they said last."""
    if state.inside[LOW, me] <= number <= state.inside[HIGH, me] and has(
        state.inside_bits[CAUSES, me], number
    ):
        return True
    for peer in range(params.first[me], params.first[me + 1]):
        if state.inside[WORD_LOW, peer] <= number <= state.inside[WORD_HIGH, peer] and has(
            state.inside_bits[WORD, peer], number
        ):
            return True
    return False


@njit_inner
def forget(params: Any, state: Any, me: Any) -> Any:
    """`Super._forget`."""
    floor = state.inside[BASE, me]
    for peer in range(params.first[me], params.first[me + 1]):
        floor = min(floor, state.inside[SOLID, peer])
    spares = 0
    for place in range(state.supers[SPARES, me]):
        number = state.spared[me, place]
        if in_use(params, state, me, number):
            state.spared[me, spares] = number
            spares += 1
        else:
            forget_number(params, state, me, number)
    for number in range(state.supers[FLOOR, me] + 1, floor + 1):
        if in_use(params, state, me, number):
            state.spared[me, spares] = number
            spares += 1
        else:
            forget_number(params, state, me, number)
    state.supers[SPARES, me] = spares
    state.supers[FLOOR, me] = floor


@njit_inline
def forget_number(params: Any, state: Any, me: Any, number: Any) -> Any:
    bits = state.table.shape[2]
    peer, theirs = state.table[PEER, me, number & bits - 1] - 1, state.table[THEIRS, me, number & bits - 1]
    if peer < 0:
        return
    if peer < params.supers:
        state.numbered_super[me, peer, theirs & bits - 1] = 0
    else:
        state.numbered[me, peer - params.supers, theirs & bits - 1] = 0
    state.table[PEER, me, number & bits - 1] = 0
    state.supers[TABLE_SIZE, me] -= 1


@njit_inner
def receive_uplink(world: Any, rules: Any, params: Any, state: Any, me: Any, link: Any, packet: Any) -> Any:
    """`Super._from_inside`. What comes before its turn is kept, with the time at which it came."""
    seq, done = state.packets[packet, SEQ], state.inside[HEARD_SEQ, link]
    if seq - done > EARLY or state.early[link, seq % EARLY]:
        world.scalars[FULL] = 1
        return
    state.early[link, seq % EARLY] = packet + 1
    state.packets[packet, NUMBER] = world.scalars[NOW]
    while state.early[link, (done + 1) % EARLY]:
        done += 1
        turn = np.int64(state.early[link, done % EARLY]) - 1
        state.early[link, done % EARLY] = 0
        forward_outward(world, rules, params, state, me, turn, state.packets[turn, NUMBER])
        state.inside[SOLID, link] = state.packets[turn, OTHER]
        set_clear(state.inside_bits[WORD, link], state.inside[WORD_LOW], state.inside[WORD_HIGH], link)
        forget_periodically(params, state, me)
        release(state, turn)


@njit_inner
def receive_ack(world: Any, params: Any, state: Any, me: Any, link: Any, packet: Any) -> Any:
    """`Super._acknowledged`."""
    if (
        state.inside[HEARD_SEQ, link] == state.packets[packet, AFTER]
        and state.packets[packet, OTHER] >= state.inside[SOLID, link]
    ):
        state.inside[SOLID, link] = state.packets[packet, OTHER]
        set_clear(state.inside_bits[WORD, link], state.inside[WORD_LOW], state.inside[WORD_HIGH], link)
        number = np.int64(0)
        while True:
            first, final = state.bounds[FIRST, packet, 0], state.bounds[FINAL, packet, 0]
            number = next_in_row(first, final, state.rows[packet, 0], number)
            if number == 0:
                break
            if not set_add(
                state.inside_bits[WORD, link], state.inside[WORD_LOW], state.inside[WORD_HIGH], link, number
            ):
                world.scalars[FULL] = 1
        forget_periodically(params, state, me)
    release(state, packet)


@njit_inner
def send_ack(world: Any, rules: Any, params: Any, state: Any, me: Any) -> Any:
    """What an internal peer says that has been silent for long."""
    state.inside[UNSAID, me] = 0
    packet = new_packet(world, state, ACK, me, 0, 0)
    state.packets[packet, AFTER], state.packets[packet, OTHER] = world.messages[me], state.inside[BASE, me]
    write_causes(world, state, me, packet)
    count_control_bytes(params, state, packet)
    count_costs(world, params, state, packet)
    send(world, rules, params, state, me, params.homes[me], packet)
    if state.packets[packet, COPIES] == 0:
        release(state, packet)
