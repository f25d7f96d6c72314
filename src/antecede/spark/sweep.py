"""Sweeps: many simulations as Spark tasks, one run a task.

A run writes under its own key: its trace first, then `run.json`, which says that it is whole. So a
sweep that was stopped goes on where it was, a run that is tried twice leaves the same bytes, and
nothing else has to be remembered. A run that fails is reported with its error; the others finish.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYet
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import msgspec
import pyarrow as pa
from pyspark.sql import SparkSession

from antecede.errors import InputError, ProtocolError
from antecede.order import Verdict
from antecede.sim.metrics import Metrics
from antecede.sim.record import simulate_to
from antecede.sim.scenario import Scenario, simulate
from antecede.spark.audit import audit, read_events, read_members
from antecede.spark.session import literal_rows, refuse_unshared, spark_path
from antecede.trace.judge import total
from antecede.trace.writer import META, write_whole

T = TypeVar("T")

Progress = Callable[[int], None]
"""Told how many are finished, now and then."""

_RUN, _VERDICT = "run.json", "verdict.json"
_POLL_SECONDS = 0.2


class Run(msgspec.Struct, frozen=True):
    """A finished run: what was asked, what it cost, and how long it took here."""

    scenario: Scenario
    metrics: Metrics
    cpu_seconds: float


class Sweep:
    """The runs of some scenarios, in a folder: which are finished, judged, failed."""

    def __init__(
        self, folder: str | Path, scenarios: Sequence[Scenario], *, metrics_only: bool = False
    ) -> None:
        self.folder = Path(folder)
        self.scenarios = {scenario.key(): scenario for scenario in scenarios}
        self.metrics_only = metrics_only

    def run_folder(self, key: str) -> Path:
        return self.folder / "runs" / key

    def _has(self, key: str, *files: str) -> bool:
        return all((self.run_folder(key) / file).exists() for file in files)

    def unfinished(self) -> list[str]:
        """Runs that are still to be made: those without a result, or without a wanted trace."""
        wanted = (_RUN,) if self.metrics_only else (_RUN, META)
        return [key for key in self.scenarios if not self._has(key, *wanted)]

    def unjudged(self) -> list[str]:
        """Finished runs whose trace has not been audited."""
        return [key for key in self.scenarios if self._has(key, _RUN, META) and not self._has(key, _VERDICT)]

    def simulate(self, spark: SparkSession, progress: Progress = lambda _: None) -> dict[str, str]:
        """Run what is not finished yet; the errors of runs that failed, by key."""
        todo = self.unfinished()
        if not todo:
            return {}
        self.folder.mkdir(parents=True, exist_ok=True)
        refuse_unshared(spark, self.folder)
        specs = [msgspec.json.encode(self.scenarios[key]).decode() for key in todo]
        task = _task(str((self.folder / "runs").resolve()), self.metrics_only)
        results = literal_rows(spark, specs, "scenario").mapInArrow(task, "key string, error string")

        def failed() -> dict[str, str]:
            return {row.key: row.error for row in results.where("error is not null").collect()}

        with ThreadPoolExecutor(1) as pool:
            job = pool.submit(failed)
            while True:
                try:
                    errors = job.result(_POLL_SECONDS)
                    break
                except NotYet:
                    progress(len(todo) - len(self.unfinished()))
        progress(len(todo))
        return errors

    def judge(self, spark: SparkSession, progress: Progress = lambda _: None) -> None:
        """Audit, on Spark, the traces that have not been."""
        todo = self.unjudged()
        if not todo:
            return
        refuse_unshared(spark, self.folder)
        paths = [spark_path(self.run_folder(key)) for key in todo]
        audited = audit(read_events(spark, *paths), read_members(spark, *paths))
        verdicts = dict(audited.by_run())
        for done, key in enumerate(todo, start=1):
            # A run in which nothing happened has no rows, so Spark says nothing of it.
            verdict = verdicts.get(key) or replace(total([]), processes=self.scenarios[key].peers)
            write_whole(self.run_folder(key) / _VERDICT, msgspec.json.encode(verdict))
            progress(done)

    def runs(self) -> Iterator[tuple[str, Run, Verdict | None]]:
        """Every finished run with its verdict, in the order of the scenarios."""
        for key in self.scenarios:
            if not self._has(key, _RUN):
                continue
            folder = self.run_folder(key)
            verdict = _read(folder / _VERDICT, Verdict) if self._has(key, _VERDICT) else None
            yield key, _read(folder / _RUN, Run), verdict


def _read(file: Path, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(file.read_bytes(), type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"{file} is damaged ({error}); delete it and run the sweep again") from error


def _task(runs: str, metrics_only: bool) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            rows = [_run(Path(runs), text, metrics_only) for text in batch.column("scenario").to_pylist()]
            yield pa.RecordBatch.from_pylist(
                rows, schema=pa.schema([("key", pa.string()), ("error", pa.string())])
            )

    return task


def _run(runs: Path, text: str, metrics_only: bool) -> dict[str, str | None]:
    scenario = msgspec.json.decode(text, type=Scenario)
    key = scenario.key()
    folder = runs / key
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # What an earlier attempt said of itself no longer holds once the run is made anew.
        for said in (_VERDICT, _RUN):
            (folder / said).unlink(missing_ok=True)
        start = time.process_time()
        metrics = simulate(scenario) if metrics_only else simulate_to(folder, scenario)
        run = Run(scenario, metrics, time.process_time() - start)
        write_whole(folder / _RUN, msgspec.json.encode(run))
    except ProtocolError as error:
        return {"key": key, "error": str(error)}
    except (Exception, SystemExit) as error:  # whatever it is, the other runs go on
        return {"key": key, "error": f"{type(error).__name__}: {error}"}
    return {"key": key, "error": None}
