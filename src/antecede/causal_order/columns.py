"""Which columns of a table state identity and dependencies: checked before anything runs, on every engine.

Types are Spark's names for them, such as bigint or array<string>, whatever the table is. An engine carries
out the plan: it adds the columns that must be derived from others, so that all of them have uniform types.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from enum import StrEnum
from typing import NamedTuple

from antecede.causal_order.dependency_edges import FAULTS, Columns, Form
from antecede.causal_order.rules import DIGEST, PLACE
from antecede.errors import InputError
from antecede.trace.bad_rows import UNREADABLE, UNREADABLE_ROW
from antecede.units import count_of

ADDED = ("causal_index", "status", "reason")
"""The columns that the result has beside the table's own."""
EMITTED_AT = "emitted_at"
ADDED_BY_STREAM = (*ADDED, "held_ms", EMITTED_AT)

CLOCK_TYPE = "map<string,bigint>"
DEPENDENCIES_TYPE = "array<struct<origin:string,seq:bigint>>"


class ColumnError(InputError):
    """A column that a table lacks, or has and may not have; `of_file` says it of a file, after its name."""

    def __init__(self, of_events: str, of_file: str) -> None:
        super().__init__(of_events)
        self.of_file = of_file


Roles = Mapping[str, str | None]
"""Names of columns by their roles: group, id, deps, origin, seq, clock, by."""

NUMBER_IN_TEXT = r"\A(-?)([0-9]{1,18})(?:\.([0-9]+))?\z"
"""Text that sorts as numbers: the sign, the digits before the point, the digits after it."""

_INTERNAL = "_antecede_"
_NESTED = ("array<", "map<", "struct<", "variant")
_WHOLE = ("tinyint", "smallint", "int", "bigint")


class Conversion(StrEnum):
    """How a column is derived from one of the table."""

    CAST = "cast"
    LIST = "list"
    """An id or null becomes a list of at most one element; delimited text becomes the list of its parts."""
    PARSE_PAIRS = "origin:seq"
    """A list of texts like origin:seq, or one such text, becomes a list of both."""
    PARSE_WHOLE = "whole number"
    """Text becomes an integer, or null if it is not one."""
    SORTABLE = "sortable"
    """Text becomes a sort key by which numbers sort numerically and precede all other text."""
    COUNTS = "counts"
    """An array of counts becomes a clock: an origin is a place in it."""
    JSON = "json"
    """A JSON text becomes a clock."""


class DerivedColumn(NamedTuple):
    """A column to derive from another."""

    source: str
    conversion: Conversion
    type: str
    is_single: bool = False
    """Whether the source is a single id or text although a list is required."""
    separator: str | None = None
    """The separator, if the source is one text with several parts."""


class ColumnPlan(NamedTuple):
    """The columns to order by, and those among them that must be derived first."""

    columns: Columns
    derived: dict[str, DerivedColumn]

    @property
    def sorted_by(self) -> list[str]:
        """The preferred order of a group's rows."""
        # Text ids have no meaningful order, and comparing them is slower.
        columns = self.columns
        number = columns.id if columns.numbered else None
        return [
            name for name in (columns.by, number, columns.origin, columns.seq, DIGEST) if name is not None
        ]


def plan_columns(
    types: Mapping[str, str], roles: Roles, added: Iterable[str], split: str | None = None
) -> ColumnPlan:
    """Refuse a table that cannot be ordered, naming the column and what was expected.

    `types` are those of the table's columns; `added` are the names of columns that the result adds; `split`
    is the text between two dependencies, if they are one text.
    """
    for role, name in roles.items():
        _refuse_unknown(types, role, name)
    added = list(added)
    for name in types:
        if name.lower() in added or name.startswith(_INTERNAL):
            raise _taken(name, added)
    planner = _Planner(types, roles, split)
    return ColumnPlan(planner.plan(_form(roles)), planner.derived)


def refuse_place(names: Iterable[str]) -> None:
    """Refuse a table that has a column which its reader adds."""
    if PLACE in names:
        raise _taken(PLACE, (PLACE,))


def _taken(name: str, added: Iterable[str]) -> ColumnError:
    theirs = f"their_{name}"
    return ColumnError(
        f"events have a column {name}, a name that the result needs; rename it: "
        f"events.withColumnRenamed('{name}', '{theirs}')",
        f"has a column {name}, a name that the result needs (it adds {', '.join(added)}); rename it in the "
        f"input, as in {theirs}",
    )


def _form(roles: Roles) -> Form:
    present = {role for role, name in roles.items() if name is not None} - {"group", "by"}
    if present == {"id", "deps"}:
        return Form.IDS
    if present == {"origin", "seq", "deps"}:
        return Form.SEQUENCES
    if present == {"origin", "clock"}:
        return Form.CLOCKS
    listed = ", ".join(role for role in roles if role in present) or "none"
    raise InputError(
        "name either id and deps, or origin, seq and deps, or origin and clock: the columns that state a "
        f"row's causes; given: {listed}"
    )


def _refuse_unknown(types: Mapping[str, str], role: str, name: str | None) -> None:
    if name is None:
        return
    if not isinstance(name, str):
        raise InputError(f"{role}: the name of a column is expected, not {name!r}")
    if name not in types:
        own = [each for each in types if each not in (UNREADABLE, UNREADABLE_ROW)]
        near, listed = get_close_matches(name, own, 1), ", ".join(own)
        hint = f"did you mean {near[0]}?" if near else ""
        raise ColumnError(
            f"{role}: events have no column {name}; {hint or f'they have {listed}'}",
            f"has no column {name} (--{role}); {hint or f'it has {listed}'}",
        )


def is_text(kind: str) -> bool:
    return kind.startswith(("string", "char(", "varchar("))


def is_whole(kind: str) -> bool:
    return kind in _WHOLE


def _is_name(kind: str) -> bool:
    return is_text(kind) or is_whole(kind)


def element_type(kind: str) -> str | None:
    """The element type of an array; None if the type is not an array."""
    return kind[len("array<") : -1] if kind.startswith("array<") else None


def _field_types(kind: str) -> list[str]:
    """The types of a struct's fields or of a map's keys and values, if none of them is nested."""
    inner = kind[kind.find("<") + 1 : -1]
    return [] if "<" in inner else [field.rpartition(":")[2] for field in inner.split(",")]


class _Planner:
    """Checks the columns of each role and notes which to derive."""

    def __init__(self, types: Mapping[str, str], roles: Roles, split: str | None) -> None:
        self._types, self._roles, self._split = types, roles, split
        self.derived: dict[str, DerivedColumn] = {}

    def plan(self, form: Form) -> Columns:
        columns = {Form.IDS: self._ids, Form.SEQUENCES: self._sequences, Form.CLOCKS: self._clocks}[form]()
        return columns._replace(group=self._group(), by=self._by())

    def _name(self, role: str) -> str:
        return str(self._roles[role])

    def _type(self, role: str) -> str:
        return self._types[self._name(role)]

    def _refusal(self, role: str, expected: str) -> InputError:
        return InputError(f"{role}: column {self._name(role)} is {self._type(role)}; {expected}")

    def _uniform(self, role: str, wanted: str, conversion: Conversion = Conversion.CAST) -> str:
        """The column itself if it has the required type; otherwise a column derived from it."""
        if self._type(role) == wanted:
            return self._name(role)
        separator = self._split if role == "deps" else None
        is_single = role == "deps" and element_type(self._type(role)) is None
        derived = DerivedColumn(self._name(role), conversion, wanted, is_single, separator)
        self.derived[f"{_INTERNAL}{role}"] = derived
        return f"{_INTERNAL}{role}"

    def _group(self) -> str | None:
        if self._roles["group"] is None:
            return None
        if self._type("group").startswith(_NESTED):
            raise self._refusal("group", "a group is text, a number or a date")
        return self._uniform("group", "string")

    def _by(self) -> str | None:
        if self._roles["by"] is None:
            return None
        if self._type("by").startswith(_NESTED):
            raise self._refusal("by", "expected text, a number or a time")
        if is_text(self._type("by")):
            self.derived[f"{_INTERNAL}by"] = DerivedColumn(self._name("by"), Conversion.SORTABLE, "string")
            return f"{_INTERNAL}by"
        return self._name("by")

    def _deps(self) -> tuple[str | None, str]:
        """The element type of the dependencies, None if there is only one, and that type in any case."""
        kind = self._type("deps")
        element = element_type(kind)
        if self._split is None:
            return element, kind if element is None else element
        if not is_text(kind):
            raise InputError(f"--split: column {self._name('deps')} is {kind}, not text that can be split")
        return None, kind

    def _ids(self) -> Columns:
        kind = self._type("id")
        if not _is_name(kind):
            raise self._refusal("id", "ids are text or whole numbers")
        element, of_one = self._deps()
        if not (is_text(of_one) if is_text(kind) else is_whole(of_one)):
            expected = "text" if is_text(kind) else "whole numbers"
            raise self._refusal(
                "deps",
                f"expected an array of ids like those of {self._name('id')} ({expected}), or one id; 1 is "
                'not "1": cast one of them, in a text file by --schema',
            )
        wanted = "string" if is_text(kind) else "bigint"
        conversion = Conversion.LIST if element is None else Conversion.CAST
        return Columns(
            Form.IDS if is_text(kind) else Form.NUMBERS,
            None,
            id=self._uniform("id", wanted),
            deps=self._uniform("deps", f"array<{wanted}>", conversion),
        )

    def _origin(self) -> str:
        if not _is_name(self._type("origin")):
            raise self._refusal("origin", "an origin is text or a whole number")
        return self._uniform("origin", "string")

    def _sequences(self) -> Columns:
        seq = self._type("seq")
        if not _is_name(seq):
            raise self._refusal("seq", "expected whole numbers, also as text")
        element, of_one = self._deps()
        fields = _field_types(of_one) if element is not None and element.startswith("struct<") else []
        is_pair = len(fields) == 2 and _is_name(fields[0]) and is_whole(fields[1])
        if not is_pair and not is_text(of_one):
            raise self._refusal("deps", "expected an array of (origin, seq), or of text like origin:seq")
        conversion = Conversion.CAST if is_pair else Conversion.PARSE_PAIRS
        return Columns(
            Form.SEQUENCES,
            None,
            origin=self._origin(),
            seq=self._uniform("seq", "bigint", Conversion.PARSE_WHOLE if is_text(seq) else Conversion.CAST),
            deps=self._uniform("deps", DEPENDENCIES_TYPE, conversion),
        )

    def _clocks(self) -> Columns:
        return Columns(
            Form.CLOCKS,
            None,
            origin=self._origin(),
            clock=self._uniform("clock", CLOCK_TYPE, self._clock_conversion()),
        )

    def _clock_conversion(self) -> Conversion:
        kind = self._type("clock")
        if is_whole(element_type(kind) or ""):
            if not is_whole(self._type("origin")):
                raise self._refusal(
                    "origin",
                    f"as the clock {self._name('clock')} is an array, an origin is a place in it, from 0",
                )
            return Conversion.COUNTS
        if is_text(kind):
            return Conversion.JSON
        fields = _field_types(kind) if kind.startswith("map<") else []
        if len(fields) == 2 and _is_name(fields[0]) and is_whole(fields[1]):
            return Conversion.CAST
        raise self._refusal(
            "clock",
            "expected a map from origin to whole numbers, also as JSON text, or an array of whole numbers",
        )


class ColumnFault(StrEnum):
    """What can be wrong with a column of a row, each with the words for it."""

    NO_ID = FAULTS[1]
    BAD_DEPENDENCY = FAULTS[2]
    NO_ORIGIN = FAULTS[3]
    NO_CLOCK = "no clock, or one that cannot be read"
    NO_OWN_ENTRY = FAULTS[5]
    BAD_ENTRY = FAULTS[6]
    NO_NUMBER = FAULTS[7]


def possible_faults(form: Form) -> list[tuple[str, ColumnFault]]:
    """The faults to look for, with the role of the column, in reporting order."""
    if form is Form.SEQUENCES:
        return [
            ("origin", ColumnFault.NO_ORIGIN),
            ("seq", ColumnFault.NO_NUMBER),
            ("deps", ColumnFault.BAD_DEPENDENCY),
        ]
    if form is Form.CLOCKS:
        return [
            ("origin", ColumnFault.NO_ORIGIN),
            ("clock", ColumnFault.NO_CLOCK),
            ("clock", ColumnFault.BAD_ENTRY),
            ("clock", ColumnFault.NO_OWN_ENTRY),
        ]
    return [("id", ColumnFault.NO_ID)]


def unreadable(role: str, name: str | None, count: int, fault: ColumnFault, example: str) -> InputError:
    """The refusal of rows that cannot be read."""
    brief = example if len(example) <= 200 else example[:197] + "..."
    return InputError(
        f"{role}: column {name}: {count_of(count, 'row')} cannot be ordered, as {fault}; one is {brief}; "
        "correct or drop them, or pass check=False to have them quarantined"
    )
