"""Temporary folders that do not outlive their process, however it ends.

They hold copies of logs and Spark's working files. A folder is removed when its user is done, by an exception
or SIGTERM too (`end_in_order`). After SIGKILL nothing can: so each folder has a lock that its process holds,
which the operating system releases in any case, and whoever creates a folder first removes those of the same
user whose locks are free. Where there are no such locks (Windows), nothing is removed for others.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import shutil
import signal
import stat
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


def _locks() -> Any:
    """The module of file locks; None where there is none."""
    try:
        return importlib.import_module("fcntl")
    except ImportError:  # Windows.
        return None


_fcntl = _locks()
_PREFIX = "antecede-"
_LOCK = ".in-use-by-antecede"
"""Only folders with this file in them are ours to remove."""
_KEPT = ".kept"
_KEPT_SECONDS = 7 * 86_400
"""How long a folder that was kept on purpose, with a log in it, stays."""


class TemporaryFolder:
    """A new folder that only this user can open, in use until it is removed or kept."""

    def __init__(self, kind: str) -> None:
        remove_abandoned()
        self.path = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{kind}-"))
        # The folder gets its name once it is locked: no process can take it for abandoned before.
        unlocked = self.path / f"{_LOCK}.new"
        self._lock = os.open(unlocked, os.O_RDWR | os.O_CREAT, 0o600)
        if _fcntl is not None:
            _fcntl.flock(self._lock, _fcntl.LOCK_EX)
            unlocked.rename(self.path / _LOCK)

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        self._release()

    def keep(self, *names: str) -> None:
        """Leave these files for the user to read; a later process removes them after a week."""
        (self.path / _KEPT).touch()
        for each in self.path.iterdir():
            if each.is_dir():
                shutil.rmtree(each, ignore_errors=True)
            elif each.name not in (*names, _LOCK, _KEPT):
                each.unlink(missing_ok=True)
        self._release()

    def _release(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


@contextmanager
def temporary_folder(kind: str) -> Iterator[Path]:
    """A temporary folder for the time of a `with` statement."""
    folder = TemporaryFolder(kind)
    try:
        yield folder.path
    finally:
        folder.remove()


def remove_abandoned() -> None:
    """Remove the folders of this user whose processes have ended without doing so."""
    if _fcntl is None:
        return
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        # Another process may be removing the same folder.
        with contextlib.suppress(OSError):
            if _is_ours(folder) and _is_abandoned(folder):
                shutil.rmtree(folder, ignore_errors=True)


def _is_ours(folder: Path) -> bool:
    about, lock = folder.lstat(), (folder / _LOCK).lstat()
    mine = os.getuid()
    return stat.S_ISDIR(about.st_mode) and stat.S_ISREG(lock.st_mode) and about.st_uid == lock.st_uid == mine


def _is_abandoned(folder: Path) -> bool:
    kept = folder / _KEPT
    if kept.exists() and time.time() - kept.lstat().st_mtime < _KEPT_SECONDS:
        return False
    handle = os.open(folder / _LOCK, os.O_RDWR | os.O_NOFOLLOW)
    try:
        _fcntl.flock(handle, _fcntl.LOCK_EX | _fcntl.LOCK_NB)
        return True
    except BlockingIOError:
        return False
    finally:
        os.close(handle)


@contextmanager
def end_in_order() -> Iterator[None]:
    """Let SIGTERM end this process as an exception does, so that temporary folders are removed."""

    def end(number: int, _: Any) -> None:
        signal.signal(number, signal.SIG_DFL)  # A second signal does not wait.
        sys.exit(128 + number)

    usable = threading.current_thread() is threading.main_thread()
    if not usable or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
