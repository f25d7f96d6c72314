"""The notebooks of the documentation run from top to bottom, and their page has the same files.

`--rewrite` stores what the cells print and draw.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from antecede.cli.main import app

HOW_TO = Path(__file__).parent.parent / "docs" / "how-to"
NOTEBOOK = HOW_TO / "your-own-protocol.ipynb"
_MAGIC = "%%writefile "


class Notebook:
    """Runs the cells of a notebook in one namespace, as Jupyter does: Python, `!antecede …` and
    `%%writefile`, in the current folder."""

    def __init__(self, file: Path) -> None:
        self.content: dict[str, Any] = json.loads(file.read_text())
        self._names: dict[str, Any] = {"__name__": "__main__"}

    @property
    def cells(self) -> list[dict[str, Any]]:
        return [cell for cell in self.content["cells"] if cell["cell_type"] == "code"]

    def run(self) -> list[tuple[str, object]]:
        """What each cell prints, and the value that it shows."""
        shown = []
        for number, cell in enumerate(self.cells, 1):
            text, value = self._run(source_of(cell))
            shown.append((text, value))
            cell["execution_count"] = number
            cell["outputs"] = list(outputs(text, value, number))
        return shown

    def _run(self, source: str) -> tuple[str, object]:
        if source.startswith(_MAGIC):
            name, _, content = source.removeprefix(_MAGIC).partition("\n")
            Path(name).write_text(content + "\n")
            return f"Writing {name}\n", None
        if source.startswith("!"):
            return "".join(run_command(line[1:]) for line in source.splitlines()), None
        return self._run_python(source)

    def _run_python(self, source: str) -> tuple[str, object]:
        tree = ast.parse(source)
        last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
        printed = io.StringIO()
        value = None
        with contextlib.redirect_stdout(printed):
            exec(compile(tree, "<cell>", "exec"), self._names)  # noqa: S102
            if isinstance(last, ast.Expr):
                value = eval(compile(ast.Expression(last.value), "<cell>", "eval"), self._names)  # noqa: S307
        return printed.getvalue(), value


def source_of(cell: dict[str, Any]) -> str:
    return "".join(cell["source"])


def run_command(line: str) -> str:
    name, *arguments = shlex.split(line)
    assert name == "antecede"
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code in (0, 1), result.output or result.exception
    return result.output


def outputs(text: str, value: object, number: int) -> Any:
    if text:
        yield {"output_type": "stream", "name": "stdout", "text": text.splitlines(keepends=True)}
    if value is None:
        return
    data = {"text/plain": repr(value)}
    if hasattr(value, "_repr_html_"):
        data["text/html"] = value._repr_html_()
    yield {"output_type": "execute_result", "data": data, "metadata": {}, "execution_count": number}


def test_your_own_protocol(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rewrite: bool
) -> None:
    """From an empty file to a plot; the first version is wrong, and is found out."""
    monkeypatch.chdir(tmp_path)
    notebook = Notebook(NOTEBOOK)
    try:
        shown = notebook.run()
    finally:
        for name in ("my_protocol", "my_parts"):
            sys.modules.pop(name, None)
    text = "".join(printed for printed, _ in shown)
    assert "my_protocol:Mine fails with 2 messages at 3 processes" in text
    assert re.search(r"my_protocol:Mine holds ", text)
    assert "every one after its causes" in text
    pictures = [value.svg for _, value in shown if hasattr(value, "svg")]
    assert len(pictures) == 2
    assert all(f">{name}</text>" in pictures[1] for name in ("my_protocol:Mine", "mbcp"))
    if rewrite:
        NOTEBOOK.write_text(json.dumps(notebook.content, indent=1, ensure_ascii=False) + "\n")


def test_the_page_shows_the_files_that_the_notebook_writes() -> None:
    page = (HOW_TO / "your-own-protocol.md").read_text()
    written = [source_of(cell) for cell in Notebook(NOTEBOOK).cells if source_of(cell).startswith(_MAGIC)]
    assert len(written) == 3
    for source in written:
        assert source.partition("\n")[2].strip() in page, source.splitlines()[0]
