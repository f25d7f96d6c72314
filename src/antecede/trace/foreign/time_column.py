"""Reads the column of times of another program's table; a row whose time cannot be read keeps its place.

Such a row is counted, and gets the time of the row before it in its file, because diagrams and counts over
time need a value. Cost: one pass over the column; text is parsed value by value.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from antecede.errors import InputError
from antecede.trace.bad_rows import BadRows, brief
from antecede.trace.times import UNITS, parse_time
from antecede.trace.validate import is_text

_WHAT = "rows whose time cannot be read, kept in their place"
_HINT = "; --map time= does without it"

_COARSER = {"s": "seconds", "ms": "milliseconds", "us": "microseconds"}
_LIKELY_SECONDS = (10**9, 5 * 10**9)
"""Numbers of seconds since 1970 that logs are likely to have: the years 2001 to 2128."""


class TimeColumn:
    """The times of one file, batch by batch, in nanoseconds; `theirs` is what the file calls the column."""

    def __init__(self, file: Path, theirs: str, unit: str | None, bad: BadRows) -> None:
        self._file, self._theirs, self._unit, self._bad = file, theirs, unit, bad
        self._last: int | None = None

    def in_nanoseconds(self, rows: pa.Table, row_number: str) -> pa.Table:
        """The rows with their times as numbers; `row_number` is the column with their numbers in the file."""
        place = rows.column_names.index("time")
        column = rows.column("time")
        if self._theirs:
            is_number = not (pa.types.is_timestamp(column.type) or pa.types.is_date(column.type))
            column = self._read(column)
            self._count(rows, column, row_number)
            if self._unit is None and is_number:
                self._note_likely_unit(column)
        times = self._filled(column, rows.column("index"))
        return rows.set_column(place, "time", times)

    def _read(self, column: pa.ChunkedArray) -> pa.ChunkedArray:
        """The times that can be read; null for the others."""
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        kind = column.type
        if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
            return self._from_timestamps(column)
        if pa.types.is_integer(kind) and (self._unit or "ns") == "ns" and not pa.types.is_uint64(kind):
            return column.cast(pa.int64())
        if pa.types.is_floating(kind):
            return self._from_floats(column)
        if not (is_text(kind) or pa.types.is_integer(kind) or pa.types.is_null(kind)):
            raise InputError(
                f"{self._file}: column {self._theirs} holds {kind}, which cannot be a time; leave it out "
                "with --map time="
            )
        unique = column.combine_chunks().dictionary_encode()
        parsed = [parse_time(value, self._unit) for value in unique.dictionary.to_pylist()]
        return pa.chunked_array([pa.array(parsed, pa.int64()).take(unique.indices)])

    def _from_timestamps(self, column: pa.ChunkedArray) -> pa.ChunkedArray:
        zone = column.type.tz if pa.types.is_timestamp(column.type) else None
        try:
            return column.cast(pa.timestamp("ns", zone)).cast(pa.int64())
        except pa.ArrowInvalid:  # Some times are outside the years that nanoseconds can represent.
            unit = pa.timestamp("s", zone)
            seconds = pc.cast(column, unit, safe=False).cast(pa.int64())
            limit = (1 << 63) // UNITS["s"] - 1
            inside = pc.and_(pc.less(seconds, limit), pc.greater(seconds, -limit))
            kept = pc.if_else(inside, column, pa.scalar(None, column.type))
            return kept.cast(pa.timestamp("ns", zone)).cast(pa.int64())

    def _from_floats(self, column: pa.ChunkedArray) -> pa.ChunkedArray:
        """Decimals as seconds; or integers, which become floating-point numbers where a column has nulls."""
        finite = pc.if_else(pc.is_finite(column), column, pa.scalar(None, column.type))
        whole = pc.all(pc.equal(finite, pc.floor(finite))).as_py()
        unit = self._unit or ("ns" if whole else "s")
        nanoseconds = pc.multiply(finite.cast(pa.float64()), float(UNITS[unit]))
        inside = pc.less(pc.abs(nanoseconds), float(1 << 62))
        kept = pc.if_else(inside, nanoseconds, pa.scalar(None, pa.float64()))
        return pc.round(kept).cast(pa.int64())

    def _count(self, rows: pa.Table, times: pa.ChunkedArray, row_number: str) -> None:
        if not times.null_count:
            return
        lost = times.is_null()
        numbers, values = (rows.column(name).filter(lost) for name in (row_number, "time"))
        field = self._theirs if self._theirs == "time" else f"{self._theirs} (time)"
        examples = (
            f"row {number}, field {field}: {_why(value)}{_HINT}"
            for number, value in zip(numbers, values, strict=True)
        )
        self._bad.add_all(_WHAT, examples, times.null_count, str(self._file), left_out=False)

    def _note_likely_unit(self, times: pa.ChunkedArray) -> None:
        """Note that numbers which were taken for nanoseconds are rather times since 1970 in another unit."""
        least, most = pc.min_max(times).as_py().values()
        for unit, name in _COARSER.items():
            first, end = (each * UNITS["s"] // UNITS[unit] for each in _LIKELY_SECONDS)
            if least is not None and first <= least <= most < end:
                field = self._theirs if self._theirs == "time" else f"{self._theirs} (time)"
                self._bad.note(
                    "time",
                    f"{field} is read as nanoseconds, and its values look like {name} since 1970: if they "
                    f"are, add --map time.unit={unit}, and if not, time.unit=ns",
                )

    def _filled(self, times: pa.ChunkedArray, index: pa.ChunkedArray) -> pa.ChunkedArray:
        """The times without gaps: each gap has the previous time, or else the first one after it."""
        if times.null_count:
            times = pc.fill_null_forward(times)
            if self._last is not None:
                times = pc.fill_null(times, self._last)
            times = pc.coalesce(pc.fill_null_backward(times), index)
        if len(times):
            self._last = times[-1].as_py()
        return times


def _why(scalar: pa.Scalar) -> str:
    try:
        value = scalar.as_py()
    except (ValueError, OverflowError):  # Python's own times have four digits for the year.
        return "it is beyond the years that nanoseconds count"
    return "it is empty" if value in (None, "") else f"'{brief(str(value))}' is not a time"


def text_of_time(value: Any) -> str | None:
    """A time of JSON or CSV as text, which tells whole numbers from decimals; None if there is none."""
    if value is None or value == "":
        return None
    try:
        return value if isinstance(value, str) else repr(value)
    except ValueError:  # Python does not print numbers of thousands of digits.
        return "a huge number"
