"""The option --map: what our columns are called in another program's table."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from antecede.errors import InputError
from antecede.trace.csv_records import CsvFormat
from antecede.trace.schema import FIELDS, KINDS
from antecede.trace.times import UNITS

MESSAGE, SKIP = "message", "skip"
COLUMNS = tuple(name for name in FIELDS if name != "own_delivery")
_EXAMPLE = "--map process=host,index=idx,message=msg,kind.send=SEND"


class ColumnMap(msgspec.Struct, frozen=True):
    """The user's column names by ours, and our kinds of events by the user's words."""

    columns: dict[str, str]
    """The user's column by ours; empty to ignore a column that happens to have our name."""
    kinds: dict[str, str]
    """Our kind by the user's word; `skip` for rows to leave out."""
    first_seq: int = 1
    """The sequence number of a sender's first message: 0 or 1."""
    time_unit: str | None = None
    """The unit of numbers in the time column, by its name in `times.UNITS`."""
    encoding: str | None = None
    """The encoding of CSV; None: UTF-8, or the one that the byte-order mark indicates."""
    run_per_file: bool = False
    """Whether each file is a run, as set by --run-per-file."""


_DEPENDENCY_COLUMNS = ("node", "process", "seq", "parents")


def names_dependencies(texts: Sequence[str]) -> bool:
    """Whether --map describes a table of dependencies: it names nodes or parents, which events have not."""
    names = {pair.partition("=")[0].strip() for text in texts for pair in text.split(",")}
    return bool(names & {"node", "parents"})


def parse_dependency_map(texts: Sequence[str]) -> dict[str, str]:
    """Parse --map for a table of dependencies: their name by ours; and its encoding, if it is named.

    >>> parse_dependency_map(["node=commit,parents=after"])
    {'node': 'commit', 'parents': 'after'}
    """
    names: dict[str, str] = {}
    for pair in (pair for text in texts for pair in text.split(",") if pair.strip()):
        name, _, theirs = (part.strip() for part in pair.partition("="))
        if name == "encoding":
            _check_encoding(theirs)
        elif name not in _DEPENDENCY_COLUMNS or not theirs:
            ours = ", ".join(_DEPENDENCY_COLUMNS)
            raise InputError(f"--map: '{pair}' is no column of a table of dependencies; there are {ours}")
        if names.setdefault(name, theirs) != theirs:
            raise InputError(f"--map: {name} is named twice")
    return names


def _check_encoding(name: str) -> None:
    try:
        CsvFormat(name).validate()
    except InputError as error:
        raise InputError(str(error).replace("--encoding", "--map encoding", 1)) from None


def _no_such_column(name: str, theirs: str) -> InputError:
    if name in ("clock", "clocks", "vc", "vector_clock"):
        return InputError(
            f"--map: no column '{name}' of ours; rows with vector clocks are put in order by antecede order "
            f"--origin … --clock {theirs or '…'}, and logs of ShiViz with clocks are read by --preset shiviz"
        )
    return InputError(
        f"--map: no column '{name}' of ours; there are {', '.join(COLUMNS)}, and for rows that name their "
        f"parents {', '.join(_DEPENDENCY_COLUMNS)}"
    )


def parse_column_map(texts: Sequence[str], run_per_file: bool = False) -> ColumnMap:
    """Parse --map: pairs of our name and theirs, separated by commas.

    >>> parse_column_map(["process=host,message=msg", "kind.send=SEND,kind.send=PUBLISH"]).kinds
    {'SEND': 'send', 'PUBLISH': 'send'}
    """
    columns: dict[str, str] = {}
    kinds: dict[str, str] = {}
    first_seq, time_unit, encoding = 1, None, None
    for pair in (pair for text in texts for pair in text.split(",") if pair.strip()):
        name, equals, theirs = (part.strip() for part in pair.partition("="))
        kind = name.removeprefix("kind.")
        if not equals:
            raise InputError(f"--map: '{pair}' is not a pair; write our name and theirs, as in {_EXAMPLE}")
        if name == "seq.first":
            if theirs not in ("0", "1"):
                raise InputError(f"--map: seq.first is 0 or 1, not '{theirs}'")
            first_seq = int(theirs)
        elif name == "time.unit":
            if theirs not in UNITS:
                raise InputError(f"--map: time.unit is {', '.join(UNITS)}, not '{theirs}'")
            time_unit = theirs
        elif name == "encoding":
            _check_encoding(theirs)
            encoding = theirs
        elif kind != name:
            if kind not in (*KINDS, SKIP):
                raise InputError(
                    f"--map: no kind '{kind}'; there are {', '.join(KINDS)}, and {SKIP} for others"
                )
            if kinds.setdefault(theirs, kind) != kind:
                raise InputError(f"--map: {theirs} is mapped to both {kinds[theirs]} and {kind}")
        elif name not in COLUMNS:
            raise _no_such_column(name, theirs)
        elif name in columns:
            raise InputError(f"--map: {name} is named twice")
        else:
            columns[name] = theirs
    if columns.get(MESSAGE) and (columns.get("origin") or columns.get("seq")):
        raise InputError("--map: a message is one id (message=…) or origin and seq, not both")
    if columns.get("run") and run_per_file:
        raise InputError("a run is a column (--map run=…) or a file (--run-per-file), not both")
    return ColumnMap(columns, kinds, first_seq, time_unit, encoding, run_per_file)
