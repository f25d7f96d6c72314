"""Error messages for misspelt settings, with the one that was probably meant."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from antecede.errors import InputError


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
