"""A real cluster on the loopback: the same answer, and a path that it does not share is refused."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
import pytest

from antecede.audit.core import judge_files
from antecede.sim.record import simulate_to
from antecede.sim.scenario import scenario
from standalone_cluster import ANTECEDE, daemon, environment, free_port, start_workers, worker


def audit(trace: Path, master: str) -> subprocess.CompletedProcess[str]:
    command = [*ANTECEDE, "audit", str(trace), "--master", master, "--json"]
    return subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=300)


def test_a_cluster_gives_the_same_result_and_refuses_unshared_paths(master: str, tmp_path: Path) -> None:
    shared, mine = tmp_path / "shared", tmp_path / "mine"
    given = scenario(protocol="mbcp", peers=5, seconds=1)
    for folder in (shared, mine):
        simulate_to(folder, given)
    with ExitStack() as stack:
        start = worker(master, tmp_path / "work")
        if shutil.which("unshare") and os.geteuid() == 0:
            # A worker whose file system has something else at the path of the trace.
            hide = 'mount -t tmpfs none "$0" && exec "$@"'
            start = ["unshare", "--mount", "sh", "-c", hide, str(mine), *start]
        stack.enter_context(daemon(tmp_path / "log", *start, ready="Successfully registered"))

        done = audit(shared, master)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["deliveries"] == 4 * json.loads(done.stdout)["messages"]

        if start[0] != "unshare":
            pytest.skip("only root can hide a folder from a worker; the rest of this test passed")
        refused = audit(mine, master)
        assert refused.returncode == 2
        assert "is on this machine only" in refused.stderr
        assert refused.stderr.count("\n") == 1


AUDIT_BY_MANY = """
import json, sys
from dataclasses import asdict
from antecede.spark import audit, connect, read_events
with connect(sys.argv[1]) as spark:
    print(json.dumps(asdict(audit(read_events(spark, sys.argv[2]), large_run=0).total())))
"""


def test_a_worker_killed_during_an_audit_does_not_change_the_result(master: str, tmp_path: Path) -> None:
    """By SIGKILL, together with its executor, while the executor processes chunks."""
    trace = tmp_path / "trace"
    simulate_to(trace, scenario(protocol="timestamp", peers=30, seconds=8))
    rows = pa.concat_tables(pq.read_table(part) for part in sorted(trace.glob("*.parquet")))
    drop = rows.column("kind").to_pylist().index("deliver")
    pq.write_table(pa.concat_tables([rows.slice(0, drop), rows.slice(drop + 1)]), tmp_path / "one.parquet")
    (alone,) = judge_files(tmp_path, [tmp_path / "one.parquet"])
    assert alone.verdict.missing == 1
    with ExitStack() as stack:
        workers = start_workers(stack, master, tmp_path)
        auditing = subprocess.Popen(
            [sys.executable, "-c", AUDIT_BY_MANY, master, str(tmp_path / "one.parquet")],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(),
        )
        while auditing.poll() is None and not [*(tmp_path / "first-local").glob("**/rdd_*")]:
            time.sleep(0.02)
        os.killpg(workers[0].pid, signal.SIGKILL)
        assert auditing.poll() is None
        out, err = auditing.communicate(timeout=300)
    assert auditing.returncode == 0, err
    assert json.loads(out) == asdict(alone.verdict)


def test_spark_connect_gives_the_same_result(tmp_path: Path) -> None:
    """With a Connect server of its own (sc://), which is not mistaken for this process."""
    simulate_to(tmp_path / "t", scenario(protocol="mbcp", peers=4, seconds=1))
    port = free_port()
    submit = str(Path(pyspark.__file__).parent / "bin" / "spark-submit")
    command = [submit, "--master", "local[1]", "--conf", f"spark.connect.grpc.binding.port={port}"]
    command += ["--conf", "spark.driver.bindAddress=127.0.0.1"]
    command += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"]
    with daemon(tmp_path / "log", *command, ready="Spark Connect server started"):
        done = audit(tmp_path / "t", f"sc://127.0.0.1:{port}")
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)
    assert (shown["engine"], shown["clean"], shown["processes"]) == ("spark", True, 4)


def test_consecutive_sessions_leave_the_environment_unchanged(tmp_path: Path) -> None:
    script = """
import os
from antecede.spark import connect
names = ("JAVA_HOME", "SPARK_HOME", "SPARK_CONF_DIR", "SPARK_LOCAL_IP", "PYTHONPATH", "PYSPARK_PYTHON")
before = {name: os.environ.get(name) for name in names}
for _ in range(2):
    with connect() as spark:
        assert spark.range(3).count() == 3
        with connect() as same:
            assert same is spark
        assert spark.range(3).count() == 3
    assert {name: os.environ.get(name) for name in names} == before
"""
    folder = tmp_path / "tmp"
    folder.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | {"TMPDIR": str(folder)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert list(folder.glob("antecede-*")) == []
