"""Types of the columns of JSON lines, chosen so that the written form of every value is preserved.

Texts are text, whole numbers bigint, truth values boolean. A column with other values (fractions, objects,
lists) or with values of several kinds is JSON text, exactly as in the file. Columns that name rows are never
of several kinds: 1 and "1" are not one id unless a schema says so.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from antecede.causal_order.columns import ColumnError, Roles
from antecede.errors import InputError
from antecede.trace.bad_rows import brief
from antecede.trace.validate import MAX_WHOLE

TEXT, WHOLE, TRUTH, NUMBER = "text", "whole numbers", "truth values", "other numbers"
LIST, OBJECT = "lists", "objects"
_BY_FIRST_BYTE = {ord('"'): TEXT, ord("["): LIST, ord("{"): OBJECT, ord("t"): TRUTH, ord("f"): TRUTH}
_NULL = ord("n")
_WHOLE_NUMBER = re.compile(rb"-?[1-9][0-9]{0,18}|0")
_DIGITS = re.compile(r"-?[0-9]+")
_PLAIN_NAME = re.compile("[^:,<>]+")
_TYPES = {TEXT: "string", WHOLE: "bigint", TRUTH: "boolean"}
_IN_LISTS = "lists of "
_MAX_EXAMPLE = 200

Kinds = dict[str, str]
"""The kinds of a column's values, each with the first example of it."""


def add_kinds(kinds: dict[str, Kinds], row: Mapping[str, msgspec.Raw], listed: str | None) -> None:
    """Record the kinds of a row's values; for the column `listed`, also those of the elements of lists."""
    for name, raw in row.items():
        value = bytes(raw)
        own = kinds.get(name)
        if own is None:
            own = kinds[name] = {}
        kind = _kind(value)
        if kind is not None and kind not in own:
            own[kind] = _example(value)
        if name == listed and kind == LIST:
            for element in msgspec.json.decode(value, type=list[msgspec.Raw]):
                value = bytes(element)
                kind = _kind(value)
                if kind is not None and _IN_LISTS + kind not in own:
                    own[_IN_LISTS + kind] = _fields(value) if kind == OBJECT else _example(value)


def merge_kinds(kinds: dict[str, Kinds], later: Mapping[str, Kinds]) -> None:
    """Add the kinds of later rows."""
    for name, own in later.items():
        kinds[name] = own | kinds.get(name, {})


def _kind(value: bytes) -> str | None:
    first = value[0]
    if first == _NULL:
        return None
    known = _BY_FIRST_BYTE.get(first)
    if known is not None:
        return known
    fits = _WHOLE_NUMBER.fullmatch(value) and -(2**63) <= int(value) < 2**63
    return WHOLE if fits else NUMBER


def _example(value: bytes) -> str:
    return brief(value[:_MAX_EXAMPLE].decode(errors="replace"))


def _fields(value: bytes) -> str:
    """The names of an object's fields, as JSON."""
    return msgspec.json.encode(list(msgspec.json.decode(value, type=dict[str, msgspec.Raw]))).decode()


def infer_types(kinds: Mapping[str, Kinds], schema: Mapping[str, str], roles: Roles) -> dict[str, str]:
    """The type of each column; those of `schema` are given."""
    given = {name: kind.replace("string", "text") for name, kind in schema.items()}
    by_name = {name: role for role, name in roles.items() if name is not None}
    types = {
        name: given[name] if name in given else _infer(name, own, by_name.get(name, ""), roles)
        for name, own in kinds.items()
    }
    deps = roles["deps"]
    if deps in types and deps not in given and not kinds[deps].keys() - {LIST}:
        # Only nulls and empty lists.
        types[deps] = "array<bigint>" if types.get(str(roles["id"])) == "bigint" else "array<string>"
    return types


def _infer(name: str, kinds: Kinds, role: str, roles: Roles) -> str:
    if role in ("id", "origin"):
        if kinds.keys() <= {TEXT} or kinds.keys() <= {WHOLE}:
            return "bigint" if WHOLE in kinds else "string"
        raise _mixed(role, name, kinds, f"; to compare them as text, give --schema '{name} string'")
    if role == "clock":
        by_kind = {TEXT: "string", OBJECT: "map<string,bigint>", LIST: "array<bigint>"}
        if len(kinds) > 1 or not kinds.keys() <= by_kind.keys():
            raise _mixed(role, name, kinds, "")
        return next((by_kind[kind] for kind in kinds), "string")
    if role == "deps":
        return _infer_deps(name, kinds, roles)
    if len(kinds) > 1:
        return "json"
    return next((_TYPES.get(kind, "json") for kind in kinds), "string")


def _infer_deps(name: str, kinds: Kinds, roles: Roles) -> str:
    elements = {kind.removeprefix(_IN_LISTS): example for kind, example in kinds.items() if kind != LIST}
    if not elements:
        return "array<string>"
    if elements.keys() == {OBJECT} and OBJECT not in kinds:
        fields = msgspec.json.decode(elements[OBJECT], type=list[str])
        if set(fields) == {roles["origin"], roles["seq"]}:
            fields = [str(roles["origin"]), str(roles["seq"])]
        if len(fields) != 2 or not all(map(_PLAIN_NAME.fullmatch, fields)):
            return "json"
        return f"array<struct<{fields[0]}:string,{fields[1]}:bigint>>"
    if elements.keys() not in ({TEXT}, {WHOLE}):
        raise _mixed("deps", name, kinds, f"; to compare them as text, give --schema '{name} array<string>'")
    (kind,) = elements
    return f"array<{_TYPES[kind]}>" if LIST in kinds else _TYPES[kind]


def _mixed(role: str, name: str, kinds: Kinds, remedy: str) -> InputError:
    number = kinds.get(NUMBER, kinds.get(_IN_LISTS + NUMBER, ""))
    if _DIGITS.fullmatch(number):
        return ColumnError(
            f"{role}: column {name} has {number}, which is beyond the whole numbers of 64 bits{remedy}",
            f"has {number} in column {name} (--{role}), which is beyond the whole numbers of 64 bits, up to "
            f"{MAX_WHOLE}{remedy}",
        )
    present = " and ".join(f"{kind} ({brief(example)})" for kind, example in kinds.items() if kind != LIST)
    return InputError(
        f"{role}: column {name} has {present or 'lists'}; rows are named by text or by whole numbers, "
        f'and 1 is not "1"{remedy}'
    )
