"""The demo, step by step. Each step returns what it found and whether that is the expected result."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
from pyspark.sql import SparkSession

from antecede.audit.run import audit_path
from antecede.causality import Verdict
from antecede.demo.plan import DemoPlan
from antecede.demo.planted import FoundFault, find_fault, plant
from antecede.demo.stream import OrderedStream, StreamedRow, messages_of, order_shuffled
from antecede.errors import InputError
from antecede.live.trial import cluster as trial
from antecede.sim.engines import choose
from antecede.spark.session import connect
from antecede.sweep.on_spark import Sweep
from antecede.sweep.run import Progress, run_study
from antecede.trace.writer import write_whole

MARKER = ".antecede-demo"
"""A folder that contains this file belongs to the demo and may be cleared."""
RESULT, PAGE = "demo.json", "demo.html"
_SYSTEMS, _STREAM, _PLANTED, _LIVE = "systems", "stream", "planted", "live"


class SystemRun(msgspec.Struct, frozen=True):
    """A simulated system and the verdict on its trace."""

    paper: str
    title: str
    protocol: str
    peers: int
    engine: str
    messages: int
    deliveries: int
    control_bytes: float
    held_share: float
    cpu_seconds: float
    violations: int | None
    """All faults that the audit counted; None if it could not judge."""


class SystemRuns(msgspec.Struct, frozen=True):
    runs: list[SystemRun]
    failed: dict[str, str]
    """Errors by run."""
    resumed: int
    """Runs that an earlier demo finished."""
    seconds: float = 0.0

    @property
    def wrong(self) -> str:
        """What differs from the expected result; empty if all is well."""
        broken = [run.protocol for run in self.runs if run.violations]
        if broken:
            return f"the audit found violations in the traces of {', '.join(broken)}"
        lost = [f"{run} failed: {error}" for run, error in self.failed.items()]
        lost += [f"the trace of {run.protocol} was not judged" for run in self.runs if run.violations is None]
        return lost[0] if lost else ""

    @property
    def deliveries(self) -> int:
        return sum(run.deliveries for run in self.runs)


class LiveRun(msgspec.Struct, frozen=True):
    """Three processes that were killed, and what their applications delivered."""

    trial: trial.ClusterResult
    verdict: Verdict | None
    """The verdict on their trace; None if the trial failed."""
    seconds: float = 0.0

    @property
    def wrong(self) -> str:
        """What differs from the expected result; empty if all is well."""
        if self.trial.faults:
            return f"the live processes: {self.trial.faults[0]}"
        if self.verdict is None or not self.verdict.clean:
            return "the trace of the live processes is not clean"
        return "" if self.trial.kills else "no live process was killed"


class DemoResult(msgspec.Struct, frozen=True):
    """What the steps found."""

    systems: SystemRuns
    stream: OrderedStream
    planted: FoundFault
    live: LiveRun
    seconds: float

    @property
    def wrong(self) -> list[str]:
        """The verdicts that are not the expected ones, in words; empty if all is well."""
        steps = (self.systems, self.stream, self.planted, self.live)
        return [step.wrong for step in steps if step.wrong]


class Demo:
    """The steps of a demo in a folder of its own, on one Spark session."""

    def __init__(self, folder: Path, plan: DemoPlan, spark: SparkSession) -> None:
        self._folder, self._plan, self._spark = folder, plan, spark

    def simulate(self, progress: Progress) -> SystemRuns:
        """Simulate the systems and audit their traces, as Spark tasks; finished runs are not repeated."""
        with _timed() as seconds:
            settings = [system.setting for system in self._plan.systems]
            folder = self._folder / _SYSTEMS
            outcome = run_study(folder, settings, progress=progress)
            done = {key: (run, verdict) for key, run, verdict in Sweep(folder, settings).runs()}
            runs = []
            for system in self._plan.systems:
                if (key := system.setting.key()) in done:
                    run, verdict = done[key]
                    runs.append(_shown(system.paper, system.title, run, verdict))
        return SystemRuns(runs, outcome.failed, outcome.skipped, seconds())

    @property
    def _trace(self) -> Path:
        """The trace of the flat system."""
        return self._folder / _SYSTEMS / "runs" / self._plan.flat.setting.key()

    @cached_property
    def _messages(self) -> list[StreamedRow]:
        return messages_of(self._trace)

    def order(self, progress: Progress) -> OrderedStream:
        """Order the messages of one system from a shuffled stream."""
        with _timed() as seconds:
            progress("reading causes", 0, 0)
            folder = self._cleared(_STREAM)
            found = order_shuffled(self._spark, self._messages, folder, self._plan.files, progress)
        return msgspec.structs.replace(found, seconds=seconds())

    def find_planted(self, progress: Progress) -> FoundFault:
        """Plant a fault in a copy of that system's trace, and check that the audit finds it."""
        with _timed() as seconds:
            progress("planting", 0, 0)
            folder = self._cleared(_PLANTED)
            planted = plant(self._trace, self._messages, folder)
            found = find_fault(planted, folder, progress)
        return msgspec.structs.replace(found, seconds=seconds())

    def kill(self, progress: Progress) -> LiveRun:
        """Run live processes, kill some, and audit what they delivered."""
        with _timed() as seconds:
            folder = self._cleared(_LIVE)

            def on_progress(done: int, due: int, kills: int) -> None:
                progress(f"deliveries: {kills} killed", done, due)

            members, trace = folder / "members", self.live_trace
            outcome = asyncio.run(trial.run(self._plan.live, members, trace, on_progress))
            verdict = None
            if not outcome.faults:
                verdict = audit_path(str(trace), "spark", 1, None, progress).verdict
            shutil.rmtree(members)
        return LiveRun(outcome, verdict, seconds())

    @property
    def live_trace(self) -> Path:
        return self._folder / _LIVE / "trace"

    def _cleared(self, name: str) -> Path:
        folder = self._folder / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        return folder


@contextmanager
def open_demo(folder: Path, plan: DemoPlan, progress: Progress) -> Iterator[Demo]:
    """A demo in a new folder, or in that of an earlier demo, with Spark started."""
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file; the demo needs a folder")
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()) and not (folder / MARKER).exists():
        raise InputError(f"{folder} has other files in it; choose another folder with --out")
    (folder / MARKER).touch()
    progress("starting Spark", 0, 0)
    with connect() as spark:
        yield Demo(folder, plan, spark)


def write_result(folder: Path, result: DemoResult, html: str) -> Path:
    """Write the page and the figures; returns the page."""
    write_whole(folder / RESULT, msgspec.json.encode(as_document(result)))
    write_whole(folder / PAGE, html.encode())
    return folder / PAGE


def as_document(result: DemoResult) -> dict[str, Any]:
    """The result for programs: everything but the picture."""
    document: dict[str, Any] = msgspec.to_builtins(result)
    del document["planted"]["picture"]
    return {"ok": not result.wrong, "wrong": result.wrong, **document}


@contextmanager
def _timed() -> Iterator[Any]:
    began = time.monotonic()
    yield lambda: round(time.monotonic() - began, 1)


def _shown(paper: str, title: str, run: Any, verdict: Verdict | None) -> SystemRun:
    metrics, setting = run.metrics, run.scenario
    faults = None if verdict is None else sum(getattr(verdict, name) for name in Verdict.FAULTS)
    return SystemRun(
        paper, title, setting.protocol, setting.peers, choose(setting, observed=True).engine,
        metrics.messages, metrics.deliveries, metrics.control_bytes_mean,
        metrics.held / max(1, metrics.deliveries), run.cpu_seconds, faults,
    )  # fmt: skip
