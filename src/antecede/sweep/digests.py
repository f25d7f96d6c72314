"""Digests of finished runs: they show that a run's files are unchanged, so that a sweep may skip it.

A run's `_digest.json` has the SHA-256 of each of its files, the run's key, and one of all that. A verdict has
its own, which depends on the run's. Checking reads every file once.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec

from antecede.trace.reader import TRACE_SUFFIXES
from antecede.trace.schema import META
from antecede.trace.writer import write_whole

RUN, VERDICT, ERROR = "_run.json", "_verdict.json", "error.txt"
DIGEST, VERDICT_DIGEST = "_digest.json", "_verdict.sha256"
"""Files beside a trace have names with an underscore, so that other programs read the folder as a table."""


class RunDigest(msgspec.Struct, frozen=True):
    """The contents of `_digest.json`."""

    key: str
    files: dict[str, str]
    digest: str

    @classmethod
    def of(cls, key: str, files: dict[str, str]) -> RunDigest:
        text = msgspec.json.encode([key, sorted(files.items())])
        return cls(key, files, hashlib.sha256(text).hexdigest())


def seal_run(folder: Path, key: str) -> None:
    """Write the digest of a run that is complete."""
    write_whole(folder / DIGEST, msgspec.json.encode(RunDigest.of(key, _digests(folder))))


def seal_verdict(folder: Path) -> None:
    """Write the digest of a run's existing verdict."""
    write_whole(folder / VERDICT_DIGEST, _verdict_digest(folder).encode())


def what_is_wrong(folder: Path, key: str) -> str | None:
    """Why a run in `folder` cannot be the finished run with this key; None if it is."""
    try:
        sealed = msgspec.json.decode((folder / DIGEST).read_bytes(), type=RunDigest)
    except FileNotFoundError:
        return f"it has no {DIGEST}"
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return f"{DIGEST} is damaged"
    if sealed != RunDigest.of(sealed.key, sealed.files):
        return f"{DIGEST} is damaged"
    if sealed.key != key:
        return "it is another run"
    found = _digests(folder)
    for name in sorted(sealed.files.keys() | found.keys()):
        if name not in found:
            return f"{name} is missing"
        if name not in sealed.files:
            return f"{name} does not belong to it"
        if found[name] != sealed.files[name]:
            return f"{name} is not as the run left it"
    return None


def is_verdict_intact(folder: Path) -> bool:
    """Whether a verdict is the one that was reached about this run."""
    try:
        return (folder / VERDICT_DIGEST).read_text("ascii") == _verdict_digest(folder)
    except (OSError, UnicodeDecodeError):
        return False


def _verdict_digest(folder: Path) -> str:
    digest = hashlib.sha256((folder / DIGEST).read_bytes())
    digest.update((folder / VERDICT).read_bytes())
    return digest.hexdigest()


def _digests(folder: Path) -> dict[str, str]:
    """The digests of a run's files: those read as its result or as its trace."""
    found = {}
    traces = [file.name for file in folder.iterdir() if file.suffix in TRACE_SUFFIXES]
    for name in sorted([RUN, META, *traces]):
        if (folder / name).is_file():
            with (folder / name).open("rb") as stream:
                found[name] = hashlib.file_digest(stream, "sha256").hexdigest()
    return found
