"""Antecede keeps a group's messages in cause-and-effect order.

Live over real sockets, in simulation at any size, and after the fact on Spark, with every causal
protocol behind one interface. Importing this package is cheap and needs no Spark; what an extra
brings is imported when it is first used, with a hint if it is not installed.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from antecede.live.group import Group as Group
    from antecede.live.joining import join as join
    from antecede.live.messages import Held as Held
    from antecede.live.messages import Id as Id
    from antecede.live.messages import Message as Message
    from antecede.live.messages import Notice as Notice
    from antecede.live.settings import Member as Member
    from antecede.live.settings import Rough as Rough
    from antecede.live.store.group_commit import StoreError as StoreError

__version__ = "0.1.0"
_LIVE = {
    "Group": "group",
    "Held": "messages",
    "Id": "messages",
    "Member": "settings",
    "Message": "messages",
    "Notice": "messages",
    "Rough": "settings",
    "StoreError": "commits",
    "join": "joining",
}


def __getattr__(name: str) -> Any:
    if name in _LIVE:
        return getattr(import_module(f"antecede.live.{_LIVE[name]}"), name)
    raise AttributeError(f"module 'antecede' has no attribute '{name}'")
