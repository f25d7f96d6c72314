"""User-defined classes, named as `module:Class`: protocols, delays, networks, overlays and so on.

Parameters are written behind the name, as `mine:Bursty,mean=20ms,burst=5` or `mine:Bursty{"burst": 5}`; in
TOML and Python also as a table, `{class = "mine:Bursty", mean = "20ms", burst = 5}`. They are the keyword
arguments of the class; a value that is valid JSON is parsed, any other is text.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
import json
import re
import sys
import traceback
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, TypeVar

from antecede.errors import InputError

T = TypeVar("T")

_NAMED = re.compile(r"\s*[A-Za-z_][\w.]*:[A-Za-z_]\w*\s*(?=[,{]|$)")
_NEXT_PARAMETER = re.compile(r",\s*(?=[A-Za-z_]\w*\s*=)")

_folder: ContextVar[Path | None] = ContextVar("folder of the user's modules and files", default=None)


class Spec(NamedTuple):
    """What a text or a table names: a built-in part or a class, and its parameters."""

    name: str
    parameters: dict[str, Any]


def names_user_class(text: str) -> bool:
    """Whether a text names a class, with or without parameters.

    >>> names_user_class("mine:Bursty,mean=20ms"), names_user_class("wild:1us-1s"), names_user_class("ring")
    (True, False, False)
    """
    return bool(_NAMED.match(text))


def parse_spec(text: str) -> Spec:
    """The name and the parameters in a text.

    >>> parse_spec("mine:Bursty, mean=20ms, burst=5")
    Spec(name='mine:Bursty', parameters={'mean': '20ms', 'burst': 5})
    >>> parse_spec('routed{"multicast": true}')
    Spec(name='routed', parameters={'multicast': True})
    """
    name, brace, rest = text.partition("{")
    if brace and "," not in name:
        try:
            parameters = json.loads(brace + rest)
        except (ValueError, RecursionError) as error:
            raise InputError(f"'{text[:80]}': what follows {name.strip()} is not JSON: {error}") from error
        return Spec(name.strip(), parameters)
    name, *parts = _NEXT_PARAMETER.split(text)
    if "," in name:
        raise InputError(f"'{text[:80]}': parameters are written as name=value, with commas between them")
    parameters = {}
    for part in parts:
        key, _, value = part.partition("=")
        parameters[key.strip()] = _parse_value(value.strip())
    return Spec(name.strip(), parameters)


def _parse_value(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def write_spec(name: str, parameters: Mapping[str, Any]) -> str:
    """The text that `parse_spec` reads.

    >>> write_spec("mine:Bursty", {"mean": "20ms", "burst": 5}), write_spec("mine:Bursty", {"at": [1, 2]})
    ('mine:Bursty,mean=20ms,burst=5', 'mine:Bursty{"at": [1, 2]}')
    """
    if not parameters:
        return name
    values = [value if isinstance(value, str) else json.dumps(value) for value in parameters.values()]
    short = ",".join([name, *map("=".join, zip(parameters, values, strict=True))])
    is_simple = not any(mark in value for value in values for mark in ",{")
    if is_simple and parse_spec(short) == (name, dict(parameters)):
        return short
    return name + json.dumps(parameters)


@contextmanager
def user_folder(folder: Path) -> Iterator[None]:
    """Look for the user's modules and files in `folder`, not in the current one."""
    token = _folder.set(folder)
    try:
        yield
    finally:
        _folder.reset(token)


def user_file(name: str) -> Path:
    """A file that a scenario names, relative to the user's folder."""
    return (_folder.get() or Path.cwd()) / name


def load_class(name: str, base: type[T], kind: str, folder: Path | None = None) -> type[T]:
    """The subclass of `base` that `module:Class` names; `kind` is what errors call it.

    A module that is not installed is looked for in `folder`, by default the user's. Python's path includes
    that folder, at its end, only while the module is imported: working in another user's folder must not run
    the files there. A module that was imported here is imported again once its file has changed, so that
    results are those of the source that their key depends on.
    """
    module_name, _, class_name = name.partition(":")
    if not module_name or not class_name or module_name.startswith(".") or "/" in module_name:
        raise InputError(f"cannot load {kind} '{name}': it is written as module:Class")
    if module_name.endswith(".py"):
        written = f"{module_name.removesuffix('.py')}:{class_name}"
        raise InputError(f"cannot load {kind} '{name}': write {written}, without .py")
    where = folder or _folder.get() or Path.cwd()
    try:
        with _on_path(where):
            module = _import(module_name)
    except (Exception, SystemExit) as error:  # A user's module may raise anything while it is imported.
        is_absent = isinstance(error, ModuleNotFoundError) and error.name == module_name.partition(".")[0]
        absent = f"no {module_name}.py in {where}, and no such module is installed"
        remedy = _NO_INIT if "cannot define __init__" in str(error) else ""
        raise InputError(
            f"cannot load {kind} '{name}': {absent if is_absent else what_was_raised(error) + remedy}"
        ) from error
    if not hasattr(module, class_name):
        raise InputError(f"cannot load {kind} '{name}': {module_name} has no {class_name}")
    found = getattr(module, class_name)
    public = f"{'.'.join(base.__module__.split('.')[:2])}.{base.__name__}"
    if not (isinstance(found, type) and issubclass(found, base)):
        lacking = sorted(method for method in _abstract(base) if not hasattr(found, method))
        without = f" and lacks {_listed(lacking)}" if lacking else ""
        raise InputError(f"'{name}' is not a subclass of {public}{without}")
    if missing := sorted(_abstract(found)):
        them = "it" if len(missing) == 1 else "them"
        raise InputError(f"'{name}' lacks {_listed(missing)}: a subclass of {public} must define {them}")
    return found


def create(text: str, base: type[T], kind: str, **arguments: Any) -> T:
    """An object of the class that a text names: from the values of `arguments`, by position, and the
    parameters of the text, by name."""
    spec = parse_spec(text)
    found = load_class(spec.name, base, kind)
    try:
        return found(*arguments.values(), **spec.parameters)
    except (Exception, SystemExit) as error:
        reason = str(error) if isinstance(error, InputError) else what_was_raised(error)
        if isinstance(error, TypeError) and error.__traceback__ and error.__traceback__.tb_next is None:
            known = _parameters(found)[len(arguments) :]
            named = [f"{name}={name}" for name in spec.parameters]
            reason = f"{error}; it is called as {found.__name__}({', '.join([*arguments, *named])})"
            if set(spec.parameters) - set(known):
                reason = f"{error}; its parameters are: {', '.join(known) or 'none'}"
        raise InputError(f"cannot create {kind} '{text}': {reason}") from error


def _parameters(found: type) -> list[str]:
    """The names of the parameters with which an object of a class is created."""
    try:
        return list(inspect.signature(found).parameters)
    except (TypeError, ValueError):  # A class in C may have none that can be read.
        return []


def fingerprint(names: Iterable[str]) -> str:
    """A digest of the source of the modules of these classes, on which results depend; empty without any."""
    files = set()
    for name in names:
        for module in {name.partition(":")[0], load_class(name, object, "class").__module__}:
            try:
                files.add(inspect.getsourcefile(sys.modules[module]) or "")
            except TypeError:  # A module without a file.
                continue
    sources = [Path(file).read_bytes() for file in sorted(files) if file]
    return hashlib.sha256(b"".join(sources)).hexdigest() if sources else ""


def what_was_raised(error: BaseException) -> str:
    """An exception in the user's code, and where it was raised."""
    where = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({Path(where.filename).name}, line {where.lineno})"


_imported: dict[str, tuple[int, int]] = {}
"""The modules imported here, with the size and modification time of their files."""


def _import(name: str) -> ModuleType:
    before = sys.dont_write_bytecode
    # Stored byte code is used if its time agrees with the file's to the second, which is too coarse.
    sys.dont_write_bytecode = True
    try:
        if name not in sys.modules:
            module = importlib.import_module(name)
            _imported[name] = _stamp(module)
        elif name in _imported and _stamp(sys.modules[name]) != _imported[name]:
            module = importlib.reload(sys.modules[name])
            _imported[name] = _stamp(module)
        return sys.modules[name]
    finally:
        sys.dont_write_bytecode = before


def _stamp(module: ModuleType) -> tuple[int, int]:
    try:
        status = Path(module.__file__ or "").stat()
    except OSError:
        return (0, 0)
    return status.st_size, status.st_mtime_ns


def _abstract(found: type) -> frozenset[str]:
    return getattr(found, "__abstractmethods__", frozenset())


_NO_INIT = (
    "; leave it out: the fields of the class are its state, and what depends on me and size is set in "
    "__post_init__"
)


def _listed(names: list[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


@contextmanager
def _on_path(folder: Path) -> Iterator[None]:
    entry = str(folder)
    added = entry not in sys.path
    if added:
        sys.path.append(entry)
    try:
        yield
    finally:
        if added and entry in sys.path:
            sys.path.remove(entry)
