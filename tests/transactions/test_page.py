"""docs/transactions.md shows what the command prints, and lists every level, format and pattern."""

from __future__ import annotations

import re
from pathlib import Path

from typer.testing import CliRunner

from antecede.cli.main import app
from antecede.transactions import LEVELS
from antecede.transactions.formats import PRESETS

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs" / "transactions.md").read_text(encoding="utf-8")


def test_the_documented_example_matches_the_command_output(tmp_path: Path) -> None:
    history, shown = re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)
    path = tmp_path / "history.txt"
    path.write_text(history)
    printed = CliRunner().invoke(app, ["audit", str(path)]).stdout
    assert [line.rstrip() for line in printed.splitlines()] == shown.splitlines()


def test_every_level_format_and_pattern_is_listed() -> None:
    rows = re.findall(r"^\| (\S+) \| ([^|]*) \|", PAGE, re.MULTILINE)
    assert [(short, name.strip()) for short, name in rows if short in LEVELS][:5] == list(LEVELS.items())
    assert [name.strip("`") for name, _ in rows if name.startswith("`")] == ["--preset", *PRESETS]
    source = "".join(
        (ROOT / "src" / "antecede" / "transactions" / file).read_text()
        for file in ("definitions.py", "reads_from.py")
    )
    patterns = set(re.findall(r'"([A-Z]\w+(?:Read|CO|CF|HB|Lost))"', source))
    assert len(patterns) >= 14
    assert [pattern for pattern in patterns if pattern not in PAGE] == []
