"""A ring of groups that overlap, as real processes that are killed: the oracle finds nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

TRIAL = Path(__file__).parent.parent.parent / "benchmarks" / "live" / "overlapping.py"


def test_a_ring_of_groups_whose_processes_are_killed(tmp_path: Path) -> None:
    options = [
        "--processes",
        "4",
        "--groups",
        "3",
        "--messages",
        "600",
        "--kill-every",
        "1",
        "--seconds",
        "120",
    ]
    command = [sys.executable, str(TRIAL), *options, "--folder", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180)
    logs = "".join(each.read_text()[-2_000:] for each in tmp_path.glob("*.err"))
    assert done.returncode == 0, done.stdout + done.stderr + logs
    found = json.loads(done.stdout)
    assert found["clean"]
    assert found["kills"] > 0
    assert found["messages"] >= 590
