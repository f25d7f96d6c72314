"""Stores for tests: made, opened, and what is in them."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from antecede.live.events import Cursor, LogRecord, TimerFired
from antecede.live.store.disk import Disk, FileDisk
from antecede.live.store.journal import Journal

WHO = {"group": "friends", "me": "ana", "protocol": "mbcp"}
SOCKET = shutil.ignore_patterns("control")
"""The socket in a running member's store, which cannot be copied."""


def opened(disk: Disk | Path, who: Mapping[str, object] = WHO, sync: bool = False) -> Journal:
    return Journal(FileDisk(disk) if isinstance(disk, Path) else disk, dict(who), sync=sync)


def made(path: Path) -> Path:
    with opened(path) as journal:
        journal.write([TimerFired(1)])
        journal.cursor = Cursor(3, 1)
    return path


def left(disk: Disk | Path) -> tuple[Cursor, list[LogRecord], str]:
    with opened(disk) as journal:
        return journal.cursor, list(journal.records()), journal.store


def files(path: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in path.iterdir() if file.name != "lock"}
