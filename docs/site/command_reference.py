"""The reference of the command line, from the commands themselves."""

from __future__ import annotations

import enum
import inspect
from collections.abc import Iterator
from typing import Any

import typer

from antecede.cli.main import COMMANDS, app


def _cell(text: object) -> str:
    return " ".join(str(text).split()).replace("|", "\\|").replace("<", "&lt;")


_KINDS = {str: "TEXT", int: "INTEGER", float: "NUMBER"}


def _kind(parameter: Any) -> str:
    annotation = parameter.type_descriptor.annotation
    if inspect.isclass(annotation) and issubclass(annotation, enum.Enum):
        return "|".join(str(choice.value) for choice in annotation)
    named = [kind for kind in _KINDS if kind.__name__ in str(annotation)]
    return str(parameter.metavar or (_KINDS[named[0]] if named else "PATH"))


def _name(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return f"`{parameter.metavar or parameter.name.upper()}`"
    names = " ".join(f"`{name}`" for name in [*parameter.opts, *parameter.secondary_opts])
    return names if parameter.is_flag else f"{names} {_cell(_kind(parameter))}"


def _default(parameter: Any) -> str:
    shown = getattr(parameter, "show_default", True) is not False
    value = parameter.default
    if not shown or value in (None, False, ()) or callable(value) or parameter.required:
        return "required" if parameter.required else ""
    return f"`{_cell(getattr(value, 'value', value))}`"


def _command(name: str, command: Any) -> Iterator[str]:
    yield f"## antecede {name}\n"
    yield command.help + "\n"
    shown = [p for p in command.params if p.name != "help" and not getattr(p, "hidden", False)]
    if shown:
        yield "| argument or option | default | meaning |\n|---|---|---|"
        for parameter in shown:
            said = _cell(getattr(parameter, "help", None) or "")
            yield f"| {_name(parameter)} | {_default(parameter)} | {said} |"
        yield ""


def command_reference() -> str:
    """One section for each command, in the order of `antecede --help`."""
    group: Any = typer.main.get_command(app)
    lines = ["# Commands", "", app.info.help or "", "", app.info.epilog or "", ""]
    for panel, commands in COMMANDS.items():
        lines += [f"**{panel}:** " + ", ".join(f"[{name}](#antecede-{name})" for name in commands) + "", ""]
    for commands in COMMANDS.values():
        for name in commands:
            lines += _command(name, group.commands[name])
    return "\n".join(lines) + "\n"
