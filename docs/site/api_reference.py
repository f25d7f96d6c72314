"""The reference of the public modules, from their docstrings, signatures and fields.

A name is public if the module's `__all__` has it. Annotations are shown as they are written in the source.
"""

from __future__ import annotations

import ast
import enum
import inspect
import itertools
import re
import textwrap
from collections.abc import Iterator
from importlib import import_module

from antecede.protocols import Protocol

MODULES = (
    "antecede",
    "antecede.spark",
    "antecede.trace",
    "antecede.transactions",
    "antecede.sim",
    "antecede.protocols",
)
_WIDTH = 88


_INDENTED = re.compile(r"(?<=\n\n)(?:(?: {4}.*|(?=\n {4}))(?:\n|\Z))+")


def _doc(value: object) -> str:
    """A docstring as Markdown. Indented blocks become code that is coloured."""
    text = (inspect.getdoc(value) or "").strip()
    return _INDENTED.sub(lambda block: _fence(textwrap.dedent(block[0]).strip()), text)


def _own_doc(cls: type) -> str:
    """Not what is inherited, or what `dataclass` and msgspec write for classes without one."""
    said = cls.__dict__.get("__doc__") or ""
    if said and not said.startswith(f"{cls.__name__}("):
        return inspect.cleandoc(said)
    # The class of a module that is about nothing else.
    return _doc(import_module(cls.__module__)) if issubclass(cls, Protocol) else ""


def _fence(code: str) -> str:
    return f"```python\n{code}\n```\n"


def _readable(part: object) -> str:
    """A signature or parameter with names as the source has them: no quotes, no modules."""
    text = re.sub(r"ForwardRef\(('[^']*')\)", r"\1", str(part))
    text = re.sub(r"(: |-> )'([^']*)'", r"\1\2", text)
    text = re.sub(r"\b(?:[a-z_]\w*\.)+(?=[A-Z])", "", text)
    return text.replace("<factory>", "...")


def _signature(name: str, call: object, *, without_self: bool = False) -> str:
    try:
        signature = inspect.signature(call)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return name
    parameters = list(signature.parameters.values())
    if without_self and parameters and parameters[0].name in ("self", "cls"):
        signature = signature.replace(parameters=parameters[1:])
    text = _readable(signature)
    shown = f"{name}{text}"
    if len(shown) <= _WIDTH:
        return shown
    returns = "" if signature.return_annotation is inspect.Signature.empty else text.rpartition(" -> ")[2]
    lines, star = [], False
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and not star:
            lines.append("*")
            star = True
        star = star or parameter.kind is parameter.VAR_POSITIONAL
        lines.append(_readable(parameter))
    body = "".join(f"    {line},\n" for line in lines)
    return f"{name}(\n{body})" + (f" -> {returns}" if returns else "")


def _fields(cls: type) -> Iterator[tuple[str, str, str]]:
    """The annotated public fields that a class's own source declares: name, annotation, docstring."""
    try:
        (tree,) = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
    except (OSError, TypeError, ValueError):
        return
    if not isinstance(tree, ast.ClassDef):
        return
    for node, after in zip(tree.body, [*tree.body[1:], None], strict=True):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            said = ""
            if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
                said = inspect.cleandoc(str(after.value.value))
            default = f" = {ast.unparse(node.value)}" if node.value is not None else ""
            if not node.target.id.startswith("_"):
                yield node.target.id, ast.unparse(node.annotation) + default, said


def _members(cls: type) -> Iterator[tuple[str, object]]:
    """Public methods and properties, those of our own base classes first."""
    ours = [base for base in reversed(cls.__mro__) if base.__module__.startswith("antecede")]
    names = dict.fromkeys(name for base in ours for name in vars(base) if not name.startswith("_"))
    for name in names:
        value = inspect.getattr_static(cls, name)
        if isinstance(value, property | staticmethod | classmethod) or inspect.isfunction(value):
            yield name, value


def _class(cls: type, documented: set[type]) -> Iterator[str]:
    bases = [base.__name__ for base in cls.__bases__ if base.__module__.startswith("antecede")]
    yield _own_doc(cls) + "\n"
    if bases:
        yield f"A subclass of `{'`, `'.join(bases)}`.\n"
    if issubclass(cls, BaseException):
        return
    if issubclass(cls, enum.Enum):
        yield "\n".join(f"- `{item.name}`" for item in cls) + "\n"
        return
    fields = list(_fields(cls))
    if fields:
        lines = [
            f"- `{field}: {kind}`" + (f": {' '.join(said.split())}" if said else "")
            for field, kind, said in fields
        ]
        yield "\n".join(lines) + "\n"
    for member, value in _members(cls):
        inherited = any(member in vars(base) for base in cls.__mro__[1:] if base in documented)
        said = getattr(value, "__doc__", None) if member in vars(cls) else None
        if said or not inherited:
            yield from _member(cls, member, value)


def _member(cls: type, name: str, value: object) -> Iterator[str]:
    if isinstance(value, property):
        returns = getattr(value.fget, "__annotations__", {}).get("return", "")
        yield f"### {cls.__name__}.{name}\n"
        yield _fence(f"{name}: {returns}" if returns else name)
        yield _doc(value) + "\n"
        return
    function = getattr(value, "__func__", value)
    kind = "async " if inspect.iscoroutinefunction(function) else ""
    static = isinstance(value, staticmethod)
    yield f"### {cls.__name__}.{name}\n"
    yield _fence(kind + _signature(name, function, without_self=not static))
    yield _doc(function) + "\n"


def _name(module: str, name: str, documented: set[type]) -> Iterator[str]:
    value = getattr(import_module(module), name)
    yield f"## {name}\n"
    if inspect.isclass(value):
        if not issubclass(value, BaseException | enum.Enum):
            yield _fence(f"class {_signature(name, value)}")
        yield from _class(value, documented)
    elif callable(value):
        kind = "async " if inspect.iscoroutinefunction(value) else ""
        yield _fence(kind + _signature(name, value))
        yield _doc(value) + "\n"
    else:
        yield _fence(f"{name}: {type(value).__name__}")
        if said := _constant_doc(module, name):
            yield said + "\n"


def _constant_doc(module: str, name: str) -> str:
    """The string below the assignment of a constant, in the module that defines it."""
    package = import_module(module)
    source = import_module(getattr(package, "_MODULES", {}).get(name, module))
    body = ast.parse(inspect.getsource(source)).body
    for node, after in itertools.pairwise(body):
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        found = isinstance(target, ast.Name) and target.id == name
        if found and isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            return inspect.cleandoc(str(after.value.value))
    return ""


def api_reference(module: str) -> str:
    """The page of a public module: values that can be called first, then errors."""
    public = import_module(module)
    names = sorted(public.__all__, key=lambda name: (name.endswith("Error"), name.lower()))
    lines = [f"# {module}", "", _doc(public), ""]
    documented = {value for name in names if inspect.isclass(value := getattr(public, name))}
    for name in names:
        lines += _name(module, name, documented)
    return "\n".join(lines).rstrip() + "\n"


def undocumented(module: str) -> list[str]:
    """Public functions and classes without a docstring of their own."""
    public = import_module(module)
    values = [(name, getattr(public, name)) for name in public.__all__]
    return [
        name
        for name, value in values
        if (inspect.isclass(value) and not _own_doc(value)) or (inspect.isfunction(value) and not _doc(value))
    ]
