"""Compilation of kernels by numba, with machine code cached between processes.

Numba keys its cache by the file that defines a function. A kernel also compiles in functions and constants of
the modules it imports, so its machine code is stale once any of those changes. Here every module has a cache
folder named by a digest of its own source and of every Antecede module that it imports, directly or not. It
does not matter where the module is: another environment with the same sources finds its code compiled.

Numba is imported when the first kernel is called. With `interpreted()`, kernels run as plain Python without
it: for inputs so small that importing it, and compiling where nothing is cached, would take longer.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import os
import re
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

_MAX_STEPS = 2_000_000
"""The most steps of kernels that run as plain Python: half a second. Importing numba takes 0.3 s, compiling
an audit 6 s."""
_MAX_CALLS = 500_000
"""Calls of kernels by each other, in one piece of work: a second."""
_INTERPRETED: ContextVar[list[int] | None] = ContextVar("interpreted", default=None)
"""The number of further kernel calls allowed as plain Python; None where kernels are compiled."""


@cache
def import_numba() -> Any:
    """Numba, without a parser of YAML.

    With one it would read settings from a `.numba_config.yaml` in the current folder, which may belong to
    another user, and one of them says where compiled code is loaded from.
    """
    yaml = sys.modules.get("yaml")
    sys.modules["yaml"] = None  # type: ignore[assignment]
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "A Numba config file is found")
            return importlib.import_module("numba")
    finally:
        if yaml is None:
            del sys.modules["yaml"]
        else:
            sys.modules["yaml"] = yaml


Function = TypeVar("Function", bound=Callable[..., Any])
Result = TypeVar("Result")

_SOURCE = Path(__file__).parent
_PACKAGE = re.escape(_SOURCE.name)
_IMPORT = re.compile(
    rf"^[ \t]*(?:from ({_PACKAGE}[\w.]*) import (\([^)]*\)|[^\n]*)|import ({_PACKAGE}[\w.]*))", re.MULTILINE
)


def _file(module: str) -> Path | None:
    """The source of a module of this package; None if there is no such module."""
    path = _SOURCE.parent.joinpath(*module.split("."))
    if path.is_dir():
        return path / "__init__.py"
    file = path.with_suffix(".py")
    return file if file.exists() else None


@cache
def _imports(file: Path) -> frozenset[Path]:
    """The sources that `file` imports by itself.

    A package counts only if a name comes from its `__init__`. The façade of Antecede imports nothing that a
    kernel compiles in: it re-exports the API of live groups.
    """
    if file == _SOURCE / "__init__.py":
        return frozenset()
    found = set()
    for package, names, module in _IMPORT.findall(file.read_text(encoding="utf-8")):
        if module:
            found.add(_file(module))
        for name in re.findall(r"\w+(?: as \w+)?", names):
            found.add(_file(f"{package}.{name.partition(' ')[0]}") or _file(package))
    return frozenset(path for path in found if path is not None)


@cache
def _digest(file: Path) -> bytes:
    return hashlib.sha256(file.read_bytes()).digest()


def sources(file: Path) -> set[Path]:
    """`file` and every Antecede source that it imports, directly or not."""
    found, pending = {file}, [file]
    while pending:
        new = _imports(pending.pop()) - found
        found |= new
        pending += new
    return found


@cache
def _private_folder() -> Path:
    return Path(tempfile.mkdtemp(prefix="antecede-cache-"))


@cache
def cache_folder(file: Path) -> str:
    """The folder for the machine code of `file`: a new one whenever any of its `sources` changes.

    It is under NUMBA_CACHE_DIR if that is set, otherwise under the user's cache folder.
    """
    digest = hashlib.sha256(b"".join(sorted(map(_digest, sources(file))))).hexdigest()[:12]
    root = Path(_user_cache_dir() or os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError:
        # Not a folder that others could have created and filled: numba executes what it finds in its cache.
        root = _private_folder()
    return str(root / "antecede" / f"{file.stem}-{digest}")


@contextmanager
def reported_compilation(report: Callable[[bool], None]) -> Iterator[None]:
    """Call `report` with True where code is compiled, and with False when compilation ends; not for cached
    code."""
    import_numba()
    event = importlib.import_module("numba.core.event")

    class CompilationListener(event.Listener):  # type: ignore[misc, name-defined]
        def on_start(self, _: Any) -> None:
            report(True)

        def on_end(self, _: Any) -> None:
            report(False)

    with event.install_listener("numba:compile", CompilationListener()):
        yield


_PLAIN: dict[str, Any] = {"cache": True, "error_model": "numpy", "boundscheck": False}
"""C's arithmetic: integers wrap, and no index is checked."""
_HOT: dict[str, Any] = {**_PLAIN, "_nrt": False}
"""No reference counts, which would take most of the time; such functions cannot create arrays."""
_INNER: dict[str, Any] = {**_HOT, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
"""No wrappers for calls from Python, which take most of the compile time."""
_LOCATOR = "KernelCacheLocator"


def __getattr__(name: str) -> Any:
    """The class by whose name numba finds where machine code is kept; created when numba is imported."""
    if name == _LOCATOR:
        return _locator()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


@cache
def _locator() -> Any:
    caching = import_numba().core.caching
    # In older releases the name begins with an underscore; those may not know CACHE_LOCATOR_CLASSES.
    base = getattr(caching, "UserProvidedCacheLocator", None) or caching._UserProvidedCacheLocator

    class KernelCacheLocator(base):  # type: ignore[misc, valid-type]
        """Puts machine code into `CACHE_DIR` itself; numba would add a folder for the path of the source."""

        @classmethod
        def get_suitable_cache_subpath(cls, py_file: str) -> str:
            return ""

    return KernelCacheLocator


@cache
def _user_cache_dir() -> str:
    """The user's NUMBA_CACHE_DIR, or "": read once, since `_compile` sets `CACHE_DIR` for every module."""
    return str(import_numba().config.CACHE_DIR)


def _compile(function: Callable[..., Any], options: dict[str, Any]) -> Any:
    numba = import_numba()
    settings = numba.config
    settings.CACHE_DIR = cache_folder(Path(function.__code__.co_filename))
    others = getattr(settings, "CACHE_LOCATOR_CLASSES", "")
    settings.CACHE_LOCATOR_CLASSES = f"{__name__}.{_LOCATOR}"
    try:
        return numba.njit(**options)(function)
    finally:
        settings.CACHE_LOCATOR_CLASSES = others


class CompiledFunction:
    """A function that is compiled when it is first called, by Python or by another kernel."""

    __name__: str

    def __init__(self, function: Callable[..., Any], options: dict[str, Any]) -> None:
        functools.update_wrapper(self, function)
        self._function = function
        self._options = options

    @functools.cached_property
    def compiled(self) -> Any:
        """Numba's dispatcher of the function."""
        return _compile(self._function, self._options)

    @property
    def _numba_type_(self) -> Any:
        """The type by which numba recognises a kernel that another kernel calls."""
        return self.compiled._numba_type_

    def __call__(self, *arguments: Any) -> Any:
        calls_left = _INTERPRETED.get()
        if calls_left is None:
            return self.compiled(*arguments)
        calls_left[0] -= 1
        if calls_left[0] < 0:
            raise TooManyCalls
        return self._function(*arguments)

    def __reduce__(self) -> str:
        return self.__name__


@contextmanager
def interpreted(most_calls: int = 1 << 62) -> Iterator[None]:
    """Run kernels as plain Python, up to this many calls; one more is a `TooManyCalls`.

    The results are the same where no number overflows; a test compares them for all kernels that run this
    way.
    """
    before = _INTERPRETED.set([most_calls])
    try:
        yield
    finally:
        _INTERPRETED.reset(before)


class TooManyCalls(Exception):  # noqa: N818
    """Work in plain Python takes longer than estimated."""


class _Interpreter:
    """How much work this process has run as plain Python."""

    def __init__(self) -> None:
        self._steps = 0

    def takes(self, steps: int) -> bool:
        """Whether this many more steps are within the limit."""
        if sys.modules.get("numba") is not None or self._steps + steps > _MAX_STEPS:
            return False
        self._steps += steps
        return True


_INTERPRETER = _Interpreter()


def interpreted_if_quick(work: Callable[[], Result], steps: int) -> Result:
    """Run some work with kernels as plain Python if it takes few steps, and compiled otherwise.

    `steps` is an estimate for the usual case, and is added to what this process has already run as plain
    Python; if numba is already imported, everything is compiled. If far more kernels are called than
    estimated, the work is done again, compiled; so it must start from the beginning each time.
    """
    if _INTERPRETER.takes(steps):
        try:
            with interpreted(_MAX_CALLS):
                return work()
        except TooManyCalls:
            pass
    return work()


def njit_plain(function: Function) -> Function:
    """Compile a function that Python calls and that may create arrays."""
    return cast(Function, CompiledFunction(function, _PLAIN))


def njit_hot(function: Function) -> Function:
    """Compile a hot loop over arrays that its caller created."""
    return cast(Function, CompiledFunction(function, _HOT))


def njit_inner(function: Function) -> Function:
    """Compile a rarely called part of a hot loop; Python cannot call it."""
    return cast(Function, CompiledFunction(function, _INNER))


def njit_inline(function: Function) -> Function:
    """Compile a part of a hot loop and inline it: passing dozens of arrays would cost more."""
    return cast(Function, CompiledFunction(function, {**_INNER, "forceinline": True}))
