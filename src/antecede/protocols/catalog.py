"""The protocols by name; and anyone's own, as module:Class."""

from __future__ import annotations

import importlib

from antecede.errors import InputError
from antecede.protocols.base import Protocol
from antecede.protocols.mbcp import Mbcp
from antecede.protocols.timestamp import Timestamp, TimestampDiff

PROTOCOLS: dict[str, type[Protocol]] = {
    protocol.name: protocol for protocol in (Timestamp, TimestampDiff, Mbcp)
}


def find(name: str) -> type[Protocol]:
    """The protocol called `name`, or the class that `module:Class` names."""
    if name in PROTOCOLS:
        return PROTOCOLS[name]
    if ":" not in name:
        known = ", ".join(PROTOCOLS)
        raise InputError(f"no protocol '{name}'; there are {known}, or your own as module:Class")
    module_name, _, class_name = name.partition(":")
    try:
        found = getattr(importlib.import_module(module_name), class_name)
    except (ImportError, AttributeError) as error:
        raise InputError(f"cannot load protocol '{name}': {error}") from error
    if not (isinstance(found, type) and issubclass(found, Protocol)):
        raise InputError(f"'{name}' is not a subclass of antecede.protocols.base.Protocol")
    return found
