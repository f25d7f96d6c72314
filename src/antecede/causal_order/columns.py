"""Which columns of a DataFrame say what depends on what: checked before anything runs, and made uniform."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from antecede.causal_order.dependency_edges import FAULTS, Columns, Form
from antecede.causal_order.rules import DIGEST
from antecede.errors import InputError

_FORMS = (
    "say either id and deps, or origin, seq and deps, or origin and clock: the columns that tell a row's "
    "causes"
)
_OWN = "_antecede_"
_NESTED = (T.ArrayType, T.MapType, T.StructType, T.VariantType)


class Prepared(NamedTuple):
    """Events with uniform columns beside their own, which have `plain` names."""

    frame: DataFrame
    columns: Columns
    made: list[str]
    """Columns that are not the caller's."""
    sorted_by: list[str]
    """The order of a group's rows, as far as their causes allow."""


def prepare(events: DataFrame, said: dict[str, str | None], added: Iterable[str]) -> Prepared:
    """Refuse what cannot be ordered, naming the column and what was expected; add what tasks need.

    `said` names the columns by their roles, `added` are names that the outcome adds.
    """
    for role, name in said.items():
        _refuse_unknown(events, role, name)
    for name in events.columns:
        if name.lower() in added or name.startswith(_OWN):
            raise InputError(f"events have a column {name} already, which is to be added; rename theirs")
    form = _form(said)
    work = _Work(events, said)
    columns = {Form.IDS: _ids, Form.STREAMS: _streams, Form.CLOCKS: _clocks}[form](work)
    columns = columns._replace(group=_group(work), by=_by(work))
    work.made[DIGEST] = _digest(events, said)
    # Text ids have no order that means something, and to compare them takes longer.
    columns = Columns(columns.form, *(None if name is None else plain(name) for name in columns[1:]))
    identity = (columns.id if columns.numbered else None, columns.origin, columns.seq, DIGEST)
    frame = events.withColumns(work.made)
    return Prepared(
        frame.toDF(*map(plain, frame.columns)),
        columns,
        list(work.made),
        [name for name in (columns.by, *identity) if name is not None],
    )


def _form(given: dict[str, str | None]) -> Form:
    said = {role for role, name in given.items() if name is not None} - {"group", "by"}
    if said == {"id", "deps"}:
        return Form.IDS
    if said == {"origin", "seq", "deps"}:
        return Form.STREAMS
    if said == {"origin", "clock"}:
        return Form.CLOCKS
    told = ", ".join(role for role in given if role in said) or "none"
    raise InputError(f"{_FORMS}; given: {told}")


def _refuse_unknown(events: DataFrame, role: str, name: str | None) -> None:
    if name is None:
        return
    if not isinstance(name, str):
        raise InputError(f"{role}: the name of a column is expected, not {name!r}")
    if name not in events.columns:
        near = get_close_matches(name, events.columns, 1)
        hint = f"did you mean {near[0]}?" if near else f"they have {', '.join(events.columns)}"
        raise InputError(f"{role}: events have no column {name}; {hint}")


class _Work:
    """The events' columns by their roles, and those that are made of them."""

    def __init__(self, events: DataFrame, said: dict[str, str | None]) -> None:
        self._schema = events.schema
        self._said = said
        self.made: dict[str, Column] = {}

    def has(self, role: str) -> bool:
        return self._said[role] is not None

    def name(self, role: str) -> str:
        return str(self._said[role])

    def kind(self, role: str) -> T.DataType:
        return self._schema[self.name(role)].dataType

    def column(self, role: str) -> Column:
        return F.col(quoted(self.name(role)))

    def refusal(self, role: str, expected: str) -> InputError:
        return InputError(f"{role}: column {self.name(role)} is {self.kind(role).simpleString()}; {expected}")

    def uniform(self, role: str, wanted: str, made: Column | None = None) -> str:
        """The column's own name if it is as wanted, or that of one that is made so."""
        if self.kind(role).simpleString() == wanted:
            return self.name(role)
        self.made[f"{_OWN}{role}"] = (self.column(role) if made is None else made).cast(wanted)
        return f"{_OWN}{role}"


def quoted(name: str) -> str:
    """A column's name as SQL takes it, whatever is in it."""
    return "`" + name.replace("`", "``") + "`"


def plain(name: str) -> str:
    """A column's name as Spark hands it to Python: mapInArrow reads dots and backticks as syntax."""
    return name.replace("%", "%25").replace(".", "%2E").replace("`", "%60")


def _is_text(kind: T.DataType) -> bool:
    return isinstance(kind, T.StringType | T.CharType | T.VarcharType)


def _is_whole(kind: T.DataType) -> bool:
    return isinstance(kind, T.ByteType | T.ShortType | T.IntegerType | T.LongType)


def _is_name(kind: T.DataType) -> bool:
    return _is_text(kind) or _is_whole(kind)


def _group(work: _Work) -> str | None:
    if not work.has("group"):
        return None
    if isinstance(work.kind("group"), _NESTED):
        raise work.refusal("group", "a group is text, a number or a date")
    return work.uniform("group", "string")


def _ids(work: _Work) -> Columns:
    kind, listed = work.kind("id"), work.kind("deps")
    if not _is_name(kind):
        raise work.refusal("id", "ids are text or whole numbers")
    text = _is_text(kind)
    element = listed.elementType if isinstance(listed, T.ArrayType) else listed
    if not (_is_text(element) if text else _is_whole(element)):
        expected = "text" if text else "whole numbers"
        raise work.refusal(
            "deps", f"expected an array of ids like those of {work.name('id')} ({expected}), or one id"
        )
    wanted = "string" if text else "bigint"
    column = work.column("deps")
    one = F.filter(F.array(column), lambda value: value.isNotNull())
    return Columns(
        Form.IDS if text else Form.NUMBERS,
        None,
        id=work.uniform("id", wanted),
        deps=work.uniform("deps", f"array<{wanted}>", column if isinstance(listed, T.ArrayType) else one),
    )


def _origin(work: _Work) -> str:
    if not _is_name(work.kind("origin")):
        raise work.refusal("origin", "an origin is text or a whole number")
    return work.uniform("origin", "string")


def _streams(work: _Work) -> Columns:
    if not _is_whole(work.kind("seq")):
        raise work.refusal("seq", "expected whole numbers")
    listed = work.kind("deps")
    element = listed.elementType if isinstance(listed, T.ArrayType) else None
    made = work.column("deps")
    if element is not None and _is_text(element):
        made = F.transform(made, _parted)
    elif not (
        isinstance(element, T.StructType)
        and len(element) == 2
        and _is_name(element[0].dataType)
        and _is_whole(element[1].dataType)
    ):
        raise work.refusal("deps", "expected an array of (origin, seq), or of text like origin:seq")
    return Columns(
        Form.STREAMS,
        None,
        origin=_origin(work),
        seq=work.uniform("seq", "bigint"),
        deps=work.uniform("deps", "array<struct<origin:string,seq:bigint>>", made),
    )


def _parted(text: Column) -> Column:
    number = F.substring_index(text, ":", -1)
    return F.struct(F.left(text, F.length(text) - F.length(number) - 1), number.try_cast("bigint"))


def _clocks(work: _Work) -> Columns:
    kind = work.kind("clock")
    made = work.column("clock")
    if isinstance(kind, T.ArrayType) and _is_whole(kind.elementType):
        if not _is_whole(work.kind("origin")):
            raise work.refusal(
                "origin", f"as the clock {work.name('clock')} is an array, an origin is a place in it, from 0"
            )
        made = F.map_from_entries(
            F.transform(made, lambda count, place: F.struct(place.cast("string"), count))
        )
    elif _is_text(kind):
        made = F.from_json(made, "map<string,bigint>")
    elif not (isinstance(kind, T.MapType) and _is_name(kind.keyType) and _is_whole(kind.valueType)):
        raise work.refusal(
            "clock",
            "expected a map from origin to whole numbers, also as JSON text, or an array of whole numbers",
        )
    return Columns(
        Form.CLOCKS, None, origin=_origin(work), clock=work.uniform("clock", "map<string,bigint>", made)
    )


def _by(work: _Work) -> str | None:
    if not work.has("by"):
        return None
    if isinstance(work.kind("by"), _NESTED):
        raise work.refusal("by", "expected text, a number or a time")
    return work.name("by")


def _digest(events: DataFrame, said: dict[str, str | None]) -> Column:
    """Tells rows of one id apart, so that which of them stays does not depend on which came first."""
    hashed: list[Column] = []
    for field in events.schema:
        column = F.col(quoted(field.name))
        # Spark's hash takes no maps, and passes nulls over, so that a value may as well be in another place.
        if field.name == said["clock"] and isinstance(field.dataType, T.MapType):
            column = F.map_entries(column)
        elif isinstance(field.dataType, _NESTED) and field.name not in (said["deps"], said["clock"]):
            column = F.to_json(F.struct(column), {"ignoreNullFields": "false"})
        hashed += [column.isNull(), column]
    return F.xxhash64(*hashed)


def refuse_unreadable(prepared: Prepared, said: dict[str, str | None]) -> None:
    """Look for rows that do not say who they are or what they depend on: one pass over these columns."""
    columns = prepared.columns

    def column(name: str | None) -> Column:
        return F.col(quoted(str(name)))

    faults: list[tuple[str, str, Column]] = []
    if columns.form in (Form.IDS, Form.NUMBERS):
        faults.append(("id", FAULTS[1], column(columns.id).isNull()))
    else:
        faults.append(("origin", FAULTS[3], column(columns.origin).isNull()))
    if columns.seq is not None:
        faults.append(("seq", FAULTS[7], F.coalesce(column(columns.seq), F.lit(-1)) < 0))
    if columns.deps is not None:
        broken = F.exists(column(columns.deps), _is_null if columns.seq is None else _lacks_a_part)
        faults.append(("deps", FAULTS[2], F.coalesce(broken, F.lit(False))))
    if columns.clock is not None:
        clock = column(columns.clock)
        faults += [
            ("clock", "no clock, or one that cannot be read", clock.isNull()),
            (
                "clock",
                FAULTS[6],
                F.exists(F.map_values(clock), lambda count: count.isNull() | (count < 0)),
            ),
            (
                "clock",
                FAULTS[5],
                F.coalesce(F.element_at(clock, column(columns.origin)), F.lit(0)) <= 0,
            ),
        ]
    many = prepared.frame.agg(*(F.count_if(fault).alias(str(n)) for n, (_, _, fault) in enumerate(faults)))
    for found in many.collect():
        for count, (role, text, fault) in zip(found, faults, strict=True):
            if count:
                example = prepared.frame.where(fault).drop(*prepared.made).first()
                raise InputError(
                    f"{role}: column {said[role]}: {count:,} rows cannot be ordered, as {text}; one is "
                    f"{_brief(example)}; mend or drop them, or say check=False to have them quarantined"
                )


def _is_null(one: Column) -> Column:
    return one.isNull()


def _lacks_a_part(one: Column) -> Column:
    return one.isNull() | one["origin"].isNull() | one["seq"].isNull()


def _brief(row: object) -> str:
    text = str(row)
    return text if len(text) <= 200 else text[:197] + "..."


def added_columns(stream: bool) -> dict[str, T.DataType]:
    """What the outcome has beside the events' own columns."""
    kinds: dict[str, T.DataType] = {
        "causal_index": T.LongType(),
        "status": T.StringType(),
        "reason": T.StringType(),
    }
    return kinds | ({"held_ms": T.LongType()} if stream else {})
