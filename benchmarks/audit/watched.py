"""Runs a process and samples the memory of it and all its children."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

SAMPLE_SECONDS = 0.5


class Watched(NamedTuple):
    """A process's output, duration and memory."""

    output: str
    seconds: float
    peak_bytes: int
    """The memory of the process and all its children together; the largest sample."""


def run(command: Sequence[str], cores: int, exit_code: int = 0) -> Watched:
    """Run a command on `cores` of this process's cores; exit if it does not end with that exit code."""
    mine = sorted(os.sched_getaffinity(0))[:cores]
    peak = 0
    with tempfile.TemporaryFile("w+") as out:
        start = time.perf_counter()
        process = subprocess.Popen(
            command, stdout=out, text=True, preexec_fn=lambda: os.sched_setaffinity(0, mine)
        )
        while True:
            try:
                process.wait(SAMPLE_SECONDS)
                break
            except subprocess.TimeoutExpired:
                peak = max(peak, sum(map(proportional_bytes, family(process.pid))))
        seconds = time.perf_counter() - start
        out.seek(0)
        if process.returncode != exit_code:
            raise SystemExit(f"{' '.join(command)} ends with exit code {process.returncode}")
        return Watched(out.read(), seconds, peak)


def family(pid: int) -> list[int]:
    """A process and all its descendants."""
    children: list[int] = []
    for threads in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):  # It has just ended.
            children += map(int, threads.read_text().split())
    return [pid, *(each for child in children for each in family(child))]


def proportional_bytes(pid: int) -> int:
    """The memory of a process; what several share is divided among them. Pages of mapped files count too."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(1024 * int(line.split()[1]) for line in lines if line.startswith("Pss:"))
