"""The embedded Spark as a process: what it leaves behind when killed, and which error the user sees."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from antecede.sim.record import simulate_to
from antecede.sim.scenario import scenario

ANTECEDE = [sys.executable, "-c", "from antecede.cli.main import main; main()"]
DEADLINE_SECONDS = 120.0


def wait_for(what: str, condition: Callable[[], object]) -> None:
    end = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        assert time.monotonic() < end, f"no {what} within {DEADLINE_SECONDS} s"
        time.sleep(0.05)


def children(parent: int) -> list[int]:
    """The processes that a process started, and those that they started."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = status.read_text().rpartition(")")[2].split()
            if int(fields[1]) == parent and fields[0] != "Z":
                found += [int(status.parent.name), *children(int(status.parent.name))]
    return found


def jvms(parent: int) -> list[int]:
    with contextlib.suppress(OSError):
        return [each for each in children(parent) if "java" in str(Path(f"/proc/{each}/exe").readlink())]
    return []


class Running:
    """A Spark command that runs longer than the test observes it."""

    def __init__(self, grid: Path, temporary: Path, out: Path) -> None:
        self.temporary, self.out = temporary, out
        environment = {**os.environ, "TMPDIR": str(temporary)}
        command = [*ANTECEDE, "sweep", str(grid), "--out", str(out)]
        self.process = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def wait_until_it_works(self) -> None:
        wait_for("run that is under way", lambda: any(self.out.glob("runs/.*")) or self.process.poll())
        assert self.process.poll() is None, self.process.communicate()

    def end(self) -> tuple[int, str]:
        _, errors = self.process.communicate(timeout=DEADLINE_SECONDS)
        return self.process.returncode, errors

    def left(self) -> list[str]:
        return sorted(each.name for each in self.temporary.iterdir())


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    grid = tmp_path / "grid.toml"
    grid.write_text(
        '[run]\nseconds = 2000\npeers = 30\nreply = 0.01\n[grid]\nprotocol = ["mbcp"]\nseed = [1, 2, 3]\n'
    )
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    command = Running(grid, temporary, tmp_path / "out")
    yield command
    for process in [command.process.pid, *children(command.process.pid)]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    command.process.wait()


def test_temporary_folders_in_use_are_kept_and_sigterm_leaves_no_folder_or_jvm(running: Running) -> None:
    running.wait_until_it_works()
    (used,) = [name for name in running.left() if name.startswith("antecede-")]
    script = "from antecede.temporary_folders import temporary_folder\nwith temporary_folder('x'): pass"
    environment = {**os.environ, "TMPDIR": str(running.temporary)}
    subprocess.run([sys.executable, "-c", script], env=environment, check=True, timeout=60)
    assert used in running.left()
    assert running.process.poll() is None

    (java,) = jvms(running.process.pid)
    running.process.terminate()
    code, errors = running.end()
    assert code == 143
    assert errors.count("\n") <= 1
    assert "Traceback" not in errors
    wait_for("end of the JVM", lambda: not Path(f"/proc/{java}").exists())
    assert running.left() == []


def test_leftovers_of_sigkill_are_removed_at_the_next_start(running: Running, tmp_path: Path) -> None:
    running.wait_until_it_works()
    (java,) = jvms(running.process.pid)
    running.process.kill()
    running.end()
    wait_for("end of the JVM", lambda: not Path(f"/proc/{java}").exists())
    (left,) = [name for name in running.left() if name.startswith("antecede-")]
    foreign = running.temporary / "antecede-spark-of-another-program"
    foreign.mkdir()

    simulate_to(tmp_path / "trace", scenario(protocol="mbcp", peers=3, seconds=0.5))
    command = [*ANTECEDE, "audit", str(tmp_path / "trace"), "--engine", "spark"]
    environment = {**os.environ, "TMPDIR": str(running.temporary)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert left not in running.left()
    assert foreign.exists()


def test_a_killed_jvm_is_reported_in_a_sentence(running: Running) -> None:
    running.wait_until_it_works()
    (java,) = jvms(running.process.pid)
    os.kill(java, signal.SIGKILL)
    code, errors = running.end()
    assert code == 2
    assert errors.startswith("error: Spark's Java process ended")
    assert "spark.log" in errors
    assert errors.count("\n") == 1
    assert "ConnectionRefused" not in errors
    assert "Traceback" not in errors


def test_a_jvm_killed_during_an_audit_is_reported_in_a_sentence(tmp_path: Path) -> None:
    """As soon as it runs: while Python connects to it, reads the trace or waits for a result."""
    simulate_to(tmp_path / "trace", scenario(protocol="mbcp", peers=10, seconds=20))
    command = [*ANTECEDE, "audit", str(tmp_path / "trace"), "--engine", "spark"]
    for delay in (0.0, 3.0, 5.0):
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        wait_for("JVM", lambda: jvms(process.pid) or process.poll())  # noqa: B023
        time.sleep(delay)
        for java in jvms(process.pid):
            os.kill(java, signal.SIGKILL)
        _, errors = process.communicate(timeout=DEADLINE_SECONDS)
        if process.returncode == 0:
            continue  # it was done before
        assert process.returncode == 2, errors
        assert errors.startswith("error: Spark"), errors
        assert errors.count("\n") == 1
        assert "Traceback" not in errors


def test_a_local_server_is_used_again(tmp_path: Path) -> None:
    """PySpark's own reuse: the second process finds the server that the first has started."""
    simulate_to(tmp_path / "trace", scenario(protocol="mbcp", peers=3, seconds=0.5))
    discovery = tmp_path / "server" / "found.json"
    discovery.parent.mkdir()
    environment = os.environ | {
        "SPARK_REMOTE": "local[1]",
        "SPARK_LOCAL_CONNECT_REUSE": "1",
        "SPARK_LOCAL_CONNECT_DISCOVERY": str(discovery),
    }
    audit = [*ANTECEDE, "audit", str(tmp_path / "trace"), "--engine", "spark"]
    servers = []
    try:
        for _ in range(2):
            done = subprocess.run(audit, env=environment, capture_output=True, text=True)
            assert (done.returncode, done.stderr) == (0, ""), done.stderr
            assert "clean" in done.stdout
            servers.append(json.loads(discovery.read_text())["pid"])
    finally:
        stop = [sys.executable, "-m", "pyspark.sql.connect.local_server", "--stop"]
        subprocess.run(stop, env=environment, capture_output=True, check=True)
    assert servers[0] == servers[1]
