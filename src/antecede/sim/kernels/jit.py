"""How kernels are compiled: by numba, once a machine, kept in a cache beside the source."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numba

Function = TypeVar("Function", bound=Callable[..., Any])

_PLAIN: dict[str, Any] = {"cache": True, "error_model": "numpy", "boundscheck": False}
"""C's arithmetic: integers wrap, and no index is checked."""
_HOT: dict[str, Any] = {**_PLAIN, "_nrt": False}
"""Without reference counts, which would take most of the time; so nothing there can make an array."""


def _made(function: Function, options: dict[str, Any]) -> Function:
    made: Function = numba.njit(**options)(function)
    return made


def compiled(function: Function) -> Function:
    """Machine code for `function`."""
    return _made(function, _PLAIN)


def loop(function: Function) -> Function:
    """The same for a hot loop over arrays that were made before."""
    return _made(function, _HOT)


def step(function: Function) -> Function:
    """A part of a hot loop, copied into whoever calls it: to hand over dozens of arrays would take longer."""
    return _made(function, {**_HOT, "forceinline": True})
