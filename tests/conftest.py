"""Shared by all tests: Hypothesis profiles, one Spark session, and where real traces are found."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_slow = [HealthCheck.too_slow, HealthCheck.data_too_large]
settings.register_profile("dev", deadline=None, max_examples=100, suppress_health_check=_slow)
# The same examples in each run. More and others are found by `verify`, `./dev vopr` and tests/*/fuzz_*.py.
settings.register_profile(
    "ci", deadline=None, max_examples=150, derandomize=True, suppress_health_check=_slow
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))

# Tests start many short-lived JVMs; full optimisation would take two fifths of their time, and verifying the
# byte code of Spark's own archives an eighth. With room for Spark's classes from the start, the whole heap is
# not collected again and again while they are loaded.
os.environ.setdefault(
    "JDK_JAVA_OPTIONS",
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:MetaspaceSize=192m "
    "-XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote",
)

_SMALL_QUERIES = {
    # Spark would compile Java code for each of some thousand queries over a few rows; interpreting them takes
    # half the time. The tests that start processes of their own run what Spark compiles.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.shuffle.partitions": "3",
}


_NO_CALL_SITES = "-Dspark.python.sql.dataFrameDebugging.enabled=false"
"""Java is not told, for every operation on a column, which line of Python it came from: that would take a
third of the time in which plans are built. It cannot be changed in a session that has started."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite", action="store_true", help="Regenerate expected outputs.")


@pytest.fixture
def rewrite(request: pytest.FixtureRequest) -> bool:
    """Whether to regenerate expected outputs; review the difference before you commit it."""
    return bool(request.config.getoption("--rewrite"))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the tests that share the Spark session on one worker."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("spark"))


def pytest_collection_finish() -> None:
    """Leave modules and thousands of tests, all there to the end, out of every search for garbage."""
    gc.collect()
    gc.freeze()


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Keep bytes out of test names: values packed with a timestamp differ between workers."""
    return argname if isinstance(val, bytes) else None


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A real embedded Spark, with the Java that is installed from a wheel."""
    from antecede.spark.session import connect

    # Workers import the tests' own protocols, and Antecede from the same place as the tests.
    protocols = [str(Path(__file__).parent / folder) for folder in ("sweep", ".")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (*protocols, os.environ.get("PYTHONPATH"))))
    options = os.environ["JDK_JAVA_OPTIONS"]
    os.environ["JDK_JAVA_OPTIONS"] = f"{options} {_NO_CALL_SITES}"
    with connect() as session:
        os.environ["JDK_JAVA_OPTIONS"] = options
        for name, value in _SMALL_QUERIES.items():
            session.conf.set(name, value)
        yield session


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A real Spark master on the loopback, by its URL."""
    from standalone_cluster import standalone_master

    with standalone_master(tmp_path_factory.mktemp("master")) as url:
        yield url


@pytest.fixture(scope="session")
def real_traces() -> Path:
    """A folder of real-world traces."""
    folder = os.environ.get("ANTECEDE_TRACES")
    if not folder:
        pytest.skip("ANTECEDE_TRACES names no folder of real traces")
    return Path(folder)
