"""Free ports for the processes of a trial."""

from __future__ import annotations

import itertools
import os
import socket

_FIRST, _LAST = 10_000, 29_999
"""Below the ports that systems give to outgoing connections and to listeners that name none: one of those
could take a port after it was found free and before its process listens."""
_next = itertools.count(os.getpid() * 7919)
"""Different for each process, so that trials side by side seldom try the same port."""


def free_ports(count: int) -> list[int]:
    """Ports of the loopback that no program uses now, and that this process has not been given lately."""
    found: list[int] = []
    for number in itertools.islice(_next, _LAST - _FIRST + 1):
        if len(found) == count:
            break
        port = _FIRST + number % (_LAST - _FIRST + 1)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        found.append(port)
    return found
