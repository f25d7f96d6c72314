"""Collects bad rows of a file: counted by kind, with examples; or refused at the first, if strict."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from antecede.errors import InputError

_MAX_EXAMPLES = 5
_MAX_CHARACTERS = 120


class BadRowKind(msgspec.Struct):
    """Something that is wrong in one or more rows."""

    what: str
    rows: int
    examples: list[str]
    """The first places, in words."""
    left_out: bool = True
    """Whether these rows are missing from what was judged; otherwise only a field of theirs is."""


class BadRows:
    """Counts the rows of `source` that cannot be taken as they are; if strict, raises at the first.

    `strict` is the option --strict; None, for commands without that option, is strict too.
    """

    def __init__(self, source: str, strict: bool | None = None) -> None:
        self.source, self.strict = source, strict
        self._by_kind: dict[str, BadRowKind] = {}

    def add(
        self, what: str, example: str, source: str | None = None, rows: int = 1, left_out: bool = True
    ) -> None:
        """Count `rows` of a kind; the example is a place in the source, or in `source`, a file that is part
        of it."""
        example = brief(example)
        source = source or self.source
        if self.strict is None:
            raise InputError(f"{source}, {example}")
        if self.strict:
            raise InputError(f"{source}, {example} ({what}); without --strict it is only counted")
        kind = self._by_kind.setdefault(what, BadRowKind(what, 0, [], left_out))
        kind.rows += rows
        if len(kind.examples) < _MAX_EXAMPLES:
            kind.examples.append(example if source == self.source else f"{source}, {example}")

    def add_all(
        self,
        what: str,
        examples: Iterable[str],
        rows: int,
        source: str | None = None,
        left_out: bool = True,
    ) -> None:
        """Count many rows at once; no more of the examples are computed than are shown."""
        left = rows
        for example in examples:
            if not left:
                return
            last = left == 1 or rows - left + 1 >= _MAX_EXAMPLES
            self.add(what, example, source, rows=left if last else 1, left_out=left_out)
            left -= left if last else 1

    @property
    def rows(self) -> int:
        return sum(kind.rows for kind in self._by_kind.values())

    @property
    def rows_left_out(self) -> int:
        return sum(kind.rows for kind in self._by_kind.values() if kind.left_out)

    @property
    def kinds(self) -> list[BadRowKind]:
        """Everything that is wrong."""
        return list(self._by_kind.values())

    def first_example(self) -> str:
        """An example for an error message that says why no row is left; empty if nothing is wrong."""
        return next((f"; the first bad row: {kind.examples[0]}" for kind in self.kinds), "")


def brief(text: str) -> str:
    """Text from a file, cut short enough for a message."""
    return text if len(text) <= _MAX_CHARACTERS else f"{text[: _MAX_CHARACTERS - 1]}…"
