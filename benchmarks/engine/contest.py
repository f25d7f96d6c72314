"""The contestants and how they are measured: in turns, each by the CPU time of its single thread.

A run that delivers any message at another time than our recurrence does not count: it ends the benchmark.
"""

from __future__ import annotations

import ctypes
import gc
import importlib.util
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, TypeVar

import msgspec
from results import C_BARE, C_CAUSAL, C_RECURRENCE, EVENT, RECURRENCE, SIMPY, SIMPY_GUIDE, Timed
from rivals import Totals, heapq_bare, heapq_causal, in_c, sends, simpy_bare, simpy_cables, totals_of

from antecede.errors import InputError
from antecede.papers import paper_000
from antecede.papers.paper_004 import runs as paper_004_runs
from antecede.sim.engines import Engine, choose, simulate
from antecede.sim.scenario import Scenario

Run = Callable[[], Totals]
Say = Callable[[str], None]
Made = TypeVar("Made")


@dataclass(frozen=True)
class Contestant:
    name: str
    prepare: Callable[[Scenario], Run]
    """Prepares a run, off the clock."""
    causal: bool = True
    share: float = 1.0
    """The share of the seconds of sending that the slowest contestants simulate."""


def workload(kind: Literal["periodic", "poisson"], peers: int, deliveries: int) -> Scenario:
    """Every peer sends to every other, ten times a second, with delays of 1 to 100 ms: the defaults of a
    scenario."""
    made = Scenario("timestamp", peers=peers, workload=kind)
    return msgspec.structs.replace(made, seconds=deliveries / (peers * (peers - 1) * made.rate))


def contestants(library: ctypes.CDLL | None) -> tuple[list[Contestant], list[str]]:
    """All contestants that can run here, and why others cannot."""

    def in_python(run: Callable[..., Totals], given: Scenario) -> Run:
        return partial(run, sends(given))

    def ours(engine: Engine, given: Scenario) -> Run:
        return lambda: totals_of(simulate(given, engine=engine).metrics)

    def compiled(name: str, given: Scenario) -> Run:
        if library is None:
            raise RuntimeError("C was not compiled")
        return in_c(library, name, given)

    those = [
        Contestant(SIMPY, partial(in_python, simpy_bare), causal=False),
        Contestant(SIMPY_GUIDE, partial(in_python, simpy_cables), causal=False, share=0.2),
        Contestant("heapq, bare dispatch", partial(in_python, heapq_bare), causal=False),
        Contestant(C_BARE, partial(compiled, "bare"), causal=False),
        Contestant(C_CAUSAL, partial(compiled, "causal")),
        Contestant(C_RECURRENCE, partial(compiled, "recurrence")),
        Contestant(EVENT, partial(ours, "event")),
        Contestant(RECURRENCE, partial(ours, "recurrence")),
        Contestant("heapq, causal delivery", partial(in_python, heapq_causal), share=0.1),
        Contestant("Antecede, reference", partial(ours, "reference"), share=0.05),
    ]
    missing = {}
    if importlib.util.find_spec("simpy") is None:
        missing["SimPy"] = "it is not installed; ./dev bench installs it"
    if library is None:
        missing["C"] = "there is no gcc to compile it"
    try:
        choose(Scenario("timestamp"), observed=False, engine="event")
    except InputError as error:
        missing[EVENT] = str(error)
    left_out = [f"{name} is left out: {why}" for name, why in missing.items()]
    absent = tuple(missing)
    return [each for each in those if not each.name.startswith(absent)], left_out


def timed(run: Callable[[], Made]) -> tuple[float, Made]:
    """CPU seconds of this thread, without Python's search for cyclic garbage."""
    gc.collect()
    gc.disable()
    start = time.thread_time()
    result = run()
    spent = time.thread_time() - start
    gc.enable()
    return spent, result


def compare(given: Scenario, those: Sequence[Contestant], repeats: int, say: Say) -> list[Timed]:
    """Each contestant in turn on one workload, several times over."""
    found: dict[str, Timed] = {}
    parts = {one.share: msgspec.structs.replace(given, seconds=given.seconds * one.share) for one in those}
    truths = {share: totals_of(simulate(part, engine="recurrence").metrics) for share, part in parts.items()}
    for repeat in range(repeats):
        for one in those:
            part, truth = parts[one.share], truths[one.share]
            spent, totals = timed(one.prepare(part))
            wrong = totals.differences(truth, one.causal)
            if wrong:
                sys.exit(f"{one.name} at {given.peers} peers is wrong: {'; '.join(wrong)}")
            mine = found.setdefault(
                one.name, Timed(one.name, given.peers, truth.deliveries, truth.deliveries, one.share)
            )
            mine.cpu_seconds.append(spent)
            say(f"{given.peers} peers, {repeat + 1} of {repeats}: {one.name}, {spent:.2f} s")
    return list(found.values())


def warm_up(those: Sequence[Contestant], others: Sequence[Scenario]) -> dict[str, float]:
    """CPU seconds of each contestant's first and very short run: for ours, compilation."""
    tiny = workload("periodic", 4, 100)
    took = {one.name: timed(one.prepare(tiny))[0] for one in those if one.name.startswith("Antecede")}
    for given in others:
        small = msgspec.structs.replace(given, peers=min(given.peers, 8), silent=(), layout=None)
        small = msgspec.structs.replace(small, seconds=0.1, warmup=0.0)
        if given.protocol not in took:
            took[given.protocol] = timed(partial(simulate, small, engine="event"))[0]
    return took


def other_protocols(sizes: Sequence[int], deliveries: int) -> list[Scenario]:
    """What else event kernels do: flooding on the same workload, paper 000's network of 900 peers for a fifth
    of its time, and paper 004's of 1024 nodes."""
    flooding = [
        msgspec.structs.replace(workload("periodic", peers, deliveries), protocol="flooding")
        for peers in sizes
    ]
    everything = paper_000.STUDY.plain_grid("full")
    largest = next(run for run in everything if run.protocol == "freescale" and run.peers == 901)
    freescale = msgspec.structs.replace(largest, seconds=largest.seconds / 5, warmup=0.0)
    return [*flooding, freescale, paper_004_runs.run("vcube-agg", 1024, seed=1)]


def measure_others(those: Sequence[Scenario], repeats: int, say: Say) -> list[Timed]:
    found = [Timed(given.protocol, given.peers) for given in those]
    for repeat in range(repeats):
        for given, mine in zip(those, found, strict=True):
            spent, made = timed(partial(simulate, given, engine="event"))
            mine.deliveries, mine.packets = made.metrics.deliveries, made.metrics.packets
            mine.cpu_seconds.append(spent)
            say(f"{given.protocol} of {given.peers}, {repeat + 1} of {repeats}: {spent:.2f} s")
    return found
