"""Kills a program that runs a stream, as a machine that fails would."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path


def kills(default: int) -> int:
    """How often a stream is killed; each costs the start of a JVM."""
    return int(os.environ.get("ANTECEDE_KILLS", default))


PATIENCE = 240.0
"""Seconds for a start on a machine that is busy."""


def batches(place: Path, log: str) -> int:
    """How many batches are in a log of the checkpoint."""
    folder = place / "checkpoint" / log
    return max((int(file.name) + 1 for file in folder.glob("[0-9]*")), default=0)


def alive(session: int) -> list[int]:
    """The processes of a session: Spark's Python workers are in a process group of their own."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            state = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(state[3]) == session and state[0] != "Z":
            found.append(int(folder.name))
    return found


def kill_all(process: subprocess.Popen[bytes]) -> None:
    """End a process and all that it started, with no rng to tidy up."""
    while pids := alive(process.pid):
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.poll()
        time.sleep(0.02)
    process.wait()


def killed_in_mid_batch(program: str, files: Path, place: Path, rng: random.Random) -> bool:
    """Start a program of this folder and kill it some time after its first batch; returns whether it was
    within a batch.

    It gets the folder of files, and the place where its `checkpoint` is to be.
    """
    done = batches(place, "commits")
    (place / "tmp").mkdir(exist_ok=True, parents=True)
    with (place / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name(program)), str(files), str(place)],
            env=os.environ | {"TMPDIR": str(place / "tmp")},
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            deadline = time.monotonic() + PATIENCE
            while batches(place, "commits") == done:
                assert process.poll() is None, (place / "log").read_text()
                assert time.monotonic() < deadline, (place / "log").read_text()
                time.sleep(0.02)
            time.sleep(rng.uniform(0, 1))
        finally:
            kill_all(process)
    return batches(place, "offsets") > batches(place, "commits")
