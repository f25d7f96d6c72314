"""Mutants of `mbcp` and `freescale`: one condition dropped or at its edge, or one update dropped or moved."""

from __future__ import annotations

import importlib
import itertools
import sys
import types
from functools import cache
from pathlib import Path
from typing import NamedTuple

from antecede.protocols.base import Protocol
from mutants import mutants

_FOLDER = Path(importlib.import_module("antecede.protocols").__file__ or "").parent
_FLAT = {"_accept", "_is_delivered", "broadcast", "_record_own", "deliver", "_unmet"}
_MBCP = {"stamp", "on_delivered"}
_FREESCALE = {
    "freescale.internal": {"create_packet", "assign_number", "accept", "deliver"},
    "freescale.external": {
        "is_delivered", "accept", "deliver_next", "dependencies", "broadcast", "deliver", "drop_covered",
    },
    "freescale.super_peer": {
        "_receive_internal", "_forward_internal", "_send_inside", "_translate_outwards", "_forward_external",
        "_translate_causes", "_translate_previous",
    },
    "freescale.protocol": set(),
}  # fmt: skip
FUNCTIONS: dict[str, dict[str, set[str]]] = {
    "mbcp": {"flat": _FLAT, "mbcp": _MBCP},
    "freescale": _FREESCALE,
}
"""For each protocol its modules, in the order in which they import each other, and the functions that read or
write control information. Those that refuse what no correct member sends are not among them."""
_CLASSES = {"mbcp": "Mbcp", "freescale": "Freescale"}
_numbers = itertools.count()


class Mutant(NamedTuple):
    """A protocol with one change."""

    protocol: str
    module: str
    line: int
    what: str
    source: str

    @property
    def name(self) -> str:
        return f"{self.module} {self.what}"

    def load(self) -> type[Protocol]:
        """The protocol with the change: its modules under names of their own."""
        prefix = f"mutant_{next(_numbers)}_"
        names = FUNCTIONS[self.protocol]
        for name in names:
            source = self.source if name == self.module else _read(name)
            for other in names:
                source = source.replace(f"antecede.protocols.{other} ", f"{prefix}{other.replace('.', '_')} ")
            module = types.ModuleType(prefix + name.replace(".", "_"))
            sys.modules[module.__name__] = module  # where the types of fields are looked up
            exec(compile(source, f"{name} with a change", "exec"), module.__dict__)  # noqa: S102
        kind: type[Protocol] = getattr(module, _CLASSES[self.protocol])
        return kind


def _read(module: str) -> str:
    return (_FOLDER / f"{module.replace('.', '/')}.py").read_text(encoding="utf-8")


@cache
def mutants_of(protocol: str, module: str) -> list[Mutant]:
    changed = mutants(_read(module), FUNCTIONS[protocol][module])
    return [Mutant(protocol, module, line, what, source) for line, what, source in changed]
