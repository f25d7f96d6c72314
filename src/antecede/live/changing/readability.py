"""What becomes of a message of an encrypted group that is next for the application."""

from __future__ import annotations

import enum


class Readability(enum.Enum):
    """Decided by `Secrecy.readability`."""

    GIVE = enum.auto()
    SKIP = enum.auto()
    """It cannot be read here, or is about keys."""
    WAIT = enum.auto()
    """Its key is on the way."""
