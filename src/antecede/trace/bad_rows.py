"""What is wrong in somebody's file: counted, the first of each kind with its place; or refused, if strict."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from antecede.errors import InputError

_MAX_EXAMPLES = 5
_MAX_CHARACTERS = 120


class BadRowKind(msgspec.Struct):
    """Something that is wrong in several places."""

    what: str
    rows: int
    examples: list[str]
    """The first places, in words."""


class BadRows:
    """Counts what could not be taken as it is from `source`; a strict one raises at the first.

    Without a word on it, it is strict, and there is no --strict to speak of.
    """

    def __init__(self, source: str, strict: bool | None = None) -> None:
        self.source, self.strict = source, strict
        self._found: dict[str, BadRowKind] = {}

    def add(self, what: str, example: str, source: str | None = None, rows: int = 1) -> None:
        """Something is wrong, for `example` at this place of the source, or of a file that is part of it."""
        example = brief(example)
        source = source or self.source
        if self.strict is None:
            raise InputError(f"{source}, {example}")
        if self.strict:
            raise InputError(f"{source}, {example} ({what}); without --strict it is only counted")
        found = self._found.setdefault(what, BadRowKind(what, 0, []))
        found.rows += rows
        if len(found.examples) < _MAX_EXAMPLES:
            found.examples.append(example if source == self.source else f"{source}, {example}")

    def add_all(self, what: str, examples: Iterable[str], rows: int, source: str | None = None) -> None:
        """The same for many rows at once, of which no more examples than needed are looked at."""
        left = rows
        for example in examples:
            if not left:
                return
            last = left == 1 or rows - left + 1 >= _MAX_EXAMPLES
            self.add(what, example, source, rows=left if last else 1)
            left -= left if last else 1

    @property
    def rows(self) -> int:
        return sum(each.rows for each in self._found.values())

    @property
    def found(self) -> list[BadRowKind]:
        """Everything that is wrong, by kind."""
        return list(self._found.values())

    def first(self) -> str:
        """An example in words, for an error that says why nothing is left; empty if nothing is wrong."""
        return next((f"; the first row that is wrong: {each.examples[0]}" for each in self.found), "")


def brief(text: str) -> str:
    """A text of a file's own, short enough for a message."""
    return text if len(text) <= _MAX_CHARACTERS else f"{text[: _MAX_CHARACTERS - 1]}…"
