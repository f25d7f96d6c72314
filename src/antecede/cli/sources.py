"""antecede sources: the formats that are read as they are, and the presets behind them."""

from __future__ import annotations

from typing import Annotated

import typer

from antecede.cli import show
from antecede.cli.options import Json
from antecede.cli.source_input import preset_named
from antecede.errors import require


def sources(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="Print this preset, or a file with one, as TOML.")
    ] = None,
    as_json: Json = False,
) -> None:
    """List the formats of other programs that audit, graph, advise, order and import recognise.

    A format is recognised by its content. antecede sources NAME prints its preset: where a record has its id,
    its process, its causes. Save it, change it, and use it:

    antecede sources kafka > mine.toml; antecede audit dump.jsonl --preset mine.toml

    The page Sources of the documentation has a section for each format.
    """
    require("antecede.trace", "sim")
    from antecede.sources import PRESETS, to_toml
    from antecede.transactions.formats import PRESETS as HISTORIES

    if name is not None:
        preset = preset_named(name)
        if as_json:
            show.json(preset)
        else:
            print(to_toml(preset), end="")
    elif as_json:
        show.json(list(PRESETS.values()))
    else:
        rows = [[each.name, each.title] for each in PRESETS.values()]
        rows.append(
            [
                ", ".join(HISTORIES),
                "histories of transactions, for audit alone (the page Transaction histories)",
            ]
        )
        show.table(None, ["preset", "what it reads"], rows, left=2)
        show.note("antecede sources NAME prints a preset; --preset NAME or FILE uses it (the page Sources)")
