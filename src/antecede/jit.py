"""How kernels are compiled: by numba, once a machine, kept in the user's cache."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numba

_SOURCES = ("jit.py", "sim/kernels/*.py", "sim/chance.py", "sim/workload.py", "trace/in_order.py")
"""All that machine code is made from."""

Function = TypeVar("Function", bound=Callable[..., Any])


def _cache() -> Path:
    """A folder for machine code of these very sources: numba looks only at the file that a function is in,
    and would go on with what it has when another that it calls was changed."""
    here = Path(__file__).parent
    sources = [path for pattern in _SOURCES for path in here.glob(pattern)]
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sorted(sources))).hexdigest()[:12]
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError:
        root = Path(tempfile.gettempdir())
    return root / "antecede" / f"kernels-{digest}"


_settings: Any = numba.config
if not _settings.CACHE_DIR:
    _settings.CACHE_DIR = str(_cache())

_PLAIN: dict[str, Any] = {"cache": True, "error_model": "numpy", "boundscheck": False}
"""C's arithmetic: integers wrap, and no index is checked."""
_HOT: dict[str, Any] = {**_PLAIN, "_nrt": False}
"""Without reference counts, which would take most of the time; so nothing there can make an array."""

_INNER: dict[str, Any] = {**_HOT, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
"""What would let Python call it takes most of the time to compile."""


def _made(function: Function, options: dict[str, Any]) -> Function:
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
