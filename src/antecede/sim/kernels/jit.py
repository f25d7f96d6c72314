"""How kernels are compiled: by numba, once a machine, kept in a cache beside the source."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(function: Function) -> Function:
    """Machine code for `function`, with C's arithmetic: integers wrap, and no index is checked."""
    return cast(Function, numba.njit(cache=True, error_model="numpy", boundscheck=False)(function))
