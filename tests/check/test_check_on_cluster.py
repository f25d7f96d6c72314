"""An exploration on a cluster that loses a worker gives the counts of one process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from contextlib import ExitStack
from pathlib import Path

from standalone_cluster import ANTECEDE, environment, start_workers

COUNTS = ("states", "transitions", "depth", "ends", "complete", "violation")


def test_a_worker_killed_during_an_exploration_does_not_change_the_counts(
    master: str, tmp_path: Path
) -> None:
    """By SIGKILL, together with its executor, after the first levels."""
    command = [*ANTECEDE, "check", "mbcp", "--peers", "2", "--duplicates", "1", "--crashes", "1", "--json"]
    alone = subprocess.run(command, capture_output=True, text=True, check=True)
    levels = tmp_path / "out" / "mbcp.exploration" / "states"
    with ExitStack() as stack:
        workers = start_workers(stack, master, tmp_path)
        exploring = subprocess.Popen(
            [*command, "--out", str(tmp_path / "out"), "--master", master],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(),
        )
        while exploring.poll() is None and not (levels / "level=3").exists():
            time.sleep(0.02)
        os.killpg(workers[0].pid, signal.SIGKILL)
        assert exploring.poll() is None
        out, err = exploring.communicate(timeout=400)
    assert exploring.returncode == 0, err
    expected, found = ([each[name] for name in COUNTS] for each in map(_report, (alone.stdout, out)))
    assert found == expected


def _report(text: str) -> dict[str, object]:
    (report,) = json.loads(text)["protocols"]
    return dict(report)
