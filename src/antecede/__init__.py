"""Antecede keeps a group's messages in causal order: no message is delivered before its cause.

This package is the API of live groups:

    async with antecede.join("room", me="ana", peers=["bo@bo.example:7000"], store="ana-store") as group:
        await group.broadcast("shall we?")
        async for message in group: ...

The other public modules are imported by name: `antecede.protocols` (the protocols as state machines),
`antecede.sim` (the simulator), `antecede.trace` (traces on disk), `antecede.transactions` (verdicts on
histories of transactions) and `antecede.spark` (DataFrame functions). docs/api-stability.md says what may
change between versions.

Importing this package is cheap and needs no extra: names below are loaded when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from antecede.errors import (
    AntecedeError,
    InputError,
    MissingExtraError,
    ProtocolError,
    SparkError,
    StoreError,
)

if TYPE_CHECKING:
    from antecede.live.changing.phone_group import CutOffError
    from antecede.live.group import Group
    from antecede.live.joining import join
    from antecede.live.messages import HeldMessage, Message, MessageId, Notice, ParkedMessage
    from antecede.live.overlapping.node import Node, connect
    from antecede.live.problems import Problem
    from antecede.live.requests import RequestError
    from antecede.live.settings import FaultInjection, Member, Settings
    from antecede.live.view import MemberChange, View, ViewMember
    from antecede.protocols.base import LocalError, RemoteError

__version__ = "0.1.0"
__all__ = [
    "AntecedeError",
    "CutOffError",
    "FaultInjection",
    "Group",
    "HeldMessage",
    "InputError",
    "LocalError",
    "Member",
    "MemberChange",
    "Message",
    "MessageId",
    "MissingExtraError",
    "Node",
    "Notice",
    "ParkedMessage",
    "Problem",
    "ProtocolError",
    "RemoteError",
    "RequestError",
    "Settings",
    "SparkError",
    "StoreError",
    "View",
    "ViewMember",
    "connect",
    "join",
]

_MODULES = {
    "CutOffError": "antecede.live.changing.phone_group",
    "FaultInjection": "antecede.live.settings",
    "Group": "antecede.live.group",
    "HeldMessage": "antecede.live.messages",
    "LocalError": "antecede.protocols.base",
    "Member": "antecede.live.settings",
    "MemberChange": "antecede.live.view",
    "Message": "antecede.live.messages",
    "MessageId": "antecede.live.messages",
    "Node": "antecede.live.overlapping.node",
    "Notice": "antecede.live.messages",
    "ParkedMessage": "antecede.live.messages",
    "Problem": "antecede.live.problems",
    "RemoteError": "antecede.protocols.base",
    "RequestError": "antecede.live.requests",
    "Settings": "antecede.live.settings",
    "View": "antecede.live.view",
    "ViewMember": "antecede.live.view",
    "connect": "antecede.live.overlapping.node",
    "join": "antecede.live.joining",
}
"""Where each lazy name is defined."""
_PUBLIC_MODULES = ("protocols", "sim", "spark", "trace", "transactions")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


# Hidden from type checkers, so that a misspelt name is an error for them.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name in _MODULES:
            value = globals()[name] = getattr(import_module(_MODULES[name]), name)
            return value
        if name in _PUBLIC_MODULES:
            hint = f"; write: import antecede.{name}"
        else:
            from difflib import get_close_matches

            similar = get_close_matches(name, __all__, n=1)
            hint = f"; did you mean {similar[0]}?" if similar else ""
        raise AttributeError(f"module 'antecede' has no attribute '{name}'{hint}")
