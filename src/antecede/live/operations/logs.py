"""The logger of live groups, `antecede.live`: every record names its group and member.

Records have the attributes `group`, `member` and, where there is one, `peer` and `message_id`.
"""

from __future__ import annotations

import logging
from collections.abc import MutableMapping
from typing import Any

LOG = logging.getLogger("antecede.live")


class Log(logging.LoggerAdapter[logging.Logger]):
    """One member's log."""

    def __init__(self, group: str, member: str) -> None:
        super().__init__(LOG, {"group": group, "member": member})

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        kwargs["extra"] = {**(self.extra or {}), **(kwargs.get("extra") or {})}
        return msg, kwargs
