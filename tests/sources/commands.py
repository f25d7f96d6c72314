"""Runs commands as a user does, in this process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from antecede.cli.main import app
from antecede.cli.show import as_named
from antecede.errors import AntecedeError
from antecede.terminal import printable

SAMPLES = Path(__file__).parent / "samples"


def run(*words: str | Path) -> tuple[int, str]:
    """A command's exit code, and what it prints."""
    done = CliRunner().invoke(app, [str(word) for word in words])
    if isinstance(done.exception, AntecedeError):  # as `main` prints it
        return 2, f"error: {printable(as_named(' '.join(str(done.exception).split())))}\n"
    assert done.exception is None or isinstance(done.exception, SystemExit), repr(done.exception)
    return done.exit_code, done.output


def run_json(*words: str | Path) -> tuple[int, Any]:
    """The exit code and the document of a command with --json."""
    code, out = run(*words, "--json")
    assert code in (0, 1), out
    return code, json.loads(out)


def refusal(*words: str | Path) -> str:
    """The sentence with which a command refuses its input."""
    code, out = run(*words)
    assert code == 2, out
    return " ".join(out.replace("│", " ").split()).removeprefix("error: ")
