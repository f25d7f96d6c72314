"""Runs tests of Spark against a Spark Connect server: `./dev connect`, or `./dev connect tests/graph`.

The server is that of the installed PySpark, on this machine. The tests run with that PySpark as the client,
and in an environment of its own with `pyspark-client`, which has no JVM. Then Sail is the server, with the
same client, for the tests that pass there. `--only classic`, `--only thin` or `--only sail` runs one of them.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from package import ROOT, build

TESTS = (
    "tests/graph/test_graph_on_spark.py",
    "tests/advise/test_advise_on_spark.py",
    "tests/audit/test_audit_on_spark.py",
    "tests/audit/test_excerpt_on_spark.py",
    "tests/causal_order/test_causal_order_on_spark.py",
)
_NOT_ON_SAIL = (
    # Its reader of JSON gives some numbers another last digit.
    "tests/advise/test_advise_on_spark.py::test_spark_agrees_with_local_results",
    # It cannot read paths with escaped characters.
    "tests/audit/test_audit_on_spark.py::test_parts_with_different_widths_and_optional_columns_are_read_together",
    # Refused too, but with another message: the file of a bad row is not named, and an empty folder is a
    # table.
    "tests/audit/test_audit_on_spark.py::test_bad_rows_of_files_that_workers_read_are_named",
    "tests/audit/test_audit_on_spark.py::test_a_folder_without_a_trace_is_refused",
)
_NEEDED = ("pyspark-client", "pandas<3", "hypothesis", "networkx", "pytest", "pytest-xdist")
_PATH = os.pathsep.join((str(ROOT / "src"), str(ROOT / "tests")))
_SETTINGS = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "3",
    "spark.ui.enabled": "false",
}


def thin_client(folder: Path, *packages: str) -> str:
    """A Python with Antecede's wheel and `pyspark-client`."""
    wheel = build()
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    python = str(folder / "bin" / "python")
    install = [python, "-m", "pip", "install", "--quiet", f"{wheel}[sim]", *_NEEDED, *packages]
    subprocess.run(install, check=True)
    return python


def run(python: str, tests: list[str], port: int) -> bool:
    """Whether the tests pass with the PySpark of this Python as the client."""
    begun = time.monotonic()
    environment = os.environ | {"SPARK_REMOTE": f"sc://127.0.0.1:{port}", "PYTHONPATH": _PATH}
    command = [python, "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", *tests]
    done = subprocess.run(command, cwd=ROOT, env=environment)
    print(
        f"{'passed' if done.returncode == 0 else 'failed'} after {time.monotonic() - begun:.0f} s", flush=True
    )
    return done.returncode == 0


@contextmanager
def spark_server(log: Path) -> Iterator[int]:
    """A Connect server of the installed PySpark, by its port."""
    from standalone_cluster import SPARK_CLASS, daemon, free_port

    port = free_port()
    submit = str(Path(SPARK_CLASS).with_name("spark-submit"))
    settings = _SETTINGS | {"spark.connect.grpc.binding.port": str(port)}
    command = [submit, "--master", "local[*]"]
    for name, value in settings.items():
        command += ["--conf", f"{name}={value}"]
    command += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"]
    with daemon(log, *command, ready="Spark Connect server started", PYTHONPATH=_PATH):
        yield port


@contextmanager
def sail_server(log: Path, python: str) -> Iterator[int]:
    """Starts Sail; yields its port."""
    from standalone_cluster import daemon, free_port

    port = free_port()
    sail = str(Path(python).with_name("sail"))
    command = [sail, "spark", "server", "--ip", "127.0.0.1", "--port", str(port)]
    with daemon(log, *command, ready="Starting the Spark Connect server", PYTHONPATH=_PATH):
        for _ in range(300):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                break
            time.sleep(0.1)
        yield port


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=("classic", "thin", "sail"))
    parser.add_argument("--python", help="a Python with pyspark-client, for Sail also with pysail")
    options, named = parser.parse_known_args()
    sys.path.insert(0, str(ROOT / "tests"))
    tests = named or list(TESTS)
    good = True
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if options.only != "sail":
            with spark_server(folder / "spark.log") as port:
                if options.only != "thin":
                    print("classic PySpark as a client of Spark Connect:", flush=True)
                    good &= run(sys.executable, tests, port)
                if options.only != "classic":
                    print("pyspark-client:", flush=True)
                    good &= run(options.python or thin_client(folder / "thin"), tests, port)
        if options.only in (None, "sail"):
            print("pyspark-client with Sail:", flush=True)
            python = options.python or thin_client(folder / "sail", "pysail")
            with sail_server(folder / "sail.log", python) as port:
                good &= run(python, [*tests, *(f"--deselect={test}" for test in _NOT_ON_SAIL)], port)
    sys.exit(not good)


if __name__ == "__main__":
    main()
