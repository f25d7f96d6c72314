"""The one place that makes a Spark session.

By default Spark is embedded: it runs in this process's own JVM, listens on the loopback only, and
says nothing; what it would say goes to a log that is named when something fails. `--master` or
SPARK_REMOTE give it a cluster instead, and then the cluster's own settings hold.
"""

from __future__ import annotations

import atexit
import os
import re
import shutil
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from antecede.errors import AntecedeError, InputError
from antecede.spark.java import find_java

_LOG_SETTINGS = """\
rootLogger.level = warn
rootLogger.appenderRef.err.ref = err
appender.err.type = Console
appender.err.name = err
appender.err.target = SYSTEM_ERR
appender.err.layout.type = PatternLayout
appender.err.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex
"""

_EMBEDDED = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "2g",
    # Short jobs: the second compiler never earns its time back.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.shuffle.partitions": str(2 * (os.cpu_count() or 1)),
}
_ALWAYS = {
    "spark.app.name": "antecede",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
}


class SparkError(AntecedeError):
    """Spark itself failed; the message names its log."""


@contextmanager
def connect(master: str | None = None) -> Iterator[SparkSession]:
    """A session: embedded, on the cluster `master`, or at the address in SPARK_REMOTE.

    `master` may also be a Spark Connect address (sc://host:port). Whatever Spark raises while the
    session is open comes out as one line that names its log.
    """
    remote = os.environ.get("SPARK_REMOTE") if master is None else master
    folder = Path(tempfile.mkdtemp(prefix="antecede-spark-"))
    log = folder / "spark.log"
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    _refuse_silent(remote)
    try:
        with _uninterrupted() as interrupted:
            if remote and (master is None or remote.startswith("sc://")):
                session = SparkSession.builder.remote(remote).getOrCreate()
            else:
                session = _start(master, folder, log)
        try:
            if interrupted:
                raise KeyboardInterrupt
            yield session
        finally:
            session.stop()
    except (PySparkException, Py4JError) as error:
        atexit.unregister(shutil.rmtree)
        where = f"; its log is {log}" if log.exists() else ""
        raise SparkError(f"Spark failed: {first_line(error)}{where}") from error


@contextmanager
def _uninterrupted() -> Iterator[list[int]]:
    """Put Ctrl-C off until the end: a JVM that is half started would outlive us."""
    pressed: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield pressed
        return
    before = signal.signal(signal.SIGINT, lambda number, _: pressed.append(number))
    try:
        yield pressed
    finally:
        signal.signal(signal.SIGINT, before)


def _refuse_silent(address: str | None) -> None:
    """Spark waits for minutes where nobody listens; ask first."""
    for host, port in re.findall(r"(?:sc://|spark://|,)(\[[^]]+\]|[^:/;,]+):(\d+)", address or ""):
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()
        except OSError as error:
            raise InputError(f"nothing answers at {address}: {error.strerror or error}") from error


def _start(master: str | None, folder: Path, log: Path) -> SparkSession:
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    os.environ["JAVA_HOME"] = str(find_java().home)
    for foreign in ("SPARK_HOME", "SPARK_REMOTE"):
        os.environ.pop(foreign, None)
    settings = dict(_ALWAYS)
    if master is None:
        settings |= _EMBEDDED
        settings["spark.local.dir"] = str(folder / "work")
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
        os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    settings["spark.sql.warehouse.dir"] = str(folder / "warehouse")
    if "SPARK_CONF_DIR" not in os.environ:
        (folder / "log4j2.properties").write_text(_LOG_SETTINGS)
        os.environ["SPARK_CONF_DIR"] = str(folder)
    # Protocols of the user's own lie where the command was typed; workers must find them too.
    paths = [path for path in sys.path[:1] if path] + [os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    conf = SparkConf().setMaster(master or "local[*]").setAll(list(settings.items()))
    with log.open("wb") as sink:
        gateway = launch_gateway(conf, {"stdout": sink, "stderr": sink})  # type: ignore[no-untyped-call]
    context = SparkContext(conf=conf, gateway=gateway)
    return SparkSession(context)


def first_line(error: Exception) -> str:
    """What a Spark exception says, without its stacks."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if isinstance(error, Py4JJavaError):
        lines = [line.strip() for line in str(error.java_exception.getMessage()).splitlines()] or lines
    python = [line for line in lines if line.split(":")[0].endswith(("Error", "Exception"))]
    return (python[-1] if "PythonException" in type(error).__name__ and python else lines[0])[:400]


def is_local(session: SparkSession) -> bool:
    """Whether Spark runs on this machine alone, in this process's JVM."""
    try:
        master = session.conf.get("spark.master") or ""
    except PySparkException:
        return False
    return str(master).startswith("local[") or master == "local"


def refuse_unshared(session: SparkSession, path: Path, file: Path | None = None) -> None:
    """A local path is of use to a cluster only if every executor sees it; say so otherwise.

    `file` is one that lies in the folder `path`; without one, one is put there for a moment.
    """
    if is_local(session):
        return
    with tempfile.NamedTemporaryFile(dir=None if file else path, prefix=".antecede-") as mark:
        hosts = _blind_hosts(session, file or Path(mark.name))
    if hosts:
        raise InputError(
            f"{path} is on this machine only: executors on {', '.join(hosts)} do not see it; put "
            "it on storage that all share and give its URL (s3a://, hdfs://) or common path"
        )


def _blind_hosts(session: SparkSession, file: Path) -> list[str]:
    """Some of the executors' hosts that do not see a file."""
    probe = str(file.resolve())

    def look(batches: Iterator[Any]) -> Iterator[Any]:
        import socket

        import pyarrow as pa

        for batch in batches:
            seen = Path(probe).exists()
            hosts = [] if seen else [socket.gethostname()] * batch.num_rows
            yield pa.RecordBatch.from_pydict({"host": pa.array(hosts, pa.string())})

    partitions = 16
    blind = session.range(0, partitions, 1, partitions).mapInArrow(look, "host string")
    return sorted(row.host for row in blind.distinct().limit(5).collect())


def spark_path(path: Path) -> str:
    """A local path as Spark takes it: characters that it would read as a pattern are escaped."""
    return re.sub(r"([\[\]{}*?\\,])", r"\\\1", str(path.resolve()))


def literal_rows(session: SparkSession, values: list[str], column: str) -> DataFrame:
    """One row a value, each in a partition of its own, so that each becomes one task."""
    numbers = session.range(0, len(values), 1, max(1, len(values)))
    place = (F.col("id") + 1).cast("int")
    return numbers.select(F.element_at(F.lit(values), place).alias(column))
