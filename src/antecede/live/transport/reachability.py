"""Says in the log which members cannot be reached, and why: a wrong address must not be silent.

Members start one after the other, and connections break and are made again, so a failure is news only once
there has been no connection for a few seconds.
"""

from __future__ import annotations

import os
import re
import ssl
import time

from antecede.live.operations.logs import Log

_PATIENCE_SECONDS = 5.0
"""How long there must have been no connection to a member before that is logged."""
_MAX_REASONS = 8
"""Lines about one member until it is reached."""
_ERRNO = re.compile(r"\[Errno (\d+)\]")
NO_GREETING = "what answers there does not greet as a member"


class Unreached:
    """The members that one process calls, and cannot reach."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._since: dict[str, float] = {}
        """When each was called first since the last connection."""
        self._reasons: dict[str, set[str]] = {}
        """What was logged of each since then."""

    def calling(self, name: str) -> None:
        """A member without a connection is called."""
        self._since.setdefault(name, time.monotonic())

    def failed(self, name: str, where: str, reason: str) -> None:
        """A call has failed. It is logged once for each reason, until the member is reached."""
        since = self._since.setdefault(name, time.monotonic())
        reasons = self._reasons.setdefault(name, set())
        if time.monotonic() - since < _PATIENCE_SECONDS or reason in reasons or len(reasons) == _MAX_REASONS:
            return
        reasons.add(reason)
        self._log.warning(
            "%s is not reachable at %s: %s; still trying", name, where, reason, extra={"peer": name}
        )

    def reached(self, name: str) -> None:
        """There is a connection, whoever has made it."""
        self._since.pop(name, None)
        if self._reasons.pop(name, None):
            self._log.info("%s is reached", name, extra={"peer": name})

    def forget(self, name: str) -> None:
        """A member is called no more."""
        self._since.pop(name, None)
        self._reasons.pop(name, None)


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
    """Of the system's error that asyncio hides behind words of its own; 0 if there is no such error."""
    text = error.strerror or str(error)
    if text.startswith("Multiple exceptions"):
        numbers = {int(each) for each in _ERRNO.findall(text)}
    else:
        numbers = {error.errno or 0} if text.startswith("Connect call failed") else set()
    return numbers.pop() if len(numbers) == 1 else 0
