"""Errors that a person is meant to read: one sentence, what is wrong and what to do about it."""

from __future__ import annotations

import importlib
from types import ModuleType


class AntecedeError(Exception):
    """Anything Antecede says no to. The command line prints it as one line and exits with 2."""


class ProtocolError(AntecedeError):
    """A protocol of the user's own raised something; the message says what and where."""


class InputError(AntecedeError):
    """A file, a field, an option or a configuration that cannot be used as given."""


class MissingExtraError(AntecedeError):
    """A capability whose packages are not installed."""


def require(module: str, extra: str) -> ModuleType:
    """Import `module`, or say which extra of Antecede brings it."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            f"{error.name} is not installed; it comes with: pip install 'antecede[{extra}]'"
        ) from error
