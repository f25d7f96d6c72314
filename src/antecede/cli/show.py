"""Output of commands: lines, tables and progress for people, JSON for programs.

Names, ids and reasons come from files that others wrote. So text is printed verbatim, without Rich's markup
and with control characters as escapes; styled text is passed with its style.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table
from rich.text import Text

from antecede.terminal import printable, printable_json

if TYPE_CHECKING:
    from antecede.trace.bad_rows import BadRowKind
    from antecede.trace.lineage import Lineage

_shown_as: dict[str, str] = {}
"""The user's name for an original with a temporary copy, by the path of the copy."""

# Without a terminal Rich assumes 80 columns; files and pipes can hold wider tables.
out = Console(highlight=False, width=None if sys.stdout.isatty() else 160)
err = Console(stderr=True, highlight=False)


def json(value: Any) -> None:
    """Print a result as one JSON document on standard output."""
    # JSON itself escapes only what is below U+0020.
    document = _renamed_json(value)
    print(msgspec.json.format(printable_json(document), indent=2))


def show_as(copy: str, name: str) -> None:
    """Print the path of a temporary copy under the user's name for the original."""
    _shown_as[copy] = name


def as_named(text: str) -> str:
    """Text with paths of temporary copies replaced by the user's names for the originals."""
    for copy, name in _shown_as.items():
        text = text.replace(copy, name)
    return text


def _renamed_json(value: Any) -> str:
    document = msgspec.json.encode(value).decode()
    for copy, name in _shown_as.items():
        document = document.replace(_in_json(copy), _in_json(name))
    return document


def _in_json(text: str) -> str:
    return msgspec.json.encode(text).decode()[1:-1]


Renamed = TypeVar("Renamed")


def renamed(value: Renamed) -> Renamed:
    """A struct with paths of temporary copies replaced by the user's names for the originals."""
    return msgspec.json.decode(_renamed_json(value), type=type(value))


def line(*parts: str | Text) -> None:
    """Print a line, which the terminal wraps: verbatim text, or `styled`."""
    out.print(Text.assemble(*map(literal, parts)), soft_wrap=True)


def note(text: str) -> None:
    """Print a line that explains others."""
    line(styled(text, "dim"))


def styled(text: str, style: str) -> Text:
    """Text printed verbatim in one of Rich's styles."""
    return Text(printable(text), style)


def literal(text: str | Text) -> Text:
    return text if isinstance(text, Text) else Text(printable(as_named(text)))


def table(
    title: str | None, header: Sequence[str], rows: Sequence[Sequence[str | Text]], left: int = 1
) -> None:
    """Print a table: the first `left` columns are text, the others numbers, aligned right."""
    printed = Table(
        title=None if title is None else literal(title),
        title_justify="left",
        title_style="bold",
        header_style="dim",
        show_header=any(header),
        box=None,
        pad_edge=False,
        padding=(0, 1, 0, 0),
    )
    for column, name in enumerate(header):
        if column < left:
            printed.add_column(literal(name), overflow="fold")
        else:
            widest = max(literal(cell).cell_len for cell in (name, *(row[column] for row in rows)))
            printed.add_column(literal(name), justify="right", no_wrap=True, min_width=widest)
    for row in rows:
        printed.add_row(*map(literal, row))
    out.print(printed)


def bad_rows(kinds: Sequence[BadRowKind]) -> None:
    """Print the bad rows of a file by kind, with examples."""
    for kind in kinds:
        line(f"{kind.what}: {kind.rows:,}")
        for example in kind.examples:
            line(f"  {example}")


def notes(texts: Sequence[str]) -> None:
    """Print how the rows of a file were read, where that may surprise a user."""
    for text in texts:
        line(styled("note", "yellow"), f": {text}")


def lineage(found: Lineage) -> None:
    """Print the sources of an answer in one line; --json has all of them.

    Before it, print how the rows were read, and which valid rows were left out; bad rows have been printed
    already.
    """
    from antecede.trace.lineage import in_brief

    notes(found.notes)
    for kind in found.skipped:
        if not kind.bad:
            where = f" ({', '.join(kind.examples)})" if kind.examples else ""
            note(as_named(f"left out, {kind.what}: {kind.rows:,}{where}"))
    note(in_brief(renamed(found)))


@contextmanager
def progress() -> Iterator[Callable[[str, int, int], None]]:
    """Show a progress bar on standard error. The yielded function takes (description, done, total).

    The part of the description after a colon may change without starting a new bar.
    """
    text = TextColumn("{task.description:<16}", markup=False)
    columns = (SpinnerColumn(), text, BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=err, transient=True, disable=not err.is_terminal) as bar:
        tasks: dict[str, Any] = {}

        def update(description: str, done: int, total: int) -> None:
            description = printable(description)
            name = description.partition(":")[0]
            for other, task in tasks.items():
                if other != name:
                    bar.update(task, visible=False)
            if name not in tasks:
                tasks[name] = bar.add_task(description, total=total or None)
            bar.update(
                tasks[name], description=description, completed=done, total=total or None, visible=True
            )

        yield update
