"""Output of commands: tables and progress for people, JSON for programs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

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

if TYPE_CHECKING:
    from antecede.trace.bad_rows import BadRowKind

# Without a terminal Rich assumes 80 columns; files and pipes can take whole tables.
out = Console(highlight=False, width=None if sys.stdout.isatty() else 160)
err = Console(stderr=True, highlight=False)


def json(value: Any) -> None:
    """Print a result as one JSON document on standard output."""
    print(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def table(title: str | None, header: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> None:
    """Print a table: the first `left` columns are text, the others numbers, aligned right."""
    printed = Table(
        title=title,
        title_justify="left",
        title_style="bold",
        header_style="dim",
        box=None,
        pad_edge=False,
        padding=(0, 1, 0, 0),
    )
    for column, name in enumerate(header):
        if column < left:
            printed.add_column(name, overflow="fold")
        else:
            widest = max(len(cell) for cell in (name, *(row[column] for row in rows)))
            printed.add_column(name, justify="right", no_wrap=True, min_width=widest)
    for row in rows:
        printed.add_row(*row)
    out.print(printed)


def bad_rows(kinds: Sequence[BadRowKind]) -> None:
    """Print the bad rows of a file by kind, with examples."""
    for kind in kinds:
        out.print(f"{kind.what}: {kind.rows:,}", soft_wrap=True, markup=False)
        for example in kind.examples:
            out.print(f"  {example}", soft_wrap=True, markup=False)


@contextmanager
def progress() -> Iterator[Callable[[str, int, int], None]]:
    """Show a progress bar on standard error. The yielded function takes (description, done, total).

    The part of the description after a colon may change without starting a new bar.
    """
    text = TextColumn("{task.description:<16}")
    columns = (SpinnerColumn(), text, BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=err, transient=True, disable=not err.is_terminal) as bar:
        tasks: dict[str, Any] = {}

        def update(description: str, done: int, total: int) -> None:
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
