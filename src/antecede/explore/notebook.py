"""The explorer in notebooks: a widget with the run in it, without a server.

explorer = NotebookExplorer(events)    # as the last value of a cell it is shown
explorer.selected = "p07:12"           # what is clicked there is here, and the other way round
explorer.rows("past")                  # the rows of its causal past
"""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any, Literal, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from antecede.errors import InputError, MissingExtraError, missing_extra
from antecede.explore.index import Written, read_run
from antecede.explore.order import before_and_after, message_number
from antecede.explore.page import pack_run, page_of_notebook
from antecede.temporary_folders import temporary_folder
from antecede.trace.parquet_files import write_parquet
from antecede.trace.schema import FIELDS, REQUIRED

try:
    from anywidget import AnyWidget
    from traitlets import Bytes, Int, Unicode
except ModuleNotFoundError as missing:
    raise MissingExtraError(missing_extra(missing.name or "anywidget", "notebook")) from None

MAX_ROWS = 500_000
"""The most rows of a DataFrame, which goes to the browser in one piece."""

_SCRIPT = files("antecede.explore").joinpath("web", "widget.js").read_text(encoding="utf-8")
Order = Literal["past", "future", "concurrent", "message"]
_COLUMNS = (*REQUIRED, "destinations", "message", "own_delivery", "member")


class NotebookExplorer(AnyWidget):
    """A run's events as a widget."""

    _esm = f"const PAGE = {json.dumps(page_of_notebook())};\n" + _SCRIPT
    selected = Unicode("").tag(sync=True)
    """The message that is selected, as ORIGIN:SEQ or by its own id; empty if none is."""
    height = Int(620).tag(sync=True)
    """In pixels."""
    _run = Bytes().tag(sync=True)

    def __init__(self, events: Any, run: str | None = None, height: int = 620) -> None:
        """Prepare events with the columns of a trace: of pandas, Spark or polars, or an Arrow table."""
        table = _in_types_of_a_trace(_as_table(events))
        if table.num_rows > MAX_ROWS:
            raise InputError(
                f"more than {MAX_ROWS:,} rows are too many for a notebook; write them as Parquet and use "
                "antecede explore"
            )
        with temporary_folder("explore") as folder:
            path = folder / "events.parquet"
            write_parquet(table, path)
            self._explored = read_run(path, "events", run)
        self._table = table.filter(pc.equal(table.column("run"), self._explored.columns.run))
        self.written: Written
        self.written, packed = pack_run(self._explored, "events")
        super().__init__(height=height, _run=packed)

    def rows(self, of: Order) -> pa.Table:
        """The rows before, after or concurrent with the selected message, or those of the message itself."""
        if of not in get_args(Order):
            raise InputError(f"expected one of {', '.join(get_args(Order))}, not {of!r}")
        message = message_number(self._explored, self.selected)
        found = before_and_after(self._explored, message) if message >= 0 else None
        if found is None:
            name = self.selected
            raise InputError(f"the run has no message {name}" if name else "no message is selected")
        columns = self._explored.columns
        origin = int(np.searchsorted(columns.messages.first, message, "right")) - 1
        is_own = pc.and_(
            pc.equal(self._table.column("origin"), columns.origins[origin]),
            pc.equal(self._table.column("seq"), int(columns.messages.seq[message])),
        ).to_numpy()
        if of == "message":
            return self._table.filter(pa.array(is_own))
        before, after = self._split(*found)
        is_send = is_own & pc.equal(self._table.column("kind"), "send").to_numpy()
        chosen = {"past": before, "future": after & ~is_send, "concurrent": ~before & ~after}
        return self._table.filter(pa.array(chosen[of]))

    def _split(self, past: np.ndarray, future: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Which rows are before and after. Positions among the events that are shown are converted to row
        indices: a receive belongs to the delivery that follows it."""
        columns, events = self._explored.columns, self._explored.layout.events
        index = columns.index_in_trace[events.row]
        start, count = events.lane_start[:-1], np.diff(events.lane_start)
        last = np.full(len(count), -1, np.int64)
        some = past > 0
        last[some] = index[start[some] + past[some] - 1]
        first = np.full(len(count), np.iinfo(np.int64).max)
        some = future < count
        first[some] = index[start[some] + future[some]]
        lane = pc.index_in(self._table.column("process"), pa.array(columns.lanes)).to_numpy()
        mine = self._table.column("index").to_numpy()
        return mine <= last[lane], mine >= first[lane]


def _as_table(events: Any) -> pa.Table:
    """The columns that are shown, and at most one row more than allowed."""
    try:
        there = events.column_names if isinstance(events, pa.Table) else events.columns
        names = [name for name in _COLUMNS if name in there]
        if isinstance(events, pa.Table):
            return events.select(names)
        if hasattr(events, "toArrow"):  # Spark: no other column and no further row is collected.
            return events.select(*names).limit(MAX_ROWS + 1).toArrow()
        if hasattr(events, "iloc"):  # pandas
            return pa.Table.from_pandas(events[names], preserve_index=False)
        return pa.table(events[names])
    except (AttributeError, TypeError, ValueError, pa.ArrowException) as error:
        raise InputError(f"expected a DataFrame or an Arrow table of events: {error}") from error


def _in_types_of_a_trace(table: pa.Table) -> pa.Table:
    """Convert to the types of a trace: pandas turns integers with gaps into floats, other libraries have
    other types for text."""
    for place, field in enumerate(table.schema):
        expected = FIELDS[field.name][0]
        if field.type == expected or pa.types.is_temporal(field.type) or pa.types.is_nested(field.type):
            continue
        try:
            table = table.set_column(place, field.name, table.column(place).cast(expected))
        except pa.ArrowException as error:
            raise InputError(f"column {field.name} cannot be of type {expected}: {error}") from error
    return table
