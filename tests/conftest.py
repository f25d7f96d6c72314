"""What all tests share: Hypothesis profiles, one Spark for all, and where real traces lie."""

from __future__ import annotations

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
settings.register_profile(
    "ci", deadline=None, max_examples=300, derandomize=True, suppress_health_check=_slow
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))

# Tests start many Javas that live for seconds: to optimise for hours would take two fifths of their time.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite", action="store_true", help="Regenerate expected outputs.")


@pytest.fixture
def rewrite(request: pytest.FixtureRequest) -> bool:
    """Whether expected outputs are to be regenerated; look at the difference before you commit it."""
    return bool(request.config.getoption("--rewrite"))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that share the one Spark run on one worker."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("spark"))


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Bytes are not part of a test's name: what was packed by the clock differs from worker to worker."""
    return argname if isinstance(val, bytes) else None


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A real Spark, embedded, with the Java that comes in a wheel."""
    from antecede.spark.session import connect

    # Workers load the tests' own protocols by name, and Antecede from where the tests do.
    mine = str(Path(__file__).parent / "sweep")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (mine, os.environ.get("PYTHONPATH"))))
    with connect() as session:
        yield session


@pytest.fixture(scope="session")
def real_traces() -> Path:
    """Traces that nobody here wrote."""
    folder = os.environ.get("ANTECEDE_TRACES")
    if not folder:
        pytest.skip("ANTECEDE_TRACES names no folder of real traces")
    return Path(folder)
