"""Logs which members cannot be reached, and why: a wrong address must not go unnoticed.

Members start one after another, and connections break and are re-established, so a failure is logged only
after a few seconds without a connection.
"""

from __future__ import annotations

import os
import re
import ssl
import time
from collections import Counter

from antecede.live.operations.logs import Log

_PATIENCE_SECONDS = 5.0
"""How long a member must be disconnected before that is logged."""
_REPEAT_SECONDS = 60.0
"""How long after one reason another one is logged: a host that comes and goes gives several in turn."""
_MAX_LINES = 8
"""Maximum number of lines about one member until it is reached."""
_ERRNO = re.compile(r"\[Errno (\d+)\]")
NO_GREETING = "what answers there does not greet as a member"


class Unreached:
    """The members that one process calls without reaching them."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._since: dict[str, float] = {}
        """When each was first called since its last connection."""
        self._logged: dict[str, dict[str, tuple[str, float]]] = {}
        """By name and address: the reason that was logged last since then, and when."""
        self._lines: Counter[str] = Counter()

    def calling(self, name: str) -> None:
        """A disconnected member is called."""
        self._since.setdefault(name, time.monotonic())

    def failed(self, name: str, where: str, reason: str) -> None:
        """A call has failed. It is logged once for each address, until the member is reached, and again if
        the reason is another one after a minute."""
        now = time.monotonic()
        since = self._since.setdefault(name, now)
        logged = self._logged.setdefault(name, {})
        before, at = logged.get(where, ("", float("-inf")))
        is_soon = now - since < _PATIENCE_SECONDS or now - at < _REPEAT_SECONDS
        if is_soon or reason == before or self._lines[name] == _MAX_LINES:
            return
        logged[where] = reason, now
        self._lines[name] += 1
        self._log.warning(
            "%s is not reachable at %s: %s; still trying", name, where, reason, extra={"peer": name}
        )

    def reached(self, name: str) -> None:
        """A connection exists, made by either side."""
        if self._lines[name]:
            self._log.info("%s is reached", name, extra={"peer": name})
        self.forget(name)

    def forget(self, name: str) -> None:
        """A member is no longer called."""
        self._since.pop(name, None)
        self._logged.pop(name, None)
        self._lines.pop(name, None)


def describe(error: BaseException) -> str:
    """Why a connection has failed, for a log."""
    if isinstance(error, ssl.SSLError):
        if error.reason == "WRONG_VERSION_NUMBER":
            return "it speaks without encryption, and this member has keys"
        detail = getattr(error, "verify_message", "")
        reason = (error.reason or str(error)).lower().replace("_", " ")
        return f"{reason}: {detail}" if detail else reason
    if isinstance(error, OSError) and (number := _error_number(error)):
        return os.strerror(number).lower()
    if isinstance(error, TimeoutError):
        return "it did not answer"
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def _error_number(error: OSError) -> int:
    """The system's error number that asyncio hides in its message; 0 if there is none."""
    text = error.strerror or str(error)
    if text.startswith("Multiple exceptions"):
        numbers = {int(each) for each in _ERRNO.findall(text)}
    else:
        numbers = {error.errno or 0} if text.startswith("Connect call failed") else set()
    return numbers.pop() if len(numbers) == 1 else 0
