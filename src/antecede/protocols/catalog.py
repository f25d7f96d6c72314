"""The protocols by name; protocols of the user's own are named as module:Class."""

from __future__ import annotations

import hashlib
import importlib
import inspect
import re
import shlex
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from antecede.errors import InputError
from antecede.protocols.base import LinkRequirements, Protocol
from antecede.protocols.depseq import DepSeq
from antecede.protocols.flooding import Flooding
from antecede.protocols.freescale import Freescale
from antecede.protocols.hcg import Basic, Hcg
from antecede.protocols.mbcp import Mbcp
from antecede.protocols.multigroup import Multigroup
from antecede.protocols.pc import Pc
from antecede.protocols.program import PREFIX, protocol_of_program
from antecede.protocols.timestamp import Timestamp, TimestampDiff
from antecede.protocols.vcube import Vcube, VcubeAgg

PROTOCOLS: dict[str, type[Protocol]] = {
    protocol.name: protocol
    for protocol in (
        Timestamp,
        TimestampDiff,
        Mbcp,
        Multigroup,
        Freescale,
        DepSeq,
        Flooding,
        Pc,
        Hcg,
        Basic,
        Vcube,
        VcubeAgg,
    )
}


def find_protocol(name: str, folder: Path | None = None) -> type[Protocol]:
    """The protocol with this name, the class that `module:Class` names, or the program that `exec:COMMAND`
    starts (`program`).

    A module that is not installed is looked for in `folder`, by default the current one. Python's path has
    that folder, at its end, only while the module is imported: whoever works in somebody else's folder must
    not run the files there.
    """
    if name in PROTOCOLS:
        return PROTOCOLS[name]
    if name.startswith(PREFIX):
        return protocol_of_program(name.removeprefix(PREFIX))
    if ":" not in name:
        known = ", ".join(PROTOCOLS)
        own = "or your own as module:Class or exec:COMMAND"
        raise InputError(f"no protocol '{name}'; there are {known}, {own}")
    module_name, _, class_name = name.partition(":")
    try:
        with _on_path(folder or Path.cwd()):
            found = getattr(importlib.import_module(module_name), class_name)
    except (Exception, SystemExit) as error:  # a user's module may raise anything while it is imported
        where = traceback.extract_tb(error.__traceback__)[-1]
        reason = f"{type(error).__name__}: {error} ({Path(where.filename).name}, line {where.lineno})"
        raise InputError(f"cannot load protocol '{name}': {reason}") from error
    if not (isinstance(found, type) and issubclass(found, Protocol)) or inspect.isabstract(found):
        raise InputError(f"'{name}' is not a concrete subclass of antecede.protocols.Protocol")
    if not isinstance(getattr(found, "links", None), LinkRequirements):
        raise InputError(f"'{name}' does not declare its links: links = LinkRequirements(fifo=...)")
    return found


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


def fingerprint(name: str) -> str:
    """What results depend on besides the protocol's name: a digest of a user's own module, or of the files
    that a command names; empty for ours."""
    if name in PROTOCOLS:
        return ""
    if name.startswith(PREFIX):
        files = [path for path in map(Path, shlex.split(name.removeprefix(PREFIX))) if path.is_file()]
    else:
        source = inspect.getsourcefile(sys.modules[find_protocol(name).__module__])
        files = [Path(source)] if source else []
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest() if files else ""


def as_file_name(name: str) -> str:
    """A protocol's name as the name of a file."""
    return re.sub(r"[^\w-]+", ".", name).strip(".")
