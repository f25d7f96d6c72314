"""The `antecede` command: its subcommands by kind of user, and how errors end it.

`COMMANDS` is the one place where commands are registered. A command is a function in a module of this
package; it parses options, calls the package that does the work, and prints the result.
"""

from __future__ import annotations

import inspect
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from antecede import __version__
from antecede.cli.advise import advise
from antecede.cli.audit import audit
from antecede.cli.chat import chat
from antecede.cli.check import check
from antecede.cli.cluster import cluster
from antecede.cli.console import console
from antecede.cli.demo import demo
from antecede.cli.doctor import doctor
from antecede.cli.explain import explain
from antecede.cli.explore import explore
from antecede.cli.foreign import export_log, import_log
from antecede.cli.graph import graph
from antecede.cli.keys import keys
from antecede.cli.load import load
from antecede.cli.members import members
from antecede.cli.node import node
from antecede.cli.options import expand_options
from antecede.cli.order import held, order
from antecede.cli.protocols import protocols
from antecede.cli.reproduce import reproduce
from antecede.cli.show import as_named
from antecede.cli.simulate import simulate
from antecede.cli.sources import sources
from antecede.cli.store import store
from antecede.cli.sweep import report, sweep
from antecede.cli.verify import verify
from antecede.errors import AntecedeError, missing_extra
from antecede.temporary_folders import end_in_order
from antecede.terminal import printable

COMMANDS: dict[str, dict[str, Callable[..., None]]] = {
    "Start here": {"demo": demo},
    "Live groups": {
        "node": node,
        "chat": chat,
        "members": members,
        "console": console,
        "keys": keys,
        "store": store,
        "cluster": cluster,
        "load": load,
    },
    "Logs and streams": {
        "audit": audit,
        "explain": explain,
        "explore": explore,
        "graph": graph,
        "advise": advise,
        "order": order,
        "held": held,
        "import": import_log,
        "export": export_log,
        "sources": sources,
    },
    "Research": {
        "protocols": protocols,
        "simulate": simulate,
        "verify": verify,
        "check": check,
        "sweep": sweep,
        "report": report,
        "reproduce": reproduce,
    },
    "This installation": {"doctor": doctor},
}
"""Help panel, command name, function."""

app = typer.Typer(
    name="antecede",
    help="Causal order for a group's messages: live, in simulation, and after the fact on logs and streams.",
    epilog="Start with: antecede demo. Commands that print results take --json. "
    "Exit codes: 0 success, 1 violations or failed runs, 2 bad input.",
    add_completion=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback(invoke_without_command=True)
def _without_command(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if context.invoked_subcommand is None and not version:
        print(context.get_help())
    if version:
        print(f"antecede {__version__}")
        raise typer.Exit()


def _help_text(command: Callable[..., None]) -> str:
    """The docstring with one line per paragraph, so that it wraps at the terminal's width."""
    paragraphs = (inspect.getdoc(command) or "").split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


for _panel, _commands in COMMANDS.items():
    for _name, _command in _commands.items():
        app.command(_name, help=_help_text(_command), rich_help_panel=_panel)(expand_options(_command))

# Typer bundles its own copy of Click, so take the base class of usage errors from there.
_USAGE_ERROR: type[typer.BadParameter] = next(
    base for base in typer.BadParameter.__mro__ if base.__name__ == "ClickException"
)


_EXTRAS = {"numba": "sim", "numpy": "sim", "pandas": "spark", "pyarrow": "sim", "pyspark": "spark"}
"""Packages that many modules import, and the extra that installs each."""


@contextmanager
def _safe_path() -> Iterator[None]:
    """Keep all Python processes started from here, including Spark's workers, from importing from the current
    folder."""
    name = "PYTHONSAFEPATH"
    before = os.environ.get(name)
    os.environ[name] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def main() -> None:
    """Run a command. An error that the user can correct is one line and exit code 2."""
    try:
        with _safe_path(), end_in_order():
            code = app(standalone_mode=False)
    except AntecedeError as error:
        _fail(str(error))
    except _USAGE_ERROR as error:
        _fail(error.format_message().replace("Value error, ", ""))  # what pydantic puts before a reason
    except OSError as error:
        _fail(_in_words(error))
    except MemoryError as error:
        _fail(f"MemoryError: {error}")
    except KeyboardInterrupt:
        code = 130
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and (extra := _EXTRAS.get(error.name or "")):
            _fail(missing_extra(error.name or "", extra))
        if os.environ.get("ANTECEDE_DEBUG"):
            raise
        last = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{Path(last.filename).name}, line {last.lineno}"
        _fail(f"internal: {type(error).__name__}: {error} ({place}); ANTECEDE_DEBUG=1 shows the traceback")
    if code == 130:
        print("stopped; finished work is kept", file=sys.stderr)
    sys.exit(code or 0)


def _in_words(error: OSError) -> str:
    """What the system refused, and for which file."""
    if error.filename is None or error.strerror is None:
        return f"{type(error).__name__}: {error}"
    if isinstance(error, PermissionError):
        return f"you have no permission for {error.filename}"
    return f"{error.filename}: {error.strerror}"


def _fail(message: str) -> NoReturn:
    print(f"error: {printable(as_named(' '.join(message.split())))}", file=sys.stderr)
    sys.exit(2)
