"""A real Spark cluster on the loopback: a standalone master, and workers that can be killed."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark

from antecede.live.trial.ports import free_ports
from antecede.spark.java import find_java

ANTECEDE = [sys.executable, "-c", "from antecede.cli.main import main; main()"]
SPARK_CLASS = str(Path(pyspark.__file__).parent / "bin" / "spark-class")


def free_port() -> int:
    return free_ports(1)[0]


def environment(**more: str) -> dict[str, str]:
    mine = more | {
        "JAVA_HOME": str(find_java().home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
    }
    return {key: value for key, value in os.environ.items() if key != "SPARK_HOME"} | mine


@contextmanager
def daemon(log: Path, *command: str, ready: str, **variables: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process that runs until the block ends; it is there once its log says so."""
    with log.open("wb") as sink:
        process = subprocess.Popen(
            command, stdout=sink, stderr=sink, env=environment(**variables), start_new_session=True
        )
        try:
            for _ in range(600):
                if ready in log.read_text(errors="replace"):
                    break
                assert process.poll() is None, log.read_text(errors="replace")
                time.sleep(0.1)
            yield process
        finally:
            process.terminate()
            process.wait()


def worker(master: str, folder: Path) -> list[str]:
    place = ["--host", "127.0.0.1", "--port", str(free_port()), "--webui-port", str(free_port())]
    room = ["--cores", "1", "--memory", "1g", "--work-dir", str(folder)]
    return [SPARK_CLASS, "org.apache.spark.deploy.worker.Worker", *place, *room, master]


@contextmanager
def standalone_master(folder: Path) -> Iterator[str]:
    """A master without workers, by its URL."""
    port = free_port()
    place = ["--host", "127.0.0.1", "--port", str(port), "--webui-port", str(free_port())]
    command = [SPARK_CLASS, "org.apache.spark.deploy.master.Master", *place]
    with daemon(folder / "log", *command, ready="I have been elected leader"):
        yield f"spark://127.0.0.1:{port}"


def start_workers(stack: ExitStack, master: str, folder: Path) -> list[subprocess.Popen[bytes]]:
    """Two workers, with their local folders in `folder`, until the stack is closed."""
    workers = []
    for name in ("first", "second"):
        command = worker(master, folder / name)
        log, local = folder / f"{name}.log", str(folder / f"{name}-local")
        started = daemon(log, *command, ready="Successfully registered", SPARK_LOCAL_DIRS=local)
        workers.append(stack.enter_context(started))
    return workers
