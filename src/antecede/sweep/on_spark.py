"""Sweeps: many simulations as Spark tasks, one task for each run.

An attempt at a run writes into a folder of its own, which is renamed to the run's key once it is complete. So
a stopped sweep resumes where it was, attempts at one run do not disturb each other, and the folders are the
only state. Digests show whether a finished run is unchanged (`digests`). A run that fails is reported with
its error; the others finish.
"""

from __future__ import annotations

import contextlib
import errno
import shutil
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Literal, TypeVar

import msgspec
import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from antecede.audit.core import members_by_run
from antecede.audit.on_spark import audit
from antecede.audit.streaming import verdict_if_clean
from antecede.causality import Verdict
from antecede.errors import AntecedeError, InputError
from antecede.sim.engines import precompile, simulate
from antecede.sim.metrics import Metrics
from antecede.sim.record import simulate_to
from antecede.sim.scenario import Scenario
from antecede.spark.read import read_events, read_members
from antecede.spark.session import cancel_jobs, refuse_unshared, spark_path, uninterrupted
from antecede.sweep.auditing_observer import AuditingObserver, can_audit
from antecede.sweep.digests import (
    ERROR,
    RUN,
    VERDICT,
    VERDICT_DIGEST,
    is_verdict_intact,
    seal_run,
    seal_verdict,
    what_is_wrong,
)
from antecede.trace.reader import read_metas, trace_files
from antecede.trace.schema import META
from antecede.trace.writer import write_whole
from antecede.user_classes import user_folder

T = TypeVar("T")

_TASK_RESULT = pa.schema([("key", pa.string()), ("error", pa.string())])

Progress = Callable[[int], None]
"""Called at intervals with the number of finished runs."""

_POLL_SECONDS = 0.2
_POLL_SHARE = 0.02
"""The share of one core spent on counting finished runs: there may be thousands."""
_MAX_DELIVERIES_WITH_RECEIVES = 500_000
"""Traces of larger runs have no rows for when packets were received."""
_ABANDONED_SECONDS = 3600


Kept = Literal["trace", "verdict", "metrics"]
"""The files a run leaves beside its metrics."""


def _kept(scenario: Scenario, traced: bool, audit_untraced: bool) -> Kept:
    if traced:
        return "trace"
    if not audit_untraced:
        return "metrics"
    return "verdict" if can_audit(scenario) else "trace"


class SweepRun(msgspec.Struct, frozen=True):
    """A finished run: its scenario, its metrics, and the CPU time it took."""

    scenario: Scenario
    metrics: Metrics
    cpu_seconds: float


class Sweep:
    """The runs of some scenarios in a folder: which are finished, audited, failed."""

    def __init__(
        self,
        folder: str | Path,
        scenarios: Sequence[Scenario],
        *,
        traced: Callable[[Scenario], bool] = lambda _: True,
        audit_untraced: bool = False,
    ) -> None:
        """Runs that are not `traced` leave metrics only. With `audit_untraced` they are audited while they
        run, and those that are not clean leave a trace after all."""
        self.folder = Path(folder)
        self.scenarios = {scenario.key(): scenario for scenario in scenarios}
        self.kept = {key: _kept(each, traced(each), audit_untraced) for key, each in self.scenarios.items()}

    def run_folder(self, key: str) -> Path:
        return self.folder / "runs" / key

    def _has(self, key: str, *files: str) -> bool:
        return all((self.run_folder(key) / file).exists() for file in files)

    def discard_damaged(self) -> dict[str, str]:
        """Remove finished runs, or their verdicts, that were changed since. Returns the reasons, by key.

        Files may have been truncated by a full disk, changed, or copied from another sweep. Reads every file.
        """
        damaged = {}
        for key in self.scenarios:
            folder = self.run_folder(key)
            if not self._has(key, RUN):
                continue
            if (wrong := what_is_wrong(folder, key)) is not None:
                damaged[key] = wrong
                shutil.rmtree(folder)
            elif self._has(key, VERDICT) and not is_verdict_intact(folder):
                damaged[key] = f"{VERDICT} is not as the audit left it"
                for name in (VERDICT, VERDICT_DIGEST):
                    (folder / name).unlink(missing_ok=True)
        return damaged

    def unfinished(self) -> list[str]:
        """Runs that still lack a required result, trace or verdict."""
        return [key for key, kept in self.kept.items() if not self._is_finished(key, kept)]

    def _is_finished(self, key: str, kept: Kept) -> bool:
        if kept == "trace":
            return self._has(key, RUN, META)
        judged = kept == "metrics" or self._has(key, VERDICT) or self._has(key, META)
        return judged and self._has(key, RUN)

    def unjudged(self) -> list[str]:
        """Finished runs whose trace has not been audited."""
        return [key for key in self.scenarios if self._has(key, RUN, META) and not self._has(key, VERDICT)]

    def simulate(self, spark: SparkSession, progress: Progress = lambda _: None) -> dict[str, str]:
        """Execute the unfinished runs. Returns the errors of failed runs by key."""
        todo = self.unfinished()
        if not todo:
            return {}
        self.folder.mkdir(parents=True, exist_ok=True)
        refuse_unshared(spark, self.folder)
        _clear_abandoned(self.folder / "runs")
        long: dict[str, bool] = {}
        for observed in (False, True):
            keys = [key for key in todo if (self.kept[key] != "metrics") is observed]
            compiled = precompile([self.scenarios[key] for key in keys], observed)
            long |= dict(zip(keys, compiled, strict=True))
        specs = [
            (msgspec.json.encode(self.scenarios[key]).decode(), self.kept[key], long[key]) for key in todo
        ]
        task = _simulate_task(str((self.folder / "runs").resolve()), specs, str(Path.cwd()))
        # One partition, and so one task, for each run; the specifications travel with the task's code.
        numbers = spark.range(0, len(todo), 1, len(todo))
        results = numbers.mapInArrow(task, "key string, error string")

        def failed() -> dict[str, str]:
            return {row.key: row.error for row in results.where("error is not null").collect()}

        return _run_watched(spark, failed, lambda: progress(len(todo) - len(self.unfinished())))

    def judge(self, spark: SparkSession, progress: Progress = lambda _: None) -> dict[str, str]:
        """Audit the traces that have no verdict yet. Returns why some could not be audited, by key.

        A one-pass audit in a task of its own clears clean runs; the rest gets the full audit.
        """
        todo = self.unjudged()
        if not todo:
            return {}
        refuse_unshared(spark, self.folder)
        before = len(todo)
        checks = _check_task(str((self.folder / "runs").resolve()), todo)
        numbers = spark.range(0, len(todo), 1, len(todo))
        _run_watched(
            spark,
            lambda: numbers.mapInArrow(checks, "key string, error string").count(),
            lambda: progress(before - len(self.unjudged())),
        )
        todo = self.unjudged()
        if not todo:
            return {}
        wanted = F.broadcast(spark.createDataFrame([(key,) for key in todo], "run string"))
        runs = spark_path(self.folder / "runs")
        events = read_events(spark, runs).join(wanted, "run", "left_semi")
        audited = audit(events, read_members(spark, runs), strict=False)
        verdicts, errors = dict(audited.by_run()), audited.errors()
        audited.release()
        for done, key in enumerate(todo, start=before - len(todo) + 1):
            if key not in errors:
                # A run without events has no rows, so the audit has no verdict on it.
                verdict = verdicts.get(key) or Verdict.no_faults(self.scenarios[key].peers, 0, 0)
                _write_verdict(self.run_folder(key), verdict)
            progress(done)
        return errors

    def errors(self) -> dict[str, str]:
        """The errors of failed runs by key."""
        failed = [key for key in self.scenarios if self._has(key, ERROR)]
        return {key: (self.run_folder(key) / ERROR).read_text() for key in failed}

    def runs(self) -> Iterator[tuple[str, SweepRun, Verdict | None]]:
        """Every finished run with its verdict, in the order of the scenarios."""
        for key in self.scenarios:
            if not self._has(key, RUN):
                continue
            folder = self.run_folder(key)
            verdict = _read_verdict(folder / VERDICT) if self._has(key, VERDICT) else None
            yield key, _read(folder / RUN, SweepRun), verdict


def _run_watched(spark: SparkSession, work: Callable[[], T], look: Callable[[], None]) -> T:
    """Run `work` and call `look` at intervals until it is done; an interruption cancels Spark's jobs."""
    pool = ThreadPoolExecutor(1)
    job = pool.submit(work)
    pause = _POLL_SECONDS
    with uninterrupted() as interrupted:
        while not job.done() and not interrupted:
            wait([job], pause)
            start = time.process_time()
            look()
            pause = min(10 * _POLL_SECONDS, max(_POLL_SECONDS, (time.process_time() - start) / _POLL_SHARE))
    pool.shutdown(wait=False)
    if interrupted:
        cancel_jobs(spark)
        raise KeyboardInterrupt
    return job.result()


def _read(file: Path, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(file.read_bytes(), type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"{file} is damaged ({error}); delete it and run the sweep again") from error


def _read_verdict(file: Path) -> Verdict:
    """Read a verdict; deprecated names of counts are accepted."""
    counts = _read(file, dict[str, int])
    try:
        return Verdict.from_counts(counts)
    except KeyError as error:
        text = f"{file} is damaged (no count {error}); delete it and run the sweep again"
        raise InputError(text) from error


def _simulate_task(
    runs: str, specs: list[tuple[str, Kept, bool]], modules: str
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """`modules` is the folder with the user's own modules and files."""

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            numbers: list[int] = batch.column("id").to_pylist()
            with user_folder(Path(modules)):
                rows = [_run(Path(runs), *specs[number]) for number in numbers]
            yield pa.RecordBatch.from_pylist(rows, schema=_TASK_RESULT)

    return task


def _check_task(runs: str, keys: list[str]) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            rows = [_check(Path(runs) / keys[number]) for number in batch.column("id").to_pylist()]
            yield pa.RecordBatch.from_pylist(rows, schema=_TASK_RESULT)

    return task


def _check(folder: Path) -> dict[str, str | None]:
    """Write the verdict of a run if one pass shows that it is clean."""
    try:
        verdict = verdict_if_clean(
            trace_files(folder), folder.name, members_by_run(read_metas(folder))[folder.name]
        )
    except InputError:
        verdict = None  # The full audit reports what is wrong.
    if verdict is not None:
        _write_verdict(folder, verdict)
    return {"key": folder.name, "error": None}


def _write_verdict(folder: Path, verdict: Verdict) -> None:
    write_whole(folder / VERDICT, msgspec.json.encode(verdict.counts()))
    seal_verdict(folder)


def _run(runs: Path, text: str, kept: Kept, long: bool) -> dict[str, str | None]:
    """Execute one run in a folder of its own, and move that into place once it is complete."""
    scenario = msgspec.json.decode(text, type=Scenario)
    key = scenario.key()
    aside = runs / f".{key}.{uuid.uuid4().hex}"
    aside.mkdir(parents=True)
    try:
        start = time.process_time()
        verdict: Verdict | None = None
        if kept == "verdict":
            auditor = AuditingObserver(scenario)
            metrics = simulate(scenario, [auditor], long=long).metrics
            verdict = auditor.verdict()
        elif kept == "metrics":
            metrics = simulate(scenario, long=long).metrics
        if kept == "trace" or (kept == "verdict" and verdict is None):
            metrics = simulate_to(aside, scenario, long=long, receives=_is_small(scenario)).metrics
        run = SweepRun(scenario, metrics, time.process_time() - start)
        write_whole(aside / RUN, msgspec.json.encode(run))
        seal_run(aside, key)
        if verdict is not None:
            _write_verdict(aside, verdict)
    except (Exception, SystemExit) as error:  # Whatever happened, the other runs continue.
        known = isinstance(error, AntecedeError)
        reason = str(error) if known else f"{type(error).__name__}: {error}"
        _remove_files(aside)
        write_whole(aside / ERROR, reason.encode())
        _move_into_place(aside, runs / key)
        return {"key": key, "error": reason}
    _move_into_place(aside, runs / key)
    return {"key": key, "error": None}


def _is_small(scenario: Scenario) -> bool:
    """Whether a trace is small enough to be drawn, so that it should say when packets were received."""
    return scenario.expected_messages() * scenario.peers <= _MAX_DELIVERIES_WITH_RECEIVES


def _move_into_place(aside: Path, place: Path) -> None:
    """The last attempt wins: all attempts at one run leave the same bytes."""
    older = aside.with_name(f"{aside.name}.older")
    while True:
        try:
            aside.rename(place)
            return
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
        # Another attempt may be moving the same folder out of the way at this moment.
        with contextlib.suppress(FileNotFoundError):
            place.rename(older)
        shutil.rmtree(older, ignore_errors=True)


def _remove_files(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.mkdir()


def _clear_abandoned(runs: Path) -> None:
    """Remove attempts that have not changed for an hour: they were killed."""
    for aside in runs.glob(".*.*"):
        with contextlib.suppress(OSError):
            if time.time() - aside.stat().st_mtime > _ABANDONED_SECONDS:
                shutil.rmtree(aside)
