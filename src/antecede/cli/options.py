"""Options that commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Master = Annotated[
    str | None,
    typer.Option(
        help="A Spark cluster (spark://…, yarn) or Spark Connect (sc://…) instead of the embedded Spark."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]

Columns = Annotated[
    list[str] | None,
    typer.Option(
        "--map",
        metavar="OURS=THEIRS,…",
        help="What our columns are called there: process=host; one id instead of origin and seq: "
        "message=msg; their words for kinds: kind.send=PUB. May be repeated; see docs/traces.md.",
    ),
]
Strict = Annotated[
    bool, typer.Option("--strict", help="Refuse what is wrong in the file instead of counting it.")
]


def folder(text: str | Path) -> Path:
    """A place for results."""
    if "://" in str(text):
        raise typer.BadParameter(f"{text} is a URL; results go into a local or commonly mounted folder")
    return Path(text)
