"""Why a program cannot listen at an address, explained for the user who chose it."""

from __future__ import annotations

import errno
import socket


def describe_listen_error(error: OSError | UnicodeError) -> str:
    """The problem, and the remedy. A `UnicodeError` comes from a host name that no name server could
    resolve."""
    if isinstance(error, UnicodeError | socket.gaierror):
        detail = f" ({error.strerror})" if isinstance(error, OSError) and error.strerror else ""
        return (
            f"the host name cannot be resolved{detail}; "
            "use an address of this machine, or 0.0.0.0 for all of them"
        )
    if error.errno == errno.EADDRINUSE:
        return "another program uses this port; stop it, or choose another port"
    if error.errno == errno.EADDRNOTAVAIL:
        return "this machine does not have that address; use one of its own, or 0.0.0.0 for all of them"
    if isinstance(error, PermissionError):
        return "this user may not use that port; choose one from 1024 up"
    return error.strerror or str(error)
