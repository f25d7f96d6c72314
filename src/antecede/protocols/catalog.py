"""The protocols by name; user-defined protocols are named as module:Class."""

from __future__ import annotations

import hashlib
import re
import shlex
from difflib import get_close_matches
from pathlib import Path

from antecede import user_classes
from antecede.errors import InputError
from antecede.protocols.base import Protocol
from antecede.protocols.depseq import DepSeq
from antecede.protocols.flooding import Flooding
from antecede.protocols.freescale import Freescale
from antecede.protocols.hcg import Basic, Hcg
from antecede.protocols.mbcp import Mbcp
from antecede.protocols.multigroup import Multigroup
from antecede.protocols.own_class import find_mistake
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
    """The protocol with this name, the class that `module:Class` names (`user_classes`), or the program that
    `exec:COMMAND` starts (`program`). A module that is not installed is looked for in `folder`."""
    if name in PROTOCOLS:
        return PROTOCOLS[name]
    if name.startswith(PREFIX):
        return protocol_of_program(name.removeprefix(PREFIX))
    if ":" not in name:
        known = ", ".join(PROTOCOLS)
        own = "or your own as module:Class or exec:COMMAND"
        near = get_close_matches(name, PROTOCOLS, 1)
        meant = f"did you mean {near[0]}? There" if near else "there"
        raise InputError(f"no protocol '{name}'; {meant} are {known}, {own}")
    found: type[Protocol] = user_classes.load_class(name, Protocol, "protocol", folder)  # type: ignore[type-abstract]
    if mistake := find_mistake(found):
        raise InputError(f"'{name}' {mistake}")
    return found


def fingerprint(name: str) -> str:
    """What results depend on besides the protocol's name: a digest of a user's module, or of the files that a
    command names; empty for built-in protocols."""
    if name in PROTOCOLS:
        return ""
    if name.startswith(PREFIX):
        files = [path for path in map(Path, shlex.split(name.removeprefix(PREFIX))) if path.is_file()]
        return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest() if files else ""
    return user_classes.fingerprint([name])


def as_file_name(name: str) -> str:
    """A protocol's name in a form usable as a file name."""
    return re.sub(r"[^\w-]+", ".", name).strip(".")
