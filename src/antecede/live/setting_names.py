"""Error messages for misspelt settings, with the one that was probably meant, and for wrong types."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any

import msgspec

from antecede.errors import InputError
from antecede.terminal import printable
from antecede.units import parse_bytes

_WRONG_TYPE = re.compile(
    r"Expected `(?P<wanted>[^`]+)`, got `(?P<got>[^`]+)`(?: - at `\$\.?(?P<where>[^`]*)`)?"
)
_MISSING = re.compile(r"Object missing required field `(?P<name>[^`]+)`(?: - at `\$\.?(?P<where>[^`]*)`)?")
_WORDS = {
    "str": "a text",
    "int": "a number",
    "float": "a number",
    "bool": "true or false",
    "array": "a list",
    "object": "a table",
    "null": "nothing",
}
_SHOWN = 40
_EXAMPLES = {
    "me": '"ana"',
    "group": '"room"',
    "heartbeat": '"3s"',
    "suspect_after": '"10s"',
    "remove_after": '"7d"',
    "forget_after": '"7d"',
    "retain": '"7d" or "100MB"',
    "store": '"ana-store"',
    "limit": '"32MB"',
    "park": '"1GB"',
    "peers": '"bo@host:7000"',
    "founders": '"bo@host:7000"',
    "contact": '"bo@host:7000"',
    "super_peers": '"bo@host:7000"',
}
_ADDRESSES = ("listen", "web", "metrics")
SIZES = ("limit", "park")
"""Settings that are numbers of bytes, or a text such as "32MB"."""


def refuse_unknown(names: Iterable[str], known: Iterable[str], where: str = "") -> None:
    """Raise an `InputError` for the first name that is no setting.

    >>> refuse_unknown(["lsten"], ["me", "listen"], "join: ")
    Traceback (most recent call last):
    antecede.errors.InputError: join: unknown setting lsten; did you mean listen?
    """
    settings = [*known]
    for name in names:
        if name not in settings:
            similar = get_close_matches(name, settings, n=1)
            hint = f"; did you mean {similar[0]}?" if similar else ""
            raise InputError(f"{where}unknown setting {name}{hint}")


def parse_sizes(values: dict[str, Any]) -> None:
    """Replace sizes such as "32MB" by their numbers of bytes."""
    for name in SIZES:
        if isinstance(values.get(name), str):
            try:
                values[name] = parse_bytes(values[name])
            except InputError as error:
                raise InputError(f"{name}: {error}") from None


def explain(error: msgspec.ValidationError, values: Mapping[str, Any]) -> InputError:
    """A wrong or missing value in words.

    >>> from antecede.live.settings import Settings
    >>> Settings.create(group="room", me="ana", listen=7102)
    Traceback (most recent call last):
    antecede.errors.InputError: listen: 7102 is a number; write a text, such as ":7102"
    """
    if (missing := _MISSING.fullmatch(str(error))) is not None:
        name, where = missing["name"], missing["where"]
        example = f", such as {_EXAMPLES[name]}" if name in _EXAMPLES and not where else ""
        return InputError(f"{where + ': ' if where else ''}`{name}` is missing; write a text{example}")
    wrong = _WRONG_TYPE.fullmatch(str(error))
    if wrong is None or not wrong["where"]:
        return InputError(str(error))
    where = wrong["where"]
    field = re.split(r"[.\[]", where)[0]
    wanted = [each for each in wrong["wanted"].split(" | ") if each != "null"]
    words = " or ".join(dict.fromkeys(_WORDS.get(each, each) for each in wanted))
    value = values.get(field) if where == field else None
    shown = "it" if value is None else printable(repr(value))[:_SHOWN]
    example = f'":{value}"' if field in _ADDRESSES and wrong["got"] == "int" else _EXAMPLES.get(field, "")
    got = _WORDS.get(wrong["got"], wrong["got"])
    words = "a whole number" if words == got else words
    return InputError(f"{where}: {shown} is {got}; write {words}{', such as ' + example if example else ''}")
