"""Writes histories in the formats of other programs, as these document them."""

from __future__ import annotations

import json
import struct
from pathlib import Path

from antecede.transactions import History, Status


def write_plume(history: History, path: Path) -> Path:
    rows = []
    for number, session, operations, committed in _transactions(history):
        for write, key, value in operations:
            transaction = number if committed else -1
            rows.append(f"{'w' if write else 'r'}({key},{value},{session},{transaction})\n")
    path.write_text("".join(rows))
    return path


def write_awdit(history: History, path: Path) -> Path:
    """Committed transactions only; the initial values are written by one of its own, in a session of its
    own."""
    sessions = [["\n".join(f"w {key} {history.initial_value}" for key in range(history.keys))]]
    sessions += [
        [
            "\n".join(f"{'w' if write else 'r'} {key} {value}" for write, key, value in operations)
            for _, at, operations, committed in _transactions(history)
            if at == session and committed
        ]
        for session in range(history.sessions)
    ]
    path.write_text("\n=====\n".join("\n-----\n".join(session) for session in sessions if session) + "\n")
    return path


def write_dbcop(history: History, folder: Path) -> Path:
    folder.mkdir()
    with (folder / "history.bincode").open("wb") as file:
        file.write(
            struct.pack("<5Q", 0, history.sessions, history.keys, history.transactions, history.operations)
        )
        for text in (b"made by a test", b"2026-01-01T00:00:00+00:00", b"2026-01-01T00:00:01+00:00"):
            file.write(struct.pack("<Q", len(text)) + text)
        file.write(struct.pack("<Q", history.sessions))
        for session in range(history.sessions):
            inside = [found for found in _transactions(history) if found[1] == session]
            file.write(struct.pack("<Q", len(inside)))
            for _, _, operations, committed in inside:
                file.write(struct.pack("<Q", len(operations)))
                for write, key, value in operations:
                    file.write(struct.pack("<BQQB", write, key, value, True))
                file.write(struct.pack("<B", committed))
    return folder


def write_dbcop_json(history: History, path: Path, compact: bool) -> Path:
    sessions: list[list[object]] = [[] for _ in range(history.sessions)]
    for _, session, operations, committed in _transactions(history):
        events: list[object] = []
        for write, key, value in operations:
            version = None if not write and value == history.initial_value else value
            event = ["w" if write else "r", key, version]
            whole = {"Write" if write else "Read": {"variable": key, "version": version}}
            events.append(event if compact else whole)
        sessions[session].append({"events": events, "committed": committed})
    path.write_text(json.dumps(sessions if compact else {"info": "made by a test", "data": sessions}))
    return path


def write_cobra(history: History, folder: Path) -> Path:
    folder.mkdir()
    for session in range(history.sessions):
        with (folder / f"T{session}.log").open("wb") as file:
            for number, at, operations, committed in _transactions(history):
                if at != session:
                    continue
                file.write(struct.pack(">cq", b"S", number))
                for write, key, value in operations:
                    if write:
                        file.write(struct.pack(">cqqq", b"W", value, key - 5, -7))
                    else:
                        initial = value == history.initial_value
                        source = (0xBEBEEBEE, 0xDEADBEEF) if initial else (1, value)
                        file.write(struct.pack(">cqqqq", b"R", *source, key - 5, -7))
                file.write(struct.pack(">cq", b"C" if committed else b"A", number))
    return folder


def _transactions(history: History) -> list[tuple[int, int, list[tuple[bool, int, int]], bool]]:
    return [
        (
            number,
            history.session_of(number),
            history.operations_of(number),
            bool(history.status[number] == Status.COMMITTED),
        )
        for number in range(history.transactions)
    ]
