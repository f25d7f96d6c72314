"""Errors meant for people: one sentence that says what is wrong and how to correct it."""

from __future__ import annotations

import importlib
from types import ModuleType


class AntecedeError(Exception):
    """The base of every error raised on purpose. The command line prints it as one line and exits with 2."""


class InputError(AntecedeError):
    """A file, field, option or configuration that cannot be used. The message names it."""


class ProtocolError(AntecedeError):
    """User-defined code, such as a protocol or a delay, raised an exception or returned an invalid value.

    The message says which and where.
    """


class SparkError(AntecedeError):
    """Spark itself failed. The message names its log."""


class StoreError(AntecedeError):
    """A live member's store cannot be written: it accepts nothing more; what it had accepted is safe."""


class MissingExtraError(AntecedeError):
    """A feature whose packages are not installed. The message names the extra that brings them."""


def missing_extra(package: str, extra: str) -> str:
    """What to do about a package that is not installed.

    This environment has Antecede already, from wherever it came, so pip adds only the extra's packages.
    """
    return f"{package} is not installed; {install_extra(extra)}"


def install_extra(extra: str) -> str:
    return f"add the extra {extra} to this environment: pip install 'antecede[{extra}]'"


def require(module: str, extra: str) -> ModuleType:
    """Import `module`, or raise `MissingExtraError` with the extra to install."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        # Without the failed import, a traceback is about the extra alone.
        raise MissingExtraError(missing_extra(error.name or module, extra)) from None
