"""Text from outside, made safe for a terminal or a log that a person reads.

Names, message bodies, reasons and fields of files are chosen by others. Printed as they are, they could move
the cursor, change the window title, hide or reverse what stands beside them, or forge a line of a log.
"""

from __future__ import annotations

import re

_UNPRINTABLE = re.compile(
    "["
    "\x00-\x1f\x7f"  # C0 controls and DEL: escape sequences, line breaks, backspaces
    "\x80-\x9f"  # C1 controls: one character starts an escape sequence
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # directions of text: they reorder what is shown
    "\u2028\u2029"  # separators of lines and paragraphs
    "\u200b\u2060\ufeff"  # characters without width: two names that look the same
    "\ufff9-\ufffb"  # annotations
    "\ud800-\udfff"  # halves of surrogate pairs: they cannot be encoded
    "\U000e0000-\U000e007f"  # tags: text that is not shown at all
    "]"
)


def printable(text: str) -> str:
    r"""The text with control characters, changes of direction and line separators as escapes.

    What can be shown stays as it is, backslashes included.

    >>> print(printable("a\x1b[2Jb\u202ec\n"), printable("grüße 🙂"))
    a\x1b[2Jb\u202ec\x0a grüße 🙂
    """
    return text if text.isascii() and text.isprintable() else _UNPRINTABLE.sub(_escape, text)


def printable_json(line: str) -> str:
    r"""The same for a line of JSON, which stays JSON of the same value.

    >>> print(printable_json('"a\x7f\u202e"'))
    "a\u007f\u202e"
    """
    return _UNPRINTABLE.sub(_escape_in_json, line)


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _escape_in_json(match: re.Match[str]) -> str:
    units = match[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))
