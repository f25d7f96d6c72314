"""The explorer in notebooks: a page inside the page, with the run in it and without a server.

It needs no widget library: whatever shows HTML shows it. Nothing comes back from it to Python.
"""

from __future__ import annotations

from html import escape
from typing import Any

import pyarrow as pa

from antecede.errors import InputError
from antecede.explore.index import Written
from antecede.explore.page import page_with_run
from antecede.temporary_folders import temporary_folder
from antecede.trace.parquet_files import write_parquet
from antecede.trace.schema import FIELDS, REQUIRED

MAX_ROWS = 500_000
"""Of a DataFrame that becomes a part of a notebook, which is saved with it."""

_COLUMNS = (*REQUIRED, "destinations", "message", "own_delivery", "member")


class NotebookExplorer:
    """A run's events, as the last value of a notebook's cell."""

    def __init__(self, events: Any, run: str | None = None, height: int = 620) -> None:
        """Prepare events with the columns of a trace: a DataFrame of pandas or Spark, or an Arrow table."""
        table = _needed(_as_table(events))
        if table.num_rows > MAX_ROWS:
            raise InputError(
                f"{table.num_rows:,} rows are too many for a notebook, which shows up to {MAX_ROWS:,}; write "
                "them as Parquet and use antecede explore"
            )
        with temporary_folder("explore") as folder:
            write_parquet(table, folder / "events.parquet")
            self.written: Written
            self.written, self._html = page_with_run(folder / "events.parquet", "events", run)
        self._height = height

    def _repr_html_(self) -> str:
        """What a notebook shows: a frame that may run its own script, and reaches nothing of the notebook."""
        style = f"width: 100%; height: {self._height}px; border: 1px solid #8888; border-radius: 8px"
        return f'<iframe sandbox="allow-scripts" style="{style}" srcdoc="{escape(self._html)}"></iframe>'


def _needed(table: pa.Table) -> pa.Table:
    """The columns that are shown. Of pandas, whole numbers with gaps are no longer whole."""
    table = table.select([name for name in table.column_names if name in _COLUMNS])
    for place, field in enumerate(table.schema):
        expected = FIELDS[field.name][0]
        if pa.types.is_floating(field.type) and pa.types.is_integer(expected):
            try:
                table = table.set_column(place, field.name, table.column(place).cast(expected))
            except pa.ArrowException as error:
                raise InputError(f"column {field.name} holds numbers that are not whole: {error}") from error
    return table


def _as_table(events: Any) -> pa.Table:
    if isinstance(events, pa.Table):
        return events
    if hasattr(events, "toArrow"):  # a DataFrame of Spark
        return events.toArrow()
    try:
        return pa.Table.from_pandas(events, preserve_index=False)
    except (AttributeError, TypeError, pa.ArrowException) as error:
        raise InputError(f"expected a DataFrame or an Arrow table of events: {error}") from error
