"""Text as people see it: user-perceived characters, their width, and names cut between them.

A family of four is one picture of seven code points, and a letter may carry several marks. This follows
Unicode's grapheme clusters (UAX 29) as far as names need it: marks, joiners, variation selectors, skin tones
and flags stay with what they belong to.
"""

from __future__ import annotations

import unicodedata

_JOINER = "\u200d"
_KEYCAP = "\u20e3"


def clusters(text: str) -> list[str]:
    """The user-perceived characters of a text.

    >>> len(clusters("a👨‍👩‍👧‍👦e\u0301🇩🇪"))
    4
    """
    found: list[str] = []
    for character in text:
        before = found[-1] if found else ""
        joined = before.endswith(_JOINER) or _completes_flag(before, character)
        if before and (joined or _extends(character)):
            found[-1] += character
        else:
            found.append(character)
    return found


def _extends(character: str) -> bool:
    skin_tone = "\U0001f3fb" <= character <= "\U0001f3ff"
    mark = unicodedata.category(character) in ("Mn", "Me", "Mc")
    return character in (_JOINER, _KEYCAP) or skin_tone or mark


def _completes_flag(before: str, character: str) -> bool:
    return len(before) == 1 and all("\U0001f1e6" <= each <= "\U0001f1ff" for each in (before, character))


def cells(text: str) -> int:
    """How many columns a text takes: two for an emoji or an ideograph, one for any other character.

    >>> cells("ab"), cells("👨‍👩‍👧‍👦"), cells("漢字")
    (2, 2, 4)
    """
    return sum(2 if unicodedata.east_asian_width(each[0]) in "WF" else 1 for each in clusters(text))


def cells_unjoined(text: str) -> int:
    """How many columns a text takes where no font joins its emoji: each is then drawn by itself."""
    return sum(2 if unicodedata.east_asian_width(each) in "WF" else 1 for each in text if not _extends(each))


def shorten(text: str, most: int) -> str:
    """A text of at most `most` columns: without its middle if it is longer.

    >>> shorten("a-service-with-a-very-long-name:17", 22), shorten("👨‍👩‍👧‍👦" * 9, 6)
    ('a-service-…ong-name:17', '👨‍👩‍👧‍👦…👨‍👩‍👧‍👦')
    """
    if cells(text) <= most:
        return text
    whole = clusters(text)
    return f"{_fitting(whole, (most - 1) // 2)}…{_fitting(whole[::-1], most // 2, backwards=True)}"


def _fitting(whole: list[str], most: int, backwards: bool = False) -> str:
    chosen: list[str] = []
    for cluster in whole:
        most -= cells(cluster)
        if most < 0:
            break
        chosen.append(cluster)
    return "".join(chosen[::-1] if backwards else chosen)
