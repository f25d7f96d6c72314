"""antecede.spark lists its public names and imports their modules lazily."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from antecede.errors import InputError

pytest.importorskip("pyspark")
import antecede.spark


def test_every_public_name_is_there() -> None:
    assert sorted(antecede.spark._MODULES) == sorted(antecede.spark.__all__)
    assert dir(antecede.spark) == sorted(antecede.spark.__all__)
    for name in antecede.spark.__all__:
        assert getattr(antecede.spark, name).__name__ == name


def test_held_rows_are_shown_by_held_alone() -> None:
    assert "held" in antecede.spark.__all__
    assert not hasattr(antecede.spark, "explain")


def test_a_name_that_does_not_exist_is_an_attribute_error() -> None:
    name = "adit"
    with pytest.raises(AttributeError, match="no attribute 'adit'"):
        getattr(antecede.spark, name)


def test_importing_the_module_imports_no_kernels() -> None:
    program = (
        "import sys, antecede.spark; "
        "print(*(m for m in sys.modules if m.startswith('antecede.') or m == 'numba'))"
    )
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert sorted(shown.split()) == ["antecede.errors", "antecede.lazy_names", "antecede.spark"]


def test_a_type_checker_refuses_names_that_do_not_exist(tmp_path: Path) -> None:
    mypy = pytest.importorskip("mypy.api")
    facade, user = tmp_path / "facade.py", tmp_path / "user.py"
    facade.write_text(Path(antecede.spark.__file__).read_text())
    user.write_text("import facade\nfacade.audit\nfacade.adit\n")
    options = ["--cache-dir", str(tmp_path / "cache"), "--follow-imports=skip"]
    shown, _, _ = mypy.run([*options, str(facade), str(user)])
    (error,) = [line for line in shown.splitlines() if "user.py" in line]
    assert ':3: error: Module has no attribute "adit"' in error


@pytest.mark.parametrize(
    "name", ["advise", "audit", "causal_order", "graph", "kafka_events", "merge_debezium"]
)
def test_a_frame_of_pandas_is_refused_with_the_way_to_convert_it(name: str) -> None:
    frame = pd.DataFrame({"id": ["a"], "deps": [None]})
    columns = {"id": "id", "deps": "deps"} if name == "causal_order" else {}
    with pytest.raises(InputError, match=r"expected a Spark DataFrame, not pandas\.DataFrame; spark\.create"):
        getattr(antecede.spark, name)(frame, **columns)
