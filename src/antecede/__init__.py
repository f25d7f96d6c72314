"""Antecede keeps a group's messages in cause-and-effect order.

Live over real sockets, in simulation at any size, and after the fact on Spark, with every causal
protocol behind one interface. Importing this package is cheap and needs no Spark; what an extra
brings is imported when it is first used, with a hint if it is not installed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from antecede.node.group import Group as Group
    from antecede.node.group import Message as Message
    from antecede.node.group import join as join

__version__ = "0.1.0"
_LIVE = ("Group", "Message", "join")


def __getattr__(name: str) -> Any:
    if name in _LIVE:
        from antecede.node import group

        return getattr(group, name)
    raise AttributeError(f"module 'antecede' has no attribute '{name}'")
