r"""Templates such as `{topic}-{partition}`, which locate values in a record by paths in braces.

A path has names with a dot between two; one with a dot or a bracket in it is quoted: `resource."host.name"`.
`[]` after a name means every element of a list, or of a text that is a list or words; `[0]` is the first
element. A name that meets a list is looked up among its pairs: lists of `{key, value}`, of `[key, value]`, or
of keys and values in turn, as programs write headers and attributes.

>>> Template("{topic}-{partition}").values({"topic": "orders", "partition": 3})
['orders-3']
>>> Template('{links[].trace}:{links[].span}').values({"links": [{"trace": "a", "span": 1}, {"trace": "b"}]})
['a:1']
>>> Template('{headers."ce.id"}').values({"headers": [{"key": "ce.id", "value": "7"}]})
['7']
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from typing import Any

import msgspec

from antecede.errors import InputError

MISSING: Any = object()
"""The result for a path that does not exist; a null does exist."""

_PART = re.compile(r"\{\{|\}\}|\{((?:[^{}\"]|\"[^\"]*\")*)\}|([^{}]+)|(.)", re.DOTALL)
_STEP = re.compile(r"\"([^\"]+)\"|([^.\"\[\]]+)")
_BARE_NAME = re.compile(r"[^.\"\[\]{}]+")
_BRACKETS = re.compile(r"\[(\d*)\]")
_MAX_INDEX_DIGITS = 9
_WORD = re.compile(r"[^ \t\n\v\f\r]+")
"""Names separated by ASCII white space; other white space is part of a name."""
_QUOTED = re.compile(r"'([^']*)'")
_QUOTED_LIST = re.compile(r"\[\s*'[^']*'(?:\s*,\s*'[^']*')*\s*\]")
_ANY_VALUE = frozenset({"stringValue", "intValue", "boolValue", "doubleValue", "bytesValue"})
"""The one field of a value in OTLP's JSON."""

Step = str | int | None
"""A name, a place in a list, or None for every element."""


def parse_path(text: str) -> tuple[Step, ...]:
    """The steps of a path."""
    steps: list[Step] = []
    at, expect_name = 0, True
    while at < len(text):
        if expect_name:
            match = _STEP.match(text, at)
            if match is None:
                break
            steps.append(match[1] or match[2])
            expect_name = False
        elif text[at] == ".":
            at, expect_name = at + 1, True
            continue
        else:
            match = _BRACKETS.match(text, at)
            if match is None or len(match[1]) > _MAX_INDEX_DIGITS:
                break
            steps.append(int(match[1]) if match[1] else None)
        at = match.end()
    if at < len(text) or expect_name:
        raise InputError(
            f"'{text}' is not a path; write names with dots between them, as in headers.id, "
            'resource."host.name" or links[].spanId'
        )
    return tuple(steps)


def quoted_name(name: str) -> str:
    """A name as a path has it.

    >>> quoted_name("author"), quoted_name("host.name")
    ('author', '"host.name"')
    """
    return name if _BARE_NAME.fullmatch(name) else f'"{name}"'


def find(value: Any, steps: Sequence[Step]) -> Any:
    """The value at a path: a list if a step is `[]`, MISSING if there is none."""
    for place, step in enumerate(steps):
        if isinstance(step, str):
            value = value.get(step, MISSING) if isinstance(value, dict) else _among_pairs(value, step)
        elif step is None:
            if isinstance(value, str):
                value = _elements(value)
            if not isinstance(value, list):
                return MISSING
            rest = steps[place + 1 :]
            return [find(element, rest) for element in value]
        else:
            value = value[step] if isinstance(value, list) and step < len(value) else MISSING
        if value is MISSING:
            return MISSING
    return value


def _elements(text: str) -> list[Any]:
    """The elements of a list in a field of CSV: JSON, quoted as ClickHouse and Python do it, or words."""
    inner = text.strip()
    if inner.startswith("[") and inner.endswith("]"):
        try:
            return msgspec.json.decode(inner, type=list[str | int])
        except (msgspec.DecodeError, UnicodeError):
            if _QUOTED_LIST.fullmatch(inner):
                return _QUOTED.findall(inner)
    return _WORD.findall(text)


def _among_pairs(value: Any, name: str) -> Any:
    if not isinstance(value, list) or not value:
        return MISSING
    first = value[0]
    if isinstance(first, dict):
        for each in value:
            if isinstance(each, dict):
                if each.get("key", MISSING) == name:
                    return each.get("value", MISSING)
                if len(each) == 1 and name in each:
                    return each[name]
    elif isinstance(first, list | tuple):
        for each in value:
            if isinstance(each, list | tuple) and len(each) == 2 and each[0] == name:
                return each[1]
    elif isinstance(first, str):
        for place in range(0, len(value) - 1, 2):
            if value[place] == name:
                return value[place + 1]
    return MISSING


def as_text(value: Any) -> str | None:
    """A value as the text of a name; None if it is missing, or has parts."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return value.hex()
    if isinstance(value, dict) and len(value) == 1:
        ((name, inner),) = value.items()
        return as_text(inner) if name in _ANY_VALUE else None
    return None


def _getter(steps: tuple[Step, ...]) -> Callable[[Any], Any]:
    """A function that finds what is at a path; one or two names in dictionaries, the usual case, quickly."""
    match steps:
        case (str(name),):
            return lambda record: record.get(name, MISSING) if type(record) is dict else find(record, steps)
        case (str(outer), str(name)):

            def get(record: Any) -> Any:
                inner = record.get(outer) if type(record) is dict else None
                return inner.get(name, MISSING) if type(inner) is dict else find(record, steps)

            return get
        case _:
            return lambda record: find(record, steps)


class Template:
    """A text with paths in braces; `{{` and `}}` are literal braces. A value in `nothing` counts as none.

    `values` takes a record, and returns none, one, or with `[]` several values. Empty values count as none.
    """

    def __init__(self, text: str, nothing: Collection[str] = ()) -> None:
        self._nothing = frozenset(nothing)
        parts: list[str | tuple[Step, ...]] = []
        for match in _PART.finditer(text):
            if match[1] is not None:
                parts.append(parse_path(match[1]))
            elif match[3] is not None:
                raise InputError(f"'{text}': a brace is not closed; write {{{{ for a brace itself")
            else:
                parts.append(match[2] or match[0][0])
        paths = [part for part in parts if not isinstance(part, str)]
        self.path = paths[0] if len(parts) == len(paths) == 1 and None not in paths[0] else None
        """The path, if the template is a single path to a single value."""
        if any(path.count(None) > 1 for path in paths):
            raise InputError(f"'{text}': a path has [] once")
        # For each part: its text, or how to get it, and whether it is a list.
        self._parts = [
            (part, None, False) if isinstance(part, str) else ("", _getter(part), None in part)
            for part in parts
        ]
        self.values = self._many if any(None in path for path in paths) else self._one

    def _text(self, value: Any) -> str | None:
        text = value if type(value) is str else as_text(value)
        return None if text in self._nothing else text

    def _one(self, record: Any) -> list[str]:
        texts = []
        for constant, get, _ in self._parts:
            text = constant if get is None else self._text(get(record))
            if not text:
                return []
            texts.append(text)
        return ["".join(texts)]

    def _many(self, record: Any) -> list[str]:
        columns: list[Any] = []
        size: int | None = None
        for constant, get, several in self._parts:
            found = constant if get is None else get(record)
            if several:
                if not found or not isinstance(found, list):
                    return []
                size = len(found) if size is None else min(size, len(found))
                columns.append([self._text(each) for each in found])
            else:
                columns.append(constant or self._text(found))
        values = []
        for row in range(size or 0):
            texts = [column[row] if isinstance(column, list) else column for column in columns]
            if all(texts):
                values.append("".join(texts))
        return values
