"""The logger of live groups, `antecede.live`: every record names its group and member.

Records have the attributes `group`, `member` and, where there is one, `peer` and `message_id`. Names and
reasons come from other members, so control characters in them are shown as escapes: no text can forge a line.
"""

from __future__ import annotations

import logging
from collections.abc import MutableMapping
from typing import Any

from antecede.terminal import printable

LOG = logging.getLogger("antecede.live")


class Log(logging.LoggerAdapter[logging.Logger]):
    """One member's log."""

    def __init__(self, group: str, member: str) -> None:
        super().__init__(LOG, {"group": group, "member": member})

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        extra = {**(self.extra or {}), **(kwargs.get("extra") or {})}
        kwargs["extra"] = {name: _printable(value) for name, value in extra.items()}
        return msg, kwargs

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        if self.isEnabledFor(level):
            super().log(level, msg, *map(_printable, args), **kwargs)


def _printable(value: object) -> object:
    return value if isinstance(value, int | float) else printable(str(value))
