"""What makes files survive a power failure: syncing their content, and the folder that has their names."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

sync_data: Callable[[int], None] = getattr(os, "fdatasync", os.fsync)
"""Return once the content of an open file is durable."""


def create_private(path: Path) -> None:
    """An empty file that only its owner can read (0600), whatever the umask is; an old file becomes that."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        if hasattr(os, "fchmod"):
            os.fchmod(descriptor, 0o600)
    finally:
        os.close(descriptor)


def sync_file(path: Path) -> None:
    """Return once the content of a file is durable."""
    descriptor = os.open(path, os.O_RDWR)
    try:
        sync_data(descriptor)
    finally:
        os.close(descriptor)


def sync_folder(path: Path) -> None:
    """Return once the names in a folder are durable, where the platform can do that (Windows cannot)."""
    if os.name == "nt":
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
