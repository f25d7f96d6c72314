"""Simulators of the same all-to-all broadcast as people write them: with SimPy, with heapq, and in C.

Those in Python get all send times and delays as lists, made before the clock starts; those in C compute them,
as our engines do. So any bias of the comparison favours Python.
"""

from __future__ import annotations

import ctypes
import heapq
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from antecede.sim import counter_rng
from antecede.sim.kernels.flat.delivery_times import draw_delays, link_keys
from antecede.sim.kernels.runtime.counter_rng import model
from antecede.sim.kernels.runtime.send_schedule import create_schedule
from antecede.sim.metrics import Metrics
from antecede.sim.network import Uniform, parse_delay
from antecede.sim.scenario import Scenario
from antecede.sim.workload import Periodic, Poisson
from antecede.units import SECOND

_HERE = Path(__file__).parent
_FLAGS = ("-O3", "-march=native", "-ffp-contract=off", "-shared", "-fPIC")
"""Without this, a product and a sum would be contracted and rounded once instead of twice, giving other send
times."""
_FIRST_SEND = 1 << 60
"""In the heap, sends come after the arrivals of the same instant."""


@dataclass(slots=True)
class Totals:
    """The totals of a run, as integers: equal if the same messages were delivered at the same times."""

    messages: int = 0
    deliveries: int = 0
    latency: int = 0
    """The sum of all latencies, in nanoseconds; `latest` is the longest."""
    latest: int = 0
    held: int = 0
    hold: int = 0
    """How many messages waited for a cause, and for how long in all."""
    control: int = 0
    """Control bytes of all messages, from contestants that keep vector clocks."""
    end: int = 0
    """The time of the last arrival."""

    def differences(self, truth: Totals, causal: bool) -> list[str]:
        """The totals that differ from the expected ones. A contestant that delivers at once has all of the
        latency but the waiting."""
        wanted = {"messages": truth.messages, "deliveries": truth.deliveries, "end": truth.end}
        wanted["latency"] = truth.latency if causal else truth.latency - truth.hold
        if causal:
            wanted |= {"latest": truth.latest, "held": truth.held, "hold": truth.hold}
            wanted["control"] = truth.control if self.control else 0
        found = {name: getattr(self, name) for name in wanted}
        return [f"{name} {found[name]}, not {wanted[name]}" for name in wanted if found[name] != wanted[name]]


def totals_of(made: Metrics) -> Totals:
    """The totals of one of our runs. Sums are below 2^51, so a mean multiplied by its count restores them."""
    return Totals(
        made.messages, made.deliveries, round(made.latency_mean_ns * made.deliveries), made.latency_max_ns,
        made.held, round(made.hold_mean_ns * made.held), round(made.control_bytes_mean * made.messages),
        made.simulated_ns,
    )  # fmt: skip


@dataclass(slots=True)
class Sends:
    """A schedule for the contestants in Python: for each peer, its send times and the delays of its
    packets."""

    others: list[list[int]]
    """All peers except the sender itself."""
    times: list[list[int]]
    delays: list[list[list[int]]]
    """For each of its messages: the delay to each of `others`."""


@lru_cache(maxsize=1)
def sends(given: Scenario) -> Sends:
    everybody = range(given.peers)
    made = Sends(
        [[to for to in everybody if to != me] for me in everybody],
        [[] for _ in everybody],
        [[] for _ in everybody],
    )
    plan = create_schedule(given)
    keys = link_keys(np.uint64(counter_rng.key(given.seed, counter_rng.LINK)), given.peers)
    near, row = model(parse_delay(given.delay)), np.empty(given.peers, np.int64)
    for time, me, number in zip(*(column.tolist() for column in plan[:3]), strict=True):
        draw_delays(near, keys[me], np.uint64((number - 1) * counter_rng._STEP & counter_rng._MASK), row)
        made.times[me].append(time)
        made.delays[me].append(np.delete(row, me).tolist())
    return made


def simpy_bare(plan: Sends) -> Totals:
    """One process per sender, and a timeout with a callback per packet: the cheapest way with SimPy."""
    simpy: Any = import_module("simpy")  # Only benchmarks need it.
    world = simpy.Environment()
    totals = Totals()

    def arrive(event: Any) -> None:
        totals.deliveries += 1
        totals.latency += world.now - event.value

    def peer(times: list[int], delays: list[list[int]]) -> Iterator[Any]:
        for time, links in zip(times, delays, strict=True):
            yield world.timeout(time - world.now)
            totals.messages += 1
            for delay in links:
                world.timeout(delay, time).callbacks.append(arrive)

    for times, delays in zip(plan.times, plan.delays, strict=True):
        world.process(peer(times, delays))
    world.run()
    totals.end = int(world.now)
    return totals


def simpy_cables(plan: Sends) -> Totals:
    """Messages with a latency as in SimPy's own guide: one process per packet, and a store for each
    receiver."""
    simpy: Any = import_module("simpy")
    world = simpy.Environment()
    totals = Totals()
    stores = [simpy.Store(world) for _ in plan.times]

    def latency(store: Any, delay: int, sent: int) -> Iterator[Any]:
        yield world.timeout(delay)
        store.put(sent)

    def sender(me: int, times: list[int], delays: list[list[int]]) -> Iterator[Any]:
        others = [store for peer, store in enumerate(stores) if peer != me]
        for time, links in zip(times, delays, strict=True):
            yield world.timeout(time - world.now)
            totals.messages += 1
            for store, delay in zip(others, links, strict=True):
                world.process(latency(store, delay, time))

    def receiver(store: Any) -> Iterator[Any]:
        while True:
            sent = yield store.get()
            totals.deliveries += 1
            totals.latency += world.now - sent

    for me, (times, delays) in enumerate(zip(plan.times, plan.delays, strict=True)):
        world.process(sender(me, times, delays))
        world.process(receiver(stores[me]))
    world.run()
    totals.end = int(world.now)
    return totals


class _Message:
    __slots__ = ("causes", "number", "origin", "sent")

    def __init__(self, origin: int, number: int, sent: int, causes: dict[int, int]) -> None:
        self.origin, self.number, self.sent, self.causes = origin, number, sent, causes


class _Packet:
    __slots__ = ("arrived", "message", "to")

    def __init__(self, message: _Message, to: int) -> None:
        self.message, self.to, self.arrived = message, to, 0


class _Member:
    """Delivers in causal order: a message with a missing cause waits in the list of that cause."""

    __slots__ = ("causes", "delivered", "peers", "waiting")

    def __init__(self, peers: int) -> None:
        self.peers = peers
        self.delivered = [0] * peers
        self.causes: dict[int, int] = {}
        """The immediate dependencies of its next message, as in `protocols/mbcp.py`."""
        self.waiting: dict[int, list[_Packet]] = {}

    def receive(self, packet: _Packet, now: int, totals: Totals) -> None:
        packet.arrived = now
        ready = [packet]
        delivered, causes, waiting, peers = self.delivered, self.causes, self.waiting, self.peers
        while ready:
            packet = ready.pop()
            message = packet.message
            origin, number = message.origin, message.number
            lacks = -1
            if delivered[origin] < number - 1:
                lacks = (number - 1) * peers + origin
            else:
                for peer, count in message.causes.items():
                    if delivered[peer] < count:
                        lacks = count * peers + peer
                        break
            if lacks >= 0:
                waiting.setdefault(lacks, []).append(packet)
                continue
            delivered[origin] = number
            for peer, count in message.causes.items():
                if causes.get(peer) == count:
                    del causes[peer]
            causes[origin] = number
            took = now - message.sent
            totals.deliveries += 1
            totals.latency += took
            if took > totals.latest:
                totals.latest = took
            if now > packet.arrived:
                totals.held += 1
                totals.hold += now - packet.arrived
            ready += waiting.pop(number * peers + origin, ())


def heapq_bare(plan: Sends) -> Totals:
    return _heapq(plan, causal=False)


def heapq_causal(plan: Sends) -> Totals:
    return _heapq(plan, causal=True)


def _heapq(plan: Sends, causal: bool) -> Totals:
    totals = Totals()
    members = [_Member(len(plan.times)) for _ in plan.times]
    queue: list[tuple[int, int, Any]] = []
    push, pop = heapq.heappush, heapq.heappop
    for peer, times in enumerate(plan.times):
        if times:
            push(queue, (times[0], _FIRST_SEND + peer, 0))
    now = packets = 0
    while queue:
        now, number, packet = pop(queue)
        if number < _FIRST_SEND:
            if causal:
                members[packet.to].receive(packet, now, totals)
            else:
                totals.deliveries += 1
                totals.latency += now - packet.message.sent
            continue
        me, place = number - _FIRST_SEND, packet
        member = members[me]
        message = _Message(me, place + 1, now, member.causes)
        member.causes = {}
        member.delivered[me] = place + 1
        totals.messages += 1
        for to, delay in zip(plan.others[me], plan.delays[me][place], strict=True):
            push(queue, (now + delay, packets, _Packet(message, to)))
            packets += 1
        if place + 1 < len(plan.times[me]):
            push(queue, (plan.times[me][place + 1], number, place + 1))
    totals.end = now
    return totals


class _Load(ctypes.Structure):
    """As in counter_rng.h."""

    _fields_ = [
        *((name, ctypes.c_int64) for name in ("peers", "until", "poisson", "interval", "jitter")),
        *((name, ctypes.c_int64) for name in ("low", "high", "payload")),
        ("seed", ctypes.c_uint64),
    ]  # fmt: skip


class _Totals(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int64) for name in Totals.__slots__]


def compile_c(folder: Path) -> ctypes.CDLL | None:
    """Compile the rivals in C; returns none if there is no gcc."""
    gcc = shutil.which("gcc")
    if gcc is None:
        return None
    made = folder / "rivals.so"
    sources = [_HERE / "events.c", _HERE / "recurrence.c"]
    subprocess.run([gcc, *_FLAGS, "-o", made, *sources, "-lm"], check=True)
    return ctypes.CDLL(str(made))


def in_c(library: ctypes.CDLL, name: str, given: Scenario) -> Callable[[], Totals]:
    """A run of one of them: bare, causal or recurrence."""
    load, delay = given.build_workload(), parse_delay(given.delay)
    if not isinstance(load, Periodic | Poisson) or not isinstance(delay, Uniform):
        raise TypeError("the rivals in C know periodic and Poisson senders, and uniform delays")
    jitter = load.jitter if isinstance(load, Periodic) else 0
    asked = _Load(
        given.peers, round(given.seconds * SECOND), isinstance(load, Poisson), load.interval, jitter,
        delay.low, delay.high, given.payload, given.seed,
    )  # fmt: skip

    def run() -> Totals:
        found = _Totals()
        if getattr(library, name)(ctypes.byref(asked), ctypes.byref(found)):
            raise OverflowError(f"{name} in C has no room for this run")
        return Totals(*(getattr(found, field) for field in Totals.__slots__))

    return run
