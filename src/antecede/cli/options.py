"""Options that several commands share, and a way to declare a group of options once.

A command may take a dataclass whose fields are options, such as `MemberOptions`; `expand_options` presents
its fields to Typer as parameters of the command.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

Master = Annotated[
    str | None,
    typer.Option(
        help="Use a Spark cluster (spark://…, yarn) or Spark Connect (sc://…) instead of the embedded Spark."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Columns = Annotated[
    list[str] | None,
    typer.Option(
        "--map",
        metavar="OURS=THEIRS,…",
        help="Map columns to ours: process=host; message=msg for one id instead of origin and seq; "
        "kind.send=PUB for the values of kind. May be repeated; see docs/traces.md.",
    ),
]
Strict = Annotated[
    bool, typer.Option("--strict", help="Stop at the first bad row instead of counting bad rows.")
]
MaxBytes = Annotated[
    int | None,
    typer.Option(
        min=1,
        show_default=False,
        help="Read at most so many bytes of a file, counted after decompression; by default 2 GiB of what is "
        "held in memory or downloaded, and of a compressed file 100 times its size.",
    ),
]
RunPerFile = Annotated[
    bool,
    typer.Option(
        "--run-per-file",
        help="With --map: each file of a folder is a run of its own. By default the files of a folder are "
        "one run, unless a column says otherwise.",
    ),
]
Seed = Annotated[
    int, typer.Option(min=0, max=2**64 - 1, help="Random seed: the same seed replays the same run.")
]
AnalysisEngine = Annotated[str, typer.Option(help="auto, local (in this process) or spark.")]
RunName = Annotated[str | None, typer.Option(help="The run, if the trace holds several.")]


def folder(text: str | Path) -> Path:
    """Parse a place for results: a path, not a URL."""
    if "://" in str(text):
        raise typer.BadParameter(f"{text} is a URL; results go to a local or mounted folder")
    return Path(text)


ResultFolder = Annotated[
    Path, typer.Option(parser=folder, metavar="FOLDER", help="Folder for runs, tables and the report.")
]


def expand_options(command: Callable[..., None]) -> Callable[..., None]:
    """Replace each parameter that is a dataclass by one keyword parameter per field."""
    hints = get_type_hints(command, include_extras=True)
    groups = {name: hint for name, hint in hints.items() if is_dataclass(hint)}
    if not groups:
        return command

    @functools.wraps(command)
    def expanded(**values: Any) -> None:
        for name, group in groups.items():
            values[name] = group(**{field.name: values.pop(field.name) for field in fields(group)})  # type: ignore[operator]
        command(**values)

    parameters: list[inspect.Parameter] = []
    for parameter in inspect.signature(command).parameters.values():
        if parameter.name in groups:
            parameters += _field_parameters(groups[parameter.name])
        else:
            hint = hints[parameter.name]
            parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hint))
    expanded.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    expanded.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return expanded


def _field_parameters(group: Any) -> list[inspect.Parameter]:
    hints = get_type_hints(group, include_extras=True)
    return [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if field.default is MISSING else field.default,
            annotation=hints[field.name],
        )
        for field in fields(group)
    ]
