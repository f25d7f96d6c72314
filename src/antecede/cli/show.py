"""How commands speak: tables and progress for people, JSON for machines."""

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

# Rich takes 80 columns where there is no terminal; a file or a pipe has room for whole tables.
out = Console(highlight=False, width=None if sys.stdout.isatty() else 160)
err = Console(stderr=True, highlight=False)


def json(value: Any) -> None:
    """A result for machines: one JSON document on standard output."""
    print(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def table(title: str | None, header: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> None:
    """A table whose first `left` columns are names and whose others are figures."""
    shown = Table(
        title=title,
        title_justify="left",
        title_style="bold",
        header_style="dim",
        box=None,
        pad_edge=False,
        padding=(0, 1, 0, 0),
    )
    for place, name in enumerate(header):
        if place < left:
            shown.add_column(name, overflow="fold")
        else:
            widest = max(len(cell) for cell in (name, *(row[place] for row in rows)))
            shown.add_column(name, justify="right", no_wrap=True, min_width=widest)
    for row in rows:
        shown.add_row(*row)
    out.print(shown)


def bad_rows(found: Sequence[BadRowKind]) -> None:
    """What was wrong in a file, by kind, with examples."""
    for bad in found:
        out.print(f"{bad.what}: {bad.rows:,}", soft_wrap=True, markup=False)
        for example in bad.examples:
            out.print(f"  {example}", soft_wrap=True, markup=False)


@contextmanager
def progress() -> Iterator[Callable[[str, int, int], None]]:
    """A bar on standard error; call what it gives with (what, done, total).

    What comes after a colon in `what` may change while it goes on.
    """
    what = TextColumn("{task.description:<16}")
    columns = (SpinnerColumn(), what, BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=err, transient=True, disable=not err.is_terminal) as bar:
        tasks: dict[str, Any] = {}

        def update(what: str, done: int, total: int) -> None:
            name = what.partition(":")[0]
            for other, task in tasks.items():
                if other != name:
                    bar.update(task, visible=False)
            if name not in tasks:
                tasks[name] = bar.add_task(what, total=total or None)
            bar.update(tasks[name], description=what, completed=done, total=total or None, visible=True)

        yield update
