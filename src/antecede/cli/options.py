"""Options that several commands share, and a way to declare a group of options once.

A command may take a dataclass whose fields are options, such as `MemberOptions`; `expand_options` presents
its fields to Typer as parameters of the command. Options that are named in `IN_SECONDS` take `20s` or `20` in
every command.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from copy import copy
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import Annotated, Any, get_args, get_type_hints

import typer

from antecede.errors import InputError
from antecede.units import SECOND, parse_duration

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
        help="The log's names of our columns, as in process=host: process, kind, message (one id; or origin "
        "and seq), index, destinations (the receivers of a send; without it, every process), time, run, "
        "group. kind.send=PUB, kind.deliver=SUB and kind.skip=TICK say what the values of kind mean, "
        "time.unit=s (or ms, us, ns) what numbers in time count. For rows "
        " that name their parents: node, process, parents, seq. May be repeated.",
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
        help="Refuse a file of more than this many bytes after decompression; by default 2 GiB if "
        "it is held in memory or downloaded, and 100 times the size of a compressed file.",
    ),
]
RunPerFile = Annotated[
    bool,
    typer.Option(
        "--run-per-file",
        help="With --map: treat each file of a folder as a run. By default all files of a folder "
        "are one run, unless there is a column run.",
    ),
]


def parse_seed(text: object) -> int:
    """A seed: its range, in the help, would be so wide that examples of other options are cut."""
    try:
        seed = int(str(text))
    except ValueError:
        seed = -1
    if not 0 <= seed < 1 << 64:
        raise typer.BadParameter(f"{text} is not a seed; write a whole number from 0 to {(1 << 64) - 1}")
    return seed


Seed = Annotated[
    int,
    typer.Option(
        parser=parse_seed, metavar="NUMBER", help="Random seed: the same seed replays the same run."
    ),
]
AnalysisEngine = Annotated[str, typer.Option(help="auto, local (in this process) or spark.")]
RunName = Annotated[str | None, typer.Option(help="The run, if the trace holds several.")]


def folder(text: str | Path) -> Path:
    """Parse an output location: a path, not a URL."""
    if "://" in str(text):
        raise typer.BadParameter(f"{text} is a URL; results go to a local or mounted folder")
    return Path(text)


def check_writable(out: Path) -> None:
    """Refuse a folder in which nothing can be written, before the work whose results go there. Leaves
    nothing behind."""
    missing = [path for path in (out, *out.parents) if not path.exists()]
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot create the folder {out}: {error.strerror}; choose another one") from error
    try:
        with TemporaryFile(dir=out):
            pass
    except OSError as error:
        raise InputError(f"cannot write in the folder {out}: {error.strerror}; choose another one") from error
    finally:
        for path in missing:
            path.rmdir()


ResultFolder = Annotated[
    Path, typer.Option(parser=folder, metavar="FOLDER", help="Folder for runs, tables and the report.")
]


IN_SECONDS = {"seconds", "warmup"}
"""Options that are durations; a number without a unit counts seconds."""


def parse_seconds(value: object) -> float:
    """Seconds in "20s", "1.5m" or "20".

    >>> parse_seconds("20s"), parse_seconds("1.5m"), parse_seconds("20"), parse_seconds(2.0)
    (20.0, 90.0, 20.0, 2.0)
    """
    try:
        return float(str(value))
    except ValueError:
        pass
    try:
        return parse_duration(str(value)) / SECOND
    except InputError as error:
        raise typer.BadParameter(str(error)) from None


def _parse_seconds_as_text(value: object) -> str:
    """The same, for an option whose command parses the duration."""
    return f"{parse_seconds(value):f}s"


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
            annotation=_in_seconds(hints[field.name]) if field.name in IN_SECONDS else hints[field.name],
        )
        for field in fields(group)
    ]


def _in_seconds(hint: Any) -> Any:
    """An option of this type that takes a duration."""
    kind, option = get_args(hint)
    option = copy(option)
    option.parser = parse_seconds if kind is float else _parse_seconds_as_text
    option.metavar = "DURATION"
    return Annotated[kind, option]
