"""EDN, the notation of Clojure's data, as much of it as histories need.

Maps are dictionaries, vectors, lists and sets are lists, keywords and symbols are text, tags are dropped.
Nothing recurses: what is open is on a stack of bounded depth.

>>> list(parse_edn('#jepsen.history.Op{:type :ok, :value [[:r 1 nil] [:w 2 "a"]]} ; done'))
[{'type': 'ok', 'value': [['r', 1, None], ['w', 2, 'a']]}]
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from antecede.errors import InputError

_TOKEN = re.compile(
    r"""[\s,]+|;[^\n]*|(?P<open>\#\{|[\[({])|(?P<close>[\])}])|(?P<text>"(?:[^"\\]|\\.)*")"""
    r"""|(?P<discard>\#_)|(?P<tag>\#[\w.*+!?<>=/-]+)|(?P<char>\\(?:[A-Za-z]\w*|\S))|(?P<atom>[^\s,;"\\\[\](){}\#]+)""",
    re.DOTALL,
)
_CLOSING = {"[": "]", "(": ")", "{": "}", "#{": "}"}
_NUMBER = re.compile(r"[+-]?\d{1,4000}N?")
_DECIMAL = re.compile(r"[+-]?\d+(?:\.\d*)?(?:[eE][+-]?\d+)?M?")
_WORDS = {"nil": None, "true": True, "false": False}
_MAX_DEPTH = 200


class _OpenForm:
    """A collection that is not closed yet."""

    __slots__ = ("bracket", "discard", "values")

    def __init__(self, bracket: str, discard: bool) -> None:
        self.bracket, self.discard = bracket, discard
        self.values: list[Any] = []


def parse_edn(text: str) -> Iterator[Any]:
    """The values of a text, one after the other."""
    stack: list[_OpenForm] = []
    discard, at = 0, 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise InputError(f"line {text.count(chr(10), 0, at) + 1}: {text[at : at + 20]!r} is not EDN")
        at = match.end()
        kind = match.lastgroup
        if kind is None or kind == "tag":
            continue
        if kind == "discard":
            discard += 1
            continue
        if kind == "open":
            if len(stack) == _MAX_DEPTH:
                raise InputError(f"more than {_MAX_DEPTH} brackets are open at once")
            stack.append(_OpenForm(match["open"], discard > 0))
            discard = max(discard - 1, 0)
            continue
        if kind == "close":
            if not stack or _CLOSING[stack[-1].bracket] != match["close"]:
                raise InputError(
                    f"line {text.count(chr(10), 0, at) + 1}: a bracket is closed that is not open"
                )
            form = stack.pop()
            value, dropped = _collection(form), form.discard
        else:
            value, dropped = _atom(match), discard > 0
            discard = max(discard - 1, 0)
        if dropped:
            continue
        if stack:
            stack[-1].values.append(value)
        else:
            yield value
    if stack:
        raise InputError("it ends within brackets: it was cut off")


def _collection(form: _OpenForm) -> Any:
    if form.bracket != "{":
        return form.values
    if len(form.values) % 2:
        raise InputError("a map has a key without a value")
    keys = form.values[::2]
    if not all(isinstance(key, str | int | float | None) for key in keys):
        keys = [key if isinstance(key, str | int | float | None) else str(key) for key in keys]
    return dict(zip(keys, form.values[1::2], strict=True))


def _atom(match: re.Match[str]) -> Any:
    if match["text"] is not None:
        try:
            return json.loads(match["text"].replace("\n", "\\n"), strict=False)
        except ValueError as error:
            raise InputError(f"{match['text'][:20]} is not a text of EDN") from error
    if match["char"] is not None:
        return match["char"][1:]
    word = match["atom"]
    if word in _WORDS:
        return _WORDS[word]
    if _NUMBER.fullmatch(word):
        return int(word.rstrip("N"))
    if _DECIMAL.fullmatch(word):
        return float(word.rstrip("M"))
    return word.removeprefix(":")
