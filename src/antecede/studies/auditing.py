"""Auditing a trace wherever it lies: in this process if it is small, on Spark otherwise."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from antecede.errors import InputError, require
from antecede.order import Verdict
from antecede.trace.judge import Finding, judge_files, total
from antecede.trace.reader import check_files, estimate_rows, metas, read_batches, trace_files
from antecede.trace.schema import Meta
from antecede.trace.writer import write_parts

SMALL_ROWS = 1_000_000
"""Below this, judging a trace takes no longer than starting Spark."""

Progress = Callable[[str, int, int], None]
Outcome = tuple[Verdict, list[Finding], str]
"""The verdict on a trace, its first violations, and the engine that gave them."""


def audit_path(
    path: str, engine: str, limit: int, master: str | None, progress: Progress = lambda *_: None
) -> Outcome:
    """Audit a local trace, or one at a URL that Spark reads."""
    if engine not in ("auto", "local", "spark"):
        raise InputError(f"no engine '{engine}'; there are auto, local and spark")
    if not path:
        raise InputError("no trace is named")
    scheme, is_url, rest = path.partition("://")
    if is_url and scheme != "file":
        if engine == "local":
            raise InputError(f"{path} can be read by Spark only; leave out --engine local")
        return _on_spark(path, None, limit, master, progress)
    local = Path(rest if is_url else path)
    if (local / "runs").is_dir() and (local / "results.parquet").exists():
        local = local / "runs"  # a sweep's folder: its traces, not its tables
    files = trace_files(local)
    check_files(files)
    cluster = master or os.environ.get("SPARK_REMOTE")
    if engine == "spark" or (engine == "auto" and (cluster or estimate_rows(files) > SMALL_ROWS)):
        return _local_on_spark(local, files, limit, master, progress)
    progress("judging", 0, 0)
    audits = list(judge_files(local, files, limit))
    findings = [finding for each in audits for finding in each.findings]
    findings.sort(key=lambda finding: not finding.late)
    return total([each.verdict for each in audits]), findings[:limit], "local"


def _local_on_spark(
    path: Path, files: list[Path], limit: int, master: str | None, progress: Progress
) -> Outcome:
    about = metas(path)
    if all(file.suffix == ".parquet" for file in files):
        return _on_spark(path, about, limit, master, progress, files[0])
    progress("reading", 0, 0)
    with tempfile.TemporaryDirectory(prefix="antecede-") as folder:
        write_parts(Path(folder), (table for file in files for table in read_batches(file)))
        return _on_spark(Path(folder), about, limit, master, progress)


def _on_spark(
    path: str | Path,
    about: list[Meta] | None,
    limit: int,
    master: str | None,
    progress: Progress,
    file: Path | None = None,
) -> Outcome:
    require("antecede.spark", "spark")
    from antecede.spark.audit import audit, members_frame, read_events, read_members
    from antecede.spark.session import connect, refuse_unshared, spark_path

    progress("starting Spark", 0, 0)
    with connect(master) as spark:
        if isinstance(path, Path):
            refuse_unshared(spark, path, file)
        progress("auditing", 0, 0)
        where = spark_path(path) if isinstance(path, Path) else path
        events = read_events(spark, where)
        members = read_members(spark, where) if about is None else members_frame(spark, about)
        audited = audit(events, members, limit)
        return audited.total(), audited.first(limit), "spark"
