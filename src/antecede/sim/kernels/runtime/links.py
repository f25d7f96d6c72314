"""Links between peers with independent random delays, and their faults: the twin of
`sim/network/direct.py`."""

from __future__ import annotations

from typing import Any

import numpy as np

from antecede.compiled.splitmix64 import mix
from antecede.jit import njit_inline
from antecede.sim.kernels.runtime.calendar import plan_packet
from antecede.sim.kernels.runtime.counter_rng import between, delay_of, draw, extended, happens
from antecede.sim.kernels.runtime.world_state import FULL, LINK_BYTES, NOW, NUMBER_BITS, PACKETS
from antecede.sim.network import reach
from antecede.sim.network.faults import Duplicate, Fault, Loss, Reorder, Spike, parse_fault
from antecede.sim.scenario import Scenario

SPIKE, DUPLICATE, REORDER, LOSS = range(4)
MAX_COPIES = 16


def fault_numbers(fault: Fault) -> tuple[int, int, int, int]:
    """A fault as kernels take it: its kind and its times."""
    match fault:
        case Spike(first, end, extra):
            return SPIKE, first, end, extra
        case Duplicate(_, within):
            return DUPLICATE, within, 0, 0
        case Reorder(_, by):
            return REORDER, by, 0, 0
        case Loss():
            return LOSS, 0, 0, 0
    raise TypeError(f"kernels do not know the fault {fault}")


def longest_delay(scenario: Scenario) -> int:
    """The longest time that a packet can take, in nanoseconds."""
    delays = (reach(scenario.delay), reach(scenario.local_delay or scenario.delay))
    faults = [parse_fault(text) for text in scenario.faults]
    return max(delays) + sum(max(fault_numbers(fault)[1:]) for fault in faults)


@njit_inline
def transmit(world: Any, rules: Any, link: Any, source: Any, to: Any, packet: Any, control: Any) -> Any:
    """Send a packet over one link; how many copies of it will arrive."""
    scalars = world.scalars
    now = scalars[NOW]
    scalars[PACKETS] += 1
    scalars[LINK_BYTES] += control
    number = world.link_packets[link]
    world.link_packets[link] += 1
    if number >> NUMBER_BITS:
        scalars[FULL] = 1
        return 0
    key = extended(extended(rules.link_key, source), to)
    kind, one, two, three = rules.delay
    if len(world.sites) and world.sites[source] == world.sites[to]:
        kind, one, two, three = rules.local_delay
    time = now + delay_of(kind, one, two, three, draw(key, number))
    if len(world.faults) == 0:
        if len(world.link_last):
            time = max(time, world.link_last[link])
            world.link_last[link] = time
        plan_packet(world, rules, time, source, to, number, packet)
        return 1
    copies = world.copies
    copies[0] = time
    count = apply_faults(world, key, number, 1, False)
    if len(world.link_last) and count:
        for copy in range(count):
            copies[copy] = max(copies[copy], world.link_last[link])
        world.link_last[link] = copies[count - 1]
    count = apply_faults(world, key, number, count, True)
    for copy in range(count):
        plan_packet(world, rules, copies[copy], source, to, number, packet)
    return count


@njit_inline
def apply_faults(world: Any, key: Any, number: Any, count: Any, breaks_fifo: Any) -> Any:
    """What faults do to the copies of a packet: those that can break a link's order, or those that cannot.
    Returns how many copies there are then."""
    copies, now = world.copies, world.scalars[NOW]
    for place in range(len(world.faults)):
        kind, one, two, three = world.faults[place]
        bits = draw(fault_key(key, place), number)
        if kind == SPIKE and not breaks_fifo and one <= now < two:
            for copy in range(count):
                copies[copy] += three
        elif kind == LOSS and not breaks_fifo and happens(bits, world.fault_shares[place]):
            count = 0
        elif kind == DUPLICATE and breaks_fifo and count and happens(bits, world.fault_shares[place]):
            if count == len(copies):
                world.scalars[FULL] = 1
            else:
                copies[count] = copies[0] + between(mix(bits), 0, one + 1)
                count += 1
        elif kind == REORDER and breaks_fifo and happens(bits, world.fault_shares[place]):
            late = between(mix(bits), 0, one + 1)
            for copy in range(count):
                copies[copy] += late
    return count


@njit_inline
def fault_key(link_key: Any, place: Any) -> Any:
    """`counter_rng.key(link_key, place)`: the random sequence of a fault on a link."""
    return extended(extended(np.uint64(0), link_key), place)
