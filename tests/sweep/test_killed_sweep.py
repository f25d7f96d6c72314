"""A sweep that is killed goes on where it was, and ends where an undisturbed one ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from antecede.cli.main import app

ANTECEDE = [sys.executable, "-c", "from antecede.cli.main import main; main()"]
GRID = """
[run]
seconds = 3.0
[grid]
protocol = ["mbcp", "timestamp"]
peers = [10, 12]
seed = [1, 2, 3, 4, 5]
"""


def finished(folder: Path) -> dict[str, int]:
    """The runs that are whole, and when each was written."""
    return {file.parent.name: file.stat().st_mtime_ns for file in folder.glob("runs/*/_run.json")}


def sweep(folder: Path, grid: Path) -> None:
    """On the Spark that is there."""
    done = CliRunner().invoke(app, ["sweep", str(grid), "--out", str(folder)])
    assert done.exit_code == 0, done.output


def test_sigkill_during_a_sweep_loses_no_finished_run(spark: SparkSession, tmp_path: Path) -> None:
    grid = tmp_path / "grid.toml"
    grid.write_text(GRID)
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    command = [*ANTECEDE, "sweep", str(grid), "--out", str(killed)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while len(finished(killed)) < 3:
        assert process.poll() is None, "it ended before it could be killed"
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    before = finished(killed)
    assert 3 <= len(before) < 20

    sweep(killed, grid)
    after = finished(killed)
    assert len(after) == 20
    assert {run: after[run] for run in before} == before

    sweep(whole, grid)
    for name in ("results.parquet", "summary.parquet"):
        assert pq.read_table(killed / name).equals(pq.read_table(whole / name))
    assert (killed / "report.html").read_text().replace("grid", "") == (
        whole / "report.html"
    ).read_text().replace("grid", "")
