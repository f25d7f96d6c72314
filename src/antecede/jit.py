"""How kernels are compiled: by numba, once a machine, kept in the user's cache."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import numba

Function = TypeVar("Function", bound=Callable[..., Any])

_settings: Any = numba.config
_ELSEWHERE = bool(_settings.CACHE_DIR)
"""Whether the user wants machine code to be kept somewhere else."""

_CONSTANTS = ("chance.py", "workload.py")
"""Beside a package of kernels: what else is compiled into them."""


@cache
def _folder(sources: str) -> str:
    """A folder for machine code of these very sources, a file or a package: numba looks only at the file that
    a function is in, and would go on with what it has when another that it calls was changed."""
    here = Path(sources)
    files = sorted(here.glob("*.py")) if here.is_dir() else [here]
    files += [path for name in _CONSTANTS if (path := here.parent / name).exists()]
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()[:12]
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError:
        root = Path(tempfile.gettempdir())
    return str(root / "antecede" / f"{here.stem}-{digest}")


_PLAIN: dict[str, Any] = {"cache": True, "error_model": "numpy", "boundscheck": False}
"""C's arithmetic: integers wrap, and no index is checked."""
_HOT: dict[str, Any] = {**_PLAIN, "_nrt": False}
"""Without reference counts, which would take most of the time; so nothing there can make an array."""

_INNER: dict[str, Any] = {**_HOT, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
"""What would let Python call it takes most of the time to compile."""


def _made(function: Function, options: dict[str, Any]) -> Function:
    if not _ELSEWHERE:
        file = Path(function.__code__.co_filename)
        _settings.CACHE_DIR = _folder(str(file.parent if file.parent.name == "kernels" else file))
    made: Function = numba.njit(**options)(function)
    return made


def compiled(function: Function) -> Function:
    """Machine code for `function`."""
    return _made(function, _PLAIN)


def loop(function: Function) -> Function:
    """The same for a hot loop over arrays that were made before."""
    return _made(function, _HOT)


def part(function: Function) -> Function:
    """A part of a hot loop that is seldom called, and never from Python."""
    return _made(function, _INNER)


def step(function: Function) -> Function:
    """A part of a hot loop, copied into whoever calls it: to hand over dozens of arrays would take longer."""
    return _made(function, {**_INNER, "forceinline": True})
