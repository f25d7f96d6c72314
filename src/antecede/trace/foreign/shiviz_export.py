"""Exports a run of a trace as a log that ShiViz draws and `shiviz.read_shiviz` reads."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from antecede.errors import InputError
from antecede.terminal import printable
from antecede.trace.reader import read_run
from antecede.trace.schema import shown_message
from antecede.trace.writer import write_whole

REGEX = r"(?<host>\S*) (?<clock>{.*})\n(?<event>.*)"
"""The regular expression to enter in ShiViz."""


class ShivizExport(msgspec.Struct, frozen=True):
    """Describes the file that was written."""

    file: str
    processes: int
    events: int
    regex: str = REGEX


def export_shiviz(trace: Path, file: Path, run: str | None = None) -> ShivizExport:
    """Write every send and delivery of a run with its vector clock; receives are left out."""
    rows = [row for row in read_run(trace, run) if row["kind"] != "receive"]
    if not rows:
        raise InputError(f"{trace} has no send and no delivery")
    hosts = _hosts(rows)
    entries = list(_entries(rows, hosts, trace))
    if file.is_dir():
        raise InputError(f"{file} is a folder; a log goes into a file")
    file.parent.mkdir(parents=True, exist_ok=True)
    write_whole(file, "".join(entries).encode())
    return ShivizExport(str(file), len(hosts), len(entries))


def _hosts(rows: list[dict[str, Any]]) -> dict[str, str]:
    """Each process's name without spaces, which would end a host's name in such a log, and with control
    characters as escapes, since people read it."""
    names = sorted({row["process"] for row in rows})
    hosts = {name: printable("_".join(name.split())) or "_" for name in names}
    if len(set(hosts.values())) < len(names):
        raise InputError(
            "two processes have names that differ in spaces or control characters only, which ShiViz cannot "
            "tell apart"
        )
    return hosts


def _entries(rows: list[dict[str, Any]], hosts: dict[str, str], trace: Path) -> Iterator[str]:
    """The log's entries in a valid order: a delivery waits for its send."""
    own: dict[str, list[dict[str, Any]]] = {name: [] for name in hosts}
    for row in sorted(rows, key=lambda row: row["index"]):
        own[row["process"]].append(row)
    sent = {shown_message(row) for row in rows if row["kind"] == "send"}
    clocks: dict[str, dict[str, int]] = {name: {} for name in hosts}
    carried: dict[str, dict[str, int]] = {}
    waiting: dict[str, list[str]] = {}
    at = dict.fromkeys(hosts, 0)
    ready = list(hosts)[::-1]
    while ready:
        name = ready.pop()
        clock = clocks[name]
        while at[name] < len(own[name]):
            row = own[name][at[name]]
            message = shown_message(row)
            if row["kind"] == "deliver" and message in sent and message not in carried:
                waiting.setdefault(message, []).append(name)
                break
            if row["kind"] == "deliver":
                for other, entry in carried.get(message, {}).items():
                    clock[other] = max(entry, clock.get(other, 0))
            at[name] += 1
            clock[hosts[name]] = at[name]
            if row["kind"] == "send":
                carried[message] = dict(clock)
                ready += waiting.pop(message, [])
            note = "" if message in sent else ", which nobody sent"
            shown = printable(" ".join(message.split()))
            yield f"{hosts[name]} {json.dumps(clock, sort_keys=True)}\n{row['kind']} {shown}{note}\n"
    for message, names in waiting.items():
        raise InputError(
            f"{trace}: {names[0]} delivers {message} before it was sent, for which there is no clock; "
            "see antecede audit"
        )
