"""Options that commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


def folder(text: str | Path) -> Path:
    """A place for results."""
    if "://" in str(text):
        raise typer.BadParameter(f"{text} is a URL; results go into a local or commonly mounted folder")
    return Path(text)
