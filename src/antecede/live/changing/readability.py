"""What to do with the next message for the application in an encrypted group."""

from __future__ import annotations

import enum


class Readability(enum.Enum):
    """Decided by `Secrecy.readability`."""

    GIVE = enum.auto()
    SKIP = enum.auto()
    """The message cannot be read here, or is about keys."""
    WAIT = enum.auto()
    """Its key is on its way."""
