"""`antecede.spark` can be imported with the thin client, pyspark-client, which has no JVM in this process."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import antecede

SOURCE = Path(antecede.__file__).parent


def test_the_library_uses_no_attribute_of_the_jvm() -> None:
    private = {"_jvm", "_jsc", "_jdf", "_jsparkSession"}
    wrong = [
        f"{file.relative_to(SOURCE)}, line {node.lineno}: {node.attr}"
        for file in SOURCE.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        # SparkContext._jvm is assigned where the JVM of this process has ended.
        if isinstance(node, ast.Attribute) and node.attr in private and isinstance(node.ctx, ast.Load)
    ]
    assert wrong == []


def test_importing_every_public_name_does_not_import_py4j_by_itself() -> None:
    """Classic PySpark imports py4j; nothing of ours does."""
    program = (
        "import pyspark.sql.connect.session, sys; "
        "[sys.modules.pop(name) for name in list(sys.modules) if name.startswith('py4j')]; "
        "import antecede.spark; [getattr(antecede.spark, name) for name in antecede.spark.__all__]; "
        "print([name for name in sys.modules if name.startswith('py4j')])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr
