"""The one place that creates Spark sessions.

By default Spark is embedded: it runs in a JVM that belongs to this process, listens on the loopback interface
only, and prints nothing; its output goes to a log that is named when something fails. With `--master` or
SPARK_REMOTE a cluster is used instead, with the cluster's own settings.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from antecede.errors import AntecedeError, InputError, SparkError, install_extra
from antecede.spark.java import find_java
from antecede.temporary_folders import TemporaryFolder

_LOG_SETTINGS = """\
rootLogger.level = warn
rootLogger.appenderRef.err.ref = err
appender.err.type = Console
appender.err.name = err
appender.err.target = SYSTEM_ERR
appender.err.layout.type = PatternLayout
appender.err.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex
"""

_LOG = "spark.log"
_END_SECONDS = 2.0
"""How long after the loss of its connections the end of a JVM may become visible."""
_EMBEDDED = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "2g",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.shuffle.partitions": str(4 * (os.cpu_count() or 1)),
}
_ALWAYS = {
    "spark.app.name": "antecede",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    # Whatever the umask is, files that Spark writes are for this user only.
    "spark.hadoop.fs.permissions.umask-mode": "077",
    "spark.hadoop.parquet.page.write-checksum.enabled": "true",
    "spark.hadoop.parquet.page.verify-checksum.enabled": "true",
}


@contextmanager
def connect(master: str | None = None, python_path: Sequence[Path] = ()) -> Iterator[SparkSession]:
    """A session: embedded, on the cluster `master`, or at the address in SPARK_REMOTE.

    `master` may also be a Spark Connect address (sc://host:port). With SPARK_REMOTE=local[*] and
    SPARK_LOCAL_CONNECT_REUSE=1, PySpark starts a server that later processes find running. A session that is
    already active is used as it is, and left open. `python_path` is where workers find modules besides the
    installed ones; the current folder is not such a place by itself. Errors of Spark while the session is
    open become a `SparkError` of one line that names its log.
    """
    active = SparkSession.getActiveSession()
    if active is not None:
        yield active
        return
    remote = os.environ.get("SPARK_REMOTE") if master is None else master
    _refuse_unreachable(remote)
    root = logging.getLogger()
    root.addFilter(_is_no_lost_connection)
    try:
        with uninterrupted() as interrupted:
            if remote and master is None and remote.startswith("local") and _reuses_server():
                session = _Jvm.reuse(remote, python_path)
            elif remote and (master is None or remote.startswith("sc://")):
                session = SparkSession.builder.remote(remote).create()
            else:
                session = _Jvm.start(master, python_path)
        try:
            if interrupted:
                raise KeyboardInterrupt
            yield session
        finally:
            session.stop()
    except AntecedeError:
        raise
    except Exception as error:
        if (how := _Jvm.ended(error)) is not None:
            raise SparkError(
                f"Spark's Java process ended {how} before its work was done; run the command again, "
                f"where there is more memory if that was the reason{_Jvm.keep_log()}"
            ) from error
        if not isinstance(error, PySparkException) and not _is_of_py4j(error, "Py4JError"):
            raise
        raise SparkError(f"Spark failed: {spark_error_message(error)}{_Jvm.keep_log()}") from error
    finally:
        root.removeFilter(_is_no_lost_connection)


def require_frame(frame: object, name: str = "events") -> None:
    """Refuse anything other than a DataFrame of Spark, such as one of pandas."""
    if not isinstance(frame, DataFrame):
        kind = f"{type(frame).__module__.partition('.')[0]}.{type(frame).__name__}"
        raise InputError(
            f"{name}: expected a Spark DataFrame, not {kind}; spark.createDataFrame({name}) makes one"
        )


def _is_no_lost_connection(record: logging.LogRecord) -> bool:
    """When the JVM is gone, py4j logs a traceback at the root logger, besides the error that it raises."""
    return record.msg != "Exception while sending command."


def _is_of_py4j(error: Exception, name: str) -> bool:
    """Whether an error comes from py4j, which Spark's thin client lacks."""
    return any(kind.__module__ == "py4j.protocol" and kind.__name__ == name for kind in type(error).__mro__)


def _reuses_server() -> bool:
    """Whether the user has asked PySpark for a local server that outlives this process."""
    return os.environ.get("SPARK_LOCAL_CONNECT_REUSE", "").lower() in ("1", "true")


class _Jvm:
    """The JVM of this process. There is at most one: PySpark keeps the first that it gets."""

    folder: TemporaryFolder | None = None
    process: subprocess.Popen[bytes] | None = None
    failed = False

    @classmethod
    def start(cls, master: str | None, python_path: Sequence[Path]) -> SparkSession:
        if find_spec("py4j") is None:
            raise InputError(
                "the installed PySpark is the thin client, which has no Spark of its own; name a server with "
                f"SPARK_REMOTE or --master sc://host:15002, or {install_extra('spark')}"
            )
        from pyspark import SparkConf, SparkContext

        folder = cls._temporary_folder()
        settings = dict(_ALWAYS) | {"spark.sql.warehouse.dir": str(folder / "warehouse")}
        embedded = master is None or master == "local" or master.startswith("local[")
        if embedded:
            settings |= _EMBEDDED | {"spark.local.dir": str(folder / "work")}
        conf = SparkConf().setMaster(master or "local[*]").setAll(list(settings.items()))
        with _environment(cls._variables(embedded, python_path)):
            gateway = SparkContext._gateway or cls._launch(conf)
            return SparkSession(SparkContext(conf=conf, gateway=gateway))

    @classmethod
    def reuse(cls, master: str, python_path: Sequence[Path]) -> SparkSession:
        """A session of PySpark's local Connect server, which the first process starts."""
        builder = SparkSession.builder.remote(master).config(map=dict(_ALWAYS | _EMBEDDED))
        with _environment(cls._variables(True, python_path)), warnings.catch_warnings():
            # A server that is already running keeps its original settings.
            warnings.filterwarnings("ignore", "Failed to set spark")
            return builder.getOrCreate()

    @classmethod
    def _temporary_folder(cls) -> Path:
        if cls.folder is None:
            cls.folder = TemporaryFolder("spark")
            atexit.register(cls._remove_folder)
        return cls.folder.path

    @classmethod
    def _launch(cls, conf: Any) -> Any:
        from pyspark.java_gateway import launch_gateway

        folder = cls._temporary_folder()
        (folder / "log4j2.properties").write_text(_LOG_SETTINGS)
        # Files written by Spark and its workers belong to this user only.
        umask = os.umask(0o077)
        try:
            with (folder / _LOG).open("wb") as sink:
                gateway = launch_gateway(conf, {"stdout": sink, "stderr": sink})  # type: ignore[no-untyped-call]
        finally:
            os.umask(umask)
        cls.process = gateway.proc
        return gateway

    @classmethod
    def ended(cls, error: Exception) -> str | None:
        """How the JVM ended, in words, if it has; the next session then starts a new one.

        A connection error may occur before the end of the process is visible.
        """
        if cls.process is None:
            return None
        if not isinstance(error, PySparkException) and not _is_of_py4j(error, "Py4JJavaError"):
            with contextlib.suppress(subprocess.TimeoutExpired):
                cls.process.wait(_END_SECONDS)
        code = cls.process.poll()
        if code is None:
            return None
        from pyspark import SparkContext

        cls.process = None
        SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
        SparkSession._instantiatedSession = None
        return f"by signal {-code}" if code < 0 else f"with exit code {code}"

    @classmethod
    def _variables(cls, embedded: bool, python_path: Sequence[Path]) -> dict[str, str | None]:
        # An empty entry would mean the current folder; workers, started by -m, would import from there first.
        paths = [*map(str, python_path), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
        variables: dict[str, str | None] = {
            "JAVA_HOME": str(find_java().home),
            "SPARK_HOME": None,
            "SPARK_REMOTE": None,
            "SPARK_CONF_DIR": os.environ.get("SPARK_CONF_DIR", str(cls._temporary_folder())),
            "PYTHONPATH": os.pathsep.join(filter(None, paths)) or None,
            "PYTHONSAFEPATH": "1",
            "PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON", sys.executable),
        }
        if embedded:
            variables |= {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
        return variables

    @classmethod
    def keep_log(cls) -> str:
        """The path of the log, if there is one; the log then outlives the process."""
        log = None if cls.folder is None else cls.folder.path / _LOG
        if log is None or not log.exists():
            return ""
        cls.failed = True
        return f"; its log is {log}"

    @classmethod
    def _remove_folder(cls) -> None:
        if cls.folder is not None and cls.failed:
            cls.folder.keep(_LOG)
        elif cls.folder is not None:
            cls.folder.remove()


@contextmanager
def _environment(variables: dict[str, str | None]) -> Iterator[None]:
    """Set environment variables for processes started inside the block, and restore them afterwards."""
    before = {name: os.environ.get(name) for name in variables}

    def assign(values: dict[str, str | None]) -> None:
        for name, value in values.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value

    assign(variables)
    try:
        yield
    finally:
        assign(before)


@contextmanager
def uninterrupted() -> Iterator[list[int]]:
    """Defer Ctrl-C: the yielded list is non-empty once it was pressed.

    A KeyboardInterrupt could be lost in a finaliser, or leave a half-started JVM that outlives this process.
    """
    pressed: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield pressed
        return
    before = signal.signal(signal.SIGINT, lambda number, _: pressed.append(number))
    try:
        yield pressed
    finally:
        signal.signal(signal.SIGINT, before)


def _refuse_unreachable(address: str | None) -> None:
    """Spark waits for minutes if nothing listens at an address; try to connect first."""
    for host, port in re.findall(r"(?:sc://|spark://|,)(\[[^]]+\]|[^:/;,]+):(\d+)", address or ""):
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()
        except OSError as error:
            raise InputError(f"nothing answers at {address}: {error.strerror or error}") from error


def spark_error_message(error: Exception) -> str:
    """The message of a Spark exception, without its stack traces."""
    java: Any = getattr(error, "java_exception", None)
    message = str(java.getMessage()) if _is_of_py4j(error, "Py4JJavaError") else str(error)
    lines = [line.strip() for line in message.splitlines() if line.strip()] or [type(error).__name__]
    python = [line for line in lines if line.split(":")[0].endswith(("Error", "Exception"))]
    line = python[-1] if "PythonException" in type(error).__name__ and python else lines[0]
    if "FileSystem" in line and ("ClassNotFoundException" in line or "No FileSystem for scheme" in line):
        line += " (Spark lacks the package for this kind of URL; the page Traces of the documentation has it)"
    return line[:400]


def is_connect(session: SparkSession) -> bool:
    return type(session).__module__.startswith("pyspark.sql.connect")


def is_spark(session: SparkSession) -> bool:
    """Whether Spark itself executes, and not another engine that speaks Spark Connect, as Sail does.

    Such an engine reports the Spark version it is compatible with, and as `version()` its own. It may lack
    `repartitionById`, and may not sort rows before they go to Python: Sail 0.7 optimises that sort away.
    """
    if not is_connect(session):
        return True
    (row,) = session.sql("SELECT version()").collect()
    return str(row[0]).startswith(session.version)


def cancel_jobs(session: SparkSession) -> None:
    """Cancel the jobs of a session, so that callers waiting for them return."""
    if is_connect(session):
        session.interruptAll()
    else:
        session.sparkContext.cancelAllJobs()


def _is_this_machine(session: SparkSession) -> bool:
    return not is_connect(session) and str(session.sparkContext.master).startswith("local[")


def refuse_unshared(session: SparkSession, path: Path, file: Path | None = None) -> None:
    """Refuse a local path that the executors of a cluster do not see.

    `file` is a file in the folder `path`; without it, a temporary one is created there.
    """
    if _is_this_machine(session):
        return
    with tempfile.NamedTemporaryFile(dir=None if file else path, prefix=".antecede-") as probe:
        hosts = _blind_hosts(session, file or Path(probe.name))
    if hosts:
        raise InputError(
            f"{path} is on this machine only: executors on {', '.join(hosts)} do not see it; put it "
            "on shared storage"
        )


def _blind_hosts(session: SparkSession, file: Path) -> list[str]:
    """Some hosts of executors that cannot see a file."""
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
    """A local path for Spark, with the characters of its patterns escaped."""
    return re.sub(r"([\[\]{}*?\\,])", r"\\\1", str(path.resolve()))
